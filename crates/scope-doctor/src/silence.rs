//! Findings about a run whose log just stops, or that was ended at once. What can't be seen is reported as
//! likely or possible, never as certain.

use super::facts::{Facts, State};
use super::finding::{Finding, Stage, Sureness};
use scope_machine::home::Seen;

/// A disk with less room than this, bytes, may have had none for the last line.
const ROOM_MIN: u64 = 1 << 20;

/// A log this close to the largest file that the process may make, bytes, may have had no room for the last
/// line.
const LINE_BYTES: u64 = 16 << 10;
/// Seconds between two lines with counts, where the log doesn't say.
const EVERY_S: f64 = 10.0;
/// A log is quiet when so many of its lines are missing, and this many seconds more have passed.
const QUIET_TIMES: f64 = 2.0;
const QUIET_MORE_S: f64 = 5.0;

pub(super) fn add(facts: &Facts, found: &mut Vec<Finding>) {
    match facts.state {
        State::EndedAtOnce => found.push(at_once(facts)),
        State::Dead => found.push(dead(facts)),
        State::Unknown => found.push(unknown(facts)),
        State::Running => found.extend(quiet(facts)),
        State::Ended | State::Stopped => {}
    }
}

/// A run that goes on, whose log doesn't: it writes a line with its counts again and again.
fn quiet(facts: &Facts) -> Option<Finding> {
    let every_s = if facts.status_every_s > 0.0 { facts.status_every_s } else { EVERY_S };
    let silent_s = facts.silent_s.filter(|silent_s| *silent_s > QUIET_TIMES * every_s + QUIET_MORE_S)?;
    let full = disk_full(facts);
    let why = full.map_or(String::new(), |full| format!(": {full}"));
    let cause = format!(
        "its log has had no line for {}, although the run writes one every {every_s:.0} s{why}; later \
         losses are not known here",
        age(silent_s)
    );
    let pid = facts.pid.map_or("PID".to_string(), |pid| pid.to_string());
    let reopen = format!("If the log was moved or removed, make the run open a new one: kill -HUP {pid}");
    let remedies = ["Check the log's disk: df -h for its space, journalctl -k for its faults.", &reopen];
    let sureness = if full.is_some() { Sureness::Likely } else { Sureness::Possible };
    Some(Finding::note("log_silent", Stage::Run, sureness, cause, &remedies))
}

/// The log says so: a person ended it.
fn at_once(facts: &Facts) -> Finding {
    let why = if facts.ended_why.is_empty() { "ended at once" } else { &facts.ended_why };
    let mut cause =
        format!("{why}, so it ended at once: its ring is gone, and the counts are the last ones in its log");
    if facts.dumps_thrown_away > 0 {
        cause += &format!("; unfinished dumps that were lost with it: {}", facts.dumps_thrown_away);
    }
    let wait = "Next time signal it once, and give it time to finish its dumps.";
    let finding = Finding::loss("ended_at_once", Stage::Run, Sureness::Certain, 0, cause, &[wait]);
    Finding { loses: facts.dumps_thrown_away > 0, ..finding }
}

/// Why its disk may have had no room for the last line.
fn disk_full(facts: &Facts) -> Option<&'static str> {
    if facts.disk.is_some_and(|disk| disk.read_only) {
        Some("the disk of its log is read-only")
    } else if facts.disk.is_some_and(|disk| disk.free_bytes < ROOM_MIN) {
        Some("the disk of its log is full")
    } else if facts
        .file_size_max
        .is_some_and(|bytes_max| facts.log_bytes >= bytes_max.saturating_sub(LINE_BYTES))
    {
        Some("its log has reached the file-size limit of the process (ulimit -f, LimitFSIZE=)")
    } else if facts
        .dumps
        .iter()
        .any(|dump| dump.error.as_ref().is_some_and(|error| error.contains("os error 28")))
    {
        Some("its dumps ran out of disk space")
    } else if facts.last_line_cut {
        Some("the last line of its log is incomplete, as on a full disk or after a power failure")
    } else {
        None
    }
}

