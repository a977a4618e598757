//! Reading ahead: a thread that reads a regular file's next bytes, and decompresses them where they are
//! compressed, while the worker is busy with those before them, for as long as that is the faster way.
//!
//! ```text
//!             free chunks, at most CHUNKS            a chunk   0        HEADROOM            capacity
//!  worker ──────────────────────────────► thread               | free   | bytes as read     |
//!         ◄──────────────────────────────
//!             filled chunks, in file order
//! ```
//! It takes the kernel's copy of read(2) off the worker. The headroom is where the worker puts the unread rest
//! of the chunk before, so that a record across two chunks is in one piece and nothing else is copied. Chunks
//! go round: [`CHUNKS`] are made at the beginning and none later. The thread ends with the file, with an
//! error, or when [`Ahead`] is dropped.
//!
//! Where the worker itself is faster ([`turns`](super::turns)), it keeps the free chunks. Once it has used up
//! what the thread had read, nobody but the worker reads, until the thread gets free chunks again.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::stream::Stream;
use super::turns::{Reader, Turns};

/// Room in front of a chunk's bytes, bytes: what is unread of the chunk before, if it isn't more, is put
/// there.
pub(super) const HEADROOM: usize = 128 << 10;
/// Bytes read into one chunk at most.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Chunks that are filled or wait to be, besides the one that is lent from.
const CHUNKS: usize = 2;
/// Memory that reading ahead takes, bytes.
pub(super) const AHEAD_BYTES: usize = CHUNKS * (HEADROOM + CHUNK_BYTES);

/// A chunk, and how many bytes were read behind its headroom; `None`: nothing for the moment.
type Filled = io::Result<(Vec<u8>, Option<usize>)>;

/// To the thread, and from it.
type Ends = (SyncSender<Vec<u8>>, Receiver<Filled>);

/// What comes next.
pub(super) enum Next {
    /// The thread has filled a chunk: so many bytes stand behind its headroom, 0 at the end.
    Chunk(Vec<u8>, usize),
    /// The thread has looked at much and found nothing yet.
    NotYet,
    /// The worker is to read, by [`Ahead::read`].
    OwnRead,
}

/// A file whose next bytes are read by a thread of its own, or by the worker where that is faster.
pub(super) struct Ahead {
    /// Who reads has it; nobody else wants it then.
    input: Arc<Mutex<Stream>>,
    /// `None` only while being dropped.
    ends: Option<Ends>,
    thread: Option<JoinHandle<()>>,
    /// Chunks that the thread has.
    given: usize,
    /// Chunks that it is to have once it reads again.
    spare: Vec<Vec<u8>>,
    /// Who reads; `None`: always the thread.
    turns: Option<Turns>,
    reader: Reader,
    /// What was handed out last: by whom it was read, bytes, and when.
    last: Option<(Reader, u64, Instant)>,
    failed: bool,
}

impl Ahead {
    /// Starts the thread. `alone`: the worker reads nothing else, so that it can measure who is faster. Where
    /// the system has no thread for it, the worker reads all.
    pub(super) fn start(input: Stream, alone: bool) -> Ahead {
        let (free, take_free) = sync_channel(CHUNKS);
        let (put_filled, filled) = sync_channel(CHUNKS);
        let input = Arc::new(Mutex::new(input));
        let of_thread = input.clone();
        let read = move || read_on(&of_thread, &take_free, &put_filled);
        let thread = std::thread::Builder::new().name("read-ahead".to_string()).spawn(read).ok();
        Ahead::of(input, (free, filled), thread, alone)
    }

    fn of(input: Arc<Mutex<Stream>>, ends: Ends, thread: Option<JoinHandle<()>>, alone: bool) -> Ahead {
        let mut ahead = Ahead {
            input,
            ends: Some(ends),
            reader: if thread.is_some() { Reader::Thread } else { Reader::Worker },
            turns: (alone && thread.is_some()).then(Turns::new),
            thread,
            given: 0,
            spare: Vec::with_capacity(CHUNKS),
            last: None,
            failed: false,
        };
        for _ in 0..CHUNKS {
            ahead.recycle(vec![0; HEADROOM + CHUNK_BYTES]);
        }
        ahead
    }

