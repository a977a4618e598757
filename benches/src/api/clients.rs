//! Clients that a server must bear: slow ones, which take or give a few bytes a second, and broken ones, which say half a
//! request or none and vanish.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Slow clients: half of them say their requests slowly, the others take their answers so.
pub const SLOW: usize = 20;
/// Broken ones, each of which comes again as soon as it is gone.
pub const BROKEN: usize = 100;
/// A slow one moves once in so long, each of the broken ones comes again in it.
const TURN: Duration = Duration::from_secs(1);
/// What broken ones say.
const SAID: [&[u8]; 8] = [
    b"",
    b"GET /api/v1/sta",
    b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /api/v1/fire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /api/v1/status HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
];

/// How often they came in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    /// Connections of slow ones.
    pub slow: usize,
    /// Connections of broken ones.
    pub broken: usize,
    /// Connections that the server closed at once, or refused.
    pub refused: usize,
}

/// Lets them go on until `is_over`; the slow ones come before `ready` is called.
///
/// # Errors
/// The system's, where no slow one gets in.
pub fn bother(socket: &Path, is_over: &AtomicBool, ready: impl FnOnce()) -> Result<Came> {
    let mut came = Came::default();
    let mut slow = (0..SLOW).map(|_| open(socket)).collect::<Result<Vec<UnixStream>>>()?;
    came.slow = slow.len();
    for stream in slow.iter_mut().skip(SLOW / 2) {
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 0\r\n\r\n")?;
    }
    ready();
    let mut broken: Vec<Option<UnixStream>> = (0..BROKEN).map(|_| None).collect();
    let head = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
    for turn in 0.. {
        for (number, client) in broken.iter_mut().enumerate() {
            if is_over.load(Ordering::Relaxed) {
                return Ok(came);
            }
            *client = None;
            let said = SAID[(number + turn) % SAID.len()];
            match UnixStream::connect(socket) {
                Ok(mut stream) => {
                    came.broken += 1;
                    came.refused += usize::from(stream.write_all(said).is_err());
                    *client = Some(stream);
                }
                Err(_) => came.refused += 1,
            }
            std::thread::sleep(TURN / BROKEN as u32);
        }
        for (number, stream) in slow.iter_mut().enumerate() {
            let moved = match number < SLOW / 2 {
                true => stream.write_all(&head[turn % head.len()..][..1]).is_ok(),
                false => stream.read(&mut [0; 8]).is_ok_and(|bytes| bytes > 0),
            };
            // The server may end those that are too slow: then they come again.
            if !moved {
                *stream = open(socket)?;
                came.slow += 1;
            }
        }
    }
    Ok(came)
}

fn open(socket: &Path) -> Result<UnixStream> {
    let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    stream.set_write_timeout(Some(TURN))?;
    Ok(stream)
}
