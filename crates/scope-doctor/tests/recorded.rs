//! Findings from recorded counters, for losses that the machines of these tests can't bring about. The first
//! line of each record says which machine it imitates.

use scope_doctor::facts::{Capture, Facts, KernelLosses};
use scope_doctor::{Finding, Stage, Sureness, findings, log};
use scope_machine::disk::Disk;

fn recorded(text: &str) -> Vec<Finding> {
    assert!(text.starts_with("{\"event\": \"fixture\", \"imitates\": "), "a record says what it imitates");
    findings(&log::parse(text).expect("a run"))
}

/// Looks for one finding; what it loses, and that its first remedy holds `remedy`.
fn check(found: &[Finding], kind: &str, stage: Stage, sureness: Sureness, lost: u64, remedy: &str) {
    let finding =
        found.iter().find(|finding| finding.kind == kind).unwrap_or_else(|| panic!("no {kind}: {found:#?}"));
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
fn a_disk_of_the_store_that_was_too_slow_or_failed_is_a_place_of_loss() {
    let record = |state: &str| {
        format!(
            "{{\"event\": \"fixture\", \"imitates\": \"a run with two volumes\"}}\n\
             {{\"event\": \"start\", \"logged\": \"2026-11-23T10:00:00Z\", \"run_id\": \"01\"}}\n{state}\
             {{\"event\": \"status\", \"logged\": \"2026-11-23T10:00:10Z\", \"run_id\": \"01\", \"stores\": [\
             {{\"path\": \"/a\", \"stored\": {{\"packets\": 900}}, \"missed\": {{\"packets\": 100}}, \
             \"state\": \"writing\", \"way\": \"pwrite\"}}, \
             {{\"path\": \"/b\", \"stored\": {{\"packets\": 5}}, \"missed\": {{\"packets\": 0}}, \"state\": \"writing\"}}]}}\n"
        )
    };
    let found = recorded(&record(""));
    check(&found, "store_slow", Stage::Store, Sureness::Certain, 100, "--store DIR1 --store DIR2");
    assert_eq!(found.iter().filter(|finding| finding.stage == Stage::Store).count(), 1, "{found:#?}");
    let failing = "{\"event\": \"store_state\", \"logged\": \"2026-11-23T10:00:05Z\", \"run_id\": \"01\", \
                   \"volume\": \"/a\", \"state\": \"failing\", \"text\": \"Input/output error (os error 5)\"}\n";
    let found = recorded(&record(failing));
    check(&found, "store_failing", Stage::Store, Sureness::Certain, 100, "dmesg");
    let other = |state: &str, text: &str| {
        let line = failing.replace("failing", state).replace("Input/output error (os error 5)", text);
        recorded(&record(&line))
    };
    let found = other("held", "holds leave no room");
    check(&found, "store_held", Stage::Store, Sureness::Certain, 100, "hold list");
    let no_room = "no room: the free space of its file system lacks 206 GiB, and no file is left to delete; ";
    let found = other("full", &format!("{no_room}lower --store-min-free, or delete what others keep there"));
    check(&found, "store_full", Stage::Store, Sureness::Certain, 100, "lower --store-min-free");
    let found = other("full", &format!("{no_room}delete what others keep there"));
    check(&found, "store_full", Stage::Store, Sureness::Certain, 100, "delete what others keep there");
    let found = other("stalled", "the disk has not answered for 5 s");
    check(&found, "store_stalled", Stage::Store, Sureness::Certain, 100, "/proc/pressure/io");
    let found = other("failing", "the folder isn't at its path any more: it was unmounted, moved or removed");
    check(&found, "store_gone", Stage::Store, Sureness::Certain, 100, "Mount the disk again");
}

#[test]
fn statistics_that_are_not_written_or_far_behind_are_told_and_lose_no_packet() {
    let found = |stats: &str| {
        let found = recorded(&format!(
            "{{\"event\": \"fixture\", \"imitates\": \"a run with statistics\"}}\n\
             {{\"event\": \"start\", \"logged\": \"2026-11-27T10:00:00Z\", \"run_id\": \"01\"}}\n\
             {{\"event\": \"status\", \"logged\": \"2026-11-27T10:00:10Z\", \"run_id\": \"01\", \"stats\": \
             {{\"db\": \"/var/x y.sqlite\", \"interval_ns\": 10000000000, {stats}}}}}\n"
        ));
        // That it wrote no last line is told, too.
        found.into_iter().filter(|finding| finding.stage == Stage::Statistics).collect::<Vec<_>>()
    };
    let kinds = |found: &[Finding]| found.iter().map(|finding| finding.kind).collect::<Vec<_>>();
    let fine = "\"lag_ns\": 79000000000, \"wal_bytes\": 5000000, \"disk_free\": 3000, \"disk_bytes\": 100000";
    assert_eq!(kinds(&found(fine)), [""; 0]);
    let of = |stats: &str, kind: &str, sureness: Sureness, remedy: &str| {
        let found = found(stats);
        assert_eq!(kinds(&found), [kind]);
        check(&found, kind, Stage::Statistics, sureness, 0, remedy);
        assert_eq!(losses(&found), 0, "{found:#?}");
        found[0].cause.clone()
    };
    let cause = of("\"lag_ns\": 81000000000", "stats_behind", Sureness::Certain, "faster disk");
    assert!(cause.contains("81 s behind"), "{cause}");
    let cause = of("\"wal_bytes\": 104857600", "stats_wal", Sureness::Likely, "fuser -v '/var/x y.sqlite'");
    assert!(cause.contains("has 100 MiB"), "{cause}");
    of("\"disk_free\": 1999, \"disk_bytes\": 100000", "stats_disk_low", Sureness::Certain, "--db-keep");
    let failing = |text: &str| format!("\"failing\": \"{text}\", \"lag_ns\": 990000000000");
    let text = "no room on the disk of x";
    of(&failing(text), "stats_failing", Sureness::Certain, "Make room");
    let text = "x is locked by another program";
    of(&failing(text), "stats_failing", Sureness::Certain, "fuser -v");
    of(&failing("x: Input/output error"), "stats_failing", Sureness::Certain, "dmesg");
    of("\"ended\": \"x is damaged: odd\"", "stats_ended", Sureness::Certain, "Move the database away");
    // What was folded by the bounds, and what by a disk that was too slow.
    let folded = "\"folded_rows\": 7, \"folded_flows\": 5, \"unwritten\": 12";
    of(folded, "stats_unwritten", Sureness::Certain, "faster disk");
    let cause = of("\"folded_rows\": 7", "stats_folded", Sureness::Certain, "--traffic-rows");
    assert!(cause.starts_with("7 rows of"), "{cause}");
    of("\"evicted\": 3", "stats_evicted", Sureness::Certain, "--flows-max");
    of("\"unsent\": 3", "stats_unsent", Sureness::Likely, "--ipfix");
    // A log that says nothing of intervals is of an older version.
    let old = found("\"lag_ns\": 1").len();
    assert_eq!(old, 0);
}

#[test]
fn dropped_packets_that_capture_got_are_no_loss() {
    let found = recorded(
        &include_str!("recorded/e1000e_dropped.jsonl")
            .replace("\"offered\": 8999969", "\"offered\": 9000000"),
    );
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
    check(&found, "interfaces", Stage::Ring, Sureness::Certain, 5, "Restart the run");
    assert_eq!(found[0].kind, "link_types", "the larger loss first");
}

#[test]
fn refused_dumps_are_losses_and_crowded_ones_are_not() {
    let found = recorded(include_str!("recorded/budget_reached.jsonl"));
    check(&found, "dumps_refused", Stage::DumpDisk, Sureness::Certain, 0, "Move finished dumps");
    assert!(found[0].loses && found[0].cause.starts_with("10 hits"), "{found:#?}");
    check(&found, "too_many", Stage::Dumps, Sureness::Certain, 0, "--dumps-max 32");
    assert_eq!(losses(&found), 1);
    let most =
        include_str!("recorded/budget_reached.jsonl").replace("\"dumps_max\": 8", "\"dumps_max\": 4096");
    check(&recorded(&most), "too_many", Stage::Dumps, Sureness::Certain, 0, "a shorter --after");
}

#[test]
fn packets_that_the_card_counts_and_capture_never_sees_are_taken_by_another() {
    let found = recorded(include_str!("recorded/xdp_takes_all.jsonl"));
    check(&found, "idle", Stage::Nic, Sureness::Possible, 0, "bpftool");
}

#[test]
fn a_ring_that_dumps_hold_and_a_disk_that_takes_nothing_are_told_apart() {
    let with = |long_holds, disk_wait_s| {
        let mut facts = Facts { long_holds, disk_wait_s, ..Facts::default() };
        facts.dropped.insert("ring_pinned".into(), 4711);
        findings(&facts)
    };
    check(&with(0, 0.1), "ring_pinned", Stage::Ring, Sureness::Certain, 4711, "--ring");
    check(&with(1, 0.0), "dump_disk_slow", Stage::DumpDisk, Sureness::Likely, 4711, "faster disk");
    check(&with(0, 2.0), "dump_disk_slow", Stage::DumpDisk, Sureness::Likely, 4711, "faster disk");
}

#[test]
fn a_disk_that_is_nearly_full_is_told_before_it_is_full() {
    let with = |free_bytes| {
        findings(&Facts {
            disk: Some(Disk { free_bytes, bytes: 1 << 40, read_only: false }),
            ..Facts::default()
        })
    };
    check(&with(1 << 30), "disk_low", Stage::DumpDisk, Sureness::Certain, 0, "Move finished dumps");
    assert!(with(1 << 39).is_empty());
}

#[test]
fn of_nothing_nothing_is_found() {
    assert!(findings(&Facts::default()).is_empty());
}

#[test]
fn a_log_that_is_cut_changed_or_full_of_large_numbers_is_read_as_far_as_it_goes() {
    let whole = include_str!("recorded/ixgbe_missed.jsonl").to_string()
        + include_str!("recorded/budget_reached.jsonl");
    let look = |text: &str| log::parse(text).map_or(0, |facts| findings(&facts).len());
    for cut in (0..whole.len()).step_by(7) {
        look(&whole[..cut]);
    }
    for (from, to) in [
        ("120345", "18446744073709551615"),
        (": 9", ": 18446744073709551615"),
        (": 1", ": -1"),
        ("{", "["),
        ("\"", ""),
    ] {
        look(&whole.replace(from, to));
    }
    let twice = whole.replace("\"offered\": 9000000", "\"offered\": 18446744073709551615");
    assert!(look(&twice) > 0, "counts are bounded, not wrapped");
}

/// A log of one run: its first lines, and these.
fn log_of(lines: &[&str]) -> Vec<Finding> {
    let start =
        r#"{"event":"start","sources":["afpacket:a"],"ring_bytes":2147483648,"memory":"m","triggers":[{}]}"#;
    let machine =
        r#"{"event":"machine","pid":4711,"live":true,"dumps_max":8,"processors":4,"limits":{"file_size":1048576,"threads":64},
        "captures":[{"source":"afpacket:a","interface":"a","workers":1,"cpus":[2]}]}"#
            .replace('\n', "");
    let text: Vec<&str> = [start, &machine].into_iter().chain(lines.iter().copied()).collect();
    findings(&log::parse(&text.join("\n")).expect("a run"))
}

