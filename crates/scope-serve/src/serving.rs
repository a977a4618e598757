//! Connections, and each request's way to its answer: is it meant for this door, who asks, how often, which run.

use crate::addressed;
use crate::asking::{Askers, LOOK_EVERY};
use crate::clients::Certificate;
use crate::counts::{Counts, one_more};
use crate::forwarding::{MAY_NOT, Question, forward, relocate};
use crate::noting;
use crate::places::Places;
use crate::settings::{Bounds, Instance, Line, Say};
use crate::tls::Certificates;
use crate::tokens::Token;
use bytes::Bytes;
use http::header::{TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use scope_api::{PREFIX, Problem};
use scope_http::body::{Body, Until, json, refusal};
use scope_http::{
    Broken, HEAD_PATIENCE, PAUSE, Patient, connection, full, has_body, no_such_path, only_json, whole,
};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Requests to one run at once, those included whose answer goes on. A run takes more connections than that: so those who
/// ask it on its machine get in.
const RUN_REQUESTS_MAX: usize = 48;
/// So long answers that are under way may go on when the door closes.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long an instance may take to say that it is there.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// Lines of refusals within so long.
const LINES_MAX: u32 = 10;
const LINES_EVERY: Duration = Duration::from_secs(1);
/// The route that this door answers itself, and what stands in front of an instance's name.
const INSTANCES: &str = "/api/v1/instances";

/// What helps who has a token of another instance.
const OTHER_INSTANCE: &str = "ask with a token of this one: wirescope token add --instance NAME";

/// A run, and places for what it is asked.
pub(crate) struct Fronted {
    pub instance: Instance,
    places: Arc<Semaphore>,
}

impl Fronted {
    pub(crate) fn new(instance: Instance) -> Fronted {
        Fronted { instance, places: Arc::new(Semaphore::new(RUN_REQUESTS_MAX)) }
    }
}

/// Says which runs have a socket that is closed to this door: nothing that a client could ask would change that.
pub(crate) async fn tell_of_closed_sockets(state: Arc<State>) {
    for Fronted { instance, .. } in &state.instances {
        let Ok(Err(error)) = timeout(LOOK_PATIENCE, UnixStream::connect(&instance.path)).await else {
            continue;
        };
        if error.kind() == ErrorKind::PermissionDenied {
            let (name, path) = (&instance.name, instance.path.display());
            let line = format!("the run at {name} can't be asked by this door: {path}: {error}; {MAY_NOT}");
            (state.say)(Line::Warning(&line));
        }
    }
}

/// What all connections share.
pub(crate) struct State {
    pub instances: Vec<Fronted>,
    pub hosts: Vec<String>,
    pub askers: Askers,
    /// `None`: without TLS.
    pub certificates: Option<Certificates>,
    pub bounds: Bounds,
    pub counts: Counts,
    pub say: Say,
    /// The second in which lines were said, and how many.
    pub said: Mutex<(Option<Instant>, u32)>,
}

impl State {
    /// Says a line of a refusal, unless so many were said within a second: who is refused fills no log.
    fn tell(&self, line: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.0.is_none_or(|since| since.elapsed() >= LINES_EVERY) {
            *said = (Some(Instant::now()), 0);
        }
        said.1 += 1;
        let is_too_many = said.1 > LINES_MAX;
        drop(said);
        match is_too_many {
            true => one_more(&self.counts.unsaid),
            false => (self.say)(Line::Warning(line)),
        }
    }

    /// Whether a connection's certificate, if it has one, is good now.
    fn check(&self, certificate: Option<&Certificate>) -> Result<(), rustls::Error> {
        match (certificate, &self.certificates) {
            (Some(certificate), Some(certificates)) => certificates.check(certificate),
            _ => Ok(()),
        }
    }

    /// Who asks, and whether that one may.
    fn who(&self, headers: &HeaderMap, certificate: Option<&Certificate>) -> Result<Token, Problem> {
        self.check(certificate).map_err(|error| {
            let cause = format!("the certificate of this connection is refused: {error}");
            let remedy = "connect anew, with another certificate or without one";
            Problem::new(StatusCode::UNAUTHORIZED, "certificate", cause, remedy)
        })?;
        self.askers.who(headers, certificate)
    }
}

/// Where a connection is from, where it came to, and by which certificate.
#[derive(Clone)]
struct Ends {
    local: IpAddr,
    remote: SocketAddr,
    certificate: Option<Arc<Certificate>>,
}

/// Serves until `stopped` says so; what is under way then has a moment.
pub(crate) async fn serve(listener: TcpListener, state: &Arc<State>, mut stopped: watch::Receiver<bool>) {
    let places = Places::new(state.bounds.connections);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => {
                let _ = timeout(END_PATIENCE, places.all_free()).await;
                return;
            }
        };
        let Ok((mut stream, remote)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let Some(place) = places.take(remote.ip()) else {
            one_more(&state.counts.connections);
            if state.certificates.is_none() {
                let most = state.bounds.connections;
                let cause = format!(
                    "there are {most} connections already, or three quarters of these from your address"
                );
                let _ = timeout(PAUSE, stream.write_all(&full(&cause))).await;
            }
            continue;
        };
        let Ok(local) = stream.local_addr() else { continue };
        let (state, ends) = (state.clone(), Ends { local: local.ip(), remote, certificate: None });
        tokio::spawn(async move {
            spoken(stream, &state, ends).await;
            drop(place);
        });
    }
}

