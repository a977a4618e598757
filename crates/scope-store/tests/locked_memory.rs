//! A process that may lock little memory writes by io_uring all the same, and says so: in a process of its
//! own, since the limit is the whole process's.

mod room;

use room::*;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use scope_ring::MemoryOptions;
use scope_store::io::Calls;
use std::path::Path;

#[test]
fn without_the_right_to_lock_memory_it_is_not_registered_and_the_remedy_is_said() {
    let (ring, pins) =
        ring(64 << 10, 64, &MemoryOptions { without_hugetlb: true, ..MemoryOptions::default() });
    let limit = Some(64 << 10);
    setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).unwrap();
    let mut own = capabilities(None).unwrap();
    own.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, own).unwrap();
    let folder = folder();
    let [(mut disk, way), _] = both(folder.path(), Some(&ring));
    if matches!(way.calls, Calls::Pwrite { .. }) {
        return; // said already
    }
    assert_eq!(
        way.to_string(),
        "io_uring, the ring's memory is not registered (Cannot allocate memory): raise the limit with \
         ulimit -l, or give CAP_IPC_LOCK"
    );
    let file = disk.create(Path::new("2026-11-20/a")).unwrap();
    for (index, pinned) in (0..).zip(&pins) {
        let again = ring.pin(pinned.id()).unwrap();
        disk.begin(write_segment(index, file, index * (64 << 10), again)).unwrap();
    }
    all_good(&mut *disk);
    let expected: Vec<u8> = pins.iter().flat_map(|pinned| pinned.whole().unwrap()).copied().collect();
    assert!(std::fs::read(folder.path().join("2026-11-20/a")).unwrap() == expected);
}
