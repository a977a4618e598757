//! Space on a file system.

use rustix::fs::{StatVfsMountFlags, statvfs};
use std::path::Path;

/// A file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Nothing may be written there.
    pub read_only: bool,
}

/// Space on the file system that `file` is on; `None` where it is unknown.
pub fn disk(file: &Path) -> Option<Disk> {
    let facts = statvfs(file).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    let read_only = facts.f_flag.contains(StatVfsMountFlags::RDONLY);
    Some(Disk { free_bytes: bytes(facts.f_bavail), bytes: bytes(facts.f_blocks), read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_known_of_what_exists() {
        let disk = disk(Path::new("/")).expect("a file system");
        assert!(disk.bytes > 0 && disk.free_bytes <= disk.bytes);
        assert!(super::disk(Path::new("/no/such/folder")).is_none());
    }
}