/// Speaks with a client until it ends.
async fn spoken(stream: TcpStream, state: &Arc<State>, mut ends: Ends) {
    let _ = stream.set_nodelay(true);
    let ended = match &state.certificates {
        None => connection(Patient::new(stream), |request| answered(request, state, ends.clone())).await,
        Some(certificates) => {
            let shaken = TlsAcceptor::from(certificates.now()).accept(Patient::new(stream));
            match timeout(HEAD_PATIENCE, shaken).await {
                Ok(Ok(stream)) => {
                    ends.certificate = Certificate::of(stream.get_ref().1.peer_certificates()).map(Arc::new);
                    connection(Patient::new(stream), |request| answered(request, state, ends.clone())).await
                }
                broken => {
                    if let Ok(Err(error)) = broken
                        && let Some(error) = refused_certificate(&error)
                    {
                        state.tell(&format!("{}: its certificate is refused: {error}", ends.remote));
                    }
                    return one_more(&state.counts.handshakes);
                }
            }
        }
    };
    match ended {
        Err(Broken::Head) => one_more(&state.counts.heads),
        Err(Broken::Slow) => one_more(&state.counts.slow),
        Err(Broken::Stalled) => one_more(&state.counts.stalled),
        Ok(()) | Err(Broken::Other) => {}
    }
}

/// What is wrong with a client's certificate, if that is why there is no connection.
fn refused_certificate(error: &std::io::Error) -> Option<&rustls::Error> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let is_of_certificate =
        matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::InvalidCertRevocationList(_));
    is_of_certificate.then_some(error)
}

async fn answered(request: Request<Incoming>, state: &Arc<State>, ends: Ends) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut asked = None;
    let answer = answer(&parts, body, state, (&ends, &mut asked)).await;
    if let Err(problem) = &answer {
        refused(state, &parts, asked.as_ref(), problem).await;
    }
    let answer = answer.unwrap_or_else(|problem| {
        if problem.status == StatusCode::UNAUTHORIZED || problem.status == StatusCode::FORBIDDEN {
            let (status, path) = (problem.status.as_u16(), parts.uri.path());
            state.tell(&format!("{}: {} {path}: {status}: {problem}", ends.remote, parts.method));
        }
        let mut answer = refusal(&problem);
        if problem.status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    });
    state.counts.answered(answer.status().as_u16());
    answer
}

