//! Packets and bytes of an answer by steps of time, drawn as bars, with what is missing in each.
//!
//! ```text
//! 2026-11-20 20:31:05   12,345   1.2 MiB  ####################
//! 2026-11-20 20:31:06    6,101   602 KiB  ##########            missing 0 to 12
//! ```
//! Steps begin at whole multiples of their length, counted from midnight here, and follow each other without a
//! hole. A gap that reaches over several steps may be in any of them: each lacks nothing of it at least, and all of
//! it at most. A step without packets in which no run was going says so.

use crate::sum::{Sum, local};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use scope_dump::Consumer;
use scope_dump::merge::Position;
use scope_fault::{Fault, Setting, sentence};
use scope_packet::pcapng::PacketBlock;
use scope_packet::time::NS_PER_SECOND;
use scope_packet::{Gap, GapReason, LinkType};
use scope_spelling::figures::{number, size, span};
use scope_spelling::time::iso;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Steps of an answer at most.
pub const STEPS_MAX: i64 = 100_000;
/// Steps where nothing else is said and no terminal is seen.
pub const ROWS: usize = 20;
/// The longest bar, and the shortest that the longest one has.
const BAR_MAX: usize = 30;
const BAR_MIN: usize = 8;

const US: i64 = 1_000;
const MS: i64 = 1_000_000;
const S: i64 = NS_PER_SECOND;
/// Lengths that are chosen.
#[rustfmt::skip]
const LENGTHS: &[i64] = &[
    1, 2, 5, 10, 20, 50, 100, 200, 500,
    US, 2 * US, 5 * US, 10 * US, 20 * US, 50 * US, 100 * US, 200 * US, 500 * US,
    MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS, 200 * MS, 500 * MS,
    S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S,
    60 * S, 120 * S, 300 * S, 600 * S, 900 * S, 1800 * S,
    3600 * S, 7200 * S, 10_800 * S, 21_600 * S, 43_200 * S,
    86_400 * S, 2 * 86_400 * S, 7 * 86_400 * S, 14 * 86_400 * S, 28 * 86_400 * S, 91 * 86_400 * S, 364 * 86_400 * S,
];

/// The shortest length with which a span needs at most so many steps.
pub fn chosen((from_ns, to_ns): (i64, i64), rows: usize) -> i64 {
    let fits = |length: &&i64| count((from_ns, to_ns), **length) <= rows as i64;
    LENGTHS.iter().find(fits).or(LENGTHS.last()).copied().unwrap_or(S)
}

/// How many steps of this length a span touches, at most.
pub fn count((from_ns, to_ns): (i64, i64), length_ns: i64) -> i64 {
    (to_ns.saturating_sub(from_ns) / length_ns).saturating_add(2)
}

/// What a timeline shows: the span that was `asked` for, as far as it has ends and steps of that length aren't too many;
/// else where there may be packets of it.
pub fn shown(known: (i64, i64), asked: (i64, i64), step_ns: Option<i64>) -> (i64, i64) {
    if fits(asked, step_ns) { asked } else { known }
}

/// Whether a span doesn't have too many steps of this length.
pub fn fits(asked: (i64, i64), step_ns: Option<i64>) -> bool {
    step_ns.is_none_or(|step_ns| count(asked, step_ns) <= STEPS_MAX)
}

/// More steps than anybody reads, told before packets are read.
///
/// # Errors
/// So many they are.
pub fn refuse_many(extent: Option<(i64, i64)>, step_ns: i64) -> Result<(), Fault> {
    let Some(extent) = extent else { return Ok(()) };
    let steps = count(extent, step_ns);
    if steps <= STEPS_MAX {
        return Ok(());
    }
    let fits_ns = chosen(extent, STEPS_MAX as usize);
    let cause = format!(
        "steps of {} make {} of them, more than {}",
        span(step_ns),
        number(steps as u64),
        number(STEPS_MAX as u64)
    );
    let longer = Setting::of("step").example(typed(fits_ns));
    let remedy = sentence!["lengthen them, e.g. ", longer, ", or shorten the span"];
    Err(Fault::of("step").cause(cause).remedy(remedy))
}

