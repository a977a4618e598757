//! Rows cut into parts: what goes into one file by one transaction.
//!
//! ```text
//! sorted, latest first:   the next part stands at the ends, and is taken from there once it is written
//! a part                  rows of one file, the oldest first; intervals are whole: all their rows, or none
//! ```

use crate::place::{Every, Period};
use scope_flow::rows::{FlowRow, IntervalRow, LossRow, Settled, TrafficRow};
use std::cmp::Reverse;

/// So many rows of intervals and traffic go together if they are of several intervals; one interval always
/// does. So many flows do, and so many losses.
pub const ROWS: usize = 4096;
/// How many pages of a database a row changes at most: its own, and one of each index.
const PAGES_OF_FLOW: u64 = 5;
const PAGES_OF_OTHERS: u64 = 2;
/// Pages that a transaction changes besides.
const PAGES_BESIDE: u64 = 64;

/// Rows of one transaction, each kind with the latest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part<'a> {
    /// Intervals, whole.
    pub intervals: &'a [IntervalRow],
    /// All the traffic of these.
    pub traffic: &'a [TrafficRow],
    /// Flows.
    pub flows: &'a [FlowRow],
    /// Losses.
    pub losses: &'a [LossRow],
}

impl Part<'_> {
    /// How many there are.
    pub fn rows(&self) -> u64 {
        (self.intervals.len() + self.traffic.len() + self.flows.len() + self.losses.len()) as u64
    }

    /// How many pages change at most.
    pub fn pages_max(&self) -> u64 {
        let flows = self.flows.len() as u64;
        (self.rows() - flows) * PAGES_OF_OTHERS + flows * PAGES_OF_FLOW + PAGES_BESIDE
    }
}

/// Where the next part begins, in each kind of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file's span; `None` where there is one file.
    pub period: Option<Period>,
    intervals: usize,
    traffic: usize,
    flows: usize,
    losses: usize,
}

/// Latest first, as [`Cut::next`] needs them. Rows of an interval are in the order of their key, which lies
/// together in the database.
pub fn sort(rows: &mut Settled) {
    rows.intervals.sort_unstable_by(|a, b| key_of(b).cmp(&key_of(a)));
    rows.traffic.sort_unstable_by(|a, b| key_of_traffic(b).cmp(&key_of_traffic(a)));
    rows.flows.sort_by_key(|row| Reverse(row.end_ns));
    rows.losses.sort_by_key(|row| Reverse(row.to_ns));
}

fn key_of(row: &IntervalRow) -> (i64, &str, u16) {
    (row.ts_ns, &row.interface, row.vlan)
}

fn key_of_traffic(row: &TrafficRow) -> impl Ord + '_ {
    (row.ts_ns, &*row.interface, row.vlan, row.ip, row.proto, row.port, row.role)
}

impl Cut {
    /// The oldest rows, where files have spans of `every` if there are several; `None`: there are none.
    pub fn next(rows: &Settled, every: Option<Every>) -> Option<Cut> {
        let oldest = [
            rows.intervals.last().map(|row| row.ts_ns),
            rows.traffic.last().map(|row| row.ts_ns),
            rows.flows.last().map(|row| row.end_ns),
            rows.losses.last().map(|row| row.to_ns),
        ];
        let oldest_ns = oldest.into_iter().flatten().min()?;
        let period = every.map(|every| every.period(oldest_ns));
        let is_here = |time_ns: i64| period.as_ref().is_none_or(|period| period.contains(time_ns));
        let mut cut = Cut {
            intervals: rows.intervals.len(),
            traffic: rows.traffic.len(),
            flows: begin_of(&rows.flows, ROWS, |row| is_here(row.end_ns)),
            losses: begin_of(&rows.losses, ROWS, |row| is_here(row.to_ns)),
            period: period.clone(),
        };
        while let Some(next) = cut.with_next_interval(rows, is_here) {
            let taken = rows.intervals.len() - next.intervals + rows.traffic.len() - next.traffic;
            let is_first = cut.intervals == rows.intervals.len() && cut.traffic == rows.traffic.len();
            if taken > ROWS && !is_first {
                break;
            }
            cut = next;
        }
        Some(cut)
    }

    /// With all rows of the interval before it, if that is in the same file.
    fn with_next_interval(&self, rows: &Settled, is_here: impl Fn(i64) -> bool) -> Option<Cut> {
        let (intervals, traffic) = (&rows.intervals[..self.intervals], &rows.traffic[..self.traffic]);
        let times = [intervals.last().map(|row| row.ts_ns), traffic.last().map(|row| row.ts_ns)];
        let ts_ns = times.into_iter().flatten().min().filter(|&ts_ns| is_here(ts_ns))?;
        Some(Cut {
            intervals: begin_of(intervals, usize::MAX, |row| row.ts_ns == ts_ns),
            traffic: begin_of(traffic, usize::MAX, |row| row.ts_ns == ts_ns),
            ..self.clone()
        })
    }

    /// The rows.
    pub fn part<'a>(&self, rows: &'a Settled) -> Part<'a> {
        Part {
            intervals: &rows.intervals[self.intervals..],
            traffic: &rows.traffic[self.traffic..],
            flows: &rows.flows[self.flows..],
            losses: &rows.losses[self.losses..],
        }
    }

    /// Its losses, the oldest last.
    pub fn losses<'a>(&self, rows: &'a mut Settled) -> &'a mut [LossRow] {
        &mut rows.losses[self.losses..]
    }

    /// Takes them away: they are written.
    pub fn take(&self, rows: &mut Settled) {
        rows.intervals.truncate(self.intervals);
        rows.traffic.truncate(self.traffic);
        rows.flows.truncate(self.flows);
        rows.losses.truncate(self.losses);
    }
}

/// Where the rows at the end begin that belong to it, at most so many.
fn begin_of<T>(rows: &[T], max: usize, belongs: impl Fn(&T) -> bool) -> usize {
    rows.len() - rows.iter().rev().take(max).take_while(|row| belongs(row)).count()
}
