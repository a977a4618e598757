//! Requests at a fixed rate over one connection: how long each answer takes from the moment at which it was due.
//!
//! ```text
//! due:    |     |     |     |        every 5 ms, whatever the answers take
//! asked:  |     |        |  |        late where the one before wasn't answered yet: that counts as its time, too
//! ```

use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Requests.
pub const PER_SECOND: u32 = 200;
/// An answer that takes longer is none.
const LIMIT: Duration = Duration::from_secs(10);
/// An answer's head at most, bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// What came of a load.
#[derive(Debug)]
pub struct Answers {
    /// Times of all answers, shortest first.
    times: Vec<Duration>,
    /// The last answer's body.
    pub last: Vec<u8>,
}

impl Answers {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// The time within which so large a share of them came, ms.
    pub fn within_ms(&self, share: f64) -> f64 {
        let at = ((self.times.len() as f64 * share).ceil() as usize).clamp(1, self.times.len());
        self.times[at - 1].as_secs_f64() * 1e3
    }
}

/// Asks the server at a socket for `path` for so long.
///
/// # Errors
/// The system's, and an answer that isn't 200.
pub fn ask(socket: &Path, path: &str, span: Duration) -> Result<Answers> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let count = (span.as_secs_f64() * f64::from(PER_SECOND)) as u32;
    let (mut times, mut last) = (Vec::with_capacity(count as usize), Vec::new());
    let begun = Instant::now();
    for number in 0..count {
        let due = begun + Duration::from_secs(1) * number / PER_SECOND;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(request.as_bytes())?;
        last = answer(&mut stream).with_context(|| format!("request {number}"))?;
        times.push(due.elapsed());
    }
    times.sort();
    ensure!(!times.is_empty(), "nothing was asked");
    Ok(Answers { times, last })
}

/// The body of one answer that says its length.
fn answer(stream: &mut UnixStream) -> Result<Vec<u8>> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 8192]);
    loop {
        let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = head_end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            ensure!(head.starts_with("http/1.1 200 "), "{}", head.lines().next().unwrap_or_default());
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.context("an answer without its length")?.trim().parse()?;
            if bytes.len() >= end + 4 + length {
                ensure!(bytes.len() == end + 4 + length, "more than the answer came");
                return Ok(bytes.split_off(end + 4));
            }
        } else {
            ensure!(bytes.len() < HEAD_BYTES_MAX, "an answer's head without an end");
        }
        match stream.read(&mut chunk) {
            Ok(0) => anyhow::bail!("the server closed the connection"),
            Ok(came) => bytes.extend(&chunk[..came]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("no answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_pauses_is_late_for_all_that_was_due_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            for number in 0.. {
                match stream.read(&mut request) {
                    Ok(1..) => {}
                    _ => return,
                }
                if number == 10 {
                    std::thread::sleep(Duration::from_millis(300));
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
            }
        });
        let answers = ask(&socket, "/", Duration::from_secs(1)).unwrap();
        server.join().unwrap();
        assert_eq!((answers.count(), answers.last.as_slice()), (200, &b"hi"[..]));
        // One pause of 300 ms holds up some 60 requests, of which a quarter waits for more than 200 ms.
        assert!(answers.within_ms(1.0) >= 300.0 && answers.within_ms(0.95) > 50.0, "{answers:?}");
    }
}
