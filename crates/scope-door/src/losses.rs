//! What was lost, second by second: by source or volume, and by reason; asked for in steps.
//!
//! For example 12 packets that the kernel dropped on eth0 between two looks at 14:03:07 and 14:03:08 stand in the step in
//! which 14:03:08 lies. The newest 10,000 such changes are kept.

use http::StatusCode;
use jiff::tz::TimeZone;
use scope_api::Problem;
use scope_api::parameters::once;
use scope_api::routes::Action;
use scope_spelling::moment::Here;
use scope_spelling::time::iso;
use scope_spelling::values::parse_duration_ns;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Changes that are kept, and steps of an answer, at most.
const CHANGES_MAX: usize = 10_000;
const STEPS_MAX: i64 = 10_000;

/// Of whom, and why.
type Kind = (String, String);

/// What was lost of a run.
#[derive(Default)]
pub(crate) struct Losses(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    totals: BTreeMap<Kind, u64>,
    changes: VecDeque<(i64, Kind, u64)>,
    began_ns: Option<i64>,
    /// Changes up to then may be forgotten.
    known_from_ns: i64,
}

impl Losses {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the facts of a status line.
    pub(crate) fn look(&self, facts: &Value, now_ns: i64) {
        let mut kept = self.lock();
        let began_ns = *kept.began_ns.get_or_insert(now_ns);
        kept.known_from_ns = kept.known_from_ns.max(began_ns);
        for (kind, total) in totals(facts) {
            let before = kept.totals.insert(kind.clone(), total).unwrap_or(0);
            if total > before {
                kept.changes.push_back((now_ns, kind, total - before));
            }
        }
        while kept.changes.len() > CHANGES_MAX {
            let Some((time_ns, ..)) = kept.changes.pop_front() else { break };
            kept.known_from_ns = kept.known_from_ns.max(time_ns);
        }
    }

    /// In steps, for these parameters of a query: `from`, `to`, `step`.
    ///
    /// # Errors
    /// One of them can't be meant.
    pub(crate) fn steps(&self, query: &[(String, String)], now_ns: i64) -> Result<Value, Problem> {
        let bad = |key: &str, cause: String, remedy: String| {
            Problem::new(StatusCode::BAD_REQUEST, key, cause, remedy)
        };
        let here = Here { now_ns, zone: TimeZone::UTC };
        let kept = self.lock();
        let (mut from_ns, mut to_ns, mut step_ns) = (kept.began_ns.unwrap_or(now_ns), now_ns, None);
        for (key, value) in once(Action::Losses, query)? {
            let time = || {
                here.read(value)
                    .map(|moment| moment.time_ns)
                    .map_err(|wrong| bad(key, wrong.cause, wrong.remedy))
            };
            match key {
                "from" => from_ns = time()?,
                "to" => to_ns = time()?,
                _ => match parse_duration_ns(value) {
                    Ok(ns @ 1..) => step_ns = Some(ns),
                    _ => {
                        return Err(bad(key, format!("'{value}' is no length"), "write e.g. 1m".to_string()));
                    }
                },
            }
        }
        if to_ns < from_ns {
            return Err(bad(
                "to",
                "the span ends before it begins".to_string(),
                "exchange it with from".to_string(),
            ));
        }
        let step_ns = step_ns.unwrap_or(to_ns - from_ns + 1).max(1);
        let count = (to_ns - from_ns) / step_ns + 1;
        if count > STEPS_MAX {
            let cause = format!("{count} steps are more than {STEPS_MAX}");
            return Err(bad("step", cause, "lengthen it, or shorten the span".to_string()));
        }
        let mut steps: Vec<BTreeMap<&Kind, u64>> = vec![BTreeMap::new(); count as usize];
        for (time_ns, kind, packets) in
            kept.changes.iter().filter(|change| (from_ns..=to_ns).contains(&change.0))
        {
            *steps[((time_ns - from_ns) / step_ns) as usize].entry(kind).or_default() += packets;
        }
        let lost =
            |((of, reason), packets): (&Kind, u64)| json!({"of": of, "reason": reason, "packets": packets});
        let step = |(at, step): (usize, BTreeMap<&Kind, u64>)| {
            let begin_ns = from_ns + at as i64 * step_ns;
            json!({"from": iso(begin_ns), "lost": step.into_iter().map(lost).collect::<Vec<_>>()})
        };
        let steps: Vec<Value> = steps.into_iter().enumerate().map(step).collect();
        let known_from = iso(kept.known_from_ns.max(0));
        Ok(
            json!({"from": iso(from_ns), "to": iso(to_ns), "step_ns": step_ns, "known_from": known_from, "steps": steps}),
        )
    }
}

