//! The measured bars: each row checks its own result.
//!
//! ```text
//! benches [PART...] [--quick] [--ring SIZE] [--minutes N] [--row BAR]...
//! ```
//! Without a part, every part runs but `soak` and `store-soak`, which take as long as `--minutes` says, and the
//! shares of `store`, which has them all. The record goes to
//! `benches/record/`, see the README there; to `target/bench/` where it isn't worth keeping: with `--quick`,
//! which measures too little, with `--row`, which measures some bars of the part `share` alone, with `--ring`, which tries out the part `ring` with another ring than the bars
//! ask for, and for a soak that is shorter than the kept ones. Exit code 0: all bars hold; 1: one doesn't, or couldn't
//! be measured; 2: refused.

mod api;
mod clocks;
mod cores;
mod figures;
mod file_rows;
mod filter;
mod flows;
mod guide_runs;
mod live;
mod live_dump;
mod live_frames;
mod live_trigger;
mod machine;
mod main_part;
mod peer;
mod query;
mod record;
mod report_stall;
mod ring;
mod share;
mod signals;
mod soak;
mod stages_row;
mod store;
mod store_soak;
mod table;
mod traffic;
mod truth;
mod wirescope;
mod workspace;

use anyhow::Context;
use record::Record;
use std::process::ExitCode;
use std::time::Duration;
use workspace::Workspace;

/// The parts by name, and what each measures. All but those of [`NAMED`] run where none is named.
const PARTS: &[(&str, &str)] = &[
    (
        "main",
        "record, trigger, dump: files against tcpdump, latencies on a veth pair, reports of workers; the \
         examples of the guides",
    ),
    ("filter", "native filters against bpf_filter and hand-written Rust, sets, many filters at once"),
    (
        "ring",
        "append, readers, search and claims against what memory takes, a queue of queues and other queues",
    ),
    (
        "live",
        "loss and processor time on a veth pair against tcpdump, dumpcap, netsniff-ng and stenotype, \
         reloads, flaps",
    ),
    ("truth", "files that other programs read, dumps that say the truth in random runs, hostile hits"),
    (
        "query",
        "questions to a store against tcpdump, the disk and cat; bytes read, memory, capture beside them, true \
         answers",
    ),
    ("api", "answers of a running instance beside slow and broken clients, and what they cost capture"),
    (
        "signals",
        "cost of signals, counts and scripts, from a level to its hit, hits of generated traces as a naive reading \
         has them",
    ),
    (
        "flows",
        "the flow table against a map, statistics against nfpcapd and softflowd, their bounds, lateness, kills",
    ),
    (
        "share",
        "what sharing packets costs, members against sockets and tcpdump, bad members; packets sent out of an \
         interface, against trafgen and tcpreplay; --row BAR measures one of its bars",
    ),
    ("store", "files on disk: speed, processor time, kills, losses of power, against fio, dd and stenotype"),
    ("signals-traces", "of the part signals: 200 generated traces, or the one of SEED=N"),
    ("query-speed", "of the part query: speed, bytes read, memory"),
    ("query-beside", "of the part query: live capture beside queries"),
    ("query-truth", "of the part query: 500 questions"),
    ("store-disk", "of the part store: speed and processor time on generated packets, verification"),
    ("store-live", "of the part store: live capture"),
    ("store-kill", "of the part store: 200 kills"),
    ("store-power", "of the part store: 10,000 losses of power"),
    (SOAK, "half an hour of a run to which everything happens; only if it is named"),
    (STORE_SOAK, "20 minutes of a store to whose disks everything happens; only if it is named"),
    (API_SOAK, "100,000 requests drawn by chance from the document of the API; only if it is named"),
];
const SOAK: &str = "soak";
const STORE_SOAK: &str = "store-soak";
const API_SOAK: &str = "api-soak";
/// What runs only if it is named: soaks take long, and a share of a part runs with it.
const NAMED: [&str; 11] = [
    SOAK,
    STORE_SOAK,
    API_SOAK,
    "store-disk",
    "store-live",
    "store-kill",
    "store-power",
    "query-speed",
    "query-beside",
    "query-truth",
    "signals-traces",
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Rounds of the one row of which each counts, see [`file_rows`].
    pub rounds_each: usize,
    /// Bytes of the capture file, at least.
    pub file_bytes: u64,
    /// Trigger packets that are sent in a round for the latency of triggers, and dumps in a round for that of
    /// dumps.
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
    /// Random runs of the simulator, and of the program, in the part `truth`.
    pub simulated: u64,
    /// See `simulated`.
    pub programs: u64,
    /// How long a soak takes.
    pub soak: Duration,
    /// Bytes that are stored in a round by io_uring; by the plain way half of it.
    pub store_bytes: u64,
    /// Bytes that are stored at a fixed rate.
    pub store_cost_bytes: u64,
    /// Bytes of the store that is verified.
    pub store_read_bytes: u64,
    /// Runs that are killed.
    pub kills: usize,
    /// Bytes of the store that is asked.
    pub query_bytes: u64,
    /// Spans that are asked for in a round.
    pub query_spans: usize,
    /// Lanes of the store for the memory of a query.
    pub query_lanes: usize,
    /// How long a run captures beside queries.
    pub query_beside: Duration,
    /// Questions whose answers have to be true.
    pub questions: usize,
    /// How long a run captures beside clients.
    pub api_span: Duration,
    /// Requests that are drawn by chance.
    pub api_cases: usize,
    /// Questions of those who are bound to a filter.
    pub api_questions: usize,
    /// Generated traces for conditions.
    pub traces: u64,
    /// Seconds of capture time in each of which a million flows come.
    pub flow_seconds: u64,
    /// How long statistics are measured live.
    pub stats_span: Duration,
    /// Flows through a table that has room for a tenth of them.
    pub flows: u64,
    /// Runs of statistics that are killed.
    pub stats_kills: usize,
    /// How long bad members go on beside a good one.
    pub hostile: Duration,
}

