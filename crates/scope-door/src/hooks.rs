//! Hooks: other programs tell of something, and a trigger fires. Labels of theirs, chosen by configuration, fill the
//! template of its dump filter; each must be what its name is, so that nothing of a hook is ever text of a filter.
//!
//! ```text
//! {"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "scan", "srcIP": "10.0.0.1"}}]}
//!     ─► trigger "scan", $srcIP = 10.0.0.1
//! ```
//! All of a body is looked at before anything fires: one bad value, and nothing does.

use crate::body::{Body, json};
use crate::firing::{EXTENDED, RETRY_AFTER_S, ordered};
use crate::state::State;
use http::{Response, StatusCode};
use scope_api::Problem;
use scope_api::problem::Said;
use scope_engine::control::{Fired, Told};
use scope_engine::{Order, Reply, Which};
use scope_filter::{Given, GivenName};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The version of Alertmanager's body.
const VERSION: &str = "4";
/// Alerts of one body.
const ALERTS_MAX: usize = 64;
/// Letters of a name that get into notes and dumps.
const LETTERS_MAX: usize = 100;

/// One alert of a body.
pub(crate) struct Alert<'a> {
    /// Its place in the list.
    at: usize,
    pub labels: &'a Map<String, Value>,
}

/// Alertmanager's webhook: each alert that fires fires the trigger that its label names.
///
/// # Errors
/// The body is none of Alertmanager's, a value isn't what its name is, or an order is refused.
pub(crate) async fn alertmanager(state: &Arc<State>, body: &Value) -> Result<Response<Body>, Problem> {
    let (alerts, resolved) = alerts(body)?;
    let mut faults = Vec::new();
    let mut told = Vec::new();
    for alert in &alerts {
        let place = |label: &str| format!("alerts[{}].labels.{label}", alert.at);
        let hooks = &state.hooks;
        let Some(trigger) = alert.labels.get(&hooks.trigger_label).and_then(Value::as_str) else {
            faults.push(said(place(&hooks.trigger_label), "it is missing: it names the trigger that fires"));
            continue;
        };
        let given = given(&hooks.labels, &place, &|label| alert.labels.get(label), &mut faults);
        let what = format!("alert {}", plain(trigger));
        let one = Told { trigger: trigger.to_string(), given, what };
        let place = place(&hooks.trigger_label);
        match knows(state, trigger) {
            true => faults.extend(unfit(state, &one, place)),
            false => faults.push(said(place, format!("there is no trigger '{}'", plain(trigger)))),
        }
        told.push((Some(alert.at), one));
    }
    fire(state, told, faults, resolved).await
}

/// Any program's JSON object: this trigger fires.
///
/// # Errors
/// The body is no object, a value isn't what its name is, or the order is refused.
pub(crate) async fn json_object(
    state: &Arc<State>,
    trigger: String,
    body: &Value,
) -> Result<Response<Body>, Problem> {
    let Value::Object(object) = body else {
        return Err(bad("body", "it is no object").remedy(r#"send e.g. {"srcIP": "10.0.0.1"}"#));
    };
    let value = |label: &str| match label.starts_with('/') {
        true => body.pointer(label),
        false => object.get(label),
    };
    let mut faults = Vec::new();
    let given = given(&state.hooks.labels, &str::to_string, &value, &mut faults);
    let told = Told { trigger, given, what: "JSON".to_string() };
    faults.extend(unfit(state, &told, "name".to_string()));
    fire(state, vec![(None, told)], faults, 0).await
}

fn bad(place: &str, cause: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, cause).at(place)
}

fn said(place: String, cause: impl Into<String>) -> Said {
    Said { place, cause: cause.into(), remedy: String::new() }
}

/// A foreign word for notes.
fn plain(word: &str) -> String {
    word.chars().filter(|letter| !letter.is_control()).take(LETTERS_MAX).collect()
}

/// The alerts of a body that fire, and how many are over.
pub(crate) fn alerts(body: &Value) -> Result<(Vec<Alert<'_>>, usize), Problem> {
    let Value::Object(object) = body else {
        return Err(bad("body", "it is no object").remedy("see webhook_config of Alertmanager"));
    };
    if object.get("version").and_then(Value::as_str) != Some(VERSION) {
        return Err(
            bad("version", "it is missing, or not \"4\"").remedy("this is for Alertmanager's own body")
        );
    }
    let list = object.get("alerts").and_then(Value::as_array);
    let list = list.ok_or_else(|| bad("alerts", "it is missing, or no list"))?;
    if list.len() > ALERTS_MAX {
        let problem = bad("alerts", &format!("there are {}, more than {ALERTS_MAX}", list.len()));
        return Err(problem.remedy(format!("set max_alerts: {ALERTS_MAX} in webhook_config")));
    }
    let (mut firing, mut resolved) = (Vec::new(), 0);
    for (at, alert) in list.iter().enumerate() {
        match alert["status"].as_str() {
            Some("firing") => {}
            Some("resolved") => {
                resolved += 1;
                continue;
            }
            _ => return Err(bad(&format!("alerts[{at}].status"), "it is neither firing nor resolved")),
        }
        let labels = alert["labels"].as_object();
        let labels =
            labels.ok_or_else(|| bad(&format!("alerts[{at}].labels"), "it is missing, or no object"))?;
        firing.push(Alert { at, labels });
    }
    Ok((firing, resolved))
}

/// The values of the chosen labels, as far as they are there.
pub(crate) fn given<'a>(
    labels: &[(GivenName, String)],
    place: &dyn Fn(&str) -> String,
    value: &dyn Fn(&str) -> Option<&'a Value>,
    faults: &mut Vec<Said>,
) -> Given {
    let mut given = Given::default();
    for (name, label) in labels {
        let text = match value(label) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => {
                faults.push(said(place(label), "it is neither text nor number"));
                continue;
            }
        };
        if let Err(wrong) = given.set(*name, &text) {
            faults.push(said(place(label), wrong.to_string()));
        }
    }
    given
}

