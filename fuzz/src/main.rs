//! Coverage-guided fuzzing by libFuzzer: one program for all targets, which are named by `FUZZ_TARGET`.
//!
//! ```text
//! scripts/fuzz.sh ─► FUZZ_TARGET=pcap fuzz [options of libFuzzer] new/pcap corpus/pcap
//!                                             │ bytes, again and again
//!                                             ▼
//!                                          targets::of("pcap")
//! ```
//! The corpus that is kept is small: inputs that reach most of a parser. Whatever is found goes there, too,
//! once it is fixed.

#![no_main]

mod capture;
mod packet;
mod stored;
mod system;
mod targets;
mod text;
mod volume;

use std::sync::OnceLock;

static TARGET: OnceLock<targets::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let known = targets::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        targets::of(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name} is no target; there are: {known}"))
    });
    target(data);
});
