//! What is asked: one file, or the files of a folder, oldest first.
//!
//! A folder is listed anew for each question: files come and go meanwhile. One that was deleted behind the listing has
//! no rows.

use super::error::{AskError, named};
use super::held::Held;
use super::reading::{self, Access, Reading, may_be_read, missing};
use crate::options::{folder_of, is_written};
use crate::place::{self, BESIDE, Place, beside};
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::time::iso;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a block, as the system counts what files take.
const BLOCK_BYTES: u64 = 512;

/// A database that can be asked.
#[derive(Clone, Debug)]
pub struct Database {
    place: Place,
    access: Access,
    /// Connections to the one file, where it can't be opened by its name any more.
    held: Option<Arc<Held>>,
}

/// One file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbFile {
    /// By what it is called in questions and answers: the span of a folder's file, as `2026-11-27`; else the file's name.
    pub id: String,
    /// Where it is.
    pub path: PathBuf,
    /// The capture time that it is for, ns since the epoch; the end doesn't belong to it.
    pub period_ns: Option<(i64, i64)>,
    /// What it takes of the disk, with its log.
    pub bytes: u64,
}

/// What is to be known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// As [`DbFile::id`].
    pub id: String,
    /// The capture time that it is for, of a single file that it has, ns since the epoch; the end doesn't belong to it.
    /// `None`: it has nothing yet.
    pub span_ns: Option<(i64, i64)>,
    /// What it takes of the disk, with its log.
    pub bytes: u64,
    /// Nobody writes it any more.
    pub is_closed: bool,
}

impl FileFacts {
    /// As JSON: `from` and `to` also in ns; null where it has nothing yet.
    pub fn to_json(&self) -> Value {
        let (from_ns, to_ns) = self.span_ns.unzip();
        json!({
            "id": self.id,
            "from": from_ns.map(iso),
            "to": to_ns.map(iso),
            "from_ns": from_ns,
            "to_ns": to_ns,
            "bytes": self.bytes,
            "closed": self.is_closed,
        })
    }
}

impl Database {
    /// Looks whether there is something to be asked; nothing is opened.
    ///
    /// # Errors
    /// There is nothing, or this user may not read it.
    pub fn look(path: &Path, access: Access) -> Result<Database, Fault> {
        let place = Place::of(path);
        let refused = |error: io::Error| missing(path, &error).fault().clone();
        let facts = fs::metadata(path).map_err(refused)?;
        let is_folder = matches!(place, Place::Folder(_));
        if is_folder != facts.is_dir() || !(facts.is_dir() || facts.is_file()) {
            let fault = Fault::of("db").with_value(path.to_string_lossy());
            let fault = fault.cause(named(path, if is_folder { "is no folder" } else { "is no plain file" }));
            return Err(fault.remedy("name a file that a run wrote as --db, or the folder of such files"));
        }
        may_be_read(path).map_err(refused)?;
        Ok(Database { place, access, held: None })
    }

    /// What this process writes, and will have given up its rights to open: to one file so many connections are opened
    /// now, and so many can be asked at once. Of a folder each question opens what it reads, and finds nothing where
    /// nothing was written yet.
    ///
    /// # Errors
    /// It can't be read.
    pub fn hold(path: &Path, count: usize) -> Result<Database, AskError> {
        let database = Database::look(path, Access::Beside).map_err(AskError::Refused)?;
        let held = match &database.place {
            Place::File(path) => {
                let open = |_| reading::open(path, Access::Beside).map(Reading::into_connection);
                let open = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
                Some(Arc::new(Held::new(path, open.into_iter().flatten().collect())?))
            }
            Place::Folder(_) => None,
        };
        Ok(Database { held, ..database })
    }

    /// As it was given.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Who asks.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether it is a folder of files.
    pub fn is_folder(&self) -> bool {
        matches!(self.place, Place::Folder(_))
    }

    /// What has to be readable while it is asked: the folder, or the file and what SQLite keeps beside it. If it is
    /// `followed`, the file's folder: a run that begins makes what isn't there yet.
    pub fn paths(&self, followed: bool) -> Vec<PathBuf> {
        match &self.place {
            Place::Folder(path) => vec![path.clone()],
            Place::File(path) => {
                let place = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                if followed {
                    return vec![folder_of(&place)];
                }
                let besides = BESIDE.map(|suffix| PathBuf::from(beside(&place, suffix)));
                [place].into_iter().chain(besides).collect()
            }
        }
    }

