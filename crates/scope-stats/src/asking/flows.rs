//! Records of flows that a filter matches, once or as they come.
//!
//! A record belongs to a span if it touches it: it begins before its end, and ends behind its begin. It lasts at most
//! [`RECORD_NS_MAX`], so the index by end finds all that can. Each has a further value, `filter`: the text that finds
//! its packets, as `$flow` of a dump's template would be.
//!
//! Records that stand for several flows have no addresses. They match no filter but the empty one, and last as long as
//! nothing could be written: there are few, and longer ones are looked for apart.

use super::bounds::Watch;
use super::database::{Database, DbFile};
use super::error::AskError;
use super::reading::Reading;
use super::sql::Cell;
use super::table::Table;
use crate::export::quoted;
use rusqlite::{Connection, Row};
use scope_filter::{FlowFilter, FlowKey};
use scope_spelling::printable::{json_line, printable};
use scope_spelling::time::iso;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::ControlFlow;

/// What a run's `--flow-active` and `--flow-idle` are at most, ns.
pub const FLOW_NS_MAX: i64 = 86_400_000_000_000;
/// How long a record of a flow lasts at most, ns: two halves that came through two interfaces may follow each other with
/// silence between them.
pub const RECORD_NS_MAX: i64 = 3 * FLOW_NS_MAX;
/// The table.
const TABLE: &str = "flows";
/// The value that each record has besides its columns.
const FILTER: &str = "filter";
/// Files of a folder that are followed: rows come to the newest one, and for a while to the one before it.
const FOLLOWED: usize = 2;

/// Which records.
#[derive(Clone, Debug)]
pub struct FlowQuestion {
    /// Packets of either direction match.
    pub filter: FlowFilter,
    /// The first and the last moment of the span, ns since the epoch.
    pub span_ns: (i64, i64),
}

impl FlowQuestion {
    /// Whether a file can have such records: one lies in the file of its end. One that stands for several, which no
    /// filter matches, may be of any length.
    fn may_lie_in(&self, file: &DbFile) -> bool {
        let (from_ns, to_ns) = self.span_ns;
        let last_ns = match self.filter.is_everything() {
            true => i64::MAX,
            false => to_ns.saturating_add(RECORD_NS_MAX),
        };
        file.period_ns.is_none_or(|(begin_ns, end_ns)| end_ns > from_ns && begin_ns <= last_ns)
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRecord {
    /// The values of its columns, in their order.
    pub values: Vec<Cell>,
    /// Its ends, where it is of one flow.
    pub flow: Option<FlowKey>,
    /// The text that finds its packets; empty where it is of several flows.
    pub filter: String,
}

/// The columns that records have.
#[derive(Clone, Debug)]
pub struct FlowColumns {
    names: Vec<String>,
}

impl FlowColumns {
    /// Those of the schema.
    ///
    /// # Errors
    /// SQLite's.
    pub fn known() -> rusqlite::Result<FlowColumns> {
        let table = Table::all()?.into_iter().find(|table| table.name == TABLE);
        let columns = table.map(|table| table.columns).unwrap_or_default();
        Ok(FlowColumns { names: columns.into_iter().map(|column| column.name).collect() })
    }

    /// Their names, with that of the filter at the end.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).chain([FILTER])
    }

    /// The value of a column.
    pub fn get<'a>(&self, record: &'a FlowRecord, name: &str) -> Option<&'a Cell> {
        record.values.get(self.names.iter().position(|known| known == name)?)
    }

    /// The number in a column; 0 where there is none.
    pub fn number(&self, record: &FlowRecord, name: &str) -> i64 {
        match self.get(record, name) {
            Some(Cell::Integer(number)) => *number,
            _ => 0,
        }
    }

    /// A record as JSON: all columns by their names, `start` and `end` in words, `filter`.
    pub fn to_json(&self, record: &FlowRecord) -> Map<String, Value> {
        let mut object: Map<String, Value> = Map::new();
        for (word, column) in [("start", "start_ns"), ("end", "end_ns")] {
            object.insert(word.to_string(), iso(self.number(record, column)).into());
        }
        let values = record.values.iter().map(Cell::to_json);
        object.extend(self.names.iter().cloned().zip(values));
        object.insert(FILTER.to_string(), record.filter.as_str().into());
        object
    }

    /// A record as a line of JSON.
    pub fn json_line(&self, record: &FlowRecord) -> String {
        format!("{}\n", json_line(&Value::Object(self.to_json(record)).to_string()))
    }

    /// The names as the first line of CSV.
    pub fn csv_head(&self) -> String {
        format!("{}\n", self.names().collect::<Vec<_>>().join(","))
    }

    /// A record as a line of CSV.
    pub fn csv_line(&self, record: &FlowRecord) -> String {
        let cells = record.values.iter().map(|cell| quoted(&cell.to_string()).into_owned());
        let cells: Vec<String> = cells.chain([quoted(&record.filter).into_owned()]).collect();
        format!("{}\n", printable(&cells.join(",")))
    }
}

