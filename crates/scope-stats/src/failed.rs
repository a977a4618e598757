//! Why rows could not be written: values, so that whoever holds the rows knows what to do.

use scope_spelling::figures::size;
use std::io;
use std::path::PathBuf;

/// What kept rows from being written. Nothing of the transaction is in the database then.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// There is no room.
    #[error("no room on the disk of {}", .path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// Another program writes, and didn't end in time.
    #[error("{} is locked by another program", .path.display())]
    Locked {
        /// The database.
        path: PathBuf,
    },
    /// Its content isn't what it has to be.
    #[error("{} is damaged: {cause}", .path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// In SQLite's words, or that it is gone.
        cause: String,
    },
    /// A reader that stays keeps the log of transactions from being emptied.
    #[error("a program that reads {} keeps its log from being emptied: {}", .path.display(), size(*.bytes))]
    WalTooLarge {
        /// The database.
        path: PathBuf,
        /// Length of the log.
        bytes: u64,
    },
    /// Anything else.
    #[error("{}: {cause}", .path.display())]
    Io {
        /// The database, or the folder.
        path: PathBuf,
        /// The system's words, or SQLite's.
        #[source]
        cause: io::Error,
    },
}

impl Failed {
    /// The one word of it, for logs and counters.
    pub const fn word(&self) -> &'static str {
        match self {
            Failed::DiskFull { .. } => "disk-full",
            Failed::Locked { .. } => "locked",
            Failed::Damaged { .. } => "damaged",
            Failed::WalTooLarge { .. } => "wal-too-large",
            Failed::Io { .. } => "io",
        }
    }
}
