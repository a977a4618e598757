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
//!  begin ──► joined with others ──► place (owns pins, pages) ──► queue ──► kernel ──► answer ──► finish
//!                                      ▲                                           │
//!                                      └──────── not all written yet, or "again" ◄─┘
//! ```
//! What was joined goes to the kernel when something comes that doesn't follow it, and else with the next
//! `finish`, unless the kernel has enough to do. Joined writes go by a list of ranges, for which there is no
//! registered memory: that costs less than to write the parts one by one.

use super::request::{Next, Request, Task, bytes_of, done};
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

/// Requests that the kernel has at once.
const DEPTH: usize = 64;
/// With so many a disk is busy: what can still be joined waits for more.
const BUSY: usize = 1;
/// Bytes that were begun and haven't finished: enough to keep a disk busy, and few enough that the ring has
/// the rest.
const DEPTH_BYTES: usize = 32 << 20;
/// One place more, for a file that is opened or closed.
const PLACES: usize = DEPTH + 1;
/// The longest piece of memory that the kernel registers.
const PIECE_BYTES: usize = 1 << 30;
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
    /// What was begun last: what follows it in its file may join it.
    joining: Option<Request>,
    /// Requests by the number that the kernel has of them.
    places: Vec<Option<Flight>>,
    /// Places that are empty.
    empty: Vec<usize>,
    /// Places whose requests the kernel hasn't taken yet, oldest first.
    waiting: VecDeque<usize>,
    /// Acts that were begun and haven't finished.
    acts: usize,
    /// Bytes of these.
    bytes: usize,
    /// The kernel takes nothing any more, and why.
    broken: Option<i32>,
    done: Vec<Finished>,
}

/// What the kernel has, or will have.
enum Flight {
    /// To be written or synced.
    Request(Request),
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
            Restriction::sqe_op(opcode::Writev::CODE),
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
            joining: None,
            places: (0..PLACES).map(|_| None).collect(),
            empty: (0..PLACES).rev().collect(),
            waiting: VecDeque::new(),
            acts: 0,
            bytes: 0,
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
    fn put(&mut self, place: usize, flight: Flight) {
        self.places[place] = Some(flight);
        self.request(place);
    }

    /// Puts the request of what is at `place` into the queue; the kernel takes it with the next call.
    fn request(&mut self, place: usize) {
        let request = match &mut self.places[place] {
            None => return,
            Some(Flight::Table { entry, file, .. }) => {
                opcode::FilesUpdate::new(&raw const **entry, 1).offset(file.0 as i32).build()
            }
            Some(Flight::Request(request)) => match request.task() {
                Task::Sync(file) => opcode::Fsync::new(Fixed(file.0)).flags(FsyncFlags::DATASYNC).build(),
                Task::Write(file, at, bytes) => {
                    let (file, from, len) = (Fixed(file.0), bytes.as_ptr(), bytes.len() as u32);
                    match self.memory.piece(bytes) {
                        Some(piece) => opcode::WriteFixed::new(file, from, len, piece).offset(at).build(),
                        None => opcode::Write::new(file, from, len).offset(at).build(),
                    }
                }
                Task::WriteJoined(file, at, vectors) => {
                    let (list, count) = (vectors.as_ptr().cast(), vectors.len() as u32);
                    opcode::Writev::new(Fixed(file.0), list, count).offset(at).build()
                }
            },
        };
        let request = request.user_data(place as u64);
        // SAFETY: what the request points to is owned by the flight at `place`: pinned bytes of the ring,
        // which nobody writes until the pin is dropped, pages of the writer's own, a list of such ranges, or
        // a table entry, all of them at addresses that don't change when the flight is moved. A flight leaves
        // its place only when the kernel has answered for this request (`answer`), or has never taken it and
        // never will (`break_off`); and at the end of this value, where the answer is waited for and else the
        // flight is leaked (`drop`).
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
        let next = match flight {
            Flight::Table { .. } => Next::Done(done(answer)),
            Flight::Request(request) => request.answer(answer),
        };
        let outcome = match next {
            Next::Again if self.broken.is_none() => return self.request(place),
            Next::Again => Err(libc::EIO),
            Next::Done(outcome) => outcome,
        };
        self.end(place, outcome);
    }

