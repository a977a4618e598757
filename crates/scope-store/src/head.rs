//! The head of a store file: what every pcapng reader wants to know of its interfaces, and whose file it is.
//!
//! ```text
//!  0                                                        multiple of 4096
//!  | SHB with a comment | IDB 0 | IDB 1 ... | head block | padding |
//! ```
//! The head block's check is over the whole head, so that no byte of it can change unnoticed. docs/FORMAT.md,
//! section 7, has its table.
//!
//! A packet block names its interface by the run's number, so the head describes all interfaces of the run in
//! order. libpcap refuses a file whose interfaces differ in link type: an interface of another link type,
//! which has no packet here, stands in with this file's, and its description says so. Where there are
//! several, link types stand under the number that libpcap reads in such files ([`LinkType::alias`]).

use scope_packet::pcapng::{self, BLOCK_BYTES_MIN, HEAD, INTERFACE, PADDING, SECTION_HEADER, le32};
use scope_packet::segment::is_segment_size;
use scope_packet::{GapReason, LinkType};
use std::cmp::Ordering;
use std::fmt::Write;
use twox_hash::XxHash3_64;

/// The head is a multiple of this.
pub const HEAD_ALIGN: usize = 4096;
/// Largest head: one of all interfaces that a run may know is smaller.
pub const HEAD_BYTES_MAX: usize = 64 << 20;
/// Longest store filter, bytes of text.
pub const FILTER_BYTES_MAX: usize = 1 << 20;
/// Most volumes of a run.
pub const VOLUMES_MAX: usize = 64;

/// In a longer head no changed bit is looked for: that takes time with the square of its length.
const MENDED_BYTES_MAX: usize = 16 << 10;
/// Longer texts of an interface are truncated.
const TEXT_BYTES_MAX: usize = 255;
/// A longer filter stands in the head block alone.
const FILTER_SHOWN_MAX: usize = 255;
/// Magic and, last, the version.
const MAGIC: [u8; 8] = *b"WSHEAD\0\x01";
/// Of the head block: where the check lies, and where the filter's text begins.
const CHECK_AT: usize = 72;
const FIXED_BYTES: usize = 80;
/// Of a volume's id.
const VOLUME_BYTES: usize = 16;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
/// How the description of an interface begins that stands in for one of another link type.
const STANDS_IN: &str = "no packets here: its link type is ";

/// What the head of a store file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The run's 128 random bits; zeros in a head without a head block.
    pub run_id: [u8; 16],
    /// The volume's; zeros: the file belongs to none (`--ring-out`).
    pub volume: [u8; 16],
    /// All volumes of the run, this one among them; empty: the file belongs to none, or its head is from before
    /// heads said so. At most [`VOLUMES_MAX`].
    pub volumes: Vec<[u8; 16]>,
    /// Number of the file in its run and volume, from 1.
    pub number: u32,
    /// Size of all segments; 0 in a head without a head block, which is one from before there were any.
    pub segment_bytes: u32,
    /// Link type of all packets.
    pub link_type: LinkType,
    /// The store filter; empty: all packets are kept. At most [`FILTER_BYTES_MAX`].
    pub filter: String,
    /// Bytes of a packet that are kept at most; 0: as many as in the ring.
    pub snap: u32,
    /// The interfaces, in the order of their numbers.
    pub interfaces: Vec<HeadInterface>,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadInterface {
    /// `if_name`.
    pub name: String,
    /// `if_description`.
    pub description: String,
    /// Its own link type; read back it is the file's, also where it has no packet here.
    pub link_type: LinkType,
}

impl HeadInterface {
    /// Why it lacks packets, where only a count says so: a capture file says that itself, and live it is the kernel
    /// nearly always.
    pub fn drops_as(&self) -> GapReason {
        // "lane 0; snap length 262144; timestamps file", and what else the source says.
        match self.description.split("; ").nth(2) {
            Some("timestamps file") => GapReason::File,
            _ => GapReason::Kernel,
        }
    }
}

