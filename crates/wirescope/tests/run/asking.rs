//! A run that is asked at its control socket, by raw HTTP and by commands.

use super::{Done, LIMIT, Place, Started, finish, wait_until, wirescope};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

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
        let source = ["--source", "synth:rate=5k,trigger-at=1s"];
        let trigger = ["--trigger", "probe=udp port 60000", "--before", "200ms", "--after", "100ms"];
        let started = Started::new(place.command(&[&source[..], &trigger, more].concat()));
        let running = Running { place, started };
        if !more.contains(&"off") {
            wait_until("the run to listen and its first second", || {
                running.socket().exists() && running.get("status").body["elapsed_s"].is_number()
            });
        }
        running
    }

    /// A run with these flags alone, which has a control socket in its folder.
    pub fn bare(place: Place, flags: &[&str]) -> Running {
        let started = Started::new(place.command(flags));
        let running = Running { place, started };
        wait_until("the run to listen and its first second", || {
            running.socket().exists() && running.get("status").body["elapsed_s"].is_number()
        });
        running
    }

    pub fn socket(&self) -> PathBuf {
        self.place.out().join("wirescope.sock")
    }

    /// What the run answers to a route.
    pub fn get(&self, route: &str) -> Heard {
        self.ask(&format!("GET /api/v1/{route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }

    pub fn post(&self, route: &str, body: &str) -> Heard {
        let kind = "content-type: application/json\r\n";
        let len = body.len();
        self.ask(&format!(
            "POST /api/v1/{route} HTTP/1.1\r\nhost: x\r\n{kind}content-length: {len}\r\nconnection: close\r\n\r\n{body}"
        ))
    }

    pub fn ask(&self, request: &str) -> Heard {
        Heard::of(&self.raw(request.as_bytes()))
    }

    pub fn delete(&self, route: &str) -> Heard {
        self.ask(&format!("DELETE /api/v1/{route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }

    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        let Ok(mut stream) = UnixStream::connect(self.socket()) else { return Vec::new() };
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(request); // it may have been refused before its end
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    }

    /// A command that asks this run.
    pub fn command(&self, words: &[&str]) -> Done {
        let mut command = wirescope(words);
        command.arg("--control").arg(self.socket()).current_dir(self.place.root());
        finish(command)
    }

    pub fn end(self) -> (Place, Done) {
        self.started.signal(libc::SIGINT);
        let done = self.started.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        (self.place, done)
    }
}

/// An answer.
#[derive(Debug)]
pub struct Heard {
    pub status: u16,
    pub head: String,
    pub bytes: Vec<u8>,
    pub body: Value,
    /// What stands behind the last chunk.
    pub trailers: String,
}

impl Heard {
    pub fn of(heard: &[u8]) -> Heard {
        let end = heard.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, bytes) = end.map_or((heard, &b""[..]), |at| (&heard[..at], &heard[at + 4..]));
        let head = String::from_utf8_lossy(head).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let (bytes, trailers) = match head.contains("transfer-encoding: chunked") {
            true => joined(bytes),
            false => (bytes.to_vec(), String::new()),
        };
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Heard { status, head, bytes, body, trailers }
    }
}

/// The chunks of a body, without their lengths, and what follows the last one.
fn joined(mut chunks: &[u8]) -> (Vec<u8>, String) {
    let mut bytes = Vec::new();
    loop {
        let end = chunks.windows(2).position(|two| two == b"\r\n").unwrap_or(chunks.len());
        let len = str::from_utf8(&chunks[..end]).ok().and_then(|len| usize::from_str_radix(len, 16).ok());
        let Some(chunk) = len.filter(|&len| len > 0).and_then(|len| chunks.get(end + 2..end + 2 + len))
        else {
            return (bytes, String::from_utf8_lossy(chunks).into_owned()); // the last one, or one that isn't whole
        };
        bytes.extend(chunk);
        chunks = &chunks[(end + 4 + chunk.len()).min(chunks.len())..];
    }
}
