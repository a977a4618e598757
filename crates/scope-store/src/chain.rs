//! The chain: a line for each closed file of a volume, each bound to the one before it, so that nobody can
//! change, exchange or take out a file that stands in it unnoticed.
//!
//! ```text
//! chain.jsonl   {"run":..,"name":..,"from_ns":..,"to_ns":..,"packets":..,"bytes":..,"hash":..,"previous":..,"head":..}
//!
//! hash      BLAKE3 over the file's bytes
//! previous  the head of this run's line before; 64 zeros in its first
//! head      BLAKE3, in the mode that derives keys, of the context "wirescope store chain 1" and, one behind
//!           the other: previous (32 bytes), run (16), length of the name (u64) and the name, from_ns and
//!           to_ns (i64), packets and bytes (u64), hash (32); numbers little-endian
//! ```
//! Each run has a chain of its own. Who keeps a head elsewhere, or signs it, can prove all lines up to it: see
//! `wirescope verify --expect`. A line is appended and synced once its file has its name; a line that a crash
//! cut is removed before the next one is written. Lines whose files retention has deleted may be left out
//! again, but only a run's oldest ones, and the newest of these stay for long ([`Chain::shortened`]).

use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Lines that are read at most; further ones are a fault.
pub const LINES_MAX: usize = 1 << 20;
/// Bytes of a chain that are read at most.
pub const CHAIN_BYTES_MAX: u64 = 1 << 30;
/// Lines of deleted files that stay at least, so that a head which somebody noted is still known: the newest. With
/// twice as many the chain is shortened.
pub const GONE_KEPT: usize = 1 << 14;
/// Names the purpose of the hash, and its version.
const CONTEXT: &str = "wirescope store chain 1";
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// A BLAKE3 hash. Shown as hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// What stands in front of a run's first line.
    pub const START: Digest = Digest([0; 32]);

    /// Reads 64 hexadecimal digits.
    pub fn read(text: &str) -> Option<Digest> {
        hex(text).map(Digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// What the chain says of a closed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedFile {
    /// The run that wrote it.
    pub run_id: [u8; 16],
    /// Its path below the volume's folder.
    pub name: String,
    /// Smallest and largest time of a packet, ns since the epoch.
    pub span: (i64, i64),
    /// Packets in it.
    pub packets: u64,
    /// Its length.
    pub bytes: u64,
    /// Over all its bytes.
    pub hash: Digest,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The file.
    pub file: ChainedFile,
    /// Head of the run's line before.
    pub previous: Digest,
    /// What the next line has as previous.
    pub head: Digest,
}

impl Link {
    /// The line of `file` behind one with the head `previous`.
    pub fn new(file: ChainedFile, previous: Digest) -> Link {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&previous.0);
        hasher.update(&file.run_id);
        hasher.update(&(file.name.len() as u64).to_le_bytes());
        hasher.update(file.name.as_bytes());
        for time_ns in [file.span.0, file.span.1] {
            hasher.update(&time_ns.to_le_bytes());
        }
        for count in [file.packets, file.bytes] {
            hasher.update(&count.to_le_bytes());
        }
        hasher.update(&file.hash.0);
        let head = Digest(*hasher.finalize().as_bytes());
        Link { file, previous, head }
    }

    /// As it stands in the file, with the end of the line.
    pub fn line(&self) -> String {
        let ChainedFile { run_id, name, span, packets, bytes, hash } = &self.file;
        let run: String = run_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let object = json!({
            "run": run, "name": name, "from_ns": span.0, "to_ns": span.1, "packets": packets, "bytes": bytes,
            "hash": hash.to_string(), "previous": self.previous.to_string(), "head": self.head.to_string(),
        });
        format!("{object}\n")
    }

    /// Reads a line; `None` where it is none. Whether its head is right is not looked at.
    fn read(line: &str) -> Option<Link> {
        let object: Value = serde_json::from_str(line).ok()?;
        let digest = |key: &str| object[key].as_str().and_then(Digest::read);
        let file = ChainedFile {
            run_id: object["run"].as_str().and_then(hex)?,
            name: object["name"].as_str()?.to_string(),
            span: (object["from_ns"].as_i64()?, object["to_ns"].as_i64()?),
            packets: object["packets"].as_u64()?,
            bytes: object["bytes"].as_u64()?,
            hash: digest("hash")?,
        };
        Some(Link { file, previous: digest("previous")?, head: digest("head")? })
    }
}

