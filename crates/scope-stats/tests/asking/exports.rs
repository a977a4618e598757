//! Exports: each row once, in the part of its hour, with the values that it has in the database.

use crate::made::{HOUR, Made, SECOND, T0, database, made, rows, stop, watch, writer};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use scope_folder::Folder;
use scope_stats::asking::sql::Cell;
use scope_stats::asking::{Bounds, Database};
use scope_stats::export::{Export, Exported, Form};
use scope_stats::schema::TABLES;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows of the parts of one table: column to text.
type Sheet = Vec<BTreeMap<String, String>>;

fn export(database: &Database, out: &Path, form: Form, span_ns: (i64, i64)) -> Exported {
    std::fs::create_dir_all(out).unwrap();
    Export::new(Folder::open(out).unwrap(), form, span_ns).write(database, &watch()).unwrap()
}

/// All files below a folder.
fn parts(out: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = [out.to_path_buf()].into_iter().filter(|out| out.exists()).collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

fn read_parquet(path: &Path, sheet: &mut Sheet) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    for row in reader.get_row_iter(None).unwrap() {
        let cells = row.unwrap().into_columns().into_iter().map(|(name, field)| {
            let text = match field {
                Field::Null => String::new(),
                Field::Long(number) => number.to_string(),
                Field::Str(text) => text,
                other => panic!("{name}: {other:?}"),
            };
            (name, text)
        });
        sheet.push(cells.collect());
    }
}

/// CSV by its grammar.
fn read_csv(path: &Path, sheet: &mut Sheet) {
    let text = std::fs::read_to_string(path).unwrap();
    let (mut lines, mut line, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cell.push(letters.next().unwrap()),
            '"' => quoted = !quoted,
            ',' if !quoted => line.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                line.push(std::mem::take(&mut cell));
                lines.push(std::mem::take(&mut line));
            }
            letter => cell.push(letter),
        }
    }
    let names = lines.remove(0);
    sheet.extend(lines.into_iter().map(|line| names.iter().cloned().zip(line).collect()));
}

fn read_jsonl(path: &Path, sheet: &mut Sheet) {
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let Value::Object(object) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
        let cells = object.into_iter().map(|(name, value)| match value {
            Value::Null => (name, String::new()),
            Value::String(text) => (name, text),
            value => (name, value.to_string()),
        });
        sheet.push(cells.collect());
    }
}

fn sheet(out: &Path, table: &str, form: Form) -> Sheet {
    let mut sheet = Sheet::new();
    for part in parts(&out.join(table)) {
        match form {
            Form::Parquet => read_parquet(&part, &mut sheet),
            Form::Csv => read_csv(&part, &mut sheet),
            Form::Jsonl => read_jsonl(&part, &mut sheet),
        }
    }
    sheet.sort();
    sheet
}

/// What the database says of a table itself.
fn expected(database: &Database, table: &str) -> Sheet {
    let answer = database.sql(&format!("SELECT * FROM {table}"), &Bounds::OF_A_COMMAND, stop()).unwrap();
    let row = |row: &Vec<Cell>| answer.columns.iter().cloned().zip(row.iter().map(Cell::to_string)).collect();
    let mut sheet: Sheet = answer.rows.iter().map(row).collect();
    sheet.sort();
    sheet
}

fn expect_all(made: &Made, form: Form) {
    for (number, database) in made.both().into_iter().enumerate() {
        let out = made.root.path().join(format!("out-{}-{number}", form.word()));
        let exported = export(&database, &out, form, (0, i64::MAX));
        let all = parts(&out);
        assert_eq!(exported.parts, all.len() as u64);
        let bytes: u64 = all.iter().map(|part| part.metadata().unwrap().len()).sum();
        assert_eq!(exported.bytes, bytes);
        let mut rows = 0;
        for table in TABLES {
            let expected = expected(&database, table);
            rows += expected.len() as u64;
            assert_eq!(sheet(&out, table, form), expected, "{table} {number}");
        }
        assert_eq!(exported.rows, rows);
        // Once more doubles nothing.
        assert_eq!(export(&database, &out, form, (0, i64::MAX)), exported);
        assert_eq!(parts(&out), all);
        assert_eq!(sheet(&out, "flows", form), expected(&database, "flows"));
    }
}

