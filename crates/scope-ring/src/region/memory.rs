//! Which memory a ring gets: what may be requested, what it got and how that reads, and the mapping itself.
//!
//! ```text
//!  tables   normal pages, sparse       header ... interface area        always: huge pages would round them up
//!  slots    the first that can be had  1. hugetlbfs pages of 1 GiB, then of 2 MiB, where enough are reserved and free
//!                                      2. transparent huge pages, requested piece by piece while prefaulting
//!                                      3. normal pages
//! ```
//! All of it is shared memory behind nameless files (memfd). What is bound to a NUMA node or locked is so
//! before its first page comes, so that every page obeys. Each file is sealed once it is mapped: whoever gets it can
//! read it, and neither write to it nor change its length. This mapping was made before, and stays writable.

use super::place::{self, HUGE_PAGE, PAGE};
use crate::RingError;
use scope_machine::memory::{HugePool, Machine, NODES_MAX};
use std::fmt::{Display, Formatter};
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Huge pages may round a ring up by one part in so many at most.
const ROUND_UP_PART: usize = 64;
/// Left for tables, threads and buffers when a ring is checked against what is free: one part in so many, and
/// some bytes.
const HEADROOM_PART: u64 = 64;
const HEADROOM_BYTES: u64 = 16 << 20;
/// What `/proc/self/smaps` calls bytes in huge pages of the kernel's own making, and bytes that are swapped
/// out.
pub(super) const TRANSPARENT: &str = "ShmemPmdMapped:";
pub(super) const SWAPPED: &str = "Swap:";
/// What nobody can do with a file of the ring any more: write to it but through mappings that are there, shorten it,
/// lengthen it, or change this.
const SEALS: libc::c_int =
    libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// What is required of the memory besides its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Never swapped out.
    pub locked: bool,
    /// NUMA node that all of it comes from.
    pub node: Option<u32>,
    /// Leave reserved huge pages (hugetlbfs) to others.
    pub without_hugetlb: bool,
}

/// Which pages the slots are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Reserved huge pages.
    Hugetlb {
        /// Bytes of one.
        page_bytes: u64,
    },
    /// Huge pages that the kernel put together; the rest, if any, is normal pages.
    Transparent {
        /// Bytes in huge pages.
        huge_bytes: u64,
        /// Bytes of all slots.
        bytes: u64,
    },
    /// Normal pages.
    Normal {
        /// Bytes of all slots.
        bytes: u64,
    },
}

/// What a ring's memory is and where it must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingMemory {
    /// Its pages.
    pub kind: MemoryKind,
    /// Never swapped out.
    pub locked: bool,
    /// NUMA node that all of it comes from.
    pub node: Option<u32>,
}

impl MemoryKind {
    /// A word for programs.
    pub fn name(&self) -> &'static str {
        match self {
            MemoryKind::Hugetlb { .. } => "hugetlb",
            MemoryKind::Transparent { .. } => "transparent",
            MemoryKind::Normal { .. } => "normal",
        }
    }
}

impl Display for MemoryKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        match *self {
            MemoryKind::Hugetlb { page_bytes } if page_bytes >= 1 << 30 => {
                write!(f, "{} GiB huge pages from hugetlbfs", page_bytes >> 30)
            }
            MemoryKind::Hugetlb { page_bytes } => {
                write!(f, "{} MiB huge pages from hugetlbfs", mib(page_bytes))
            }
            MemoryKind::Transparent { huge_bytes, bytes } => {
                write!(f, "transparent huge pages ({} of {} MiB in use)", mib(huge_bytes), mib(bytes))
            }
            MemoryKind::Normal { bytes } if bytes < HUGE_PAGE as u64 => write!(f, "normal 4 KiB pages"),
            MemoryKind::Normal { bytes } => write!(
                f,
                "normal 4 KiB pages: reserve huge pages with sysctl vm.nr_hugepages={} for fewer TLB misses",
                bytes.div_ceil(HUGE_PAGE as u64)
            ),
        }
    }
}

impl Display for RingMemory {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if self.locked {
            write!(f, "locked, ")?;
        }
        if let Some(node) = self.node {
            write!(f, "on NUMA node {node}, ")?;
        }
        write!(f, "{}", self.kind)
    }
}

