//! Each route's answer, made of what the run has published.

use crate::audit::AUDIT_FILE;
use crate::body::{Body, json, text};
use crate::exposition::Form;
use crate::firing::Whose;
use crate::peer::Owner;
use crate::state::{Phase, Published, State};
use crate::{
    changing, copies, deleting, document, file, firing, flow_list, follow, groups, holds, hooks, inventory,
    metrics, packets, signals, statistics,
};
use http::header::VARY;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use scope_api::fire::Fire;
use scope_api::parameters::once;
use scope_api::routes::Action;
use scope_api::trigger::Trigger;
use scope_api::{Problem, Role};
use scope_engine::{LaneStatus, TriggerChange, TriggerStatus};
use scope_events::now_ns;
use scope_folder::Folder;
use scope_packet::LinkType;
use scope_spelling::time::iso;
use serde_json::{Map, Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A request, understood as far as all routes have in common.
pub(crate) struct Asked {
    pub action: Action,
    /// What whoever asks may do.
    pub role: Role,
    /// Who that is.
    pub identity: String,
    /// Whose dumps this one sees, and of which packets; `None`: all.
    pub owner: Option<Owner>,
    pub parameters: Vec<String>,
    pub query: Vec<(String, String)>,
    /// `Null`: there was none.
    pub body: Value,
    pub headers: HeaderMap,
    /// No body is wanted.
    pub is_head: bool,
    /// Set when the client went away before it had its answer.
    pub gone: Arc<AtomicBool>,
}

/// The answer.
///
/// # Errors
/// Why there is none.
pub(crate) async fn answer(state: &Arc<State>, asked: Asked) -> Result<Response<Body>, Problem> {
    let Asked { action, role, identity, owner, mut parameters, query, body, headers, is_head, gone } = asked;
    once(action, &query)?;
    if !body.is_null() && document::body(action).is_none() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "body", "nothing is said in it", "omit it"));
    }
    let first = parameters.pop().unwrap_or_default();
    let owner = owner.as_ref();
    let whose = Whose { identity: &identity, is_bounded: role < Role::Admin, owner };
    let now = || state.now();
    let ok = |value: Value| Ok(json(StatusCode::OK, &value));
    match action {
        Action::Live => ok(json!({"live": true})),
        Action::Ready => {
            let phase = now().phase;
            let status = match phase {
                Phase::Capturing => StatusCode::OK,
                Phase::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            };
            Ok(json(status, &json!({"ready": phase == Phase::Capturing, "state": phase.word()})))
        }
        Action::Version => ok(json!({"version": state.version, "run": state.run, "api": "v1"})),
        Action::Status => ok(status(state, &now())),
        Action::Sources => {
            let Published { status, facts, .. } = now();
            let interfaces: Vec<Value> = scope_engine::summary::interfaces(&status.interfaces);
            ok(json!({"sources": facts["sources"], "interfaces": interfaces, "nic": facts["nic"]}))
        }
        Action::Ring => ok(ring(&now())),
        Action::Stores => ok(json!({"stores": now().facts["stores"]})),
        Action::Groups => ok(groups::answer(state)),
        Action::Losses if query.is_empty() => ok(losses(&now())),
        Action::Losses => ok(state.losses.steps(&query, now_ns())?),
        Action::Config => ok(json!({"toml": state.config})),
        Action::Triggers => {
            let triggers: Vec<Value> = now().status.triggers.iter().map(trigger).collect();
            ok(json!({"triggers": triggers}))
        }
        Action::Trigger => {
            let published = now();
            let found = published.status.triggers.iter().find(|trigger| trigger.config.name == first);
            found.map(trigger).map_or_else(
                || Err(firing::no_such_trigger(&format!("there is no trigger '{first}'"))),
                |trigger| Ok(json(StatusCode::OK, &trigger)),
            )
        }
        Action::Signals => Ok(signals::list(state, &headers)),
        Action::Signal => ok(signals::steps(&state.measuring, &first, &query, now_ns())?),
        Action::AddTrigger => changing::put(state, &Trigger::read(&body, None)?, TriggerChange::Add).await,
        Action::ChangeTrigger => {
            changing::put(state, &Trigger::read(&body, Some(&first))?, TriggerChange::Change).await
        }
        Action::RemoveTrigger => changing::remove(state, first).await,
        Action::HookAlertmanager => hooks::alertmanager(state, &body).await,
        Action::HookJson => hooks::json_object(state, first, &body).await,
        Action::Devices => inventory::devices(state),
        Action::Doctor => inventory::doctor(state).await,
        Action::FireTrigger => firing::trigger(state, first, &Fire::read(&body)?, whose).await,
        Action::Fire => firing::by_hand(state, Fire::read(&body)?, whose).await,
        Action::Holds => holds::list(state).await,
        Action::AddHold => holds::add(state, &body).await,
        Action::RemoveHold => holds::remove(state, first).await,
        Action::ArmTrigger => firing::arm(state, first, true).await,
        Action::DisarmTrigger => firing::arm(state, first, false).await,
        Action::Audit => audit(state, &headers).await,
        Action::Dumps => ok(state.dumps.page(&query, owner)?),
        Action::Dump => match state.dumps.get(&first, owner)? {
            Ok(finished) => ok(finished.shown(owner)),
            Err(open) => ok(open),
        },
        Action::DumpFile => dump_file(state, &first, owner, &query, &headers).await,
        Action::EndDump => firing::end(state, &first).await,
        Action::DeleteDump => deleting::delete(state, &first).await,
        Action::Stats => ok(statistics::now(state)?),
        Action::StatsFiles => statistics::files(state, whose, gone).await,
        Action::StatsTop => statistics::top(state, &query, whose, gone).await,
        Action::StatsSql => statistics::sql(state, &body, whose, gone).await,
        Action::StatsFile => copies::copy(state, first, whose, (is_head, gone)).await,
        Action::Flows => flow_list::answer(state, &query, whose, gone).await,
        Action::Packets => packets::answer(state, &query, whose, (is_head, gone)).await,
        Action::Events => follow::answer(state, role, &headers),
        Action::Reload => reload(state),
        Action::Metrics => {
            let form = Form::wanted(&headers);
            let mut answer = text(form.media_type(), metrics::text(state, form));
            answer.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
            Ok(answer)
        }
        Action::OpenApi => ok(document::openapi()),
        Action::Instances => {
            let instance = json!({"run": state.run, "state": now().phase.word(), "answers": true});
            ok(json!({"instances": [instance]}))
        }
    }
}