async fn answer(
    parts: &Parts,
    body: Incoming,
    state: &Arc<State>,
    (ends, asked): (&Ends, &mut Option<Token>),
) -> Result<Response<Body>, Problem> {
    addressed::check(parts, ends.local, &state.hosts, state.certificates.is_some())?;
    let token = {
        let (state, headers, certificate) = (state.clone(), parts.headers.clone(), ends.certificate.clone());
        let who = tokio::task::spawn_blocking(move || state.who(&headers, certificate.as_deref())).await;
        who.unwrap_or_else(|_| {
            let remedy = "ask again once it is back";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "door", "the door closes", remedy))
        })?
    };
    *asked = Some(token.clone());
    let counted = state.askers.count_request(&token, Instant::now());
    let counted = counted.inspect_err(|_| one_more(&state.counts.rate))?;
    // Two lengths can be read in two ways, and a chunked body may have another beside it: one form is enough.
    if parts.headers.contains_key(TRANSFER_ENCODING) {
        let (place, cause) = ("transfer-encoding", "a body has no length");
        let remedy = "send Content-Length, and no Transfer-Encoding";
        return Err(Problem::new(StatusCode::LENGTH_REQUIRED, place, cause, remedy));
    }
    if has_body(&parts.headers) {
        only_json(&parts.headers)?;
    }
    let path = parts.uri.path();
    if path == INSTANCES {
        return instances(&parts.method, state, &token).await;
    }
    let (fronted, named) = find(path, state, &token)?;
    let body = if has_body(&parts.headers) { whole(body).await? } else { Bytes::new() };
    let Ok(place) = fronted.places.clone().try_acquire_owned() else {
        one_more(&state.counts.busy);
        let cause = format!("{RUN_REQUESTS_MAX} requests to this run are under way");
        let remedy = "ask again when one of them has its answer";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "requests", cause, remedy).retry_after(1));
    };
    let target = target(parts, named.then_some(&fronted.instance.name));
    let question = Question {
        method: parts.method.clone(),
        target: &target,
        headers: &parts.headers,
        body,
        identity: token.identity(),
    };
    let mut until: Until = Box::pin(may_no_longer(state.clone(), token, ends.clone(), path.to_string()));
    let mut answer = tokio::select! {
        answer = forward(&fronted.instance, question) => answer?,
        () = &mut until => {
            let (cause, remedy) = ("who asks may not any more", "make another token: wirescope token add");
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "authorization", cause, remedy));
        }
    };
    if named {
        relocate(&mut answer, &fronted.instance.name);
    }
    Ok(answer.map(|body| Body::Passed(body, until, Box::new((counted, place)))))
}

/// Tells the run that a refused request meant, if it says which one.
async fn refused(state: &State, parts: &Parts, token: Option<&Token>, problem: &Problem) {
    if problem.status == StatusCode::BAD_GATEWAY {
        return; // it hears nothing
    }
    let rest = parts.uri.path().strip_prefix(INSTANCES).and_then(|rest| rest.strip_prefix('/'));
    let named = rest.and_then(|rest| rest.split_once('/')).map(|(name, _)| name);
    let is_it = |fronted: &&Fronted| named.is_none_or(|name| fronted.instance.name == name);
    let mut meant = state.instances.iter().filter(is_it);
    let (Some(fronted), None) = (meant.next(), meant.next()) else { return };
    let Ok(_place) = fronted.places.try_acquire() else { return one_more(&state.counts.unnoted) };
    let target = target(parts, named.is_some().then_some(&fronted.instance.name));
    if !noting::note(&fronted.instance, (parts, &target), token, problem).await {
        one_more(&state.counts.unnoted);
    }
}

