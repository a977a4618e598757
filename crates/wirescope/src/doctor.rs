//! `wirescope doctor`: findings about a run in plain words, or for programs.

use crate::args::DoctorArgs;
use crate::words::{counted, number, span};
use crate::{NoResult, REFUSED, UNDONE, told};
use scope_doctor::facts::OtherRun;
use scope_doctor::{Facts, Finding, State, Wanted, log, printed, system};
use scope_events::EVENTS_FILE;
use scope_fault::Fault;
use scope_spelling::printable::json_line;
use std::path::{Path, PathBuf};

/// Other runs of a log that are named; the JSON object has all that are known.
const NAMED_MAX: usize = 10;
/// Letters of a run's name that are shown.
const NAME_LETTERS: usize = 8;

/// Looks and reports. Exit codes: 0 nothing is lost, 1 losses were found, 2 it can't look.
pub fn doctor(args: &DoctorArgs) -> u8 {
    let (facts, found) = match look(args) {
        Ok(looked) => looked,
        Err(fault) => return told(Err(NoResult::Refused(vec![fault]))),
    };
    let lost = found.iter().any(|finding| finding.loses);
    let text = if args.json {
        format!("{}\n", json_line(&printed(&facts, &found).to_string()))
    } else {
        words(&facts, &found)
    };
    match told(Ok(text)) {
        0 if lost => UNDONE,
        0 => 0,
        _ => REFUSED,
    }
}

fn look(args: &DoctorArgs) -> Result<(Facts, Vec<Finding>), Fault> {
    let (path, pid) = place(args)?;
    let mut facts = log::read(&path, &Wanted { pid, run: args.run.clone() })
        .map_err(|error| Fault::default().error(&error))?;
    system::look(&mut facts, &path);
    let found = scope_doctor::findings(&facts);
    Ok((facts, found))
}

/// The log to read, and of which process.
fn place(args: &DoctorArgs) -> Result<(PathBuf, Option<u64>), Fault> {
    match (&args.out, &args.log, &args.pid) {
        (Some(folder), ..) => Ok((log_in(folder)?, None)),
        (_, Some(file), _) => Ok((file.clone(), None)),
        (.., Some(text)) => {
            let fault = || Fault::of("pid").value(text, "is not a process number");
            let pid = text.parse().map_err(|_| fault().remedy("find it with: pgrep -a wirescope"))?;
            Ok((system::log_of(pid).map_err(Fault::whole)?, Some(pid)))
        }
        _ => Err(Fault::whole(
            "which run? give its folder with --out, its log with --log, or its process with --pid",
        )),
    }
}

fn log_in(folder: &Path) -> Result<PathBuf, Fault> {
    let log = folder.join(EVENTS_FILE);
    let fault = |cause: String| Fault::of("out").with_value(folder.to_string_lossy()).cause(cause);
    if folder.is_file() {
        let fault = fault(format!("{} is a file, not the folder of a run", folder.display()));
        return Err(fault.remedy("if it is a log, give it with --log"));
    }
    if folder.is_dir()
        && log.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    {
        let shown = folder.display();
        let fault = fault(format!(
            "{shown} holds no {EVENTS_FILE}: no run has written its log there, or the log was moved"
        ));
        return Err(fault.remedy("give a log with --log"));
    }
    Ok(log)
}

fn state(facts: &Facts) -> String {
    let process = facts.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
    match facts.state {
        State::Ended => "has ended".to_string(),
        State::EndedAtOnce => "was ended at once".to_string(),
        State::Running => format!("is running{process}"),
        State::Stopped => format!("is stopped{process}"),
        State::Dead => format!("is gone without a last line{process}"),
        State::Unknown => "wrote no last line; whether it still runs is unknown".to_string(),
    }
}

/// What was captured, as typed.
fn subject(facts: &Facts) -> String {
    if facts.specs.is_empty() {
        "The run".to_string()
    } else {
        format!("The run on {}", facts.specs.join(" "))
    }
}

