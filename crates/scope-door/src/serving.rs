//! Connections: how many there may be, how long one may do nothing, and each request's way to its answer.

use crate::answers::{self, Asked};
use crate::audit::Noted;
use crate::body::{Body, refusal};
use crate::given::{Given, Later};
use crate::packets::why_broken;
use crate::peer::{Asker, Peer, Rules};
use crate::rates::TooSoon;
use crate::state::{ORDERS_MAX, State};
use http::header::ORIGIN;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use scope_api::routes::{Found, PARAMETER_BYTES_MAX, ROUTES, Route, find};
use scope_api::{Problem, Refused};
use scope_events::now_ns;
use scope_http::{PAUSE, Patient, full, no_such_path, sound, understood};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// So long answers that are under way may go on when the run is over.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(1);

/// Serves until `stopped` says so; what is under way then has a moment, and is dropped with its runtime.
pub(crate) async fn serve(
    listener: UnixListener,
    state: &Arc<State>,
    rules: Rules,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => {
                let all = places.acquire_many(CONNECTIONS_MAX as u32);
                let orders = state.orders.acquire_many(ORDERS_MAX as u32);
                let _ = timeout(END_PATIENCE, async { tokio::join!(all, orders) }).await;
                // Answers that would take longer break off, and are noted.
                state.questions.end();
                let _ = timeout(END_PATIENCE, state.orders.acquire_many(ORDERS_MAX as u32)).await;
                return;
            }
        };
        let Ok((mut stream, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            state.counts.connections_refused.fetch_add(1, Ordering::Relaxed);
            let word = full(&format!("there are {CONNECTIONS_MAX} connections already"));
            let _ = timeout(PAUSE, stream.write_all(&word)).await;
            continue;
        };
        let Ok(peer) = rules.peer(&stream) else { continue };
        let state = state.clone();
        tokio::spawn(async move {
            connection(stream, &state, rules, &peer).await;
            drop(place);
        });
    }
}

async fn connection(stream: UnixStream, state: &Arc<State>, rules: Rules, peer: &Peer) {
    let answer = |request: Request<Incoming>| {
        let found = find(request.method(), request.uri().path());
        let is_order = matches!(found, Found::Route(at, _) if ROUTES[at].is_audited());
        let client = Attending(Arc::default());
        let answer = answer(request, state.clone(), rules, peer.clone(), client.0.clone());
        // An order goes on without its client, also one that is gone before the first word of it is looked at.
        let answer = if is_order { Ok(tokio::spawn(answer)) } else { Err(answer) };
        async move {
            let answer = match answer {
                Ok(order) => {
                    order.await.unwrap_or_else(|_| refusal(&Problem::internal("run", "the order failed")))
                }
                Err(question) => question.await,
            };
            client.has_its_answer();
            answer
        }
    };
    let _ = scope_http::connection(Patient::new(stream), answer).await; // how it ends is its own affair
}

/// The answer, which is counted.
async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
    rules: Rules,
    peer: Peer,
    gone: Arc<AtomicBool>,
) -> Response<Body> {
    let answer = looked_at(request, &state, rules, &peer, gone).await;
    let answer = answer.unwrap_or_else(|problem| refusal(&problem));
    state.counts.answered(answer.status().as_u16());
    answer
}

async fn looked_at(
    request: Request<Incoming>,
    state: &Arc<State>,
    rules: Rules,
    peer: &Peer,
    gone: Arc<AtomicBool>,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    if let Some(refused) = rules.refused(peer, &parts.headers) {
        return Ok(refused_elsewhere(state, peer, &parts, refused).await);
    }
    let asker = rules.asker(peer, &parts.headers);
    // Whoever isn't believed counts as who is connected.
    let identity = asker.as_ref().map_or_else(|_| format!("user {}", peer.uid), Asker::words);
    let admitted = state.rates.admit(&identity, Instant::now());
    let found = find(&parts.method, parts.uri.path());
    let route = if let Found::Route(at, _) = &found { Some(&ROUTES[*at]) } else { None };
    let is_audited = route.is_none_or(Route::is_audited) && !matches!(found, Found::None | Found::Other(_));
    let refused = async |problem: Problem| {
        if is_audited {
            let asker = asker.as_ref().ok();
            note(state, Noted { status: problem.status.as_u16(), ..noted(peer, asker, route, &parts) }).await;
        }
        problem
    };
    if let Err(TooSoon { problem, is_first }) = admitted {
        // The first one stands for those that follow at once: a flood of refusals isn't to fill the disk.
        return Err(if is_first { refused(problem).await } else { problem });
    }
    let asker = match &asker {
        Ok(asker) => asker.clone(),
        Err(problem) => return Err(refused(problem.clone()).await),
    };
    if let Err(problem) = sound(&parts) {
        return Err(refused(problem).await);
    }
    let (route, parameters) = match found {
        Found::Route(at, parameters) => (&ROUTES[at], parameters),
        Found::None => return Err(no_such_path(parts.uri.path())),
        Found::Bad(cause) => {
            let remedy =
                format!("write a name or number of at most {PARAMETER_BYTES_MAX} bytes, percent-encoded");
            return Err(refused(Problem::new(StatusCode::BAD_REQUEST, "path", cause, remedy)).await);
        }
        Found::Other(allow) => {
            return Err(Problem::not_allowed(parts.uri.path(), parts.method.as_str(), allow));
        }
    };
    let body = understood(&parts, body).await;
    if !route.is_audited() {
        return allowed(route, asker, parts, (parameters, body, gone), state).await;
    }
    if state.is_closing() {
        return Err(refused(Problem::ended()).await);
    }
    let Ok(place) = state.orders.clone().try_acquire_owned() else {
        let cause = format!("{ORDERS_MAX} orders are under way");
        let remedy = "ask again when one of them is done";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "orders", cause, remedy).retry_after(1);
        return Err(refused(problem).await);
    };
    let noted = Noted { what: what(&parts, &body), ..noted(peer, Some(&asker), Some(route), &parts) };
    let mut answer = allowed(route, asker, parts, (parameters, body, gone), state).await;
    let status = answer.as_ref().map_or_else(|problem| problem.status, Response::status).as_u16();
    let mut extensions = answer.as_mut().ok().map(Response::extensions_mut);
    let given = extensions.as_mut().and_then(|extensions| extensions.remove::<Given>());
    let later = extensions.and_then(|extensions| extensions.remove::<Later>());
    let noted = Noted { status, given: given.map(|given| given.json()), ..noted };
    match later {
        None => {
            note(state, noted).await;
            drop(place);
        }
        // What is streamed is noted at its end.
        Some(later) => {
            let state = state.clone();
            drop(tokio::spawn(async move {
                let given = later.given(|| why_broken(&state)).await.map(|given| given.json());
                note(&state, Noted { given, ..noted }).await;
                drop(place);
            }));
        }
    }
    answer
}

