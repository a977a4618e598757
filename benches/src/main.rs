//! The measured bars: each row checks its own result.
//!
//! ```text
//! benches [PART...] [--quick] [--ring SIZE]
//! ```
//! Without a part, every part runs. The record goes to `benches/record/`, see the README there; with `--quick`, which measures
//! too little to be worth keeping, or `--ring`, which tries out the part `ring` with another ring than the bars ask for, to
//! `target/bench/`. Exit code 0: all bars hold; 1: one doesn't, or couldn't be measured; 2: refused.

mod cores;
mod figures;
mod file_rows;
mod filter;
mod live_dump;
mod live_frames;
mod live_trigger;
mod machine;
mod main_part;
mod peer;
mod place;
mod record;
mod ring;
mod table;
mod traffic;
mod wirescope;

use anyhow::Context;
use place::Place;
use record::Record;
use std::process::ExitCode;
use std::time::Duration;

/// The parts by name, and what each measures. All run where none is named.
const PARTS: &[(&str, &str)] = &[
    ("main", "record, trigger, dump: files against tcpdump, latencies on a veth pair"),
    ("filter", "native filters against bpf_filter and hand-written Rust, sets, many filters at once"),
    ("ring", "append, readers, search and claims against what memory takes, a queue of queues and other queues"),
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Bytes of the capture file, at least.
    pub file_bytes: u64,
    /// Trigger packets that are sent in a round for the latency of triggers, and dumps in a round for that of dumps.
    pub hits: usize,
    /// See `hits`.
    pub dumps: usize,
    /// Bytes of the ring in the part `ring`.
    pub ring_bytes: u64,
    /// The same for search by time, if memory allows.
    pub time_ring_bytes: u64,
    /// How often a row of the part `ring` goes round it.
    pub turns: f64,
    /// The same for our append of the smallest packets: a follower must keep up for at least four.
    pub turns_64: f64,
    /// Events of rows that count them, such as claims.
    pub events: u64,
    /// How long rows run that run for a time.
    pub span: Duration,
}

const FULL: Scale = Scale {
    rounds: 5,
    file_bytes: 1 << 30,
    hits: 500,
    dumps: 26,
    ring_bytes: 2 << 30,
    time_ring_bytes: 8 << 30,
    turns: 2.0,
    turns_64: 4.5,
    events: 100_000,
    span: Duration::from_secs(2),
};
const QUICK: Scale = Scale {
    rounds: 1,
    file_bytes: 64 << 20,
    hits: 100,
    dumps: 5,
    ring_bytes: 128 << 20,
    time_ring_bytes: 128 << 20,
    turns: 1.5,
    turns_64: 4.5,
    events: 5_000,
    span: Duration::from_millis(300),
};
/// Smallest ring that the part `ring` can be tried out with, bytes.
const RING_BYTES_MIN: u64 = 64 << 20;

/// What the command line asks for.
#[derive(Debug, PartialEq)]
struct Order {
    parts: Vec<&'static str>,
    quick: bool,
    ring_bytes: Option<u64>,
}

fn main() -> ExitCode {
    let order = match order(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(fault) => {
            eprintln!("benches: {fault}");
            return ExitCode::from(2);
        }
    };
    match measure(&order) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("benches: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Which parts, and whether only to try them out.
fn order(mut arguments: impl Iterator<Item = String>) -> Result<Order, String> {
    let known = || PARTS.iter().map(|(name, meaning)| format!("'{name}' ({meaning})")).collect::<Vec<_>>().join(", ");
    let mut order = Order { parts: Vec::new(), quick: false, ring_bytes: None };
    while let Some(argument) = arguments.next() {
        match PARTS.iter().find(|(name, _)| *name == argument) {
            Some((name, _)) => order.parts.push(*name),
            None if argument == "--quick" => order.quick = true,
            None if argument == "--ring" => order.ring_bytes = Some(ring_bytes(&arguments.next().unwrap_or_default())?),
            None => return Err(format!("no part '{argument}'; there is {}, and the options --quick and --ring", known())),
        }
    }
    if order.parts.is_empty() {
        order.parts.extend(PARTS.iter().map(|(name, _)| *name));
    }
    Ok(order)
}

fn ring_bytes(text: &str) -> Result<u64, String> {
    match scope_source::spec::values::parse_size(text) {
        Ok(bytes) if bytes >= RING_BYTES_MIN => Ok(bytes),
        Ok(_) => Err(format!("--ring: '{text}' is too small; write 64MiB or more")),
        Err(cause) => Err(format!("--ring: '{text}': {cause}; write e.g. --ring 512MiB")),
    }
}

/// Measures `parts` and writes the record; whether all bars hold.
fn measure(order: &Order) -> anyhow::Result<bool> {
    let Order { parts, quick, ring_bytes } = order;
    let place = Place::find()?;
    let scale = if *quick { QUICK } else { FULL };
    let scale = match *ring_bytes {
        Some(ring_bytes) => Scale { ring_bytes, time_ring_bytes: ring_bytes, ..scale },
        None => scale,
    };
    let mut record = Record { machine: machine::describe(&place), rows: Vec::new(), bars: Vec::new() };
    for part in parts {
        match *part {
            "main" => main_part::measure(&place, scale, &mut record)?,
            "filter" => filter::measure(&place, scale, &mut record)?,
            "ring" => ring::measure(scale, &mut record)?,
            _ => unreachable!("only known parts get here"),
        }
    }
    println!("{}", record.table());
    let name = parts.join("+");
    for path in place.record_paths(&name, &machine::slug(&record.machine), *quick || ring_bytes.is_some()) {
        std::fs::write(&path, place.without_root(&record.to_text())).with_context(|| path.display().to_string())?;
        println!("written: {}", path.display());
    }
    Ok(record.bars.iter().all(record::Bar::holds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_part_every_part_runs_and_an_unknown_one_is_refused() {
        let order = |words: &[&str]| order(words.iter().map(|word| word.to_string()));
        let all = Order { parts: vec!["main", "filter", "ring"], quick: false, ring_bytes: None };
        assert_eq!(order(&[]), Ok(all));
        let tried = Order { parts: vec!["ring"], quick: true, ring_bytes: Some(64 << 20) };
        assert_eq!(order(&["ring", "--quick", "--ring", "64MiB"]), Ok(tried));
        assert!(order(&["ring", "--ring"]).is_err());
        assert!(order(&["mian"]).unwrap_err().contains("no part 'mian'; there is 'main'"));
    }
}
