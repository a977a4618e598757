//! Runs whose interfaces come and go: the run goes on, the log tells, the summary has each interface's books.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, assert_nothing_lost, counted, hit_frame, inside, mixed_frames, now_ns, stop};
use run::{Done, Started, wait_until};
use scope_testkit::lab::RawSender;
use scope_testkit::traffic::ETHERNET;
use scope_testkit::traffic::frame::{self, Tag};
use serde_json::Value;
use std::time::Duration;

/// What the event log tells of `interface`, in its order.
fn events(live: &Live, interface: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(live.place.out().join("wirescope.jsonl")).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["event"] == "interface" && event["interface"] == interface).collect()
}

/// How many gaps for this reason the only dump has.
fn summary_gaps(done: &Done, reason: &str) -> usize {
    done.summary().only_dump().gaps_of(reason).len()
}

fn states(live: &Live, interface: &str) -> Vec<String> {
    events(live, interface).iter().map(|event| event["state"].as_str().unwrap().to_string()).collect()
}

fn wait_for_state(live: &Live, interface: &str, state: &str, times: usize) {
    wait_until(&format!("{interface} {state}"), || {
        states(live, interface).iter().filter(|told| *told == state).count() >= times
    });
}

/// Name, offered, received and kernel-dropped packets of each interface in the summary; nothing waits.
fn books(done: &Done) -> Vec<(String, u64, u64, u64)> {
    let summary: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let interfaces = summary["interfaces"].as_array().expect("an array 'interfaces'");
    let number = |entry: &Value, key: &str| entry[key].as_u64().expect("a number");
    interfaces
        .iter()
        .map(|entry| {
            assert_eq!(number(entry, "waiting"), 0);
            let name = entry["interface"].as_str().unwrap().to_string();
            (name, number(entry, "offered"), number(entry, "received"), number(entry, "kernel_dropped"))
        })
        .collect()
}

/// Makes `vb` (and `va`, its other end) again after they were removed.
fn make_again(live: &Live) {
    let lab = &live.lab;
    lab.b()
        .ip(&[
            "link",
            "add",
            "vb",
            "arp",
            "off",
            "type",
            "veth",
            "peer",
            "name",
            "va",
            "netns",
            lab.a().name(),
        ])
        .unwrap();
}

fn take_up(live: &Live) {
    live.lab.a().ip(&["link", "set", "va", "arp", "off", "up"]).unwrap();
    live.lab.b().ip(&["link", "set", "vb", "up"]).unwrap();
    live.wait_for_link();
}

