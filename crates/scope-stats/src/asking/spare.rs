//! Files without a name, for copies that are only passed on: made while files may be made, and used again and again.
//!
//! ```text
//! begin    so many are made beside the database, opened, and lose their names: none is left behind by a kill
//! take     a copy goes into one: the whole of a file, from one moment
//! drop     it is emptied, and its room is given back
//! ```
//! A process that has given up its rights needs none for this.

use super::copy::{self, all_pages, needs_no_log, of_one_moment};
use super::database::Database;
use super::error::AskError;
use rusqlite::Connection;
use scope_fault::Fault;
use scope_folder::Folder;
use scope_machine::disk::disk_of;
use scope_spelling::figures::size;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// So much stays free on the disk, bytes: a copy for somebody isn't to keep rows from being written.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// A copy that can't be written.
fn written(error: io::Error) -> NoCopy {
    let fault = Fault::of_thing("copy").error(&error).cause(format!("it can't be written: {error}"));
    NoCopy::Failed(
        fault.remedy("look at the disk of the database, or copy it elsewhere: wirescope stats copy"),
    )
}

/// Files without a name.
#[derive(Clone, Debug)]
pub struct Spares(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    idle: Mutex<Vec<Spare>>,
    /// The log of what is copied may get so long, bytes.
    log_bytes_max: u64,
}

#[derive(Debug)]
struct Spare {
    file: File,
    connection: Connection,
}

/// Why there is no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCopy {
    /// What is copied can't be.
    Asked(AskError),
    /// As many copies are being passed on as there may be.
    Taken,
    /// There is no room for it.
    NoRoom(Fault),
    /// So much is written meanwhile that the copy would hold the writer up.
    Busy(Fault),
    /// It can't be written, or was stopped.
    Failed(Fault),
}

impl From<AskError> for NoCopy {
    fn from(error: AskError) -> NoCopy {
        NoCopy::Asked(error)
    }
}

impl Spares {
    /// Makes so many in this folder. As long as a copy is made, the log of what is copied isn't emptied: it is given up
    /// where that gets longer than `log_bytes_max`.
    ///
    /// # Errors
    /// The system's, or SQLite's.
    pub fn begin(folder: &Folder, count: usize, log_bytes_max: u64) -> io::Result<Spares> {
        let idle = (0..count).map(|number| Spare::make(folder, number)).collect::<io::Result<_>>()?;
        Ok(Spares(Arc::new(Kept { idle: Mutex::new(idle), log_bytes_max })))
    }

    /// Copies the file of `database` that is called `id`. `stop` ends it.
    ///
    /// # Errors
    /// There is no such file, it can't be read, or the copy not be made.
    pub fn copy(&self, database: &Database, id: &str, stop: &AtomicBool) -> Result<Passing, NoCopy> {
        let file = database.file(id)?;
        let source = of_one_moment(database, &file)?;
        let mut passing = self.take(source.page_bytes()?)?;
        let is_stopped = || stop.load(Ordering::Relaxed);
        let holds_up = || database.log_bytes(&file) > self.0.log_bytes_max;
        let goes_on = || !is_stopped() && !holds_up();
        match passing.connection().map(|connection| all_pages(&source, connection, goes_on)) {
            Some(Ok(true)) => {}
            Some(Err(error)) if !is_stopped() => return Err(written(io::Error::other(error))),
            _ if holds_up() => {
                let fault = Fault::of_thing("copy")
                    .cause(format!("so much is written to {id} that its copy would hold the writer up"));
                return Err(NoCopy::Busy(fault.remedy("ask again later, or for a file that is closed")));
            }
            _ => {
                let fault = Fault::of_thing("copy").cause("it was stopped before it was whole");
                return Err(NoCopy::Failed(fault.remedy("ask again")));
            }
        }
        source.expect_unchanged()?;
        passing.measure().map_err(written)?;
        Ok(passing)
    }

    fn take(&self, bytes: u64) -> Result<Passing, NoCopy> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = idle.pop().ok_or(NoCopy::Taken)?;
        drop(idle);
        let free = disk_of(&spare.file).map_or(u64::MAX, |disk| disk.free_bytes);
        let passing = Passing { of: self.0.clone(), spare: Some(spare), bytes: 0 };
        if free < bytes.saturating_add(FREE_BYTES_MIN) {
            let fault = Fault::of_thing("copy").cause(format!(
                "it takes {} beside the database, and {} are free there",
                size(bytes),
                size(free)
            ));
            return Err(NoCopy::NoRoom(
                fault.remedy("make room there, or copy it where there is some: wirescope stats copy"),
            ));
        }
        passing.empty().map_err(written)?;
        Ok(passing)
    }
}

impl Spare {
    fn make(folder: &Folder, number: usize) -> io::Result<Spare> {
        let name = OsString::from(format!(".wirescope-copy-{}-{number}", std::process::id()));
        match folder.create_new(&name) {
            // A run with this number was killed while it made its own.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                folder.remove(&name)?;
                folder.create_new(&name).map(drop)?;
            }
            made => made.map(drop)?,
        }
        let opened = || -> io::Result<Spare> {
            let file = folder.existing(&name, true)?.ok_or(io::ErrorKind::NotFound)?;
            let connection = copy::open(&folder.path().join(&name));
            // Others don't see it, and its file changes under it.
            let connection = connection.and_then(|connection| {
                connection.pragma_update(None, "locking_mode", "NORMAL").map(|()| connection)
            });
            Ok(Spare { file, connection: connection.map_err(io::Error::other)? })
        };
        let opened = opened();
        folder.remove(&name)?;
        opened
    }

    /// As when it was made: a new database, which takes no room.
    fn empty(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.connection.release_memory().map_err(io::Error::other)
    }
}

/// A copy that is passed on; dropped, it takes no room any more.
#[derive(Debug)]
pub struct Passing {
    of: Arc<Kept>,
    spare: Option<Spare>,
    bytes: u64,
}

impl Passing {
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// At most so many bytes from there.
    ///
    /// # Errors
    /// The system's.
    pub fn piece(&self, at: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let Some(spare) = &self.spare else { return Err(io::ErrorKind::NotFound.into()) };
        let mut piece =
            vec![0; bytes_max.min(self.bytes.saturating_sub(at).try_into().unwrap_or(usize::MAX))];
        spare.file.read_exact_at(&mut piece, at)?;
        Ok(piece)
    }

    fn empty(&self) -> io::Result<()> {
        self.spare.as_ref().map_or(Ok(()), Spare::empty)
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.spare.as_mut().map(|spare| &mut spare.connection)
    }

    fn measure(&mut self) -> io::Result<()> {
        if let Some(spare) = &self.spare {
            needs_no_log(&spare.file)?;
            self.bytes = spare.file.metadata()?.len();
        }
        Ok(())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // What can't be emptied is told to the next who asks.
        let _ = self.empty();
        let Some(spare) = self.spare.take() else { return };
        self.of.idle.lock().unwrap_or_else(PoisonError::into_inner).push(spare);
    }
}
