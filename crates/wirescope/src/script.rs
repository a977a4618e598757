//! `wirescope script`: Lua scripts checked, tried on a capture, and examples to begin with.
//!
//! Scripts are trusted code, and what they read may be anybody's. So `check` and `run` go this way:
//!
//! 1. Scripts are read as text, captures are opened, and nothing of them is parsed.
//! 2. The C libraries that the scripts name at their top are opened. No Lua has run yet.
//! 3. All rights are given up (`scope_rights::keep_to_reading`, without a path).
//! 4. Each script runs in a thread of its own (`script/thread.rs`), so that one that loops is left behind.

mod capture;
mod check;
mod examples;
pub mod file;
mod outcome;
mod over;
mod thread;
mod trial;

use crate::args::ScriptVerb;

/// Does what was asked for.
pub fn script(what: &ScriptVerb) -> u8 {
    match what {
        ScriptVerb::Check(args) => check::check(args),
        ScriptVerb::Run(args) => capture::run(args),
        ScriptVerb::Examples { folder } => examples::examples(folder),
    }
}