#[test]
fn a_run_goes_on_when_its_only_interface_is_removed_and_made_again() {
    for source in ["afpacket:vb", "afpacket:vb,workers=2", "afpacket:v*,workers=0"] {
        let Some(live) = Live::or_skip() else { return };
        let orders =
            ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--before", "60s", "--after", "200ms"];
        let started = live.start(&[&["--source", source], &orders[..]].concat());
        let lives: Vec<_> = (0..4).map(|seed| mixed_frames(seed, 500)).collect();
        live.sender().send(&lives[0]).unwrap();
        for (round, frames) in lives[1..].iter().enumerate() {
            live.lab.b().ip(&["link", "del", "vb"]).unwrap();
            wait_for_state(&live, "vb", "gone", round + 1);
            std::thread::sleep(Duration::from_millis(100));
            make_again(&live);
            wait_for_state(&live, "vb", "back", round + 1);
            take_up(&live);
            live.sender().send(frames).unwrap();
        }
        live.sender().send(&[hit_frame(&[])]).unwrap();
        live.wait_for_dumps(1);
        let done = stop(started);
        let sent = [lives.concat(), vec![hit_frame(&[])]].concat();
        assert_nothing_lost(&done.summary(), sent.len());
        assert_eq!(books(&done), [("vb".to_string(), sent.len() as u64, sent.len() as u64, 0)]);
        // While it was away nothing could come. A worker that comes back late, after the next removal, makes one gap
        // of two.
        let away = summary_gaps(&done, "interface_gone");
        let least = if source == "afpacket:vb" { 3 } else { 1 };
        assert!((least..=3).contains(&away), "{away}: {}", done.stdout);
        // All its lives are one interface of the dump.
        let found = live.check_only_dump(&done.summary(), "ip or ip6", &hit_frame(&[]));
        assert_eq!(
            found.interfaces.iter().map(|interface| &interface.name[..]).collect::<Vec<_>>(),
            vec!["vb"; found.interfaces.len()]
        );
        assert!(counted(found.packets.iter().map(|packet| &packet.data)) == counted(&sent));
        assert!(
            done.stderr.contains("interface vb was removed") && done.stderr.contains("interface vb is back"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn an_interface_that_no_socket_is_left_for_is_a_failure_told_once() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.another_link().unwrap();
    let started = live.start(&["--source", "afpacket:vb*,workers=2,spare=0"]);
    live.lab.b().ip(&["link", "del", "vb"]).unwrap();
    wait_for_state(&live, "vb", "gone", 1);
    std::thread::sleep(Duration::from_millis(300)); // what the rings held is taken
    make_again(&live);
    wait_for_state(&live, "vb", "refused", 1);
    std::thread::sleep(Duration::from_millis(100)); // both workers have met it
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let failures = summary["failures"].as_array().unwrap();
    assert_eq!((done.code(), failures.len()), (Some(1), 1), "{failures:?}");
    let failure = failures[0].as_str().unwrap();
    assert!(failure.contains("interface vb is not captured") && failure.contains("spare="), "{failure}");
    assert_eq!(
        states(&live, "vb").iter().filter(|state| *state == "refused").count(),
        1,
        "one event, not one for each worker"
    );
    let doctor = run::finish(run::wirescope(&["doctor", "--out", live.place.out().to_str().unwrap()]));
    assert!(
        doctor.stdout.contains("interface vb is not captured") && !doctor.stdout.contains("Nothing is lost"),
        "{}",
        doctor.stdout
    );
}

#[test]
fn an_interface_that_comes_back_down_is_told_of_in_one_line() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "afpacket:vb"]);
    live.lab.b().ip(&["link", "del", "vb"]).unwrap();
    wait_for_state(&live, "vb", "gone", 1);
    make_again(&live);
    wait_for_state(&live, "vb", "back", 1);
    take_up(&live);
    wait_for_state(&live, "vb", "up", 1);
    let done = stop(started);
    let told: Vec<_> = states(&live, "vb").into_iter().filter(|state| state != "down").collect();
    assert_eq!(told, ["gone", "back", "up"]);
    assert!(done.stderr.contains("is back: captured again; it is down so far"), "{}", done.stderr);
    assert!(!done.stderr.contains("is down; waiting for it"), "{}", done.stderr);
}

#[test]
fn every_change_of_an_interface_is_an_event() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "afpacket:vb"]);
    let change = |arguments: &[&str], state: &str| {
        live.lab.b().ip(&[&["link", "set", "vb"], arguments].concat()).unwrap();
        wait_for_state(&live, "vb", state, 1);
    };
    change(&["down"], "down");
    change(&["up"], "up");
    change(&["mtu", "9000"], "mtu");
    live.lab.b().ip(&["link", "set", "vb", "down"]).unwrap();
    wait_for_state(&live, "vb", "down", 2);
    change(&["name", "vc"], "renamed");
    let done = stop(started);
    assert_eq!(states(&live, "vb"), ["down", "up", "mtu", "down", "renamed"]);
    let renamed = events(&live, "vb").pop().unwrap();
    assert_eq!((&renamed["from"], &renamed["to"]), (&"vb".into(), &"vc".into()), "{renamed}");
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let [entry] = &summary["interfaces"].as_array().unwrap()[..] else { panic!("{summary}") };
    assert_eq!((&entry["interface"], &entry["called"]), (&"vb".into(), &"vc".into()));
    for words in ["vb went down", "vb is up again", "vb has an MTU of 9000 bytes now", "vb is called vc now"]
    {
        assert!(done.stderr.contains(words) && done.stdout.contains(words), "{words}: {}", done.stderr);
    }
}

