//! The columns of each table, as the schema has them.

use super::database::DbFile;
use crate::schema::{SCHEMA, TABLES};
use rusqlite::Connection;

/// Columns that are moments: ns since the epoch. Others that end in `_ns` are lengths of time.
const MOMENTS: [&str; 6] = ["ts_ns", "start_ns", "end_ns", "from_ns", "to_ns", "begin_ns"];

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Integer,
    /// Moments, ns since the epoch.
    Moment,
    /// Texts.
    Text,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it has.
    pub kind: Kind,
    /// Whether it has a value in each row.
    pub is_required: bool,
    /// Its place in the key, from 1; 0: it is no part of that.
    pub key: u32,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns, in their order.
    pub columns: Vec<Column>,
    /// Which of them is the time that its rows are found by.
    pub time: usize,
    /// Whether its rows have numbers; else its key says which is which.
    pub has_rowid: bool,
}

impl Table {
    /// All, in the order of the schema.
    ///
    /// # Errors
    /// SQLite's.
    pub fn all() -> rusqlite::Result<Vec<Table>> {
        let model = Connection::open_in_memory()?;
        model.execute_batch(SCHEMA)?;
        TABLES.into_iter().map(|name| Table::of(&model, name)).collect()
    }

    fn of(model: &Connection, name: &'static str) -> rusqlite::Result<Table> {
        let sql = "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?1) ORDER BY cid";
        let mut columns = model.prepare(sql)?;
        let columns = columns.query_map([name], |row| {
            let (name, kind): (String, String) = (row.get(0)?, row.get(1)?);
            let kind = match kind.as_str() {
                "INTEGER" if MOMENTS.contains(&name.as_str()) => Kind::Moment,
                "INTEGER" => Kind::Integer,
                _ => Kind::Text,
            };
            let key = row.get(3)?;
            Ok(Column { name, kind, is_required: row.get(2)? || key > 0, key })
        })?;
        let columns: Vec<Column> = columns.collect::<rusqlite::Result<_>>()?;
        let time = columns.iter().position(|column| column.kind == Kind::Moment).unwrap_or(0);
        let has_rowid = "SELECT NOT wr FROM pragma_table_list(?1)";
        let has_rowid = model.query_row(has_rowid, [name], |row| row.get(0))?;
        Ok(Table { name, columns, time, has_rowid })
    }

    /// The names of all columns, with commas between them.
    pub fn names(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Which of its rows count of a folder's file, where all files are one: a loss stands in each that has a part of its
    /// span, and counts in the last one.
    pub fn counted(&self, file: &DbFile) -> String {
        match file.period_ns {
            Some((_, to_ns)) if self.name == "losses" && to_ns < i64::MAX => format!("to_ns < {to_ns}"),
            _ => "true".to_string(),
        }
    }

    /// The column by which rows are found.
    pub fn time_name(&self) -> &str {
        &self.columns[self.time].name
    }
}

/// The statements that make the views, in their order.
///
/// # Errors
/// SQLite's.
pub fn views() -> rusqlite::Result<Vec<String>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(SCHEMA)?;
    let mut views = model.prepare("SELECT sql FROM sqlite_schema WHERE type = 'view' ORDER BY rowid")?;
    views.query_map([], |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_by_their_first_moment() {
        let tables = Table::all().unwrap();
        let found: Vec<_> =
            tables.iter().map(|table| (table.name, table.time_name(), table.has_rowid)).collect();
        let expected = [
            ("intervals", "ts_ns", false),
            ("traffic", "ts_ns", false),
            ("flows", "start_ns", true),
            ("losses", "from_ns", true),
            ("runs", "begin_ns", true),
        ];
        assert_eq!(found, expected);
        let kinds = |table: usize, kind: Kind| {
            let columns = tables[table].columns.iter().filter(|column| column.kind == kind);
            columns.map(|column| column.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(2, Kind::Moment), ["start_ns", "end_ns"]);
        assert_eq!(kinds(4, Kind::Moment), ["begin_ns", "end_ns"]);
        assert_eq!(kinds(1, Kind::Text), ["interface", "ip", "proto", "role"]);
        let optional: Vec<_> = tables[2].columns.iter().filter(|column| !column.is_required).collect();
        let optional: Vec<_> = optional.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(optional, ["interface_rev", "rtt_server_ns", "rtt_client_ns", "state"]);
        assert_eq!(views().unwrap().len(), 3);
    }
}
