//! Prefilters of sources that need no privileges: what is recorded, what is counted, and what is told of a
//! run's settings.

mod run;

use run::{LIMIT, Place, Started, wait_until};
use scope_testkit::oracle::{self, VlanRule, difference, tcpdump_selects};
use scope_testkit::traffic::Conversations;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn only_what_a_prefilter_takes_is_recorded_and_the_rest_is_counted() {
    let capture = Conversations { vlan: 30, ..Conversations::default() }.capture();
    let check = |prefilter: &str, flags: &[&str], rule| {
        let place = Place::new();
        let (source, ring) = (place.source(&capture), place.path("ring.pcapng"));
        let mut arguments =
            vec!["--source", &source, "--prefilter", prefilter, "--trigger", "all=", "--dump", ""];
        arguments.extend(flags);
        arguments.extend(["--ring-out", ring.to_str().unwrap()]);
        let summary = place.summary(&arguments);
        summary.assert_adds_up();
        let expected = tcpdump_selects(&capture, prefilter, rule).expect("tcpdump");
        let found = oracle::read(&ring).unwrap().capture;
        assert_eq!(difference(&capture.subset(&expected), &found), None, "{prefilter}");
        let bytes = |packets: &[scope_testkit::traffic::Record]| {
            packets.iter().map(|packet| packet.data.len() as u64).sum::<u64>()
        };
        let left_out = (capture.packets.len() - expected.len()) as u64;
        assert_eq!((summary.filtered.packets, summary.stored.packets), (left_out, expected.len() as u64));
        assert_eq!(summary.filtered.bytes, bytes(&capture.packets) - bytes(&found.packets));
        // A packet that isn't recorded fires nothing.
        assert_eq!(summary.hits["all"].sum(), expected.len() as u64);
        assert!(left_out > 0 && !expected.is_empty(), "the filter '{prefilter}' tells packets apart");
    };
    check("udp", &[], VlanRule::Transparent);
    check("not tcp and not ip6", &["--filter-engine", "interpreter"], VlanRule::Transparent);
    check("tcp", &["--vlan", "exact"], VlanRule::Exact);
    check("vlan and udp", &[], VlanRule::Transparent);
}

#[test]
fn generated_traffic_is_prefiltered_too_and_a_source_s_own_filter_comes_first() {
    let place = Place::new();
    let summary = place.summary(&[
        "--prefilter",
        "ip6",
        "--source",
        "synth:packets=1000,rate=10k,prefilter=udp port 60000",
        "--source",
        "synth:packets=1000,rate=10k,ipv6=50%,flows=10",
    ]);
    summary.assert_adds_up();
    assert_eq!(summary.received.packets, 2000);
    assert!((1000..2000).contains(&summary.filtered.packets), "{summary:?}");
}

#[test]
fn a_loss_before_a_packet_that_is_left_out_is_told_before_the_next_one() {
    let mut capture = Conversations { packets: 60, ..Conversations::default() }.capture();
    let taken = tcpdump_selects(&capture, "udp", VlanRule::Transparent).expect("tcpdump");
    // Before each packet that is left out, some were lost.
    let left_out: Vec<usize> = (0..capture.packets.len()).filter(|at| !taken.contains(at)).collect();
    left_out.iter().for_each(|&at| capture.packets[at].lost_before = 1 + at as u64);
    let place = Place::new();
    let (source, ring) = (place.source(&capture), place.path("ring.pcapng"));
    place
        .summary(&["--source", &source, "--prefilter", "udp", "--ring-out", ring.to_str().unwrap()])
        .assert_adds_up();
    let mut last = None;
    let expected: Vec<u64> = taken
        .iter()
        .map(|&at| {
            let since = last.replace(at).map_or(0, |last| last + 1);
            capture.packets[since..at].iter().map(|packet| packet.lost_before).sum()
        })
        .collect();
    let found: Vec<u64> =
        oracle::read(&ring).unwrap().capture.packets.iter().map(|packet| packet.lost_before).collect();
    assert_eq!(found, expected);
    assert!(expected.iter().any(|&lost| lost > 0));
}

/// CPUs of the thread `name` of a process, as the system lists them.
fn cpus_of(process: u32, name: &str) -> Option<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let is = |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let task = tasks.flatten().map(|task| task.path()).find(|path| is(path))?;
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_string())
}

/// The CPUs that this process may use, as the system lists them.
fn allowed() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_string()
}

#[test]
fn a_cpu_that_the_process_may_not_use_is_refused_with_those_that_it_may() {
    let (allowed, place) = (allowed(), Place::new());
    let numbers: Vec<&str> = allowed.split(|c: char| !c.is_ascii_digit()).collect();
    let (first, other) = (numbers[0], numbers[1..].last().copied().unwrap_or("1023"));
    let run = place.command(&["--source", &format!("synth:cpus={first}-{other}")]);
    let mut bound = Command::new("taskset");
    bound.args(["-c", first]).arg(run.get_program()).args(run.get_args());
    let done = Started::new(bound).finish(LIMIT);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(
        done.stderr.contains("'cpus'") && done.stderr.contains(&format!("there are: {first}\n")),
        "{}",
        done.stderr
    );
}

#[test]
fn workers_are_pinned_in_turn_and_the_start_says_so() {
    let allowed = allowed();
    let last = allowed.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
    let place = Place::new();
    let pinned = format!("synth:rate=1k,workers=2,cpus={last}");
    let started =
        Started::new(place.command(&["-v", "--source", &pinned, "--source", "synth:rate=1k,numa=0"]));
    wait_until("pinned workers", || {
        let of = |name| cpus_of(started.id(), name);
        [of("worker-0"), of("worker-1")].iter().all(|cpus| cpus.as_deref() == Some(last))
            && of("worker-2").as_ref() == Some(&allowed)
    });
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let told = format!("source '{pinned}': workers pinned to CPUs {last}");
    assert!(done.stderr.contains(&told), "no '{told}' in {}", done.stderr);
    let log = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap();
    let start: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert!(start["capture"][0].as_str().is_some_and(|line| line.contains(&told)), "{start}");
}
