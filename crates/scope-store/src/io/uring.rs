//! Writing by io_uring, past the page cache (O_DIRECT), straight from the ring's memory: many writes at once,
//! none of which costs a copy.
//!
//! How it is set up, before rights are given up:
//! 1. A queue is made, disabled. The kernel has to know restrictions (5.10) and waits with an end (5.11).
//! 2. The ring's memory is registered in pieces of at most 1 GiB, so that the kernel finds its pages once and
//!    not for each write. Where this process may lock too little memory the kernel refuses that: then writes
//!    go the longer way, and the start line says so.
//! 3. A table of files is registered, all empty. A file that is opened later gets its place by a request.
//! 4. From now on the queue does nothing but to write, to sync and to change that table, for good; it is
//!    enabled. No call registers anything any more.
//!
//! Nothing may be begun before rights were given up: what is begun may wait in a thread of the kernel's, which
//! belongs to this process and keeps the rights that its beginner had.
//!
//! ```text
//!  begin ──► place (owns pin or pages) ──► queue ──► kernel ──► answers ──► finish: place empty, bytes given back
//!                ▲                                                │
//!                └───────── not all written yet, or "again" ◄─────┘
//! ```

use super::tree::{FILES_MAX, Tree};
use super::writer::{Writer, check_pages};
use crate::disk::{Act, Begun, FileNumber, Finished, PAGE_BYTES};
use io_uring::register::Restriction;
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use scope_ring::Ring;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes and syncs that the kernel has at once: enough small segments to keep a disk busy.
const DEPTH: usize = 64;
/// Bytes of them: enough large segments to keep a disk busy, and few enough that the ring has the rest.
const DEPTH_BYTES: usize = 32 << 20;
/// One place more, for a file that is opened or closed.
const PLACES: usize = DEPTH + 1;
/// The longest piece of memory that the kernel registers.
const PIECE_BYTES: usize = 1 << 30;
/// What is refused for a moment is begun again so often.
const TRIES_MAX: u32 = 1000;
/// The longest that an end waits for what the disk still has. Then its memory is never given back.
const END_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks for answers, where waiting for them is refused.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Why there is no queue: the step that failed, in words, and the system's own words.
#[derive(Debug)]
pub struct NoQueue {
    /// What is refused: "io_uring is refused by the system".
    pub what: &'static str,
    /// Why.
    pub cause: io::Error,
}

/// Writes by io_uring.
pub struct Uring {
    queue: IoUring,
    memory: Registered,
    /// What was begun, by the number that the kernel has of it.
    places: Vec<Option<Flight>>,
    /// Places that are empty.
    empty: Vec<usize>,
    /// Places whose requests the kernel hasn't taken yet, oldest first.
    waiting: VecDeque<usize>,
    flying_bytes: usize,
    /// The kernel takes nothing any more, and why.
    broken: Option<i32>,
    done: Vec<Finished>,
}

/// What the kernel has, or will have.
enum Flight {
    /// To be written or synced.
    Act {
        begun: Begun,
        /// Bytes that are written already.
        written: usize,
        tries: u32,
    },
    /// A file gets a place in the table, or leaves it.
    Table { entry: Box<RawFd>, file: FileNumber, result: Option<i32> },
}

/// The ring's memory as the kernel knows it. The ring stays as long as this, so that no other memory comes to
/// lie at these addresses.
struct Registered {
    pieces: Option<(Arc<Ring>, usize, usize)>,
}

impl Registered {
    /// The piece that holds these bytes, all of them.
    fn piece(&self, bytes: &[u8]) -> Option<u16> {
        let (_, base, end) = self.pieces.as_ref()?;
        let from = bytes.as_ptr() as usize;
        let to = from + bytes.len();
        if from < *base || to > *end {
            return None;
        }
        let piece = (from - base) / PIECE_BYTES;
        ((to - 1 - base) / PIECE_BYTES == piece).then_some(u16::try_from(piece).ok()?)
    }
}

