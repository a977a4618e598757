//! The measured bars: each row checks its own result.
//!
//! ```text
//! benches [PART...] [--quick]
//! ```
//! Without a part, every part runs. The record goes to `benches/record/`, see the README there; with `--quick`, which measures
//! too little to be worth keeping, to `target/bench/`. Exit code 0: all bars hold; 1: one doesn't, or couldn't be measured;
//! 2: refused.

mod figures;
mod file_rows;
mod live_dump;
mod live_frames;
mod live_trigger;
mod machine;
mod main_part;
mod peer;
mod place;
mod record;
mod traffic;
mod wirescope;

use anyhow::Context;
use place::Place;
use record::Record;
use std::process::ExitCode;

/// The parts by name, and what each measures. All run where none is named.
const PARTS: &[(&str, &str)] = &[("main", "record, trigger, dump: files against tcpdump, latencies on a veth pair")];

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
}

const FULL: Scale = Scale { rounds: 5, file_bytes: 1 << 30, hits: 500, dumps: 26 };
const QUICK: Scale = Scale { rounds: 1, file_bytes: 64 << 20, hits: 100, dumps: 5 };

fn main() -> ExitCode {
    let (parts, quick) = match order(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(fault) => {
            eprintln!("benches: {fault}");
            return ExitCode::from(2);
        }
    };
    match measure(&parts, quick) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("benches: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Which parts, and whether only to try them out.
fn order(arguments: impl Iterator<Item = String>) -> Result<(Vec<&'static str>, bool), String> {
    let known = || PARTS.iter().map(|(name, meaning)| format!("'{name}' ({meaning})")).collect::<Vec<_>>().join(", ");
    let (mut parts, mut quick) = (Vec::new(), false);
    for argument in arguments {
        match PARTS.iter().find(|(name, _)| *name == argument) {
            Some((name, _)) => parts.push(*name),
            None if argument == "--quick" => quick = true,
            None => return Err(format!("no part '{argument}'; there is {}, and the option --quick", known())),
        }
    }
    if parts.is_empty() {
        parts.extend(PARTS.iter().map(|(name, _)| *name));
    }
    Ok((parts, quick))
}

/// Measures `parts` and writes the record; whether all bars hold.
fn measure(parts: &[&'static str], quick: bool) -> anyhow::Result<bool> {
    let place = Place::find()?;
    let scale = if quick { QUICK } else { FULL };
    let mut record = Record { machine: machine::describe(&place), rows: Vec::new(), bars: Vec::new() };
    for part in parts {
        match *part {
            "main" => main_part::measure(&place, scale, &mut record)?,
            _ => unreachable!("only known parts get here"),
        }
    }
    println!("{}", record.table());
    let name = parts.join("+");
    for path in place.record_paths(&name, &machine::slug(&record.machine), quick) {
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
        assert_eq!(order(&[]), Ok((vec!["main"], false)));
        assert_eq!(order(&["main", "--quick"]), Ok((vec!["main"], true)));
        assert!(order(&["mian"]).unwrap_err().contains("no part 'mian'; there is 'main'"));
    }
}
