//! Threads that read a question's segments ahead of whoever merges them, in the order in which these are needed.
//!
//! ```text
//! order:  segment | segment | segment | segment | segment | ...        by their smallest times
//!          taken     ready     under way ............ next             within the room
//! ```
//! Each thread has several segments under way. What is read, or being read, and not taken yet, has a room; a segment
//! that is needed next is read however much it takes.

use crate::fetch::{Fetch, Read};
use crate::listing::SegmentFacts;
use crate::load::{Effort, Loading, Need, Outcome, Step, Wanted};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Segments that one thread has under way.
const UNDER_WAY_MAX: usize = 32;
/// Opens the file of a segment, by its number in the list of segments.
pub(crate) type Open = dyn Fn(usize) -> io::Result<Arc<File>> + Send + Sync;

/// What all threads share.
struct Shared {
    jobs: Mutex<Jobs>,
    /// Something was taken, or the end was said.
    room: Condvar,
    /// Something is ready.
    ready: Condvar,
    wanted: Wanted,
    open: Box<Open>,
    room_bytes: usize,
    /// The question's own stop.
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct Jobs {
    next: VecDeque<(usize, SegmentFacts)>,
    ready: HashMap<usize, Outcome>,
    /// Bytes of what is under way or ready.
    held_bytes: usize,
    is_over: bool,
    /// Waited for reads, by all threads.
    waiting: Duration,
}

/// The threads.
pub(crate) struct Loaders {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Loaders {
    /// Begins to read these segments, in this order. `room_bytes`: what may be read ahead.
    pub fn begin(
        order: VecDeque<(usize, SegmentFacts)>,
        wanted: Wanted,
        open: Box<Open>,
        fetches: Vec<Fetch>,
        room_bytes: usize,
        stop: Arc<AtomicBool>,
    ) -> Loaders {
        let most = order.len();
        let jobs = Mutex::new(Jobs { next: order, ..Jobs::default() });
        let (room, ready) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { jobs, room, ready, wanted, open, room_bytes, stop });
        let spawn = |fetch| {
            let shared = shared.clone();
            thread::Builder::new().name("read".to_string()).spawn(move || shared.work(fetch)).ok()
        };
        let threads = fetches.into_iter().take(most).filter_map(spawn).collect();
        Loaders { shared, threads }
    }