/// Notes what the door to the network has refused.
async fn refused_elsewhere(
    state: &Arc<State>,
    peer: &Peer,
    parts: &Parts,
    Refused { name, status }: Refused,
) -> Response<Body> {
    let mut answer = Response::new(Body::Whole(None));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    match state.refusals.admit(name.as_deref().unwrap_or_default(), Instant::now()) {
        Err(TooSoon { problem, .. }) => *answer.status_mut() = problem.status,
        Ok(()) => {
            let found = find(&parts.method, parts.uri.path());
            let route = if let Found::Route(at, _) = found { Some(&ROUTES[at]) } else { None };
            let what = what(parts, &Ok(Value::Null));
            let noted = noted(peer, None, route, parts);
            note(state, Noted { name, what, status: status.as_u16(), ..noted }).await;
        }
    }
    answer
}

/// Says whether a client waits for its answer: dropped before it has it, it went away.
struct Attending(Arc<AtomicBool>);

impl Attending {
    fn has_its_answer(mut self) {
        self.0 = Arc::default();
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What there is to note of a request, before it is answered.
fn noted(peer: &Peer, asker: Option<&Asker>, route: Option<&Route>, parts: &Parts) -> Noted {
    let role = asker.and_then(|asker| asker.role).map_or("none".to_string(), |role| role.to_string());
    Noted {
        uid: peer.uid,
        name: asker.and_then(|asker| asker.name.clone()),
        role,
        method: parts.method.to_string(),
        path: parts.uri.path().to_string(),
        action: route.map_or("none".to_string(), |route| format!("{:?}", route.action)),
        what: Value::Null,
        status: 0,
        given: None,
    }
}

/// What is said in a request: its body, or what stands in its address.
fn what(parts: &Parts, body: &Result<Value, Problem>) -> Value {
    let said = body.as_ref().cloned().unwrap_or_default();
    match parts.uri.query() {
        Some(query) if said.is_null() => {
            let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
            Value::Object(pairs.map(|(key, value)| (key, Value::String(value))).collect())
        }
        _ => said,
    }
}

/// The answer to whoever may ask.
async fn allowed(
    route: &Route,
    asker: Asker,
    parts: Parts,
    (parameters, body, gone): (Vec<String>, Result<Value, Problem>, Arc<AtomicBool>),
    state: &Arc<State>,
) -> Result<Response<Body>, Problem> {
    if parts.headers.contains_key(ORIGIN) {
        let cause = "a page of another origin asks";
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin", cause, "ask without a browser"));
    }
    let Some(role) = asker.role.filter(|role| *role >= route.role) else {
        let have = asker.role.map_or("none".to_string(), |role| role.to_string());
        let cause = format!("it needs the role {}; {} has {have}", route.role, asker.words());
        let remedy = match asker.name {
            Some(_) => "ask with a token of that role; the run's --serve-role bounds them all".to_string(),
            None => format!(
                "ask as root, or as the run's user; or start the run with --control-role {}, the role of \
                 whoever is in its --control-group",
                route.role
            ),
        };
        return Err(Problem::new(StatusCode::FORBIDDEN, "role", cause, remedy));
    };
    if asker.filter.is_some() && !route.answers_bound() {
        let cause = format!("{} sees only packets of a filter, and this covers all", asker.words());
        let remedy = "ask with a token without a filter";
        return Err(Problem::new(StatusCode::FORBIDDEN, "wirescope-filter", cause, remedy));
    }
    let query = parts.uri.query().unwrap_or_default();
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let is_head = parts.method == Method::HEAD;
    let asked = Asked {
        action: route.action,
        role,
        identity: asker.words(),
        owner: asker.owner(),
        parameters,
        query,
        body: body?,
        headers: parts.headers,
        is_head,
        gone,
    };
    answers::answer(state, asked).await
}

/// Writes a line of the audit, where a slow disk keeps only this client waiting.
async fn note(state: &Arc<State>, noted: Noted) {
    let state = state.clone();
    let written = tokio::task::spawn_blocking(move || {
        if let Some(audit) = &state.audit {
            audit.note(&noted, now_ns());
        }
    });
    let _ = written.await; // it fails only where the run ends, and its runtime with it
}