impl Uring {
    /// Sets up a queue, and registers `ring`'s memory with it; `Some` error says why that was refused.
    pub fn new(ring: Option<&Arc<Ring>>) -> Result<(Uring, Option<io::Error>), NoQueue> {
        let step = |what| move |cause| NoQueue { what, cause };
        let queue = IoUring::builder()
            .dontfork()
            .setup_r_disabled()
            .build(PLACES as u32)
            .map_err(step("io_uring is refused by the system"))?;
        if !queue.params().is_feature_ext_arg() {
            let cause = io::Error::from_raw_os_error(libc::ENOSYS);
            return Err(NoQueue { what: "this kernel's io_uring can't wait with an end", cause });
        }
        let registered = ring.map(|ring| register(&queue, ring)).transpose();
        let (pieces, refused) = match registered {
            Ok(pieces) => (pieces, None),
            Err(error) => (None, Some(error)),
        };
        let submitter = queue.submitter();
        submitter
            .register_files(&[-1; FILES_MAX])
            .map_err(step("this kernel's io_uring takes no table of files"))?;
        let mut allowed = [
            Restriction::sqe_op(opcode::Write::CODE),
            Restriction::sqe_op(opcode::WriteFixed::CODE),
            Restriction::sqe_op(opcode::Fsync::CODE),
            Restriction::sqe_op(opcode::FilesUpdate::CODE),
            Restriction::sqe_flags_allowed(squeue::Flags::FIXED_FILE.bits()),
        ];
        submitter
            .register_restrictions(&mut allowed)
            .and_then(|()| submitter.register_enable_rings())
            .map_err(step("this kernel's io_uring can't be restricted"))?;
        let uring = Uring {
            queue,
            memory: Registered { pieces },
            places: (0..PLACES).map(|_| None).collect(),
            empty: (0..PLACES).rev().collect(),
            waiting: VecDeque::new(),
            flying_bytes: 0,
            broken: None,
            done: Vec::new(),
        };
        Ok((uring, refused))
    }

    /// Requests that the kernel has or will have.
    fn flying(&self) -> usize {
        self.places.len() - self.empty.len()
    }

    /// Puts something into an empty place, and its request into the queue.
    fn put(&mut self, flight: Flight) -> io::Result<usize> {
        let place = self.empty.pop().ok_or_else(|| io::Error::other("no place is empty"))?;
        self.places[place] = Some(flight);
        self.request(place);
        Ok(place)
    }

    /// Puts the request of what is at `place` into the queue; the kernel takes it with the next call.
    fn request(&mut self, place: usize) {
        let Some(flight) = &self.places[place] else { return };
        let request = match flight {
            Flight::Act { begun, written, .. } => match &begun.act {
                Act::Sync { file } => opcode::Fsync::new(Fixed(file.0)).flags(FsyncFlags::DATASYNC).build(),
                Act::Write { file, at, bytes } => {
                    let rest = &bytes.as_slice()[*written..];
                    let (from, len, at) = (rest.as_ptr(), rest.len() as u32, at + *written as u64);
                    match self.memory.piece(rest) {
                        Some(piece) => {
                            opcode::WriteFixed::new(Fixed(file.0), from, len, piece).offset(at).build()
                        }
                        None => opcode::Write::new(Fixed(file.0), from, len).offset(at).build(),
                    }
                }
            },
            Flight::Table { entry, file, .. } => {
                opcode::FilesUpdate::new(&raw const **entry, 1).offset(file.0 as i32).build()
            }
        };
        let request = request.user_data(place as u64);
        // SAFETY: what the request points to is owned by the flight at `place`: pinned bytes of the ring, which
        // nobody writes until the pin is dropped, pages of the writer's own, or a table entry, all of them at
        // addresses that don't change when the flight is moved. A flight leaves its place only when the kernel
        // has answered for this request (`answer`), or has never taken it and never will (`break_off`); and at
        // the end of this value, where the answer is waited for and else the flight is leaked (`drop`).
        let pushed = unsafe { self.queue.submission().push(&request) };
        pushed.expect("the queue has a place for every flight");
        self.waiting.push_back(place);
    }