    /// Waits for a segment, the next one of the order that wasn't taken; `None`: the question was stopped.
    pub fn take(&self, segment: usize) -> Option<Outcome> {
        let mut jobs = self.shared.lock();
        loop {
            if let Some(outcome) = jobs.ready.remove(&segment) {
                jobs.held_bytes -= held_bytes(&outcome);
                self.shared.room.notify_all();
                return Some(outcome);
            }
            if self.threads.is_empty() {
                // No thread could be had: the caller reads.
                let at = jobs.next.iter().position(|(number, _)| *number == segment)?;
                let (_, facts) = jobs.next.remove(at)?;
                drop(jobs);
                return Some(self.read_alone(segment, facts));
            }
            if self.shared.stop.load(Ordering::Relaxed) {
                return None;
            }
            if self.threads.iter().all(JoinHandle::is_finished) && !jobs.ready.contains_key(&segment) {
                return Some(failed(io::Error::other("the thread that read it has ended")));
            }
            // Stopping doesn't wake: it is looked at again.
            let waited = self.shared.ready.wait_timeout(jobs, Duration::from_millis(50));
            jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reads a segment in the caller's thread.
    pub fn read_alone(&self, segment: usize, facts: SegmentFacts) -> Outcome {
        let mut fetch = Fetch::plain();
        let (mut loading, mut step) = match self.shared.begin(segment, facts) {
            Ok(begun) => begun,
            Err(outcome) => return outcome,
        };
        loop {
            match step {
                Step::Done(outcome) => return outcome,
                Step::Reads(needs) => {
                    begin_reads(&mut fetch, needs, segment, loading.file());
                }
            }
            match fetch.finish() {
                Some(fetched) => step = loading.fetched(fetched, &self.shared.wanted),
                None => return failed(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// How long threads waited for reads, all together.
    pub fn waited(&self) -> Duration {
        self.shared.lock().waiting
    }

    /// Nothing more is needed.
    pub fn end(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic was said by itself
        }
        self.shared.lock().ready.clear();
    }
}

impl Drop for Loaders {
    fn drop(&mut self) {
        self.end();
    }
}

fn held_bytes(outcome: &Outcome) -> usize {
    outcome.loaded.as_ref().map_or(0, |loaded| loaded.bytes())
}

fn failed(cause: io::Error) -> Outcome {
    Outcome { loaded: Err(cause), damaged: 0, effort: Effort::default() }
}

/// How many bytes they are.
fn begin_reads(fetch: &mut Fetch, needs: Vec<Need>, token: usize, file: &Arc<File>) -> usize {
    let mut bytes = 0;
    for Need { offset, buffer } in needs {
        bytes += buffer.len();
        fetch.begin(Read { token, file: file.clone(), offset, buffer });
    }
    bytes
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, segment: usize, facts: SegmentFacts) -> Result<(Loading, Step), Outcome> {
        match (self.open)(segment) {
            Ok(file) => Ok(Loading::begin(facts, file, &self.wanted)),
            Err(cause) => Err(failed(cause)),
        }
    }

    /// The next segment, once there is room for it; `None`: none, or `is_busy` and there is no room now.
    fn next(&self, is_busy: bool) -> Option<(usize, SegmentFacts)> {
        let mut jobs = self.lock();
        loop {
            if jobs.is_over || self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let (_, facts) = jobs.next.front()?;
            if jobs.held_bytes == 0 || jobs.held_bytes + facts.bytes <= self.room_bytes {
                jobs.held_bytes += facts.bytes;
                return jobs.next.pop_front();
            }
            if is_busy {
                return None;
            }
            jobs = self.room.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// `waited`: how long the thread waited for reads since it delivered something.
    fn deliver(&self, segment: usize, facts_bytes: usize, outcome: Outcome, waited: Duration) {
        let mut jobs = self.lock();
        jobs.waiting += waited;
        jobs.held_bytes = jobs.held_bytes - facts_bytes + held_bytes(&outcome);
        jobs.ready.insert(segment, outcome);
        drop(jobs);
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// What one thread does until nothing more is to be read.
    fn work(&self, mut fetch: Fetch) {
        let mut under_way: HashMap<usize, (Loading, usize)> = HashMap::new();
        let (mut reads_bytes, mut waited) = (0, Duration::ZERO);
        loop {
            // What has been read is looked at before more is begun. So while the page cache has all, each segment is
            // read and looked at in the processor's cache.
            let begun = Instant::now();
            let ended = fetch.poll();
            waited += begun.elapsed(); // what the page cache has was copied meanwhile
            if ended.is_none()
                && under_way.len() < UNDER_WAY_MAX
                && (under_way.is_empty() || reads_bytes < fetch.bytes_at_once())
                && let Some((segment, facts)) = self.next(!under_way.is_empty())
            {
                match self.begin(segment, facts) {
                    Err(outcome) | Ok((_, Step::Done(outcome))) => {
                        self.deliver(segment, facts.bytes, outcome, std::mem::take(&mut waited));
                    }
                    Ok((loading, Step::Reads(needs))) => {
                        reads_bytes += begin_reads(&mut fetch, needs, segment, loading.file());
                        under_way.insert(segment, (loading, facts.bytes));
                    }
                }
                continue;
            }
            if under_way.is_empty() {
                return;
            }
            let begun = Instant::now();
            let Some(fetched) = ended.or_else(|| fetch.finish()) else { return };
            waited += begun.elapsed();
            reads_bytes = reads_bytes.saturating_sub(fetched.buffer.len());
            let segment = fetched.token;
            let Some((loading, bytes)) = under_way.get_mut(&segment) else { continue };
            match loading.fetched(fetched, &self.wanted) {
                Step::Reads(needs) => reads_bytes += begin_reads(&mut fetch, needs, segment, loading.file()),
                Step::Done(outcome) => {
                    let bytes = *bytes;
                    under_way.remove(&segment);
                    self.deliver(segment, bytes, outcome, std::mem::take(&mut waited));
                }
            }
        }
    }
}
