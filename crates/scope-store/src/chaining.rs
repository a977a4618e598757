//! The chain of a volume as it grows: each file that is whole is hashed, piece by piece between other work, and
//! gets its line.

use crate::chain::{ChainWriter, ChainedFile, Digest, Hashing};
use crate::closing::Holds;
use crate::report::News;
use crate::volume::CHAIN_FILE;
use scope_folder::Folder;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
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
    waiting: VecDeque<Whole>,
    now: Option<(Whole, File, Hashing)>,
    /// Of the run whose files came last.
    writer: Option<([u8; 16], ChainWriter)>,
}

impl Chaining {
    /// In the volume with this folder.
    pub fn new(folder: Folder) -> Chaining {
        Chaining { folder, waiting: VecDeque::new(), now: None, writer: None }
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
        self.writer = Some((whole.run_id, writer));
        appended
    }
}

fn open(folder: &Folder, name: &Path) -> io::Result<File> {
    let day = name.parent().and_then(Path::to_str).unwrap_or_default();
    let file = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    folder.below(OsStr::new(day))?.reading(file)
}
