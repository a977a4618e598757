//! The rows of one file of an export, in any form.

use super::Form;
use super::parquet::Columns;
use super::text::Lines;
use crate::asking::table::Table;
use rusqlite::Row;
use std::fs::File;
use std::io;

/// A file that gets rows.
pub struct Sheet {
    form: Formed,
    rows: u64,
}

enum Formed {
    Lines(Lines),
    Columns(Box<Columns>),
}

impl Sheet {
    /// With what stands in front of the rows.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(form: Form, table: &Table, file: File) -> io::Result<Sheet> {
        let form = match form {
            Form::Parquet => Formed::Columns(Box::new(Columns::begin(table, file)?)),
            Form::Csv | Form::Jsonl => Formed::Lines(Lines::begin(form, table, file)?),
        };
        Ok(Sheet { form, rows: 0 })
    }

    /// One more row, with all columns of the table.
    ///
    /// # Errors
    /// The system's, or a value isn't what its column has.
    pub fn add(&mut self, row: &Row<'_>) -> io::Result<()> {
        self.rows += 1;
        match &mut self.form {
            Formed::Lines(lines) => lines.add(row),
            Formed::Columns(columns) => columns.add(row),
        }
    }

    /// Writes what is left; how many rows there are.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(self) -> io::Result<u64> {
        match self.form {
            Formed::Lines(lines) => lines.finish()?,
            Formed::Columns(columns) => columns.finish()?,
        }
        Ok(self.rows)
    }
}