/// Why a head can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// More bytes are needed to know.
    #[error("the head is cut off")]
    Incomplete,
    /// Some other file, or one whose first bytes are damaged.
    #[error("no store file: {what} at byte {at}")]
    Foreign {
        /// What is there instead.
        what: &'static str,
        /// Where, bytes.
        at: usize,
    },
    /// Written by a later program.
    #[error("the head has format version {0}, which is newer than this program's: read it with a newer one")]
    Newer(u8),
    /// It isn't what was written.
    #[error("the head is damaged: {0}")]
    Damaged(&'static str),
}

impl HeadInterface {
    /// Whether it may have packets in its file: of one that was read, it stands in for none of another link type.
    pub fn has_packets(&self) -> bool {
        !self.description.starts_with(STANDS_IN)
    }
}

impl Head {
    /// Whether there is a head block: a file without one is from before there were checks and an index.
    pub fn has_block(&self) -> bool {
        self.segment_bytes != 0
    }

    /// The head as it stands in the file, a multiple of [`HEAD_ALIGN`] long.
    pub fn write(&self) -> Vec<u8> {
        assert!(is_segment_size(self.segment_bytes as usize) && self.filter.len() <= FILTER_BYTES_MAX);
        assert!(self.volumes.len() <= VOLUMES_MAX);
        let mut out = Vec::new();
        pcapng::section_header(&mut out, concat!("wirescope ", env!("CARGO_PKG_VERSION")), &self.comment());
        let several = self.interfaces.len() > 1;
        let number = self.link_type.alias().filter(|_| several).unwrap_or(self.link_type);
        for interface in &self.interfaces {
            self.write_interface(&mut out, number, interface);
        }
        if self.interfaces.is_empty() {
            pcapng::interface(&mut out, self.link_type, "none", "no packet was received");
        }
        let block_at = out.len();
        let behind_filter = FIXED_BYTES + pcapng::padded(self.filter.len());
        let end = head_end(block_at + behind_filter + self.volumes.len() * VOLUME_BYTES + 4);
        let mut body = Vec::new();
        body.extend(MAGIC);
        body.extend(self.run_id);
        body.extend(self.volume);
        for word in [self.number, self.segment_bytes, self.snap] {
            body.extend(word.to_le_bytes());
        }
        for half in [self.link_type.0, self.volumes.len() as u16] {
            body.extend(half.to_le_bytes());
        }
        body.extend((end as u32).to_le_bytes());
        body.extend((self.filter.len() as u32).to_le_bytes());
        body.extend([0; 8]); // the check
        body.extend(self.filter.as_bytes());
        body.resize(behind_filter - 8, 0); // without type and length
        body.extend(self.volumes.as_flattened());
        pcapng::block(&mut out, HEAD, &body);
        let used = out.len();
        out.resize(end, 0);
        if end != used {
            pcapng::padding(&mut out[used..]);
        }
        let check = XxHash3_64::oneshot(&out);
        out[block_at + CHECK_AT..][..8].copy_from_slice(&check.to_le_bytes());
        out
    }

    fn write_interface(&self, out: &mut Vec<u8>, number: LinkType, interface: &HeadInterface) {
        let stands_in = interface.link_type != self.link_type;
        let description = match stands_in {
            true => format!("{STANDS_IN}{}", interface.link_type.name()),
            false => pcapng::beginning(&interface.description, TEXT_BYTES_MAX).to_string(),
        };
        let name = pcapng::beginning(&interface.name, TEXT_BYTES_MAX);
        let shown = !self.filter.is_empty() && self.filter.len() <= FILTER_SHOWN_MAX;
        let filter = if shown { &self.filter } else { "" };
        pcapng::interface_filtered(out, number, name, &description, (filter, self.snap));
    }

