//! The tables of all files of a folder as one, for SQL: virtual tables that read one file behind the other.
//!
//! ```text
//! SELECT ... FROM flows WHERE src_ip = '10.0.0.1' AND start_ns >= 5
//!   best_index   conditions that the files can answer: =, <, <=, >, >= with a column        ─► plan
//!   filter       for each file whose rows can have such times:
//!                SELECT the columns that are used FROM flows WHERE src_ip = ? AND start_ns >= ?
//! ```
//! SQLite holds each condition against the rows once more, so what isn't handed on costs time only. A file's rows are
//! those of one moment, the first at which the question needs it. Files are opened when they are needed, and at most
//! [`OPEN_MAX`] are open; how many there are has no bound.
//!
//! Each table has two hidden columns: [`FILE`] tells rows apart that two files have alike, and [`SECOND`] is the time in
//! the views, so that conditions on it reach the files, too.

use super::bounds::Watch;
use super::database::{Database, DbFile};
use super::error::AskError;
use super::owned_rows::OwnedRows;
use super::reading::Reading;
use super::table::{Kind, Table, views};
use rusqlite::types::{ToSqlOutput, Value};
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection,
    VTabCursor, VTabKind, sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, params_from_iter};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files that are open at once.
const OPEN_MAX: usize = 32;
/// The name of the kind of table.
const MODULE: &str = "wirescope_files";
/// The hidden column with the number of a row's file.
const FILE: &str = "wirescope_file";
/// The hidden column with a row's time in whole seconds, and what the views have in its place.
const SECOND: &str = "wirescope_second";
const SECOND_IN_VIEWS: &str = "i.ts_ns / 1000000000";
const SECOND_NS: i64 = 1_000_000_000;
/// Bits of a row's number within its file.
const ROW_BITS: u32 = 44;

/// What SQLite is told to choose its way by: rows of a table, and the part of them that a condition leaves.
const ROWS: f64 = 1e7;
const LEFT_BY_EQUAL: f64 = 1e-3;
const LEFT_BY_RANGE: f64 = 0.1;
/// Columns that an index of their table begins with, besides its time.
const INDEXED: [&str; 2] = ["src_ip", "dst_ip"];

/// The kind of table.
const MODULE_OF_FILES: Module<'static, UnionTable> = Module::read_only_module();
/// The next question's number.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The files of this thread's questions. SQLite is given a number in the place of what belongs to one thread.
    static SOURCES: RefCell<HashMap<u64, Rc<Sources>>> = RefCell::default();
}

/// A connection in which the tables of all files are one, with the views. It stays in its thread.
pub struct Union {
    connection: Connection,
    /// Behind the connection, which may look it up as long as it is there.
    known: Known,
}

/// A question whose files can be looked up.
struct Known(u64, Rc<Sources>);

impl Drop for Known {
    fn drop(&mut self) {
        SOURCES.with_borrow_mut(|sources| sources.remove(&self.0));
    }
}

impl Union {
    /// Of a folder's files, as they are now.
    ///
    /// # Errors
    /// There is none.
    pub fn of(database: &Database, watch: &Watch) -> Result<Union, AskError> {
        let files = database.files()?;
        Union::over(database, watch, files).map_err(|error| AskError::unread(database.path(), &error))
    }

    fn over(database: &Database, watch: &Watch, files: Vec<DbFile>) -> rusqlite::Result<Union> {
        let connection = Connection::open_in_memory()?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        let tables = Table::all()?;
        let create: String = tables
            .iter()
            .map(|table| format!("CREATE VIRTUAL TABLE {} USING {MODULE};", table.name))
            .collect();
        let (open, spans, error) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (database, watch) = (database.clone(), watch.clone());
        let sources = Sources { database, watch, files, tables, open, spans, error };
        let (number, sources) = (NEXT.fetch_add(1, Ordering::Relaxed), Rc::new(sources));
        SOURCES.with_borrow_mut(|known| known.insert(number, sources.clone()));
        let union = Union { connection, known: Known(number, sources) };
        union.connection.create_module(MODULE, &MODULE_OF_FILES, Some(number))?;
        union.connection.execute_batch(&create)?;
        for view in views()? {
            let view = view.replace(SECOND_IN_VIEWS, &format!("i.{SECOND}"));
            union.connection.execute_batch(&view)?;
        }
        Ok(union)
    }

