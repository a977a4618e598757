//! Rows as text: CSV (RFC 4180, with a line of names), or a JSON object a line. No value is left out or spelled anew. In
//! CSV no value is nothing, and an empty text `""`.

use super::Form;
use crate::asking::sql::Cell;
use crate::asking::table::Table;
use rusqlite::Row;
use serde_json::Value;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// A file of lines.
pub struct Lines {
    form: Form,
    names: Vec<String>,
    out: BufWriter<File>,
}

impl Lines {
    /// With the line of names, where the form has one.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(form: Form, table: &Table, file: File) -> io::Result<Lines> {
        let names: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
        let mut out = BufWriter::new(file);
        if form == Form::Csv {
            writeln!(out, "{}", names.join(","))?;
        }
        Ok(Lines { form, names, out })
    }

    /// One more line.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&mut self, row: &Row<'_>) -> io::Result<()> {
        let cell = |at: usize| row.get_ref(at).map(Cell::of).map_err(io::Error::other);
        let mut line = String::new();
        for (at, name) in self.names.iter().enumerate() {
            let cell = cell(at)?;
            match self.form {
                Form::Csv => {
                    line.push_str(if at == 0 { "" } else { "," });
                    line.push_str(match cell {
                        Cell::Text(ref text) if text.is_empty() => "\"\"",
                        _ => "",
                    });
                    line.push_str(&quoted(&cell.to_string()));
                }
                _ => {
                    line.push_str(if at == 0 { "{" } else { "," });
                    line.push_str(&Value::from(name.as_str()).to_string());
                    line.push(':');
                    line.push_str(&cell.to_json().to_string());
                }
            }
        }
        line.push_str(if self.form == Form::Csv { "\n" } else { "}\n" });
        self.out.write_all(line.as_bytes())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A value as CSV has it: in quotes where it has a comma, a quote or the end of a line.
pub fn quoted(text: &str) -> Cow<'_, str> {
    match text.contains([',', '"', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", text.replace('"', "\"\""))),
        false => Cow::Borrowed(text),
    }
}
