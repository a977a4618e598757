//! Questions to an instance, over its Unix socket: a connection each, answered piece by piece.
//!
//! ```text
//! Client::unix(path) ─► ask(GET, "status") ─► Answer ─► next_piece() ─► bytes, as they come
//!                                         └► a status of 400 and more: a Problem
//! ```

use crate::PREFIX;
use crate::problem::Problem;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, TE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// A refusal's body at most, bytes; what is longer is cut off.
const PROBLEM_BYTES_MAX: usize = 256 << 10;
/// So long an instance may take until it listens to what it is asked.
const PATIENCE: Duration = Duration::from_secs(10);
/// What of a parameter isn't encoded.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there, or not to this user.
    #[error("{}: {cause}", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's.
        cause: io::Error,
    },
    /// The connection broke, or what came is no HTTP.
    #[error("the instance broke off: {0}")]
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
    path: PathBuf,
}

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
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Client { runtime: Arc::new(runtime), path: path.into() })
    }

    /// The instance's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for what stands below the prefix of all routes, for example `dumps?limit=10`.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub fn ask(&self, method: Method, what: &str, body: Option<&Value>) -> Result<Answer, AskError> {
        self.runtime.block_on(async {
            let connect = tokio::time::timeout(PATIENCE, UnixStream::connect(&self.path)).await;
            let stream = connect
                .map_err(|_| AskError::Silent)?
                .map_err(|cause| AskError::Connect { path: self.path.clone(), cause })?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            self.runtime.spawn(connection);
            let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
            let mut request =
                Request::builder().method(method).uri(format!("{PREFIX}/{what}")).header(HOST, "localhost");
            request = request.header(TE, "trailers");
            if body.is_some() {
                request = request.header(CONTENT_TYPE, "application/json");
            }
            let answer = sender.send_request(request.body(Full::new(bytes))?).await?;
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
}
