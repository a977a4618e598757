//! What of SQLite has no safe form: two calls that take a connection's handle.

use rusqlite::{Connection, ffi};
use std::io;

/// Whether the log of transactions stays when the last connection is closed. One that may open no file by
/// name any more can't make it again.
///
/// # Errors
/// SQLite's.
pub fn keep_wal(connection: &Connection, kept: bool) -> rusqlite::Result<()> {
    let mut kept = std::ffi::c_int::from(kept);
    // SAFETY: the handle is open while the connection is lent; no name stands for the main database; SQLite
    // reads and writes one `int` and keeps no pointer to it.
    let code = unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            std::ptr::null(),
            ffi::SQLITE_FCNTL_PERSIST_WAL,
            (&raw mut kept).cast(),
        )
    };
    match code {
        ffi::SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// What the system said when the connection last failed to read, write or open a file.
pub fn system_error(connection: &Connection) -> Option<io::Error> {
    // SAFETY: the handle is open while the connection is lent; a number is returned.
    match unsafe { ffi::sqlite3_system_errno(connection.handle()) } {
        0 => None,
        number => Some(io::Error::from_raw_os_error(number)),
    }
}
