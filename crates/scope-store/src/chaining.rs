//! The chain of a volume as it grows: each file that is whole is hashed, piece by piece between other work, and
//! gets its line. Lines of files that are long gone are left out.

use crate::chain::{ChainWriter, ChainedFile, Digest, GONE_KEPT, Hashing};
use crate::closing::Holds;
use crate::name::FileName;
use crate::report::News;
use crate::volume::CHAIN_FILE;
use scope_folder::Folder;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that has just become whole.
pub struct Whole {
    /// Its name, below the volume's folder.
    pub name: PathBuf,
    /// What it holds.
    pub holds: Holds,
    /// Its length.
    pub bytes: u64,
    /// Of a file that a dead run left: packets known to be cut off.
    pub cut_off: Option<u64>,
    /// The run that wrote it.
    pub run_id: [u8; 16],
}

impl Whole {
    /// As it is told; `head` is that of the chain behind it.
    pub fn news(self, head: Option<Digest>) -> News {
        let Whole { name, holds, bytes, cut_off, .. } = self;
        News::File { name, span_ns: holds.span, packets: holds.packets, bytes, cut_off, head }
    }
}

/// What is still to be chained.
pub struct Chaining {
    folder: Folder,
    /// Whose files get lines.
    runs: BTreeSet<[u8; 16]>,
    waiting: VecDeque<Whole>,
    now: Option<(Whole, File, Hashing)>,
    /// Of the run whose files came last.
    writer: Option<([u8; 16], ChainWriter)>,
    /// Lines of deleted files that stay.
    gone_kept: usize,
    /// With so many lines it is looked at which may go.
    look_at: usize,
}

impl Chaining {
    /// In the volume with this folder, for the files of these runs.
    pub fn new(folder: Folder, runs: BTreeSet<[u8; 16]>) -> Chaining {
        Chaining {
            folder,
            runs,
            waiting: VecDeque::new(),
            now: None,
            writer: None,
            gone_kept: GONE_KEPT,
            look_at: 2 * GONE_KEPT,
        }
    }

    /// Whether files of this run get lines.
    pub fn takes(&self, run_id: &[u8; 16]) -> bool {
        self.runs.contains(run_id)
    }

    /// One more file.
    pub fn add(&mut self, whole: Whole) {
        self.waiting.push_back(whole);
    }

    /// Whether there is something to do.
    pub fn has_work(&self) -> bool {
        self.now.is_some() || !self.waiting.is_empty()
    }

    /// A piece of a file. Returns the file that is done, and the new head, or why it has no line.
    pub fn step(&mut self) -> Option<Result<(Whole, Digest), (Whole, io::Error)>> {
        let (whole, file, mut hashing) = match self.now.take() {
            Some(now) => now,
            None => {
                let whole = self.waiting.pop_front()?;
                match open(&self.folder, &whole.name) {
                    Ok(file) => (whole, file, Hashing::default()),
                    Err(error) => return Some(Err((whole, error))),
                }
            }
        };
        match hashing.step(&file) {
            Ok(None) => {
                self.now = Some((whole, file, hashing));
                None
            }
            Ok(Some(hash)) => Some(match self.append(&whole, hash) {
                Ok(head) => Ok((whole, head)),
                Err(error) => Err((whole, error)),
            }),
            Err(error) => Some(Err((whole, error))),
        }
    }

    fn append(&mut self, whole: &Whole, hash: Digest) -> io::Result<Digest> {
        let mut writer = match self.writer.take() {
            Some((run, writer)) if run == whole.run_id => writer,
            _ => {
                let name = OsStr::new(CHAIN_FILE);
                if self.folder.existing(name, false)?.is_none() {
                    self.folder.create_new(name)?;
                    self.folder.sync()?;
                }
                let file = self.folder.existing(name, true)?.ok_or(io::ErrorKind::NotFound)?;
                ChainWriter::open(file, whole.run_id)?
            }
        };
        let appended = writer.append(ChainedFile {
            run_id: whole.run_id,
            name: whole.name.to_string_lossy().into_owned(),
            span: whole.holds.span.unwrap_or((0, 0)),
            packets: whole.holds.packets,
            bytes: whole.bytes,
            hash,
        });
        let lines = writer.lines();
        self.writer = Some((whole.run_id, writer));
        if lines >= self.look_at {
            self.look_at = lines + self.gone_kept;
            let _as_it_was = self.shorten(); // where the disk refuses it is tried again some lines later
        }
        appended
    }

