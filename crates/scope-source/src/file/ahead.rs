//! Reading ahead: a thread that reads a regular file's next bytes while the worker is busy with those before
//! them.
//!
//! ```text
//!             free chunks, at most CHUNKS            a chunk   0        HEADROOM            capacity
//!  worker ──────────────────────────────► thread               | free   | bytes as read     |
//!         ◄──────────────────────────────
//!             filled chunks, in file order
//! ```
//! It takes the kernel's copy of read(2) off the worker. The headroom is where the worker puts the unread
//! rest of the chunk before, so that a record across two chunks is in one piece and nothing else is copied.
//! Chunks go round: [`CHUNKS`] are made at the beginning and none later. The thread ends with the file, with
//! an error, or when [`Ahead`] is dropped.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::input::Input;

/// Room in front of a chunk's bytes, bytes: what is unread of the chunk before, if it isn't more, is put
/// there.
pub(super) const HEADROOM: usize = 128 << 10;
/// Bytes read into one chunk at most.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Chunks that are filled or wait to be, besides the one that is lent from.
const CHUNKS: usize = 2;
/// Memory that reading ahead takes, bytes.
pub(super) const AHEAD_BYTES: usize = CHUNKS * (HEADROOM + CHUNK_BYTES);

/// A chunk, and how many bytes were read behind its headroom.
type Filled = io::Result<(Vec<u8>, usize)>;

/// A file whose next bytes are read by a thread of its own.
pub(super) struct Ahead {
    /// `None` only while being dropped.
    ends: Option<(SyncSender<Vec<u8>>, Receiver<Filled>)>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Starts the thread. Where the system has no thread for it, the input comes back to be read without one.
    pub(super) fn start(input: Input) -> Result<Ahead, Input> {
        let (free, take_free) = sync_channel(CHUNKS);
        let (put_filled, filled) = sync_channel(CHUNKS);
        // The input goes through a channel, since a closure that can't be spawned is lost with all it has.
        let (give_input, take_input) = sync_channel(1);
        let read = move || {
            let Ok(input) = take_input.recv() else { return };
            read_on(input, &take_free, &put_filled);
        };
        let Ok(thread) = std::thread::Builder::new().name("read-ahead".to_string()).spawn(read) else {
            return Err(input);
        };
        for _ in 0..CHUNKS {
            let _room_for_all = free.try_send(vec![0; HEADROOM + CHUNK_BYTES]);
        }
        let _waits_for_it = give_input.send(input);
        Ok(Ahead { ends: Some((free, filled)), thread: Some(thread) })
    }

    /// The next chunk and how many bytes stand behind its headroom, 0 at the end; waits until it was read.
    ///
    /// # Errors
    /// Reading failed at this place. Nothing comes behind an error.
    pub(super) fn next(&mut self) -> Filled {
        let gone = || io::Error::other("nothing more was read after an error");
        let (_, filled) = self.ends.as_ref().ok_or_else(gone)?;
        filled.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Takes back a chunk of which nothing is lent any more; its length must be that of all chunks.
    pub(super) fn recycle(&mut self, chunk: Vec<u8>) {
        debug_assert_eq!(chunk.len(), HEADROOM + CHUNK_BYTES);
        if let Some((free, _)) = &self.ends {
            let _thread_has_ended = free.try_send(chunk);
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
fn read_on(mut input: Input, free: &Receiver<Vec<u8>>, filled: &SyncSender<Filled>) {
    while let Ok(mut chunk) = free.recv() {
        let read = input.read(&mut chunk[HEADROOM..]).map(|read| (chunk, read));
        let goes_on = matches!(read, Ok((_, 1..)));
        if filled.send(read).is_err() || !goes_on {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

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

    #[test]
    fn an_error_comes_behind_the_bytes_before_it_and_nothing_comes_behind_the_error() {
        let mut ahead =
            Ahead::start(Input::Reader(Box::new(Breaks { left: CHUNK_BYTES + 7, _held: Arc::default() })))
                .ok()
                .unwrap();
        let (chunk, read) = ahead.next().unwrap();
        assert_eq!(read, CHUNK_BYTES);
        ahead.recycle(chunk);
        assert_eq!(ahead.next().unwrap().1, 7);
        ahead.recycle(vec![0; HEADROOM + CHUNK_BYTES]);
        assert_eq!(ahead.next().unwrap_err().to_string(), "broken");
        assert!(ahead.next().is_err());
    }

    #[test]
    fn the_thread_is_gone_once_its_owner_is_dropped() {
        let held = Arc::new(());
        let ahead = Ahead::start(Input::Reader(Box::new(Breaks { left: usize::MAX, _held: held.clone() })))
            .ok()
            .unwrap();
        drop(ahead);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