/// Bytes that `bytes` take in these pages; `None` where there are too few, or rounding up would waste too
/// much.
fn room_in(pool: &HugePool, bytes: usize) -> Option<usize> {
    let rounded = bytes.checked_next_multiple_of(pool.page_bytes as usize)?;
    let fits = rounded as u64 / pool.page_bytes <= pool.free && rounded - bytes <= bytes / ROUND_UP_PART;
    fits.then_some(rounded)
}

impl MemoryOptions {
    /// Whether `machine` has `ring_bytes` of such memory, in reserved huge pages or in others.
    ///
    /// # Errors
    /// The node doesn't exist, or the memory isn't there.
    pub fn check(&self, ring_bytes: u64, machine: &Machine) -> Result<(), RingError> {
        self.check_node(machine)?;
        let in_huge_pages =
            usize::try_from(ring_bytes).is_ok_and(|bytes| !self.pools(bytes, machine).is_empty());
        if in_huge_pages { Ok(()) } else { self.check_normal(ring_bytes, machine) }
    }

    /// Whether `machine` has memory for a ring, and so many bytes `beside` it: each in reserved huge pages, or in others.
    pub fn have_room(&self, ring_bytes: u64, beside: u64, machine: &Machine) -> bool {
        let in_huge_pages =
            |bytes: u64| usize::try_from(bytes).is_ok_and(|bytes| !self.pools(bytes, machine).is_empty());
        let in_others = |bytes: u64| self.check_normal(bytes, machine).is_ok();
        let both = ring_bytes.saturating_add(beside);
        in_huge_pages(both)
            || in_others(both)
            || in_huge_pages(ring_bytes) && in_others(beside)
            || in_others(ring_bytes) && in_huge_pages(beside)
    }

    fn check_node(&self, machine: &Machine) -> Result<(), RingError> {
        let Some(node) = self.node else { return Ok(()) };
        let nodes = machine.nodes();
        if nodes.contains(&node) {
            return Ok(());
        }
        let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
        Err(RingError::NoNode {
            node,
            nodes: if nodes.is_empty() { "none".to_string() } else { nodes.join(", ") },
        })
    }

    fn check_normal(&self, ring_bytes: u64, machine: &Machine) -> Result<(), RingError> {
        let (available, limit) = machine.available(self.node);
        let needed = ring_bytes.saturating_add(ring_bytes / HEADROOM_PART).saturating_add(HEADROOM_BYTES);
        if needed <= available { Ok(()) } else { Err(RingError::NoMemory { ring_bytes, available, limit }) }
    }

    /// Pools that can take `bytes`, with the bytes that takes there.
    fn pools(&self, bytes: usize, machine: &Machine) -> Vec<(HugePool, usize)> {
        if self.without_hugetlb {
            return Vec::new();
        }
        machine
            .huge_pools(self.node)
            .into_iter()
            .filter_map(|pool| Some((pool, room_in(&pool, bytes)?)))
            .collect()
    }
}

/// One mapping of shared memory. Unmapped when dropped.
pub(super) struct Mapping {
    base: *mut u8,
    bytes: usize,
    /// Bytes of its huge pages from hugetlbfs; 0: other pages.
    pub(super) hugetlb_bytes: u64,
    /// What lies behind it.
    file: OwnedFd,
    /// Why others could write to it; `None`: they can't.
    unsealed: Option<Error>,
}