/// The facts of a status line, and how far the run is.
fn status(state: &State, published: &Published) -> Value {
    let mut object = match &*published.facts {
        Value::Object(facts) => facts.clone(),
        _ => Map::new(),
    };
    let dumps_open = published.status.dumps_open;
    let own = [
        ("run", json!(state.run)),
        ("version", json!(state.version)),
        ("state", json!(published.phase.word())),
        ("dumps_open", json!(dumps_open)),
        ("adds_up", json!(published.status.adds_up)),
        ("triggers", json!(published.status.triggers.len())),
    ];
    object.extend(own.map(|(key, value)| (key.to_string(), value)));
    Value::Object(object)
}

fn ring(published: &Published) -> Value {
    let lane = |(number, lane): (usize, &LaneStatus)| {
        json!({
            "lane": number, "link_type": lane.link_type.name(), "segments": lane.segments,
            "bytes": lane.bytes, "oldest": lane.oldest_ns.map(iso),
        })
    };
    let lanes: Vec<Value> = published.status.lanes.iter().enumerate().map(lane).collect();
    json!({"depth_ns": published.status.depth_ns, "lanes": lanes})
}

/// What was lost since the run began.
fn losses(published: &Published) -> Value {
    let facts = &published.facts;
    let source = |source: &Value| {
        json!({
            "source": source["source"], "worker": source["worker"], "offered": source["offered"],
            "kernel_dropped": source["kernel_dropped"], "unreadable": source["unreadable"],
        })
    };
    let sources: Vec<Value> = facts["sources"].as_array().into_iter().flatten().map(source).collect();
    let store =
        |store: &Value| json!({"path": store["path"], "missed": store["missed"], "behind": store["behind"]});
    let stores: Vec<Value> = facts["stores"].as_array().into_iter().flatten().map(store).collect();
    json!({"dropped": facts["dropped"], "sources": sources, "stores": stores, "late": facts["late"]})
}

