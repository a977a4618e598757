//! Facts and findings as one JSON object, for programs.

use crate::facts::{Facts, OtherRun, State};
use crate::finding::Finding;
use serde_json::{Value, json};

/// All that was found.
pub fn printed(facts: &Facts, found: &[Finding]) -> Value {
    let state = match facts.state {
        State::Ended => "ended",
        State::EndedAtOnce => "ended_at_once",
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
            "follows": finding.follows,
            "lost_min": finding.lost_min,
            "lost_max": finding.lost_max,
            "cause": finding.cause,
            "remedies": finding.remedies,
        })
    };
    let other = |run: &OtherRun| {
        json!({
            "run_id": run.run_id,
            "began": run.began.map(|began| began.to_string()),
            "last_words": run.has_last_line,
            "beside": run.beside,
        })
    };
    json!({
        "sources": facts.specs,
        "run_id": facts.run_id,
        "began": facts.began.map(|began| began.to_string()),
        "runs": facts.runs,
        "newest": facts.newest,
        "other_runs": facts.other_runs.iter().map(other).collect::<Vec<_>>(),
        "state": state,
        "pid": facts.pid,
        "elapsed_s": facts.elapsed_s,
        "counts_age_s": facts.counts_age_s,
        "loses": found.iter().any(|finding| finding.loses),
        "findings": found.iter().map(finding).collect::<Vec<_>>(),
    })
}
