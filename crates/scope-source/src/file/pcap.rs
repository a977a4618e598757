//! The classic pcap file: one header, then records of head and bytes, in either byte order, with micro- or
//! nanoseconds.
//!
//! ```text
//!  header  0 magic | 4 major | 6 minor | 8 zone, unused | 12 accuracy, unused | 16 snap length | 20 link type     24 bytes
//!  record  0 seconds | 4 micro- or nanoseconds | 8 captured length | 12 original length | [16 8 more, modified] | bytes
//! ```
//! Oddities are read as libpcap reads them, so that packet counts and bytes agree with tcpdump's: before
//! version 2.3 the two lengths stood the other way round (2.3 itself has both, the larger is the original); a
//! record longer than the header's snap length is truncated to it; one longer than is sane for its link type
//! is damage.

use scope_packet::{Interface, LinkType, TimestampSource, time};

use super::pseudo::Pseudo;
use super::record::{Damage, Found, Interfaces, Record, captured_len_max, snap_len};

pub(super) const HEADER_BYTES: usize = 24;
/// What all records' heads begin with, bytes.
pub(super) const HEAD_BYTES_MIN: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Microseconds, with 8 bytes more in each record's head.
const MODIFIED: u32 = 0xa1b2_cd34;

/// In which order a record's two lengths stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    OriginalFirst,
    SmallerIsCaptured,
}

/// How the records of one pcap file are read.
#[derive(Debug)]
pub(super) struct Pcap {
    big_endian: bool,
    ns_per_fraction: i64,
    head_bytes: usize,
    lengths: Lengths,
    captured_len_max: u32,
    /// Longer packets are truncated to this.
    kept_len_max: u32,
    interface: u32,
    pseudo: Pseudo,
    /// Every record's head is 16 bytes in our byte order, with the captured length first, and nothing of a
    /// packet has to be turned.
    is_plain: bool,
}

/// Whether these 4 bytes begin a pcap file, and in which byte order.
pub(super) fn is_magic(bytes: [u8; 4]) -> Option<bool> {
    let known = |magic| matches!(magic, MICROSECONDS | NANOSECONDS | MODIFIED);
    match () {
        () if known(u32::from_le_bytes(bytes)) => Some(false),
        () if known(u32::from_be_bytes(bytes)) => Some(true),
        () => None,
    }
}

impl Pcap {
    /// Reads the header of file number `file`. The words of an error say what is wrong with it.
    pub(super) fn open(
        header: &[u8; HEADER_BYTES],
        name: &str,
        file: u32,
        interfaces: &mut Interfaces,
    ) -> Result<Pcap, String> {
        let big_endian = is_magic([header[0], header[1], header[2], header[3]]).ok_or("is no pcap file")?;
        let magic = word(header, 0, big_endian);
        let (major, minor) = match big_endian {
            true => (u16::from_be_bytes([header[4], header[5]]), u16::from_be_bytes([header[6], header[7]])),
            false => (u16::from_le_bytes([header[4], header[5]]), u16::from_le_bytes([header[6], header[7]])),
        };
        let lengths = match (major, minor) {
            (2, 0..=2) | (543, 0) => Lengths::OriginalFirst,
            (2, 3) => Lengths::SmallerIsCaptured,
            (2, 4) => Lengths::CapturedFirst,
            _ => {
                return Err(format!(
                    "is a pcap file of version {major}.{minor}, only 2.0 to 2.4 are known; write it anew \
                     with a current tcpdump or editcap"
                ));
            }
        };
        let link_type = LinkType(word(header, 20, big_endian) as u16).canonical();
        let snap_len = snap_len(word(header, 16, big_endian));
        let longest = captured_len_max(link_type.0);
        let mut kept_len_max = snap_len.unwrap_or(longest);
        if magic == MODIFIED && link_type == LinkType::ETHERNET {
            kept_len_max = kept_len_max.saturating_add(14); // its cooked captures got a made-up Ethernet header in front
        }
        let interface = interfaces.add(Interface {
            name: name.to_string(),
            description: String::new(),
            link_type,
            snap_len: snap_len.unwrap_or(0),
            timestamps: TimestampSource::File,
            part: file,
        });
        let pseudo = Pseudo::of(link_type, big_endian);
        let is_usual = magic != MODIFIED && lengths == Lengths::CapturedFirst;
        Ok(Pcap {
            is_plain: is_usual && !big_endian && pseudo == Pseudo::Nothing,
            big_endian,
            ns_per_fraction: if magic == NANOSECONDS { 1 } else { 1000 },
            head_bytes: if magic == MODIFIED { 24 } else { HEAD_BYTES_MIN },
            lengths,
            captured_len_max: longest,
            kept_len_max,
            interface: interface.ok_or("describes too many interfaces")?,
            pseudo,
        })
    }

