//! Packets of an answer on their way to a client, in pieces; a client that takes none is waited for between two of them.

use bytes::Bytes;
use hyper::body::Frame;
use scope_answer::Lines;
use scope_dump::Consumer;
use scope_dump::merge::Position;
use scope_packet::LinkType;
use scope_store::export::{Export, Pour};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::watch;

/// Pieces that wait for a slow client, and the bytes of one, but for what one look at the ring or a store brings.
pub(crate) const PIECES_MAX: usize = 4;
const PIECE_BYTES: usize = 256 << 10;
/// A piece has room for that, so that it is allocated once.
const ROOM_BYTES: usize = PIECE_BYTES * 2;
/// Marks that are kept: of all frames that may not have gone out yet.
const MARKS_MAX: usize = PIECES_MAX + 4;
/// Who reads waits no longer for what was found.
const FLUSH_EVERY: Duration = Duration::from_millis(50);

/// What all frames up to one had.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    frames: u64,
    packets: u64,
    bytes: u64,
}

/// How many frames were sent, and what the newest ones had.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    frames: AtomicU64,
    marks: Mutex<VecDeque<Mark>>,
}

impl Sent {
    /// All that was sent by now has so many packets, and captured bytes.
    fn mark(&self, packets: u64, bytes: u64) {
        let frames = self.frames.load(Ordering::Relaxed);
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.back().is_none_or(|mark| mark.frames < frames) {
            marks.push_back(Mark { frames, packets, bytes });
        }
        if marks.len() > MARKS_MAX {
            marks.pop_front();
        }
    }

    /// Packets and captured bytes of the first so many frames; `None`: those are all.
    pub(crate) fn up_to(&self, frames: u64) -> Option<(u64, u64)> {
        if frames >= self.frames.load(Ordering::Relaxed) {
            return None;
        }
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = marks.iter().rfind(|mark| mark.frames <= frames).copied().unwrap_or_default();
        Some((mark.packets, mark.bytes))
    }
}

/// Where frames go.
#[derive(Clone)]
pub(crate) struct Pipe {
    frames: Sender<io::Result<Frame<Bytes>>>,
    sent: Arc<Sent>,
    /// What waits for room.
    runtime: Handle,
    /// Set: it waits no longer.
    over: watch::Receiver<bool>,
    is_broken: Arc<AtomicBool>,
}

impl Pipe {
    /// Into this channel, until it is `over`. It is made in a runtime; `is_broken` tells the body that it isn't whole.
    pub(crate) fn new(
        frames: Sender<io::Result<Frame<Bytes>>>,
        sent: Arc<Sent>,
        over: watch::Receiver<bool>,
        is_broken: Arc<AtomicBool>,
    ) -> Pipe {
        Pipe { frames, sent, runtime: Handle::current(), over, is_broken }
    }

    /// Waits until there is room for it.
    ///
    /// # Errors
    /// Nobody takes it any more.
    pub(crate) fn send(&self, frame: Frame<Bytes>) -> io::Result<()> {
        self.sent.frames.fetch_add(1, Ordering::Relaxed);
        let frame = match self.frames.try_send(Ok(frame)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(frame)) => frame,
        };
        let mut over = self.over.clone();
        self.runtime.block_on(async {
            tokio::select! {
                sent = self.frames.send(frame) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
                _ = over.wait_for(|over| *over) => Err(io::ErrorKind::BrokenPipe.into()),
            }
        })
    }

    /// All that was sent by now has so many packets, and captured bytes.
    pub(crate) fn mark(&self, packets: u64, bytes: u64) {
        self.sent.mark(packets, bytes);
    }

    /// The answer breaks off behind what was sent.
    pub(crate) fn break_off(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Nobody takes anything any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }
}

impl Pour for Pipe {
    fn pour(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(bytes, Vec::with_capacity(ROOM_BYTES));
        self.send(Frame::data(piece.into()))
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
    sent: Arc<Sent>,
    limit: Option<u64>,
    stop: Arc<AtomicBool>,
    flushed: Instant,
}

impl Stream {
    /// Of at most `limit` packets; `stop` is set where no more are wanted.
    pub(crate) fn new(
        export: Export<'static>,
        pipe: &Pipe,
        limit: Option<u64>,
        stop: Arc<AtomicBool>,
    ) -> Stream {
        let (taken, sent) = (Taken::default(), pipe.sent.clone());
        Stream { export, taken, sent, limit, stop, flushed: Instant::now() }
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
            let (packets, bytes) = self.export.written();
            self.sent.mark(packets, bytes);
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
        self.pipe.sent.mark(self.taken.packets, self.lines.sum.bytes);
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