    /// For asking.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether all files could be read, each as it was at one moment.
    ///
    /// # Errors
    /// The first that couldn't.
    pub fn expect_read(&self) -> Result<(), AskError> {
        let sources = &self.known.1;
        match sources.error.borrow().clone() {
            Some(error) => Err(error),
            None => sources.open.borrow().iter().try_for_each(|(_, reading)| reading.expect_unchanged()),
        }
    }
}

/// From when to when rows are, ns since the epoch; `None`: there are none.
type Span = Option<(i64, i64)>;

/// The files of one question.
struct Sources {
    database: Database,
    watch: Watch,
    files: Vec<DbFile>,
    tables: Vec<Table>,
    /// By the file's number, the one last used at the end.
    open: RefCell<Vec<(usize, Rc<Reading>)>>,
    /// Of each table of each file, by their numbers.
    spans: RefCell<HashMap<(usize, usize), Span>>,
    /// Why a file couldn't be read.
    error: RefCell<Option<AskError>>,
}

impl Sources {
    /// A file's connection, in a transaction that began when it was opened; `None`: it was deleted.
    fn connection(&self, file: usize) -> rusqlite::Result<Option<Rc<Reading>>> {
        let mut open = self.open.borrow_mut();
        if let Some(at) = open.iter().position(|&(number, _)| number == file) {
            let known = open.remove(at);
            let connection = known.1.clone();
            open.push(known);
            return Ok(Some(connection));
        }
        let opened = self.database.open(&self.files[file]).map_err(|error| self.broken(error))?;
        let Some(connection) = opened else { return Ok(None) };
        self.watch.watch(&connection)?;
        connection.execute_batch("BEGIN")?;
        let connection = Rc::new(connection);
        if open.len() == OPEN_MAX {
            let (_, closed) = open.remove(0);
            closed.expect_unchanged().map_err(|error| self.broken(error))?;
        }
        open.push((file, connection.clone()));
        Ok(Some(connection))
    }

    /// Notes why a file couldn't be read: SQLite hands on no more than words.
    fn broken(&self, error: AskError) -> Error {
        let words = Error::ModuleError(error.fault().why());
        self.error.borrow_mut().get_or_insert(error);
        words
    }

    /// The same of what SQLite says of a file, unless a bound was met.
    fn unread(&self, file: usize, error: Error) -> Error {
        match self.watch.cut() {
            Some(_) => error,
            None => self.broken(AskError::unread(&self.files[file].path, &error)),
        }
    }

    /// From when to when a file can have rows of a table, without a look into it.
    fn period_ns(&self, file: usize, table: usize) -> (i64, i64) {
        let (mut from_ns, to_ns) = self.files[file].period_ns.unwrap_or((i64::MIN, i64::MAX));
        match self.tables[table].name {
            // The first file has what is before 1970, too.
            "intervals" | "traffic" if from_ns > 0 => {}
            "runs" => return (i64::MIN, i64::MAX),
            _ => from_ns = i64::MIN, // a flow and a loss lie in the file of their end
        }
        (from_ns, if to_ns == i64::MAX { to_ns } else { to_ns - 1 })
    }

    /// From when to when a file has rows of a table.
    fn span_ns(&self, file: usize, table: usize) -> rusqlite::Result<Span> {
        if let Some(&known) = self.spans.borrow().get(&(file, table)) {
            return Ok(known);
        }
        let Some(connection) = self.connection(file)? else { return Ok(None) };
        let (name, time) = (self.tables[table].name, self.tables[table].time_name());
        let sql = format!("SELECT (SELECT min({time}) FROM {name}), (SELECT max({time}) FROM {name})");
        let span = connection
            .query_row(&sql, [], |row| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?)));
        let span = span.map_err(|error| self.unread(file, error))?;
        self.spans.borrow_mut().insert((file, table), span);
        Ok(span)
    }
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Sign {
    const ALL: [(Sign, &'static str); 5] = [
        (Sign::Equal, "="),
        (Sign::Less, "<"),
        (Sign::LessOrEqual, "<="),
        (Sign::Greater, ">"),
        (Sign::GreaterOrEqual, ">="),
    ];

    fn of(operator: &IndexConstraintOp) -> Option<Sign> {
        match operator {
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => Some(Sign::Equal),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT => Some(Sign::Less),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => Some(Sign::LessOrEqual),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT => Some(Sign::Greater),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => Some(Sign::GreaterOrEqual),
            _ => None,
        }
    }

    fn text(self) -> &'static str {
        Sign::ALL.iter().find(|(sign, _)| *sign == self).map_or("", |(_, text)| text)
    }

    /// Whether any time from `from_ns` to `to_ns` can compare so with `value`.
    fn may_hold(self, (from_ns, to_ns): (i64, i64), value: i64) -> bool {
        match self {
            Sign::Equal => from_ns <= value && value <= to_ns,
            Sign::Less => from_ns < value,
            Sign::LessOrEqual => from_ns <= value,
            Sign::Greater => to_ns > value,
            Sign::GreaterOrEqual => to_ns >= value,
        }
    }
}

