//! Why a script can't be loaded, or is not run any more.

use std::fmt;

/// Why a script isn't loaded. The text of Lua has the place, and a traceback.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Its text is wrong, or it failed while it was loaded.
    #[error("the script '{script}' can't be loaded: {report}")]
    Load {
        /// Its name.
        script: String,
        /// Lua's message, over several lines where there is a traceback.
        report: String,
    },
    /// There is no Lua state for it.
    #[error("the script '{script}' gets no Lua state: {cause}; give scripts more memory")]
    State {
        /// Its name.
        script: String,
        /// What is missing.
        cause: String,
    },
    /// A library that it names isn't there.
    #[error(
        "the script's library '{library}' can't be loaded: {cause}; install it, or write its file's name"
    )]
    Library {
        /// Its name, as the script has it.
        library: String,
        /// The loader's words.
        cause: String,
    },
}

/// Why a script was disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// It took more than its memory.
    Memory {
        /// The limit in bytes.
        memory_bytes_max: usize,
        /// The traceback of its first error, if there was one.
        report: String,
    },
    /// It failed for so many packets in a row.
    Row {
        /// How many.
        packets: u32,
        /// The traceback of its first error.
        report: String,
    },
    /// Something of its state is broken.
    Broken {
        /// What Lua says.
        report: String,
    },
}

impl fmt::Display for Disabled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disabled::Memory { memory_bytes_max, report } => write!(
                f,
                "it needed more than {} of memory: {report}; keep less, or give scripts more memory",
                scope_spelling::figures::size(*memory_bytes_max as u64)
            ),
            Disabled::Row { packets, report } => {
                write!(f, "it failed for {packets} packets in a row, first with: {report}")
            }
            Disabled::Broken { report } => write!(f, "its Lua state is broken: {report}"),
        }
    }
}

/// Why a batch has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The script is disabled; it runs no more.
    Disabled(Disabled),
    /// The watchdog has left this thread behind: whatever the script returned is nobody's any more.
    Abandoned,
}
