//! Orders to fire: by hand with a window and a filter of its own, or a trigger as if its condition held now.

use crate::body::{Body, json};
use crate::dumps::Finished;
use crate::peer::Owner;
use crate::state::State;
use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode};
use scope_api::fire::Fire;
use scope_api::{PREFIX, Problem};
use scope_engine::control::{Fired, Unsent};
use scope_engine::{Order, OwnFire, Refusal, Reply, Which};
use scope_fault::{Fault, Subject};
use scope_filter::Filter;
use scope_spelling::values::parse_duration_ns;
use scope_trigger::DURATION_NS_MAX;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long somebody who waits for a dump is let wait without looking again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When it may be tried again where all places are taken.
const RETRY_AFTER_S: u64 = 1;

/// Fires by hand.
///
/// # Errors
/// The order can't be meant, or is refused.
pub(crate) async fn by_hand(
    state: &Arc<State>,
    fire: Fire,
    owner: Option<&Owner>,
) -> Result<Response<Body>, Problem> {
    let bad = |faults: &[Fault]| Problem::of_faults(StatusCode::BAD_REQUEST, faults);
    let mut faults = Vec::new();
    let mut duration = |key: &'static str, text: &Option<String>| {
        let text = text.as_ref()?;
        match parse_duration_ns(text) {
            Ok(ns) if ns <= DURATION_NS_MAX => return Some(ns),
            Ok(_) => faults.push(Fault::of(key).value(text, "is more than a year").remedy("write less")),
            Err(wrong) => {
                let fault = Fault::of(key).with_value(wrong.value).cause(wrong.cause);
                faults.push(fault.remedy("write e.g. 30s"));
            }
        }
        None
    };
    let before_ns = duration("before", &fire.before);
    let after_ns = duration("after", &fire.after).unwrap_or(0);
    let filter = fire.filter.clone().unwrap_or_default().replace(char::is_control, " ");
    let types = state.link_types();
    if let Err(error) = Filter::compile(&filter, state.vlan, &types) {
        let fault = error.fault().of_subject(Subject::setting("filter"));
        faults.push(match fault.remedy {
            Some(_) => fault,
            None => fault.remedy("write it in the language of tcpdump, e.g. udp port 53"),
        });
    }
    let bound = owner.map(|owner| owner.filter.clone());
    if let Some(Err(error)) = bound.as_ref().map(|bound| Filter::compile(bound, state.vlan, &types)) {
        faults.push(error.fault().of_subject(Subject::Thing("wirescope-filter".to_string())));
    }
    if !faults.is_empty() {
        return Err(bad(&faults));
    }
    let own = OwnFire { filter, bound, before_ns, after_ns, note: fire.note.clone().unwrap_or_default() };
    fired(state, Which::Own(Box::new(own)), fire.wait, owner).await
}

/// Fires this trigger.
///
/// # Errors
/// There is none of that name, or the order is refused.
pub(crate) async fn trigger(
    state: &Arc<State>,
    name: String,
    fire: &Fire,
) -> Result<Response<Body>, Problem> {
    if fire.filter.is_some() || fire.before.is_some() || fire.after.is_some() || fire.note.is_some() {
        let remedy = "send only wait, or fire by hand: POST /api/v1/fire";
        let cause = "a trigger has its own window and filter";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "body", cause, remedy));
    }
    fired(state, Which::Named(name), fire.wait, None).await
}

/// Lets a trigger fire, or not.
///
/// # Errors
/// There is none of that name, or the order is refused.
pub(crate) async fn arm(state: &Arc<State>, trigger: String, armed: bool) -> Result<Response<Body>, Problem> {
    ordered(state, Order::Arm { trigger: trigger.clone(), armed }).await?;
    Ok(json(StatusCode::OK, &json!({"trigger": trigger, "armed": armed})))
}