/// What a search hands on to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    /// A bit for each column that is used.
    used: u64,
    /// Columns, and how each is compared with the value at its place.
    conditions: Vec<(usize, Sign)>,
}

impl Plan {
    /// As SQLite keeps it: `5 0>= 3=`.
    fn text(&self) -> String {
        let conditions = self.conditions.iter().map(|(column, sign)| format!(" {column}{}", sign.text()));
        std::iter::once(self.used.to_string()).chain(conditions).collect()
    }

    fn of(text: &str) -> Option<Plan> {
        let mut words = text.split(' ');
        let used = words.next()?.parse().ok()?;
        let condition = |word: &str| {
            let (column, sign) = word.split_at(word.find(|letter: char| !letter.is_ascii_digit())?);
            let (sign, _) = Sign::ALL.into_iter().find(|(_, known)| *known == sign)?;
            Some((column.parse().ok()?, sign))
        };
        Some(Plan { used, conditions: words.map(condition).collect::<Option<_>>()? })
    }

    fn uses(&self, column: usize) -> bool {
        self.used >> column.min(63) & 1 != 0
    }
}

/// A table over all files.
#[repr(C)]
struct UnionTable {
    /// SQLite's; it must be the first.
    base: sqlite3_vtab,
    sources: Rc<Sources>,
    number: usize,
}

impl UnionTable {
    fn table(&self) -> &Table {
        &self.sources.tables[self.number]
    }

    fn declaration(table: &Table) -> String {
        let mut parts: Vec<String> = Vec::new();
        for column in &table.columns {
            let kind = if column.kind == Kind::Text { "TEXT" } else { "INTEGER" };
            let required = if column.is_required { " NOT NULL" } else { "" };
            parts.push(format!("{} {kind}{required}", column.name));
        }
        parts.push(format!("{FILE} INTEGER HIDDEN NOT NULL, {SECOND} INTEGER HIDDEN NOT NULL"));
        if table.has_rowid {
            return format!("CREATE TABLE files ({})", parts.join(", "));
        }
        let mut key: Vec<_> = table.columns.iter().filter(|column| column.key > 0).collect();
        key.sort_by_key(|column| column.key);
        let key: Vec<&str> = key.iter().map(|column| column.name.as_str()).chain([FILE]).collect();
        parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
        format!("CREATE TABLE files ({}) WITHOUT ROWID", parts.join(", "))
    }
}

