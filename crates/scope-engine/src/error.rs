//! Why a run could not begin.

use scope_fault::Fault;

/// Why a run couldn't begin. Texts say place, cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A source couldn't be opened.
    #[error(transparent)]
    Source(Fault),
    /// The ring couldn't be made.
    #[error(transparent)]
    Ring(#[from] scope_ring::RingError),
    /// Rights couldn't be given up.
    #[error(transparent)]
    Rights(#[from] scope_rights::RightsError),
    /// The process for commands couldn't be begun.
    #[error(transparent)]
    Exec(Fault),
    /// A library that a script names can't be opened.
    #[error(transparent)]
    Script(Fault),
    /// The control socket can't be had.
    #[error(transparent)]
    Control(Fault),
    /// Statistics can't be written or sent.
    #[error(transparent)]
    Stats(Fault),
    /// A volume of the store can't be one.
    #[error(transparent)]
    Store(Fault),
    /// A file or a thread couldn't be made.
    #[error("{place}: {cause}")]
    System {
        /// Which.
        place: String,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
}
