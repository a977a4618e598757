//! The rows of a database as files for other programs: Parquet, CSV or JSON, by table, date and hour.
//!
//! ```text
//! DIR/flows/date=2026-11-27/hour=18/wirescope-2026-11-27-5f3a9c01.parquet
//!     table  UTC day        hour     the file that has the rows, and the run that made it
//! ```
//! - A row belongs to the hour of its table's first moment: `ts_ns`, `start_ns`, `from_ns`, `begin_ns`.
//! - A part has all rows that one database file has of its table and hour, and takes the place of what was exported
//!   of them before, by one act. So nothing is there twice, whatever is exported how often. A span means whole hours:
//!   those that it touches.
//! - Columns have the names and values that they have in the database. In Parquet moments are timestamps in UTC with
//!   ns, and texts and numbers may be null where the database has none.
//! - Each part is read in a transaction of its own, so that a run that writes waits for no export.
//!
//! | module | what it holds |
//! |---|---|
//! | `sheet` | the rows of one file, in any form |
//! | `text` | as CSV, or as JSON, an object a line |
//! | `parquet` | in columns |

mod parquet;
mod sheet;
mod text;

use crate::asking::bounds::{Cut, Watch};
use crate::asking::database::{Database, DbFile};
use crate::asking::error::AskError;
use crate::asking::table::Table;
use rusqlite::{Connection, Rows};
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::time::iso;
use sheet::Sheet;
use std::ffi::OsStr;
use std::io;

const HOUR_NS: i64 = 3_600_000_000_000;
/// Letters of a run's identifier in the names of parts.
const RUN_LETTERS: usize = 8;

pub use text::quoted;

/// The form of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Columns, compressed with zstd.
    Parquet,
    /// Text with a line of names.
    Csv,
    /// A JSON object a line.
    Jsonl,
}