#[test]
fn one_worker_serves_all_that_match_and_every_packet_has_its_interface() {
    let Some(live) = Live::or_skip() else { return };
    let lab = &live.lab;
    lab.another_link().unwrap();
    let sources = [
        "--source",
        "afpacket:vb,workers=0",
        "--source",
        "afpacket:vb?,workers=0",
        "--source",
        "afpacket:vb1*,workers=0,share=30%",
    ];
    // A question mark is no pattern.
    let refused = Started::new(inside(lab.b(), &live.place.command(&sources))).finish(run::LIMIT);
    assert_eq!(
        (refused.code(), refused.stderr.contains("no interface 'vb?'")),
        (Some(2), true),
        "{}",
        refused.stderr
    );
    let started = live.start(&[&sources[..2], &sources[4..]].concat());
    assert!(states(&live, "vb").is_empty());
    // One that matches comes later.
    lab.a()
        .ip(&[
            "link",
            "add",
            "va12",
            "arp",
            "off",
            "type",
            "veth",
            "peer",
            "name",
            "vb12",
            "netns",
            lab.b().name(),
        ])
        .unwrap();
    wait_for_state(&live, "vb12", "new", 1);
    lab.a().ip(&["link", "set", "va12", "up"]).unwrap();
    lab.b().ip(&["link", "set", "vb12", "arp", "off", "up"]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let ends = [("va", "vb"), ("va1", "vb1"), ("va12", "vb12")];
    let sent: Vec<_> = (0..3).map(|seed| mixed_frames(seed, 400 + 100 * seed as usize)).collect();
    for ((end, _), frames) in ends.iter().zip(&sent) {
        RawSender::open(lab.a(), end).unwrap().send(frames).unwrap();
    }
    let done = stop(started);
    assert_nothing_lost(&done.summary(), 1500);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(summary["sources"].as_array().unwrap().len(), 1, "one worker");
    assert_eq!(
        books(&done),
        [400, 500, 600]
            .iter()
            .zip(ends)
            .map(|(&count, (_, name))| (name.to_string(), count, count, 0))
            .collect::<Vec<_>>()
    );
    let ring = live.ring();
    for ((_, name), frames) in ends.iter().zip(&sent) {
        let of_it = ring.packets.iter().filter(|packet| ring.interfaces[packet.interface].name == *name);
        assert!(counted(of_it.map(|packet| &packet.data)) == counted(frames), "{name}");
    }
}

/// A frame of each kind: UDP, TCP, the ssh session 10.0.0.9:50000 -> 10.0.0.1:22, and neither; with these
/// tags.
fn four_kinds(tags: &[Tag]) -> [Vec<u8>; 4] {
    let tcp = |from: &str, to: &str| frame::tcp(from.parse().unwrap(), to.parse().unwrap(), 1, 24, b"typed");
    let udp = frame::udp("10.0.0.9:50000".parse().unwrap(), "10.0.0.1:53".parse().unwrap(), b"asked");
    let on_link = |ip: &[u8]| frame::on_link(ETHERNET, tags, ip);
    [
        on_link(&udp),
        on_link(&tcp("10.0.0.9:50000", "10.0.0.1:80")),
        on_link(&tcp("10.0.0.9:50000", "10.0.0.1:22")),
        frame::ethernet(tags, frame::EXPERIMENT, &[7; 100]),
    ]
}

/// Bytes of each ring that the process shares with the kernel.
fn kernel_rings(process: u32) -> Vec<usize> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let rings = maps.lines().filter(|line| line.contains("socket:"));
    let place = |text: &str| usize::from_str_radix(text, 16).unwrap();
    rings
        .filter_map(|line| line.split(' ').next()?.split_once('-'))
        .map(|(from, to)| place(to) - place(from))
        .collect()
}

