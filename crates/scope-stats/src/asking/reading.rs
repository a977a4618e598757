//! Opens one database for reading: nothing is made or changed, also while a run writes there.
//!
//! What a run has written last stands in the log beside the file (`-wal`), and where there, in a third file (`-shm`),
//! in which readers note how far they read.
//!
//! | beside the file | how it is read |
//! |---|---|
//! | `-wal` and `-shm` | as a reader without a right to write: it notes nothing, and holds a lock on what another noted. Where nobody has the file open, SQLite finds its way through the log by itself |
//! | neither, or an empty `-wal` | nobody has it open: the file is all there is |
//! | a `-wal` with something in it and no `-shm` | refused: that can't be read without making the third file |
//!
//! So whoever may read the three files can ask, and the list of system calls of a command that only reads suffices.
//! Alone, a file is read without any lock. If a run begins to write it meanwhile, what was read may be of two moments:
//! [`Reading::expect_unchanged`] finds that out, at the end.
//!
//! Within the process that writes the second and third opening of a file are one to SQLite. There the third
//! file is opened as the writer opens it ([`Access::Beside`]).

use super::error::{AskError, named};
use super::held::Held;
use crate::head::{Head, uri};
use crate::place::beside;
use crate::schema::VERSION;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access as Right, AtFlags, CWD, accessat};
use scope_fault::Fault;
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often a file is looked at anew whose state changes while it is opened: its run begins, or ends.
const TRIES: usize = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// How long a reader waits where it has to, which is while a log is recovered.
const BUSY: Duration = Duration::from_secs(5);

/// Who reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Another process than the one that writes, if any does.
    #[default]
    Outside,
    /// The process that writes.
    Beside,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// With its log.
    Logged,
    /// Alone.
    Alone,
}

/// A database that is open for reading.
#[derive(Debug)]
pub struct Reading {
    /// There until the value is dropped.
    connection: Option<Connection>,
    /// To whom the connection is given back.
    of: Option<Arc<Held>>,
    path: PathBuf,
    /// Of a file that is read alone: what it was when it was opened.
    stamp: Option<Stamp>,
}

/// What a file is as long as nobody writes it: its number, its length, the time of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64);

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let facts = fs::metadata(path).ok()?;
        Some(Stamp(facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
    }
}

impl Deref for Reading {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is taken only where the value goes")
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let (Some(held), Some(connection)) = (self.of.take(), self.connection.take()) {
            held.give_back(connection);
        }
    }
}

impl Reading {
    /// One of the connections that are held.
    ///
    /// # Errors
    /// All of them are taken.
    pub(super) fn held(held: &Arc<Held>, path: &Path) -> Result<Reading, AskError> {
        let connection = Some(held.take()?);
        Ok(Reading { connection, of: Some(held.clone()), path: path.to_path_buf(), stamp: None })
    }

    /// The connection, to be held, of a file that has its log.
    pub(super) fn into_connection(mut self) -> Option<Connection> {
        self.connection.take().filter(|_| self.stamp.is_none())
    }

    /// How long a copy of it is, bytes.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn page_bytes(&self) -> Result<u64, AskError> {
        let number = |pragma: &str| self.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0));
        let bytes =
            number("page_count").and_then(|pages| Ok(u64::from(pages) * u64::from(number("page_size")?)));
        bytes.map_err(|error| AskError::unread(&self.path, &error))
    }

    /// Whether all that was read so far is of one moment, as far as that isn't SQLite's to say.
    ///
    /// # Errors
    /// A run began to write what was read as a file that nobody writes.
    pub fn expect_unchanged(&self) -> Result<(), AskError> {
        if self.stamp.is_none_or(|stamp| Stamp::of(&self.path) == Some(stamp)) {
            return Ok(());
        }
        let fault = Fault::of("db").with_value(self.path.to_string_lossy());
        let fault = fault.cause(named(&self.path, "was written to by a run that began while it was read"));
        Err(AskError::Failed(fault.remedy("ask again")))
    }
}