    /// One fact a line, for people.
    fn comment(&self) -> String {
        let run: String = self.run_id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let what = match self.volume == [0; 16] {
            true => "ring".to_string(),
            false => format!("file {} of the store", self.number),
        };
        let mut text = format!("{what}, run {run}, packets of link type {}", self.link_type.name());
        let mut add = |line: std::fmt::Arguments<'_>| {
            let _ = write!(text, "\n{line}"); // into a string: it can't fail
        };
        if !self.filter.is_empty() {
            let shown = pcapng::beginning(&self.filter, FILTER_SHOWN_MAX);
            let dots = if shown.len() < self.filter.len() { " ..." } else { "" };
            add(format_args!("filter: {shown}{dots} (other packets were left out)"));
        }
        if self.snap != 0 {
            add(format_args!("snap length: {} (longer packets were truncated)", self.snap));
        }
        text
    }

    /// Reads the head at the start of `bytes`, and how long it is. A head without a head block is read, too;
    /// where it is as long as `bytes`, more of it may follow there.
    pub fn read(bytes: &[u8]) -> Result<(Head, usize), HeadError> {
        let mut head = Head {
            run_id: [0; 16],
            volume: [0; 16],
            volumes: Vec::new(),
            number: 0,
            segment_bytes: 0,
            link_type: LinkType::ETHERNET,
            filter: String::new(),
            snap: 0,
            interfaces: Vec::new(),
        };
        let mut at = section_header(bytes)?;
        let mut marked = None;
        while let Some((kind, block)) = block_at(bytes, at)? {
            match kind {
                INTERFACE if marked.is_none() => head.interfaces.push(interface(block, at)?),
                HEAD if marked.is_none() => marked = Some((at, head.take_block(block)?)),
                PADDING if block[8..block.len() - 4].iter().any(|&byte| byte != 0) => {
                    return Err(HeadError::Damaged("its padding isn't zero"));
                }
                PADDING => {
                    at += block.len();
                    break;
                }
                _ => break,
            }
            at += block.len();
        }
        match marked {
            Some((block_at, end)) if end == at => check(&bytes[..end], block_at)?,
            Some((_, end)) if end > bytes.len() && end <= HEAD_BYTES_MAX => {
                return Err(HeadError::Incomplete);
            }
            Some(_) => return Err(HeadError::Damaged("its blocks don't end where it says")),
            None if !at.is_multiple_of(HEAD_ALIGN) || head.interfaces.is_empty() => {
                let foreign = HeadError::Foreign { what: "no head of interfaces and padding ends", at };
                return Err(if at == bytes.len() { HeadError::Incomplete } else { foreign });
            }
            None => head.link_type = head.interfaces[0].link_type,
        }
        Ok((head, at))
    }

    /// What a damaged head said, where that can be told for certain: one bit of it is changed, or only padding or
    /// the version are; with the first place that is changed. `damaged` is all of it.
    pub fn mend(damaged: &[u8]) -> Option<(Head, usize)> {
        let is_block = |at: &usize| damaged[*at + 8..].starts_with(&MAGIC[..7]);
        let block_at = (0..damaged.len().saturating_sub(FIXED_BYTES)).step_by(4).find(is_block);
        let padded = block_at.and_then(|block_at| {
            let mut head = damaged.to_vec();
            head[block_at + 15] = MAGIC[7];
            let used = block_at + le32(&head, block_at + 4) as usize;
            let rest = head.get_mut(used..).filter(|rest| rest.len() >= BLOCK_BYTES_MIN)?;
            rest.fill(0);
            pcapng::padding(rest);
            Some(head)
        });
        let mended =
            padded.filter(|head| Head::read(head).is_ok()).or_else(|| one_bit(damaged, block_at?))?;
        let at = mended.iter().zip(damaged).position(|(one, other)| one != other)?;
        Head::read(&mended).ok().map(|(head, _)| (head, at))
    }

    /// Takes over what the head block says; returns the head's length.
    fn take_block(&mut self, block: &[u8]) -> Result<usize, HeadError> {
        if block.len() < FIXED_BYTES + 4 || block[8..15] != MAGIC[..7] {
            return Err(HeadError::Damaged("its head block isn't one"));
        }
        match block[15].cmp(&MAGIC[7]) {
            Ordering::Greater => return Err(HeadError::Newer(block[15])),
            Ordering::Less => return Err(HeadError::Damaged("its format version is none that ever was")),
            Ordering::Equal => {}
        }
        self.run_id.copy_from_slice(&block[16..32]);
        self.volume.copy_from_slice(&block[32..48]);
        self.number = le32(block, 48);
        self.segment_bytes = le32(block, 52);
        self.snap = le32(block, 56);
        self.link_type = LinkType(le32(block, 60) as u16);
        let (filter_bytes, volumes) = (le32(block, 68) as usize, (le32(block, 60) >> 16) as usize);
        let behind = &block[FIXED_BYTES..block.len() - 4];
        let filter = behind.get(..filter_bytes);
        match filter.map(std::str::from_utf8) {
            Some(Ok(filter)) => self.filter = filter.to_string(),
            _ => return Err(HeadError::Damaged("its filter is no text")),
        }
        let volumes =
            behind.get(pcapng::padded(filter_bytes)..).and_then(|ids| ids.get(..volumes * VOLUME_BYTES));
        match volumes {
            Some(ids) if ids.len() <= VOLUMES_MAX * VOLUME_BYTES => self.volumes = ids.as_chunks().0.to_vec(),
            _ => return Err(HeadError::Damaged("its list of volumes is none")),
        }
        if !is_segment_size(self.segment_bytes as usize) {
            return Err(HeadError::Damaged("its segment size is none"));
        }
        Ok(le32(block, 64) as usize)
    }
}