/// The process is gone. Why, the log can't say.
fn dead(facts: &Facts) -> Finding {
    let process = facts.pid.map_or("its process".to_string(), |pid| format!("process {pid}"));
    let restarted = facts.seen == Seen::BeforeRestart;
    let weighed = match restarted {
        true => {
            "this machine has started again since: a power failure, a reset, or a restart that did not \
             wait; or the run was killed or crashed before that"
        }
        false => {
            "it was killed (kill -9, out of memory, a service manager's timeout) or crashed; this machine \
             hasn't started again since"
        }
    };
    let gone = format!("{process} is gone, its ring with it, and its log stops without a last line");
    let full = disk_full(facts);
    let (sureness, cause) = match full {
        Some(full) => {
            (Sureness::Possible, format!("{gone}: {full}, so it may have ended normally; or {weighed}"))
        }
        None => (Sureness::Likely, format!("{gone}: {weighed}")),
    };
    let crash = facts.pid.map_or("Look for a crash: coredumpctl".to_string(), |pid| {
        format!("Look for a crash: coredumpctl info {pid}")
    });
    let mut remedies = match restarted {
        true => vec!["See how the machine went down: last -x; journalctl -b -1 -e"],
        false => vec![
            "Check whether the kernel killed it for lack of memory: journalctl -k | grep -i 'out of memory'",
            &crash,
            "If memory ran out, make the ring smaller: --ring.",
        ],
    };
    if full.is_some() {
        remedies.insert(0, "Check that the log's disk has space and is writable: df -h; findmnt -T FOLDER");
    }
    Finding::loss("died", Stage::Run, sureness, 0, cause, &remedies)
}

/// Whether the process is there can't be seen from here.
fn unknown(facts: &Facts) -> Finding {
    let host = facts.home.host.as_deref().unwrap_or("another machine");
    let (place, remedy) = match facts.seen {
        Seen::Elsewhere => {
            (format!("it ran on {host}, which is not this machine"), format!("Run doctor there, on {host}."))
        }
        Seen::OutOfSight => (
            format!(
                "it ran on this machine in a container ({host}), whose processes cannot be seen from here"
            ),
            "Run doctor where it ran, or on the host itself.".to_string(),
        ),
        Seen::Here | Seen::BeforeRestart | Seen::Unknown => (
            "its log doesn't say which process it was, or on which machine".to_string(),
            "Check whether it still runs: pgrep -a wirescope".to_string(),
        ),
    };
    let age =
        facts.silent_s.map_or(String::new(), |seconds| format!("; its last line is {} old", age(seconds)));
    let full = disk_full(facts).map_or(String::new(), |full| format!(" ({full})"));
    let cause = format!(
        "its log has no last line: {place}{age}. The run may still go on; or it was killed, crashed, lost \
         power, or had no room for the line{full}"
    );
    Finding::note("no_last_line", Stage::Run, Sureness::Possible, cause, &[&remedy])
}

