//! The runs of one log: each line goes to the run that wrote it, also where several wrote at once.
//!
//! Lines name their run (`run_id`). A line that names none, or can't be read, counts for the run that began
//! last. A run whose first lines are missing begins with the first line that names it.

use super::facts::{Facts, OtherRun, State};
use super::lines::{clean, logged, take_line, take_time};
use scope_events::{Content, Event, Line};
use std::collections::VecDeque;
use std::fmt;

/// Runs of a log whose facts are kept; of more, those that began last.
const KEPT_MAX: usize = 16;
/// Runs of a log that are listed; of more, those that began last.
const LISTED_MAX: usize = 1000;

/// In the last line of a run that ended in order.
const LAST: &[u8] = br#""event":"end""#;

/// Which run of a log is wanted; without a wish, the one that began last.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// That of this process.
    pub pid: Option<u64>,
    /// The one whose `run_id` begins so.
    pub run: Option<String>,
}

impl Wanted {
    fn may_be(&self, run_id: &str) -> bool {
        self.run.as_ref().is_none_or(|run| run_id.starts_with(run.as_str()))
    }

    fn is(&self, facts: &Facts) -> bool {
        self.may_be(&facts.run_id) && (self.pid.is_none() || self.pid == facts.pid)
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.run, self.pid) {
            (Some(run), _) => write!(f, "run {run}"),
            (None, Some(pid)) => write!(f, "the run of process {pid}"),
            (None, None) => f.write_str("a run"),
        }
    }
}

/// Receives the lines of a log, one after another.
#[derive(Default)]
pub(super) struct Runs {
    wanted: Wanted,
    kept: VecDeque<Facts>,
    listed: VecDeque<Listed>,
    /// How many there are.
    pub count: u64,
    /// Lines so far.
    pub lines: u64,
    /// Those of them that aren't JSON objects.
    pub unreadable: u64,
}

/// What is known of every run, and the numbers of its first and its last line.
struct Listed {
    first: u64,
    last: u64,
    run: OtherRun,
}

impl Runs {
    pub fn new(wanted: Wanted) -> Runs {
        Runs { wanted, ..Runs::default() }
    }

    /// Adds one line; `whole`: with its end.
    pub fn add(&mut self, line: &[u8], whole: bool) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.lines += 1;
        let Some(line) = Line::read(line) else {
            self.unreadable += 1;
            if let Some(facts) = self.kept.back_mut() {
                damaged(facts, line, whole);
            }
            return;
        };
        let run_id = &*clean(line.run_id.clone());
        let known = !run_id.is_empty() && self.listed.iter().rev().any(|listed| listed.run.run_id == run_id);
        let names_a_run = !run_id.is_empty() && !line.logged.is_empty();
        let starts = matches!(line.content, Content::Event(Event::Start(_)));
        if !known && (starts || names_a_run) {
            self.begin(run_id, !starts);
        }
        self.hand_over(run_id, line);
    }

    fn begin(&mut self, run_id: &str, headless: bool) {
        self.count += 1;
        let run = OtherRun { run_id: run_id.to_string(), ..OtherRun::default() };
        self.listed.push_back(Listed { first: self.lines, last: self.lines, run });
        if self.wanted.may_be(run_id) {
            let facts =
                Facts { state: State::Unknown, run_id: run_id.to_string(), headless, ..Facts::default() };
            self.kept.push_back(facts);
        }
        self.kept.drain(..self.kept.len().saturating_sub(KEPT_MAX));
        self.listed.drain(..self.listed.len().saturating_sub(LISTED_MAX));
    }

    fn hand_over(&mut self, run_id: &str, line: Line) {
        let lines = self.lines;
        let of_run = |listed: &&mut Listed| run_id.is_empty() || listed.run.run_id == run_id;
        let Some(listed) = self.listed.iter_mut().rev().find(of_run) else { return };
        listed.last = lines;
        listed.run.has_last_line |=
            matches!(line.content, Content::Event(Event::End(_) | Event::EndedAtOnce(_)));
        if let Some(facts) = self.kept.iter_mut().rev().find(|facts| facts.run_id == listed.run.run_id) {
            take_time(facts, &line);
            take_line(facts, line);
            listed.run.began = facts.began;
        } else {
            listed.run.began = listed.run.began.or_else(|| logged(&line));
        }
    }

    /// The run that is wanted, the newest of several, with what is known of the others.
    pub fn finish(mut self) -> Option<Facts> {
        let wanted = self.wanted.clone();
        let mut facts = self.kept.drain(..).rev().find(|facts| wanted.is(facts))?;
        let own = self.listed.iter().rposition(|listed| listed.run.run_id == facts.run_id)?;
        let own = self.listed.remove(own)?;
        facts.newest = self.listed.iter().all(|other| other.first < own.first);
        facts.runs = self.count;
        let beside = |other: &Listed| other.first < own.last && own.first < other.last;
        facts.other_runs =
            self.listed.into_iter().map(|other| OtherRun { beside: beside(&other), ..other.run }).collect();
        Some(facts)
    }
}

