//! `wirescope doctor`: findings about a run in plain words, or for programs.

use crate::args::DoctorArgs;
use crate::words::{counted, number, span};
use crate::{Fault, REFUSED, UNDONE, told};
use scope_engine::doctor::{self, Facts, Finding, State, log, system};
use scope_engine::events::EVENTS_FILE;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Looks and tells. Exit codes: 0 nothing is lost, 1 losses were found, 2 it can't look.
pub fn doctor(args: &DoctorArgs) -> u8 {
    let (facts, found) = match look(args) {
        Ok(looked) => looked,
        Err(fault) => return told(Err(Fault::Refused(vec![fault]))),
    };
    let lost = found.iter().any(|finding| finding.loses);
    let text = if args.json { format!("{}\n", object(&facts, &found)) } else { words(&facts, &found) };
    match told(Ok(text)) {
        0 if lost => UNDONE,
        0 => 0,
        _ => REFUSED,
    }
}

fn look(args: &DoctorArgs) -> Result<(Facts, Vec<Finding>), String> {
    let (path, pid) = place(args)?;
    let mut facts = log::read(&path, pid).map_err(|error| error.to_string())?;
    system::look(&mut facts, &path);
    let found = doctor::findings(&facts);
    Ok((facts, found))
}

/// The log to read, and of which process.
fn place(args: &DoctorArgs) -> Result<(PathBuf, Option<u64>), String> {
    match (&args.out, &args.log, &args.pid) {
        (Some(folder), ..) => Ok((folder.join(EVENTS_FILE), None)),
        (_, Some(file), _) => Ok((file.clone(), None)),
        (.., Some(text)) => {
            let pid = text
                .parse()
                .map_err(|_| format!("--pid: '{text}' is no number of a process; find it with: pgrep -a wirescope"))?;
            Ok((system::log_of(pid)?, Some(pid)))
        }
        _ => Err("which run? give its folder with --out, its log with --log, or its process with --pid".to_string()),
    }
}

fn state(facts: &Facts) -> String {
    let process = facts.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
    match facts.state {
        State::Ended => "has ended".to_string(),
        State::Running => format!("is running{process}"),
        State::Stopped => format!("is stopped{process}"),
        State::Dead => format!("died{process}"),
        State::Unknown => "wrote no last line; whether it still runs isn't known".to_string(),
    }
}

fn words(facts: &Facts, found: &[Finding]) -> String {
    let told_ns = (facts.elapsed_s * 1e9) as i64;
    let told = if told_ns > 0 { format!("; {} are told in its log", span(told_ns)) } else { String::new() };
    let mut text = format!("The run on {} {}{told}.\n", facts.specs.join(" "), state(facts));
    if facts.continues {
        text.push_str("Its log was moved meanwhile: dumps and warnings of before are in the file before this one.\n");
    }
    let losses = found.iter().filter(|finding| finding.loses).count();
    text.push_str(match losses {
        0 => "Nothing is lost.\n",
        _ => "What is lost, the most first:\n",
    });
    for (at, finding) in found.iter().enumerate() {
        if at == losses {
            text.push_str("Worth knowing:\n");
        }
        text.push_str(&format!("{}. {}\n", at + 1, finding_words(finding)));
        finding.remedies.iter().for_each(|remedy| text.push_str(&format!("     - {remedy}\n")));
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

fn object(facts: &Facts, found: &[Finding]) -> Value {
    let state = match facts.state {
        State::Ended => "ended",
        State::Running => "running",
        State::Stopped => "stopped",
        State::Dead => "dead",
        State::Unknown => "unknown",
    };
    let finding = |finding: &Finding| {
        json!({
            "kind": finding.kind,
            "stage": finding.stage.name(),
            "sureness": finding.sureness.name(),
            "loses": finding.loses,
            "lost_min": finding.lost_min,
            "lost_max": finding.lost_max,
            "cause": finding.cause,
            "remedies": finding.remedies,
        })
    };
    json!({
        "sources": facts.specs,
        "state": state,
        "pid": facts.pid,
        "elapsed_s": facts.elapsed_s,
        "loses": found.iter().any(|finding| finding.loses),
        "findings": found.iter().map(finding).collect::<Vec<_>>(),
    })
}