/// All kinds, but that the log just stops.
fn kinds(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| finding.kind).filter(|kind| *kind != "no_last_line").collect()
}

#[test]
fn a_loss_is_counted_once_and_its_cause_stands_before_what_follows_from_it() {
    let found = log_of(&[
        r#"{"event":"loss","seconds":1,"packets":{"kernel":50},"workers":[{"busy":0.99,"starved":0}]}"#,
        r#"{"event":"dump","id":1,"complete":false,"lost_min":0,"lost_max":900,
            "gaps":[{"reason":"kernel","lost_min":0,"lost_max":50},{"reason":"evicted","lost_min":10,"lost_max":850}]}"#
            .replace('\n', "")
            .as_str(),
        r#"{"event":"dump","id":2,"complete":false,"lost_min":0,"lost_max":50,"gaps":[{"reason":"kernel","lost_min":0,"lost_max":50}]}"#,
        r#"{"event":"dump","id":3,"complete":true,"lost_min":0,"lost_max":0,"gaps":[]}"#,
    ]);
    assert_eq!(kinds(&found), ["worker_busy", "dumps_incomplete", "dumps_lack"], "{found:#?}");
    check(&found, "worker_busy", Stage::Worker, Sureness::Certain, 50, "workers=2");
    assert_eq!(
        (found[1].lost_min, found[1].lost_max, found[1].sureness),
        (10, 850, Sureness::Certain),
        "what the ring lost alone"
    );
    assert_eq!((found[2].lost_max, &found[2].follows[..]), (0, &["worker_busy"][..]), "{found:#?}");
    assert!(found[2].cause.starts_with("2 of 3 dumps lack some of these packets (kernel)"), "{found:#?}");
}