/// What is wrong with a chain: the line, from 1, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The last line has no end: a crash, or somebody, cut it.
    #[error("line {0} is cut off")]
    Cut(usize),
    /// It is no line of a chain.
    #[error("line {0} can't be read")]
    Unreadable(usize),
    /// Its head isn't that of what it says.
    #[error("line {0} was changed: its head isn't that of what it says")]
    Changed(usize),
    /// Its previous isn't the head of its run's line before.
    #[error("a line in front of line {0} was taken out or changed: its previous is the head of none")]
    Broken(usize),
    /// There are more lines than are read.
    #[error("it has more than {LINES_MAX} lines, or is longer than 1 GiB")]
    TooLong,
}

/// A chain that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// All lines that can be read, in their order.
    pub links: Vec<Link>,
    /// What is wrong with it.
    pub faults: Vec<ChainFault>,
    /// Bytes up to the end of the last whole line.
    whole_bytes: u64,
}

impl Chain {
    /// Reads a chain from its file's bytes.
    pub fn read(bytes: &[u8]) -> Chain {
        let mut chain = Chain::default();
        let mut heads: HashMap<[u8; 16], Digest> = HashMap::new();
        for (number, line) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
            if number > LINES_MAX {
                chain.faults.push(ChainFault::TooLong);
                break;
            }
            let Some(whole) = line.strip_suffix(b"\n") else {
                chain.faults.push(ChainFault::Cut(number));
                break;
            };
            chain.whole_bytes += line.len() as u64;
            let Some(link) = std::str::from_utf8(whole).ok().and_then(Link::read) else {
                chain.faults.push(ChainFault::Unreadable(number));
                continue;
            };
            if Link::new(link.file.clone(), link.previous) != link {
                chain.faults.push(ChainFault::Changed(number));
            }
            // A run's oldest lines may be left out, so its first one may have any previous.
            if heads.insert(link.file.run_id, link.head).is_some_and(|head| head != link.previous) {
                chain.faults.push(ChainFault::Broken(number));
            }
            chain.links.push(link);
        }
        chain
    }

    /// Reads the chain in an open file.
    ///
    /// # Errors
    /// The system's.
    pub fn read_file(file: &File) -> io::Result<Chain> {
        let mut bytes = Vec::new();
        file.take(CHAIN_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        let is_too_long = bytes.len() as u64 > CHAIN_BYTES_MAX;
        let mut chain = Chain::read(&bytes);
        if is_too_long {
            chain.faults.push(ChainFault::TooLong);
        }
        Ok(chain)
    }

    /// Head of the run's last line; [`Digest::START`] where it has none.
    pub fn head(&self, run_id: &[u8; 16]) -> Digest {
        let last = self.links.iter().rev().find(|link| link.file.run_id == *run_id);
        last.map_or(Digest::START, |link| link.head)
    }

    /// Heads that it knows: those of its lines, and what each run's first line was bound to.
    pub fn heads(&self) -> impl Iterator<Item = Digest> {
        let mut runs = HashSet::new();
        let first =
            self.links.iter().filter(move |link| runs.insert(link.file.run_id)).map(|link| link.previous);
        self.links.iter().map(|link| link.head).chain(first.filter(|head| *head != Digest::START))
    }

    /// The file anew, without the oldest of the lines that stand in front of all of their run whose files are
    /// there; of these the newest `kept` stay. What is left proves itself as before. `None`: the lines that may
    /// go are fewer than twice `kept`, or something is wrong with the chain.
    pub fn shortened(&self, kept: usize, mut gone: impl FnMut(&ChainedFile) -> bool) -> Option<String> {
        let mut begun = HashSet::new();
        let mut may_go = |link: &Link| {
            let may_go = !begun.contains(&link.file.run_id) && gone(&link.file);
            if !may_go {
                begun.insert(link.file.run_id);
            }
            may_go
        };
        let may_go: Vec<bool> = self.links.iter().map(&mut may_go).collect();
        let count = may_go.iter().filter(|may_go| **may_go).count();
        if count < 2 * kept || !self.faults.is_empty() {
            return None;
        }
        let mut left = count - kept;
        let mut text = String::new();
        for (link, may_go) in self.links.iter().zip(may_go) {
            if may_go && left > 0 {
                left -= 1;
            } else {
                text.push_str(&link.line());
            }
        }
        Some(text)
    }
}

