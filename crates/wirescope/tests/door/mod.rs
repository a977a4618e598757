//! A run with a door to the network in front of it, its tokens, and clients that send whatever they like.
#![allow(dead_code)] // every test file takes what it needs

pub use super::run::asking::Heard;
use super::run::{Done, LIMIT, Place, Started, finish, wait_until, wirescope};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// A door that answers.
pub struct Serving {
    pub started: Started,
    pub address: String,
}

impl Serving {
    /// Begins one at a free port of loopback.
    pub fn new(tokens: &Path, controls: &[String], more: &[&str]) -> Serving {
        let mut command = wirescope(&["serve", "--listen", "127.0.0.1:0", "--tokens"]);
        command.arg(tokens);
        for control in controls {
            command.args(["--control", control]);
        }
        command.args(more);
        Serving::of(Started::new(command))
    }

    /// One that was begun.
    pub fn of(mut started: Started) -> Serving {
        wait_until("the door to answer", || {
            assert!(!started.has_ended(), "{}", started.words());
            address(&started.words()).is_some()
        });
        let address = address(&started.words()).unwrap();
        Serving { started, address }
    }

    /// What is answered to these bytes.
    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        raw(&self.address, request)
    }

    /// What is answered to a request with this head, which ends the connection.
    pub fn ask(&self, head: &str, body: &str) -> Heard {
        let length =
            if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let request = format!("{head}\r\n{length}connection: close\r\n\r\n{body}");
        Heard::of(&self.raw(request.as_bytes()))
    }

    pub fn get(&self, token: &str, route: &str) -> Heard {
        self.order("GET", token, route, "")
    }

    pub fn post(&self, token: &str, route: &str, body: &str) -> Heard {
        self.order("POST", token, route, body)
    }

    pub fn order(&self, method: &str, token: &str, route: &str, body: &str) -> Heard {
        let kind = if body.is_empty() { "" } else { "\r\ncontent-type: application/json" };
        self.ask(
            &format!(
                "{method} /api/v1/{route} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}{kind}"
            ),
            body,
        )
    }

    /// A command that asks through this door.
    pub fn command(&self, token_file: &Path, words: &[&str]) -> Done {
        let mut command = wirescope(words);
        command.args(["--url", &format!("http://{}", self.address), "--token-file"]).arg(token_file);
        finish(command)
    }

    pub fn end(self) -> Done {
        self.started.signal(libc::SIGTERM);
        let done = self.started.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done
    }
}

/// Where a door says that it answers.
pub fn address(words: &str) -> Option<String> {
    let at = words.lines().find(|line| line.starts_with("serving "))?;
    Some(at.split_once("://")?.1.split_whitespace().next()?.to_string())
}

/// What is answered to these bytes at this address.
pub fn raw(address: &str, request: &[u8]) -> Vec<u8> {
    let Ok(mut stream) = TcpStream::connect(address) else { return Vec::new() };
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = stream.write_all(request); // it may have been refused before its end
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    heard
}

/// The status of an answer, without waiting for its end.
pub fn status_of(address: &str, request: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    std::str::from_utf8(&first[9..]).unwrap().parse().unwrap()
}

/// A run that goes until it is stopped, with one trigger, which fires after a second.
pub struct Running {
    pub place: Place,
    pub started: Started,
}

impl Running {
    pub fn new(more: &[&str]) -> Running {
        Running::at(Place::new(), more)
    }

    pub fn at(place: Place, more: &[&str]) -> Running {
        let started = Started::new(place.command(&[&RUN[..], more].concat()));
        let mut running = Running { place, started };
        wait_until("the run to listen", || {
            assert!(!running.started.has_ended(), "{}", running.started.words());
            running.socket().exists()
        });
        running
    }

    pub fn socket(&self) -> PathBuf {
        self.place.out().join("wirescope.sock")
    }

    /// How a door is told of it.
    pub fn control(&self) -> String {
        self.socket().display().to_string()
    }

    pub fn tokens(&self) -> PathBuf {
        self.place.path("tokens")
    }

    /// Makes a token.
    pub fn token(&self, words: &[&str]) -> String {
        token(&self.tokens(), words)
    }

    /// Makes one, and the file with it.
    pub fn token_file(&self, words: &[&str]) -> PathBuf {
        let path = self.place.path("token");
        std::fs::write(&path, self.token(words)).unwrap();
        path
    }

    pub fn serve(&self, more: &[&str]) -> Serving {
        Serving::new(&self.tokens(), &[self.control()], more)
    }

    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.place.out().join("audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn end(self) -> (Place, Done) {
        self.started.signal(libc::SIGINT);
        let done = self.started.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        (self.place, done)
    }
}

/// What such a run captures, and its trigger.
pub const RUN: [&str; 8] = [
    "--source",
    "synth:rate=5k,trigger-at=1s",
    "--trigger",
    "probe=udp port 60000",
    "--before",
    "200ms",
    "--after",
    "100ms",
];

/// Makes a token in this file.
pub fn token(tokens: &Path, words: &[&str]) -> String {
    let mut command = wirescope(&["token", "add", "--tokens"]);
    command.arg(tokens).args(words);
    let done = finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    done.stdout.trim().to_string()
}
