//! Questions to an instance, over its Unix socket or through a door to the network: a connection each, answered piece by
//! piece.
//!
//! ```text
//! Client::unix(path)        ─► ask(GET, "status") ─► Answer ─► next_piece() ─► bytes, as they come
//! Client::url(url, ..)                             └► a status of 400 and more: a Problem
//! ```

use crate::PREFIX;
use crate::identity::is_name;
use crate::problem::Problem;
use crate::trust::{OwnCertificate, Trust, Untrusted};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, TE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A refusal's body at most, bytes; what is longer is cut off.
const PROBLEM_BYTES_MAX: usize = 256 << 10;
/// So long an instance may take until it listens to what it is asked.
const PATIENCE: Duration = Duration::from_secs(10);
/// What of a parameter isn't encoded.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there, or not to this user, or not with TLS that is believed.
    #[error("{place}: {cause}")]
    Connect {
        /// The socket, or the host.
        place: String,
        /// The system's.
        cause: io::Error,
    },
    /// The certificate of the door there isn't believed.
    #[error("{place}: {cause}")]
    Untrusted {
        /// The host.
        place: String,
        /// Why not.
        cause: Untrusted,
    },
    /// That is no URL of a door.
    #[error("{0}")]
    Url(String),
    /// The connection broke, or what came is no HTTP.
    #[error("the instance broke off: {}", in_full(.0))]
    Broken(#[from] hyper::Error),
    /// What was to be asked is no request.
    #[error("{0}")]
    Unsayable(#[from] http::Error),
    /// It took too long.
    #[error("the instance doesn't answer")]
    Silent,
    /// The instance refuses.
    #[error("{0}")]
    Refused(Problem),
    /// The answer isn't what was asked for.
    #[error("the answer is no JSON: {0}")]
    NoJson(#[from] serde_json::Error),
    /// The system gives no means.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A client of one instance.
#[derive(Debug)]
pub struct Client {
    runtime: Arc<Runtime>,
    place: Place,
    /// What stands in front of every route.
    prefix: String,
}

/// Where the instance is.
#[derive(Debug)]
enum Place {
    Unix(PathBuf),
    Network(Network),
}

/// A door to the network.
struct Network {
    /// As `Host` has it.
    authority: String,
    /// To connect to, and to be certified.
    host: String,
    port: u16,
    /// `None`: without TLS, to this machine.
    tls: Option<Arc<ClientConfig>>,
    /// The whole header, marked so that it is shown nowhere; `None`: the certificate says who asks.
    token: Option<HeaderValue>,
}

/// By what a client says at a door who it is. It has no `Debug`: a token is shown nowhere.
#[derive(Clone, Copy)]
pub enum Credentials<'a> {
    /// By a token.
    Token(&'a str),
    /// By a certificate.
    Certificate(&'a OwnCertificate),
    /// By a token, where the door asks for a certificate that names nobody besides.
    Both(&'a str, &'a OwnCertificate),
}

impl<'a> Credentials<'a> {
    fn token(self) -> Option<&'a str> {
        match self {
            Credentials::Token(token) | Credentials::Both(token, _) => Some(token),
            Credentials::Certificate(_) => None,
        }
    }

    fn certificate(self) -> Option<&'a OwnCertificate> {
        match self {
            Credentials::Certificate(own) | Credentials::Both(_, own) => Some(own),
            Credentials::Token(_) => None,
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.authority)
    }
}

/// What HTTP is spoken over.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What came.
#[derive(Debug)]
pub struct Answer {
    runtime: Arc<Runtime>,
    /// The status, below 400.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// What stands behind the body, once that is whole.
    pub trailers: HeaderMap,
    body: Incoming,
}

impl Client {
    /// Of the instance with this socket.
    ///
    /// # Errors
    /// The system's.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Client, AskError> {
        Client::new(Place::Unix(path.into()), PREFIX)
    }

    /// Of the instance behind the door at this URL: `https://HOST[:PORT]`, for one of several with
    /// `/api/v1/instances/NAME`. Without TLS, by `http://`, only on this machine.
    ///
    /// # Errors
    /// That is no such URL; or the token can't be one; or there is nobody to believe.
    pub fn url(url: &str, credentials: Credentials<'_>, trust: &Trust) -> Result<Client, AskError> {
        let bad = |cause: &str| AskError::Url(format!("{url}: {cause}"));
        let uri: Uri = url.parse().map_err(|_| bad("it is no URL"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("it begins with neither https:// nor http://")),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(|| bad("it names no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_string();
        let is_here = host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback());
        if !is_tls && !is_here {
            return Err(bad("without TLS the token could be read on the way; write https://"));
        }
        let path = uri.path().trim_end_matches('/');
        let is_instance = |rest: &str| rest.strip_prefix("/instances/").is_some_and(is_name);
        let prefix = match path.strip_prefix(PREFIX) {
            _ if path.is_empty() => PREFIX,
            Some(rest) if rest.is_empty() || is_instance(rest) => path,
            _ => return Err(bad("behind the host stands nothing, or /api/v1/instances/NAME")),
        };
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        let token = credentials.token().map(bearer).transpose()?;
        let own = credentials.certificate();
        if !is_tls && own.is_some() {
            return Err(bad("without TLS there is nobody to show a certificate to; write https://"));
        }
        let tls = is_tls.then(|| trust.config(own).map(Arc::new).map_err(AskError::Url)).transpose()?;
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let authority = authority.to_string();
        Client::new(Place::Network(Network { authority, host, port, tls, token }), prefix)
    }

    fn new(place: Place, prefix: &str) -> Result<Client, AskError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Client { runtime: Arc::new(runtime), place, prefix: prefix.to_string() })
    }

    /// The instance's socket, or its door.
    pub fn place(&self) -> String {
        match &self.place {
            Place::Unix(path) => path.display().to_string(),
            Place::Network(network) => network.authority.clone(),
        }
    }

    /// Whether it is asked through a door to the network.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::Network(_))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, AskError> {
        let connected = timeout(PATIENCE, async {
            Ok(match &self.place {
                Place::Unix(path) => Box::new(UnixStream::connect(path).await?) as Box<dyn Stream>,
                Place::Network(network) => network.connect().await?,
            })
        });
        let connected = connected.await.map_err(|_| AskError::Silent)?;
        connected.map_err(|cause: io::Error| {
            let place = self.place();
            let of_tls = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match of_tls.map(|error| (Untrusted::of(error), error)) {
                Some((Some(cause), _)) => AskError::Untrusted { place, cause },
                Some((None, rustls::Error::InvalidMessage(_))) => {
                    AskError::Connect { place, cause: io::Error::other("what answers there speaks no TLS") }
                }
                _ => AskError::Connect { place, cause },
            }
        })
    }

    /// Asks for what stands below the prefix of all routes, for example `dumps?limit=10`.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub fn ask(&self, method: Method, what: &str, body: Option<&Value>) -> Result<Answer, AskError> {
        self.runtime.block_on(async {
            let stream = self.connect().await?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            self.runtime.spawn(connection);
            let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
            let mut request = Request::builder().method(method).uri(format!("{}/{what}", self.prefix));
            request = match &self.place {
                Place::Unix(_) => request.header(HOST, "localhost"),
                Place::Network(Network { authority, token, .. }) => {
                    let request = request.header(HOST, authority);
                    match token {
                        Some(token) => request.header(AUTHORIZATION, token.clone()),
                        None => request,
                    }
                }
            };
            request = request.header(TE, "trailers");
            if body.is_some() {
                request = request.header(CONTENT_TYPE, "application/json");
            }
            let answer = sender.send_request(request.body(Full::new(bytes))?).await;
            let answer = answer.map_err(|error| match alert(&error) {
                Some(alert) => AskError::Connect { place: self.place(), cause: alert },
                None => AskError::Broken(error),
            })?;
            let (parts, body) = answer.into_parts();
            let (status, headers) = (parts.status, parts.headers);
            let (runtime, trailers) = (self.runtime.clone(), HeaderMap::new());
            let mut answer = Answer { runtime, status, headers, trailers, body };
            if answer.status.as_u16() < 400 {
                return Ok(answer);
            }
            let mut said = Vec::new();
            while said.len() < PROBLEM_BYTES_MAX
                && let Some(bytes) = answer.piece().await?
            {
                said.extend_from_slice(&bytes);
            }
            Err(AskError::Refused(Problem::read(answer.status, &said)))
        })
    }

    /// Asks for a JSON value.
    ///
    /// # Errors
    /// As [`Client::ask`], or the answer is no JSON.
    pub fn json(&self, method: Method, what: &str, body: Option<&Value>) -> Result<Value, AskError> {
        let mut answer = self.ask(method, what, body)?;
        let mut all = Vec::new();
        while let Some(bytes) = answer.next_piece()? {
            all.extend_from_slice(&bytes);
        }
        if all.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&all)?) }
    }
}