/// A chain that one run goes on with.
#[derive(Debug)]
pub struct ChainWriter {
    file: File,
    end: u64,
    run_id: [u8; 16],
    head: Digest,
    lines: usize,
}

impl ChainWriter {
    /// Goes on in `file`, which is open for reading and writing, from its begin. A last line that was cut is
    /// removed; what else is wrong with the chain stays for who verifies it.
    ///
    /// # Errors
    /// The system's; or the chain is too long to go on with.
    pub fn open(file: File, run_id: [u8; 16]) -> io::Result<ChainWriter> {
        let chain = Chain::read_file(&file)?;
        if chain.faults.contains(&ChainFault::TooLong) || chain.links.len() >= LINES_MAX {
            return Err(io::Error::other(ChainFault::TooLong));
        }
        if chain.faults.iter().any(|fault| matches!(fault, ChainFault::Cut(_))) {
            file.set_len(chain.whole_bytes)?;
        }
        let end = file.metadata()?.len();
        Ok(ChainWriter { head: chain.head(&run_id), lines: chain.links.len(), file, end, run_id })
    }

    /// Lines that it has.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// The chain as it stands in the file, read anew.
    ///
    /// # Errors
    /// The system's.
    pub fn read_again(&self) -> io::Result<Chain> {
        let mut bytes = vec![0; self.end as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(Chain::read(&bytes))
    }

    /// Head of the run's last line, to be kept elsewhere.
    pub fn head(&self) -> Digest {
        self.head
    }

    /// Appends the line of a file that has its name, and returns the new head, once that is on the disk.
    ///
    /// # Errors
    /// The system's: then there is no new line, or one that is cut; or the chain has as many lines as are read.
    pub fn append(&mut self, file: ChainedFile) -> io::Result<Digest> {
        debug_assert_eq!(file.run_id, self.run_id);
        if self.lines >= LINES_MAX {
            return Err(io::Error::other(ChainFault::TooLong));
        }
        let link = Link::new(file, self.head);
        let line = link.line();
        let written = self.file.write_all_at(line.as_bytes(), self.end).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.file.set_len(self.end)?;
            return Err(error);
        }
        self.end += line.len() as u64;
        self.lines += 1;
        self.head = link.head;
        Ok(self.head)
    }
}

/// The hash of a whole file, reading by reading, for whoever does other things between them. It has 1 MiB of memory.
#[derive(Debug)]
pub struct Hashing {
    hasher: Box<blake3::Hasher>,
    buffer: Vec<u8>,
    at: u64,
}

impl Default for Hashing {
    /// Nothing was read yet.
    fn default() -> Hashing {
        Hashing { hasher: Box::default(), buffer: vec![0; READ_BYTES], at: 0 }
    }
}