/// The next multiple of [`HEAD_ALIGN`] that leaves no gap, or one that a padding block fits.
fn head_end(used: usize) -> usize {
    let end = used.next_multiple_of(HEAD_ALIGN);
    if end != used && end - used < BLOCK_BYTES_MIN { end + HEAD_ALIGN } else { end }
}

/// Checks the section header at the start of `bytes`; where it ends.
fn section_header(bytes: &[u8]) -> Result<usize, HeadError> {
    let foreign = |what, at| Err(HeadError::Foreign { what, at });
    if bytes.len() >= 4 && le32(bytes, 0) != SECTION_HEADER {
        return foreign("no section header", 0);
    }
    if bytes.len() >= 12 && le32(bytes, 8) != BYTE_ORDER {
        return foreign("another byte order", 8);
    }
    match block_at(bytes, 0)? {
        Some((_, block)) if block.len() >= 28 => Ok(block.len()),
        Some(_) => foreign("no section header", 0),
        None => Err(HeadError::Incomplete),
    }
}

/// The whole block that begins at `at`; `None` where no bytes follow, or what follows is no head's block.
fn block_at(bytes: &[u8], at: usize) -> Result<Option<(u32, &[u8])>, HeadError> {
    let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    if rest.len() < 8 {
        return Err(HeadError::Incomplete);
    }
    let (kind, total) = (le32(rest, 0), le32(rest, 4) as usize);
    if ![SECTION_HEADER, INTERFACE, HEAD, PADDING].contains(&kind) {
        return Ok(None);
    }
    if !total.is_multiple_of(4) || total < BLOCK_BYTES_MIN || at + total > HEAD_BYTES_MAX {
        return Err(HeadError::Damaged("a block's length is impossible"));
    }
    let block = rest.get(..total).ok_or(HeadError::Incomplete)?;
    match le32(block, total - 4) as usize == total {
        true => Ok(Some((kind, block))),
        false => Err(HeadError::Damaged("a block's two lengths differ")),
    }
}

/// An interface description at `at`.
fn interface(block: &[u8], at: usize) -> Result<HeadInterface, HeadError> {
    let foreign = |what| HeadError::Foreign { what, at };
    let options = block.get(16..block.len() - 4).ok_or(foreign("no interface description"))?;
    let mut interface = HeadInterface {
        name: String::new(),
        description: String::new(),
        link_type: LinkType(le32(block, 8) as u16).canonical(),
    };
    let (mut rest, mut nanoseconds) = (options, false);
    while let [c0, c1, l0, l1, value @ ..] = rest {
        let len = u16::from_le_bytes([*l0, *l1]) as usize;
        let text = value.get(..len).ok_or(foreign("an option that is cut off"))?;
        match u16::from_le_bytes([*c0, *c1]) {
            0 => break,
            2 => interface.name = String::from_utf8_lossy(text).into_owned(),
            3 => interface.description = String::from_utf8_lossy(text).into_owned(),
            9 => nanoseconds = text == [9],
            _ => {}
        }
        rest = value.get(pcapng::padded(len)..).unwrap_or_default();
    }
    match nanoseconds {
        true => Ok(interface),
        false => Err(foreign("an interface whose times aren't nanoseconds")),
    }
}

