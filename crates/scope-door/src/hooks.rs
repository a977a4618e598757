//! Hooks: other programs tell of something, and a trigger fires. Labels of theirs, chosen by configuration, fill the
//! template of its dump filter; each must be what its name is, so that nothing of a hook is ever text of a filter.
//!
//! ```text
//! {"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "scan", "srcIP": "10.0.0.1"}}]}
//!     ─► trigger "scan", $srcIP = 10.0.0.1
//! ```
//! All of a body is looked at before anything fires: one bad value, and nothing does.

use crate::body::{Body, json};
use crate::firing::{EXTENDED, all_places_taken, ordered};
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
/// What helps where a body is none of those.
const OWN_BODY: &str =
    "this is for Alertmanager's own body: see webhook_config there, or use POST /api/v1/hooks/json/NAME";
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
            let remedy = "add this label, or name another one: --hook-trigger LABEL";
            let cause = "it is missing: it names the trigger that fires";
            faults.push(Said::new(place(&hooks.trigger_label), cause, remedy));
            continue;
        };
        let given = given(&hooks.labels, &place, &|label| alert.labels.get(label), &mut faults);
        let what = format!("alert {}", plain(trigger));
        let one = Told { trigger: trigger.to_string(), given, what };
        let place = place(&hooks.trigger_label);
        match knows(state, trigger) {
            true => faults.extend(unfit(state, &one, place)),
            false => {
                let cause = format!("there is no trigger '{}'", plain(trigger));
                faults.push(Said::new(place, cause, "see GET /api/v1/triggers"));
            }
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
        return Err(bad("body", "it is no object", r#"send e.g. {"srcIP": "10.0.0.1"}"#));
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

fn bad(place: &str, cause: &str, remedy: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, place, cause, remedy)
}

/// A foreign word for notes.
fn plain(word: &str) -> String {
    word.chars().filter(|letter| !letter.is_control()).take(LETTERS_MAX).collect()
}

/// The alerts of a body that fire, and how many are over.
pub(crate) fn alerts(body: &Value) -> Result<(Vec<Alert<'_>>, usize), Problem> {
    let Value::Object(object) = body else {
        return Err(bad("body", "it is no object", OWN_BODY));
    };
    if object.get("version").and_then(Value::as_str) != Some(VERSION) {
        return Err(bad("version", "it is missing, or not \"4\"", OWN_BODY));
    }
    let list = object.get("alerts").and_then(Value::as_array);
    let list = list.ok_or_else(|| bad("alerts", "it is missing, or no list", OWN_BODY))?;
    if list.len() > ALERTS_MAX {
        let cause = format!("there are {}, more than {ALERTS_MAX}", list.len());
        return Err(bad("alerts", &cause, &format!("set max_alerts: {ALERTS_MAX} in webhook_config")));
    }
    let (mut firing, mut resolved) = (Vec::new(), 0);
    for (at, alert) in list.iter().enumerate() {
        match alert["status"].as_str() {
            Some("firing") => {}
            Some("resolved") => {
                resolved += 1;
                continue;
            }
            _ => {
                let place = format!("alerts[{at}].status");
                return Err(bad(&place, "it is neither firing nor resolved", OWN_BODY));
            }
        }
        let labels = alert["labels"].as_object();
        let none = || bad(&format!("alerts[{at}].labels"), "it is missing, or no object", OWN_BODY);
        let labels = labels.ok_or_else(none)?;
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
                let remedy = "send it as text or number, or omit it";
                faults.push(Said::new(place(label), "it is neither text nor number", remedy));
                continue;
            }
        };
        if let Err(wrong) = given.set(*name, &text) {
            let remedy = "send such a value, or omit it; which label fills what, --hook-label says";
            faults.push(Said::new(place(label), wrong.to_string(), remedy));
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
    Some(Said::new(place, format!("the trigger's template needs {}", unfilled.name), remedy))
}

async fn fire(
    state: &Arc<State>,
    told: Vec<(Option<usize>, Told)>,
    faults: Vec<Said>,
    resolved: usize,
) -> Result<Response<Body>, Problem> {
    let unprocessable = |faults| Problem::of(StatusCode::UNPROCESSABLE_ENTITY, faults);
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
            return Err(Problem::internal("run", "it gave another answer"));
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
    let full = outcomes.iter().find(|outcome| outcome["verdict"] == "too_many").filter(|_| !any_began);
    if let Some(full) = full {
        return Err(all_places_taken(full["trigger"].as_str().unwrap_or_default()));
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