fn trigger(trigger: &TriggerStatus) -> Value {
    let TriggerStatus { config, armed, counts } = trigger;
    let hits: Map<String, Value> =
        counts.each().iter().map(|(word, hits)| (word.to_string(), json!(hits))).collect();
    let filter = config.condition.text();
    let dump = config.response.template.as_ref().map(|template| template.text().to_string());
    json!({
        "name": config.name, "condition": config.condition.kind(),
        "filter": filter, "when": config.when.as_ref().map(|when| when.text()), "dump": dump,
        "dump_script": config.response.script.as_ref().map(|script| script.file().to_string()), "before_ns": config.response.before_ns,
        "after_ns": config.response.after_ns, "holdoff_ns": config.holdoff_ns,
        "holdoff_key": config.holdoff_key.as_ref().map(|key| key.text().to_string()),
        "single": config.single, "auto_ns": config.auto_ns, "armed": armed, "hits": hits,
    })
}

async fn dump_file(
    state: &Arc<State>,
    id: &str,
    owner: Option<&Owner>,
    query: &[(String, String)],
    headers: &HeaderMap,
) -> Result<Response<Body>, Problem> {
    let files = state.dumps.files(id, owner)?;
    let gone = |cause: String| {
        let remedy = format!("see GET /api/v1/dumps/{id}: its paths say where the files are");
        Problem::new(StatusCode::NOT_FOUND, "file", cause, remedy)
    };
    let link_type = match query {
        [] => None,
        [(key, text), ..] => Some(LinkType::named(text).ok_or_else(|| {
            let remedy =
                "write its name, e.g. ETHERNET, or omit it: then the answer is the dump's first file";
            Problem::new(StatusCode::BAD_REQUEST, key, format!("'{text}' is no link type"), remedy)
        })?),
    };
    let Some(folder) = state.folder.clone().filter(|_| !files.is_empty()) else {
        return Err(gone(format!("dump {id} has no file in the folder of this run's dumps")));
    };
    let opened = tokio::task::spawn_blocking(move || first_of(&folder, &files, link_type));
    match opened.await {
        Ok(Ok(Some((file, name)))) => file::answer(file, &name, headers),
        Ok(Ok(None)) => {
            let of =
                link_type.map_or(String::new(), |link_type| format!(" of link type {}", link_type.name()));
            Err(gone(format!("dump {id} has no file{of}, or it was removed or moved")))
        }
        Ok(Err(error)) => Err(gone(error.to_string())),
        Err(_) => Err(Problem::ended()),
    }
}

/// The first of a dump's files, or the one of this link type, by what stands in it.
fn first_of(
    folder: &Folder,
    files: &[OsString],
    link_type: Option<LinkType>,
) -> io::Result<Option<(File, OsString)>> {
    for name in files {
        let Some(file) = folder.existing(name, false)? else { continue };
        if link_type.is_none_or(|wanted| file::link_type(&file).is_ok_and(|found| found == Some(wanted))) {
            return Ok(Some((file, name.clone())));
        }
    }
    Ok(None)
}

/// The audit's file as it is now.
async fn audit(state: &Arc<State>, headers: &HeaderMap) -> Result<Response<Body>, Problem> {
    let none = || {
        let remedy = "ask again behind the first order; a run with -w writes none";
        Problem::new(StatusCode::NOT_FOUND, "file", "nothing was written into an audit yet", remedy)
    };
    let folder = state.folder.clone().ok_or_else(none)?;
    let name = OsStr::new(AUDIT_FILE);
    match tokio::task::spawn_blocking(move || folder.existing(name, false)).await {
        Ok(Ok(Some(file))) => file::answer(file, name, headers),
        Ok(Err(error)) => Err(Problem::internal("file", error.to_string())),
        _ => Err(none()),
    }
}

/// Has the configuration file read again; what comes of it is an event.
fn reload(state: &State) -> Result<Response<Body>, Problem> {
    let Some(wake) = &state.reload else {
        let (cause, remedy) = ("this run has no configuration file", "start it with --config FILE");
        return Err(Problem::new(StatusCode::CONFLICT, "run", cause, remedy));
    };
    let _ = wake.try_send(()); // one that waits already is as good as two
    Ok(json(StatusCode::ACCEPTED, &json!({"reload": "ordered"})))
}
