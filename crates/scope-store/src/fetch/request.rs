//! The requests of one read, one after another until it is full: in which way each is put, and what its answer says.
//!
//! ```text
//! RWF_DONTCACHE ──refused──► is the piece in the page cache? ──yes──► as usual: nothing comes from the disk
//!                                            │ no
//!                                            └► O_DIRECT ──refused──► as usual
//! ```

use super::cached::is_cached;
use super::direct::{Direct, PIECE_BYTES};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads that leave nothing in the page cache (`RWF_DONTCACHE`).
const DONT_CACHE: u32 = 0x80;

/// Whether this kernel and these file systems have been found not to know [`DONT_CACHE`].
static DONT_CACHE_REFUSED: AtomicBool = AtomicBool::new(false);

/// From now on this process reads as if the kernel didn't know `RWF_DONTCACHE`: for tests of that way.
pub fn as_before_dont_cache() {
    DONT_CACHE_REFUSED.store(true, Ordering::Relaxed);
}

/// How a request is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    DontCache,
    Direct,
    Usual,
}

/// One of them.
pub(super) struct Request<'a> {
    /// The file, perhaps opened in another way.
    pub file: &'a File,
    pub offset: u64,
    /// What is to be filled, at most.
    pub into: &'a mut [u8],
    /// `RWF_...`
    pub flags: u32,
}

/// Those of one read.
#[derive(Default)]
pub(super) struct Requests {
    /// Of the one that was put last.
    way: Way,
    direct: Option<Direct>,
    is_direct_refused: bool,
}

impl Requests {
    /// Never past the page cache: for the little that is read again with the next question.
    pub fn cached() -> Requests {
        Requests { is_direct_refused: true, ..Requests::default() }
    }

    /// The next one for what a read lacks: `rest`, which stands there in the file.
    pub fn next<'a>(&'a mut self, file: &'a File, offset: u64, rest: &'a mut [u8]) -> Request<'a> {
        let len = rest.len().min(PIECE_BYTES);
        self.way = match DONT_CACHE_REFUSED.load(Ordering::Relaxed) {
            false => Way::DontCache,
            true if self.is_direct_refused || is_cached(file, offset, &mut rest[..len]) => Way::Usual,
            true => Way::Direct,
        };
        if self.way == Way::Direct && self.direct.is_none() {
            self.direct = Direct::open(file, rest.len()).ok();
        }
        match (self.way, &mut self.direct) {
            (Way::DontCache, _) => Request { file, offset, into: rest, flags: DONT_CACHE },
            (Way::Direct, Some(direct)) => {
                let (file, offset, into) = direct.window(offset, len);
                Request { file, offset, into, flags: 0 }
            }
            _ => {
                (self.way, self.is_direct_refused) =
                    (Way::Usual, self.way == Way::Direct || self.is_direct_refused);
                Request { file, offset, into: &mut rest[..len], flags: 0 }
            }
        }
    }

    /// What the answer to the last one has filled of `rest`, bytes; 0: the next one is for the same.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` where the file is shorter.
    pub fn answered(&mut self, answer: io::Result<usize>, rest: &mut [u8]) -> io::Result<usize> {
        match answer {
            Ok(_) if rest.is_empty() => Ok(0),
            Ok(came) => {
                let filled = match (self.way, &self.direct) {
                    (Way::Direct, Some(direct)) => direct.copy(came, rest),
                    _ => came,
                };
                if filled == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(filled) }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(0)
            }
            Err(error) if self.is_refused(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether an error may be due to the way: those that follow go another one.
    fn is_refused(&mut self, error: &io::Error) -> bool {
        let refused = matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS));
        match self.way {
            Way::DontCache if refused => DONT_CACHE_REFUSED.store(true, Ordering::Relaxed),
            Way::Direct if refused => self.is_direct_refused = true,
            _ => return false,
        }
        refused
    }
}
