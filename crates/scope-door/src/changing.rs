//! Orders that change triggers: what is said here holds until the configuration is read again, or the run ends.

use crate::body::{Body, json};
use crate::firing::ordered;
use crate::state::State;
use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode};
use scope_api::client::encoded;
use scope_api::problem::Said;
use scope_api::trigger::Trigger;
use scope_api::{PREFIX, Problem};
use scope_engine::{Order, TriggerChange};
use scope_trigger::TriggerConfig;
use serde_json::json;
use std::sync::Arc;

/// A filter that is one for each link type: in the place of a script's file.
const ANY_FILTER: &str = "ip";

/// Adds a trigger, or puts it in the place of the one of its name.
///
/// # Errors
/// It can't be meant, or the order is refused.
pub(crate) async fn put(
    state: &Arc<State>,
    trigger: &Trigger,
    change: fn(Box<TriggerConfig>) -> TriggerChange,
) -> Result<Response<Body>, Problem> {
    let (read, mut words) = (state.read_trigger.clone(), trigger.clone());
    let script = scripted(state, trigger);
    if script.is_some() {
        words.filter = ANY_FILTER.to_string();
    }
    let meant = tokio::task::spawn_blocking(move || read(&words)).await;
    let meant = meant.map_err(|_| Problem::ended())?;
    let mut config =
        meant.map_err(|faults| in_words_of_body(Problem::of_faults(StatusCode::BAD_REQUEST, &faults)))?;
    let mut toml = trigger.toml();
    if let Some(script) = script {
        toml = toml.replacen("\nexpr = ", "\nscript = ", 1);
        config.condition = script.condition.clone();
        if trigger.dump.is_none() {
            config.response.script = script.response.script.clone();
        }
    }
    let change = change(Box::new(config));
    let is_new = matches!(change, TriggerChange::Add(_));
    ordered(state, Order::Trigger(change)).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut answer = json(status, &json!({"trigger": trigger.name, "toml": toml}));
    let location = HeaderValue::from_str(&format!("{PREFIX}/triggers/{}", encoded(&trigger.name)));
    answer.headers_mut().extend(location.map(|location| (LOCATION, location)));
    Ok(answer)
}

/// The trigger of this name, where a script fires it and these words leave it so: no script comes in a request, but the
/// times and modes of its trigger may.
fn scripted(state: &State, words: &Trigger) -> Option<TriggerConfig> {
    let published = state.now();
    let is = |config: &TriggerConfig| {
        config.name == words.name
            && config.condition.script().is_some_and(|script| script.file() == words.filter)
    };
    published.status.triggers.iter().map(|trigger| &trigger.config).find(|config| is(config)).cloned()
}

/// Removes a trigger; dumps that it has begun go on.
///
/// # Errors
/// There is none of that name, or the order is refused.
pub(crate) async fn remove(state: &Arc<State>, name: String) -> Result<Response<Body>, Problem> {
    ordered(state, Order::Trigger(TriggerChange::Remove(name.clone()))).await?;
    Ok(json(StatusCode::OK, &json!({"removed": name})))
}

/// Places of a configuration file, as the keys of a body.
fn in_words_of_body(problem: Problem) -> Problem {
    let place = |place: &str| match place.strip_prefix("trigger.").unwrap_or(place) {
        "expr" | "trigger" => "filter".to_string(),
        key => key.replace('-', "_"),
    };
    let faults = problem.faults.iter().map(|said| Said::new(place(&said.place), &*said.cause, &*said.remedy));
    Problem::of(problem.status, faults.collect())
}
