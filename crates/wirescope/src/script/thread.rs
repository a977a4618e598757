//! A script's thread, and the watchdog that leaves it behind when a call of the script doesn't come back.
//!
//! LuaJIT's hooks don't run in compiled code, so nothing can interrupt a script. All that calls Lua, also what
//! only asks for its counts, goes through [`Guard::call`], which notes in a [`Watch`] since when the call goes
//! on. What the thread finds it writes where the watchdog can read it, between its calls: so what a script did
//! before it looped is known. The process ends while a thread that was left behind still spins.

use scope_script::Watch;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The watchdog looks so often.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a script's thread and its watchdog share.
#[derive(Debug, Default)]
pub struct Guard<T> {
    watch: Watch,
    found: Mutex<T>,
}

/// The watchdog has left this thread behind: whatever the script returned is nobody's any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftBehind;

/// How a script's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has done its work.
    Done,
    /// A call of the script took longer than the timeout; it may still go on.
    Stuck,
    /// It panicked: a fault of this program.
    Died,
}

impl<T> Guard<T> {
    /// Calls the script.
    ///
    /// # Errors
    /// The call lasted too long.
    pub fn call<R>(&self, call: impl FnOnce() -> R) -> Result<R, LeftBehind> {
        let entered_ns = self.watch.enter().ok_or(LeftBehind)?;
        let result = call();
        self.watch.leave(entered_ns).then_some(result).ok_or(LeftBehind)
    }

    /// What was found so far. Never held while the script runs.
    pub fn found(&self) -> MutexGuard<'_, T> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does `work` in a thread of its own, whose calls of the script each may take `timeout`; what it found, and
/// how it ended.
pub fn watched<T: Default + Send + 'static>(
    timeout: Duration,
    work: impl FnOnce(&Guard<T>) -> Result<(), LeftBehind> + Send + 'static,
) -> (T, End) {
    let guard = Arc::new(Guard::default());
    let (done, is_done) = channel();
    let own = Arc::clone(&guard);
    thread::spawn(move || {
        if work(&own).is_ok() {
            // Nobody waits for who was left behind.
            let _ = done.send(());
        }
    });
    let end = loop {
        match is_done.recv_timeout(LOOK_EVERY) {
            Ok(()) => break End::Done,
            Err(RecvTimeoutError::Disconnected) => break End::Died,
            Err(RecvTimeoutError::Timeout) if guard.watch.abandon_if_stuck(timeout) => break End::Stuck,
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let found = std::mem::take(&mut *guard.found());
    (found, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_before_a_call_that_stays_is_kept() {
        let work = |guard: &Guard<Vec<u32>>| {
            for number in 0..3 {
                let got = guard.call(|| {
                    if number == 2 {
                        thread::sleep(Duration::from_secs(3600));
                    }
                    number
                })?;
                guard.found().push(got);
            }
            Ok(())
        };
        assert_eq!(watched(Duration::from_millis(50), work), (vec![0, 1], End::Stuck));
    }

    #[test]
    fn work_that_takes_long_between_its_calls_is_not_stuck() {
        let work = |guard: &Guard<u32>| {
            thread::sleep(Duration::from_millis(200));
            let got = guard.call(|| 7)?;
            *guard.found() = got;
            Ok(())
        };
        assert_eq!(watched(Duration::from_millis(20), work), (7, End::Done));
        let died = watched(Duration::from_secs(60), |_: &Guard<u32>| panic!("as it should"));
        assert_eq!(died, (0, End::Died));
    }
}
