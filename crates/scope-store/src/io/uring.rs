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
//! Nothing may be begun before rights were given up: what is begun may wait in a thread of the kernel's,
//! which belongs to this process and keeps the rights that its beginner had.
//!
//! ```text
//!  begin ──► place (owns pin or pages) ──► queue ──► kernel ──► answers ──► finish: bytes given back
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
                    let rest = bytes.as_slice()[*written..].chunks(PIECE_BYTES).next().unwrap_or_default();
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
        // SAFETY: what the request points to is owned by the flight at `place`: pinned bytes of the ring,
        // which nobody writes until the pin is dropped, pages of the writer's own, or a table entry, all of
        // them at addresses that don't change when the flight is moved. A flight leaves its place only when
        // the kernel has answered for this request (`answer`), or has never taken it and never will
        // (`break_off`); and at the end of this value, where the answer is waited for and else the flight is
        // leaked (`drop`).
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
    fn answer(&mut self, place: usize, answer: i32) {
        let Some(Some(flight)) = self.places.get_mut(place) else { return };
        let outcome = match flight {
            Flight::Table { .. } => done(answer),
            Flight::Act { begun, written, tries } => match next(bytes_of(begun), written, tries, answer) {
                Next::Again if self.broken.is_none() => return self.request(place),
                Next::Again => Err(libc::EIO),
                Next::Done(outcome) => outcome,
            },
        };
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

/// What follows an answer.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The rest, or the same once more.
    Again,
    /// Nothing: it is done, or has failed with this error.
    Done(Result<(), i32>),
}

/// What follows the `answer` to a write of `bytes`, or to a sync (none), of which so much was `written`
/// before and which was refused so often in a row.
fn next(bytes: usize, written: &mut usize, tries: &mut u32, answer: i32) -> Next {
    match answer {
        _ if answer == -libc::EAGAIN || answer == -libc::EINTR => {
            *tries += 1;
            if *tries < TRIES_MAX { Next::Again } else { Next::Done(done(answer)) }
        }
        1.. => {
            (*written, *tries) = (*written + answer as usize, 0);
            if *written < bytes { Next::Again } else { Next::Done(Ok(())) }
        }
        // Nothing was written, and nothing says why.
        0 if bytes > 0 => Next::Done(Err(libc::EIO)),
        _ => Next::Done(done(answer)),
    }
}