    /// Leaves out lines of files that are long gone, if there are many.
    fn shorten(&mut self) -> io::Result<()> {
        let Some((_, writer)) = &self.writer else { return Ok(()) };
        let gone = |file: &ChainedFile| is_gone(&self.folder, Path::new(&file.name));
        let Some(text) = writer.read_again()?.shortened(self.gone_kept, gone) else { return Ok(()) };
        let mut draft = self.folder.draft_over(OsStr::new(CHAIN_FILE))?;
        draft.file().write_all(text.as_bytes())?;
        draft.file().sync_all()?;
        draft.replace()?;
        self.look_at = text.lines().count() + self.gone_kept;
        self.writer = None; // it has the old file open
        Ok(())
    }
}

/// Whether a file of the store is surely not there any more.
fn is_gone(folder: &Folder, name: &Path) -> bool {
    let opened = FileName::read(name).map(|_| open(folder, name));
    opened.is_some_and(|opened| opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound))
}

fn open(folder: &Folder, name: &Path) -> io::Result<File> {
    let day = name.parent().and_then(Path::to_str).unwrap_or_default();
    let file = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    folder.below(OsStr::new(day))?.reading(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{Chain, ChainFault};
    use scope_packet::LinkType;

    const RUN: [u8; 16] = [5; 16];

    fn name(number: u32) -> PathBuf {
        FileName::growing(i64::from(number), &RUN, LinkType::ETHERNET, number).closed().path()
    }

    /// Makes the file with this number and chains it.
    fn chain(chaining: &mut Chaining, number: u32) -> Digest {
        let name = name(number);
        let at = chaining.folder.path().join(&name);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, format!("file {number}")).unwrap();
        let holds = Holds { span: Some((0, 1)), packets: 1, ..Holds::default() };
        chaining.add(Whole { name, holds, bytes: 6, cut_off: None, run_id: RUN });
        loop {
            if let Some(done) = chaining.step() {
                return done.map_err(|(_, error)| error).unwrap().1;
            }
        }
    }

    #[test]
    fn lines_of_files_that_are_long_gone_are_left_out_and_the_chain_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let mut chaining = Chaining::new(Folder::open(root.path()).unwrap(), BTreeSet::from([RUN]));
        (chaining.gone_kept, chaining.look_at) = (4, 8);
        let mut heads = Vec::new();
        for number in 1..=40 {
            heads.push(chain(&mut chaining, number));
            if number > 3 {
                std::fs::remove_file(root.path().join(self::name(number - 3))).unwrap(); // three stay
            }
            let text = std::fs::read(root.path().join(CHAIN_FILE)).unwrap();
            let chain = Chain::read(&text);
            let known: Vec<Digest> = chain.heads().collect();
            assert!(chain.faults.is_empty() && chain.links.len() <= 3 * 4 + 4, "{}", chain.links.len());
            assert!(heads.iter().rev().take(4 + 3).all(|head| known.contains(head)), "{number}");
        }
        let left = Chain::read(&std::fs::read(root.path().join(CHAIN_FILE)).unwrap());
        assert!(left.links.len() < 20 && left.head(&RUN) == heads[39]);
        assert!(!root.path().join(".chain.jsonl.part").exists());
        // What is wrong with it stays.
        let text = std::fs::read_to_string(root.path().join(CHAIN_FILE)).unwrap();
        std::fs::write(root.path().join(CHAIN_FILE), text.replacen("\"packets\":1", "\"packets\":2", 1))
            .unwrap();
        let mut chaining = Chaining::new(Folder::open(root.path()).unwrap(), BTreeSet::from([RUN]));
        (chaining.gone_kept, chaining.look_at) = (0, 0);
        chain(&mut chaining, 41);
        let chain = Chain::read(&std::fs::read(root.path().join(CHAIN_FILE)).unwrap());
        assert_eq!(
            (chain.links.len(), &chain.faults[..]),
            (left.links.len() + 1, &[ChainFault::Changed(1)][..])
        );
    }
}
