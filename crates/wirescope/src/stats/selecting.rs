//! `wirescope stats sql`: one SELECT, as a table, or, where that is wider than a terminal, row by row; or as one object.

use super::{database, give_up_rights, no_result};
use crate::args::StatsSqlArgs;
use crate::plan::faults::Faults;
use crate::reading::Stop;
use crate::speech::{Level, say};
use crate::{DONE, NoResult, UNDONE, told};
use scope_config::Settings;
use scope_fault::Fault;
use scope_spelling::figures::{counted, size};
use scope_spelling::printable::{json_line, printable};
use scope_stats::asking::sql::{Cell, SqlAnswer};
use scope_stats::asking::{Bounds, Cut};
use serde_json::Value;

/// Columns of a table at most.
const COLUMNS: usize = 80;

/// Answers. An answer that was cut is printed as far as it goes: exit code 1. One that a signal ended is, too, with the
/// signal's exit code.
pub fn sql(args: &StatsSqlArgs) -> u8 {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let Some(database) = database(&args.db, &mut faults) else {
        return told(Err(NoResult::Refused(faults.into_vec())));
    };
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let answer = give_up_rights(&database, false, None)
        .and_then(|()| database.sql(&args.sql, &Bounds::OF_A_COMMAND, stop.flag.clone()).map_err(no_result));
    let answer = match answer {
        Ok(answer) => answer,
        Err(no) => return told(Err(no)),
    };
    let text = match args.json {
        true => format!("{}\n", json_line(&Value::Object(answer.to_json()).to_string())),
        false => words(&answer),
    };
    match (told(Ok(text)), answer.cut) {
        (DONE, Some(cut)) => {
            say(Level::Warning, &format!("wirescope: {}", cut_words(cut, &answer)));
            stop.code().filter(|_| cut == Cut::Stopped).unwrap_or(UNDONE)
        }
        (code, _) => code,
    }
}

/// By what an answer was cut, and what helps.
fn cut_words(cut: Cut, answer: &SqlAnswer) -> String {
    let rows = counted(answer.rows.len() as u64, "row");
    let bounds = Bounds::OF_A_COMMAND;
    let bound = match cut {
        Cut::Time => format!("it took longer than {} s", bounds.time.as_secs()),
        Cut::Rows => "there are more".to_string(),
        Cut::Bytes => "they are too long".to_string(),
        Cut::Memory => format!("SQLite needed more memory than {}", size(bounds.memory_bytes)),
        Cut::Stopped => return format!("the answer ends behind {rows}: it was stopped"),
    };
    format!("the answer ends behind {rows}: {bound}; add a WHERE on a time, GROUP BY or LIMIT")
}

fn words(answer: &SqlAnswer) -> String {
    let texts: Vec<Vec<String>> = answer.rows.iter().map(|row| row.iter().map(text).collect()).collect();
    let width = |at: usize| {
        let cells = texts.iter().map(|row| letters(&row[at]));
        cells.chain([letters(&answer.columns[at])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..answer.columns.len()).map(width).collect();
    match widths.iter().map(|width| width + 2).sum::<usize>() <= COLUMNS + 2 {
        true => table(answer, &texts, &widths),
        false => row_by_row(answer, &texts),
    }
}

/// A value in one line.
fn text(cell: &Cell) -> String {
    printable(&cell.to_string()).into_owned()
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

/// Numbers to the right, texts to the left.
fn table(answer: &SqlAnswer, texts: &[Vec<String>], widths: &[usize]) -> String {
    let is_number = |at: usize| answer.rows.iter().any(|row| row[at].is_number());
    let right: Vec<bool> = (0..widths.len()).map(is_number).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(widths).zip(&right).map(|((cell, width), right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    std::iter::once(line(&answer.columns)).chain(texts.iter().map(|row| line(row))).collect()
}

/// A line for each value, and more for a long one.
fn row_by_row(answer: &SqlAnswer, texts: &[Vec<String>]) -> String {
    let longest = answer.columns.iter().map(|name| letters(name)).max().unwrap_or(0).min(COLUMNS / 2);
    let room = COLUMNS - longest - 2;
    let mut lines = String::new();
    for (number, row) in texts.iter().enumerate() {
        lines.push_str(&format!("-- row {}\n", number + 1));
        for (name, text) in answer.columns.iter().zip(row) {
            let name: String = name.chars().take(longest).collect();
            let letters: Vec<char> = text.chars().collect();
            let mut parts = letters.chunks(room).map(String::from_iter);
            lines.push_str(format!("{name:<longest$}  {}", parts.next().unwrap_or_default()).trim_end());
            lines.push('\n');
            for part in parts {
                lines.push_str(&format!("{:longest$}  {part}\n", ""));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(columns: &[&str], rows: Vec<Vec<Cell>>) -> SqlAnswer {
        SqlAnswer { columns: columns.iter().map(ToString::to_string).collect(), rows, cut: None }
    }

    #[test]
    fn a_table_that_fits_is_one() {
        let rows = vec![
            vec![Cell::Text("10.0.0.1".into()), Cell::Integer(1234), Cell::Null],
            vec![Cell::Text("::1".into()), Cell::Integer(5), Cell::Real(0.5)],
        ];
        let expected = "ip        bytes    x\n10.0.0.1   1234\n::1           5  0.5\n";
        assert_eq!(words(&answer(&["ip", "bytes", "x"], rows)), expected);
        assert_eq!(words(&answer(&["a"], Vec::new())), "a\n");
    }

    #[test]
    fn a_wider_one_goes_row_by_row_within_80_columns() {
        let rows = vec![vec![Cell::Integer(7), Cell::Text("x".repeat(200))]];
        let text = words(&answer(&["number", "a_long_text"], rows));
        assert!(text.starts_with("-- row 1\nnumber       7\na_long_text  xxx"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(text.matches('x').count(), 1 + 200);
        let wide = words(&answer(&[&"n".repeat(100)], vec![vec![Cell::Text("a\u{1b}[2J\nb".into())]]));
        assert!(
            !wide.contains('\u{1b}') && wide.lines().all(|line| line.chars().count() <= COLUMNS),
            "{wide}"
        );
    }
}
