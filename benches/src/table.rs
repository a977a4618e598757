//! What the rounds measured: values by row, and figures that compare two rows round by round.

use crate::figures::median;
use crate::record::{Record, Row};

/// A row's name and what it is of.
pub type Key<'a> = (&'static str, &'a str);

struct Cell {
    row: &'static str,
    of: String,
    unit: &'static str,
    values: Vec<(usize, f64)>,
    faults: Vec<String>,
}

/// All rows, in the order in which they were first measured.
#[derive(Default)]
pub struct Table {
    cells: Vec<Cell>,
    round: usize,
}

impl Table {
    /// Everything put from here on belongs to round `round`.
    pub fn begin_round(&mut self, round: usize) {
        self.round = round;
    }

    /// The round that is being measured, from 0.
    pub fn round(&self) -> usize {
        self.round
    }

    /// Adds a row's value of this round, or what its check found wrong.
    pub fn put(&mut self, row: &'static str, of: &str, unit: &'static str, outcome: Result<f64, String>) {
        let round = self.round;
        let at = self.cells.iter().position(|cell| cell.row == row && cell.of == of).unwrap_or_else(|| {
            self.cells.push(Cell { row, of: of.to_string(), unit, values: Vec::new(), faults: Vec::new() });
            self.cells.len() - 1
        });
        match outcome {
            Ok(value) => self.cells[at].values.push((round, value)),
            Err(fault) => self.cells[at].faults.push(format!("round {}: {fault}", round + 1)),
        }
    }

    /// Says why a row has no values at all.
    pub fn leave_out(&mut self, row: &'static str, of: &str, unit: &'static str, why: &str) {
        if self.cell((row, of)).is_none() {
            self.cells.push(Cell {
                row,
                of: of.to_string(),
                unit,
                values: Vec::new(),
                faults: vec![why.to_string()],
            });
        }
    }

    fn cell(&self, (row, of): Key) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.row == row && cell.of == of)
    }

    /// The median of a row.
    pub fn median(&self, key: Key) -> Option<f64> {
        median(&self.cell(key)?.values.iter().map(|(_, value)| *value).collect::<Vec<_>>())
    }

    /// The smallest value of a row.
    pub fn min(&self, key: Key) -> Option<f64> {
        self.cell(key)?.values.iter().map(|(_, value)| *value).min_by(f64::total_cmp)
    }

    /// The largest value of a row.
    pub fn max(&self, key: Key) -> Option<f64> {
        self.cell(key)?.values.iter().map(|(_, value)| *value).max_by(f64::total_cmp)
    }

    /// The median of `above / below` over the rounds that have both.
    pub fn ratio(&self, above: Key, below: Key) -> Option<f64> {
        median(&self.by_round(above, below, |above, below| above / below))
    }

    /// `above - below` of the rounds that have both, smallest first.
    pub fn differences(&self, above: Key, below: Key) -> Vec<f64> {
        let mut figures = self.by_round(above, below, |above, below| above - below);
        figures.sort_by(f64::total_cmp);
        figures
    }

    /// The median of `a * b` over the rounds that have both.
    pub fn product(&self, a: Key, b: Key) -> Option<f64> {
        median(&self.by_round(a, b, |a, b| a * b))
    }

    fn by_round(&self, a: Key, b: Key, figure: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let values = |key: Key| self.cell(key).map_or(&[][..], |cell| &cell.values);
        let others = values(b);
        let in_round =
            |round: usize| others.iter().find(|(other, _)| *other == round).map(|(_, value)| *value);
        values(a).iter().filter_map(|(round, value)| Some(figure(*value, in_round(*round)?))).collect()
    }

    /// The row with the smallest median among those called `row` for which `admits` holds: what it is of.
    pub fn least(&self, row: &'static str, admits: impl Fn(&str) -> bool) -> Option<&str> {
        let candidates =
            self.cells.iter().filter(|cell| cell.row == row && admits(&cell.of) && !cell.values.is_empty());
        let key = |cell: &&Cell| self.median((cell.row, &cell.of)).unwrap_or(f64::MAX);
        candidates.min_by(|a, b| key(a).total_cmp(&key(b))).map(|cell| cell.of.as_str())
    }

    /// What the checks of these rows found wrong; a row that isn't there is wrong, too.
    pub fn faults(&self, keys: &[Key]) -> Vec<String> {
        let of = |key: &Key| match self.cell(*key) {
            Some(cell) => {
                cell.faults.iter().map(|fault| format!("{} of {}: {fault}", key.0, key.1)).collect()
            }
            None => vec![format!("{} of {}: not measured", key.0, key.1)],
        };
        keys.iter().flat_map(of).collect()
    }

    /// Hands all rows over to `record`.
    pub fn finish(self, record: &mut Record) {
        record.rows.extend(self.cells.into_iter().map(|cell| Row {
            bar: cell.row,
            what: cell.of,
            unit: cell.unit,
            rounds: cell.values.into_iter().map(|(_, value)| value).collect(),
            faults: cell.faults,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_round_by_round() {
        let mut table = Table::default();
        for (round, (a, b)) in [(10.0, 5.0), (30.0, 10.0), (8.0, 2.0)].into_iter().enumerate() {
            table.begin_round(round);
            table.put("row", "a", "ns", Ok(a));
            table.put("row", "b", "ns", if round == 2 { Err("2 packets missing".into()) } else { Ok(b) });
        }
        assert_eq!(table.ratio(("row", "a"), ("row", "b")), Some(2.5));
        assert_eq!(table.differences(("row", "a"), ("row", "b")), [5.0, 20.0]);
        assert_eq!(table.least("row", |_| true), Some("b"));
        assert_eq!(table.faults(&[("row", "a"), ("row", "b")]), ["row of b: round 3: 2 packets missing"]);
        assert_eq!(table.faults(&[("row", "c")]), ["row of c: not measured"]);
    }
}