    /// The plain form of [`Pcap::decode`], for nearly all records of nearly all files: time, captured length and
    /// original length of the packet whose head begins at `at` and which is there whole. `None`: look closely.
    #[inline(always)]
    pub(super) fn plain(&self, unread: &[u8], at: usize) -> Option<(i64, u32, u32)> {
        let head = unread.get(at..)?.first_chunk::<HEAD_BYTES_MIN>()?;
        let word = |at| word(head, at, false);
        let captured = word(8);
        let is_whole = unread.len() - at - HEAD_BYTES_MIN >= captured as usize;
        let is_plain = self.is_plain && captured <= self.captured_len_max;
        let time_ns = i64::from(word(0)) * time::NS_PER_SECOND + i64::from(word(4)) * self.ns_per_fraction;
        (is_whole && is_plain).then_some((time_ns, captured, word(12)))
    }

    /// A packet of a record that [`Pcap::plain`] has read, whose bytes begin at `place`.
    #[inline(always)]
    pub(super) fn plain_record(
        &self,
        place: usize,
        (time_ns, captured, original_len): (i64, u32, u32),
    ) -> Record {
        Record {
            place,
            len: captured.min(self.kept_len_max),
            original_len,
            time_ns,
            interface: self.interface,
            ..Record::default()
        }
    }

    /// The record that begins with the first unread byte; a packet is put into `record`.
    #[inline]
    pub(super) fn decode(&self, unread: &[u8], record: &mut Record) -> Found {
        let Some(head) = unread.first_chunk::<HEAD_BYTES_MIN>().filter(|_| unread.len() >= self.head_bytes)
        else {
            return Found::More { bytes: self.head_bytes, packet: true };
        };
        let (first, second) = (word(head, 8, self.big_endian), word(head, 12, self.big_endian));
        let (captured, original) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::OriginalFirst => (second, first),
            Lengths::SmallerIsCaptured => (first.min(second), first.max(second)),
        };
        if captured > self.captured_len_max {
            let cause = format!("a packet claims {captured} bytes, {} are possible", self.captured_len_max);
            return Found::Damaged(Damage { cause, packet: true });
        }
        let bytes = self.head_bytes + captured as usize;
        if unread.len() < bytes {
            return Found::More { bytes, packet: true };
        }
        let seconds = i64::from(word(head, 0, self.big_endian));
        let fraction = i64::from(word(head, 4, self.big_endian));
        // At most 2^32 s and 2^32 us: far inside i64.
        let time_ns = seconds * time::NS_PER_SECOND + fraction * self.ns_per_fraction;
        *record = Record {
            place: self.head_bytes,
            len: captured.min(self.kept_len_max),
            original_len: original,
            time_ns,
            clamped: false,
            pseudo: self.pseudo,
            interface: self.interface,
            flags: 0,
            lost_before: 0,
            file: 0,
            comment: 0,
        };
        Found::Packet { bytes }
    }
}

#[inline]
fn word<const N: usize>(bytes: &[u8; N], at: usize, big_endian: bool) -> u32 {
    let word = u32::from_le_bytes(bytes[at..].first_chunk().copied().unwrap_or_default()); // one load: `at` is constant
    if big_endian { word.swap_bytes() } else { word }
}