/// Waits until who has asked may not any more: the token or the certificate was revoked, or has expired.
async fn may_no_longer(state: Arc<State>, token: Token, ends: Ends, path: String) {
    let token = Arc::new(token);
    loop {
        sleep(LOOK_EVERY).await;
        let (looking, token, certificate) = (state.clone(), token.clone(), ends.certificate.clone());
        let may = tokio::task::spawn_blocking(move || {
            looking.askers.may_still(&token) && looking.check(certificate.as_deref()).is_ok()
        });
        if !matches!(may.await, Ok(true)) {
            break;
        }
    }
    one_more(&state.counts.identity);
    state.tell(&format!("{}: {path}: its answer ends: {} may not ask any more", ends.remote, token.name));
}

/// The run that a path means, and whether it names it.
fn find<'a>(path: &str, state: &'a State, token: &Token) -> Result<(&'a Fronted, bool), Problem> {
    let may = |fronted: &&Fronted| {
        token.instance.as_ref().is_none_or(|instance| *instance == fronted.instance.name)
    };
    if let Some(rest) = path.strip_prefix(INSTANCES).and_then(|rest| rest.strip_prefix('/')) {
        let (name, _) = rest.split_once('/').ok_or_else(|| no_such_path(path))?;
        let found = state.instances.iter().find(|fronted| fronted.instance.name == name);
        let found = found.ok_or_else(|| {
            let (cause, remedy) = ("there is no such instance", "see GET /api/v1/instances");
            Problem::new(StatusCode::NOT_FOUND, "instance", cause, remedy)
        })?;
        return match may(&found) {
            true => Ok((found, true)),
            false => {
                let cause = format!("the token of {} is for another instance", token.name);
                Err(Problem::new(StatusCode::FORBIDDEN, "instance", cause, OTHER_INSTANCE))
            }
        };
    }
    let all: Vec<&Fronted> = state.instances.iter().filter(may).collect();
    match all[..] {
        [one] => Ok((one, false)),
        [] => Err(not_here(token)),
        [..] => {
            let names: Vec<&str> = all.iter().map(|fronted| &*fronted.instance.name).collect();
            let cause = format!("there are several instances: {}", names.join(", "));
            let remedy = "name one: /api/v1/instances/NAME/...";
            Err(Problem::new(StatusCode::NOT_FOUND, "instance", cause, remedy))
        }
    }
}

fn not_here(token: &Token) -> Problem {
    let cause = format!("the token of {} is for an instance that isn't here", token.name);
    Problem::new(StatusCode::FORBIDDEN, "instance", cause, OTHER_INSTANCE)
}

/// What the run is asked, without the name of the instance.
fn target(parts: &Parts, name: Option<&String>) -> String {
    let asked = parts.uri.path_and_query().map_or("/", |asked| asked.as_str());
    let rest = name.and_then(|name| asked.strip_prefix(INSTANCES)?.strip_prefix('/')?.strip_prefix(&**name));
    rest.map_or_else(|| asked.to_string(), |rest| format!("{PREFIX}{rest}"))
}

/// The runs that this one may ask, and how this door stands.
async fn instances(method: &Method, state: &State, token: &Token) -> Result<Response<Body>, Problem> {
    if *method != Method::GET && *method != Method::HEAD {
        return Err(Problem::not_allowed(INSTANCES, method.as_str(), vec!["GET"]));
    }
    if token.filter.is_some() {
        let cause = format!("{} sees only packets of a filter, and this covers all", token.name);
        let remedy = "ask with a token without a filter";
        return Err(Problem::new(StatusCode::FORBIDDEN, "token", cause, remedy));
    }
    let mut list: Vec<Value> = Vec::new();
    for Fronted { instance, .. } in &state.instances {
        if token.instance.as_ref().is_none_or(|only| *only == instance.name) {
            let connected = timeout(LOOK_PATIENCE, UnixStream::connect(&instance.path)).await;
            list.push(json!({"name": instance.name, "answers": matches!(connected, Ok(Ok(_)))}));
        }
    }
    if list.is_empty() {
        return Err(not_here(token));
    }
    Ok(json(StatusCode::OK, &json!({"instances": list, "door": state.counts.json()})))
}