// SAFETY: the mapping is plain shared memory; control words are atomics, and who may touch which bytes of a
// slot is decided by the pin protocol (module `pin`) and by the exclusive ownership of `LaneWriter`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the tables: sparse, in normal pages.
    pub(super) fn tables(bytes: usize, options: &MemoryOptions) -> Result<Mapping, RingError> {
        let refused = |place| move |cause| RingError::System { place, cause };
        let mapping =
            Mapping::shared(c"wirescope-tables", bytes, 0, PAGE).map_err(refused("mapping its tables"))?;
        mapping.bind(options)?;
        Ok(mapping)
    }

    /// Maps `bytes` for slots in the best pages to be had, bound and locked as `options` say.
    pub(super) fn slots(
        bytes: usize,
        options: &MemoryOptions,
        machine: &Machine,
    ) -> Result<Mapping, RingError> {
        options.check_node(machine)?;
        for (pool, rounded) in options.pools(bytes, machine) {
            let flags = libc::MFD_HUGETLB | pool.page_bytes.trailing_zeros() << libc::MFD_HUGE_SHIFT;
            // Another process may have been quicker, or a limit in the way: then other pages do.
            if let Ok(mut mapping) =
                Mapping::shared(c"wirescope-ring", rounded, flags, pool.page_bytes as usize)
            {
                mapping.hugetlb_bytes = pool.page_bytes;
                mapping.bind(options)?;
                return Ok(mapping);
            }
        }
        options.check_normal(bytes as u64, machine)?;
        let refused = |cause| RingError::Refused { ring_bytes: bytes as u64, cause };
        let mapping = Mapping::shared(c"wirescope-ring", bytes, 0, HUGE_PAGE).map_err(refused)?;
        mapping.bind(options)?;
        // Advice only: where huge pages can't be had, normal ones do.
        // SAFETY: the range is the whole mapping, and the advice changes no byte.
        unsafe { libc::madvise(mapping.base.cast(), bytes, libc::MADV_HUGEPAGE) };
        if options.locked {
            mapping.lock(bytes)?;
        }
        Ok(mapping)
    }

    /// Maps a new nameless file, where one of its pages of `page` bytes could begin.
    fn shared(
        name: &std::ffi::CStr,
        bytes: usize,
        flags: libc::c_uint,
        page: usize,
    ) -> Result<Mapping, Error> {
        // SAFETY: plain system calls on a new descriptor of our own, which nobody else closes, and on its mapping; the name
        // ends in a zero byte.
        unsafe {
            let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags);
            if fd < 0 {
                return Err(Error::last_os_error());
            }
            let file = OwnedFd::from_raw_fd(fd);
            if libc::ftruncate(fd, bytes as libc::off_t) != 0 {
                return Err(Error::last_os_error());
            }
            let base = place::map(file.as_fd(), bytes, libc::PROT_READ | libc::PROT_WRITE, page)?;
            // Packets are no part of what a crash leaves behind. Advice only, which every kernel takes.
            libc::madvise(base.cast(), bytes, libc::MADV_DONTDUMP);
            // A kernel before 5.1 can't: then nobody else gets it.
            let sealed = libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS);
            let unsealed = (sealed != 0).then(Error::last_os_error);
            Ok(Mapping { base, bytes, hugetlb_bytes: 0, file, unsealed })
        }
    }

    /// The file behind it, which whoever gets it can only read.
    ///
    /// # Errors
    /// Whoever gets it could write to it: the system's words.
    pub(super) fn sealed_file(&self) -> Result<BorrowedFd<'_>, &Error> {
        self.unsealed.as_ref().map_or_else(|| Ok(self.file.as_fd()), Err)
    }

    /// Its first byte.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its length, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Binds it to the requested node; no page may have come yet.
    fn bind(&self, options: &MemoryOptions) -> Result<(), RingError> {
        let Some(node) = options.node else { return Ok(()) };
        let mut mask = [0u64; NODES_MAX as usize / 64];
        if let Some(word) = mask.get_mut(node as usize / 64) {
            *word = 1 << (node % 64);
        }
        // The kernel reads one bit less than the number says.
        let bits = u64::from(NODES_MAX) + 1;
        // SAFETY: the range is the whole mapping; the mask is ours, its length given; the call changes no
        // byte.
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, self.base, self.bytes, libc::MPOL_BIND, mask.as_ptr(), bits, 0)
        };
        if result == 0 { Ok(()) } else { Err(RingError::Node { node, cause: Error::last_os_error() }) }
    }

    /// Locks the first `bytes`, each page as it comes. Pages from hugetlbfs are never swapped out anyhow.
    pub(super) fn lock(&self, bytes: usize) -> Result<(), RingError> {
        assert!(bytes <= self.bytes);
        // SAFETY: the range lies inside the mapping (asserted); locking changes no byte.
        let result = unsafe { libc::mlock2(self.base.cast(), bytes, libc::MLOCK_ONFAULT as libc::c_uint) };
        if result == 0 {
            return Ok(());
        }
        Err(RingError::Lock { bytes: bytes as u64, limit: lock_limit(), cause: Error::last_os_error() })
    }

    /// Bytes of it that `/proc/self/smaps` counts under `name`.
    pub(super) fn smaps_bytes(&self, name: &str) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        smaps_bytes(&smaps, name, self.base as usize..self.base as usize + self.bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nobody borrows from a region that is dropped.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// What this process may lock, in words.
fn lock_limit() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours and of the right type.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } {
        0 if limit.rlim_cur != libc::RLIM_INFINITY => format!("{} KiB", limit.rlim_cur / 1024),
        0 => "unlimited".to_string(),
        _ => "unknown".to_string(),
    }
}

