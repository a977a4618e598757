//! `wirescope stats top`: the addresses, ports, pairs or VLANs with the most, as a table or as one object.

use super::{database, give_up_rights, no_result, one_of};
use crate::NoResult;
use crate::args::StatsTopArgs;
use crate::plan::faults::{Faults, bad, such_as};
use crate::reading::Stop;
use crate::told;
use scope_config::Settings;
use scope_fault::Fault;
use scope_spelling::figures::{counted, number, size, span};
use scope_spelling::printable::json_line;
use scope_spelling::time::between;
use scope_spelling::values::{parse_count, parse_duration_ns};
use scope_stats::asking::top::{By, Dim, Figures, Key, TopAnswer, TopQuestion};
use scope_stats::asking::{Bounds, Database, Watch};
use serde_json::Value;

/// Columns that a table has at most.
const COLUMNS: usize = 80;
/// Numbers from here on are written with a unit.
const NUMBER_MAX: u64 = 1_000_000;

/// Answers.
pub fn top(args: &StatsTopArgs) -> u8 {
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let code = told(understand(args).map_err(NoResult::Refused).and_then(|(database, question)| {
        give_up_rights(&database, false, None)?;
        let watch = Watch::of(&Bounds::OF_A_COMMAND, stop.flag.clone());
        let answer = database.top(question, &watch).map_err(no_result)?;
        Ok(match args.json {
            true => format!("{}\n", json_line(&Value::Object(answer.to_json()).to_string())),
            false => words(&answer),
        })
    }));
    stop.code().unwrap_or(code)
}

fn understand(args: &StatsTopArgs) -> Result<(Database, TopQuestion), Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let database = database(&args.db, &mut faults);
    let by = one_of("by", &args.by, By::of, &By::WORDS.map(|(word, _)| word), &mut faults);
    let dim = one_of("dim", &args.dim, Dim::of, &Dim::WORDS.map(|(word, _)| word), &mut faults);
    let last_ns = match parse_duration_ns(&args.last) {
        Ok(0) => {
            faults.add(Fault::of("last").value(&args.last, "is no span").remedy(such_as("last", "180s")));
            None
        }
        Ok(last_ns) => Some(last_ns),
        Err(wrong) => {
            faults.add(bad(Fault::of("last"), wrong).remedy(such_as("last", "180s")));
            None
        }
    };
    let rows = match parse_count(&args.limit) {
        Ok(0) => {
            faults.add(Fault::of("limit").value(&args.limit, "is no answer").remedy(such_as("limit", "10")));
            None
        }
        Ok(rows) => usize::try_from(rows).ok(),
        Err(wrong) => {
            faults.add(bad(Fault::of("limit"), wrong).remedy(such_as("limit", "10")));
            None
        }
    };
    match (database, by, dim, last_ns, rows) {
        (Some(database), Some(by), Some(dim), Some(last_ns), Some(rows)) if faults.is_empty() => {
            Ok((database, TopQuestion { by, dim, last_ns, rows }))
        }
        _ => Err(faults.into_vec()),
    }
}

/// A number of at most seven letters.
fn short(value: u64) -> String {
    const UNITS: [&str; 4] = ["M", "G", "T", "P"];
    if value < NUMBER_MAX {
        return number(value);
    }
    let (mut scaled, mut unit) = (value as f64 / 1e6, 0);
    while scaled >= 999.95 && unit + 1 < UNITS.len() {
        (scaled, unit) = (scaled / 1e3, unit + 1);
    }
    format!("{scaled:.1}{}", UNITS[unit])
}

/// A key in one line, or, where two addresses don't fit, in two.
fn spelled(key: &Key, room: usize) -> Vec<String> {
    match key {
        Key::Ip(ip) => vec![ip.clone()],
        Key::Port(proto, port) => vec![format!("{proto} {port}")],
        Key::Vlan(vlan) => vec![vlan.to_string()],
        Key::Pair(one, other) if one.len() + 1 + other.len() <= room => vec![format!("{one} {other}")],
        Key::Pair(one, other) => vec![one.clone(), other.clone()],
    }
}

/// What stands in front of a key.
fn cells(figures: &Figures, question: TopQuestion, all: &Figures) -> Vec<String> {
    let share = 100.0 * figures.of(question.by) as f64 / all.of(question.by).max(1) as f64;
    let both = match (figures.received, question.by) {
        (Some((packets, _)), By::Packets) => vec![short(packets), short(figures.packets - packets)],
        (Some((_, bytes)), _) => vec![size(bytes), size(figures.bytes - bytes)],
        (None, By::Packets) => vec![short(figures.packets)],
        (None, By::Flows) => vec![figures.flows.map_or(String::new(), short)],
        (None, By::Bytes) => vec![size(figures.bytes)],
    };
    let other = match question.by {
        By::Bytes => short(figures.packets),
        By::Packets | By::Flows => size(figures.bytes),
    };
    both.into_iter().chain([other, format!("{share:.1}%")]).collect()
}

