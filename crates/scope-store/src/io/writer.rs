//! What differs between the ways to write: the rest of a [`Disk`] is the folder's, and the same for both.

use super::tree::Tree;
use crate::disk::{Begun, Disk, FileNumber, Finished, PAGE_BYTES, Room, Standing};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A way to write into open files.
pub trait Writer {
    /// A file was opened: it will be written to.
    fn opened(&mut self, number: FileNumber, file: &File) -> io::Result<()>;

    /// A file is closed now; nothing of it is pending.
    fn closing(&mut self, file: FileNumber);

    /// As [`Disk::begin`].
    fn begin(&mut self, begun: Begun, tree: &Tree) -> io::Result<()>;

    /// As [`Disk::finish`].
    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()>;

    /// As [`Disk::pending`].
    fn pending(&self) -> usize;
}

/// Whether these are whole pages, in the file and in memory.
pub fn check_pages(at: u64, bytes: &[u8]) -> io::Result<()> {
    let page = PAGE_BYTES as u64;
    let starts = [at, bytes.as_ptr() as u64, bytes.len() as u64];
    if starts.iter().all(|number| number.is_multiple_of(page)) && !bytes.is_empty() {
        return Ok(());
    }
    let words = format!("{} bytes at {at} are not whole pages", bytes.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, words))
}

/// A volume's folder that is written to in one of the ways.
pub struct Below<W> {
    /// Goes first: what it waits for is written before files are closed.
    writer: W,
    tree: Tree,
}

impl<W: Writer> Below<W> {
    /// Nothing is open yet.
    pub fn new(writer: W, tree: Tree) -> Below<W> {
        Below { writer, tree }
    }

    /// What was opened can be written to, or is closed.
    fn opened(&mut self, number: FileNumber) -> io::Result<FileNumber> {
        let opened = self.tree.file(number).and_then(|file| self.writer.opened(number, file));
        if opened.is_err() {
            self.tree.close(number);
        }
        opened.map(|()| number)
    }
}

impl<W: Writer> Disk for Below<W> {
    fn create(&mut self, name: &Path) -> io::Result<FileNumber> {
        let number = self.tree.create(name)?;
        let opened = self.opened(number);
        if opened.is_err() {
            let _ = self.tree.remove(name); // it is empty
        }
        opened
    }

    fn open(&mut self, name: &Path) -> io::Result<FileNumber> {
        let number = self.tree.open(name)?;
        self.opened(number)
    }

    fn reserve(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        self.tree.reserve(file, bytes)
    }

    fn begin(&mut self, begun: Begun) -> io::Result<()> {
        self.writer.begin(begun, &self.tree)
    }

    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()> {
        self.writer.finish(wait, into)
    }

    fn pending(&self) -> usize {
        self.writer.pending()
    }

    fn truncate(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        self.tree.truncate(file, bytes)
    }

    fn close(&mut self, file: FileNumber) {
        self.writer.closing(file);
        self.tree.close(file);
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree.rename(from, to)
    }

    fn sync_names(&mut self, folder: &Path) -> io::Result<()> {
        self.tree.sync_names(folder)
    }

    fn remove(&mut self, name: &Path) -> io::Result<()> {
        self.tree.remove(name)
    }

    fn list(&mut self) -> io::Result<Vec<Standing>> {
        self.tree.list()
    }

    fn read(&mut self, name: &Path, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.tree.read(name, at, into)
    }

    fn room(&mut self) -> io::Result<Room> {
        self.tree.room()
    }
}
