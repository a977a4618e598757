//! How many questions are answered at once: [`QUESTIONS_MAX`] of a user on a machine. The next one waits for a place.
//!
//! ```text
//! /run/wirescope/question-0 ... question-7           root, and whoever may write there
//! $XDG_RUNTIME_DIR/wirescope/question-0 ... 7        everybody else; /run/user/UID where that isn't set
//! ```
//! A place is a lock (`flock`) of such a file. The kernel lifts it when the process ends, however that is; the files
//! themselves stay, empty, and mean nothing. They are this user's, with mode 0600, or aren't taken: so nobody else can
//! open one, and hold a place. Where no such folder can be had a question is answered at once.

use crate::speech::{Level, say};
use scope_folder::Folder;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Questions of a user that are answered at once.
pub const QUESTIONS_MAX: usize = 8;
/// So long after a place was looked for it is looked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A place among those that are answered; `None`: there are none.
#[derive(Debug)]
pub struct Turn {
    _place: Option<File>,
}

impl Turn {
    /// No place, for who must not wait: one that is fed by a pipe may be fed by a question, which waits then.
    pub const fn none() -> Turn {
        Turn { _place: None }
    }

    /// Waits for a place; `None`: the question was stopped. To be called while files can still be made.
    pub fn wait(stop: &AtomicBool) -> Option<Turn> {
        let Some(mut places) = places() else { return Some(Turn::none()) };
        let mut is_said = false;
        loop {
            for at in 0..places.len() {
                match places[at].try_lock() {
                    Ok(()) => return Some(Turn { _place: Some(places.swap_remove(at)) }),
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(_)) => return Some(Turn::none()),
                }
            }
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            if !std::mem::replace(&mut is_said, true) {
                let words = format!("wirescope: waits: {QUESTIONS_MAX} questions are being answered");
                say(Level::Info, &words);
            }
            thread::sleep(AGAIN_AFTER);
        }
    }
}

/// The files of the places.
fn places() -> Option<Vec<File>> {
    let user = fs::metadata("/proc/self").ok()?.uid();
    let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let own = named.unwrap_or_else(|| format!("/run/user/{user}").into());
    // Sudo may leave that of somebody else.
    let is_own = |folder: &PathBuf| fs::metadata(folder).is_ok_and(|facts| facts.uid() == user);
    let folders = ["/run".into()].into_iter().chain(Some(own).filter(is_own));
    folders.into_iter().find_map(|folder: PathBuf| places_in(&folder).ok())
}

fn places_in(folder: &Path) -> io::Result<Vec<File>> {
    let path = folder.join("wirescope");
    Folder::make(&path, None)?;
    let folder = Folder::open(&path)?;
    (0..QUESTIONS_MAX).map(|place| folder.shared(OsStr::new(&format!("question-{place}")))).collect()
}
