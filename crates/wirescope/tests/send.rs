//! `wirescope send` between two network namespaces: what comes out at the other end is what stands in the file, and
//! what doesn't is counted under its reason.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::receiver::{PCAP_HEAD, Receiver};
use live_lab::{Live, inside};
use run::{Done, LIMIT, NOBODY, Started, finish, wait_until, wirescope, with_enough_time};
use scope_testkit::oracle;
use scope_testkit::traffic::frame::{on_link, udp};
use scope_testkit::traffic::{
    Capture, Conversations, ETHERNET, Interface, Precision, RAW, Record, pcap, pcapng,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// 2026-01-01.
const START_NS: i64 = 1_767_225_600_000_000_000;
const HOUR_NS: i64 = 3_600_000_000_000;

/// What arrives at `vb` from now on.
fn receiver(live: &Live) -> Receiver {
    Receiver::begin(live, live.lab.b(), "vb")
}

/// The command in the sending namespace.
fn command(live: &Live, arguments: &[&str]) -> Command {
    let mut all = vec!["send", "--summary", "json", "--to", "va"];
    all.extend(arguments);
    inside(live.lab.a(), &wirescope(&all))
}

fn send(live: &Live, arguments: &[&str]) -> Done {
    finish(command(live, arguments))
}

/// The summary, whose figures add up.
fn summary(done: &Done) -> Value {
    let summary: Value = serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", done.stdout, done.stderr));
    let refused: u64 = summary["refused"].as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum();
    assert_eq!(summary["read"].as_u64().unwrap(), summary["sent"].as_u64().unwrap() + refused, "{summary}");
    summary
}

fn datas(packets: &[Record]) -> Vec<&[u8]> {
    packets.iter().map(|packet| &packet.data[..]).collect()
}

fn bytes_of(packets: &[Record]) -> usize {
    packets.iter().map(|packet| packet.data.len()).sum()
}

/// A UDP packet from a port of one host to one of another, with a number in it.
fn numbered(from: u16, to: u16, number: u32) -> Vec<u8> {
    let (a, b) = (([10, 0, 0, 1], from).into(), ([10, 0, 0, 2], to).into());
    on_link(ETHERNET, &[], &udp(a, b, &number.to_be_bytes()))
}

/// Packets so far apart, ns.
fn spaced(count: u32, gap_ns: i64) -> Capture {
    let mut capture = Capture::ethernet("left");
    let at = |number: u32| START_NS + i64::from(number) * gap_ns;
    capture.packets = (0..count).map(|number| Record::new(at(number), numbered(1, 2, number))).collect();
    capture
}

#[test]
fn a_file_goes_out_byte_for_byte_in_its_order_as_often_as_is_asked_for() {
    let Some(live) = Live::or_skip() else { return };
    let conversations =
        Conversations { packets: 3000, vlan: 20, snapped: 0, payload_max: 1400, ..Conversations::default() };
    let capture = conversations.capture();
    let nano = live.place.source(&capture);
    let mut old = capture.clone();
    old.packets.iter_mut().for_each(|packet| packet.interface = 0);
    let micro = live.place.source_of("in.pcap", &pcap(&old, Precision::Micro, true));
    for (source, loops) in [(&nano, 1), (&micro, 3)] {
        let receiver = receiver(&live);
        let done = send(&live, &["--source", source, "--loops", &loops.to_string()]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let said = summary(&done);
        let (packets, bytes) = (3000 * loops, bytes_of(&capture.packets) * loops);
        assert_eq!((&said["sent"], &said["bytes"]), (&packets.into(), &bytes.into()), "{said}");
        assert_eq!((&said["queues"], &said["loops"]), (&1.into(), &loops.into()), "{said}");
        assert!(said["to"] == "va" && said["seconds"].as_f64().unwrap() > 0.0, "{said}");
        let expected: Vec<&[u8]> = (0..loops).flat_map(|_| datas(&capture.packets)).collect();
        assert_eq!(datas(&receiver.end(packets, bytes)), expected);
    }
}

#[test]
fn packets_that_are_longer_than_a_page_go_out_whole() {
    let Some(live) = Live::or_skip() else { return };
    for (namespace, end) in [(live.lab.a(), "va"), (live.lab.b(), "vb")] {
        namespace.ip(&["link", "set", end, "mtu", "9000"]).unwrap();
    }
    let mut capture = spaced(600, 1000);
    for (number, packet) in capture.packets.iter_mut().enumerate() {
        let len = [60, 2048, 2049, 4096, 5000, 9014][number % 6];
        let fill = (0..len).map(|at| (at * 7 + number) as u8);
        let data = packet.data.iter().copied().chain(fill).take(len).collect();
        *packet = Record::new(packet.time_ns, data);
    }
    let source = live.place.source(&capture);
    let receiver = receiver(&live);
    let done = send(&live, &["--source", &source]);
    assert_eq!((done.code(), &summary(&done)["sent"]), (Some(0), &600.into()), "{}", done.stderr);
    assert_eq!(datas(&receiver.end(600, bytes_of(&capture.packets))), datas(&capture.packets));
}

#[test]
fn packets_that_were_cut_are_padded_with_zeros_or_sent_as_they_are() {
    let Some(live) = Live::or_skip() else { return };
    let mut capture = spaced(3, 1000);
    let whole = capture.packets[1].data.clone();
    capture.packets[1] = Record::new(START_NS + 1000, whole.clone()).snapped(30);
    let source = live.place.source(&capture);
    let mut padded = whole[..30].to_vec();
    padded.resize(whole.len(), 0);
    for (pad, expected, words) in
        [("zero", &padded[..], ["padded", "cut"]), ("none", &whole[..30], ["cut", "padded"])]
    {
        let receiver = receiver(&live);
        let done = send(&live, &["--source", &source, "--pad", pad]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let said = summary(&done);
        assert_eq!((&said[words[0]], &said[words[1]]), (&1.into(), &0.into()), "{said}");
        let bytes = 2 * whole.len() + expected.len();
        assert_eq!(said["bytes"], bytes, "{said}");
        let came = receiver.end(3, bytes);
        assert_eq!(datas(&came), [&capture.packets[0].data[..], expected, &capture.packets[2].data]);
    }
}

#[test]
fn what_the_interface_does_not_take_is_refused_under_its_reason_and_the_rest_goes() {
    let Some(live) = Live::or_skip() else { return };
    let mut capture = spaced(4, 1000);
    capture.interfaces.push(Interface::new("tunnel", RAW));
    let record = |data: Vec<u8>| Record::new(START_NS + 10_000, data);
    let long = |len: usize| record([numbered(1, 2, 9), vec![0; len]].concat()[..len].to_vec());
    let cut = Record { original_len: 9000, ..long(1000) };
    let raw = record(numbered(1, 2, 9)[14..].to_vec()).on(1);
    let refused = [long(1515), cut, raw.clone(), raw.clone(), raw, long(13)];
    let sent = [long(1514), long(14)];
    capture.packets.splice(2..2, refused.into_iter().chain(sent.clone()));
    let source = live.place.source_of("in.pcapng", &pcapng(&capture, Precision::Nano, false));
    let receiver = receiver(&live);
    let done = send(&live, &["--source", &source]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let said = summary(&done);
    let reasons = serde_json::json!({ "too_long": 2, "link_type": 3, "too_short": 1 });
    assert_eq!((&said["refused"], &said["sent"], &said["read"]), (&reasons, &6.into(), &12.into()), "{said}");
    let mut expected = spaced(4, 1000).packets;
    expected.splice(2..2, sent);
    assert_eq!(datas(&receiver.end(6, bytes_of(&expected))), datas(&expected));
    let words = finish(inside(live.lab.a(), &wirescope(&["send", "--to", "va", "--source", &source])));
    for line in ["12 packets = 6 sent + 6 refused", "2 too_long (longer than the 1,514 bytes that va takes)"]
    {
        assert!(words.stdout.contains(line), "{}", words.stdout);
    }
}

#[test]
fn a_flow_stays_in_order_over_queues_both_directions_of_it() {
    let Some(live) = Live::or_skip() else { return };
    const FLOWS: u16 = 50;
    let mut capture = Capture::ethernet("left");
    for number in 0..10_000u32 {
        let flow = 1000 + (number % u32::from(FLOWS)) as u16;
        let data = match number / 50 % 2 {
            0 => numbered(flow, 53, number),
            _ => {
                let (a, b) = (([10, 0, 0, 2], 53).into(), ([10, 0, 0, 1], flow).into());
                on_link(ETHERNET, &[], &udp(a, b, &number.to_be_bytes()))
            }
        };
        capture.packets.push(Record::new(START_NS + i64::from(number), data));
    }
    let source = live.place.source(&capture);
    let receiver = receiver(&live);
    let done = send(&live, &["--source", &source, "--queues", "4"]);
    assert_eq!((done.code(), &summary(&done)["queues"]), (Some(0), &4.into()), "{}", done.stderr);
    let came = receiver.end(10_000, bytes_of(&capture.packets));
    let mut flows: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for packet in &came {
        let number = u32::from_be_bytes(packet.data[42..46].try_into().unwrap());
        flows.entry(number % u32::from(FLOWS)).or_default().push(number);
    }
    assert_eq!((came.len(), flows.len()), (10_000, FLOWS.into()));
    for (flow, numbers) in flows {
        assert!(numbers.is_sorted() && numbers.len() == 200, "flow {flow}: {numbers:?}");
    }
}

#[test]
fn generated_traffic_is_sent_as_a_run_records_it() {
    let Some(live) = Live::or_skip() else { return };
    let source = "synth:rate=1M,packets=2k,start=2026-01-01T00:00:00Z,pace=max,size=200,trigger-at=1ms";
    let ring = live.ring_path();
    let run = live.place.run(&["--source", source, "--ring-out", ring.to_str().unwrap()]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr);
    let recorded = oracle::read(&ring).unwrap().capture.packets;
    let receiver = receiver(&live);
    let done = send(&live, &["--source", source]);
    assert_eq!((done.code(), &summary(&done)["sent"]), (Some(0), &2001.into()), "{}", done.stderr);
    assert_eq!(datas(&receiver.end(2001, bytes_of(&recorded))), datas(&recorded));
}

#[test]
fn packets_leave_at_the_recorded_pace_a_multiple_of_it_a_rate_or_at_once() {
    let Some(live) = Live::or_skip() else { return };
    let source = live.place.source(&spaced(4, 200_000_000));
    let seconds = |arguments: &[&str], source: &str| {
        let done = send(&live, &[&["--source", source], arguments].concat());
        assert_eq!((done.code(), &summary(&done)["sent"]), (Some(0), &4.into()), "{}", done.stderr);
        summary(&done)["seconds"].as_f64().unwrap()
    };
    // A busy machine takes longer, none takes less.
    assert!(seconds(&[], &format!("{source},pace=1")) >= 0.6);
    assert!(seconds(&[], &format!("{source},pace=2")) >= 0.3);
    assert!(seconds(&["--rate", "10"], &source) >= 0.3);
    assert!(seconds(&[], "synth:packets=4,rate=10,size=64") >= 0.3);
    let hours = live.place.source_of("hours.pcapng", &pcapng(&spaced(4, HOUR_NS), Precision::Nano, false));
    assert!(seconds(&[], &hours) < 3600.0);
    assert!(seconds(&[], "synth:packets=4,rate=1,size=64,pace=max,start=2026-01-01T00:00:00Z") < 3600.0);
}

#[test]
fn ctrl_c_ends_it_with_a_summary_that_adds_up() {
    let Some(live) = Live::or_skip() else { return };
    let hours = format!("{},pace=1", live.place.source(&spaced(4, HOUR_NS)));
    for (source, code) in [("synth:rate=1k,size=64", 0), (&*hours, 1)] {
        let receiver = receiver(&live);
        let started = Started::new(command(&live, &["--source", source]));
        wait_until("a packet", || receiver.bytes() > PCAP_HEAD);
        started.signal(libc::SIGINT);
        let done = started.finish(LIMIT);
        assert_eq!(done.code(), Some(code), "{source}: {}\n{}", done.stdout, done.stderr);
        let said = summary(&done);
        let sent = said["sent"].as_u64().unwrap() as usize;
        let bytes = said["bytes"].as_u64().unwrap() as usize;
        assert_eq!(receiver.end(sent, bytes).len(), sent);
        assert!(said["seconds"].as_f64().unwrap() > 0.0 || sent == 0, "{said}");
        if code == 1 {
            assert_eq!((sent, &said["refused"]["ended"]), (1, &3.into()), "{said}");
        }
    }
}

#[test]
fn what_is_sent_while_the_interface_is_down_is_refused_as_down() {
    let Some(live) = Live::or_skip() else { return };
    let receiver = receiver(&live);
    // A machine that is too busy to send anything meanwhile gets more time.
    with_enough_time(Duration::from_millis(200), |time| {
        let started = Started::new(command(&live, &["--source", "synth:rate=1k,size=64"]));
        let before = receiver.bytes();
        wait_until("a packet", || receiver.bytes() > before);
        live.lab.a().ip(&["link", "set", "va", "down"]).unwrap();
        std::thread::sleep(time);
        live.lab.a().ip(&["link", "set", "va", "up"]).unwrap();
        live.wait_for_link();
        let again = receiver.bytes();
        wait_until("a packet again", || receiver.bytes() > again);
        started.signal(libc::SIGINT);
        let done = started.finish(LIMIT);
        let said = summary(&done);
        said["refused"]["down"].as_u64().map(|down| assert!(down > 0 && done.code() == Some(1), "{said}"))
    });
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_what_helps_and_nothing_is_sent() {
    let Some(live) = Live::or_skip() else { return };
    let (end_a, _) = live.lab.another_link().unwrap();
    live.lab.a().ip(&["link", "set", &end_a, "down"]).unwrap();
    live.lab.a().ip(&["tuntap", "add", "dev", "tun0", "mode", "tun"]).unwrap();
    live.lab.a().ip(&["link", "set", "tun0", "up"]).unwrap();
    let good = live.place.source(&spaced(4, 1000));
    let text = live.place.source_of("text.pcap", b"this is no capture file at all, and long enough");
    let missing = format!("file:{}", live.place.path("missing.pcap").display());
    let (paced, shared) = (format!("{good},pace=1"), format!("{good},workers=2,share=10%,prefilter=udp"));
    let check = |arguments: &[&str], words: &[&str]| {
        let mut all = vec!["send"];
        all.extend(arguments);
        let done = finish(inside(live.lab.a(), &wirescope(&all)));
        assert_eq!((done.code(), &*done.stdout), (Some(2), ""), "{arguments:?}: {}", done.stderr);
        for word in words {
            assert!(done.stderr.contains(word), "{arguments:?}: no '{word}' in {}", done.stderr);
        }
    };
    check(
        &[
            "--source", &missing, "--to", "nosuch0", "--queues", "65", "--rate", "x", "--loops", "0",
            "--pad", "one",
        ],
        &[
            "missing.pcap",
            "no such file",
            "no interface 'nosuch0'",
            "there are: lo, va",
            "--queues",
            "more than 64",
            "--rate",
            "--loops",
            "less than 1",
            "--pad",
            "write zero or none",
        ],
    );
    check(&["--source", &paced, "--to", "va", "--rate", "1k"], &["pace", "omit one of them"]);
    check(
        &["--source", "synth:rate=1", "--to", "va", "--rate", "1k", "--summary", "text"],
        &["rate", "write json"],
    );
    check(
        &["--source", &shared, "--to", "va"],
        &["workers", "--queues", "share", "prefilter", "wirescope query"],
    );
    check(&["--source", &text, "--to", &end_a], &["text.pcap", "is down", "ip link set"]);
    check(&["--source", &good, "--to", "tun0"], &["tun0 has no link"]);
    check(&["--source", "afpacket:va", "--to", "va"], &["file:PATH or synth:"]);
    check(&["--source", "file:-,pace=x", "--to", "va", "--loops", "2"], &["pace"]);
    // Nothing of all that went out.
    let receiver = receiver(&live);
    let done = send(&live, &["--source", &good]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(receiver.end(4, bytes_of(&spaced(4, 1000).packets)).len(), 4);
}

#[test]
fn without_the_right_to_send_it_is_told_with_the_remedy() {
    let Some(live) = Live::or_skip() else { return };
    let source = live.place.source(&spaced(4, 1000));
    let mut command = Command::new(live.place.binary_for_all());
    command.args(["send", "--source", &source, "--to", "va", "--queues", "0"]).uid(NOBODY).gid(NOBODY);
    let started = live.lab.a().enter(|| Started::new(command));
    let done = started.finish(LIMIT);
    assert_eq!((done.code(), &*done.stdout), (Some(2), ""), "{}", done.stderr);
    for word in ["no permission to send on 'va'", "CAP_NET_RAW", "setcap cap_net_raw=ep", "--queues"] {
        assert!(done.stderr.contains(word), "no '{word}' in {}", done.stderr);
    }
}

#[test]
fn while_it_sends_no_thread_has_a_right_left() {
    let Some(live) = Live::or_skip() else { return };
    let receiver = receiver(&live);
    let started = Started::new(command(&live, &["--source", "synth:rate=1k,size=64", "--queues", "2"]));
    wait_until("a packet", || receiver.bytes() > PCAP_HEAD);
    let threads = started.threads();
    assert!(threads.len() >= 3, "{threads:?}");
    for status in threads {
        let line =
            |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_string();
        assert!(line("Seccomp:").ends_with('2'), "{status}");
        assert!(line("NoNewPrivs:").ends_with('1') && line("CapEff:").ends_with("0000000000"), "{status}");
    }
}

#[test]
fn a_pipe_is_sent_once_and_a_damaged_file_up_to_the_damage() {
    let Some(live) = Live::or_skip() else { return };
    let capture = spaced(4, 1000);
    let file = pcapng(&capture, Precision::Nano, false);
    live.place.source_of("whole.pcapng", &file);
    live.place.source_of("damaged.pcapng", &file[..file.len() - 10]);
    let piped = |name: &str, loops: &str| {
        let (binary, path) = (env!("CARGO_BIN_EXE_wirescope"), live.place.path(name));
        let line = format!(
            "cat {} | {binary} send --source file:- --to va --summary json --loops {loops}",
            path.display()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]);
        finish(inside(live.lab.a(), &shell))
    };
    let done = piped("whole.pcapng", "1");
    assert_eq!((done.code(), &summary(&done)["sent"]), (Some(0), &4.into()), "{}", done.stderr);
    let done = piped("whole.pcapng", "2");
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(
        done.stderr.contains("--loops") && done.stderr.contains("can be read only once"),
        "{}",
        done.stderr
    );
    let damaged = format!("file:{}", live.place.path("damaged.pcapng").display());
    for done in [piped("damaged.pcapng", "1"), send(&live, &["--source", &damaged])] {
        assert_eq!(done.code(), Some(1), "{}", done.stderr);
        let said = summary(&done);
        assert_eq!((&said["sent"], &said["unreadable"]), (&3.into(), &1.into()), "{said} {}", done.stderr);
        assert!(
            done.stderr.contains("damaged.pcapng") || done.stderr.contains(" -: truncated"),
            "{}",
            done.stderr
        );
    }
}
