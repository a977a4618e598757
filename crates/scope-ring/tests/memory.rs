//! The memory of a ring: how much of it there is, in which pages, where it stays, and what is refused with
//! which words.

mod stand;

use scope_ring::{MemoryKind, MemoryOptions, Ring, RingConfig, RingError};
use stand::{KIB, MIB};
use std::sync::{Arc, Mutex, MutexGuard};

/// Says why a check is skipped. With `CI=true` in the environment none may be.
fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "must not be skipped in CI: {why}");
    eprintln!("skipped: {why}");
}

/// These tests look at their whole process and at pools of the whole machine: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn config(ring_bytes: u64, segment_bytes: u64) -> RingConfig {
    RingConfig { ring_bytes, segment_bytes: Some(segment_bytes), workers: 2, lanes: 2, run_id: stand::RUN_ID }
}

fn ready(ring_bytes: u64, segment_bytes: u64, options: &MemoryOptions) -> Result<Arc<Ring>, RingError> {
    Ring::ready(&config(ring_bytes, segment_bytes), &[], options, &|_| true)
}

/// Bytes behind a name in `/proc/self/status`.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("own status");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("kB") * 1024
}

/// All that is resident of this process: hugetlbfs pages are counted apart.
fn resident() -> u64 {
    status("VmRSS:") + status("HugetlbPages:")
}

/// How many bytes more are resident than before; none where the process has given some back meanwhile.
fn grown(before: u64) -> u64 {
    resident().saturating_sub(before)
}

/// Writes a bit more than the ring holds.
fn write_a_turn(ring: &Arc<Ring>) {
    let mut lane = stand::lane(ring, 0);
    stand::feed_segments(ring, &mut lane, ring.segments() as u64 * 9 / 8);
}

#[test]
fn a_ring_takes_at_most_three_percent_more_than_was_asked_for() {
    let _alone = alone();
    for (options, segment_bytes) in [
        (MemoryOptions::default(), 2 * MIB),
        (MemoryOptions::default(), 64 * KIB),
        (MemoryOptions { without_hugetlb: true, ..MemoryOptions::default() }, 2 * MIB),
    ] {
        let before = resident();
        let ring = ready(256 * MIB, segment_bytes, &options).expect("memory");
        let untouched = grown(before);
        write_a_turn(&ring);
        let ratio = |bytes: u64| bytes as f64 / (256 * MIB) as f64;
        let (fresh, turned) = (ratio(untouched), ratio(grown(before)));
        println!(
            "segments of {segment_bytes} B, {}: {fresh:.4} of the ring resident, {turned:.4} after a turn",
            ring.memory()
        );
        assert!(fresh >= 0.999 && turned <= 1.03, "{fresh} {turned}");
    }
}

#[test]
fn making_it_resident_ends_when_progress_says_so() {
    let _alone = alone();
    let before = resident();
    let ring =
        Ring::ready(&config(512 * MIB, 2 * MIB), &[], &MemoryOptions::default(), &|_| false).expect("a ring");
    // Every thread may have begun one piece of 32 MiB more.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(8) as u64;
    let most = (threads + 1) * 32 * MIB;
    assert!(grown(before) < most.min(500 * MIB), "{} B", grown(before));
    drop(ring);
}

#[test]
fn nothing_is_resident_before_it_is_made_so() {
    let _alone = alone();
    let before = resident();
    let ring = Ring::create(&config(256 * MIB, 2 * MIB)).expect("a ring");
    assert!(grown(before) < 8 * MIB, "{} B", grown(before));
    drop(ring);
}

