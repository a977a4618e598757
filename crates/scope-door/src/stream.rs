//! Packets of an answer on their way to a client, in pieces; a client that takes none is waited for between two of them.

use bytes::Bytes;
use hyper::body::Frame;
use scope_answer::Lines;
use scope_dump::Consumer;
use scope_dump::merge::Position;
use scope_packet::LinkType;
use scope_store::export::{Export, Pour};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// Pieces that wait for a slow client, and the bytes of one, but for what one look at the ring or a store brings.
pub(crate) const PIECES_MAX: usize = 4;
const PIECE_BYTES: usize = 256 << 10;
/// A piece has room for that, so that it is allocated once.
const ROOM_BYTES: usize = PIECE_BYTES * 2;
/// Who reads waits no longer for what was found.
const FLUSH_EVERY: Duration = Duration::from_millis(50);

/// Where pieces go.
pub(crate) struct Pipe(pub Sender<io::Result<Frame<Bytes>>>);

impl Pour for Pipe {
    fn pour(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(bytes, Vec::with_capacity(ROOM_BYTES));
        let sent = self.0.blocking_send(Ok(Frame::data(piece.into())));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn waits(&self) -> bool {
        true
    }
}

/// What was handed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub packets: u64,
    pub bytes: u64,
    /// Time of the last one, ns.
    pub last_ns: i64,
    /// As many as were asked for, and there are more.
    pub is_full: bool,
    /// Nobody takes them any more.
    pub is_gone: bool,
}

impl Taken {
    /// One more, unless there are as many as are wanted.
    fn add(&mut self, limit: Option<u64>, time_ns: i64) -> bool {
        if self.is_full || self.is_gone {
            return false;
        }
        self.is_full = limit.is_some_and(|limit| self.packets >= limit);
        if self.is_full {
            return false;
        }
        (self.packets, self.last_ns) = (self.packets + 1, time_ns);
        true
    }
}

/// A capture.
pub(crate) struct Stream {
    pub export: Export<'static>,
    pub taken: Taken,
    limit: Option<u64>,
    stop: Arc<AtomicBool>,
    flushed: Instant,
}

impl Stream {
    /// Of at most `limit` packets; `stop` is set where no more are wanted.
    pub(crate) fn new(export: Export<'static>, limit: Option<u64>, stop: Arc<AtomicBool>) -> Stream {
        Stream { export, taken: Taken::default(), limit, stop, flushed: Instant::now() }
    }
}

impl Consumer for Stream {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        if self.taken.add(self.limit, position.time_ns) {
            self.export.packet(position.lane, link_type, block);
        }
    }

    fn between(&mut self) {
        if self.export.gathered() >= PIECE_BYTES || self.flushed.elapsed() > FLUSH_EVERY {
            self.export.flush();
            self.flushed = Instant::now();
        }
        self.taken.is_gone |= !self.export.goes_on();
        if self.taken.is_gone || self.taken.is_full {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// An object for each packet.
pub(crate) struct Objects {
    lines: Lines<Vec<u8>>,
    pipe: Pipe,
    taken: Taken,
    limit: Option<u64>,
    stop: Arc<AtomicBool>,
    flushed: Instant,
}

impl Objects {
    /// Of at most `limit` packets; `stop` is set where no more are wanted.
    pub(crate) fn new(
        lines: Lines<Vec<u8>>,
        pipe: Pipe,
        limit: Option<u64>,
        stop: Arc<AtomicBool>,
    ) -> Objects {
        Objects { lines, pipe, taken: Taken::default(), limit, stop, flushed: Instant::now() }
    }

    fn flush(&mut self) {
        self.taken.is_gone |= self.pipe.pour(&mut self.lines.out).is_err();
        self.flushed = Instant::now();
    }

    /// All of them are there.
    pub(crate) fn end(mut self) -> Taken {
        self.flush();
        Taken { bytes: self.lines.sum.bytes, ..self.taken }
    }
}

impl Consumer for Objects {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        if self.taken.add(self.limit, position.time_ns) {
            self.lines.packet(position, link_type, block);
        }
    }

    fn between(&mut self) {
        if self.lines.out.len() >= PIECE_BYTES || self.flushed.elapsed() > FLUSH_EVERY {
            self.flush();
        }
        if self.taken.is_gone || self.taken.is_full {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}
