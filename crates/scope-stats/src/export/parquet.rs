//! Rows in columns: Parquet, compressed with zstd, moments as timestamps in UTC with ns.

use crate::asking::table::{Column, Kind, Table};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use rusqlite::Row;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Rows that are held until they are written together: some 20 MiB.
const GROUP_ROWS: usize = 1 << 16;
/// What a value has for a definition level: it is there.
const THERE: i16 = 1;
const NULL: i16 = 0;

/// A file of columns.
pub struct Columns {
    writer: SerializedFileWriter<File>,
    held: Vec<Held>,
    rows: usize,
}

/// What is held of a column: the values that are there, and which rows have one.
struct Held {
    values: Values,
    /// For a column that may lack values.
    levels: Option<Vec<i16>>,
}

enum Values {
    Numbers(Vec<i64>),
    Texts(Vec<ByteArray>),
}

impl Columns {
    /// With the schema of the table.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(table: &Table, file: File) -> io::Result<Columns> {
        let fields = table.columns.iter().map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<_, _>>().map_err(unwritten)?;
        let schema = Type::group_type_builder(table.name).with_fields(fields).build().map_err(unwritten)?;
        let properties = WriterProperties::builder()
            .set_created_by(concat!("wirescope ", env!("CARGO_PKG_VERSION")).to_string())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        let held = table.columns.iter().map(Held::of).collect();
        Ok(Columns { writer: writer.map_err(unwritten)?, held, rows: 0 })
    }

    /// One more row.
    ///
    /// # Errors
    /// The system's, or a value isn't what its column has.
    pub fn add(&mut self, row: &Row<'_>) -> io::Result<()> {
        for (at, held) in self.held.iter_mut().enumerate() {
            held.add(row, at).map_err(io::Error::other)?;
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    /// Writes what is left, and the foot.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.writer.close().map(drop).map_err(unwritten)
    }

    fn write_group(&mut self) -> io::Result<()> {
        let Columns { writer, held, rows } = self;
        *rows = 0;
        let mut write = || {
            let mut group = writer.next_row_group()?;
            for held in held.iter_mut() {
                let Some(mut column) = group.next_column()? else { break };
                let levels = held.levels.as_deref();
                match &held.values {
                    Values::Numbers(values) => {
                        column.typed::<Int64Type>().write_batch(values, levels, None)?;
                    }
                    Values::Texts(values) => {
                        column.typed::<ByteArrayType>().write_batch(values, levels, None)?;
                    }
                }
                column.close()?;
                held.clear();
            }
            group.close().map(drop)
        };
        write().map_err(unwritten)
    }
}

impl Held {
    fn of(column: &Column) -> Held {
        let values = match column.kind {
            Kind::Integer | Kind::Moment => Values::Numbers(Vec::new()),
            Kind::Text => Values::Texts(Vec::new()),
        };
        Held { values, levels: (!column.is_required).then(Vec::new) }
    }

    fn add(&mut self, row: &Row<'_>, at: usize) -> rusqlite::Result<()> {
        let is_there = match &mut self.values {
            Values::Numbers(values) => {
                let value: Option<i64> = row.get(at)?;
                values.extend(value);
                value.is_some()
            }
            Values::Texts(values) => {
                let value: Option<String> = row.get(at)?;
                let is_there = value.is_some();
                values.extend(value.map(|text| ByteArray::from(text.into_bytes())));
                is_there
            }
        };
        if let Some(levels) = &mut self.levels {
            levels.push(if is_there { THERE } else { NULL });
        }
        Ok(())
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Numbers(values) => values.clear(),
            Values::Texts(values) => values.clear(),
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
    }
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Integer => (Physical::INT64, None),
        Kind::Moment => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let repetition = if column.is_required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

/// The system's error, where there is one behind it.
fn unwritten(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