    /// Gives the kernel what is in the queue, and waits for at least one answer if `wait` says for how long.
    fn call(&mut self, wait: Option<Duration>) {
        if self.broken.is_some() {
            if let Some(wait) = wait {
                std::thread::sleep(wait.min(LOOK_EVERY));
            }
            return;
        }
        let end = wait.map(Timespec::from).unwrap_or_default();
        let arguments = SubmitArgs::new().timespec(&end);
        let called = self.queue.submitter().submit_with_args(usize::from(wait.is_some()), &arguments);
        let left = self.queue.submission().len();
        self.waiting.drain(..self.waiting.len().saturating_sub(left));
        let Err(error) = called else { return };
        match error.raw_os_error() {
            // Its time is over, or a signal came. No memory just now, or answers have to be taken first.
            Some(libc::ETIME | libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EBUSY) => std::thread::sleep(LOOK_EVERY),
            errno => self.break_off(errno.unwrap_or(libc::EIO)),
        }
    }

    /// The kernel takes nothing any more. It reads the queue only when it is called, and isn't called again:
    /// what it hasn't taken yet has failed.
    fn break_off(&mut self, errno: i32) {
        self.broken = Some(errno);
        while let Some(place) = self.waiting.pop_front() {
            self.end(place, Err(errno));
        }
    }

    /// Takes all answers that are there.
    fn take_answers(&mut self) {
        let answers: Vec<(u64, i32)> =
            self.queue.completion().map(|answer| (answer.user_data(), answer.result())).collect();
        for (place, result) in answers {
            self.answer(place as usize, result);
        }
        if !self.waiting.is_empty() {
            self.call(None);
        }
    }

    /// The kernel has finished the request of `place`: a number of bytes, or an error below zero.
    fn answer(&mut self, place: usize, result: i32) {
        let Some(Some(flight)) = self.places.get_mut(place) else { return };
        let outcome = match flight {
            Flight::Table { .. } => Ok(result),
            Flight::Act { begun, written, tries } => match (&begun.act, result) {
                (_, error) if error == -libc::EAGAIN || error == -libc::EINTR => {
                    *tries += 1;
                    if *tries < TRIES_MAX && self.broken.is_none() {
                        return self.request(place);
                    }
                    Ok(error)
                }
                (Act::Write { bytes, .. }, more) if more > 0 => {
                    *written += more as usize;
                    if *written < bytes.as_slice().len() && self.broken.is_none() {
                        return self.request(place);
                    }
                    if *written < bytes.as_slice().len() { Err(libc::EIO) } else { Ok(0) }
                }
                // Nothing was written, and nothing says why.
                (Act::Write { .. }, 0) => Err(libc::EIO),
                (_, result) => Ok(result),
            },
        };
        let outcome = outcome.and_then(|result| if result < 0 { Err(-result) } else { Ok(()) });
        self.end(place, outcome);
    }

    /// What was at `place` has finished.
    fn end(&mut self, place: usize, outcome: Result<(), i32>) {
        match self.places[place].take() {
            Some(Flight::Act { begun, .. }) => {
                self.flying_bytes -= bytes_of(&begun);
                self.empty.push(place);
                self.done.push(Finished { begun, result: outcome.map_err(io::Error::from_raw_os_error) });
            }
            Some(Flight::Table { entry, file, .. }) => {
                let result = Some(outcome.err().unwrap_or(0));
                self.places[place] = Some(Flight::Table { entry, file, result });
            }
            None => {}
        }
    }

