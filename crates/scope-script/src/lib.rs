//! Lua scripts that trigger and select: their state, the packet library, batches and forms, without any thread
//! of a run.
//!
//! | module | what it holds |
//! |---|---|
//! | [`script`] | [`Script`]: a trigger script, loaded, run over batches, asked for its counts |
//! | [`keeper`] | [`Keepers`]: a dump script, and the function that it makes for each dump |
//! | [`hit`] | what a script answered: [`Hit`], the hosts and flows that it names |
//! | [`record`] | a packet as Lua sees it: 64 bytes with the places of its layers |
//! | [`library`] | the C libraries that a script names at its top, read as text and opened before it runs |
//! | [`watch`] | the word by which a watchdog sees that a script doesn't come back |
//! | [`machine_code`] | whether LuaJIT gets memory for machine code |
//! | [`plain`] | values without functions, that go from one script's state into another's |
//! | [`examples`] | scripts to begin with |
//! | [`specimens`] | packets of every kind, to try a script on |
//! | `state` | the Lua state: limits, and what it starts with |
//! | `lending` | the memory that Rust and Lua share |
//! | `lua/` | the part in Lua: `types`, `views`, `dns`, `flows`, `protocols`, `loop`, `prelude` |
//!
//! A call from Rust per packet costs some 200 ns, one per batch almost nothing. So Rust fills an array of
//! records, and a loop in Lua calls the script's function for each. A packet is a record in its role, no object
//! and no copy; its bytes stay where they are.
//!
//! A script belongs to the thread that made it. Scripts are trusted code of the operator: what reaches outside
//! is taken from them, so that mistakes stay small, but FFI reaches everything.
//!
//! Absent on purpose: threads, the ring, triggers, dumps.

mod error;
pub mod examples;
pub mod hit;
pub mod keeper;
mod lending;
pub mod library;
pub mod machine_code;
pub mod plain;
pub mod record;
pub mod script;

pub mod specimens;
mod state;
pub mod watch;

pub use error::{Disabled, Ended, ScriptError};
pub use examples::{EXAMPLES, Example};
pub use hit::{Flow, Hit};
pub use keeper::{KeeperId, Keepers};
pub use library::{Libraries, libraries};
pub use machine_code::machine_code_works;
pub use plain::Plain;
pub use record::{Lent, RECORDS_MAX};
pub use script::{Counts, Script};
pub use specimens::{Specimen, builtin_packets};
pub use state::Options;
pub use watch::Watch;