impl Hashing {
    /// Takes up to 1 MiB more. The hash, where nothing more is to be read.
    ///
    /// # Errors
    /// The system's.
    pub fn step(&mut self, file: &File) -> io::Result<Option<Digest>> {
        let read = loop {
            match file.read_at(&mut self.buffer, self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.hasher.update(&self.buffer[..read]);
        self.at += read as u64;
        Ok((read == 0).then(|| Digest(*self.hasher.finalize().as_bytes())))
    }
}

/// The hash of a whole file; `each` gets the bytes of each reading.
///
/// # Errors
/// The system's.
pub fn hash_of(file: &File, mut each: impl FnMut(u64)) -> io::Result<Digest> {
    let mut hashing = Hashing::default();
    loop {
        let before = hashing.at;
        if let Some(digest) = hashing.step(file)? {
            return Ok(digest);
        }
        each(hashing.at - before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    fn chained(run: u8, number: u64) -> ChainedFile {
        ChainedFile {
            run_id: [run; 16],
            name: format!("2026-11-20/file {number} \u{e4}\n.pcapng"),
            span: (number as i64 * 10 - 5, number as i64 * 10 + 4),
            packets: number,
            bytes: u64::MAX - number,
            hash: Digest([number as u8; 32]),
        }
    }

    /// A chain of two runs, by turns.
    fn text() -> String {
        let mut heads = [Digest::START; 2];
        let line = |number: u64| {
            let run = (number % 2) as usize;
            let link = Link::new(chained(run as u8, number), heads[run]);
            heads[run] = link.head;
            link.line()
        };
        (0..6).map(line).collect()
    }

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn what_is_appended_is_read_back_and_each_run_has_a_chain_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.jsonl");
        for number in 0..6u64 {
            let run = [(number % 2) as u8; 16];
            // Opened anew each time, as after a restart.
            let mut writer = ChainWriter::open(open(&path), run).unwrap();
            let head = writer.append(chained(run[0], number)).unwrap();
            assert_eq!(head, writer.head());
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text());
        let chain = Chain::read_file(&open(&path)).unwrap();
        assert_eq!((chain.faults.len(), chain.links.len()), (0, 6));
        assert_eq!(chain.links[5].file, chained(1, 5));
        assert_eq!((chain.head(&[1; 16]), chain.head(&[9; 16])), (chain.links[5].head, Digest::START));
        assert_eq!(Digest::read(&chain.links[5].head.to_string()), Some(chain.links[5].head));
    }

    #[test]
    fn a_line_that_a_crash_cut_is_a_fault_until_the_next_one_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.jsonl");
        let whole = text();
        let ends: Vec<usize> = whole.match_indices('\n').map(|(at, _)| at + 1).collect();
        for cut in 0..whole.len() {
            let lines = ends.iter().filter(|&&end| end <= cut).count();
            let chain = Chain::read(&whole.as_bytes()[..cut]);
            assert_eq!(chain.links.len(), lines);
            let is_cut = cut > 0 && !ends.contains(&cut);
            assert_eq!(chain.faults, if is_cut { vec![ChainFault::Cut(lines + 1)] } else { vec![] });
            if cut % 97 == 0 {
                std::fs::write(&path, &whole.as_bytes()[..cut]).unwrap();
                let mut writer = ChainWriter::open(open(&path), [7; 16]).unwrap();
                writer.append(chained(7, 1)).unwrap();
                let chain = Chain::read_file(&open(&path)).unwrap();
                assert_eq!((chain.links.len(), chain.faults.len()), (lines + 1, 0));
            }
        }
    }

    #[test]
    fn any_change_of_a_line_and_any_line_taken_out_is_found() {
        let whole = text();
        for at in 0..whole.len() {
            let mut changed = whole.clone().into_bytes();
            changed[at] ^= 1;
            let chain = Chain::read(&changed);
            let same = chain.links == Chain::read(whole.as_bytes()).links;
            assert!(!chain.faults.is_empty() || same, "byte {at}");
        }
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        for gone in 0..lines.len() {
            let rest: String =
                lines.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, line)| *line).collect();
            let is_inner = (2..4).contains(&gone); // of three lines a run the middle one
            assert_eq!(Chain::read(rest.as_bytes()).faults.len(), usize::from(is_inner), "line {gone}");
        }
        let exchanged = [lines[2], lines[1], lines[0], lines[3]].concat();
        assert_eq!(Chain::read(exchanged.as_bytes()).faults, [ChainFault::Broken(3)]);
        assert_eq!(Chain::read(b"{}\nno JSON\n\xff\n").faults.len(), 3);
    }