    /// What was at `place` has finished.
    fn end(&mut self, place: usize, outcome: Result<(), i32>) {
        match self.places[place].take() {
            Some(Flight::Request(request)) => {
                self.empty.push(place);
                self.give_back(request, outcome);
            }
            Some(Flight::Table { entry, file, .. }) => {
                let result = Some(outcome.err().unwrap_or(0));
                self.places[place] = Some(Flight::Table { entry, file, result });
            }
            None => {}
        }
    }

    fn give_back(&mut self, request: Request, outcome: Result<(), i32>) {
        self.acts -= request.parts();
        self.bytes -= request.end(outcome, &mut self.done);
    }

    /// Puts what was joined into the queue, and gives it to the kernel.
    fn send(&mut self) {
        let Some(request) = self.joining.take() else { return };
        if let Some(errno) = self.broken {
            return self.give_back(request, Err(errno));
        }
        match self.empty.pop() {
            Some(place) => self.put(place, Flight::Request(request)),
            None => return self.joining = Some(request), // later
        }
        self.call(None);
    }

    /// Puts a file into the table, or takes it out (-1). Done at once: no disk takes part.
    fn set_file(&mut self, file: FileNumber, entry: RawFd) -> io::Result<()> {
        self.fail_if_broken()?;
        let place = self.empty.pop().ok_or_else(|| io::Error::other("no place is empty"))?;
        self.put(place, Flight::Table { entry: Box::new(entry), file, result: None });
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
        while self.flying() >= DEPTH || self.bytes > 0 && self.bytes + bytes > DEPTH_BYTES {
            self.send();
            self.call(Some(END_MAX));
            self.take_answers();
        }
        if let Err(error) = checked.and_then(|()| self.fail_if_broken()) {
            self.done.push(Finished { begun, result: Err(error) });
            return Ok(());
        }
        (self.acts, self.bytes) = (self.acts + 1, self.bytes + bytes);
        let begun = match &mut self.joining {
            None => Some(begun),
            Some(request) => request.join(begun),
        };
        if let Some(begun) = begun {
            self.send();
            self.joining = Some(Request::new(begun));
        }
        Ok(())
    }

    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()> {
        let since = Instant::now();
        loop {
            self.take_answers();
            if self.flying() < BUSY {
                self.send();
            }
            let left = wait.saturating_sub(since.elapsed());
            if !self.done.is_empty() || self.acts == 0 || left.is_zero() {
                break;
            }
            self.call(Some(left));
        }
        into.append(&mut self.done);
        Ok(())
    }

    fn pending(&self) -> usize {
        self.acts + self.done.len()
    }
}

impl Drop for Uring {
    /// Waits for what the kernel still has: until it has answered it may read that memory. A disk that hangs
    /// isn't waited for without end; then pins and pages are never given back.
    fn drop(&mut self) {
        let since = Instant::now();
        while self.acts > 0 && since.elapsed() < END_MAX {
            self.send();
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
    fn a_queue_that_the_kernel_takes_nothing_of_any_more_gives_everything_back_as_failed() {
        let Some((mut uring, mut tree, _folder)) = room() else { return };
        let file = tree.create(Path::new("a")).unwrap();
        uring.opened(file, tree.file(file).unwrap()).unwrap();
        let write = |tag| {
            let bytes = Bytes::Own(Pages::zeroed(1));
            Begun { tag, act: Act::Write { file, at: 0, bytes } }
        };
        // One is in the queue when it happens, one was begun, one comes later.
        let place = uring.empty.pop().unwrap();
        uring.put(place, Flight::Request(Request::new(write(1))));
        (uring.acts, uring.bytes) = (1, PAGE_BYTES);
        uring.begin(write(2), &tree).unwrap();
        uring.break_off(libc::EPERM);
        uring.begin(write(3), &tree).unwrap();
        assert_eq!(uring.pending(), 3);
        let mut finished = Vec::new();
        uring.finish(Duration::from_secs(60), &mut finished).unwrap();
        let found: Vec<(u64, Option<i32>)> = finished
            .iter()
            .map(|finished| (finished.begun.tag, finished.result.as_ref().unwrap_err().raw_os_error()))
            .collect();
        assert_eq!(found, [1, 3, 2].map(|tag| (tag, Some(libc::EPERM))));
        assert_eq!((uring.pending(), uring.bytes), (0, 0));
        let refused = uring.opened(file, tree.file(file).unwrap()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        let since = Instant::now();
        drop(uring);
        assert!(since.elapsed() < END_MAX, "nothing was left to wait for");
    }
}