    /// Its files, oldest first: at least one, but for the folder of the process that writes, which has none before its
    /// first rows.
    ///
    /// # Errors
    /// There are none, or they can't be listed.
    pub fn files(&self) -> Result<Vec<DbFile>, AskError> {
        let path = self.path();
        match &self.place {
            Place::File(_) => {
                let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let taken = |path: &Path| fs::metadata(path).map_or(0, |facts| facts.blocks() * BLOCK_BYTES);
                let bytes = match &self.held {
                    Some(held) => held.bytes(),
                    None => self.paths(false).iter().map(|path| taken(path)).sum(),
                };
                Ok(vec![DbFile { id, path: path.to_path_buf(), period_ns: None, bytes }])
            }
            Place::Folder(_) => {
                let folder = Folder::open(path).map_err(|error| missing(path, &error))?;
                let found = place::files(&folder).map_err(|error| missing(path, &error))?;
                let files: Vec<DbFile> = found
                    .into_iter()
                    // One without a byte has no rows, whoever made it.
                    .filter(|found| !found.is_damaged && found.bytes > 0)
                    .map(|found| DbFile {
                        id: found.period.id().to_string(),
                        path: path.join(&found.name),
                        period_ns: Some((found.period.from_ns, found.period.to_ns)),
                        bytes: found.bytes,
                    })
                    .collect();
                if files.is_empty() && self.access == Access::Outside {
                    let fault = Fault::of("db").with_value(path.to_string_lossy());
                    let fault = fault.cause(named(path, "has no database in it"));
                    return Err(AskError::Refused(
                        fault.remedy("name the folder that a run was given as --db, or a file"),
                    ));
                }
                Ok(files)
            }
        }
    }

    /// The file that is called so.
    ///
    /// # Errors
    /// There is none.
    pub fn file(&self, id: &str) -> Result<DbFile, AskError> {
        let files = self.files()?;
        let ids: Vec<String> = files.iter().map(|file| file.id.clone()).collect();
        files.into_iter().find(|file| file.id == id).ok_or_else(|| {
            let fault = Fault::of_thing("ID").value(id, format!("is no file of {}", self.path().display()));
            let newest: Vec<&str> = ids.iter().rev().take(3).map(String::as_str).collect();
            AskError::Refused(match newest[..] {
                [] => fault.remedy("wait until the first rows are written"),
                _ => fault.remedy(format!("the newest are: {}", newest.join(", "))),
            })
        })
    }

    /// Opens one of its files; `None`: it was deleted meanwhile.
    ///
    /// # Errors
    /// It can't be read.
    pub fn open(&self, file: &DbFile) -> Result<Option<Reading>, AskError> {
        if let Some(held) = &self.held {
            return Reading::held(held, &file.path).map(Some);
        }
        match reading::open(&file.path, self.access) {
            Err(_) if self.is_folder() && !file.path.exists() => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// How long the log of a file is, bytes.
    pub(super) fn log_bytes(&self, file: &DbFile) -> u64 {
        match &self.held {
            Some(held) => held.log_bytes(),
            None => fs::metadata(beside(&file.path, BESIDE[0])).map_or(0, |facts| facts.len()),
        }
    }

    /// What is to be known of each file, oldest first.
    ///
    /// # Errors
    /// They can't be listed, or a single file not be read.
    pub fn facts(&self) -> Result<Vec<FileFacts>, AskError> {
        let files = self.files()?;
        files
            .into_iter()
            .map(|file| {
                let span_ns = match file.period_ns {
                    Some(period_ns) => Some(period_ns),
                    None => self.span_ns(&file)?,
                };
                // Whoever writes has its log locked.
                let is_written = match &self.held {
                    Some(held) => held.is_written(),
                    None => is_written(&fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone())),
                };
                Ok(FileFacts { id: file.id, span_ns, bytes: file.bytes, is_closed: !is_written })
            })
            .collect()
    }

    /// From when to when a file has intervals.
    fn span_ns(&self, file: &DbFile) -> Result<Option<(i64, i64)>, AskError> {
        let Some(connection) = self.open(file)? else { return Ok(None) };
        let sql = "SELECT min(ts_ns), (SELECT ts_ns + length_ns FROM intervals ORDER BY ts_ns DESC LIMIT 1) \
                   FROM intervals";
        let span = connection
            .query_row(sql, [], |row| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?)));
        span.map_err(|error| AskError::unread(&file.path, &error))
    }
}
