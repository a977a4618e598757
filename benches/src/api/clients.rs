//! Clients that a server must bear: slow ones, which take or give a few bytes a second, and broken ones, which say half a
//! request or none and vanish.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::TcpStream;
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

/// Where they come in: at a run's socket, and each second one at the door in front of it, if there is one.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    /// The socket.
    pub socket: &'a Path,
    /// Where the door listens, and a token for it.
    pub door: Option<(&'a str, &'a str)>,
}

/// A connection.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Ways<'_> {
    fn connect(&self, number: usize) -> std::io::Result<Stream> {
        match self.door.filter(|_| number % 2 == 1) {
            Some((address, _)) => TcpStream::connect(address).map(Stream::Tcp),
            None => UnixStream::connect(self.socket).map(Stream::Unix),
        }
    }

    /// The head of a request for events, as it is believed there.
    fn events(&self, number: usize) -> String {
        let token = self.door.filter(|_| number % 2 == 1).map(|(_, token)| token);
        let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{token}Last-Event-ID: 0\r\n\r\n")
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lets them go on until `is_over`; the slow ones come before `ready` is called.
///
/// # Errors
/// The system's, where no slow one gets in.
pub fn bother(ways: Ways<'_>, is_over: &AtomicBool, ready: impl FnOnce()) -> Result<Came> {
    let mut came = Came::default();
    let mut slow = (0..SLOW).map(|number| open(ways, number)).collect::<Result<Vec<Stream>>>()?;
    came.slow = slow.len();
    for (number, stream) in slow.iter_mut().enumerate().skip(SLOW / 2) {
        stream.write_all(ways.events(number).as_bytes())?;
    }
    ready();
    let mut broken: Vec<Option<Stream>> = (0..BROKEN).map(|_| None).collect();
    let head = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
    for turn in 0.. {
        for (number, client) in broken.iter_mut().enumerate() {
            if is_over.load(Ordering::Relaxed) {
                return Ok(came);
            }
            *client = None;
            let said = SAID[(number + turn) % SAID.len()];
            match ways.connect(number) {
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
                *stream = open(ways, number)?;
                came.slow += 1;
            }
        }
    }
    Ok(came)
}

fn open(ways: Ways<'_>, number: usize) -> Result<Stream> {
    let stream = ways.connect(number).with_context(|| ways.socket.display().to_string())?;
    let (read, write) = (Some(Duration::from_millis(20)), Some(TURN));
    match &stream {
        Stream::Unix(stream) => (stream.set_read_timeout(read)?, stream.set_write_timeout(write)?),
        Stream::Tcp(stream) => (stream.set_read_timeout(read)?, stream.set_write_timeout(write)?),
    };
    Ok(stream)
}
