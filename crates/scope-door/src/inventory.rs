//! The host's interfaces as they were before rights were given up, and where the run loses packets, as its log says.

use crate::body::{Body, json};
use crate::state::State;
use http::{Response, StatusCode};
use scope_api::Problem;
use scope_doctor::{Wanted, findings, log, printed, system};
use scope_events::{EVENTS_FILE, now_ns};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

/// So long an answer of the doctor holds: who asks meanwhile gets the same one.
const DOCTOR_HOLDS: Duration = Duration::from_secs(5);
/// A longer log isn't read here.
const LOG_BYTES_MAX: u64 = 512 << 20;

/// As `wirescope devices --json` said it at the start, with what was counted since of cards that are captured.
///
/// # Errors
/// Nothing was gathered.
pub(crate) fn devices(state: &State) -> Result<Response<Body>, Problem> {
    let unknown = |cause: &String| {
        let remedy = "ask at the host: wirescope devices --json";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "devices", cause, remedy)
    };
    let mut value = state.gathered.devices.clone().map_err(|cause| unknown(&cause))?;
    let published = state.now();
    for device in value["devices"].as_array_mut().into_iter().flatten() {
        let name = device["name"].as_str().unwrap_or_default();
        let counted = published.facts["nic"].get(name).cloned().unwrap_or_default();
        device["nic"] = counted;
    }
    value["age_s"] = age_s(state.gathered.at_ns);
    value["counters_age_s"] = if published.facts_ns == 0 { Value::Null } else { age_s(published.facts_ns) };
    Ok(json(StatusCode::OK, &value))
}

/// As `wirescope doctor --json` says it of this run.
///
/// # Errors
/// There is no log, or it can't be read.
pub(crate) async fn doctor(state: &Arc<State>) -> Result<Response<Body>, Problem> {
    let mut last = state.doctor.lock().await;
    let is_new = |at_ns: i64| (0..DOCTOR_HOLDS.as_nanos() as i64).contains(&(now_ns() - at_ns));
    let (at_ns, mut value) = match last.take().filter(|(at_ns, _)| is_new(*at_ns)) {
        Some(known) => known,
        None => (now_ns(), looked(state).await?),
    };
    *last = Some((at_ns, value.clone()));
    value["age_s"] = age_s(at_ns);
    Ok(json(StatusCode::OK, &value))
}

async fn looked(state: &Arc<State>) -> Result<Value, Problem> {
    let none = || {
        let remedy = "start the run with --out DIR";
        Problem::new(StatusCode::NOT_FOUND, "log", "this run has no log in a folder of its own", remedy)
    };
    let folder = state.folder.clone().ok_or_else(none)?;
    let run = state.run.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let file = folder.existing(OsStr::new(EVENTS_FILE), false);
        let bytes =
            file.ok().flatten().and_then(|file| Some(file.metadata().ok()?.len())).ok_or_else(none)?;
        if bytes > LOG_BYTES_MAX {
            let remedy = "rotate it, or ask at the host: wirescope doctor --out DIR";
            let cause = "the log is too long to be read here";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "log", cause, remedy));
        }
        let path = folder.path().join(EVENTS_FILE);
        let facts = log::read(&path, &Wanted { pid: None, run: Some(run) });
        let unread = |error: log::LogError| Problem::internal("log", error.to_string());
        let mut facts = facts.map_err(unread)?;
        system::look(&mut facts, &path);
        Ok(printed(&facts, &findings(&facts)))
    });
    looked.await.map_err(|_| Problem::ended())?
}

fn age_s(since_ns: i64) -> Value {
    json!((now_ns() - since_ns).max(0) as f64 / 1e9)
}
