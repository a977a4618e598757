//! What was measured, as rows and bars: a table for the terminal, JSON for the record.

use crate::figures::{median, span};
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};

/// What a bar requires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// `>= N`.
    AtLeast(f64),
    /// `<= N`.
    AtMost(f64),
    /// `= N`.
    Exactly(f64),
    /// `>= N`, and by which figure: for bars that depend on what the machine allows.
    Depending(f64, &'static str),
}

impl Limit {
    fn admits(self, value: f64) -> bool {
        match self {
            Limit::AtLeast(limit) | Limit::Depending(limit, _) => value >= limit,
            Limit::AtMost(limit) => value <= limit,
            Limit::Exactly(wanted) => value.total_cmp(&wanted).is_eq(),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::AtLeast(limit) => write!(f, ">= {limit}"),
            Limit::AtMost(limit) => write!(f, "<= {limit}"),
            Limit::Exactly(wanted) => write!(f, "= {wanted}"),
            Limit::Depending(limit, figure) => write!(f, ">= {} ({figure})", rounded(*limit)),
        }
    }
}

/// One measured quantity: a value per round.
#[derive(Clone, Debug)]
pub struct Row {
    /// The bar that it belongs to.
    pub bar: &'static str,
    /// What was measured, such as a program's name.
    pub what: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// One value per round that passed its checks.
    pub rounds: Vec<f64>,
    /// What a check found wrong.
    pub faults: Vec<String>,
}

/// One promise and whether it is kept.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name.
    pub name: &'static str,
    /// The one number; `None`: nothing could be measured.
    pub value: Option<f64>,
    /// What it is held against.
    pub limit: Limit,
    /// Why it doesn't hold whatever the value: checks that failed, or that it was skipped.
    pub faults: Vec<String>,
}

impl Bar {
    /// Whether the value is there, within the limit, and nothing was wrong with it.
    pub fn holds(&self) -> bool {
        self.faults.is_empty() && self.value.is_some_and(|value| self.limit.admits(value))
    }

    fn to_json(&self) -> Value {
        let mut bar = json!({"name": self.name, "value": self.value, "bar": self.limit.to_string(), "holds": self.holds()});
        if !self.faults.is_empty() {
            bar["why"] = self.faults.join("; ").into();
        }
        bar
    }
}

/// Everything one call measured.
#[derive(Debug)]
pub struct Record {
    /// Facts about the machine.
    pub machine: Map<String, Value>,
    /// Rows in the order in which they are shown.
    pub rows: Vec<Row>,
    /// Bars, likewise.
    pub bars: Vec<Bar>,
}

impl Record {
    /// The JSON text that is kept.
    pub fn to_text(&self) -> String {
        let rows: Vec<Value> = self.rows.iter().map(row_json).collect();
        let bars: Vec<Value> = self.bars.iter().map(Bar::to_json).collect();
        format!("{:#}\n", json!({"machine": self.machine, "rows": rows, "bars": bars}))
    }

    /// The same for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for (name, fact) in &self.machine {
            let fact = fact.as_str().map_or_else(|| fact.to_string(), String::from);
            let _ = writeln!(out, "{name:<26} {fact}");
        }
        let mut rows =
            vec![["row", "of", "median", "min", "max", "unit", "check"].map(String::from).to_vec()];
        rows.extend(self.rows.iter().map(row_cells));
        let mut bars = vec![["bar", "value", "asked", "holds", ""].map(String::from).to_vec()];
        bars.extend(self.bars.iter().map(|bar| {
            let holds = if bar.holds() { "yes" } else { "NO" };
            vec![
                bar.name.into(),
                shown(bar.value),
                bar.limit.to_string(),
                holds.into(),
                bar.faults.join("; "),
            ]
        }));
        format!("{out}\n{}\n{}", aligned(&rows), aligned(&bars))
    }
}

fn row_json(row: &Row) -> Value {
    let (min, max) = span(&row.rounds).unzip();
    json!({
        "row": row.bar,
        "of": row.what,
        "unit": row.unit,
        "median": median(&row.rounds).map(rounded),
        "min": min.map(rounded),
        "max": max.map(rounded),
        "rounds": row.rounds.iter().copied().map(rounded).collect::<Vec<_>>(),
        "check": check_words(row),
    })
}

fn row_cells(row: &Row) -> Vec<String> {
    let (min, max) = span(&row.rounds).unzip();
    vec![
        row.bar.into(),
        row.what.clone(),
        shown(median(&row.rounds)),
        shown(min),
        shown(max),
        row.unit.into(),
        check_words(row),
    ]
}

fn check_words(row: &Row) -> String {
    match (row.faults.is_empty(), row.rounds.is_empty()) {
        (false, _) => row.faults.join("; "),
        (true, true) => "not measured".to_string(),
        (true, false) => "ok".to_string(),
    }
}

/// Four digits that count, more for larger numbers: the rest is noise.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.max(0));
    (value * scale).round() / scale
}

fn shown(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| rounded(value).to_string())
}

/// Cells in columns; the last one runs free.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column))).collect();
        cells.join("  ").trim_end().to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: Option<f64>, limit: Limit, faults: &[&str]) -> Bar {
        Bar { name: "b", value, limit, faults: faults.iter().map(|fault| fault.to_string()).collect() }
    }

    #[test]
    fn a_bar_holds_within_its_limit_and_without_faults_only() {
        let check = |value, limit, faults: &[&str], holds| {
            assert_eq!(bar(value, limit, faults).holds(), holds, "{value:?} {limit}")
        };
        check(Some(1.0), Limit::AtLeast(1.0), &[], true);
        check(Some(0.99), Limit::AtLeast(1.0), &[], false);
        check(Some(20.0), Limit::AtMost(20.0), &[], true);
        check(Some(20.1), Limit::AtMost(20.0), &[], false);
        check(Some(1.0), Limit::AtMost(20.0), &["3 packets missing"], false);
        check(None, Limit::AtMost(20.0), &[], false);
    }

    #[test]
    fn a_bar_is_spelled_as_the_contract_has_it() {
        let skipped = bar(None, Limit::AtMost(20.0), &["skipped: needs root"]).to_json();
        assert_eq!(
            skipped,
            json!({"name": "b", "value": null, "bar": "<= 20", "holds": false, "why": "skipped: needs root"})
        );
        let kept = bar(Some(1.23456), Limit::AtLeast(1.0), &[]).to_json();
        assert_eq!(kept, json!({"name": "b", "value": 1.23456, "bar": ">= 1", "holds": true}));
    }

    #[test]
    fn numbers_keep_what_counts() {
        let check = |value, expected| assert_eq!(rounded(value), expected);
        check(1.23456, 1.235);
        check(0.0123456, 0.01235);
        check(3_812_345.7, 3_812_346.0);
        check(0.0, 0.0);
    }

    #[test]
    fn the_record_has_machine_rows_and_bars() {
        let row =
            Row { bar: "b", what: "x".into(), unit: "ms", rounds: vec![3.0, 1.0, 2.0], faults: Vec::new() };
        let record = Record {
            machine: Map::new(),
            rows: vec![row],
            bars: vec![bar(Some(2.0), Limit::AtMost(3.0), &[])],
        };
        let value: Value = serde_json::from_str(&record.to_text()).unwrap();
        assert_eq!(value["rows"][0]["median"], 2.0);
        assert_eq!(value["rows"][0]["check"], "ok");
        assert_eq!(value["bars"][0]["holds"], true);
        assert!(value["machine"].is_object());
        assert!(record.table().contains("b    2      <= 3   yes"), "{}", record.table());
    }
}
