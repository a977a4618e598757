//! Why something under a file's name isn't written to: it is no plain file, or has a second name elsewhere.

use rustix::fs::{FileType, Stat};
use std::io;

/// What stands where a plain file was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPlain {
    /// Where it leads is for others to say.
    #[error("it is a symbolic link, which isn't followed; {REMEDY}")]
    Link,
    /// A folder.
    #[error("it is a folder; {REMEDY}")]
    Folder,
    /// A FIFO.
    #[error("it is a pipe; {REMEDY}")]
    Pipe,
    /// A device or a socket.
    #[error("it is a device or a socket; {REMEDY}")]
    Special,
    /// A hard link: who has made it may mean another file.
    #[error("it is a file with another name elsewhere (a hard link); {REMEDY}")]
    SecondName,
    /// Whoever owns it could read it, and change what stands there.
    #[error(
        "it belongs to another user (number {0}), who could read and change what this run writes there; \
         {REMEDY}"
    )]
    Foreign(u32),
}

const REMEDY: &str = "remove it or move it away: a new file is made in its place";

impl From<NotPlain> for io::Error {
    fn from(what: NotPlain) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, what)
    }
}

/// A file of the user that this process is.
pub(crate) fn expect_own(stat: &Stat) -> Result<(), NotPlain> {
    if stat.st_uid == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(NotPlain::Foreign(stat.st_uid))
    }
}

/// A plain file with one name.
pub(crate) fn expect_plain(stat: &Stat) -> Result<(), NotPlain> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 => Err(NotPlain::SecondName),
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(NotPlain::Link),
        FileType::Directory => Err(NotPlain::Folder),
        FileType::Fifo => Err(NotPlain::Pipe),
        _ => Err(NotPlain::Special),
    }
}
