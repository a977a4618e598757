//! Findings about traffic statistics: what kept rows from being written, how far they are behind, and what was folded.
//!
//! None of it loses a packet: capture goes on, and sums stay exact.

use super::facts::{Facts, State, StatsFacts, is_nearly_full};
use super::finding::{Finding, Stage, Sureness};
use scope_spelling::figures::{counted, size, span};
use scope_spelling::printable::shell_word;

/// From so many bytes on a log of transactions isn't emptied as usual; at 256 MiB rows wait.
const WAL_LONG_BYTES: u64 = 64 << 20;
/// So much later than an interval and its successor it should be written, ns.
const LATE_NS: i64 = 60_000_000_000;

/// Adds everything about statistics.
pub(super) fn add(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(stats) = &facts.stats else { return };
    let db = stats.db.as_deref().unwrap_or("the database");
    let mut note = |kind, sureness, cause: String, remedies: &[&str]| {
        found.push(Finding::note(kind, Stage::Statistics, sureness, cause, remedies));
    };
    match (&stats.ended, &stats.failing) {
        (Some(text), _) => note(
            "stats_ended",
            Sureness::Certain,
            format!("traffic statistics ended, capture goes on without them: {text}"),
            &["Move the database away, or repair it, and start the run again."],
        ),
        (None, Some(text)) => {
            let cause = format!("traffic statistics can't be written, and wait: {text}");
            note("stats_failing", Sureness::Certain, cause, &[&refused(text, db)]);
        }
        (None, None) => behind(facts, stats, &mut note),
    }
    if stats.wal_bytes >= WAL_LONG_BYTES {
        let cause = format!(
            "the log of transactions of {db} has {}: a program that reads it keeps it from being emptied; from 256 MiB \
             on rows wait",
            size(stats.wal_bytes)
        );
        let look = look_for_readers(db);
        note("stats_wal", Sureness::Likely, cause, &[&look, "Ask a copy instead: wirescope stats copy"]);
    }
    if let Some((free, all)) = stats.disk.filter(|(free, all)| is_nearly_full(*free, *all)) {
        let cause = format!("the disk of {db} has {} left of {}", size(free), size(all));
        note(
            "stats_disk_low",
            Sureness::Certain,
            cause,
            &[
                "Let the oldest files go, in a folder: --db DIR/ with --db-keep, --db-budget or --db-min-free",
                "Write fewer rows: --no-flow-rows, or a longer --db-interval",
            ],
        );
    }
    if stats.unwritten > 0 {
        let cause = format!(
            "{} of statistics couldn't be written in time, and were folded into sums",
            counted(stats.unwritten, "row")
        );
        let remedies = [
            "Give the database a faster disk, or one with room.",
            "Write fewer rows: --no-flow-rows, or a longer --db-interval",
        ];
        note("stats_unwritten", Sureness::Certain, cause, &remedies);
    }
    // These may be among those.
    if stats.folded > 0 && stats.unwritten == 0 {
        let cause = format!(
            "{} of statistics were folded into sums: there were more in an interval than --traffic-rows",
            counted(stats.folded, "row")
        );
        let remedies =
            ["Keep more of them: a larger --traffic-rows", "Name the addresses that matter: --local NET"];
        note("stats_folded", Sureness::Certain, cause, &remedies);
    }
    if stats.evicted > 0 {
        let cause = format!("{} gave way to newer ones while they went on", counted(stats.evicted, "flow"));
        note("stats_evicted", Sureness::Certain, cause, &["Follow more flows at once: a larger --flows-max"]);
    }
    if stats.unsent > 0 {
        let cause = format!(
            "the collector refused {}, or there was no room to send them",
            counted(stats.unsent, "record")
        );
        let remedies = ["Check that it listens there: --ipfix ADDR:PORT, UDP"];
        note("stats_unsent", Sureness::Likely, cause, &remedies);
    }
}

/// Nothing fails, and what is written is old all the same.
fn behind(facts: &Facts, stats: &StatsFacts, note: &mut impl FnMut(&'static str, Sureness, String, &[&str])) {
    let is_late = stats.lag_ns > stats.interval_ns.saturating_mul(2).saturating_add(LATE_NS);
    if !is_late || stats.interval_ns == 0 || !matches!(facts.state, State::Running | State::Unknown) {
        return;
    }
    let cause = format!("traffic statistics are {} behind the clock of capture", span(stats.lag_ns));
    let remedies =
        ["Give the database a faster disk.", "Write fewer rows: --no-flow-rows, or a longer --db-interval"];
    note("stats_behind", Sureness::Certain, cause, &remedies);
}

/// What helps against what keeps rows from being written, by the run's own words.
fn refused(text: &str, db: &str) -> String {
    if text.contains("no room") {
        "Make room on that disk; in a folder let the oldest files go: --db-keep, --db-budget or --db-min-free"
            .to_string()
    } else if text.contains("locked by another program") || text.contains("keeps its log from being emptied")
    {
        look_for_readers(db)
    } else {
        "Look at what the kernel says of the disk: dmesg | tail -50".to_string()
    }
}

fn look_for_readers(db: &str) -> String {
    let files = match db.ends_with('/') {
        true => format!("{}*.sqlite", shell_word(db)),
        false => shell_word(db),
    };
    format!("Find the program that has it open, and end it: fuser -v {files}")
}