    /// What comes next; waits until it was read. The worker is through with all that it got before.
    ///
    /// # Errors
    /// Reading failed at this place. Nothing comes behind an error.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        if self.failed {
            return Err(io::Error::other("nothing more is read after an error"));
        }
        let now = Instant::now();
        self.choose(now);
        if self.given == 0 {
            self.last = Some((Reader::Worker, 0, now));
            return Ok(Next::OwnRead);
        }
        let gone = || io::Error::other("the thread that reads ahead has ended");
        let (_, filled) = self.ends.as_ref().ok_or_else(gone)?;
        let filled = filled.recv().unwrap_or_else(|_| Err(gone()));
        self.given -= 1;
        self.failed = filled.is_err();
        let (chunk, read) = filled?;
        self.last = Some((Reader::Thread, read.unwrap_or(0) as u64, now));
        Ok(match read {
            Some(read) => Next::Chunk(chunk, read),
            None => {
                self.recycle(chunk);
                Next::NotYet
            }
        })
    }

    /// Reads some bytes in the worker's own time, after [`Next::OwnRead`]; 0 is the end, `None`: nothing for
    /// the moment.
    ///
    /// # Errors
    /// The system's. Nothing comes behind an error.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        debug_assert_eq!(self.given, 0, "nobody else reads");
        let read = self.input.lock().unwrap_or_else(PoisonError::into_inner).read(into);
        self.failed = read.is_err();
        if let (Some((_, bytes, _)), Ok(read)) = (&mut self.last, &read) {
            *bytes = read.unwrap_or(0) as u64;
        }
        read
    }

    /// Who reads from `now` on, when the worker is through with what was handed out last.
    fn choose(&mut self, now: Instant) {
        if let (Some(turns), Some((reader, bytes, at))) = (&mut self.turns, self.last) {
            let ns = u64::try_from(now.duration_since(at).as_nanos()).unwrap_or(u64::MAX);
            self.reader = turns.note(reader, bytes, ns);
        }
        if self.reader == Reader::Thread {
            for chunk in std::mem::take(&mut self.spare) {
                self.give(chunk);
            }
        }
    }

    /// Takes back a chunk of which nothing is lent any more; its length must be that of all chunks.
    pub(super) fn recycle(&mut self, chunk: Vec<u8>) {
        debug_assert_eq!(chunk.len(), HEADROOM + CHUNK_BYTES);
        match self.reader {
            Reader::Thread => self.give(chunk),
            Reader::Worker => self.spare.push(chunk),
        }
    }

    fn give(&mut self, chunk: Vec<u8>) {
        if let Some((free, _)) = &self.ends {
            self.given += usize::from(free.try_send(chunk).is_ok()); // a thread that has ended takes none
        }
    }
}

impl Drop for Ahead {
    /// Without its channels the thread ends after at most one more read(2).
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// The thread: fills chunks until the end, an error, or until nobody wants them.
fn read_on(input: &Mutex<Stream>, free: &Receiver<Vec<u8>>, filled: &SyncSender<Filled>) {
    while let Ok(mut chunk) = free.recv() {
        let read = input.lock().unwrap_or_else(PoisonError::into_inner).read(&mut chunk[HEADROOM..]);
        let read = read.map(|read| (chunk, read));
        let goes_on = matches!(read, Ok((_, Some(1..) | None)));
        if filled.send(read).is_err() || !goes_on {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use super::super::input::Input;
    use super::*;

    /// Gives so many bytes, then fails.
    struct Breaks {
        left: usize,
        _held: Arc<()>,
    }

    impl Read for Breaks {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.left.min(into.len());
            self.left -= len;
            if len == 0 { Err(io::Error::other("broken")) } else { Ok(len) }
        }
    }

    /// The next bytes, by whoever reads them: how many, and how many of them the worker has read.
    fn next(ahead: &mut Ahead) -> io::Result<(usize, usize)> {
        match ahead.next()? {
            Next::Chunk(chunk, read) => {
                ahead.recycle(chunk);
                Ok((read, 0))
            }
            Next::OwnRead => ahead.read(&mut vec![0; CHUNK_BYTES]).map(|read| (read.unwrap(), read.unwrap())),
            Next::NotYet => panic!("plain bytes come at once"),
        }
    }

    fn breaks_after(left: usize) -> (Stream, Arc<()>) {
        let held = Arc::new(());
        (Stream::Plain(Input::Reader(Box::new(Breaks { left, _held: held.clone() }))), held)
    }

    #[test]
    fn an_error_comes_behind_the_bytes_before_it_and_nothing_comes_behind_the_error() {
        let mut ahead = Ahead::start(breaks_after(CHUNK_BYTES + 7).0, false);
        assert_eq!(next(&mut ahead).unwrap(), (CHUNK_BYTES, 0));
        assert_eq!(next(&mut ahead).unwrap(), (7, 0));
        assert_eq!(next(&mut ahead).unwrap_err().to_string(), "broken");
        assert!(next(&mut ahead).is_err());
    }

    #[test]
    fn both_read_in_turns_and_each_byte_is_read_once() {
        let bytes = 400 * CHUNK_BYTES + 5;
        let mut ahead = Ahead::start(breaks_after(bytes).0, true);
        let (mut read, mut own) = (0, 0);
        let broken = loop {
            match next(&mut ahead) {
                Ok((bytes, of_worker)) => (read, own) = (read + bytes, own + of_worker),
                Err(error) => break error,
            }
        };
        assert_eq!((read, broken.to_string().as_str()), (bytes, "broken"));
        assert!(own > 0 && own < bytes, "the worker has read {own} of {bytes}");
        assert!(next(&mut ahead).is_err());
    }

    #[test]
    fn without_a_thread_the_worker_reads_all() {
        let input = Arc::new(Mutex::new(breaks_after(3 * CHUNK_BYTES).0));
        let mut ahead = Ahead::of(input, (sync_channel(1).0, sync_channel(1).1), None, true);
        for _ in 0..3 {
            assert_eq!(next(&mut ahead).unwrap(), (CHUNK_BYTES, CHUNK_BYTES));
        }
    }

    #[test]
    fn the_thread_is_gone_once_its_owner_is_dropped() {
        let (input, held) = breaks_after(usize::MAX);
        drop(Ahead::start(input, true));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