/// A length of time as it is typed.
fn typed(ns: i64) -> String {
    let units =
        [(86_400_000_000_000, "d"), (3_600_000_000_000, "h"), (60_000_000_000, "m"), (1_000_000_000, "s")];
    let fine = [(1_000_000, "ms"), (1_000, "us")];
    let unit = units.into_iter().chain(fine).find(|(length, _)| ns % length == 0);
    let (length, name) = unit.unwrap_or((1, "ns"));
    format!("{}{name}", ns / length)
}

/// One step.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    packets: u64,
    bytes: u64,
    lost_min: u64,
    /// `None`: nobody knows.
    lost_max: Option<u64>,
    is_lossy: bool,
    /// In a part of it no run is known to have been going.
    is_silent: bool,
}

/// Packets by step.
pub struct Steps {
    length_ns: i64,
    /// Time that is added before it is divided, so that days begin at midnight.
    offset_ns: i64,
    zone: TimeZone,
    extent: Option<(i64, i64)>,
    steps: BTreeMap<i64, Step>,
    /// What all packets come to.
    pub sum: Sum,
}

impl Steps {
    /// Steps of this length from midnight in `zone` on, at least all that `extent` touches.
    pub fn new(length_ns: i64, extent: Option<(i64, i64)>, zone: TimeZone) -> Steps {
        let begin_ns = extent.map_or(0, |(from_ns, _)| from_ns);
        let begin = Timestamp::from_nanosecond(begin_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
        let offset_ns = i64::from(zone.to_offset(begin).seconds()) * NS_PER_SECOND;
        Steps { length_ns, offset_ns, zone, extent, steps: BTreeMap::new(), sum: Sum::default() }
    }

    fn at(&self, time_ns: i64) -> i64 {
        time_ns.saturating_add(self.offset_ns).div_euclid(self.length_ns)
    }

    fn begin_ns(&self, step: i64) -> i64 {
        step.saturating_mul(self.length_ns).saturating_sub(self.offset_ns)
    }

    /// Spreads what is missing, and fills the holes.
    pub fn finish(&mut self, gaps: &[Gap]) {
        let packets = self.sum.span_ns.into_iter().chain(self.extent);
        let Some((from_ns, to_ns)) = packets.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return };
        let (first, mut last) = (self.at(from_ns), self.at(to_ns));
        last = last.min(first + STEPS_MAX);
        for step in first..=last {
            self.steps.entry(step).or_insert(Step { lost_max: Some(0), ..Step::default() });
        }
        for gap in gaps {
            let (from, to) = (self.at(gap.from_ns).max(first), self.at(gap.to_ns).min(last));
            let is_one = self.at(gap.from_ns) == self.at(gap.to_ns);
            if from > to {
                continue;
            }
            for (_, step) in self.steps.range_mut(from..=to) {
                if gap.reason == GapReason::NotRecorded {
                    step.is_silent = true;
                    continue;
                }
                step.is_lossy = true;
                step.lost_min = step.lost_min.saturating_add(if is_one { gap.lost_min } else { 0 });
                step.lost_max = step.lost_max.zip(gap.lost_max).map(|(a, b)| a.saturating_add(b));
            }
        }
    }