/// Opens the database `path`, which is one of ours.
///
/// # Errors
/// There is none, it is no database of ours or of a newer version, or it can't be read.
pub fn open(path: &Path, access: Access) -> Result<Reading, AskError> {
    let mut tries = 1..=TRIES;
    loop {
        match open_once(path, access) {
            Err((_, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))) if tries.next().is_some() => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            opened => return opened.map_err(|(error, _)| error),
        }
    }
}

fn open_once(path: &Path, access: Access) -> Result<Reading, (AskError, Option<ErrorCode>)> {
    let alone = |error: AskError| (error, None);
    let place = fs::canonicalize(path).map_err(|error| alone(missing(path, &error)))?;
    // Before it is looked how: what changes behind that is seen at the end.
    let stamp = Stamp::of(&place);
    let how = how(&place).map_err(alone)?;
    let said = match (how, access) {
        (How::Alone, _) => "immutable=1",
        (How::Logged, Access::Outside) => "readonly_shm=1",
        (How::Logged, Access::Beside) => "",
    };
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri(&place, said), flags);
    connection
        .and_then(|connection| prepare(&connection).map(|head| (connection, head)))
        .map_err(|error| match may_be_read(&place) {
            Ok(()) => (AskError::unread(path, &error), error.sqlite_error_code()),
            Err(error) => alone(missing(path, &error)),
        })
        .and_then(|(connection, head)| check(path, head).map(|()| connection).map_err(alone))
        .map(|connection| {
            let stamp = stamp.filter(|_| how == How::Alone);
            Reading { connection: Some(connection), of: None, path: path.to_path_buf(), stamp }
        })
}

/// Whether this user may read a file, or a folder and what is in it.
///
/// # Errors
/// The system's.
pub(super) fn may_be_read(place: &Path) -> io::Result<()> {
    let rights = if place.is_dir() { Right::READ_OK | Right::EXEC_OK } else { Right::READ_OK };
    Ok(accessat(CWD, place, rights, AtFlags::EACCESS)?)
}

/// What has to be there to read it.
fn how(place: &Path) -> Result<How, AskError> {
    let length = |suffix: &str| fs::metadata(beside(place, suffix)).ok().map(|facts| facts.len());
    match (length("-wal"), length("-shm")) {
        (Some(_), Some(_)) => Ok(How::Logged),
        (None | Some(0), _) => Ok(How::Alone),
        (Some(_), None) => {
            let fault = Fault::of("db").with_value(place.to_string_lossy());
            let fault = fault.cause(named(
                place,
                "has rows in its log that can't be found: of its three files one, -shm, was left behind",
            ));
            Err(AskError::Refused(fault.remedy(
                "take it along, or open the database once where it may be written: sqlite3 FILE .tables",
            )))
        }
    }
}

/// Ready to be asked; and by what it is recognised.
fn prepare(connection: &Connection) -> rusqlite::Result<Head> {
    connection.busy_timeout(BUSY)?;
    // Whoever made the file may have meant harm.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    Ok(Head::of(number("application_id")?, number("user_version")?))
}

fn check(path: &Path, head: Head) -> Result<(), AskError> {
    let fault = |cause: String| Fault::of("db").with_value(path.to_string_lossy()).cause(named(path, &cause));
    match head {
        Head::Ours => Ok(()),
        Head::Newer(version) => Err(AskError::Refused(
            fault(format!("has tables of version {version}, and this program knows those up to {VERSION}"))
                .remedy("ask it with the version of wirescope that wrote it, or a newer one"),
        )),
        Head::Absent | Head::Foreign | Head::Other => Err(AskError::Refused(
            fault("is a database of another program".to_string())
                .remedy("name a file that a run wrote as --db, or the folder of such files"),
        )),
    }
}

/// Of a file that isn't there, or whose folders can't be passed.
pub(super) fn missing(path: &Path, error: &io::Error) -> AskError {
    let fault = Fault::of("db").with_value(path.to_string_lossy());
    AskError::Refused(match error.kind() {
        io::ErrorKind::NotFound => {
            fault.cause(named(path, "isn't there")).remedy("check the spelling; a run writes it with --db")
        }
        io::ErrorKind::PermissionDenied => fault
            .cause(named(path, "may not be read by this user"))
            .remedy("join the group that it belongs to, or ask as its owner"),
        _ => fault.cause(named(path, &format!("can't be read: {error}"))),
    })
}
