//! One SELECT, whatever it says: nothing is changed by it, no other file is opened, and it ends.
//!
//! - SQLite's authorizer refuses all but SELECT, reading columns, functions, recursion, and the pragmas that list
//!   columns. So there is no ATTACH, no extension, and no way to write.
//! - Time and memory are looked at every few thousand steps ([`Watch`]), rows and bytes of the answer as they come. An
//!   answer that meets a bound has the rows up to there, and says by what it was cut.
//! - Values are short and patterns shorter ([`LIMITS`]): no single step takes long.

use super::bounds::{Bounds, Cut, Watch};
use super::database::Database;
use super::error::AskError;
use super::reading::Reading;
use super::union::Union;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, Error, ErrorCode, Statement};
use scope_fault::Fault;
use scope_filter::excerpt;
use serde_json::{Map, Number, Value, json};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a statement may be made of. A value that is longer ends it with an error.
const LIMITS: [(Limit, i32); 8] = [
    (Limit::SQLITE_LIMIT_LENGTH, 1 << 18),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 16),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 256),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 64),
    (Limit::SQLITE_LIMIT_COLUMN, 512),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];
/// Functions that reach out of the database.
const FUNCTIONS_REFUSED: [&str; 2] = ["load_extension", "fts3_tokenizer"];
/// Pragmas that say what columns there are.
const PRAGMAS: [&str; 6] =
    ["table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"];
/// Parts of SQLite's words where the authorizer refused a function, or a folder's table is to be changed.
const DENIED: [&str; 2] = ["not authorized", "may not be modified"];
/// What a value counts beside its text.
const CELL_BYTES: usize = 16;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// None.
    Null,
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// What a SELECT has found.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlAnswer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// A value for each column.
    pub rows: Vec<Vec<Cell>>,
    /// There: it has more rows, and this is why they are missing.
    pub cut: Option<Cut>,
}

impl Cell {
    /// The same of SQLite's.
    pub fn of(value: ValueRef<'_>) -> Cell {
        match value {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Integer(number),
            ValueRef::Real(number) => Cell::Real(number),
            ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
        }
    }

    fn bytes(&self) -> usize {
        CELL_BYTES
            + match self {
                Cell::Null | Cell::Integer(_) | Cell::Real(_) => 0,
                Cell::Text(text) => text.len(),
                Cell::Blob(bytes) => 2 * bytes.len(),
            }
    }

    /// As JSON: bytes as hexadecimal digits, numbers that aren't finite as text.
    pub fn to_json(&self) -> Value {
        match self {
            Cell::Null => Value::Null,
            Cell::Integer(number) => json!(number),
            Cell::Real(number) => {
                Number::from_f64(*number).map_or_else(|| json!(number.to_string()), Value::Number)
            }
            Cell::Text(text) => json!(text),
            Cell::Blob(_) => json!(self.to_string()),
        }
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        matches!(self, Cell::Integer(_) | Cell::Real(_))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Null => Ok(()),
            Cell::Integer(number) => number.fmt(out),
            Cell::Real(number) => write!(out, "{number:?}"),
            Cell::Text(text) => out.write_str(text),
            Cell::Blob(bytes) => bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        }
    }
}

impl SqlAnswer {
    /// As JSON: `columns`, `rows` (a list of values each), `cut` (null: it is whole).
    pub fn to_json(&self) -> Map<String, Value> {
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::to_json).collect::<Value>());
        let fields = [
            ("columns", json!(self.columns)),
            ("rows", rows.collect()),
            ("cut", json!(self.cut.map(Cut::word))),
        ];
        fields.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

impl Database {
    /// Answers one SELECT. `stop` is set by whoever doesn't wait any more.
    ///
    /// # Errors
    /// It is none, it is wrong, or the database can't be read.
    pub fn sql(&self, text: &str, bounds: &Bounds, stop: Arc<AtomicBool>) -> Result<SqlAnswer, AskError> {
        // SQLite would read up to there.
        if text.contains('\0') {
            let fault = Fault::of_thing("SQL").with_value(text).cause("has a NUL in it");
            return Err(AskError::Refused(fault.remedy("write it without")));
        }
        let watch = Watch::of(bounds, stop);
        if self.is_folder() {
            let all = Union::of(self, &watch)?;
            let answer = self.ask(all.connection(), text, bounds, &watch);
            all.expect_read().and(answer)
        } else {
            let one = self.only(text)?;
            let answer = self.ask(&one, text, bounds, &watch);
            one.expect_unchanged().and(answer)
        }
    }

