//! Where something that a person wrote stands: on the command line, or in a line of a file.

use std::path::PathBuf;

/// Where what is wrong stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Where {
    /// On the command line; or nowhere, where something is missing there.
    #[default]
    Flags,
    /// In this file.
    File {
        /// As typed.
        path: PathBuf,
        /// From 1; none: nowhere in particular, as what is missing.
        line: Option<usize>,
    },
}
