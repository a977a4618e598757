//! A race on purpose: under ThreadSanitizer this must be reported, else its silence about the other tests
//! proves nothing.
//!
//! Only there when built by `scripts/tsan.sh`, which wants it to fail.
#![cfg(sanitized)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

struct Shared {
    bytes: UnsafeCell<[u8; 64]>,
    committed: AtomicBool,
}

// SAFETY: none, on purpose: this is the fault that the sanitizer must see.
unsafe impl Sync for Shared {}

/// Bytes published by a relaxed store, as by a commit without its release.
#[test]
fn bytes_that_a_relaxed_store_publishes_are_a_race() {
    let shared = Shared { bytes: UnsafeCell::new([0; 64]), committed: AtomicBool::new(false) };
    let shared = &shared; // all of it is shared, not its fields one by one
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !shared.committed.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            // SAFETY: inside the array; that nobody has finished writing it for us is the fault.
            assert_eq!(unsafe { shared.bytes.get().cast::<u8>().read() }, 1);
        });
        // SAFETY: inside the array; that a reader may look without an acquire is the fault.
        unsafe { shared.bytes.get().cast::<[u8; 64]>().write([1; 64]) };
        shared.committed.store(true, Ordering::Relaxed);
    });
}