/// Length of a soak that is kept.
const SOAK_MINUTES: u64 = 30;
const STORE_SOAK_MINUTES: u64 = 20;
const FULL: Scale = Scale {
    rounds: 5,
    rounds_each: 10,
    file_bytes: 1 << 30,
    hits: 500,
    dumps: 26,
    ring_bytes: 2 << 30,
    time_ring_bytes: 8 << 30,
    turns: 2.0,
    turns_64: 4.5,
    events: 100_000,
    span: Duration::from_secs(2),
    simulated: 10_000,
    programs: 100,
    soak: Duration::from_mins(SOAK_MINUTES),
    store_bytes: 6 << 30,
    store_cost_bytes: 8 << 30,
    store_read_bytes: 4 << 30,
    kills: 200,
    query_bytes: 8 << 30,
    query_spans: 50,
    query_lanes: 1000,
    query_beside: Duration::from_secs(30),
    questions: 500,
    api_span: Duration::from_secs(60),
    api_cases: 20_000,
    api_questions: 10_000,
    traces: 200,
    flow_seconds: 4,
    stats_span: Duration::from_secs(10),
    flows: 10_000_000,
    stats_kills: 50,
    hostile: Duration::from_mins(1),
};
const QUICK: Scale = Scale {
    rounds: 1,
    rounds_each: 1,
    file_bytes: 64 << 20,
    hits: 100,
    dumps: 5,
    ring_bytes: 128 << 20,
    time_ring_bytes: 128 << 20,
    turns: 1.5,
    turns_64: 4.5,
    events: 5_000,
    span: Duration::from_millis(300),
    simulated: 300,
    programs: 9,
    soak: Duration::from_mins(1),
    store_bytes: 1 << 30,
    store_cost_bytes: 1 << 30,
    store_read_bytes: 1 << 30,
    kills: 5,
    query_bytes: 256 << 20,
    query_spans: 10,
    query_lanes: 60,
    query_beside: Duration::from_secs(2),
    questions: 40,
    api_span: Duration::from_secs(4),
    api_cases: 500,
    api_questions: 400,
    traces: 10,
    flow_seconds: 3,
    stats_span: Duration::from_secs(3),
    flows: 200_000,
    stats_kills: 6,
    hostile: Duration::from_secs(5),
};
/// Smallest ring that the part `ring` can be tried out with, bytes.
const RING_BYTES_MIN: u64 = 64 << 20;

/// What the command line orders.
#[derive(Debug, PartialEq)]
struct Order {
    parts: Vec<&'static str>,
    quick: bool,
    ring_bytes: Option<u64>,
    minutes: Option<u64>,
    rows: Vec<String>,
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
    let known =
        || PARTS.iter().map(|(name, meaning)| format!("'{name}' ({meaning})")).collect::<Vec<_>>().join(", ");
    let mut order =
        Order { parts: Vec::new(), quick: false, ring_bytes: None, minutes: None, rows: Vec::new() };
    while let Some(argument) = arguments.next() {
        match PARTS.iter().find(|(name, _)| *name == argument) {
            Some((name, _)) => order.parts.push(*name),
            None if argument == "--quick" => order.quick = true,
            None if argument == "--ring" => {
                order.ring_bytes = Some(ring_bytes(&arguments.next().unwrap_or_default())?)
            }
            None if argument == "--minutes" => {
                order.minutes = Some(minutes(&arguments.next().unwrap_or_default())?)
            }
            None if argument == "--row" => order.rows.push(row(&arguments.next().unwrap_or_default())?),
            None => {
                return Err(format!(
                    "no part '{argument}'; there is {}, and the options --quick, --ring, --minutes and --row",
                    known()
                ));
            }
        }
    }
    if !order.rows.is_empty() && order.parts != ["share"] {
        return Err(
            "--row is of the part share alone; write e.g. benches share --row share_balance".to_string()
        );
    }
    if order.parts.is_empty() {
        order.parts.extend(PARTS.iter().map(|(name, _)| *name).filter(|name| !NAMED.contains(name)));
    }
    Ok(order)
}

fn ring_bytes(text: &str) -> Result<u64, String> {
    match scope_spelling::values::parse_size(text) {
        Ok(bytes) if bytes >= RING_BYTES_MIN => Ok(bytes),
        Ok(_) => Err(format!("--ring: '{text}' is too small; write 64MiB or more")),
        Err(cause) => Err(format!("--ring: '{text}': {cause}; write e.g. --ring 512MiB")),
    }
}

