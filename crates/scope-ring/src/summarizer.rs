//! The thread that builds summaries of segments as they are sealed, when the processor has nothing better to
//! do.

use crate::ring::Ring;
use crate::summary::Summaries;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread beside looks for sealed segments this often. It never waits for workers, so they never have to
/// wake it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The thread that builds summaries as segments are sealed; it ends when this is dropped.
pub struct Summarizer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Summarizer {
    /// Starts it, to build `summaries` of `ring`; it begins with the oldest segments. An error where no thread can
    /// be had.
    pub fn start(ring: &Arc<Ring>, summaries: &Arc<Summaries>) -> std::io::Result<Summarizer> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ring, table, ended) = (ring.clone(), summaries.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("summarizer".to_string()).spawn(move || {
            give_way();
            let mut positions = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                follow(&ring, &table, &mut positions, &ended);
                std::thread::park_timeout(LOOK_EVERY);
            }
        })?;
        Ok(Summarizer { stop, thread: Some(thread) })
    }
}

impl Drop for Summarizer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // it held nothing that its end could break
        }
    }
}

/// Takes the processor only when nobody else wants it. Where that is refused, it is a thread like others.
fn give_way() {
    const NICE: libc::c_int = 19;
    // SAFETY: the call takes no pointers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Builds what has been sealed since the last look.
fn follow(ring: &Arc<Ring>, summaries: &Summaries, positions: &mut Vec<u64>, ended: &AtomicBool) {
    positions.resize(ring.lanes() as usize, 0);
    for (lane, position) in (0u32..).zip(positions) {
        while !ended.load(Ordering::Relaxed) && *position < ring.lane_next(lane) {
            *position = (*position).max(ring.oldest_possible(lane));
            match ring.pin(ring.segment_id(lane, *position)) {
                Some(pinned) if !summaries.build(&pinned) => break, // still open
                _ => *position += 1,
            }
        }
    }
}
