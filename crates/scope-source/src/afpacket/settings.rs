//! How large the kernel's ring is and how long it keeps a block, chosen from the link's speed where the
//! source doesn't set it.
//!
//! ```text
//! ring of a source = what comes in 50 ms at the link's speed; unknown speed: as 10 Gbit/s
//! ring of a worker = all of it; of several workers each 2/n of it: flows fall unevenly
//!                    within 8 MiB and 1 GiB, and all workers' together within an eighth of the free memory
//! block            = 1 MiB from 2.5 Gbit/s on, else 256 KiB
//! timeout          = 4 ms, on links of 100 Mbit/s and less 10 ms: there a block would be nearly empty
//! ```
//! One of many interfaces (a pattern, or `workers=0`) is taken for a slow one:
//! [`AfPacketOptions::with_small_ring`].
//!
//! A frame has no size of its own in TPACKET_V3: packets are packed into blocks, so there is nothing to
//! choose. A packet has to fit a block: 256 KiB hold every packet that the kernel makes.

use super::{AfPacketOptions, Pattern, RING_BYTES_MAX};
use crate::plan::AfPacketPlan;
use scope_fault::Fault;

/// How long a worker may be away without loss, ms of traffic at the link's speed.
const HOLD_MS: u64 = 50;
/// Speed that is assumed where the link reports none, bits/s.
const SPEED_ASSUMED: u64 = 10_000_000_000;
/// From this speed on blocks are large, bits/s.
const FAST: u64 = 2_500_000_000;
/// Up to this speed blocks are kept longer, bits/s.
const SLOW: u64 = 100_000_000;
/// Ring of one worker, bytes, where it is chosen.
const RING_BYTES: std::ops::RangeInclusive<u64> = 8 << 20..=1 << 30;
/// The part of the free memory that chosen rings of one source may take.
const FREE_PART: u64 = 8;

/// What the kernel says of the link's speed, bits/s; `None` where it doesn't know.
pub fn link_speed(interface: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    text.trim().parse::<u64>().ok().filter(|&megabits| megabits > 0).map(|megabits| megabits * 1_000_000)
}

/// Whether each interface of `plan` may be one of many, or shares its worker.
pub fn is_one_of_many(plan: &AfPacketPlan) -> bool {
    plan.workers == 0 || Pattern::new(&plan.interface).is_glob()
}

/// Fills in what `plan` doesn't set. `speed` is the link's in bits/s, `free_bytes` the memory that is free.
pub fn choose(plan: &mut AfPacketPlan, speed: Option<u64>, free_bytes: u64) {
    if is_one_of_many(plan) {
        let small = AfPacketOptions::of(plan);
        (plan.block_bytes, plan.blocks) = (Some(small.block_bytes), Some(small.blocks));
        plan.timeout_ms = Some(small.block_timeout_ms);
        return;
    }
    let speed = speed.unwrap_or(SPEED_ASSUMED);
    let block_bytes = *plan.block_bytes.get_or_insert(if speed >= FAST { 1 << 20 } else { 256 << 10 });
    plan.timeout_ms.get_or_insert(if speed <= SLOW { 10 } else { 4 });
    let workers = u64::from(plan.workers.max(1));
    plan.blocks.get_or_insert_with(|| {
        let of_source = speed / 8 / 1000 * HOLD_MS;
        let of_worker = if workers == 1 { of_source } else { of_source * 2 / workers };
        let wanted = of_worker.clamp(*RING_BYTES.start(), *RING_BYTES.end());
        let bytes = wanted.min(free_bytes / FREE_PART / workers);
        // Up to the next power of two, of whose halves the last that fits is taken where memory is short.
        let blocks = wanted.div_ceil(u64::from(block_bytes)).next_power_of_two();
        let fitting = (bytes / u64::from(block_bytes)).max(2);
        if bytes == wanted { blocks as u32 } else { (1 << fitting.ilog2()).min(blocks as u32) }
    });
}

/// Bytes of the rings of all workers of `plan`, for one interface, as far as it is chosen.
pub fn ring_bytes(plan: &AfPacketPlan) -> u64 {
    let of_worker = u64::from(plan.block_bytes.unwrap_or(0)) * u64::from(plan.blocks.unwrap_or(0));
    of_worker * u64::from(plan.workers.max(1))
}

