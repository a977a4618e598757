//! Connections to one file that were opened while that could still be done: for questions within a process that has
//! given up the right to open anything by its name.
//!
//! ```text
//! new         so many connections to the file, each with its log open
//! question    takes one ─► reads ─► gives it back: no transaction, no bounds, no memory of the question is left
//! ```

use super::error::{AskError, named};
use crate::place::{BESIDE, beside};
use rusqlite::Connection;
use rusqlite::hooks::{AuthContext, Authorization};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use scope_fault::Fault;
use scope_folder::locks::{WHOLE, is_locked};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of a block, as the system counts what files take.
const BLOCK_BYTES: u64 = 512;

/// Connections to one file.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// The file, and what SQLite keeps beside it. These say how long it is, and no more: whoever opens a database to read it
    /// and closes that again takes the locks of the whole process with it.
    files: Vec<OwnedFd>,
    /// Its log, which a writer has locked.
    log: File,
}

impl Held {
    /// These connections to the file `path`, which is written.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(path: &Path, idle: Vec<Connection>) -> Result<Held, AskError> {
        let of_system = |error: io::Error| {
            let fault = Fault::of("db").with_value(path.to_string_lossy()).error(&error);
            AskError::Failed(fault.cause(named(path, &format!("can't be held: {error}"))))
        };
        let known = |suffix: &str| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(CWD, beside(path, suffix), flags, Mode::empty())
        };
        let files = ["", BESIDE[0], BESIDE[1]].into_iter().map(known).collect::<Result<_, _>>();
        let files = files.map_err(|error| of_system(error.into()))?;
        let log = File::open(beside(path, BESIDE[0])).map_err(of_system)?;
        Ok(Held { path: path.to_path_buf(), idle: Mutex::new(idle), files, log })
    }

    /// One of the connections.
    ///
    /// # Errors
    /// All of them are taken.
    pub(super) fn take(&self) -> Result<Connection, AskError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop().ok_or_else(|| {
            let fault = Fault::of("db").with_value(self.path.to_string_lossy());
            AskError::Failed(fault.cause("as many questions are put to it as may be").remedy("ask again"))
        })
    }

    /// Takes one back, as it was.
    pub(super) fn give_back(&self, connection: Connection) {
        if let Ok(connection) = cleaned(connection) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }

    /// What the file takes of the disk, with its log.
    pub(super) fn bytes(&self) -> u64 {
        let taken =
            |file: &OwnedFd| fstat(file).map_or(0, |facts| facts.st_blocks.unsigned_abs() * BLOCK_BYTES);
        self.files.iter().map(taken).sum()
    }

    /// How long its log is, bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |facts| facts.len())
    }

    /// Whether somebody writes it.
    pub(super) fn is_written(&self) -> bool {
        is_locked(&self.log, WHOLE).unwrap_or(false)
    }
}

/// Without anything that the last question left, but for bounds of what a statement may be made of: all questions keep to
/// these.
fn cleaned(connection: Connection) -> rusqlite::Result<Connection> {
    connection.progress_handler(0, None::<fn() -> bool>)?;
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    connection.flush_prepared_statement_cache();
    connection.release_memory()?;
    Ok(connection)
}
