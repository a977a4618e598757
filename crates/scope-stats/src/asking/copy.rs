//! A whole copy of one file, also of the one that is being written: by SQLite's online backup, from one moment.
//!
//! 1. The new file is made and opened, while that may be done: under another name, which begins with a dot.
//! 2. The pages of the file are copied within one transaction. Its log is part of that.
//! 3. The copy gets its name by one act, if nothing has it.
//!
//! The copy needs no log of its own to be read, wherever it lies and whoever reads it.

use super::database::{Database, DbFile};
use super::error::{AskError, named};
use super::reading::Reading;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use scope_fault::Fault;
use scope_folder::Folder;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages that are copied between two looks at whether to go on.
const PAGES: i32 = 1024;
/// Where the head of a database says how it is written and read, and the words for: without a log.
const FORM_AT: u64 = 18;
const WITHOUT_LOG: [u8; 2] = [1, 1];

/// A copy that is being made. Dropped before it is whole, it leaves nothing behind.
#[derive(Debug)]
pub struct Copy {
    folder: Folder,
    name: OsString,
    path: PathBuf,
    /// `None` once the copy has its name.
    part: Option<OsString>,
    file: File,
    connection: Connection,
}

impl Copy {
    /// Makes the new file `path` and opens it.
    ///
    /// # Errors
    /// Something has that name, or no file can be made there.
    pub fn begin(path: &Path) -> Result<Copy, Fault> {
        let fault = || Fault::of("out").with_value(path.to_string_lossy());
        let Some(name) = path.file_name() else {
            return Err(fault().cause(named(path, "names no file")).remedy("write e.g. --out copy.sqlite"));
        };
        if path.symlink_metadata().is_ok() {
            return Err(fault()
                .cause(named(path, "exists and is never overwritten"))
                .remedy("choose another name"));
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let refused = |error: io::Error| fault().cause(format!("{}: {error}", above.display()));
        let folder = Folder::open(above).map_err(refused)?;
        let mut part = OsString::from(".");
        part.push(name);
        part.push(".part");
        let file = folder.create_new(&part).map_err(|error| {
            let words = refused(error);
            words.remedy(
                "choose a folder that this user may write to, and remove what an earlier copy left there",
            )
        })?;
        let connection = open(&above.join(&part)).inspect_err(|_| {
            // Nothing half-made stays; what can't be removed is told by the next try.
            let _ = folder.remove(&part);
        });
        let connection =
            connection.map_err(|error| fault().cause(named(path, &format!("can't be made: {error}"))))?;
        Ok(Copy {
            name: name.to_os_string(),
            path: path.to_path_buf(),
            part: Some(part),
            file,
            connection,
            folder,
        })
    }

    /// The folder in which it is made.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Copies the file of `database` that is called `id`, and gives the copy its name; its bytes. `stop` ends it.
    ///
    /// # Errors
    /// There is no such file, it can't be read, or the copy not be written.
    pub fn take(mut self, database: &Database, id: &str, stop: &AtomicBool) -> Result<u64, AskError> {
        let source = of_one_moment(database, &database.file(id)?)?;
        let copied = all_pages(&source, &mut self.connection, || !stop.load(Ordering::Relaxed));
        match copied {
            Ok(true) => {}
            Ok(false) => return Err(AskError::Failed(self.fault("was stopped before it was whole"))),
            Err(error) => return Err(AskError::Failed(self.fault(&format!("can't be copied: {error}")))),
        }
        source.expect_unchanged()?;
        let finished = self.finish();
        finished.map_err(|error| AskError::Failed(self.fault(&format!("can't be written: {error}"))))
    }

    fn fault(&self, cause: &str) -> Fault {
        Fault::of("out").with_value(self.path.to_string_lossy()).cause(named(&self.path, cause))
    }

    fn finish(&mut self) -> io::Result<u64> {
        needs_no_log(&self.file)?;
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        if let Some(part) = self.part.clone() {
            self.folder.rename(&part, &self.name)?;
            self.part = None;
        }
        self.folder.sync()?;
        Ok(bytes)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            // Half a copy says nothing true.
            let _ = self.folder.remove(OsStr::new(&part));
        }
    }
}

/// A file that is to be copied, in a transaction: what is written meanwhile isn't seen, and doesn't begin the copy anew.
///
/// # Errors
/// It can't be read, or not any more.
pub(super) fn of_one_moment(database: &Database, file: &DbFile) -> Result<Reading, AskError> {
    let Some(source) = database.open(file)? else {
        let fault = Fault::of_thing("ID").value(&file.id, "was deleted meanwhile");
        return Err(AskError::Refused(fault.remedy("list the files again")));
    };
    let begun = source.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;");
    begun.map_err(|error| AskError::unread(&file.path, &error))?;
    Ok(source)
}

impl Database {
    /// How long a copy of the file that is called `id` would be now, bytes.
    ///
    /// # Errors
    /// There is no such file, or it can't be read.
    pub fn copy_bytes(&self, id: &str) -> Result<u64, AskError> {
        of_one_moment(self, &self.file(id)?)?.page_bytes()
    }
}

/// Copies all pages as long as it `goes_on`; whether that came to its end.
///
/// # Errors
/// SQLite's.
pub(super) fn all_pages(
    source: &Connection,
    copy: &mut Connection,
    goes_on: impl Fn() -> bool,
) -> rusqlite::Result<bool> {
    let backup = Backup::new(source, copy)?;
    while goes_on() {
        if backup.step(PAGES)? == StepResult::Done {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Pages go to the file as they are copied, so nothing waits in the connection any more.
///
/// # Errors
/// The system's.
pub(super) fn needs_no_log(copy: &File) -> io::Result<()> {
    copy.write_all_at(&WITHOUT_LOG, FORM_AT)
}

/// The new file, ready to be written to without any further file.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
         PRAGMA temp_store = MEMORY; SELECT count(*) FROM sqlite_schema;",
    )?;
    Ok(connection)
}