/// Holds the head against the check in its head block, at `block_at`.
fn check(head: &[u8], block_at: usize) -> Result<(), HeadError> {
    let at = block_at + CHECK_AT;
    let mut cleared = head.to_vec();
    cleared[at..at + 8].fill(0);
    match XxHash3_64::oneshot(&cleared).to_le_bytes() == head[at..at + 8] {
        true => Ok(()),
        false => Err(HeadError::Damaged("its checksum differs")),
    }
}

/// The head without the one bit that is changed, as the check in its head block, at `block_at`, proves.
fn one_bit(damaged: &[u8], block_at: usize) -> Option<Vec<u8>> {
    let at = block_at + CHECK_AT;
    let (mut head, check) = (damaged.to_vec(), damaged.get(at..at + 8)?);
    let expected = u64::from_le_bytes(check.try_into().ok()?);
    head[at..at + 8].fill(0);
    let found = XxHash3_64::oneshot(&head);
    let is_in_check = (found ^ expected).count_ones() == 1;
    let bits = if damaged.len() > MENDED_BYTES_MAX { 0 } else { damaged.len() * 8 };
    let is_found = is_in_check
        || (0..bits).any(|bit| {
            head[bit / 8] ^= 1 << (bit % 8);
            let is_it = XxHash3_64::oneshot(&head) == expected;
            head[bit / 8] ^= if is_it { 0 } else { 1 << (bit % 8) };
            is_it
        });
    let check = if is_in_check { found } else { expected };
    head[at..at + 8].copy_from_slice(&check.to_le_bytes());
    is_found.then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn head(interfaces: usize) -> Head {
        let interface = |number| HeadInterface {
            name: format!("eth{number}"),
            description: format!("lane {number}"),
            link_type: LinkType::ETHERNET,
        };
        Head {
            run_id: [0xa1; 16],
            volume: [0xb2; 16],
            volumes: vec![[0xb2; 16], [0xb3; 16]],
            number: 7,
            segment_bytes: 64 << 10,
            link_type: LinkType::ETHERNET,
            filter: "udp port 53".to_string(),
            snap: 96,
            interfaces: (0..interfaces).map(interface).collect(),
        }
    }

    #[test]
    fn a_capture_files_interface_lacks_what_its_file_says_and_a_live_one_what_the_kernel_dropped() {
        let of = |description: &str| {
            let description = description.to_string();
            HeadInterface { name: String::new(), description, link_type: LinkType::ETHERNET }.drops_as()
        };
        assert_eq!(of("lane 0; snap length none; timestamps file; a note"), GapReason::File);
        assert_eq!(of("lane 0; snap length 96; timestamps file"), GapReason::File);
        assert_eq!(of("lane 0; snap length none; timestamps kernel; x; timestamps file"), GapReason::Kernel);
        assert_eq!(of(""), GapReason::Kernel);
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for interfaces in [1, 2, 60, 300] {
            let head = head(interfaces);
            let mut bytes = head.write();
            let len = bytes.len();
            assert!(len.is_multiple_of(HEAD_ALIGN) && len <= interfaces * 130 + 5000);
            bytes.extend([6, 0, 0, 0, 32, 0, 0, 0]); // what follows is none of the head's
            assert_eq!(Head::read(&bytes), Ok((head, len)));
        }
        let ring = Head { volume: [0; 16], volumes: Vec::new(), filter: String::new(), snap: 0, ..head(1) };
        assert_eq!(Head::read(&ring.write()).unwrap().0, ring);
        assert_eq!(ring.comment(), "ring, run a1a1a1a1, packets of link type ETHERNET");
        assert_eq!(
            head(1).comment(),
            "file 7 of the store, run a1a1a1a1, packets of link type ETHERNET\n\
             filter: udp port 53 (other packets were left out)\n\
             snap length: 96 (longer packets were truncated)"
        );
    }

    #[test]
    fn any_length_of_a_head_ends_at_a_whole_page() {
        for bytes in 0..4200 {
            let head = Head { filter: "x".repeat(bytes), volumes: vec![[7; 16]; bytes % 4], ..head(1) };
            let written = head.write();
            assert!(written.len().is_multiple_of(HEAD_ALIGN));
            assert_eq!(Head::read(&written), Ok((head, written.len())), "{bytes}");
        }
    }

    #[test]
    fn an_interface_of_another_link_type_stands_in_with_the_file_s() {
        let mut head = Head { link_type: LinkType::RAW, ..head(2) };
        head.interfaces[1].link_type = LinkType::RAW;
        let (read, _) = Head::read(&head.write()).unwrap();
        assert_eq!(read.interfaces.iter().map(|one| one.link_type).collect::<Vec<_>>(), [LinkType::RAW; 2]);
        assert_eq!(read.interfaces[0].description, "no packets here: its link type is ETHERNET");
        assert_eq!([read.interfaces[0].has_packets(), read.interfaces[1].has_packets()], [false, true]);
        assert_eq!((read.link_type, &read.interfaces[1]), (LinkType::RAW, &head.interfaces[1]));
        let none = Head { interfaces: Vec::new(), ..head };
        assert_eq!(Head::read(&none.write()).unwrap().0.interfaces[0].name, "none");
    }

    #[test]
    fn a_head_that_is_cut_off_is_incomplete_and_no_byte_of_it_changes_unnoticed() {
        let bytes = head(3).write();
        for len in 0..bytes.len() {
            assert_eq!(Head::read(&bytes[..len]), Err(HeadError::Incomplete), "{len}");
        }
        for at in 0..bytes.len() {
            for flip in [1, 2, 7, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                let read = Head::read(&changed);
                assert!(read.is_err(), "byte {at}: {read:?}");
            }
        }
    }

    #[test]
    fn a_newer_head_and_a_foreign_file_are_said_so() {
        let mut bytes = head(1).write();
        let at = bytes.windows(6).position(|part| part == b"WSHEAD").unwrap();
        bytes[at + 7] = 9;
        assert_eq!(Head::read(&bytes), Err(HeadError::Newer(9)));
        bytes[at + 7] = 0;
        assert!(matches!(Head::read(&bytes), Err(HeadError::Damaged(_))), "a version before the first one");
        assert_eq!(
            Head::read(b"\xd4\xc3\xb2\xa1 a pcap").unwrap_err().to_string(),
            "no store file: no section header at byte 0"
        );
        let mut plain = Vec::new();
        pcapng::section_header(&mut plain, "other", "");
        pcapng::interface(&mut plain, LinkType::ETHERNET, "eth0", "");
        plain.extend([6, 0, 0, 0, 32, 0, 0, 0]);
        assert!(matches!(Head::read(&plain), Err(HeadError::Foreign { .. })));
    }

    #[test]
    fn a_head_without_a_head_block_is_read() {
        let mut bytes = Vec::new();
        pcapng::section_header(&mut bytes, "wirescope", "");
        pcapng::interface(&mut bytes, LinkType::RAW.alias().unwrap(), "eth0", "lane 0");
        let used = bytes.len();
        bytes.resize(HEAD_ALIGN, 0);
        pcapng::padding(&mut bytes[used..]);
        let (head, len) = Head::read(&bytes).unwrap();
        assert_eq!((len, head.has_block(), head.link_type), (HEAD_ALIGN, false, LinkType::RAW));
        assert_eq!((&head.interfaces[0].name[..], &head.interfaces[0].description[..]), ("eth0", "lane 0"));
    }
}
