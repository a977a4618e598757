//! Holds of the run's store: spans that are kept whatever its bounds. One of several volumes is added to each of them, and is
//! known by its number in the first.

use crate::body::{Body, json};
use crate::state::State;
use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode};
use jiff::tz::TimeZone;
use scope_api::{PREFIX, Problem};
use scope_events::now_ns;
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::moment::Here;
use scope_spelling::time::iso;
use scope_store::hold::Hold;
use scope_store::unread::unread;
use scope_store::volume::Store;
use serde_json::{Value, json};
use std::sync::Arc;

/// A hold, with the volumes that have it and its number in each.
struct Held {
    hold: Hold,
    volumes: Vec<(usize, u64)>,
}

/// All holds.
///
/// # Errors
/// A volume's can't be read.
pub(crate) async fn list(state: &Arc<State>) -> Result<Response<Body>, Problem> {
    let held = in_thread(state, |volumes| held(&open(volumes)?)).await?;
    Ok(json(StatusCode::OK, &json!({"holds": held.iter().map(object).collect::<Vec<_>>()})))
}

/// Holds a span in each volume.
///
/// # Errors
/// It can't be meant, or a volume doesn't take it; those in front of it may have it.
pub(crate) async fn add(state: &Arc<State>, body: &Value) -> Result<Response<Body>, Problem> {
    let (from_ns, to_ns, note) = span(body)?;
    let held = in_thread(state, move |volumes| {
        let stores = open(volumes)?;
        let made_ns = now_ns();
        let mut added: Option<Held> = None;
        for (at, store) in stores.iter().enumerate() {
            let hold = store.change_holds(|holds| holds.add(from_ns, to_ns, &note, made_ns).cloned())?;
            let place = (at, hold.id);
            added.get_or_insert(Held { hold, volumes: Vec::new() }).volumes.push(place);
        }
        added.ok_or_else(|| {
            Fault::of("store").cause("this run has no store").remedy("start it with --store DIR")
        })
    });
    let held = held.await?;
    let mut answer = json(StatusCode::CREATED, &object(&held));
    let location = HeaderValue::from_str(&format!("{PREFIX}/holds/{}", held.hold.id));
    answer.headers_mut().extend(location.map(|location| (LOCATION, location)));
    Ok(answer)
}

/// Lets a span go again, in each volume that has it.
///
/// # Errors
/// There is no such hold.
pub(crate) async fn remove(state: &Arc<State>, id: String) -> Result<Response<Body>, Problem> {
    let none = |id: &str| {
        let cause = format!("there is no hold '{id}'");
        Problem::new(StatusCode::NOT_FOUND, "id", cause, "see GET /api/v1/holds")
    };
    let Ok(number) = id.parse::<u64>() else { return Err(none(&id)) };
    let removed = in_thread(state, move |volumes| {
        let stores = open(volumes)?;
        let Some(held) = held(&stores)?.into_iter().find(|held| held.hold.id == number) else {
            return Ok(None);
        };
        for &(at, id) in &held.volumes {
            stores[at].change_holds(|holds| holds.remove(id))?;
        }
        Ok(Some(held))
    });
    match removed.await? {
        Some(held) => Ok(json(StatusCode::OK, &json!({"removed": object(&held)}))),
        None => Err(none(&id)),
    }
}

/// What a body says: both ends, and what it is for.
pub(crate) fn span(body: &Value) -> Result<(i64, i64, String), Problem> {
    let bad =
        |place: &str, cause: &str, remedy: &str| Problem::new(StatusCode::BAD_REQUEST, place, cause, remedy);
    let Value::Object(object) = body else {
        let remedy = r#"write e.g. {"from": "-1h", "to": "now", "note": "why"}"#;
        return Err(bad("body", "it is no object", remedy));
    };
    if let Some(key) = object.keys().find(|key| !["from", "to", "note"].contains(&key.as_str())) {
        return Err(bad(key, "there is no such key", "there are: from, to, note"));
    }
    let here = Here { now_ns: now_ns(), zone: TimeZone::UTC };
    let time = |key: &str| {
        let missing = || bad(key, "it is missing, or no text", "write a time, such as \"-1h\"");
        let text = object.get(key).and_then(Value::as_str).ok_or_else(missing)?;
        let read = here.read(text).map(|moment| moment.time_ns);
        read.map_err(|wrong| bad(key, &wrong.cause, &wrong.remedy))
    };
    let note = match object.get("note") {
        None => String::new(),
        Some(note) => {
            let no_text = || bad("note", "it is no text", "put it into quotation marks");
            note.as_str().ok_or_else(no_text)?.to_string()
        }
    };
    Ok((time("from")?, time("to")?, note))
}

/// Does something with the run's volumes where it may wait.
async fn in_thread<T: Send + 'static>(
    state: &Arc<State>,
    work: impl FnOnce(&[Arc<Folder>]) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Problem> {
    let volumes = state.volumes.clone();
    let done = tokio::task::spawn_blocking(move || work(&volumes)).await;
    let done = done.map_err(|_| Problem::ended())?;
    done.map_err(|fault| Problem::of_faults(StatusCode::BAD_REQUEST, &[fault]))
}

fn open(volumes: &[Arc<Folder>]) -> Result<Vec<Store>, Fault> {
    let open = |folder: &Arc<Folder>| {
        let again = folder.again().map_err(|error| unread(folder.path(), &error))?;
        Store::of(again)
    };
    volumes.iter().map(open).collect()
}

/// The holds of all volumes; those that say the same are one.
fn held(stores: &[Store]) -> Result<Vec<Held>, Fault> {
    let mut all: Vec<Held> = Vec::new();
    let key = |hold: &Hold| (hold.from_ns, hold.to_ns, hold.made_ns, hold.note.clone());
    for (at, store) in stores.iter().enumerate() {
        for hold in store.holds()?.list() {
            let same = all
                .iter_mut()
                .find(|held| key(&held.hold) == key(hold) && held.volumes.iter().all(|had| had.0 != at));
            match same {
                Some(held) => held.volumes.push((at, hold.id)),
                None => all.push(Held { hold: hold.clone(), volumes: vec![(at, hold.id)] }),
            }
        }
    }
    Ok(all)
}

fn object(held: &Held) -> Value {
    let Hold { id, note, from_ns, to_ns, made_ns } = held.hold.clone();
    let [from, to, made] = [from_ns, to_ns, made_ns].map(iso);
    let mut object = scope_api::hold::Hold { id, from, to, note, made }.json();
    object["volumes"] = json!(held.volumes.len());
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_both_ends_and_nothing_else_is_taken() {
        let body = json!({"from": "@100", "to": "@200.5", "note": "why"});
        assert_eq!(span(&body), Ok((100_000_000_000, 200_500_000_000, "why".to_string())));
        for (body, told) in [
            (json!(null), "body: it is no object"),
            (json!({"from": "@100"}), "to: it is missing, or no text"),
            (json!({"from": "soon", "to": "now"}), "from: 'soon' is no time"),
            (json!({"from": "@1", "to": "@2", "path": "/etc"}), "path: there is no such key"),
            (json!({"from": "@1", "to": "@2", "note": 7}), "note: it is no text"),
        ] {
            assert_eq!(span(&body).unwrap_err().to_string(), told);
        }
    }
}
