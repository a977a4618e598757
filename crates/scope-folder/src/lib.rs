//! The opened folder that a run writes into, and how a file in it gets its name: whole, at once, over no
//! other file.
//!
//! | module | what it holds |
//! |---|---|
//! | [`folder`] | the open folder: files without a name, names for files, what stands there |
//! | [`locks`] | locks of open files, by which runs know of each other |
//! | `plain` | what a file must be to be written to |
//! | `names` | names with a suffix |

pub mod folder;
pub mod locks;
mod names;
mod plain;

pub use folder::Folder;
pub use names::with_suffix;
pub use plain::NotPlain;
