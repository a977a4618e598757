//! What a signal costs a worker: runs of `wirescope` on generated traffic with signals, against runs with the same
//! filters as triggers that never hold.
//!
//! The filters match nothing, or the triggers would hold. What it adds to count packets that do match is in rows of
//! their own, without a peer: every packet is in each of the signals. That the signals measure what they must, a shorter
//! run shows, in which each has a trigger that holds once where its value is right.

use crate::Scale;
use crate::clocks::processor_time_of_children;
use crate::file_rows::SIXTEEN;
use crate::table::Table;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::time::Duration;

/// The row.
pub const ROW: &str = "signal_ns";
/// Signals, or triggers, of the rows.
pub const NUMBERS: [usize; 3] = [1, 4, 16];
/// Packets of one run, per event of the scale.
const PACKETS_PER_EVENT: u64 = 1000;
/// Packets per second of capture time.
const RATE: u64 = 1_000_000;
/// Filters that match each packet, with a number in place of `#`, so that none is asked for another's sake.
const EACH: &str = "greater 60 and not udp port 6#";
/// No run may take longer.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
enum What {
    Nothing,
    Triggers(usize),
    Signals(usize),
    /// Signals of which every packet is part.
    Matching(usize),
}

/// What the row with so many signals is of.
pub fn signals(number: usize) -> String {
    format!("{number} signals")
}

/// What the row with so many triggers is of.
pub fn triggers(number: usize) -> String {
    format!("{number} triggers")
}

impl What {
    fn name(self) -> String {
        match self {
            What::Nothing => "neither".to_string(),
            What::Triggers(number) => triggers(number),
            What::Signals(number) => signals(number),
            What::Matching(number) => format!("{number} signals that have every packet"),
        }
    }

    fn words(self) -> Vec<String> {
        let signal = |(at, filter): (usize, String)| ["--signal".to_string(), format!("s{at}={filter}")];
        let given = |number: usize| SIXTEEN[..number].iter().map(ToString::to_string);
        match self {
            What::Nothing => Vec::new(),
            What::Triggers(number) => {
                given(number).flat_map(|filter| ["--trigger".to_string(), filter]).collect()
            }
            What::Signals(number) => given(number).enumerate().flat_map(signal).collect(),
            What::Matching(number) => {
                let each = (0..number).map(|at| EACH.replace('#', &format!("{at:02}")));
                each.enumerate().flat_map(signal).collect()
            }
        }
    }
}

/// One run of each; ns of processor time per packet, of all threads. By the wall's clock a run ends in steps of 20 ms.
pub fn round(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let packets = scale.events * PACKETS_PER_EVENT;
    let mut order = vec![What::Nothing];
    order.extend(NUMBERS.iter().flat_map(|&number| [What::Triggers(number), What::Signals(number)]));
    order.extend(NUMBERS.map(What::Matching));
    // Compared rows stand beside each other, and change places.
    let turns = table.round() % order.len();
    order.rotate_left(turns);
    if !table.round().is_multiple_of(2) {
        order.reverse();
    }
    for what in order {
        let outcome = check(workspace, what).and_then(|()| run(workspace, packets, what));
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        table.put(ROW, &what.name(), "ns", outcome);
    }
}

fn run(workspace: &Workspace, packets: u64, what: What) -> Result<f64> {
    let source = format!("synth:pace=max,rate={RATE},size=64,seed=1,packets={packets}");
    let words = what.words();
    let mut arguments = vec!["--source", &source, "--ring", "256MiB"];
    arguments.extend(words.iter().map(String::as_str));
    let before = processor_time_of_children();
    let finished = Run::start(workspace, None, &arguments)?.finish(LIMIT)?;
    let used = processor_time_of_children() - before;
    finished.check_packets(packets)?;
    ensure!(finished.hits_total() == 0, "{} hits of none", finished.hits_total());
    Ok(used.as_secs_f64() * 1e9 / packets as f64)
}

/// Whether each signal has its value from the first whole second on: so a trigger at it holds once.
fn check(workspace: &Workspace, what: What) -> Result<()> {
    let (number, value) = match what {
        What::Nothing | What::Triggers(_) => return Ok(()),
        What::Signals(number) => (number, 0),
        What::Matching(number) => (number, RATE),
    };
    let packets = RATE + RATE / 2;
    let source = format!("synth:pace=max,rate={RATE},size=64,seed=1,packets={packets}");
    let mut words = what.words();
    for at in 0..number {
        words.extend(["--trigger".to_string(), format!("signal(s{at}, 1s) == {value}/s")]);
    }
    let mut arguments = vec!["--source", &source, "--ring", "256MiB", "--dump", "udp port 7"];
    arguments.extend(["--before", "0s", "--after", "0s"]);
    arguments.extend(words.iter().map(String::as_str));
    let finished = Run::start(workspace, None, &arguments)?.finish(LIMIT)?;
    finished.check_packets(packets)?;
    let fired = finished.hits("fired");
    ensure!(fired == number as u64, "{fired} of {number} signals have {value} packets/s");
    ensure!(finished.hits_total() == fired, "{} hits instead of {number}", finished.hits_total());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_as_many_signals_as_they_say() {
        let check = |what: What, number: usize, name: &str| {
            assert_eq!(what.name(), name);
            let words = what.words();
            assert_eq!(words.len(), 2 * number);
            let distinct: std::collections::BTreeSet<&String> = words.iter().skip(1).step_by(2).collect();
            assert_eq!(distinct.len(), number);
        };
        check(What::Nothing, 0, "neither");
        check(What::Triggers(4), 4, "4 triggers");
        check(What::Signals(16), 16, "16 signals");
        check(What::Matching(16), 16, "16 signals that have every packet");
    }
}