#[test]
fn parquet_has_every_row_once() {
    expect_all(&made(41), Form::Parquet);
}

#[test]
fn csv_has_every_row_once() {
    expect_all(&made(42), Form::Csv);
}

#[test]
fn json_has_every_row_once() {
    expect_all(&made(43), Form::Jsonl);
}

#[test]
fn a_row_lies_in_the_part_of_its_hour() {
    let made = made(44);
    let out = made.root.path().join("out");
    export(&made.both()[1], &out, Form::Jsonl, (0, i64::MAX));
    let times = [("intervals", "ts_ns"), ("flows", "start_ns"), ("losses", "from_ns"), ("runs", "begin_ns")];
    for (table, time) in times {
        for part in parts(&out.join(table)) {
            let mut sheet = Sheet::new();
            read_jsonl(&part, &mut sheet);
            for row in sheet {
                let moment = scope_spelling::time::iso(row[time].parse().unwrap());
                let place = format!("{table}/date={}/hour={}/", &moment[..10], &moment[11..13]);
                let name = part.strip_prefix(&out).unwrap().to_str().unwrap();
                assert!(name.starts_with(&place), "{name} {moment}");
                assert!(name.ends_with("-0195f3a0.jsonl"), "{name}");
            }
        }
    }
}

#[test]
fn a_span_means_whole_hours_and_what_came_meanwhile_takes_its_place() {
    let made = made(45);
    let out = made.root.path().join("out");
    let middle = T0 + HOUR + 20 * SECOND;
    export(&made.both()[0], &out, Form::Csv, (middle, middle));
    let hour = |row: &i64| (T0 + HOUR..T0 + 2 * HOUR).contains(row);
    let count = |table: &str| sheet(&out, table, Form::Csv).len();
    assert_eq!(count("flows"), made.rows.flows.iter().map(|row| row.start_ns).filter(hour).count());
    assert_eq!(count("intervals"), made.rows.intervals.iter().map(|row| row.ts_ns).filter(hour).count());
    assert_eq!(count("runs"), 0);
    let mut writer = writer(&made.file);
    let mut more = rows(46);
    more.flows.retain(|row| hour(&row.start_ns));
    let added = more.flows.len();
    writer.write(&mut scope_flow::rows::Settled { flows: more.flows, ..Default::default() }, T0).unwrap();
    let before = count("flows");
    export(&database(&made.file), &out, Form::Csv, (middle, middle));
    assert!(added > 0 && count("flows") == before + added);
    writer.close(T0).unwrap();
}

#[test]
fn moments_are_timestamps_in_utc_and_what_may_lack_is_optional() {
    use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit};
    let made = made(47);
    let out = made.root.path().join("out");
    export(&made.both()[0], &out, Form::Parquet, (0, i64::MAX));
    let part = parts(&out.join("flows")).remove(0);
    let reader = SerializedFileReader::new(File::open(part).unwrap()).unwrap();
    let group = reader.metadata().row_group(0);
    assert!(group.columns().iter().all(|column| matches!(column.compression(), Compression::ZSTD(_))));
    let column = |name: &str| {
        let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        columns.into_iter().find(|column| column.name() == name).unwrap()
    };
    let is_moment = |name: &str| match column(name).logical_type_ref() {
        Some(LogicalType::Timestamp(kind)) => kind.is_adjusted_to_u_t_c && kind.unit == TimeUnit::NANOS,
        _ => false,
    };
    assert!(is_moment("start_ns") && is_moment("end_ns") && !is_moment("rtt_server_ns"));
    let repetition = |name: &str| column(name).self_type().get_basic_info().repetition();
    assert_eq!(repetition("rtt_server_ns"), Repetition::OPTIONAL);
    assert_eq!(repetition("bytes_fwd"), Repetition::REQUIRED);
}