/// The number of an error, where an answer is one.
fn done(answer: i32) -> Result<(), i32> {
    if answer < 0 { Err(-answer) } else { Ok(()) }
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
    // SAFETY: the addresses are those of the ring's mapping, which lives as long as the `Arc` that is
    // returned and kept beside the queue. Only requests to write to files use the pieces, so the kernel only
    // reads them, and what it reads is pinned.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Bytes, Pages};
    use io_uring::types::Fd;
    use scope_folder::Folder;
    use std::path::Path;

    /// A queue and a folder that is written to; `None` where the system has no io_uring.
    fn room() -> Option<(Uring, Tree, tempfile::TempDir)> {
        let (uring, _) = match Uring::new(None) {
            Ok(made) => made,
            Err(refused) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "{refused:?}");
                eprintln!("skipped: {refused:?}");
                return None;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let volume = Arc::new(Folder::open(folder.path()).unwrap());
        Some((uring, Tree::new(volume, false), folder))
    }

    /// The kernel's answer to any request.
    fn try_out(uring: &mut Uring, request: squeue::Entry) -> i32 {
        // SAFETY: what the requests of the test below point to outlives the answer, which is waited for.
        unsafe { uring.queue.submission().push(&request).unwrap() };
        uring.queue.submit_and_wait(1).unwrap();
        uring.queue.completion().next().expect("an answer").result()
    }

    #[test]
    fn the_queue_does_nothing_but_write_sync_and_change_its_table_of_files() {
        let Some((mut uring, _, folder)) = room() else { return };
        let path = folder.path().join("secret");
        std::fs::write(&path, "secret").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let own = Fd(file.as_raw_fd());
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let mut into = [0u8; 8];
        let end = Timespec::new();
        let refused = [
            opcode::Read::new(own, into.as_mut_ptr(), 8).build(),
            opcode::OpenAt::new(Fd(libc::AT_FDCWD), name.as_ptr()).build(),
            opcode::UnlinkAt::new(Fd(libc::AT_FDCWD), name.as_ptr()).build(),
            opcode::RenameAt::new(Fd(libc::AT_FDCWD), name.as_ptr(), own, name.as_ptr()).build(),
            opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
            opcode::Close::new(own).build(),
            opcode::Timeout::new(&raw const end).build(),
            opcode::Nop::new().build(),
            opcode::Fsync::new(own).build().flags(squeue::Flags::IO_LINK),
            opcode::Write::new(own, into.as_ptr(), 8).build().flags(squeue::Flags::ASYNC),
        ];
        for request in refused {
            let shown = format!("{request:?}");
            assert_eq!(try_out(&mut uring, request), -libc::EACCES, "{shown}");
        }
        assert_eq!(into, [0; 8]);
        assert_eq!(try_out(&mut uring, opcode::Write::new(own, b"changed!".as_ptr(), 8).build()), 8);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "changed!");
        let submitter = uring.queue.submitter();
        let refused = [
            submitter.register_files_update(0, &[file.as_raw_fd()]).map(drop),
            submitter.unregister_files(),
            submitter.register_personality().map(drop),
            submitter.register_enable_rings(),
            submitter.register_restrictions(&mut [Restriction::sqe_op(opcode::Read::CODE)]),
        ];
        for result in refused {
            let errno = result.unwrap_err().raw_os_error();
            assert!(matches!(errno, Some(libc::EACCES | libc::EBADFD)), "{errno:?}");
        }
    }

    #[test]
    fn what_is_written_in_part_is_continued_and_what_is_refused_for_a_moment_is_tried_again() {
        let check = |bytes, written_before, answer, expected, written_then| {
            let (mut written, mut tries) = (written_before, 7);
            assert_eq!(next(bytes, &mut written, &mut tries, answer), expected, "{answer}");
            assert_eq!(written, written_then);
        };
        check(8192, 0, 8192, Next::Done(Ok(())), 8192);
        check(8192, 0, 4096, Next::Again, 4096);
        check(8192, 4096, 4096, Next::Done(Ok(())), 8192);
        check(8192, 4096, 0, Next::Done(Err(libc::EIO)), 4096);
        check(8192, 4096, -libc::ENOSPC, Next::Done(Err(libc::ENOSPC)), 4096);
        check(8192, 4096, -libc::EAGAIN, Next::Again, 4096);
        check(8192, 4096, -libc::EINTR, Next::Again, 4096);
        check(0, 0, 0, Next::Done(Ok(())), 0);
        check(0, 0, -libc::EIO, Next::Done(Err(libc::EIO)), 0);
        let (mut written, mut tries) = (0, 0);
        let times = (1..).find(|_| next(1, &mut written, &mut tries, -libc::EAGAIN) != Next::Again);
        assert_eq!(times, Some(TRIES_MAX), "not for ever");
    }

    #[test]
    fn a_queue_that_the_kernel_takes_nothing_of_any_more_gives_everything_back_as_failed() {
        let Some((mut uring, mut tree, _folder)) = room() else { return };
        let file = tree.create(Path::new("a")).unwrap();
        uring.opened(file, tree.file(file).unwrap()).unwrap();
        let write = |tag| {
            let bytes = Bytes::Own(Pages::zeroed(1));
            Begun { tag, act: Act::Write { file, at: 0, bytes } }
        };
        // One is in the queue when it happens, one comes later.
        uring.put(Flight::Act { begun: write(1), written: 0, tries: 0 }).unwrap();
        uring.flying_bytes += PAGE_BYTES;
        uring.break_off(libc::EPERM);
        uring.begin(write(2), &tree).unwrap();
        assert_eq!(uring.pending(), 2);
        let mut finished = Vec::new();
        uring.finish(Duration::from_secs(60), &mut finished).unwrap();
        let found: Vec<(u64, Option<i32>)> = finished
            .iter()
            .map(|finished| (finished.begun.tag, finished.result.as_ref().unwrap_err().raw_os_error()))
            .collect();
        assert_eq!(found, [(1, Some(libc::EPERM)), (2, Some(libc::EPERM))]);
        assert_eq!((uring.pending(), uring.flying_bytes), (0, 0));
        let refused = uring.opened(file, tree.file(file).unwrap()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        let since = Instant::now();
        drop(uring);
        assert!(since.elapsed() < END_MAX, "nothing was left to wait for");
    }
}