    fn ask(
        &self,
        connection: &Connection,
        text: &str,
        bounds: &Bounds,
        watch: &Watch,
    ) -> Result<SqlAnswer, AskError> {
        let refused = |error: Error| self.sql_error(text, error);
        restrict(connection, watch).map_err(refused)?;
        let mut statements = Batch::new(connection, text);
        let first = statements.next().map_err(refused)?;
        let Some(mut statement) = first.filter(|statement| statement.column_count() > 0) else {
            let fault = Fault::of_thing("SQL").value(text, "is no SELECT");
            return Err(AskError::Refused(fault.remedy("write e.g. SELECT sum(bytes) FROM intervals")));
        };
        // Whatever stands behind it, right or wrong, is more than one.
        if !matches!(statements.next(), Ok(None)) {
            let fault = Fault::of_thing("SQL").with_value(text).cause("is more than one statement");
            return Err(AskError::Refused(fault.remedy("ask one SELECT at a time")));
        }
        read(&mut statement, bounds, watch).map_err(refused)
    }

    fn only(&self, text: &str) -> Result<Reading, AskError> {
        let file = self.files()?.into_iter().next();
        let opened = file.map(|file| self.open(&file)).transpose()?.flatten();
        opened.ok_or_else(|| {
            let fault = Fault::of("db").with_value(self.path().to_string_lossy());
            AskError::Failed(fault.cause(format!("was deleted before it was asked {text}")))
        })
    }

    /// What is wrong with a statement, or with what it reads.
    fn sql_error(&self, text: &str, error: Error) -> AskError {
        let fault = Fault::of_thing("SQL").with_value(text);
        let columns = "the columns are listed by: SELECT name FROM pragma_table_info('flows')";
        let words = error.to_string();
        let is_denied = error.sqlite_error_code() == Some(ErrorCode::AuthorizationForStatementDenied)
            || DENIED.iter().any(|denied| words.contains(denied));
        if is_denied {
            let fault = fault.cause("asks for something else than to read the tables of this database");
            return AskError::Refused(
                fault.remedy("write one SELECT on intervals, traffic, flows, losses or runs"),
            );
        }
        match &error {
            Error::SqlInputError { msg, offset, .. } => {
                let fault = fault.cause(msg.as_str()).remedy(columns);
                match usize::try_from(*offset) {
                    Ok(at) => AskError::Refused(fault.showing(excerpt(text, at))),
                    Err(_) => AskError::Refused(fault),
                }
            }
            Error::SqliteFailure(code, _) => match code.code {
                ErrorCode::Unknown | ErrorCode::TooBig | ErrorCode::TypeMismatch => {
                    AskError::Refused(fault.cause(words).remedy(columns))
                }
                _ => AskError::unread(self.path(), &error),
            },
            _ => AskError::unread(self.path(), &error),
        }
    }
}

/// Leaves nothing but reading.
fn restrict(connection: &Connection, watch: &Watch) -> rusqlite::Result<()> {
    for (limit, value) in LIMITS {
        connection.set_limit(limit, value)?;
    }
    watch.watch(connection)?;
    connection.authorizer(Some(|asked: AuthContext<'_>| match asked.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if !FUNCTIONS_REFUSED.contains(&function_name) => {
            Authorization::Allow
        }
        AuthAction::Pragma { pragma_name, .. } if PRAGMAS.contains(&pragma_name) => Authorization::Allow,
        _ => Authorization::Deny,
    }))
}

fn read(statement: &mut Statement<'_>, bounds: &Bounds, watch: &Watch) -> rusqlite::Result<SqlAnswer> {
    let columns: Vec<String> = statement.column_names().iter().map(ToString::to_string).collect();
    let (mut answer, mut bytes) = (SqlAnswer { columns, rows: Vec::new(), cut: None }, 0);
    let mut rows = statement.raw_query();
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(answer),
            Err(error) => match watch.cut() {
                Some(cut) => return Ok(SqlAnswer { cut: Some(cut), ..answer }),
                None => return Err(error),
            },
        };
        if answer.rows.len() == bounds.rows {
            return Ok(SqlAnswer { cut: Some(Cut::Rows), ..answer });
        }
        let row: Vec<Cell> = (0..answer.columns.len())
            .map(|at| row.get_ref(at).map(Cell::of))
            .collect::<rusqlite::Result<_>>()?;
        bytes += row.iter().map(Cell::bytes).sum::<usize>();
        if bytes > bounds.bytes {
            return Ok(SqlAnswer { cut: Some(Cut::Bytes), ..answer });
        }
        answer.rows.push(row);
    }
}