#[test]
fn the_pages_are_told_and_add_up_to_the_ring() {
    let _alone = alone();
    let ring = ready(64 * MIB, MIB, &MemoryOptions { without_hugetlb: true, ..MemoryOptions::default() })
        .expect("memory");
    match ring.memory().kind {
        MemoryKind::Transparent { huge_bytes, bytes } => {
            assert!(huge_bytes <= bytes && bytes == 64 * MIB);
            assert!(ring.memory().to_string().starts_with("transparent huge pages ("), "{}", ring.memory());
        }
        MemoryKind::Normal { bytes } => {
            assert_eq!(bytes, 64 * MIB);
            assert!(ring.memory().to_string().contains("vm.nr_hugepages=32"), "{}", ring.memory());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn locked_memory_is_locked_or_refused_with_the_remedy() {
    let _alone = alone();
    let before = status("VmLck:");
    match ready(
        32 * MIB,
        MIB,
        &MemoryOptions { locked: true, without_hugetlb: true, ..MemoryOptions::default() },
    ) {
        Ok(ring) => {
            assert!(status("VmLck:") - before >= 32 * MIB);
            assert!(ring.memory().to_string().starts_with("locked, "), "{}", ring.memory());
        }
        Err(error @ RingError::Lock { .. }) => {
            let said = error.to_string();
            assert!(said.contains("ulimit -l") && said.contains("CAP_IPC_LOCK"), "{said}");
        }
        Err(other) => panic!("{other}"),
    }
    assert_eq!(status("VmLck:"), before);
}

#[test]
fn a_node_that_does_not_exist_is_refused_with_those_that_do() {
    let _alone = alone();
    for node in [63, 1023, 1024, u32::MAX] {
        let options = MemoryOptions { node: Some(node), ..MemoryOptions::default() };
        let said = ready(32 * MIB, MIB, &options).map(drop).expect_err("no such node").to_string();
        assert!(said.contains(&format!("NUMA node {node}")) && said.contains("there are:"), "{said}");
    }
}

#[test]
fn a_ring_lies_on_the_node_that_was_asked_for() {
    let _alone = alone();
    let Some(&node) = scope_machine::Machine::this().nodes().first() else {
        return eprintln!("skipped: this kernel knows no NUMA nodes");
    };
    let ring = ready(32 * MIB, MIB, &MemoryOptions { node: Some(node), ..MemoryOptions::default() })
        .expect("memory");
    assert!(ring.memory().to_string().contains(&format!("on NUMA node {node}")));
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    let bound = |line: &&str| line.contains("wirescope-ring") || line.contains("wirescope-tables");
    let lines: Vec<&str> = maps.lines().filter(bound).collect();
    if lines.is_empty() {
        return eprintln!("skipped: no numa_maps to look at");
    }
    assert!(lines.iter().all(|line| line.contains(&format!("bind:{node}"))), "{lines:?}");
}

/// Reserved huge pages of the whole machine, given back at the end.
struct Reserved {
    before: String,
}

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl Reserved {
    /// Reserves `pages` more; says so where that is not possible.
    fn new(pages: u64) -> Option<Reserved> {
        let before = std::fs::read_to_string(POOL).ok()?;
        let wanted = before.trim().parse::<u64>().ok()? + pages;
        let reserved = Reserved { before };
        let set = std::fs::write(POOL, wanted.to_string());
        let got = std::fs::read_to_string(POOL).ok()?.trim().parse::<u64>().ok()?;
        if set.is_err() || got != wanted {
            skip(&format!("no huge pages can be reserved here: {set:?}, {got} of {wanted}"));
            return None;
        }
        Some(reserved)
    }
}

fn free_pages() -> u64 {
    let text = std::fs::read_to_string(POOL.replace("nr_", "free_")).expect("a pool");
    text.trim().parse().expect("a number")
}

impl Drop for Reserved {
    fn drop(&mut self) {
        drop(std::fs::write(POOL, self.before.trim()));
    }
}

/// A ring of 32 MiB, tried again while it isn't on the reserved pages: another process may have had them for a
/// moment. `None`: it keeps them.
fn on_reserved(options: &MemoryOptions) -> Option<Arc<Ring>> {
    for _ in 0..5 {
        let ring = ready(32 * MIB, MIB, options).expect("memory");
        if matches!(ring.memory().kind, MemoryKind::Hugetlb { .. }) {
            return Some(ring);
        }
        if free_pages() < 16 {
            eprintln!("skipped: another process took the huge pages");
            return None;
        }
    }
    panic!("16 pages are free, and the ring takes none of them");
}

#[test]
fn reserved_huge_pages_are_taken_and_what_they_can_t_hold_goes_elsewhere() {
    let _alone = alone();
    let Some(_reserved) = Reserved::new(16) else { return };
    let before = status("HugetlbPages:");
    let Some(ring) = on_reserved(&MemoryOptions::default()) else { return };
    assert_eq!(ring.memory().kind, MemoryKind::Hugetlb { page_bytes: 2 * MIB });
    assert_eq!(ring.memory().to_string(), "2 MiB huge pages from hugetlbfs");
    assert_eq!(status("HugetlbPages:") - before, 32 * MIB);
    write_a_turn(&ring);

    let other = ready(32 * MIB, MIB, &MemoryOptions::default()).expect("memory elsewhere");
    assert!(!matches!(other.memory().kind, MemoryKind::Hugetlb { .. }), "{}", other.memory());
    drop(ring);
    let without = MemoryOptions { without_hugetlb: true, ..MemoryOptions::default() };
    let declined = ready(32 * MIB, MIB, &without).expect("memory elsewhere");
    assert!(!matches!(declined.memory().kind, MemoryKind::Hugetlb { .. }), "{}", declined.memory());

    let locked = MemoryOptions { locked: true, ..MemoryOptions::default() };
    let Some(locked) = on_reserved(&locked) else { return };
    assert_eq!(locked.memory().to_string(), "locked, 2 MiB huge pages from hugetlbfs");
}