impl Network {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?))
    }
}

impl Answer {
    /// What comes next of the body; `None`: it is whole.
    ///
    /// # Errors
    /// The connection broke before its end.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, AskError> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.piece())
    }

    /// The same, if it comes so soon; `None`: it doesn't.
    ///
    /// # Errors
    /// The connection broke before its end.
    pub fn piece_within(&mut self, patience: Duration) -> Result<Option<Option<Bytes>>, AskError> {
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            match tokio::time::timeout(patience, self.piece()).await {
                Ok(piece) => piece.map(Some),
                Err(_) => Ok(None),
            }
        })
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, AskError> {
        loop {
            match self.body.frame().await.transpose()? {
                None => return Ok(None),
                Some(frame) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers.extend(trailers);
                        }
                    }
                },
            }
        }
    }
}

/// An error with what is behind it.
fn in_full(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

/// What a door says that refuses to speak TLS. By TLS 1.3 it says so of a client's certificate when the client takes the
/// connection for made already.
fn alert(error: &hyper::Error) -> Option<io::Error> {
    let mut behind = error.source();
    while let Some(error) = behind {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(alert @ rustls::Error::AlertReceived(_)) = inner.and_then(|inner| inner.downcast_ref()) {
            return Some(io::Error::other(format!(
                "the door refuses the connection, or the certificate of this client: {alert}"
            )));
        }
        behind = error.source();
    }
    None
}

/// The header that says a token.
fn bearer(token: &str) -> Result<HeaderValue, AskError> {
    let token = token.trim();
    let header = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| !token.is_empty());
    let mut header = header.ok_or_else(|| AskError::Url("the token is none".to_string()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// A part of a path or of a query, encoded.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// An instance that says this, once, to whatever it is asked; and what it was asked.
    fn instance(said: &'static str) -> (tempfile::TempDir, Client, std::thread::JoinHandle<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = vec![0; 64 << 10];
            let bytes = stream.read(&mut asked).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            String::from_utf8_lossy(&asked[..bytes]).into_owned()
        });
        (folder, Client::unix(path).unwrap(), asked)
    }

    #[test]
    fn an_answer_comes_and_a_refusal_is_a_problem() {
        let (_folder, client, asked) = instance("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}");
        let value = client
            .json(Method::POST, &format!("triggers/{}/fire", encoded("a/b c")), Some(&Value::Null))
            .unwrap();
        assert_eq!(value["a"], 1);
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("POST /api/v1/triggers/a%2Fb%20c/fire HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("content-type: application/json\r\n"), "{asked}");
        let body = "{\"faults\":[{\"place\":\"id\",\"cause\":\"no\"}]}";
        let said = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let (_folder, client, asked) = instance(said.leak());
        let refused = client.json(Method::GET, "dumps/7", None).unwrap_err();
        assert_eq!(refused.to_string(), "id: no");
        asked.join().unwrap();
    }

    #[test]
    fn who_breaks_off_and_who_is_not_there_is_told() {
        let (_folder, client, asked) = instance("HTTP/1.1 200 OK\r\ncontent-length: 70\r\n\r\n{\"a\":1}");
        assert!(matches!(client.json(Method::GET, "status", None), Err(AskError::Broken(_))));
        asked.join().unwrap();
        let nobody = Client::unix("/nonexistent/s.sock").unwrap();
        let refused = nobody.json(Method::GET, "status", None).unwrap_err();
        assert!(refused.to_string().starts_with("/nonexistent/s.sock: No such file"), "{refused}");
    }
    #[test]
    fn a_door_has_a_url_and_no_token_leaves_this_machine_without_tls() {
        let trust = Trust::Fingerprint([7; 32]);
        let client = |url: &str| Client::url(url, Credentials::Token("wirescope_x\n"), &trust);
        for (url, place, prefix) in [
            ("https://scope:8443", "scope:8443", "/api/v1"),
            ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443", "/api/v1"),
            ("http://127.0.0.1:8080/api/v1/", "127.0.0.1:8080", "/api/v1"),
            ("https://scope/api/v1/instances/lan", "scope", "/api/v1/instances/lan"),
        ] {
            let client = client(url).unwrap();
            assert_eq!((client.place().as_str(), client.prefix.as_str()), (place, prefix), "{url}");
            assert!(!format!("{client:?}").contains("wirescope_x"));
        }
        for url in [
            "scope:8443",
            "http://scope:8080",
            "http://192.0.2.7",
            "ftp://scope",
            "https://a:b@scope",
            "https://scope/status",
            "https://scope/api/v1/instances/a/b",
            "https://scope?token=x",
            "",
        ] {
            assert!(matches!(client(url), Err(AskError::Url(_))), "{url}");
        }
        assert!(Client::url("https://scope", Credentials::Token(""), &trust).is_err());
        assert!(Client::url("https://scope", Credentials::Token("a\nb"), &trust).is_err());
    }
}