/// How far records were read: of each file the number of its last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowPlace(HashMap<String, i64>);

/// Takes records, and says whether further ones are wanted.
pub type Each<'a> = dyn FnMut(&FlowRecord) -> ControlFlow<()> + 'a;

impl Database {
    /// All records, file by file, in the order in which they ended; how far that went, for [`Database::flows_since`].
    ///
    /// # Errors
    /// Something can't be read, or a bound was met.
    pub fn flows(
        &self,
        question: &FlowQuestion,
        watch: &Watch,
        each: &mut Each<'_>,
    ) -> Result<FlowPlace, AskError> {
        let reader = Reader::new(question).map_err(|error| AskError::unread(self.path(), &error))?;
        let (mut place, mut goes_on) = (FlowPlace::default(), true);
        for file in self.files()? {
            let has_none = !question.may_lie_in(&file);
            let Some(connection) = self.watched(&file, watch)? else { continue };
            let mut read = || {
                connection.execute_batch("BEGIN")?;
                let last = last_row(&connection)?;
                if goes_on && !has_none {
                    goes_on = reader.of_span(&connection, last, each)?;
                }
                Ok(last)
            };
            let last = read().map_err(|error| self.broken(&file, error, watch))?;
            connection.expect_unchanged()?;
            place.0.insert(file.id, last);
        }
        Ok(place)
    }

