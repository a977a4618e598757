//! How a volume is written to: by io_uring past the page cache where the system has both, else by `pwrite`;
//! and in words which of them, and why.

mod plain;
mod request;
mod tree;
mod uring;
mod writer;

use crate::disk::{Disk, Pages};
use plain::Plain;
use scope_folder::Folder;
use scope_ring::Ring;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tree::Tree;
use uring::Uring;
use writer::Below;

/// A file that is tried out, and removed at once.
const TRIAL: &str = "wirescope-trial";
/// File systems that live in memory, or are laid over others: `f_type` and the name.
const NAMES: [(i64, &str); 4] =
    [(TMPFS, "tmpfs"), (0x8584_58f6, "ramfs"), (0x794c_7630, "overlay"), (0x6969, "NFS")];
/// It takes O_DIRECT since Linux 6.6, and copies all the same.
const TMPFS: i64 = 0x0102_1994;

/// Which way is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The best that the system has.
    Best,
    /// `pwrite`, whatever the system has.
    Pwrite,
}

/// How a volume is written to. In words by `Display`, for the start line: `io_uring`, or
/// `pwrite: the file system has no O_DIRECT (tmpfs)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// By which calls.
    pub calls: Calls,
    /// Space can be reserved; where it can't, a disk may be full sooner than a file is.
    pub reserves: bool,
}

/// The calls that write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls {
    /// io_uring and O_DIRECT.
    Uring {
        /// Why the ring's memory is not registered, if it isn't: each write costs a little more.
        unregistered: Option<String>,
    },
    /// `pwrite`, through the page cache.
    Pwrite {
        /// Why not io_uring.
        why: String,
    },
}

impl Way {
    /// A word for programs.
    pub fn name(&self) -> &'static str {
        match self.calls {
            Calls::Uring { .. } => "io_uring",
            Calls::Pwrite { .. } => "pwrite",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match &self.calls {
            Calls::Uring { unregistered: None } => {}
            Calls::Uring { unregistered: Some(why) } => write!(
                f,
                ", the ring's memory is not registered ({why}): raise the limit with ulimit -l, or give \
                 CAP_IPC_LOCK"
            )?,
            Calls::Pwrite { why } => write!(f, ": {why}")?,
        }
        if self.reserves { Ok(()) } else { f.write_str("; the file system can't reserve space") }
    }
}

/// The way to write below the folder `volume`; of `ring`, if one is named, segments are written straight
/// from its memory. To be called before rights are given up, once the ring's memory is there. Nothing may be
/// begun before then.
///
/// It always finds a way: whether the folder can be written to shows when a file is made.
pub fn open(volume: &Arc<Folder>, ring: Option<&Arc<Ring>>, want: Want) -> (Box<dyn Disk + Send>, Way) {
    let trial = Trial::make(volume);
    let uring = match (want, &trial.no_direct) {
        (Want::Pwrite, _) => Err("it is wanted".to_string()),
        (Want::Best, Some(why)) => Err(why.clone()),
        (Want::Best, None) => {
            Uring::new(ring).map_err(|refused| format!("{} ({})", refused.what, words(&refused.cause)))
        }
    };
    let reserves = trial.reserves;
    match uring {
        Ok((uring, refused)) => {
            let disk = Below::new(uring, Tree::new(volume.clone(), true));
            let unregistered = refused.as_ref().map(words);
            (Box::new(disk), Way { calls: Calls::Uring { unregistered }, reserves })
        }
        Err(why) => {
            let disk = Below::new(Plain::default(), Tree::new(volume.clone(), false));
            (Box::new(disk), Way { calls: Calls::Pwrite { why }, reserves })
        }
    }
}

/// The system's own words, without the number.
fn words(error: &io::Error) -> String {
    let words = error.to_string();
    words.split(" (os error").next().unwrap_or_default().to_string()
}

/// What a file system can do, tried on a file that has no name, or loses it at once.
struct Trial {
    /// Why there is no O_DIRECT; `None`: there is.
    no_direct: Option<String>,
    reserves: bool,
}

impl Trial {
    /// Where nothing can be tried, since the folder is full or can't be written to, the best is supposed: the
    /// first file tells.
    fn make(volume: &Folder) -> Trial {
        let kind = rustix::fs::fstatfs(volume).map_or(0, |found| found.f_type);
        let name = NAMES.iter().find(|(number, _)| *number == kind).map_or("", |(_, name)| name);
        let lacks = || {
            let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
            Some(format!("the file system has no O_DIRECT{name}"))
        };
        let no_direct = if kind == TMPFS { lacks() } else { None };
        let Ok(mut draft) = volume.draft(OsStr::new(TRIAL)) else {
            return Trial { no_direct, reserves: true };
        };
        let file = draft.file();
        let reserves = tree::reserve(file, NonZeroU64::MIN).unwrap_or(true);
        let is_refused = || try_direct(file).is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput);
        Trial { no_direct: no_direct.or_else(|| is_refused().then(lacks).flatten()), reserves }
    }
}

/// Writes a page past the page cache.
fn try_direct(file: &File) -> io::Result<()> {
    tree::set_direct(file)?;
    file.write_all_at(Pages::zeroed(1).as_slice(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_said_in_words_with_its_reason_and_remedy() {
        let check = |calls, reserves, expected: &str| {
            assert_eq!(Way { calls, reserves }.to_string(), expected);
        };
        check(Calls::Uring { unregistered: None }, true, "io_uring");
        check(
            Calls::Uring { unregistered: Some(words(&io::Error::from_raw_os_error(libc::ENOMEM))) },
            true,
            "io_uring, the ring's memory is not registered (Cannot allocate memory): raise the limit with \
             ulimit -l, or give CAP_IPC_LOCK",
        );
        check(
            Calls::Pwrite { why: "the file system has no O_DIRECT (tmpfs)".to_string() },
            false,
            "pwrite: the file system has no O_DIRECT (tmpfs); the file system can't reserve space",
        );
    }
}