    /// As bars, at most `columns` wide; `colours`: what is missing is red.
    pub fn words(&self, columns: usize, colours: bool) -> String {
        let is_fine = self.length_ns < NS_PER_SECOND;
        let time = |step: i64| {
            let text = local(self.begin_ns(step), &self.zone);
            match text.get(..19).filter(|_| !is_fine) {
                Some(seconds) => seconds.to_string(),
                None if self.length_ns < US => iso(self.begin_ns(step)),
                None => text,
            }
        };
        let rows: Vec<([String; 3], &Step)> = self
            .steps
            .iter()
            .map(|(&at, step)| ([time(at), number(step.packets), size(step.bytes)], step))
            .collect();
        let width = |column: usize| rows.iter().map(|(row, _)| row[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        let missing = |step: &Step| match (step.is_lossy, step.lost_max) {
            (false, _) if step.is_silent && step.packets == 0 => "not recorded".to_string(),
            (false, _) => String::new(),
            (true, None) if step.lost_min == 0 => "missing any number".to_string(),
            (true, None) => format!("missing {} or more", number(step.lost_min)),
            (true, Some(most)) if most == step.lost_min => format!("missing {}", number(most)),
            (true, Some(most)) => format!("missing {} to {}", number(step.lost_min), number(most)),
        };
        let missing: Vec<String> = rows.iter().map(|(_, step)| missing(step)).collect();
        let missing_width =
            missing.iter().map(|text| text.len() + 2).max().filter(|&len| len > 2).unwrap_or(0);
        let left = columns.saturating_sub(widths.iter().sum::<usize>() + 6 + missing_width);
        let bar_max = left.clamp(BAR_MIN, BAR_MAX.max(columns / 2));
        let most = rows.iter().map(|(_, step)| step.packets).max().unwrap_or(0).max(1);
        let mut text = String::new();
        for (([time, packets, bytes], step), missing) in rows.iter().zip(&missing) {
            let [a, b, c] = widths;
            // Whoever has packets has a bar.
            let bar = (step.packets as u128 * bar_max as u128).div_ceil(u128::from(most)) as usize;
            let bar = "#".repeat(bar);
            let line = format!("{time:<a$}  {packets:>b$}  {bytes:>c$}  {bar:<bar_max$}");
            let line = match (missing.is_empty(), colours) {
                (true, _) => line.trim_end().to_string(),
                (false, true) => format!("{line}  \x1b[31m{missing}\x1b[0m"),
                (false, false) => format!("{line}  {missing}"),
            };
            text.push_str(&format!("{line}\n"));
        }
        text
    }

    /// As JSON.
    pub fn json(&self) -> Map<String, Value> {
        let steps = self.steps.iter().map(|(&at, step)| {
            let lost = (step.lost_min, step.lost_max);
            json!({
                "from": iso(self.begin_ns(at).max(0)), "packets": step.packets, "bytes": step.bytes,
                "lost_min": lost.0, "lost_max": lost.1,
            })
        });
        let steps: Vec<Value> = steps.collect();
        Map::from_iter([
            ("step_ns".to_string(), json!(self.length_ns)),
            ("steps".to_string(), Value::from(steps)),
        ])
    }
}

impl Consumer for Steps {
    fn packet(&mut self, position: Position, _: LinkType, block: &[u8]) {
        let Some(block) = PacketBlock::first(block) else { return };
        self.sum.add(&block);
        let mut at = self.at(position.time_ns);
        // A run that goes on may bring packets behind what was foreseen: the last step has them.
        if self.steps.len() as i64 > STEPS_MAX && !self.steps.contains_key(&at) {
            at = self.steps.last_key_value().map_or(at, |(&last, _)| last);
        }
        let step = self.steps.entry(at).or_insert(Step { lost_max: Some(0), ..Step::default() });
        step.packets += 1;
        step.bytes += block.data().len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_that_is_chosen_fits() {
        let check = |span: (i64, i64), rows: usize, expected: i64| {
            assert_eq!(chosen(span, rows), expected, "{span:?}")
        };
        check((0, 10 * S), 20, S);
        check((0, 86_400 * S), 26, 3600 * S);
        check((5, 5), 20, 1);
        check((0, i64::MAX), 40, 364 * 86_400 * S);
        for rows in 3..60 {
            for span in [0, 1, 999, 1_234_567, 77 * S, 86_400 * S, 300 * 86_400 * S] {
                let length = chosen((0, span), rows);
                assert!(count((0, span), length) <= rows as i64 || length == *LENGTHS.last().unwrap());
            }
        }
    }

    #[test]
    fn a_gap_over_several_steps_is_none_at_least_and_all_of_it_at_most_in_each() {
        let mut steps =
            Steps { offset_ns: 0, zone: TimeZone::UTC, ..Steps::new(10, Some((0, 39)), TimeZone::UTC) };
        let gap = |from_ns, to_ns, lost| Gap {
            from_ns,
            to_ns,
            reason: scope_packet::GapReason::File,
            lost_min: lost,
            lost_max: Some(lost),
        };
        steps.finish(&[gap(12, 19, 3), gap(15, 25, 5), gap(100, 200, 9)]);
        let lost: Vec<_> = steps.steps.values().map(|step| (step.lost_min, step.lost_max)).collect();
        assert_eq!(lost, [(0, Some(0)), (3, Some(8)), (0, Some(5)), (0, Some(0))]);
    }
}