    /// The same for who won't ask for what comes later: files that have nothing of it aren't opened.
    ///
    /// # Errors
    /// As [`Database::flows`]; what was given to `each` before is true.
    pub fn flows_of(
        &self,
        question: &FlowQuestion,
        watch: &Watch,
        each: &mut Each<'_>,
    ) -> Result<(), AskError> {
        let reader = Reader::new(question).map_err(|error| AskError::unread(self.path(), &error))?;
        for file in self.files()?.iter().filter(|file| question.may_lie_in(file)) {
            if watch.is_over() {
                return Err(self.broken(file, rusqlite::Error::InvalidQuery, watch));
            }
            let Some(connection) = self.watched(file, watch)? else { continue };
            let goes_on = connection
                .execute_batch("BEGIN")
                .and_then(|()| reader.of_span(&connection, i64::MAX, each))
                .map_err(|error| self.broken(file, error, watch))?;
            connection.expect_unchanged()?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Where nothing was read yet, and only what comes now is wanted.
    ///
    /// # Errors
    /// Something can't be read.
    pub fn flows_end(&self, watch: &Watch) -> Result<FlowPlace, AskError> {
        let mut place = FlowPlace::default();
        for file in self.files()?.into_iter().rev().take(FOLLOWED) {
            if let Some(connection) = self.watched(&file, watch)? {
                let last = last_row(&connection).map_err(|error| self.broken(&file, error, watch))?;
                place.0.insert(file.id, last);
            }
        }
        Ok(place)
    }

    /// The records that were written since, in the order in which they were; `place` goes on. Of a folder the newest
    /// files are looked at.
    ///
    /// # Errors
    /// As [`Database::flows`]; `place` is behind what was given to `each`.
    pub fn flows_since(
        &self,
        place: &mut FlowPlace,
        question: &FlowQuestion,
        watch: &Watch,
        each: &mut Each<'_>,
    ) -> Result<(), AskError> {
        let reader = Reader::new(question).map_err(|error| AskError::unread(self.path(), &error))?;
        let files = self.files()?;
        for file in files.iter().skip(files.len().saturating_sub(FOLLOWED)) {
            let Some(connection) = self.watched(file, watch)? else { continue };
            let read_up_to = place.0.entry(file.id.clone()).or_insert(0);
            let mut read = || {
                connection.execute_batch("BEGIN")?;
                let last = last_row(&connection)?;
                // A file that was moved aside has another one in its place.
                if last < *read_up_to {
                    *read_up_to = 0;
                }
                let from = std::mem::replace(read_up_to, last);
                reader.behind(&connection, from, each).map(drop)
            };
            read().map_err(|error| self.broken(file, error, watch))?;
        }
        place.0.retain(|id, _| files.iter().any(|file| file.id == *id));
        Ok(())
    }

    fn watched(&self, file: &DbFile, watch: &Watch) -> Result<Option<Reading>, AskError> {
        let Some(connection) = self.open(file)? else { return Ok(None) };
        watch.watch(&connection).map_err(|error| AskError::unread(&file.path, &error))?;
        Ok(Some(connection))
    }

    fn broken(&self, file: &DbFile, error: rusqlite::Error, watch: &Watch) -> AskError {
        match watch.cut() {
            Some(cut) => {
                let fault = scope_fault::Fault::of("db").with_value(file.path.to_string_lossy());
                AskError::Failed(fault.cause(format!("reading ended at a bound: {}", cut.word())))
            }
            None => AskError::unread(&file.path, &error),
        }
    }
}

/// The number of the newest record.
fn last_row(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT ifnull(max(rowid), 0) FROM flows", [], |row| row.get(0))
}

/// Reads records, whole columns.
struct Reader<'a> {
    question: &'a FlowQuestion,
    columns: FlowColumns,
}

impl<'a> Reader<'a> {
    fn new(question: &'a FlowQuestion) -> rusqlite::Result<Reader<'a>> {
        Ok(Reader { question, columns: FlowColumns::known()? })
    }

    /// Those of the span up to row `last`, by their ends; whether further ones are wanted.
    fn of_span(&self, connection: &Connection, last: i64, each: &mut Each<'_>) -> rusqlite::Result<bool> {
        let (from_ns, to_ns) = self.question.span_ns;
        let sql = format!(
            "SELECT {} FROM flows WHERE end_ns BETWEEN ?1 AND ?3 AND start_ns <= ?2 AND rowid <= ?4 \
             ORDER BY end_ns, rowid",
            self.columns.names.join(", ")
        );
        let end_max_ns = to_ns.saturating_add(RECORD_NS_MAX);
        let goes_on = self.read(connection, &sql, &[from_ns, to_ns, end_max_ns, last], each)?;
        if !goes_on || !self.question.filter.is_everything() {
            return Ok(goes_on);
        }
        let sql = format!(
            "SELECT {} FROM flows WHERE src_ip = '' AND start_ns <= ?1 AND end_ns > ?2 AND rowid <= ?3 \
             ORDER BY end_ns, rowid",
            self.columns.names.join(", ")
        );
        self.read(connection, &sql, &[to_ns, end_max_ns, last], each)
    }

    /// Those behind row `from`, of the span.
    fn behind(&self, connection: &Connection, from: i64, each: &mut Each<'_>) -> rusqlite::Result<bool> {
        let (from_ns, to_ns) = self.question.span_ns;
        let sql = format!(
            "SELECT {} FROM flows WHERE rowid > ?3 AND end_ns >= ?1 AND start_ns <= ?2 ORDER BY rowid",
            self.columns.names.join(", ")
        );
        self.read(connection, &sql, &[from_ns, to_ns, from], each)
    }

    fn read(
        &self,
        connection: &Connection,
        sql: &str,
        values: &[i64],
        each: &mut Each<'_>,
    ) -> rusqlite::Result<bool> {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let filter = &self.question.filter;
        while let Some(row) = rows.next()? {
            let flow = self.flow(row)?;
            let is_wanted = filter.is_everything() || flow.is_some_and(|flow| filter.matches(flow));
            if !is_wanted {
                continue;
            }
            let values = (0..self.columns.names.len()).map(|at| row.get_ref(at).map(Cell::of));
            let values = values.collect::<rusqlite::Result<_>>()?;
            let filter = flow.map(|flow| filter.flow(flow)).unwrap_or_default();
            if each(&FlowRecord { values, flow, filter }).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The ends of a record; `None` where it has none.
    fn flow(&self, row: &Row<'_>) -> rusqlite::Result<Option<FlowKey>> {
        let address = |name: &str| -> rusqlite::Result<Option<IpAddr>> {
            Ok(row.get_ref(name)?.as_str().ok().and_then(|text| text.parse().ok()))
        };
        let (Some(source), Some(destination)) = (address("src_ip")?, address("dst_ip")?) else {
            return Ok(None);
        };
        Ok(Some(FlowKey {
            vlan: row.get("vlan")?,
            protocol: row.get("proto")?,
            source: (source, row.get("src_port")?),
            destination: (destination, row.get("dst_port")?),
        }))
    }
}