/// Where the log holds several runs: how many, which one this is, and how the others are asked for.
fn several(facts: &Facts) -> String {
    if facts.runs < 2 {
        return String::new();
    }
    let this = if facts.newest { "this is the one that began last" } else { "this is the one you asked for" };
    let mut text = format!(
        "The log holds {} runs; {this}{}. For another one:\n",
        number(facts.runs),
        began(facts.began)
    );
    for run in facts.other_runs.iter().rev().take(NAMED_MAX) {
        text.push_str(&format!("     {}\n", other(run)));
    }
    let more = facts.runs - 1 - facts.other_runs.len().min(NAMED_MAX) as u64;
    if more > 0 {
        text.push_str(&format!("     and {} before these\n", number(more)));
    }
    text
}

fn other(run: &OtherRun) -> String {
    let name = if run.run_id.is_empty() {
        "(without a name)".to_string()
    } else {
        format!("--run {}", name(&run.run_id))
    };
    let ended = if run.has_last_line { "" } else { ", without a last line" };
    let beside = if run.beside { ", at the same time as this one" } else { "" };
    format!("{name}{}{ended}{beside}", began(run.began))
}

/// The first letters tell runs apart.
fn name(run_id: &str) -> String {
    run_id.chars().take(NAME_LETTERS).collect()
}

/// When a run began.
fn began(began: Option<jiff::Timestamp>) -> String {
    began.map_or(String::new(), |began| format!(" ({began:.0})"))
}

/// Where nothing was found to be lost: what that is worth.
fn nothing_lost(facts: &Facts) -> &'static str {
    let whole = facts.unreadable_lines == 0 && !facts.headless && !facts.last_line_cut;
    match facts.state {
        State::Ended if whole => "Nothing is lost.\n",
        State::Running | State::Stopped if whole => "Its log shows no loss so far.\n",
        _ => "Its log shows no loss.\n",
    }
}

fn words(facts: &Facts, found: &[Finding]) -> String {
    let told_ns = (facts.elapsed_s * 1e9) as i64;
    let told = if told_ns > 0 { format!("; its log covers {}", span(told_ns)) } else { String::new() };
    let mut text = format!("{} {}{told}.\n", subject(facts), state(facts));
    if facts.specs.is_empty() {
        text.push_str("Its log doesn't say what it captured.\n");
    }
    if facts.continues {
        text.push_str(
            "Its log was moved during the run: earlier dumps and warnings are in the previous file.\n",
        );
    }
    if let Some(age_s) = facts.counts_age_s {
        text.push_str(&format!(
            "Losses are reported within a second; its other counts are {age_s:.0} s old.\n"
        ));
    }
    text.push_str(&several(facts));
    if !found.iter().any(|finding| finding.loses) {
        text.push_str(nothing_lost(facts));
    }
    let mut part = "";
    for (at, finding) in found.iter().enumerate() {
        let next = match (finding.loses, finding.follows.is_empty()) {
            (true, true) => "Losses, the largest first:\n",
            (true, false) => "What follows from them:\n",
            (false, _) => "Worth knowing:\n",
        };
        if part != next {
            text.push_str(next);
            part = next;
        }
        let from: Vec<String> = (1..)
            .zip(found)
            .filter(|(_, other)| finding.follows.contains(&other.kind))
            .map(|(at, _)| at.to_string())
            .collect();
        let from = if from.is_empty() { String::new() } else { format!("; see {}", from.join(" and ")) };
        text.push_str(&format!("{}. {}{from}\n", at + 1, finding_words(finding)));
        for remedy in &finding.remedies {
            text.push_str(&format!("     - {remedy}\n"));
        }
    }
    text
}

fn finding_words(finding: &Finding) -> String {
    let lost = match (finding.lost_min, finding.lost_max) {
        (_, 0) => String::new(),
        (least, most) if least == most => format!("{} lost; ", counted(most, "packet")),
        (least, most) => format!("{} to {} lost; ", number(least), counted(most, "packet")),
    };
    format!("{} ({}): {lost}{}", finding.stage.name(), finding.sureness.name(), finding.cause)
}