fn row(text: &str) -> Result<String, String> {
    match share::NAMES.contains(&text) {
        true => Ok(text.to_string()),
        false => Err(format!(
            "--row: there is no bar '{text}' in the part share; there is {}",
            share::NAMES.join(", ")
        )),
    }
}

fn minutes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(minutes @ 1..=1440) => Ok(minutes),
        _ => Err(format!("--minutes: '{text}' is no number from 1 to 1440; write e.g. --minutes 30")),
    }
}

/// Measures `parts` and writes the record; whether all bars hold.
fn measure(order: &Order) -> anyhow::Result<bool> {
    let Order { parts, quick, ring_bytes, minutes, rows } = order;
    let workspace = Workspace::find()?;
    let scale = if *quick { QUICK } else { FULL };
    let scale = match *ring_bytes {
        Some(ring_bytes) => Scale { ring_bytes, time_ring_bytes: ring_bytes, ..scale },
        None => scale,
    };
    let kept_minutes = if parts.contains(&STORE_SOAK) { STORE_SOAK_MINUTES } else { SOAK_MINUTES };
    let soak = if *quick { scale.soak } else { Duration::from_mins(kept_minutes) };
    let scale = Scale { soak: minutes.map_or(soak, Duration::from_mins), ..scale };
    let is_trial = *quick
        || !rows.is_empty()
        || ring_bytes.is_some()
        || minutes.is_some_and(|minutes| minutes < kept_minutes);
    let mut record = Record { machine: machine::describe(&workspace), rows: Vec::new(), bars: Vec::new() };
    for part in parts {
        match *part {
            "main" => main_part::measure(&workspace, scale, &mut record)?,
            "filter" => filter::measure(&workspace, scale, &mut record)?,
            "ring" => ring::measure(scale, &mut record)?,
            "live" => live::measure(&workspace, scale, &mut record)?,
            "truth" => truth::measure(&workspace, scale, &mut record)?,
            "api" => api::measure(&workspace, scale, &mut record)?,
            "flows" => flows::measure(&workspace, scale, &mut record)?,
            "share" => share::measure(&workspace, scale, rows, &mut record)?,
            "signals" => signals::measure(&workspace, scale, &mut record)?,
            "signals-traces" => signals::measure_traces(&workspace, scale, &mut record)?,
            "query" => query::measure(&workspace, scale, query::ALL, &mut record)?,
            "query-speed" => query::measure(&workspace, scale, &[query::Share::Speed], &mut record)?,
            "query-beside" => query::measure(&workspace, scale, &[query::Share::Beside], &mut record)?,
            "query-truth" => query::measure(&workspace, scale, &[query::Share::Truth], &mut record)?,
            "store" => store::measure(&workspace, scale, store::ALL, &mut record)?,
            "store-disk" => store::measure(&workspace, scale, &[store::Share::Disk], &mut record)?,
            "store-live" => store::measure(&workspace, scale, &[store::Share::Live], &mut record)?,
            "store-kill" => store::measure(&workspace, scale, &[store::Share::Kill], &mut record)?,
            "store-power" => store::measure(&workspace, scale, &[store::Share::Power], &mut record)?,
            SOAK => soak::measure(&workspace, scale, &mut record)?,
            STORE_SOAK => store_soak::measure(&workspace, scale, &mut record)?,
            API_SOAK => api::measure_soak(&workspace, scale, &mut record)?,
            _ => unreachable!("only known parts get here"),
        }
    }
    println!("{}", record.table());
    let name = parts.join("+");
    for path in workspace.record_paths(&name, &machine::slug(&record.machine), is_trial) {
        std::fs::write(&path, workspace.without_root(&record.to_text()))
            .with_context(|| path.display().to_string())?;
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
        let all = Order {
            parts: vec![
                "main", "filter", "ring", "live", "truth", "query", "api", "signals", "flows", "share",
                "store",
            ],
            quick: false,
            ring_bytes: None,
            minutes: None,
            rows: Vec::new(),
        };
        assert_eq!(order(&[]), Ok(all));
        let tried = Order {
            parts: vec!["ring"],
            quick: true,
            ring_bytes: Some(64 << 20),
            minutes: None,
            rows: Vec::new(),
        };
        assert_eq!(order(&["ring", "--quick", "--ring", "64MiB"]), Ok(tried));
        assert_eq!(
            order(&["share", "--row", "share_rule_ns"]).map(|order| order.rows),
            Ok(vec!["share_rule_ns".into()])
        );
        assert!(
            order(&["share", "--row", "share_x"]).is_err() && order(&["--row", "share_rule_ns"]).is_err()
        );
        assert!(order(&["ring", "--ring"]).is_err());
        assert_eq!(order(&["soak", "--minutes", "5"]).map(|order| order.minutes), Ok(Some(5)));
        assert!(order(&["soak", "--minutes", "0"]).is_err());
        assert!(order(&["mian"]).unwrap_err().contains("no part 'mian'; there is 'main'"));
    }
}
