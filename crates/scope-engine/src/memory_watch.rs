//! Whether the system takes memory back while a run goes: looked at beside the workers, said once each.
//!
//! All pages of the ring are there before capture begins, so a run never fails for want of them. But the
//! limit of a control group may be lowered, or others in it may grow: the kernel then ends a process without
//! a word. And where there is swap, pages of a ring that isn't locked may go there. Neither can be prevented
//! from here; both are said before they hurt.

use scope_events::event::{Warning, WarningKind};
use scope_machine::Machine;
use scope_ring::Ring;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Less than this left is worth a warning, bytes.
const LEFT_BYTES_LOW: u64 = 8 << 20;
/// Less than this swapped out isn't, bytes.
const SWAPPED_BYTES_MIN: u64 = 1 << 20;
/// Looks at swap are this far apart: each one walks all pages of the process.
const SWAP_EVERY: Duration = Duration::from_secs(10);

/// Looks at the memory of one run.
pub struct MemoryWatch {
    machine: Machine,
    ring: Arc<Ring>,
    told_left: bool,
    told_swapped: bool,
    swap_looked: Instant,
}

impl MemoryWatch {
    /// Of a run on `machine` with this ring.
    pub fn new(machine: Machine, ring: &Arc<Ring>) -> MemoryWatch {
        MemoryWatch {
            machine,
            ring: ring.clone(),
            told_left: false,
            told_swapped: false,
            swap_looked: Instant::now(),
        }
    }

    /// What is to be said now, in plain words.
    pub fn look(&mut self) -> Option<Warning> {
        self.look_left().map(Warning::from).or_else(|| self.look_swapped())
    }

    fn look_left(&mut self) -> Option<String> {
        if self.told_left {
            return None;
        }
        let (left, limit) = self.machine.available(None);
        self.told_left = left < LEFT_BYTES_LOW;
        self.told_left.then(|| {
            let kib = left >> 10;
            format!(
                "memory: only {kib} KiB are left ({limit}); with none left the system kills this run: raise \
                 the limit, end other programs, or choose a smaller --ring"
            )
        })
    }

    fn look_swapped(&mut self) -> Option<Warning> {
        if self.told_swapped || self.swap_looked.elapsed() < SWAP_EVERY || !self.machine.has_swap() {
            return None;
        }
        self.swap_looked = Instant::now();
        let swapped = self.ring.swapped_bytes();
        self.told_swapped = swapped >= SWAPPED_BYTES_MIN;
        self.told_swapped.then(|| {
            let mib = swapped >> 20;
            let text = format!(
                "memory: the system has swapped out {mib} MiB of the ring, and packets may be dropped while \
                 they are read back: use --mlock, or a smaller --ring"
            );
            Warning::of(WarningKind::Swapped, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_ring::RingConfig;

    #[test]
    fn little_memory_is_told_once_with_the_limit_that_says_so() {
        let root = std::env::temp_dir().join(format!("wirescope-watch-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).expect("a folder");
        let set = |kib: u64| {
            std::fs::write(root.join("proc/meminfo"), format!("MemAvailable: {kib} kB\n")).expect("a file")
        };
        let config =
            RingConfig { ring_bytes: 1 << 20, segment_bytes: None, workers: 1, lanes: 1, run_id: [7; 16] };
        let mut watch =
            MemoryWatch::new(Machine::under(&root), &Ring::create(&config).expect("a small ring"));
        set(8192);
        assert_eq!(watch.look(), None);
        set(8191);
        let said = watch.look().expect("a warning").text;
        assert!(said.starts_with("memory: only 8191 KiB are left (MemAvailable of this machine)"), "{said}");
        assert_eq!(watch.look(), None);
        std::fs::remove_dir_all(&root).expect("own folder");
    }
}
