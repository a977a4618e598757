//! Why a ring of another process can't be read, or not any longer.

/// Why a ring of another process can't be read, or not any longer.
#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    /// Its files can be shortened while they are read.
    #[error("the ring's memory is not sealed: whoever made it could take it away while it is read")]
    Unsealed,
    /// Another version of the layout.
    #[error("the ring has another version of its layout: run the same version of wirescope on both sides")]
    Version,
    /// What stands in it can't be so.
    #[error("this is no ring, or a damaged one: {0}")]
    Untrue(&'static str),
    /// A system call failed.
    #[error("{place}: {cause}")]
    System {
        /// What was tried.
        place: &'static str,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
}
