//! Orders to fire: by hand with a window and a filter of its own, or a trigger as if its condition held now.

use crate::body::{Body, json};
use crate::dumps::{Finished, RETRY_AFTER_S};
use crate::peer::Owner;
use crate::question::in_one_line;
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

/// The verdict on what belongs to an open dump.
pub(crate) const EXTENDED: &str = "extended";
/// How long somebody who waits for a dump is let wait without looking again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Who fires.
#[derive(Clone, Copy)]
pub(crate) struct Whose<'a> {
    pub identity: &'a str,
    /// Only so many of this one's dumps may be open at once.
    pub is_bounded: bool,
    /// Whose dump it is, where that one sees no others.
    pub owner: Option<&'a Owner>,
}

/// Fires by hand.
///
/// # Errors
/// The order can't be meant, or is refused.
pub(crate) async fn by_hand(
    state: &Arc<State>,
    fire: Fire,
    whose: Whose<'_>,
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
    let filter = in_one_line(fire.filter.as_deref().unwrap_or_default());
    let filter = filter.unwrap_or_else(|fault| {
        faults.push(fault.of_subject(Subject::setting("filter")));
        String::new()
    });
    let types = state.link_types();
    if let Err(error) = Filter::compile(&filter, state.vlan, &types) {
        let fault = error.fault().of_subject(Subject::setting("filter"));
        faults.push(match fault.remedy {
            Some(_) => fault,
            None => fault.remedy("write it in the language of tcpdump, e.g. udp port 53"),
        });
    }
    let bound = whose.owner.map(|owner| owner.filter.clone());
    if let Some(Err(error)) = bound.as_ref().map(|bound| Filter::compile(bound, state.vlan, &types)) {
        faults.push(error.fault().of_subject(Subject::Thing("wirescope-filter".to_string())));
    }
    if !faults.is_empty() {
        return Err(bad(&faults));
    }
    let own = OwnFire { filter, bound, before_ns, after_ns, note: fire.note.clone().unwrap_or_default() };
    fired(state, Which::Own(Box::new(own)), fire.wait, whose).await
}

/// Fires this trigger.
///
/// # Errors
/// There is none of that name, or the order is refused.
pub(crate) async fn trigger(
    state: &Arc<State>,
    name: String,
    fire: &Fire,
    whose: Whose<'_>,
) -> Result<Response<Body>, Problem> {
    if fire.filter.is_some() || fire.before.is_some() || fire.after.is_some() || fire.note.is_some() {
        let remedy = "send only wait, or fire by hand: POST /api/v1/fire";
        let cause = "a trigger has its own window and filter";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "body", cause, remedy));
    }
    fired(state, Which::Named(name), fire.wait, whose).await
}

/// Lets a trigger fire, or not.
///
/// # Errors
/// There is none of that name, or the order is refused.
pub(crate) async fn arm(state: &Arc<State>, trigger: String, armed: bool) -> Result<Response<Body>, Problem> {
    ordered(state, Order::Arm { trigger: trigger.clone(), armed }).await?;
    Ok(json(StatusCode::OK, &json!({"trigger": trigger, "armed": armed})))
}

/// Ends the window of an open dump.
///
/// # Errors
/// There is none of this number, or it is finished.
pub(crate) async fn end(state: &Arc<State>, id: &str) -> Result<Response<Body>, Problem> {
    if state.dumps.get(id, None)?.is_ok() {
        let remedy = format!("get its file: GET {PREFIX}/dumps/{id}/file");
        return Err(Problem::new(StatusCode::CONFLICT, "id", format!("dump {id} is finished"), remedy));
    }
    let number = id.parse().unwrap_or_default(); // it is one: there is a dump
    ordered(state, Order::EndDump(number)).await?;
    Ok(json(StatusCode::ACCEPTED, &json!({"dump": number, "ended": true})))
}

async fn fired(
    state: &Arc<State>,
    which: Which,
    waits: bool,
    whose: Whose<'_>,
) -> Result<Response<Body>, Problem> {
    let owner = whose.owner;
    // Whoever may do everything may have all places.
    let place = match whose.is_bounded {
        true => Some(state.dumps.reserve(whose.identity)?),
        false => None,
    };
    let reply = ordered(state, Order::Fire(which)).await?;
    let Reply::Fired(mut fired) = reply else {
        return Err(Problem::internal("run", "it gave another answer"));
    };
    let Some(Fired { trigger, verdict, dump }) = fired.pop() else {
        return Err(no_such_trigger("there is no such trigger"));
    };
    let Some(id) = dump else { return not_fired(&trigger, verdict) };
    if verdict != EXTENDED {
        state.dumps.begun(id, &trigger, owner, place);
    }
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
    if verdict == EXTENDED {
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
            Refusal::NotOpen(_) => {
                let remedy = "see GET /api/v1/dumps: one that is open has the state open";
                Problem::new(StatusCode::CONFLICT, "id", cause, remedy)
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