    /// Puts a file into the table, or takes it out (-1). Done at once: no disk takes part.
    fn set_file(&mut self, file: FileNumber, entry: RawFd) -> io::Result<()> {
        self.fail_if_broken()?;
        let place = self.put(Flight::Table { entry: Box::new(entry), file, result: None })?;
        loop {
            self.call(Some(END_MAX));
            self.take_answers();
            if let Some(Flight::Table { result: Some(errno), .. }) = self.places[place] {
                self.places[place] = None;
                self.empty.push(place);
                return if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) };
            }
        }
    }

    fn fail_if_broken(&self) -> io::Result<()> {
        self.broken.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}

/// Bytes that something writes.
fn bytes_of(begun: &Begun) -> usize {
    match &begun.act {
        Act::Write { bytes, .. } => bytes.as_slice().len(),
        Act::Sync { .. } => 0,
    }
}

/// Registers the ring's memory: the ring, and the addresses of its begin and end.
fn register(queue: &IoUring, ring: &Arc<Ring>) -> io::Result<(Arc<Ring>, usize, usize)> {
    let addresses = ring.addresses();
    let (base, end) = (addresses.start as usize, addresses.end as usize);
    let piece =
        |at: usize| libc::iovec { iov_base: at as *mut libc::c_void, iov_len: PIECE_BYTES.min(end - at) };
    let pieces: Vec<libc::iovec> = (base..end).step_by(PIECE_BYTES).map(piece).collect();
    // SAFETY: the addresses are those of the ring's mapping, which lives as long as the `Arc` that is returned
    // and kept beside the queue. Only requests to write to files use the pieces, so the kernel only reads them,
    // and what it reads is pinned.
    unsafe { queue.submitter().register_buffers(&pieces)? };
    Ok((ring.clone(), base, end))
}

impl Writer for Uring {
    fn opened(&mut self, number: FileNumber, file: &File) -> io::Result<()> {
        self.set_file(number, file.as_raw_fd())
    }

    fn closing(&mut self, file: FileNumber) {
        // Where that fails the file stays open as long as the queue, and its place is taken by the next one.
        let _ = self.set_file(file, -1);
    }

    fn begin(&mut self, begun: Begun, tree: &Tree) -> io::Result<()> {
        let bytes = bytes_of(&begun);
        let checked = match &begun.act {
            Act::Write { file, at, bytes } => {
                tree.file(*file).and_then(|_| check_pages(*at, bytes.as_slice()))
            }
            Act::Sync { file } => tree.file(*file).map(drop),
        };
        while self.flying() >= DEPTH || self.flying_bytes > 0 && self.flying_bytes + bytes > DEPTH_BYTES {
            self.call(Some(END_MAX));
            self.take_answers();
        }
        if let Err(error) = checked.and_then(|()| self.fail_if_broken()) {
            self.done.push(Finished { begun, result: Err(error) });
            return Ok(());
        }
        self.flying_bytes += bytes;
        self.put(Flight::Act { begun, written: 0, tries: 0 })?;
        self.call(None);
        Ok(())
    }

    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()> {
        let since = Instant::now();
        self.take_answers();
        while self.done.is_empty() && self.flying() > 0 {
            let left = wait.saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            self.call(Some(left));
            self.take_answers();
        }
        into.append(&mut self.done);
        Ok(())
    }

    fn pending(&self) -> usize {
        self.flying() + self.done.len()
    }
}

impl Drop for Uring {
    /// Waits for what the kernel still has: until it has answered it may read that memory. A disk that hangs
    /// isn't waited for without end; then pins and pages are never given back.
    fn drop(&mut self) {
        let since = Instant::now();
        while self.flying() > 0 && since.elapsed() < END_MAX {
            self.call(Some(END_MAX.saturating_sub(since.elapsed())));
            self.take_answers();
        }
        for flight in self.places.drain(..).flatten() {
            std::mem::forget(flight);
        }
    }
}

const _: () = assert!(PIECE_BYTES.is_multiple_of(PAGE_BYTES) && PIECE_BYTES.is_multiple_of(2 << 20));