/// Sums up the lines `name` of the mappings that begin inside `range`.
fn smaps_bytes(smaps: &str, name: &str, range: std::ops::Range<usize>) -> u64 {
    let mut inside = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((begin, _)) = first.split_once('-') {
            inside = usize::from_str_radix(begin, 16).is_ok_and(|begin| range.contains(&begin));
        } else if inside && first == name {
            bytes +=
                line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_says_what_it_is_and_what_would_be_better() {
        let check = |kind: MemoryKind, expected: &str| assert_eq!(kind.to_string(), expected);
        check(MemoryKind::Hugetlb { page_bytes: 1 << 30 }, "1 GiB huge pages from hugetlbfs");
        check(MemoryKind::Hugetlb { page_bytes: 2 << 20 }, "2 MiB huge pages from hugetlbfs");
        check(
            MemoryKind::Transparent { huge_bytes: 62 << 20, bytes: 64 << 20 },
            "transparent huge pages (62 of 64 MiB in use)",
        );
        check(
            MemoryKind::Normal { bytes: (64 << 20) + 1 },
            "normal 4 KiB pages: reserve huge pages with sysctl vm.nr_hugepages=33 for fewer TLB misses",
        );
        check(MemoryKind::Normal { bytes: 1 << 20 }, "normal 4 KiB pages");
        let memory =
            RingMemory { kind: MemoryKind::Hugetlb { page_bytes: 2 << 20 }, locked: true, node: Some(1) };
        assert_eq!(memory.to_string(), "locked, on NUMA node 1, 2 MiB huge pages from hugetlbfs");
    }

    #[test]
    fn a_pool_takes_what_fits_without_much_waste() {
        let large = HugePool { page_bytes: 1 << 30, free: 4 };
        let small = HugePool { page_bytes: 2 << 20, free: 100 };
        assert_eq!(room_in(&large, 4 << 30), Some(4 << 30));
        assert_eq!(room_in(&large, 5 << 30), None);
        assert_eq!(room_in(&large, (3 << 30) + (512 << 20)), None);
        assert_eq!(room_in(&small, 200 << 20), Some(200 << 20));
        assert_eq!(room_in(&small, (128 << 20) + (1 << 20)), Some(130 << 20));
        assert_eq!(room_in(&small, 1 << 20), None);
        assert_eq!(room_in(&small, usize::MAX), None);
    }

    #[test]
    fn lines_of_smaps_are_summed_over_the_range_only() {
        let smaps = "1000-2000 rw-s 0 00:01 7 /memfd:x (deleted)\nRss: 4 kB\nShmemPmdMapped:  2048 kB\nSwap: 8 kB\n\
                     2000-3000 rw-s 0 00:01 7 /memfd:x (deleted)\nShmemPmdMapped:  4096 kB\n\
                     7f00-8000 rw-s 0 00:01 8 /memfd:y (deleted)\nShmemPmdMapped:  9999 kB\n";
        assert_eq!(smaps_bytes(smaps, TRANSPARENT, 0x1000..0x3000), 6 << 20);
        assert_eq!(smaps_bytes(smaps, TRANSPARENT, 0x2000..0x3000), 4 << 20);
        assert_eq!(smaps_bytes(smaps, SWAPPED, 0x1000..0x3000), 8 << 10);
        assert_eq!(smaps_bytes("", SWAPPED, 0..1), 0);
    }
}
