//! What a file says of itself before SQLite opens it: whether it is a database, and one of ours.
//!
//! Only for the time before a run: the system takes all of a process's locks from a file as soon as that
//! process closes any opening of it. Later nothing but SQLite may open one.

use crate::place::{BESIDE, beside};
use crate::schema::{APPLICATION_ID, VERSION};
use rusqlite::{Connection, OpenFlags};
use scope_folder::Folder;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEAD_BYTES: usize = 100;
const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Nothing.
    Absent,
    /// A database of ours that this version knows.
    Ours,
    /// One of ours that only a newer version knows: the version of its tables.
    Newer(i32),
    /// A database of another program.
    Foreign,
    /// No database.
    Other,
}

impl Head {
    /// By the numbers that a database has in its head.
    pub fn of(application_id: i32, version: i32) -> Head {
        match (application_id, version) {
            (APPLICATION_ID, VERSION) => Head::Ours,
            (APPLICATION_ID, version) => Head::Newer(version),
            _ => Head::Foreign,
        }
    }

    /// Of the file `name`.
    ///
    /// # Errors
    /// The system's; [`scope_folder::NotPlain`] within the error says what stands there instead of a file.
    pub fn read(folder: &Folder, name: &OsStr) -> io::Result<Head> {
        let Some(file) = folder.existing(name, false)? else { return Ok(Head::Absent) };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        let number = |at: usize| Some(i32::from_be_bytes(*head.get(at..)?.first_chunk()?));
        Ok(match (number(APPLICATION_ID_AT), number(USER_VERSION_AT)) {
            (Some(id), Some(version)) if head.starts_with(MAGIC) && head.len() == HEAD_BYTES => {
                Head::of(id, version)
            }
            _ => Head::Other,
        })
    }
}

/// Length of the intervals of a database of ours; `None` where it can't be read, or there is none yet.
pub fn interval_ns(path: &Path) -> Option<i64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let has_log = BESIDE.iter().any(|suffix| Path::new(&beside(path, suffix)).exists());
    // Without a log the file is all there is. Then no log is made to read it.
    let connection = match has_log {
        true => Connection::open_with_flags(path, flags),
        false => Connection::open_with_flags(uri(path, "immutable=1"), flags | OpenFlags::SQLITE_OPEN_URI),
    };
    let length = |connection: &Connection| {
        connection.query_row("SELECT interval_ns FROM runs ORDER BY id DESC LIMIT 1", [], |row| row.get(0))
    };
    length(&connection.ok()?).ok()
}

/// A path as SQLite is told how to open it: with `immutable=1` as one that nobody writes meanwhile.
pub(crate) fn uri(path: &Path, how: &str) -> OsString {
    let mut uri = b"file:".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.extend(format!("%{byte:02x}").bytes()),
            byte => uri.push(*byte),
        }
    }
    uri.push(b'?');
    uri.extend(how.bytes());
    OsString::from_vec(uri)
}
