//! Why there is no answer: by what was asked, or by what was found.

use rusqlite::ErrorCode;
use scope_fault::Fault;
use std::path::Path;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// What is asked can't be answered so: the question has to change, or whom it is put to.
    #[error("{0}")]
    Refused(Fault),
    /// Something couldn't be read or written.
    #[error("{0}")]
    Failed(Fault),
}

impl AskError {
    /// What is wrong.
    pub fn fault(&self) -> &Fault {
        match self {
            AskError::Refused(fault) | AskError::Failed(fault) => fault,
        }
    }

    /// Of a database that can't be read, or not any more.
    pub fn unread(path: &Path, error: &rusqlite::Error) -> AskError {
        let fault =
            |cause: &str| Fault::of("db").with_value(path.to_string_lossy()).cause(named(path, cause));
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => AskError::Refused(
                fault("is no database")
                    .remedy("name a file that a run wrote as --db, or the folder of such files"),
            ),
            Some(ErrorCode::DatabaseCorrupt) => AskError::Failed(
                fault(&format!("is damaged: {error}"))
                    .remedy("use a copy of it; sqlite3 FILE .recover saves what is left"),
            ),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => AskError::Failed(
                fault("is locked by another program").remedy("try again, or find who has it open: fuser"),
            ),
            _ => AskError::Failed(fault(&format!("can't be read: {error}"))),
        }
    }
}

/// Words that say of which file they are.
pub(super) fn named(path: &Path, cause: &str) -> String {
    format!("{} {cause}", path.display())
}