/// A line that can't be read. An incomplete one at the log's end may still show that it was the run's last.
fn damaged(facts: &mut Facts, line: &[u8], whole: bool) {
    if whole {
        facts.unreadable_lines += 1;
        return;
    }
    facts.last_line_cut = true;
    // Within JSON text these quotes would be escaped.
    if line.windows(LAST.len()).any(|part| part == LAST) {
        facts.state = State::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(wanted: Wanted, lines: &[&str]) -> Option<Facts> {
        let mut runs = Runs::new(wanted);
        for line in lines {
            runs.add(line.as_bytes(), true);
        }
        runs.finish()
    }

    fn start(run: &str) -> String {
        format!(
            r#"{{"event":"start","run_id":"{run}","logged":"2026-11-21T08:00:00Z","sources":["afpacket:{run}"]}}"#
        )
    }

    fn late(run: &str, packets: u64) -> String {
        format!(r#"{{"event":"status","run_id":"{run}","logged":"2026-11-21T08:00:09Z","late":{packets}}}"#)
    }

    fn machine(run: &str, pid: u64) -> String {
        format!(r#"{{"event":"machine","run_id":"{run}","logged":"2026-11-21T08:00:00Z","pid":{pid}}}"#)
    }

    fn end(run: &str) -> String {
        format!(r#"{{"event":"end","run_id":"{run}","logged":"2026-11-21T08:00:10Z","late":7}}"#)
    }

    fn of(wanted: Wanted, lines: &[String]) -> Option<Facts> {
        runs(wanted, &lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn lines_of_two_runs_that_write_at_once_go_each_to_its_own() {
        let lines = [
            start("aa"),
            start("bb"),
            machine("aa", 1),
            machine("bb", 2),
            late("bb", 5),
            late("aa", 3),
            end("aa"),
        ];
        let newest = of(Wanted::default(), &lines).expect("a run");
        assert_eq!(
            (newest.run_id.as_str(), newest.late, newest.pid, newest.state),
            ("bb", 5, Some(2), State::Unknown)
        );
        assert_eq!((newest.runs, newest.newest, newest.other_runs.len()), (2, true, 1));
        assert_eq!((newest.other_runs[0].beside, newest.other_runs[0].has_last_line), (true, true));
        let other = of(Wanted { run: Some("a".into()), pid: None }, &lines).expect("a run");
        assert_eq!(
            (other.run_id.as_str(), other.late, other.pid, other.state),
            ("aa", 7, Some(1), State::Ended)
        );
        assert_eq!((other.newest, other.other_runs[0].has_last_line), (false, false));
        assert_eq!(
            of(Wanted { pid: Some(1), run: None }, &lines).map(|facts| facts.run_id),
            Some("aa".to_string())
        );
        assert!(of(Wanted { run: Some("c".into()), pid: None }, &lines).is_none());
    }

    #[test]
    fn runs_that_follow_each_other_are_counted_and_not_beside_each_other() {
        let facts = of(Wanted::default(), &[start("aa"), end("aa"), start("bb"), end("bb")]).expect("a run");
        assert_eq!((facts.run_id.as_str(), facts.runs, facts.other_runs[0].beside), ("bb", 2, false));
    }

    #[test]
    fn a_run_whose_first_lines_are_gone_is_one_all_the_same() {
        let facts = of(Wanted::default(), &[late("aa", 3)]).expect("a run");
        assert_eq!((facts.headless, facts.late), (true, 3));
        assert!(runs(Wanted::default(), &[r#"{"event":"else"}"#, r#"{"run_id":7}"#]).is_none());
    }

    #[test]
    fn a_log_of_very_many_runs_is_bounded_and_the_newest_is_told() {
        let lines: Vec<String> = (0..3000)
            .flat_map(|run| [start(&format!("{run:08x}")), late(&format!("{run:08x}"), run)])
            .collect();
        let facts = of(Wanted::default(), &lines).expect("a run");
        assert_eq!((facts.runs, facts.late, facts.other_runs.len()), (3000, 2999, LISTED_MAX - 1));
    }
}
