//! The lock that this crate uses: the standard library's, with a form for ThreadSanitizer.
//!
//! The sanitizer sees only code that was compiled for it. The standard library's wait for a lock was not, so
//! that it would take whatever the lock protects for a race; built with `--cfg sanitized`, waiting is trying
//! again, which it sees.

#[cfg(not(sanitized))]
pub(crate) use std::sync::Mutex;

#[cfg(sanitized)]
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

#[cfg(sanitized)]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn try_lock(&self) -> std::sync::TryLockResult<std::sync::MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    pub(crate) fn lock(&self) -> std::sync::LockResult<std::sync::MutexGuard<'_, T>> {
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(std::sync::TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}