/// A span of time in its largest unit.
fn age(seconds: f64) -> String {
    let units = [(86_400.0, "days"), (3_600.0, "hours"), (60.0, "min")];
    match units.iter().find(|(unit, _)| seconds >= 2.0 * unit) {
        Some((unit, name)) => format!("{:.0} {name}", (seconds / unit).floor()),
        None => format!("{:.0} s", seconds.max(0.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_machine::disk::Disk;
    use scope_machine::home::Home;

    fn check(facts: &Facts, kind: &str, sureness: Sureness, loses: bool, words: &[&str]) {
        let mut found = Vec::new();
        add(facts, &mut found);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].sureness, found[0].loses), (kind, sureness, loses), "{found:?}");
        for words in words {
            assert!(found[0].cause.contains(words), "{words}: {found:?}");
        }
    }

    #[test]
    fn a_log_that_stops_is_weighed_by_what_can_be_seen() {
        let disk = |free_bytes| Some(Disk { free_bytes, bytes: 1 << 40, read_only: false });
        let dead = Facts {
            state: State::Dead,
            seen: Seen::Here,
            pid: Some(7),
            disk: disk(1 << 39),
            ..Facts::default()
        };
        check(
            &dead,
            "died",
            Sureness::Likely,
            true,
            &["process 7", "killed", "crashed", "hasn't started again"],
        );
        let full = Facts { disk: disk(0), ..dead.clone() };
        check(
            &full,
            "died",
            Sureness::Possible,
            true,
            &["disk of its log is full", "may have ended normally", "killed"],
        );
        let read_only = Facts {
            disk: Some(Disk { free_bytes: 1 << 39, bytes: 1 << 40, read_only: true }),
            ..dead.clone()
        };
        check(&read_only, "died", Sureness::Possible, true, &["disk of its log is read-only"]);
        let at_limit = Facts { file_size_max: Some(100_000), log_bytes: 99_000, ..dead.clone() };
        check(&at_limit, "died", Sureness::Possible, true, &["has reached the file-size limit"]);
        let cut = Facts { last_line_cut: true, ..dead.clone() };
        check(&cut, "died", Sureness::Possible, true, &["last line of its log is incomplete"]);
        let restarted = Facts { seen: Seen::BeforeRestart, ..dead.clone() };
        check(&restarted, "died", Sureness::Likely, true, &["started again since", "power"]);
        let home = Home { host: Some("far".into()), ..Home::default() };
        let elsewhere = Facts {
            state: State::Unknown,
            seen: Seen::Elsewhere,
            home,
            silent_s: Some(7300.0),
            ..dead.clone()
        };
        check(
            &elsewhere,
            "no_last_line",
            Sureness::Possible,
            false,
            &["ran on far", "2 hours old", "may still go on", "power"],
        );
        let silent = Facts { state: State::Unknown, ..Facts::default() };
        check(
            &silent,
            "no_last_line",
            Sureness::Possible,
            false,
            &["doesn't say which process", "killed", "crashed"],
        );
    }

    #[test]
    fn a_run_that_was_ended_at_once_is_told_as_that_and_loses_what_it_was_making() {
        let facts = Facts {
            state: State::EndedAtOnce,
            ended_why: "stopped by a second signal".into(),
            ..Facts::default()
        };
        check(
            &facts,
            "ended_at_once",
            Sureness::Certain,
            false,
            &["stopped by a second signal, so it ended at once"],
        );
        let making = Facts { dumps_thrown_away: 2, ..facts };
        check(&making, "ended_at_once", Sureness::Certain, true, &["lost with it: 2"]);
    }

    #[test]
    fn a_run_whose_log_does_not_go_on_is_told_with_what_may_keep_it() {
        let disk = |read_only| Some(Disk { free_bytes: 1 << 39, bytes: 1 << 40, read_only });
        let goes =
            Facts { state: State::Running, silent_s: Some(24.0), disk: disk(false), ..Facts::default() };
        let mut found = Vec::new();
        add(&goes, &mut found);
        assert!(found.is_empty(), "a line each 10 s: {found:?}");
        let quiet = Facts { silent_s: Some(60.0), ..goes.clone() };
        check(&quiet, "log_silent", Sureness::Possible, false, &["no line for 60 s", "every 10 s"]);
        let read_only = Facts { disk: disk(true), ..quiet.clone() };
        check(&read_only, "log_silent", Sureness::Likely, false, &["disk of its log is read-only"]);
        let seldom = Facts { status_every_s: 3600.0, ..quiet };
        add(&seldom, &mut found);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn an_age_is_told_in_its_largest_unit() {
        for (seconds, expected) in
            [(0.4, "0 s"), (59.0, "59 s"), (125.0, "2 min"), (7300.0, "2 hours"), (1e6, "11 days")]
        {
            assert_eq!(age(seconds), expected);
        }
    }
}
