//! More dumps at once than segments of the ring may be held for: what that means is said at the start, and at
//! a reload.

use crate::plan::RunPlan;
use scope_ring::Ring;

/// What is to be said of a run with triggers, once it has its ring.
pub(crate) fn of_run(plan: &RunPlan, ring: &Ring, live: bool) -> Option<String> {
    of_plan(plan, ring.budget().segments(), ring.segment_bytes() as u64, live)
}

/// The same before anything is opened, of plans with interfaces. `segments` are the ring's: bytes of each,
/// and how many.
pub fn warning(plan: &RunPlan, segments: (usize, usize)) -> Option<String> {
    let live = plan.fixed.sources.iter().any(|entry| entry.plan.interface().is_some());
    let (segment_bytes, pins) = (segments.0 as u64, segments.1 as u64 / 2); // as the ring makes its budget
    live.then(|| of_plan(plan, pins.max(1), segment_bytes, live)).flatten()
}

fn of_plan(plan: &RunPlan, pins: u64, segment_bytes: u64, live: bool) -> Option<String> {
    let at_once = plan
        .live
        .exit_after
        .map_or(plan.live.dumps_max as u64, |dumps| dumps.min(plan.live.dumps_max as u64));
    words(at_once, pins, segment_bytes, live).filter(|_| !plan.live.triggers.is_empty())
}

/// What is to be said where `dumps_max` dumps may be open at once and segments may be held ahead of reading
/// for `pins` of them, which is half of the ring. `None`: each gets one.
pub fn words(dumps_max: u64, pins: u64, segment_bytes: u64, live: bool) -> Option<String> {
    let held = format!(
        "--dumps-max: up to {dumps_max} dumps at once, and half of the ring has segments to hold for {pins} \
         of them"
    );
    let ring = ring_for(dumps_max, pins, segment_bytes)?;
    let remedy = format!("write --dumps-max {pins} (hits beyond start no dump then) or --ring {ring}");
    Some(match live {
        true => format!(
            "{held}: further ones hold nothing ahead of their reading, and lack what the ring overwrites before they have read it, \
             which they state; {remedy}"
        ),
        false => format!(
            "{held}: of a file no dump loses anything by that, since reading waits for them; to wait less \
             {remedy}"
        ),
    })
}

/// The ring in which segments can be held for so many dumps; `None`: this one will do, where they can be held
/// for `pins` of them.
pub(crate) fn ring_for(dumps: u64, pins: u64, segment_bytes: u64) -> Option<String> {
    (dumps > pins).then(|| size(2 * dumps * segment_bytes))
}

/// As a flag takes it.
fn size(bytes: u64) -> String {
    match bytes.div_ceil(1 << 20) {
        mib if mib % 1024 == 0 => format!("{}GiB", mib / 1024),
        mib => format!("{mib}MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_for_which_the_ring_has_no_segment_are_told_of_with_the_remedy() {
        let check = |dumps_max, pins, live, expected: &[&str]| {
            let said = words(dumps_max, pins, 2 << 20, live);
            let said = said.unwrap_or_default();
            assert_eq!(said.is_empty(), expected.is_empty(), "{said}");
            expected.iter().for_each(|part| assert!(said.contains(part), "{said}"));
        };
        check(8, 8, true, &[]);
        check(1024, 1024, false, &[]);
        check(
            1000,
            256,
            true,
            &[
                "hold nothing ahead of their reading",
                "--dumps-max 256 (hits beyond start no dump then) or --ring 4000MiB",
            ],
        );
        check(
            1024,
            256,
            false,
            &["no dump loses anything", "reading waits", "--dumps-max 256 (", "or --ring 4GiB"],
        );
    }
}
