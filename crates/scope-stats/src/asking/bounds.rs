//! What an answer may take: time, rows, bytes, memory; and what it was cut by.

use rusqlite::{Connection, ffi};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How many steps of SQLite's machine lie between two looks at the bounds: some 100 µs.
const STEPS: i32 = 4000;

/// What an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From the question to the last row.
    pub time: Duration,
    /// Rows of the answer.
    pub rows: usize,
    /// Bytes of the answer.
    pub bytes: usize,
    /// Memory that SQLite takes meanwhile, in the whole process, beyond what it had.
    pub memory_bytes: u64,
    /// Different keys that a list of the first ones counts: some 400 bytes each.
    pub keys: usize,
}

impl Bounds {
    /// For somebody at a terminal, with a process of their own.
    pub const OF_A_COMMAND: Bounds = Bounds {
        time: Duration::from_secs(300),
        rows: 1_000_000,
        bytes: 256 << 20,
        memory_bytes: 1 << 30,
        keys: 1 << 19,
    };
    /// For those who ask a run, which has other things to do.
    pub const OF_A_REQUEST: Bounds = Bounds {
        time: Duration::from_secs(10),
        rows: 10_000,
        bytes: 8 << 20,
        memory_bytes: 64 << 20,
        keys: 1 << 17,
    };
}

/// By what an answer was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// It took too long.
    Time = 1,
    /// It has as many rows as are allowed.
    Rows,
    /// It has as many bytes.
    Bytes,
    /// SQLite needed more memory than is allowed.
    Memory,
    /// Whoever asked doesn't wait any more.
    Stopped,
}

impl Cut {
    const ALL: [Cut; 5] = [Cut::Time, Cut::Rows, Cut::Bytes, Cut::Memory, Cut::Stopped];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Cut::Time => "time",
            Cut::Rows => "rows",
            Cut::Bytes => "bytes",
            Cut::Memory => "memory",
            Cut::Stopped => "stopped",
        }
    }
}

/// Looks at the bounds of one question, from wherever it is answered. Clones look at the same.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    until: Option<Instant>,
    memory_max: u64,
    keys_max: usize,
    stop: Arc<AtomicBool>,
    /// 0, or a [`Cut`].
    cut: AtomicU8,
}

impl Watch {
    /// Of a question that is put now. `stop` is set by whoever doesn't wait any more.
    pub fn of(bounds: &Bounds, stop: Arc<AtomicBool>) -> Watch {
        let until = Instant::now().checked_add(bounds.time);
        let memory_max = memory_used().saturating_add(bounds.memory_bytes);
        let keys_max = bounds.keys;
        Watch(Arc::new(Watched { until, memory_max, keys_max, stop, cut: AtomicU8::new(0) }))
    }

    /// Without bounds, until `stop` is set.
    pub fn until(stop: Arc<AtomicBool>) -> Watch {
        let keys_max = usize::MAX;
        Watch(Arc::new(Watched { until: None, memory_max: u64::MAX, keys_max, stop, cut: AtomicU8::new(0) }))
    }

    /// Has statements of this connection end at the bounds.
    ///
    /// # Errors
    /// SQLite's.
    pub fn watch(&self, connection: &Connection) -> rusqlite::Result<()> {
        let watch = self.clone();
        connection.progress_handler(STEPS, Some(move || watch.is_over()))
    }

    /// Whether a bound was met. From then on it is.
    pub fn is_over(&self) -> bool {
        if self.0.cut.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let cut = if self.0.stop.load(Ordering::Relaxed) {
            Cut::Stopped
        } else if self.0.until.is_some_and(|until| Instant::now() >= until) {
            Cut::Time
        } else if self.0.memory_max != u64::MAX && memory_used() > self.0.memory_max {
            Cut::Memory
        } else {
            return false;
        };
        self.0.cut.store(cut as u8, Ordering::Relaxed);
        true
    }

    /// Different keys that may be counted.
    pub fn keys_max(&self) -> usize {
        self.0.keys_max
    }

    /// Which bound was met.
    pub fn cut(&self) -> Option<Cut> {
        let cut = self.0.cut.load(Ordering::Relaxed);
        Cut::ALL.into_iter().find(|known| *known as u8 == cut)
    }
}

/// Bytes that SQLite has of this process.
fn memory_used() -> u64 {
    // SAFETY: reads a counter; may be called from any thread at any time.
    let bytes = unsafe { ffi::sqlite3_memory_used() };
    bytes.unsigned_abs()
}