/// Whether the run has this trigger, as far as that is known.
fn knows(state: &State, trigger: &str) -> bool {
    let triggers = &state.now().status.triggers;
    triggers.is_empty() || triggers.iter().any(|known| known.config.name == trigger)
}

/// Why this can't fire, as far as that is known: its template needs more.
fn unfit(state: &State, told: &Told, place: String) -> Option<Said> {
    let triggers = &state.now().status.triggers;
    let trigger = triggers.iter().find(|known| known.config.name == told.trigger)?;
    let unfilled = trigger.config.response.template.as_ref()?.fill_given(&told.given).err()?;
    let remedy = format!("give {}, or give the template a fallback: TEMPLATE ?: FALLBACK", unfilled.name);
    Some(Said { remedy, ..said(place, format!("the trigger's template needs {}", unfilled.name)) })
}

async fn fire(
    state: &Arc<State>,
    told: Vec<(Option<usize>, Told)>,
    faults: Vec<Said>,
    resolved: usize,
) -> Result<Response<Body>, Problem> {
    let unprocessable = |faults| Problem { faults, ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "") };
    if !faults.is_empty() {
        return Err(unprocessable(faults));
    }
    let (mut outcomes, mut any_began) = (Vec::new(), false);
    for (alert, told) in told {
        let reply = ordered(state, Order::Fire(Which::Told(told))).await.map_err(|problem| {
            match problem.status {
                // What was asked is JSON as it should be, but its values don't fit.
                StatusCode::BAD_REQUEST => unprocessable(problem.faults),
                _ => problem,
            }
        })?;
        let Reply::Fired(fired) = reply else {
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the run gave another answer"));
        };
        for Fired { trigger, verdict, dump } in fired {
            let begun = dump.filter(|_| verdict != EXTENDED);
            begun.iter().for_each(|id| state.dumps.begun(*id, &trigger, None, None));
            any_began |= begun.is_some();
            let mut outcome = json!({"trigger": trigger, "verdict": verdict, "dump": dump});
            if let Some(at) = alert {
                outcome["alert"] = json!(at);
            }
            outcomes.push(outcome);
        }
    }
    if !any_began && outcomes.iter().any(|outcome| outcome["verdict"] == "too_many") {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "all places for dumps are taken");
        return Err(Problem { retry_after_s: Some(RETRY_AFTER_S), ..problem });
    }
    Ok(json(StatusCode::ACCEPTED, &json!({"fired": outcomes, "resolved": resolved})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_alertmanagers_own_body_is_taken_and_what_is_over_is_counted() {
        let firing = json!({"status": "firing", "labels": {"alertname": "a"}});
        let over = json!({"status": "resolved", "labels": {}});
        let body = json!({"version": "4", "alerts": [over, firing], "groupKey": "x", "receiver": "y"});
        let (found, resolved) = alerts(&body).unwrap();
        assert_eq!((found.len(), found[0].at, resolved), (1, 1, 1));
        for (body, told) in [
            (json!(null), "body: it is no object"),
            (json!({"alerts": []}), "version: it is missing, or not \"4\""),
            (json!({"version": 4, "alerts": []}), "version: it is missing, or not \"4\""),
            (json!({"version": "4"}), "alerts: it is missing, or no list"),
            (json!({"version": "4", "alerts": [7]}), "alerts[0].status: it is neither firing nor resolved"),
            (
                json!({"version": "4", "alerts": [{"status": "firing"}]}),
                "alerts[0].labels: it is missing, or no object",
            ),
            (json!({"version": "4", "alerts": vec![firing; 65]}), "alerts: there are 65, more than 64"),
        ] {
            assert_eq!(alerts(&body).err().unwrap().to_string(), told);
        }
    }

    #[test]
    fn chosen_labels_are_values_of_their_names_and_no_other_is_looked_at() {
        let name = |name: &str| GivenName::of(name).unwrap();
        let labels = [(name("srcIP"), "/from/ip".to_string()), (name("dstPort"), "port".to_string())];
        let of = |body: &Value| {
            let mut faults = Vec::new();
            let value = |label: &str| body.pointer(label).or_else(|| body.get(label));
            let given = given(&labels, &str::to_string, &value, &mut faults);
            (given, faults.iter().map(|said| format!("{}: {}", said.place, said.cause)).collect::<Vec<_>>())
        };
        let mut expected = Given::default();
        expected.set(name("srcIP"), "10.0.0.1").unwrap();
        expected.set(name("dstPort"), "80").unwrap();
        let body = json!({"from": {"ip": "10.0.0.1"}, "port": 80, "srcIP": "or", "vlan": {"a": 1}});
        assert_eq!(of(&body), (expected, vec![]));
        assert_eq!(of(&json!({"port": null})), (Given::default(), vec![]));
        let (_, faults) = of(&json!({"from": {"ip": "10.0.0.1 or udp"}, "port": [80]}));
        let address = "/from/ip: it is no value of $srcIP, which is an IPv4 or IPv6 address";
        assert_eq!(faults, [address, "port: it is neither text nor number"]);
    }
}
