//! Space on a file system.

use rustix::fs::{StatVfs, StatVfsMountFlags, fstatvfs, statvfs};
use std::os::fd::AsFd;
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
    statvfs(file).ok().map(told)
}

/// The same of a file or a folder that is open, wherever it lies.
pub fn disk_of(file: impl AsFd) -> Option<Disk> {
    fstatvfs(file).ok().map(told)
}

fn told(facts: StatVfs) -> Disk {
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    let read_only = facts.f_flag.contains(StatVfsMountFlags::RDONLY);
    Disk { free_bytes: bytes(facts.f_bavail), bytes: bytes(facts.f_blocks), read_only }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_known_of_what_exists() {
        let disk = disk(Path::new("/")).expect("a file system");
        assert!(disk.bytes > 0 && disk.free_bytes <= disk.bytes);
        assert!(super::disk(Path::new("/no/such/folder")).is_none());
        let open = disk_of(std::fs::File::open("/").unwrap()).expect("a file system");
        assert_eq!(open.bytes, disk.bytes);
    }
}