// SAFETY: it is laid out as C does, with SQLite's own part first.
unsafe impl VTab<'_> for UnionTable {
    type Aux = u64;
    type Cursor = UnionCursor;

    fn connect(
        connection: &mut VTabConnection,
        question: Option<&u64>,
        _: &[u8],
        _: &[u8],
        name: &[u8],
        _: &[&[u8]],
    ) -> rusqlite::Result<(Cow<'static, CStr>, UnionTable)> {
        let unknown = || Error::ModuleError("no such table".to_string());
        let sources = SOURCES.with_borrow(|known| known.get(question?).cloned()).ok_or_else(unknown)?;
        let number = sources.tables.iter().position(|table| table.name.as_bytes() == name);
        let table =
            UnionTable { base: sqlite3_vtab::default(), number: number.ok_or_else(unknown)?, sources };
        // Views use it, and it does nothing but read.
        connection.config(VTabConfig::Innocuous)?;
        Ok((Cow::Owned(CString::new(UnionTable::declaration(table.table()))?), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> rusqlite::Result<bool> {
        let table = self.table();
        let (mut conditions, mut places) = (Vec::new(), Vec::new());
        let (mut rows, mut is_found) = (ROWS, false);
        for (place, constraint) in info.constraints().enumerate() {
            let is_of_files = |column: &usize| *column < table.columns.len() || *column == second(table);
            let column = usize::try_from(constraint.column()).ok().filter(is_of_files);
            let column = column.filter(|_| constraint.is_usable());
            let (Some(column), Some(sign)) = (column, Sign::of(&constraint.operator())) else { continue };
            if info.collation(place)? != "BINARY" {
                continue;
            }
            conditions.push((column, sign));
            places.push(place);
            rows *= if sign == Sign::Equal { LEFT_BY_EQUAL } else { LEFT_BY_RANGE };
            let name = table.columns.get(column).map_or(SECOND, |column| &column.name);
            let by_text = sign == Sign::Equal && INDEXED.contains(&name);
            is_found |= column == table.time || column == second(table) || by_text;
        }
        for (argument, place) in (1..).zip(places) {
            info.constraint_usage(place).set_argv_index(argument);
        }
        let plan = Plan { used: info.col_used(), conditions };
        info.set_idx_str(&plan.text());
        info.set_estimated_cost(
            if is_found { rows.max(1.0) } else { ROWS } + self.sources.files.len() as f64,
        );
        info.set_estimated_rows(rows.max(1.0) as i64);
        Ok(true)
    }

    fn open(&mut self) -> rusqlite::Result<UnionCursor> {
        Ok(UnionCursor {
            base: sqlite3_vtab_cursor::default(),
            sources: self.sources.clone(),
            number: self.number,
            sql: String::new(),
            values: Vec::new(),
            times: Vec::new(),
            file: 0,
            rows: None,
        })
    }
}

impl CreateVTab<'_> for UnionTable {
    const KIND: VTabKind = VTabKind::Default;
}

/// The place of the column [`SECOND`]: behind that of [`FILE`].
fn second(table: &Table) -> usize {
    table.columns.len() + 1
}

/// A search in a table.
#[repr(C)]
struct UnionCursor {
    /// SQLite's; it must be the first.
    base: sqlite3_vtab_cursor,
    sources: Rc<Sources>,
    number: usize,
    /// What each file is asked, and with which values.
    sql: String,
    values: Vec<Value>,
    /// What the time of rows is compared with, and in which unit, ns.
    times: Vec<(Sign, i64, i64)>,
    /// The file whose rows are read.
    file: usize,
    /// Its rows; `None`: there is no further file.
    rows: Option<OwnedRows>,
}

impl UnionCursor {
    fn table(&self) -> &Table {
        &self.sources.tables[self.number]
    }

    /// Goes to the next row, of this file or of one behind it.
    fn advance(&mut self) -> rusqlite::Result<()> {
        while let Some(rows) = &mut self.rows {
            if rows.next().map_err(|error| self.sources.unread(self.file, error))? {
                return Ok(());
            }
            self.rows = self.rows_from(self.file + 1)?;
        }
        Ok(())
    }

    /// The rows of the first file from this one on that can have some.
    fn rows_from(&mut self, from: usize) -> rusqlite::Result<Option<OwnedRows>> {
        for file in from..self.sources.files.len() {
            let may_hold = |(from_ns, to_ns): (i64, i64)| {
                let holds = |&(sign, value, unit_ns): &(Sign, i64, i64)| {
                    sign.may_hold((from_ns / unit_ns, to_ns / unit_ns), value)
                };
                self.times.iter().all(holds)
            };
            if !may_hold(self.sources.period_ns(file, self.number)) {
                continue;
            }
            if !self.sources.span_ns(file, self.number)?.is_some_and(may_hold) {
                continue;
            }
            let Some(connection) = self.sources.connection(file)? else { continue };
            self.file = file;
            let counted = self.table().counted(&self.sources.files[file]);
            let sql = format!("{} AND {counted}", self.sql);
            let rows = OwnedRows::query(connection, &sql, params_from_iter(&self.values));
            return rows.map(Some).map_err(|error| self.sources.unread(file, error));
        }
        Ok(None)
    }

    fn plan(&mut self, plan: &Plan, values: &Filters<'_>) {
        let table = &self.sources.tables[self.number];
        let number = if table.has_rowid { "rowid" } else { "NULL" };
        // A key is always read: SQLite may tell rows apart by it.
        let columns = table.columns.iter().enumerate().map(|(at, column)| {
            let is_read = plan.uses(at) || column.key > 0;
            if is_read { column.name.as_str() } else { "NULL" }
        });
        let seconds = format!("{} / {SECOND_NS}", table.time_name());
        let columns: Vec<&str> = std::iter::once(number).chain(columns).chain([seconds.as_str()]).collect();
        let (mut conditions, mut kept, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for (&(column, sign), value) in plan.conditions.iter().zip(values.iter()) {
            let Ok(value) = Value::try_from(value) else { continue };
            // Only where both are compared as they are, whatever SQLite would make of the value.
            let is_alike = match table.columns.get(column).map(|column| column.kind) {
                Some(Kind::Text) => matches!(value, Value::Text(_)),
                _ => matches!(value, Value::Integer(_) | Value::Real(_)),
            };
            if !is_alike {
                continue;
            }
            match &value {
                Value::Integer(time) if column == table.time => times.push((sign, *time, 1)),
                Value::Integer(time) if column == second(table) => times.push((sign, *time, SECOND_NS)),
                _ => {}
            }
            kept.push(value);
            let name = table.columns.get(column).map_or(&seconds, |column| &column.name);
            conditions.push(format!("{name} {} ?{}", sign.text(), kept.len()));
        }
        conditions.push("true".to_string());
        let sql =
            format!("SELECT {} FROM {} WHERE {}", columns.join(", "), table.name, conditions.join(" AND "));
        (self.sql, self.values, self.times) = (sql, kept, times);
    }
}

// SAFETY: it is laid out as C does, with SQLite's own part first.
unsafe impl VTabCursor for UnionCursor {
    fn filter(&mut self, _: c_int, plan: Option<&str>, values: &Filters<'_>) -> rusqlite::Result<()> {
        let plan = plan.and_then(Plan::of).ok_or_else(|| Error::ModuleError("no plan".to_string()))?;
        self.plan(&plan, values);
        self.rows = self.rows_from(0)?;
        self.advance()
    }

    fn next(&mut self) -> rusqlite::Result<()> {
        self.advance()
    }

    fn eof(&self) -> bool {
        self.rows.is_none()
    }

    fn column(&self, context: &mut Context, column: c_int) -> rusqlite::Result<()> {
        let column = column as usize;
        if column == self.table().columns.len() {
            return context.set_result(&(self.file as i64));
        }
        let column = column.min(self.table().columns.len());
        match self.rows.as_ref().and_then(OwnedRows::row) {
            Some(row) => context.set_result(&ToSqlOutput::Borrowed(row.get_ref(column + 1)?)),
            None => context.set_result(&rusqlite::types::Null),
        }
    }

    fn rowid(&self) -> rusqlite::Result<i64> {
        let row = self.rows.as_ref().and_then(OwnedRows::row);
        let number: Option<i64> = row.map(|row| row.get(0)).transpose()?;
        Ok((self.file as i64) << ROW_BITS | number.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let check = |used: u64, conditions: &[(usize, Sign)], text: &str| {
            let plan = Plan { used, conditions: conditions.to_vec() };
            assert_eq!(plan.text(), text);
            assert_eq!(Plan::of(text), Some(plan));
        };
        check(5, &[], "5");
        check(u64::MAX, &[(0, Sign::GreaterOrEqual), (31, Sign::Equal)], "18446744073709551615 0>= 31=");
        assert_eq!(Plan::of("5 0!"), None);
    }

    #[test]
    fn a_file_is_passed_over_only_where_no_time_of_it_can_match() {
        for (sign, text) in Sign::ALL {
            for value in 0..8 {
                let expected = (2..=5).any(|time: i64| match text {
                    "=" => time == value,
                    "<" => time < value,
                    "<=" => time <= value,
                    ">" => time > value,
                    _ => time >= value,
                });
                assert_eq!(sign.may_hold((2, 5), value), expected, "{text} {value}");
            }
        }
    }
}