/// Refuses rings that are not possible, of the source `spec`: `free_bytes` of memory are free.
///
/// # Errors
/// What is too large, and how much there may be.
pub fn check(plan: &AfPacketPlan, free_bytes: u64, spec: &str) -> Result<(), Fault> {
    let of_worker = ring_bytes(plan) / u64::from(plan.workers.max(1));
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    if of_worker > RING_BYTES_MAX {
        let (bytes, most) = (mib(of_worker), mib(RING_BYTES_MAX));
        let cause = format!("block= times blocks= is {bytes}, a worker's ring has at most {most}");
        return Err(Fault::of_source(spec).cause(cause).remedy("write fewer blocks"));
    }
    let bytes = ring_bytes(plan);
    if bytes > free_bytes {
        let cause = format!(
            "the kernel's ring of {} ({} workers with {}) is more than there is: {} are free",
            mib(bytes),
            plan.workers.max(1),
            mib(of_worker),
            mib(free_bytes)
        );
        return Err(Fault::of_source(spec).cause(cause).remedy("write fewer blocks= or workers="));
    }
    Ok(())
}

/// The settings in words, as they are typed.
pub fn words(plan: &AfPacketPlan) -> String {
    let options = AfPacketOptions::of(plan);
    let (bytes, unit) = if options.block_bytes >= 1 << 20 {
        (options.block_bytes >> 20, "MiB")
    } else {
        (options.block_bytes >> 10, "KiB")
    };
    format!("block={bytes}{unit},blocks={},timeout={}ms", options.blocks, options.block_timeout_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn chosen(typed: AfPacketPlan, speed: Option<u64>, free_bytes: u64) -> (u32, u32, u32) {
        let mut plan = typed;
        choose(&mut plan, speed, free_bytes);
        assert_eq!(check(&plan, free_bytes, "x"), Ok(()));
        (plan.block_bytes.unwrap() >> 10, plan.blocks.unwrap(), plan.timeout_ms.unwrap())
    }

    #[test]
    fn the_ring_holds_50_ms_of_the_link_and_fits_the_free_memory() {
        let plan = |workers| AfPacketPlan { workers, ..AfPacketPlan::new("x") };
        let mbit = |n: u64| Some(n * 1_000_000);
        assert_eq!(chosen(plan(1), mbit(10_000), 16 * GIB), (1024, 64, 4));
        assert_eq!(chosen(plan(1), None, 16 * GIB), (1024, 64, 4));
        assert_eq!(chosen(plan(1), mbit(1000), 16 * GIB), (256, 32, 4));
        assert_eq!(chosen(plan(1), mbit(10), 16 * GIB), (256, 32, 10));
        assert_eq!(chosen(plan(1), mbit(100_000), 16 * GIB), (1024, 1024, 4));
        assert_eq!(chosen(plan(4), mbit(100_000), 16 * GIB), (1024, 512, 4));
        assert_eq!(chosen(plan(1), mbit(400_000), 64 * GIB), (1024, 1024, 4));
        assert_eq!(chosen(plan(1), mbit(100_000), GIB), (1024, 128, 4));
        assert_eq!(chosen(plan(8), mbit(10_000), GIB / 2), (1024, 8, 4));
    }

    #[test]
    fn one_of_many_interfaces_has_a_small_ring_unless_more_is_typed() {
        let shared = AfPacketPlan { workers: 0, ..AfPacketPlan::new("x") };
        for plan in [shared, AfPacketPlan::new("eth*")] {
            let (block_kib, blocks, timeout_ms) = chosen(plan.clone(), Some(100_000_000_000), 16 * GIB);
            assert_eq!((block_kib * blocks, timeout_ms), (8 << 10, 4));
            assert_eq!(words(&plan), format!("block={block_kib}KiB,blocks={blocks},timeout=4ms"));
            let typed = AfPacketPlan { block_bytes: Some(1 << 20), blocks: Some(64), ..plan };
            assert_eq!(chosen(typed, None, 16 * GIB), (1024, 64, 4));
        }
    }

    #[test]
    fn what_is_typed_stays() {
        let typed = AfPacketPlan {
            block_bytes: Some(128 << 10),
            blocks: Some(7),
            timeout_ms: Some(1),
            ..AfPacketPlan::new("x")
        };
        assert_eq!(chosen(typed.clone(), None, GIB), (128, 7, 1));
        assert_eq!(words(&typed), "block=128KiB,blocks=7,timeout=1ms");
        let blocks = AfPacketPlan { blocks: Some(7), ..AfPacketPlan::new("x") };
        assert_eq!(chosen(blocks, None, GIB), (1024, 7, 4));
    }

    #[test]
    fn a_ring_that_can_not_be_is_refused() {
        let plan = |workers, blocks| AfPacketPlan {
            workers,
            block_bytes: Some(1 << 20),
            blocks: Some(blocks),
            ..AfPacketPlan::new("x")
        };
        let fault = |plan: AfPacketPlan, free| check(&plan, free, "x").unwrap_err().to_string();
        assert!(fault(plan(1, 4096), 64 * GIB).contains("at most 2048.0 MiB"));
        assert!(
            fault(plan(4, 512), GIB)
                .contains("2048.0 MiB (4 workers with 512.0 MiB) is more than there is: 1024.0 MiB")
        );
        assert_eq!(check(&plan(4, 256), GIB, "x"), Ok(()));
    }
}
