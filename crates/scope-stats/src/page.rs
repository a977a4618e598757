//! The page of the tables, docs/reference/statistics.md: made from their comments by `make pages`, held by a
//! test.

use crate::schema::SCHEMA;
use rusqlite::Connection;
use std::fmt::Write;

/// What stands in front of the tables.
const HEAD: &str = include_str!("page_head.md");

/// The page as it should be.
///
/// # Errors
/// SQLite's: the tables aren't understood.
pub fn page() -> rusqlite::Result<String> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(SCHEMA)?;
    let mut made = database.prepare(
        "SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY rowid",
    )?;
    let mut made = made.query([])?;
    let mut text = HEAD.to_string();
    while let Some(row) = made.next()? {
        let (name, kind, sql): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let _ = write!(text, "\n## {name}\n\n{} A {kind}.\n", sentence(&sql).unwrap_or_default());
        let mut columns = database.prepare("SELECT name, type, \"notnull\" FROM pragma_table_info(?1)")?;
        let mut columns = columns.query([&name])?;
        let mut names = Vec::new();
        text.push_str(if kind == "table" { "\n| column | type | what |\n|---|---|---|\n" } else { "\n" });
        while let Some(column) = columns.next()? {
            let (column, of, is_there): (String, String, bool) =
                (column.get(0)?, column.get(1)?, column.get(2)?);
            if kind == "table" {
                let or_null = if is_there { "" } else { " or NULL" };
                let what = comment(&sql, &column).unwrap_or_default();
                let _ = writeln!(text, "| `{column}` | {of}{or_null} | {what} |");
            } else {
                names.push(format!("`{column}`"));
            }
        }
        if !names.is_empty() {
            let _ = writeln!(text, "Its columns: {}.", names.join(", "));
        }
    }
    Ok(text)
}

/// What a table or view is: the line behind its first one.
fn sentence(sql: &str) -> Option<&str> {
    sql.lines().nth(1)?.trim().strip_prefix("-- ")
}

/// What stands behind a column.
fn comment<'a>(sql: &'a str, column: &str) -> Option<&'a str> {
    let line = sql.lines().find(|line| line.split_whitespace().next() == Some(column))?;
    Some(line.split_once("-- ")?.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::APPLICATION_ID;
    use std::path::Path;

    #[test]
    fn the_page_of_the_tables_is_made_from_their_comments() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/statistics.md");
        let page = page().unwrap();
        if std::env::var_os("WRITE_PAGES").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(
            written == page,
            "docs/reference/statistics.md isn't what the tables say; write it by: make pages"
        );
    }

    #[test]
    fn every_table_and_view_says_what_it_is() {
        let page = page().unwrap();
        assert_eq!(page.matches("\n## ").count(), 8);
        assert!(!page.contains("\n\n A ") && !page.contains("|  |"), "{page}");
        assert!(page.contains(&APPLICATION_ID.to_string()));
    }
}
