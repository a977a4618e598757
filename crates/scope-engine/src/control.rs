//! Orders from outside to a run that goes.

use crate::at_once::AtOnce;
use crate::reload::Reload;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Orders from outside while a run goes: from any thread, not from a signal handler. One closed set.
#[derive(Debug, Default)]
pub struct Control {
    stops: AtomicU32,
    fires: AtomicU32,
    reopens: AtomicBool,
    resumes: AtomicU32,
    pub(crate) at_once: AtOnce,
    /// Protected by the lock: one change that waits for the run's main thread.
    reload: Mutex<Option<Reload>>,
}

impl Control {
    /// Stop the sources, close the dumps with what has arrived, and end. Legal at any time; asked twice, the second is the
    /// caller's to act on.
    pub fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }

    /// Dump the last `before` of everything at once, whatever triggers there are; they stay as they are. Legal at any time.
    pub fn fire(&self) {
        self.fires.fetch_add(1, Ordering::Relaxed);
    }

    /// Go on in a new log if it was moved or removed. Legal at any time.
    pub fn reopen_log(&self) {
        self.reopens.store(true, Ordering::Relaxed);
    }

    /// The process goes on after it was stopped (SIGCONT). Legal at any time.
    pub fn resumed(&self) {
        self.resumes.fetch_add(1, Ordering::Relaxed);
    }

    /// For who ends the process at once because of `why`: the log gets its last line, if its disk takes it soon. The commands that
    /// run after dumps are killed by their helper as soon as this process is gone. Legal at any time; what the run still comes to
    /// isn't in its log.
    pub fn end_at_once(&self, why: &str) {
        self.at_once.log(why);
    }

    /// Whether somebody ends the process at once.
    pub fn ends_at_once(&self) -> bool {
        self.at_once.asked()
    }

    /// Change triggers and limits, or say why they don't change. Legal at any time.
    ///
    /// # Errors
    /// Gives the order back while an earlier one waits: ask again a little later.
    pub fn reload(&self, order: Reload) -> Result<(), Reload> {
        let mut waiting = self.reload.lock().expect("no panic while held");
        if waiting.is_some() {
            return Err(order);
        }
        *waiting = Some(order);
        Ok(())
    }

    /// Stops asked for so far.
    pub fn stops(&self) -> u32 {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn take_resumes(&self) -> u32 {
        self.resumes.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn take_fires(&self) -> u32 {
        self.fires.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn take_reopen(&self) -> bool {
        self.reopens.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn take_reload(&self) -> Option<Reload> {
        self.reload.lock().expect("no panic while held").take()
    }
}
