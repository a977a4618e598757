//! Ten seconds of capture time anywhere, everything in them, cold: how long until the first packet comes out.

use super::asking::{Asking, expect};
use crate::figures::percentile;
use crate::table::Table;
use anyhow::{Context, Result};

/// Rows, and what each is of.
pub const ROW: &str = "query_span_first_ms";
pub const P95: &str = "first packet, 95th percentile of the spans";
const MEDIAN: &str = "first packet, median of the spans";
const WHOLE: &str = "last packet, median of the spans";

/// One round: its own part of the spans, `spans` of them.
pub fn round(asking: &Asking, spans: usize, table: &mut Table) {
    let from = table.round() * spans;
    let times = (from..from + spans).map(|number| asked(asking, number)).collect::<Result<Vec<_>>>();
    let figure = |which: fn(&(f64, f64)) -> f64, percent| match &times {
        Ok(times) => {
            let values: Vec<f64> = times.iter().map(which).collect();
            percentile(&values, percent).ok_or_else(|| "no spans".to_string())
        }
        Err(error) => Err(format!("{error:#}")),
    };
    table.put(ROW, P95, "ms", figure(|times| times.0, 95.0));
    table.put(ROW, MEDIAN, "ms", figure(|times| times.0, 50.0));
    table.put(ROW, WHOLE, "ms", figure(|times| times.1, 50.0));
}

/// Time from the start of the program to the first packet, and to its end, ms.
fn asked(asking: &Asking, number: usize) -> Result<(f64, f64)> {
    let (from_ns, to_ns) = *asking.store.spans.get(number).context("a span")?;
    asking.cool()?;
    let answered = asking.packets(&["--from", &at(from_ns), "--to", &at(to_ns)])?;
    expect(answered.answer.count.packets, asking.store.survey.in_spans[number])?;
    let first = answered.first_seconds.context("no packets in the span")?;
    Ok((first * 1e3, answered.ended.seconds * 1e3))
}

/// A time as the command line takes it.
fn at(time_ns: i64) -> String {
    format!("@{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}
