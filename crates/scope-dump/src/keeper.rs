//! The thread that holds segments for dumps that hang in a write: at each beat of the ring, so that none is
//! overrun meanwhile.

use crate::scans::Scans;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// It looks at least this often, also whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The keeper of a run's dumps; it ends when this is dropped.
pub struct Keeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it.
    ///
    /// # Errors
    /// Where no thread can be had: dumps that hang in a write are overrun then.
    pub fn start(scans: &Arc<Scans>) -> std::io::Result<Keeper> {
        let stop = Arc::new(AtomicBool::new(false));
        let (scans, ended) = (scans.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("keeper".to_string()).spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let beats = scans.ring().beats();
                scans.hold_on();
                scans.ring().wait_for_beat(beats, LOOK_EVERY);
            }
        })?;
        Ok(Keeper { stop, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it held nothing that its end could break
        }
    }
}