impl Form {
    /// The words for them, which are also the endings of files.
    pub const WORDS: [(&'static str, Form); 3] =
        [("parquet", Form::Parquet), ("csv", Form::Csv), ("jsonl", Form::Jsonl)];

    /// The one that is called so.
    pub fn of(word: &str) -> Option<Form> {
        Form::WORDS.iter().find(|(known, _)| *known == word).map(|&(_, form)| form)
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        Form::WORDS.iter().find(|(_, form)| *form == self).map_or("", |(word, _)| word)
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Files.
    pub parts: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Where it goes, and in which form.
#[derive(Debug)]
pub struct Export {
    folder: Folder,
    form: Form,
    /// Hours that are wanted: the first one's begin, and the end of the last one.
    hours_ns: (i64, i64),
}

impl Export {
    /// Into the folder `folder`: rows of the hours that the span touches.
    pub fn new(folder: Folder, form: Form, (from_ns, to_ns): (i64, i64)) -> Export {
        let hours_ns = (hour_of(from_ns), hour_of(to_ns).saturating_add(HOUR_NS));
        Export { folder, form, hours_ns }
    }

    /// The folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Writes all tables of all files.
    ///
    /// # Errors
    /// Something can't be read or written, or `watch` ended it. Parts that were written before are whole.
    pub fn write(&self, database: &Database, watch: &Watch) -> Result<Exported, AskError> {
        let tables = Table::all().map_err(|error| AskError::unread(database.path(), &error))?;
        let mut exported = Exported::default();
        for file in database.files()? {
            let Some(connection) = database.open(&file)? else { continue };
            let unread = |error: rusqlite::Error| AskError::unread(&file.path, &error);
            watch.watch(&connection).map_err(unread)?;
            let name = name_of(&file, &connection, self.form).map_err(unread)?;
            for table in &tables {
                self.table((&connection, &file), table, &name, watch, &mut exported)?;
            }
        }
        Ok(exported)
    }

    /// Writes one table of one file, hour by hour.
    fn table(
        &self,
        (connection, file): (&Connection, &DbFile),
        table: &Table,
        name: &str,
        watch: &Watch,
        exported: &mut Exported,
    ) -> Result<(), AskError> {
        let unread = |error: &rusqlite::Error| match watch.cut() {
            Some(Cut::Stopped) => {
                AskError::Failed(Fault::of_thing("export").cause("stopped: parts are whole"))
            }
            _ => AskError::unread(&file.path, error),
        };
        let (time, counted) = (table.time_name(), table.counted(file));
        let of_hours = format!("FROM {} WHERE {time} >= ?1 AND {time} < ?2 AND {counted}", table.name);
        let next = format!("SELECT min({time}) {of_hours}");
        let (mut from_ns, to_ns) = self.hours_ns;
        loop {
            let next: Option<i64> = connection
                .query_row(&next, [from_ns, to_ns], |row| row.get(0))
                .map_err(|error| unread(&error))?;
            let Some(next_ns) = next else { return Ok(()) };
            let hour_ns = hour_of(next_ns);
            let end_ns = hour_ns.saturating_add(HOUR_NS);
            let sql = format!("SELECT {} {of_hours} ORDER BY {time}", table.names());
            let mut statement = connection.prepare(&sql).map_err(|error| unread(&error))?;
            let rows = statement.query([hour_ns, end_ns]).map_err(|error| unread(&error))?;
            let (rows, bytes) = self.part(table, hour_ns, name, rows).map_err(|broken| match broken {
                Broken::Read(error) => unread(&error),
                Broken::Write(error) => self.unwritten(&error),
            })?;
            exported.parts += 1;
            exported.rows += rows;
            exported.bytes += bytes;
            from_ns = end_ns;
            if from_ns >= to_ns {
                return Ok(());
            }
        }
    }

    /// Writes the part of one table and hour, and the folders that it lies in; its rows and bytes.
    fn part(
        &self,
        table: &Table,
        hour_ns: i64,
        name: &str,
        mut rows: Rows<'_>,
    ) -> Result<(u64, u64), Broken> {
        let moment = iso(hour_ns);
        let (date, hour) = moment.split_once('T').unwrap_or((&moment, ""));
        let hour = hour.get(..2).unwrap_or(hour);
        let mut folder = self.folder.make_below(OsStr::new(table.name))?;
        for name in [format!("date={date}"), format!("hour={hour}")] {
            folder = folder.make_below(OsStr::new(&name))?;
        }
        let mut draft = folder.draft_over(OsStr::new(name))?;
        let mut sheet = Sheet::begin(self.form, table, draft.file().try_clone()?)?;
        while let Some(row) = rows.next().map_err(Broken::Read)? {
            sheet.add(row)?;
        }
        let count = sheet.finish()?;
        draft.file().sync_data()?;
        let bytes = draft.file().metadata()?.len();
        draft.replace()?;
        Ok((count, bytes))
    }

    fn unwritten(&self, error: &io::Error) -> AskError {
        let path = self.folder.path();
        let fault = Fault::of("out").with_value(path.to_string_lossy());
        let fault = fault.cause(format!("{}: {error}", path.display()));
        AskError::Failed(match error.kind() {
            io::ErrorKind::StorageFull => {
                fault.remedy("free some space and export again: nothing is there twice")
            }
            _ => fault,
        })
    }
}

/// Why a part couldn't be written.
enum Broken {
    Read(rusqlite::Error),
    Write(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Write(error)
    }
}

/// The begin of the hour of a time.
fn hour_of(time_ns: i64) -> i64 {
    time_ns.saturating_sub(time_ns.rem_euclid(HOUR_NS))
}

/// What the parts of a file are called: as the file, with the first run that wrote it.
fn name_of(file: &DbFile, connection: &Connection, form: Form) -> rusqlite::Result<String> {
    let sql = "SELECT run FROM runs ORDER BY id LIMIT 1";
    let run: String = match connection.query_row(sql, [], |row| row.get(0)) {
        Err(rusqlite::Error::QueryReturnedNoRows) => String::new(),
        run => run?,
    };
    let plain = |text: &str| -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        text.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
    };
    let stem = file.path.file_stem().unwrap_or_default().to_string_lossy();
    let run: String = plain(&run).chars().filter(|letter| *letter != '-').take(RUN_LETTERS).collect();
    Ok(format!("{}-{run}.{}", plain(stem.trim_start_matches('.')), form.word()))
}