async fn fired(
    state: &Arc<State>,
    which: Which,
    waits: bool,
    owner: Option<&Owner>,
) -> Result<Response<Body>, Problem> {
    let reply = ordered(state, Order::Fire(which)).await?;
    let Reply::Fired(mut fired) = reply else {
        return Err(Problem::internal("run", "it gave another answer"));
    };
    let Some(Fired { trigger, verdict, dump }) = fired.pop() else {
        return Err(no_such_trigger("there is no such trigger"));
    };
    let Some(id) = dump else { return not_fired(&trigger, verdict) };
    state.dumps.begun(id, &trigger, owner);
    let location = HeaderValue::from_str(&format!("{PREFIX}/dumps/{id}"));
    let mut answer = match waits {
        false => json(StatusCode::ACCEPTED, &json!({"dump": id, "trigger": trigger, "verdict": verdict})),
        true => json(StatusCode::OK, &finished(state, id).await?.shown(owner)),
    };
    answer.headers_mut().extend(location.map(|location| (LOCATION, location)));
    Ok(answer)
}

/// The refusal of a trigger that the run doesn't have.
pub(crate) fn no_such_trigger(cause: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "name", cause, "see GET /api/v1/triggers")
}

/// What an occurrence came to that began no dump.
fn not_fired(trigger: &str, verdict: &str) -> Result<Response<Body>, Problem> {
    if verdict == "extended" {
        return Ok(json(
            StatusCode::ACCEPTED,
            &json!({"dump": null, "trigger": trigger, "verdict": verdict}),
        ));
    }
    let (status, cause, remedy) = match verdict {
        "too_many" => return Err(all_places_taken(trigger)),
        "no_space" => (
            StatusCode::INSUFFICIENT_STORAGE,
            "there is no room for the dump",
            "delete dumps: DELETE /api/v1/dumps/ID, or give them a larger --dump-budget",
        ),
        "disarmed" => (
            StatusCode::CONFLICT,
            "it is disarmed, or the run has the dumps that it is to end after",
            "arm it: POST /api/v1/triggers/NAME/arm, or fire by hand: POST /api/v1/fire",
        ),
        "held_off" => (
            StatusCode::CONFLICT,
            "its holdoff isn't over",
            "wait for that, or fire by hand: POST /api/v1/fire",
        ),
        _ => (StatusCode::CONFLICT, "it began no dump", "fire by hand: POST /api/v1/fire"),
    };
    Err(Problem::new(status, "trigger", format!("{trigger}: {verdict}: {cause}"), remedy))
}

/// The refusal where as many dumps are open as there may be.
pub(crate) fn all_places_taken(trigger: &str) -> Problem {
    let cause = format!("{trigger}: too_many: all places for dumps are taken");
    let remedy = "ask again when one is finished: GET /api/v1/dumps";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "trigger", cause, remedy).retry_after(RETRY_AFTER_S)
}

/// Sends an order, and waits for what comes of it.
///
/// # Errors
/// It isn't obeyed.
pub(crate) async fn ordered(state: &Arc<State>, order: Order) -> Result<Reply, Problem> {
    let control = state.control.clone();
    let sent = tokio::task::spawn_blocking(move || match control.send(order) {
        Ok(answer) => answer.wait(),
        Err(Unsent { refusal, .. }) => Err(refusal),
    });
    let reply = sent.await.map_err(|_| Problem::ended())?;
    reply.map_err(|refusal| {
        let cause = refusal.to_string();
        match refusal {
            Refusal::Busy => {
                let remedy = "ask again in a second";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "run", cause, remedy).retry_after(RETRY_AFTER_S)
            }
            Refusal::Ended => Problem::ended(),
            Refusal::TriggerExists(_) => {
                let remedy = "choose another name, or change that one: PUT /api/v1/triggers/NAME";
                Problem::new(StatusCode::CONFLICT, "name", cause, remedy)
            }
            Refusal::NoSuchTrigger(_) => no_such_trigger(&cause),
            Refusal::Faults(faults) => Problem::of_faults(StatusCode::BAD_REQUEST, &faults),
        }
    })
}

/// Waits for the end of a dump. It has one: a dump ends with its window, or with the run.
async fn finished(state: &Arc<State>, id: u64) -> Result<Finished, Problem> {
    loop {
        let changed = state.changed.notified();
        if let Some(dump) = state.dumps.get_finished(id) {
            return Ok(dump);
        }
        if state.is_over() {
            let remedy = "look for it in the log, wirescope.jsonl";
            let cause = format!("the run ended without dump {id}");
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "run", cause, remedy));
        }
        let _ = tokio::time::timeout(LOOK_EVERY, changed).await;
    }
}