/// The names of these columns.
fn heads(answer: &TopAnswer) -> Vec<&'static str> {
    let is_split = answer.rows.iter().any(|(_, figures)| figures.received.is_some());
    let mut heads = match (is_split, answer.question.by) {
        (true, By::Packets) => vec!["pkts in", "pkts out"],
        (true, _) => vec!["bytes in", "bytes out"],
        (false, by) => vec![by.word()],
    };
    heads.push(if answer.question.by == By::Bytes { "packets" } else { "bytes" });
    heads.extend(["share", answer.question.dim.word()]);
    heads
}

fn words(answer: &TopAnswer) -> String {
    let TopAnswer { question, rows, different, all, lost_max, span_ns } = answer;
    let mut text = String::new();
    if !rows.is_empty() {
        let heads = heads(answer);
        let table: Vec<Vec<String>> =
            rows.iter().map(|(_, figures)| cells(figures, *question, all)).collect();
        let widths: Vec<usize> = (0..heads.len() - 1)
            .map(|at| table.iter().map(|row| row[at].len()).chain([heads[at].len()]).max().unwrap_or(0))
            .collect();
        let front: usize = widths.iter().map(|width| width + 2).sum();
        for (width, head) in widths.iter().zip(&heads) {
            text.push_str(&format!("{head:>width$}  "));
        }
        text.push_str(&format!("{}\n", heads[heads.len() - 1]));
        for ((key, _), row) in rows.iter().zip(&table) {
            for (width, cell) in widths.iter().zip(row) {
                text.push_str(&format!("{cell:>width$}  "));
            }
            let lines = spelled(key, COLUMNS.saturating_sub(front));
            text.push_str(&format!("{}\n", lines.join(&format!("\n{:front$}", ""))));
        }
    }
    let more = different - rows.len();
    if more > 0 {
        text.push_str(&format!("and {} more (see: -n)\n", number(more as u64)));
    }
    text.push_str(&format!("{}\n", between(span_ns.0, "to", span_ns.1)));
    let flows = all.flows.map(|flows| format!("{}, ", counted(flows, "flow"))).unwrap_or_default();
    text.push_str(&format!("all: {flows}{}, {}\n", counted(all.packets, "packet"), size(all.bytes)));
    if rows.iter().any(|(key, _)| *key == Key::Ip("*".to_string())) {
        text.push_str("*: addresses that were folded together, as there were more than --traffic-rows\n");
    }
    if *lost_max > 0 {
        text.push_str(&format!("up to {} more were lost\n", counted(*lost_max, "packet")));
    }
    if *different == 0 {
        text.push_str(&format!("no {} in the last {}\n", question.dim.word(), span(question.last_ns)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(by: By, dim: Dim, rows: Vec<(Key, Figures)>) -> TopAnswer {
        let question = TopQuestion { by, dim, ..TopQuestion::default() };
        let all = Figures { packets: 1 << 49, bytes: 1 << 50, received: None, flows: Some(999_999) };
        let different = rows.len() + 5;
        TopAnswer { question, span_ns: (0, 180_000_000_000), rows, different, all, lost_max: 3 }
    }

    #[test]
    fn tables_fit_80_columns_whatever_the_addresses_and_numbers_are() {
        let long = |last: u8| format!("2001:db8:1111:2222:3333:4444:5555:66{last:02x}");
        let figures = |received: bool, flows: bool| Figures {
            packets: (1 << 49) - 1,
            bytes: (1 << 50) - 1,
            received: received.then_some((999_999_949, (1 << 49) - 1)),
            flows: flows.then_some(999_999),
        };
        for (_, by) in By::WORDS {
            for (key, dim) in [
                (Key::Ip(long(1)), Dim::Ip),
                (Key::Port("other".into(), 65535), Dim::Port),
                (Key::Pair(long(1), long(2)), Dim::Pair),
                (Key::Vlan(4095), Dim::Vlan),
            ] {
                let is_split = dim == Dim::Ip && by != By::Flows;
                let answer = answer(by, dim, vec![(key, figures(is_split, !is_split))]);
                let text = words(&answer);
                assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
                assert!(text.contains("and 5 more") && text.contains("up to 3 packets more"), "{text}");
            }
        }
    }

    #[test]
    fn numbers_keep_what_matters() {
        let check = |value: u64, expected: &str| assert_eq!(short(value), expected);
        check(0, "0");
        check(999_999, "999,999");
        check(1_000_000, "1.0M");
        check(999_940_000, "999.9M");
        check(999_960_000, "1.0G");
        check(u64::MAX, "18446.7P");
    }
}
