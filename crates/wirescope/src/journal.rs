//! Whether standard error is systemd's journal, and whether both outputs go to one place.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Device and inode of the journal's socket, as systemd names them to services whose output it takes.
const STREAM: &str = "JOURNAL_STREAM";
/// Set by systemd for every service.
const INVOCATION: &str = "INVOCATION_ID";

/// Whether standard error is the journal.
pub fn is_standard_error() -> bool {
    let Ok(opened) = io::stderr().as_fd().try_clone_to_owned() else { return false };
    let Ok(metadata) = std::fs::File::from(opened).metadata() else { return false };
    match std::env::var(STREAM) {
        Ok(stream) => stream == format!("{}:{}", metadata.dev(), metadata.ino()),
        Err(_) => std::env::var_os(INVOCATION).is_some() && metadata.file_type().is_socket(),
    }
}

/// Whether standard output and standard error go to the same place, so that nothing needs to be printed on both.
pub fn outputs_are_one() -> bool {
    let of = |opened: io::Result<std::os::fd::OwnedFd>| {
        let metadata = std::fs::File::from(opened.ok()?).metadata().ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.rdev()))
    };
    let stdout = of(io::stdout().as_fd().try_clone_to_owned());
    stdout.is_some() && stdout == of(io::stderr().as_fd().try_clone_to_owned())
}