#[test]
fn a_disk_that_stood_still_a_slow_one_a_slow_reader_and_a_small_ring_are_told_apart() {
    let dump = |id: u32, path: &str, waited: &str| {
        format!(
            r#"{{"event":"dump","id":{id},"complete":false,"path":{path},"error":null,"lost_min":7,"lost_max":9,"waited":{{{waited}}},
            "gaps":[{{"reason":"evicted","lost_min":7,"lost_max":9}}]}}"#
        )
        .replace('\n', "")
    };
    let check = |waited: &str, path: &str, kind: &str, stage: Stage, words: &str, remedy: &str| {
        let found = log_of(&[&dump(1, path, waited)]);
        assert_eq!(
            (kinds(&found), found[0].stage, found[0].lost_max),
            (vec![kind], stage, 9),
            "{waited}: {found:#?}"
        );
        assert!(
            found[0].cause.contains(words) && found[0].remedies[0].contains(remedy),
            "{waited}: {found:#?}"
        );
    };
    let (file, pipe) = (r#""/dumps/a.pcapng""#, "null");
    let still = r#""longest_s":8.0,"total_s":8.1,"pins_full_s":7.5,"closing_s":0.1"#;
    let slow = r#""longest_s":0.1,"total_s":6.0,"pins_full_s":9.0,"closing_s":0.1"#;
    check(still, file, "dump_disk_slow", Stage::DumpDisk, "the disk wrote nothing for 8.0 s", "faster disk");
    check(slow, file, "dump_disk_slow", Stage::DumpDisk, "too slow: writing took 6.0 s", "faster disk");
    check(still, pipe, "dump_reader_slow", Stage::Dumps, "the reader of the pipe read nothing", "mbuffer");
    // Overrun before it began, while it was closed, or because it got no processor: not by its disk.
    let ring = "the ring overwrote them";
    for quick in [
        r#""longest_s":0.01,"total_s":0.1,"pins_full_s":0.2,"closing_s":9.0"#,
        r#""longest_s":8.0,"total_s":8.0,"pins_full_s":0.0,"closing_s":0.0"#,
        r#""longest_s":0.1,"total_s":0.6,"pins_full_s":9.0,"closing_s":0.0"#,
    ] {
        check(quick, file, "dumps_incomplete", Stage::Ring, ring, "--ring 4GiB");
    }
    let both = log_of(&[
        &dump(1, file, still),
        &dump(2, file, r#""longest_s":0,"total_s":0,"pins_full_s":0,"closing_s":0"#),
    ]);
    assert_eq!(
        kinds(&both),
        ["dumps_incomplete", "dump_disk_slow"],
        "of two equal losses the certain one first: {both:#?}"
    );
    let older = r#"{"event":"dump","id":1,"path":"/dumps/a.pcapng","complete":false,"lost_min":7,"lost_max":9,"gaps":[{"reason":"evicted","lost_min":7,"lost_max":9}]}"#;
    assert_eq!(kinds(&log_of(&[older])), ["dumps_incomplete"]);
    assert_eq!(
        kinds(&log_of(&[r#"{"event":"long_hold","dump":1,"segments":3}"#, older])),
        ["dump_disk_slow"]
    );
}

#[test]
fn what_the_kernels_queue_dropped_is_not_told_again_as_dropped_by_the_card() {
    let counted =
        include_str!("recorded/backlog_full.jsonl").replace("\"rx_dropped\": 0", "\"rx_dropped\": 5150");
    let found = recorded(&counted.replace("\"offered\": 9000000", "\"offered\": 8994850"));
    check(&found, "backlog", Stage::KernelQueue, Sureness::Likely, 5150, "netdev_max_backlog");
    assert_eq!((losses(&found), kinds(&found).contains(&"rx_dropped")), (1, false), "{found:#?}");
}

#[test]
fn a_worker_on_a_processor_of_its_own_is_not_told_to_take_one() {
    let facts = |cpus: &[u64], kernel: KernelLosses| Facts {
        captures: vec![Capture { workers: 1, cpus: cpus.to_vec(), ..Capture::default() }],
        dropped: [("kernel".to_string(), 9)].into(),
        busy_max: 0.99,
        processors: 2,
        kernel,
        ..Facts::default()
    };
    let remedies = |facts: &Facts| findings(facts)[0].remedies.join(" ");
    let starved = KernelLosses { starved: 9, ..KernelLosses::default() };
    let pinned = remedies(&facts(&[2], starved));
    assert!(
        pinned.contains("isolcpus=2") && pinned.contains("omit cpus=") && !pinned.contains("of its own"),
        "{pinned}"
    );
    assert!(remedies(&facts(&[], starved)).contains("Give each worker a processor of its own: cpus="));
    let busy = KernelLosses { busy: 9, ..KernelLosses::default() };
    let (pinned, free) = (remedies(&facts(&[2], busy)), remedies(&facts(&[], busy)));
    assert!(pinned.contains("workers=2 and cpus= with 2 processors"), "{pinned}");
    assert!(free.contains("workers=2 in the source") && !free.contains("cpus="), "{free}");
    let crowded = remedies(&Facts { processors: 1, ..facts(&[2], busy) });
    assert!(crowded.contains("More workers don't help here") && !crowded.contains("workers=2"), "{crowded}");
}

#[test]
fn a_control_group_without_time_is_told_from_its_own_figures() {
    let found = log_of(&[
        r#"{"event":"loss","seconds":1,"packets":{"kernel":70},"throttled_s":0.6,"workers":[{"busy":0.4,"starved":0.5}]}"#,
        r#"{"event":"status","dropped":{"kernel":70},"cgroup":{"throttled_periods":40,"throttled_s":12.5}}"#,
        r#"{"event":"end","dropped":{"kernel":70},"failures":[]}"#,
    ]);
    check(&found, "worker_throttled", Stage::Worker, Sureness::Certain, 70, "CPUQuota=");
    assert!(found[0].cause.contains("(40 times in all, 12.5 s)"), "{found:#?}");
    let harmless = log_of(&[
        r#"{"event":"status","cgroup":{"throttled_periods":3,"throttled_s":0.1}}"#,
        r#"{"event":"end","failures":[]}"#,
    ]);
    assert_eq!((kinds(&harmless), losses(&harmless)), (vec!["throttled"], 0));
}

#[test]
fn a_process_that_a_signal_had_stopped_is_told_as_that() {
    let loss = r#"{"event":"loss","seconds":9.5,"packets":{"kernel":70},"workers":[]}"#;
    let found = log_of(&[r#"{"event":"resumed","seconds":9.5}"#, loss]);
    check(&found, "process_stalled", Stage::KernelRing, Sureness::Certain, 70, "SIGSTOP");
    check(&log_of(&[loss]), "process_stalled", Stage::KernelRing, Sureness::Likely, 70, "what stops it");
}

#[test]
fn limits_of_the_process_and_disks_that_take_nothing_are_told_apart() {
    let with = |error: &str| {
        let line = format!(
            r#"{{"event":"dump","id":1,"complete":false,"lost_min":4,"lost_max":4,"gaps":[],"error":"{error}"}}"#
        );
        log_of(&[&line])
    };
    let check = |error: &str, kind: &str, words: &str, remedy: &str| {
        let found = with(error);
        assert_eq!(
            (kinds(&found), found[0].lost_max, found[0].sureness),
            (vec![kind], 4, Sureness::Certain),
            "{found:#?}"
        );
        assert!(found[0].cause.contains(words) && found[0].remedies.join(" ").contains(remedy), "{found:#?}");
    };
    check("No space left on device (os error 28)", "dump_disk_full", "disk was full", "--dump-budget");
    check("Read-only file system (os error 30)", "dump_disk_read_only", "read-only", "dmesg");
    check(
        "File too large (os error 27)",
        "file_size_limit",
        "its limit: 1048576 bytes",
        "LimitFSIZE=infinity",
    );
    check("Too many open files (os error 24)", "open_files_limit", "files open", "LimitNOFILE=");
    let no_thread = "no thread for the dump: Resource temporarily unavailable (os error 11)";
    check(no_thread, "threads_limit", "its limit: 64", "TasksMax=");
    check("Input/output error (os error 5)", "dump_failed", "os error 5", "does its disk work");
    let failure = r#"{"event":"end","failures":["no thread for worker 1: Resource temporarily unavailable (os error 11)"]}"#;
    let found = log_of(&[failure]);
    assert_eq!((kinds(&found), losses(&found)), (vec!["threads_limit"], 1), "{found:#?}");
}

#[test]
fn a_window_that_the_run_or_a_file_ended_is_no_loss() {
    for reason in ["stopped", "not_started", "capture_begin", "capture_end", "not_recorded"] {
        let line = format!(
            r#"{{"event":"dump","id":1,"complete":false,"lost_min":0,"lost_max":0,"gaps":[{{"reason":"{reason}","lost_min":0,"lost_max":0}}]}}"#
        );
        let found = log_of(&[&line]);
        assert_eq!((kinds(&found), losses(&found)), (vec!["dumps_shorter"], 0), "{reason}: {found:#?}");
    }
}

#[test]
fn what_the_store_no_longer_had_for_a_dump_is_a_finding_with_what_helps() {
    for (reason, kind, remedy) in [
        ("deleted", "dumps_deleted", "--store-budget"),
        ("not_stored", "dumps_not_stored", "store_missed"),
        ("left_out", "dumps_left_out", "--store-filter"),
    ] {
        let line = format!(
            r#"{{"event":"dump","id":1,"complete":false,"lost_min":2,"lost_max":2,"gaps":[{{"reason":"{reason}","lost_min":2,"lost_max":2}}]}}"#
        );
        let found = log_of(&[&line]);
        check(&found, kind, Stage::Dumps, Sureness::Certain, 2, remedy);
        assert_eq!((kinds(&found), found[0].lost_max), (vec![kind], 2), "{found:#?}");
    }
}

#[test]
fn the_totals_of_the_logs_end_hold_where_its_lines_tell_less() {
    let dump = r#"{"event":"dump","id":7,"complete":false,"lost_min":5,"lost_max":5,"gaps":[{"reason":"evicted","lost_min":5,"lost_max":5}]}"#;
    let end = r#"{"event":"end","dump_totals":{"dumps":12000,"incomplete":3,"failed":1},"failures":[]}"#;
    let found = log_of(&[dump, end]);
    check(&found, "dumps_incomplete", Stage::Ring, Sureness::Certain, 5, "--ring 4GiB");
    assert!(found[0].cause.contains("of 12000"), "{found:#?}");
    check(&found, "dumps_untold", Stage::Dumps, Sureness::Certain, 0, "doctor --log");
    assert!(
        found[1].cause.contains("counts 3 of 12000 dumps") && found[1].cause.contains("for 2 of them"),
        "{found:#?}"
    );
}

#[test]
fn every_remedy_is_a_sentence() {
    let logs = [
        include_str!("recorded/ixgbe_missed.jsonl"),
        include_str!("recorded/mlx5_out_of_buffer.jsonl"),
        include_str!("recorded/e1000e_dropped.jsonl"),
        include_str!("recorded/optics_damaged.jsonl"),
        include_str!("recorded/backlog_full_of_two.jsonl"),
        include_str!("recorded/swapped.jsonl"),
        include_str!("recorded/bounds.jsonl"),
        include_str!("recorded/budget_reached.jsonl"),
        include_str!("recorded/xdp_takes_all.jsonl"),
    ];
    let mut seen = 0;
    for finding in logs.into_iter().flat_map(recorded) {
        for remedy in &finding.remedies {
            seen += 1;
            let words = remedy.split(' ').count();
            assert!(
                remedy.starts_with(|c: char| c.is_uppercase()) && words > 3,
                "{}: {remedy}",
                finding.kind
            );
            assert!(remedy.ends_with('.') || remedy.contains(": "), "a sentence, or one command: {remedy}");
        }
    }
    assert!(seen > 15, "{seen}");
}
