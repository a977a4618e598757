//! Findings from recorded counters, for losses that the machines of these tests can't bring about. The first line of each record
//! says which machine it imitates.

use scope_engine::doctor::facts::{Disk, Facts};
use scope_engine::doctor::{Finding, Stage, Sureness, findings, log};

fn recorded(text: &str) -> Vec<Finding> {
    assert!(text.starts_with("{\"event\": \"fixture\", \"imitates\": "), "a record says what it imitates");
    findings(&log::parse(text).expect("a run"))
}

/// Looks for one finding; what it loses, and that its first remedy holds `remedy`.
fn check(found: &[Finding], kind: &str, stage: Stage, sureness: Sureness, lost: u64, remedy: &str) {
    let finding = found.iter().find(|finding| finding.kind == kind).unwrap_or_else(|| panic!("no {kind}: {found:#?}"));
    assert_eq!((finding.stage, finding.sureness), (stage, sureness), "{finding:?}");
    assert_eq!((finding.lost_min, finding.lost_max), (lost, lost), "{finding:?}");
    assert!(finding.remedies[0].contains(remedy), "{finding:?}");
}

fn losses(found: &[Finding]) -> usize {
    found.iter().filter(|finding| finding.loses).count()
}

#[test]
fn a_card_without_room_is_found_once_though_three_counters_tell_of_it() {
    let found = recorded(include_str!("recorded/ixgbe_missed.jsonl"));
    check(&found, "nic_no_room", Stage::Nic, Sureness::Certain, 120_345, "ethtool -G eth2 rx 4096");
    assert_eq!(losses(&found), 1, "{found:#?}");
}

#[test]
fn a_loss_that_only_the_driver_counts_is_likely() {
    let found = recorded(include_str!("recorded/mlx5_out_of_buffer.jsonl"));
    check(&found, "driver_drops", Stage::Nic, Sureness::Likely, 7777, "ethtool -g eth2");
    assert!(found[0].cause.contains("rx_out_of_buffer"));
    assert_eq!(losses(&found), 1, "{found:#?}");
}

#[test]
fn dropped_packets_of_unknown_cause_are_possible() {
    let found = recorded(include_str!("recorded/e1000e_dropped.jsonl"));
    let dropped = found.iter().find(|finding| finding.kind == "rx_dropped").expect("a finding");
    assert_eq!((dropped.stage, dropped.sureness), (Stage::Nic, Sureness::Possible));
    assert_eq!((dropped.loses, dropped.lost_min, dropped.lost_max), (true, 0, 31), "{dropped:?}");
}

#[test]
fn dropped_packets_that_capture_got_are_no_loss() {
    let found = recorded(&include_str!("recorded/e1000e_dropped.jsonl").replace("\"offered\": 8999969", "\"offered\": 9000000"));
    check(&found, "rx_dropped", Stage::Nic, Sureness::Possible, 0, "receive ring");
    assert_eq!(losses(&found), 0, "{found:#?}");
}

#[test]
fn damaged_frames_are_the_line_s_fault() {
    let found = recorded(include_str!("recorded/optics_damaged.jsonl"));
    check(&found, "damaged", Stage::Nic, Sureness::Certain, 250, "cable");
    assert_eq!(losses(&found), 1, "{found:#?}");
}

#[test]
fn a_full_kernel_queue_is_likely_of_one_interface_and_possible_of_two() {
    let found = recorded(include_str!("recorded/backlog_full.jsonl"));
    check(&found, "backlog", Stage::KernelQueue, Sureness::Likely, 5150, "netdev_max_backlog");
    let found = recorded(include_str!("recorded/backlog_full_of_two.jsonl"));
    check(&found, "backlog", Stage::KernelQueue, Sureness::Possible, 5150, "netdev_max_backlog");
}

#[test]
fn a_ring_that_is_swapped_out_should_be_locked() {
    let found = recorded(include_str!("recorded/swapped.jsonl"));
    check(&found, "swapped", Stage::Ring, Sureness::Certain, 0, "--mlock");
    check(&found, "normal_pages", Stage::Ring, Sureness::Certain, 0, "vm.nr_hugepages=4096");
    assert_eq!(losses(&found), 0, "{found:#?}");
}

#[test]
fn bounds_of_the_ring_are_certain() {
    let found = recorded(include_str!("recorded/bounds.jsonl"));
    check(&found, "link_types", Stage::Ring, Sureness::Certain, 7, "fewer kinds");
    check(&found, "interfaces", Stage::Ring, Sureness::Certain, 5, "restart");
    assert_eq!(found[0].kind, "link_types", "the larger loss first");
}

#[test]
fn refused_dumps_are_losses_and_crowded_ones_are_not() {
    let found = recorded(include_str!("recorded/budget_reached.jsonl"));
    check(&found, "dumps_refused", Stage::DumpDisk, Sureness::Certain, 0, "move finished dumps");
    assert!(found[0].loses && found[0].cause.starts_with("10 hits"), "{found:#?}");
    check(&found, "too_many", Stage::Dumps, Sureness::Certain, 0, "--holdoff-key");
    assert_eq!(losses(&found), 1);
}

#[test]
fn packets_that_the_card_counts_and_capture_never_sees_are_taken_by_another() {
    let found = recorded(include_str!("recorded/xdp_takes_all.jsonl"));
    check(&found, "idle", Stage::Nic, Sureness::Possible, 0, "bpftool");
}

#[test]
fn a_disk_that_is_nearly_full_is_told_before_it_is_full() {
    let with =
        |free_bytes| findings(&Facts { disk: Some(Disk { free_bytes, bytes: 1 << 40, read_only: false }), ..Facts::default() });
    check(&with(1 << 30), "disk_low", Stage::DumpDisk, Sureness::Certain, 0, "move finished dumps");
    assert!(with(1 << 39).is_empty());
}

#[test]
fn of_nothing_nothing_is_found() {
    assert!(findings(&Facts::default()).is_empty());
}

#[test]
fn a_log_that_is_cut_changed_or_full_of_large_numbers_is_read_as_far_as_it_goes() {
    let whole = include_str!("recorded/ixgbe_missed.jsonl").to_string() + include_str!("recorded/budget_reached.jsonl");
    let look = |text: &str| log::parse(text).map_or(0, |facts| findings(&facts).len());
    for cut in (0..whole.len()).step_by(7) {
        look(&whole[..cut]);
    }
    for (from, to) in
        [("120345", "18446744073709551615"), (": 9", ": 18446744073709551615"), (": 1", ": -1"), ("{", "["), ("\"", "")]
    {
        look(&whole.replace(from, to));
    }
    let twice = whole.replace("\"offered\": 9000000", "\"offered\": 18446744073709551615");
    assert!(look(&twice) > 0, "counts are bounded, not wrapped");
}