/// What was lost so far.
fn totals(facts: &Value) -> Vec<(Kind, u64)> {
    let mut totals = Vec::new();
    let mut add = |of: &str, reason: &str, packets: &Value| {
        totals.push(((of.to_string(), reason.to_string()), packets.as_u64().unwrap_or(0)));
    };
    let list = |key: &str| facts[key].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut by_source: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for source in list("sources") {
        let (kernel, unreadable) = by_source.entry(text(&source["source"])).or_default();
        *kernel += source["kernel_dropped"].as_u64().unwrap_or(0);
        *unreadable += source["unreadable"].as_u64().unwrap_or(0);
    }
    for (source, (kernel, unreadable)) in by_source {
        add(&source, "kernel", &json!(kernel));
        add(&source, "unreadable", &json!(unreadable));
    }
    // What workers dropped isn't counted by source.
    for (reason, packets) in
        facts["dropped"].as_object().into_iter().flatten().filter(|(reason, _)| *reason != "kernel")
    {
        add("", reason, packets);
    }
    for store in list("stores") {
        add(&text(&store["path"]), "not_stored", &store["missed"]["packets"]);
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn facts(kernel: u64, pinned: u64) -> Value {
        json!({
            "sources": [{"source": "a", "kernel_dropped": kernel}, {"source": "a", "kernel_dropped": 1}],
            "dropped": {"kernel": kernel + 1, "ring_pinned": pinned},
            "stores": [{"path": "/s", "missed": {"packets": 0}}],
        })
    }

    fn query(words: &[(&str, &str)]) -> Vec<(String, String)> {
        words.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn losses_stand_in_the_step_of_their_second_and_add_up() {
        let losses = Losses::default();
        for (second, kernel, pinned) in [(100, 0, 0), (101, 10, 0), (102, 10, 5), (110, 12, 5)] {
            losses.look(&facts(kernel, pinned), second * S);
        }
        let ask = |words: &[(&str, &str)]| losses.steps(&query(words), 120 * S).unwrap();
        let whole = ask(&[]);
        let lost = |of, reason, packets: u64| json!({"of": of, "reason": reason, "packets": packets});
        assert_eq!(whole["steps"][0]["lost"], json!([lost("", "ring_pinned", 5), lost("a", "kernel", 13)]));
        let steps = ask(&[("from", "@100"), ("to", "@119"), ("step", "2s")]);
        let list = steps["steps"].as_array().unwrap();
        assert_eq!(list.len(), 10);
        assert_eq!(list[0]["lost"], json!([lost("a", "kernel", 11)]));
        assert_eq!(list[1]["lost"], json!([lost("", "ring_pinned", 5)]));
        assert_eq!(list[5], json!({"from": iso(110 * S), "lost": [lost("a", "kernel", 2)]}));
        assert_eq!(list[9]["lost"], json!([]));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let losses = Losses::default();
        losses.look(&facts(0, 0), 100 * S);
        for words in [
            [("from", "soon")].as_slice(),
            &[("step", "0s")],
            &[("step", "-1s")],
            &[("what", "x")],
            &[("from", "@110"), ("to", "@100")],
            &[("from", "@0"), ("step", "1ms")],
        ] {
            assert!(losses.steps(&query(words), 120 * S).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_and_that_is_said() {
        let losses = Losses::default();
        for second in 1..=CHANGES_MAX as u64 + 100 {
            losses.look(&facts(second, 0), second as i64 * S);
        }
        let answer = losses.steps(&[], 20_000 * S).unwrap();
        assert_eq!(answer["known_from"], iso(100 * S));
    }
}