#[test]
fn what_an_interface_is_told_holds_again_when_it_comes_back_after_rights_are_given_up() {
    const EACH: usize = 50;
    for source in ["afpacket:vb", "afpacket:vb,workers=2", "afpacket:v*,workers=0"] {
        let Some(live) = Live::or_skip() else { return };
        let source = format!("{source},exclude-self=on,prefilter=tcp or udp,block=64KiB,blocks=16");
        let ring = live.ring_path();
        let command = live.place.command(&["--source", &source, "--ring-out", ring.to_str().unwrap()]);
        let mut command = inside(live.lab.b(), &command);
        command.env("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.1 22");
        let started = Started::new(command);
        let log = live.place.out().join("wirescope.jsonl");
        wait_until("the log's first line", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
        });
        let frames: Vec<_> = four_kinds(&[]).iter().cycle().take(4 * EACH).cloned().collect();
        live.sender().send(&frames).unwrap();
        for round in 1..3 {
            live.lab.b().ip(&["link", "del", "vb"]).unwrap();
            wait_for_state(&live, "vb", "gone", round);
            std::thread::sleep(Duration::from_millis(100));
            make_again(&live);
            wait_for_state(&live, "vb", "back", round);
            take_up(&live);
            live.sender().send(&frames).unwrap();
        }
        let rings = kernel_rings(started.id());
        assert!(
            !rings.is_empty() && rings.iter().all(|&bytes| bytes == 16 * (64 << 10)),
            "{source}: {rings:?}"
        );
        let done = stop(started);
        // The kernel turned away the others each time: they are counted nowhere.
        let expected = (3 * 2 * EACH) as u64;
        assert_eq!(books(&done), [("vb".to_string(), expected, expected, 0)], "{source}");
        assert_nothing_lost(&done.summary(), expected as usize);
        let kept: Vec<_> = four_kinds(&[])[..2].iter().cycle().take(3 * 2 * EACH).cloned().collect();
        assert!(counted(live.ring().packets.iter().map(|packet| &packet.data)) == counted(&kept), "{source}");
        let said = "; prefilter: in the kernel";
        assert!(
            done.stderr.lines().any(|line| line.contains("vb is back") && line.contains(said)),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn interfaces_that_share_a_worker_have_each_its_own_prefilter() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.another_link().unwrap();
    let sources = ["afpacket:vb,workers=0,prefilter=udp", "afpacket:vb1,workers=0,prefilter=tcp"];
    let started = live.start(&["--source", sources[0], "--source", sources[1]]);
    // The worker is asked of frames with tags.
    let kinds = four_kinds(&[Tag::q(5)]);
    for end in ["va", "va1"] {
        RawSender::open(live.lab.a(), end).unwrap().send(&kinds).unwrap();
    }
    let done = stop(started);
    let (summary, ring) = (done.summary(), live.ring());
    summary.assert_adds_up();
    assert_eq!((summary.received.packets, summary.filtered.packets), (8, 5), "{}", done.stdout);
    for (name, kept) in [("vb", &kinds[..1]), ("vb1", &kinds[1..3])] {
        let of_it = ring.packets.iter().filter(|packet| ring.interfaces[packet.interface].name == name);
        assert!(counted(of_it.map(|packet| &packet.data)) == counted(kept), "{name}");
    }
}

/// Sets the link of `vb`, and waits until the run tells of it. The times between which it was set.
fn set_link(live: &Live, up: bool) -> (i64, i64) {
    let from_ns = now_ns();
    live.lab.b().ip(&["link", "set", "vb", if up { "up" } else { "down" }]).unwrap();
    let to_ns = now_ns();
    wait_for_state(live, "vb", if up { "up" } else { "down" }, 1);
    (from_ns, to_ns)
}

#[test]
fn a_dump_states_in_which_span_the_link_was_down_also_while_it_still_is() {
    for source in ["afpacket:vb", "afpacket:vb,workers=2", "pcap:vb"] {
        let Some(live) = Live::or_skip() else { return };
        let orders =
            ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--before", "1m", "--after", "200ms"];
        let started = live.start(&[&["--source", source], &orders[..]].concat());
        let frames = mixed_frames(7, 200);
        std::thread::sleep(Duration::from_millis(200));
        let (down_ns, down_by_ns) = set_link(&live, false);
        std::thread::sleep(Duration::from_millis(500));
        started.signal(libc::SIGUSR1);
        live.wait_for_dumps(1);
        let (up_ns, _) = set_link(&live, true);
        live.wait_for_link();
        live.sender().send(&frames).unwrap();
        live.sender().send(&[hit_frame(&[])]).unwrap();
        live.wait_for_dumps(2);
        let done = stop(started);
        assert_eq!(done.code(), Some(0), "a link that is down is no failure: {}", done.stderr);
        let summary = done.summary();
        assert_nothing_lost(&summary, frames.len() + 1);
        let dumps: Vec<_> = ["manual", "hit"]
            .map(|name| summary.dumps.iter().find(|dump| dump.trigger == name).unwrap())
            .into();
        for (dump, end_ns) in dumps.iter().zip([i64::MAX, up_ns]) {
            let down = dump.gaps_of("interface_down");
            assert!(!dump.complete && dump.lost_nothing() && down.len() == 1, "{source}: {dump:?}");
            let gap = down[0];
            assert_eq!((gap.lost_min, gap.lost_max), (0, None));
            // From before it went down to after it came up, or to the window's end where it was down there.
            assert!(
                gap.from_ns <= down_by_ns.max(dump.asked.0) && gap.from_ns > down_ns - 60_000_000_000,
                "{source}: {dump:?}, {down_ns}"
            );
            assert!(
                gap.to_ns >= end_ns.min(dump.asked.1) && gap.to_ns < end_ns.saturating_add(60_000_000_000),
                "{source}: {dump:?}"
            );
            let head = std::fs::read(&dump.path).unwrap();
            assert!(String::from_utf8_lossy(&head[..4096]).contains(" interface_down"), "{source}");
        }
        assert_eq!(
            dumps[0].gaps_of("interface_down")[0].to_ns,
            dumps[0].asked.1,
            "{source}: it was down at its end"
        );
        assert!(done.stderr.contains("interface_down"), "{}", done.stderr);
    }
}

#[test]
fn a_window_before_the_run_listened_or_behind_its_end_is_not_complete_and_no_failure() {
    let Some(live) = Live::or_skip() else { return };
    let orders = ["--trigger", "hit=udp port 60000", "--before", "1h", "--after", "1h"];
    let begun_ns = now_ns();
    let started = live.start(&[&["--source", "afpacket:vb"], &orders[..]].concat());
    let begun = begun_ns..now_ns();
    live.sender().send(&[hit_frame(&[])]).unwrap();
    wait_until("the hit", || {
        std::fs::read_to_string(live.place.out().join("wirescope.jsonl")).unwrap().contains("\"status\"")
    });
    std::thread::sleep(Duration::from_millis(300));
    let stopped_ns = now_ns();
    let done = stop(started);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    let dump = summary.only_dump();
    assert!(!dump.complete && dump.lost_nothing(), "{dump:?}");
    assert_eq!(dump.asked, (dump.time_ns - 3600 * 1_000_000_000, dump.time_ns + 3600 * 1_000_000_000));
    let [before, behind] = &dump.gaps[..] else { panic!("{dump:?}") };
    assert_eq!((before.reason.as_str(), behind.reason.as_str()), ("not_started", "stopped"), "{dump:?}");
    assert_eq!((before.from_ns, behind.to_ns), dump.asked);
    assert!(
        begun.contains(&before.to_ns) && behind.from_ns >= stopped_ns,
        "{dump:?}, {begun:?}, {stopped_ns}"
    );
    assert_eq!((dump.from_ns, dump.to_ns), (before.to_ns + 1, behind.from_ns - 1), "what it has");
}
