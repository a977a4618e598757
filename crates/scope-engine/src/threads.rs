//! How a dump gets its thread, as a parameter: a test can refuse one, or decide itself when each goes on.

use std::io;

/// What a thread does.
pub type Work = Box<dyn FnOnce() + Send>;

/// Where threads come from.
pub trait Threads: Send + Sync {
    /// Begins a thread of this name. Where none can be had, `work` is dropped.
    ///
    /// # Errors
    /// The system's.
    fn spawn(&self, name: String, work: Work) -> io::Result<()>;
}

/// The system's.
pub struct SystemThreads;

impl Threads for SystemThreads {
    fn spawn(&self, name: String, work: Work) -> io::Result<()> {
        std::thread::Builder::new().name(name).spawn(work).map(drop)
    }
}