    #[test]
    fn only_the_oldest_lines_of_a_run_are_left_out_and_the_newest_of_these_stay() {
        let chain = Chain::read(text().as_bytes());
        let shortened = |kept, gone: &[u64]| {
            let text = chain.shortened(kept, |file| gone.contains(&file.packets))?;
            let left = Chain::read(text.as_bytes());
            assert!(left.faults.is_empty() && left.head(&[0; 16]) == chain.head(&[0; 16]));
            Some(left.links.iter().map(|link| link.file.packets).collect::<Vec<_>>())
        };
        assert_eq!(shortened(0, &[0, 1, 2, 3]), Some(vec![4, 5]));
        assert_eq!(shortened(1, &[0, 1, 2, 3]), Some(vec![3, 4, 5]));
        assert_eq!(shortened(2, &[0, 1, 2, 3]), Some(vec![2, 3, 4, 5]));
        assert_eq!(shortened(3, &[0, 1, 2, 3]), None, "too few to be worth it");
        assert_eq!(shortened(0, &[0, 4]), Some(vec![1, 2, 3, 4, 5]), "4 stands behind one that is there");
        // A whole run may go.
        assert_eq!(shortened(0, &[1, 3, 5]), Some(vec![0, 2, 4]));
        // What is wrong with a chain stays for who verifies it.
        let lines: Vec<String> = text().split_inclusive('\n').map(String::from).collect();
        let broken = Chain::read([&lines[..2], &lines[4..]].concat().concat().as_bytes());
        assert_eq!((broken.faults.len(), broken.shortened(0, |_| true)), (2, None));
    }

    #[test]
    fn a_shortened_chain_knows_the_head_in_front_of_it_and_finds_whatever_is_changed_behind() {
        let whole = Chain::read(text().as_bytes());
        let shorter = whole.shortened(0, |file| file.packets < 2).unwrap();
        let heads: Vec<Digest> = Chain::read(shorter.as_bytes()).heads().collect();
        assert_eq!(heads.len(), 6);
        assert!(whole.heads().all(|head| heads.contains(&head)), "of two lines that are gone as well");
        let lines: Vec<&str> = shorter.split_inclusive('\n').collect();
        let faults = |order: &[usize]| {
            let text: String = order.iter().map(|&at| lines[at]).collect();
            Chain::read(text.as_bytes()).faults
        };
        assert_eq!(faults(&[0, 1, 2, 3]), []);
        assert_eq!(faults(&[2, 1, 0, 3]), [ChainFault::Broken(3)]);
        let changed = shorter.replacen("\"packets\":4", "\"packets\":5", 1);
        assert_eq!(Chain::read(changed.as_bytes()).faults, [ChainFault::Changed(3)]);
        let again = Chain::read(text().as_bytes()).shortened(0, |file| file.packets == 0).unwrap();
        let lines: Vec<&str> = again.split_inclusive('\n').collect(); // 1 2 3 4 5
        let taken: String = [lines[0], lines[1], lines[3], lines[4]].concat();
        assert_eq!(Chain::read(taken.as_bytes()).faults, [ChainFault::Broken(4)]);
    }

    #[test]
    fn a_chain_of_as_many_lines_as_are_read_gets_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.jsonl");
        let mut writer = ChainWriter::open(open(&path), [0; 16]).unwrap();
        writer.lines = LINES_MAX;
        assert!(writer.append(chained(0, 1)).unwrap_err().to_string().contains("more than"));
        assert_eq!(path.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_file_is_hashed_piece_by_piece() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3 * READ_BYTES + 5).map(|at| (at % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mut read = 0;
        let hash = hash_of(&file, |bytes| read += bytes).unwrap();
        assert_eq!((hash.0, read), (*blake3::hash(&bytes).as_bytes(), bytes.len() as u64));
    }
}
