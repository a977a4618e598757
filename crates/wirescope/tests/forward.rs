//! `wirescope run --forward` between two network namespaces: what a group takes comes out at the other interface, byte for
//! byte and in order, nothing goes round, and what isn't sent is counted under its reason.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::receiver::Receiver;
use live_lab::{Live, inside};
use run::asking::Running;
use run::{Done, LIMIT, NOBODY, Place, Started, finish, wait_until, wirescope, with_enough_time};
use scope_testkit::lab::RawSender;
use scope_testkit::lab::witness::numbered;
use scope_testkit::traffic::{Capture, Conversations, Interface, Precision, RAW, Record, pcapng};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// 2026-01-01.
const START_NS: i64 = 1_767_225_600_000_000_000;

/// A run in namespace b, and one more link.
struct Stand {
    live: Live,
    /// Its end in a, where is received what is sent out of its end in b.
    far: String,
    near: String,
}

impl Stand {
    fn or_skip() -> Option<Stand> {
        let live = Live::or_skip()?;
        let (far, near) = live.lab.another_link().unwrap();
        Some(Stand { live, far, near })
    }

    fn receiver(&self) -> Receiver {
        Receiver::begin(&self.live, self.live.lab.a(), &self.far)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        inside(self.live.lab.b(), &self.live.place.command(arguments))
    }

    /// A run that can be asked.
    fn start(&self, arguments: &[&str]) -> Running {
        let place = Place::new();
        let started = Started::new(inside(self.live.lab.b(), &place.command(arguments)));
        let running = Running { place, started };
        wait_until("the run to listen and its first second", || {
            running.socket().exists() && running.get("status").body["elapsed_s"].is_number()
        });
        running
    }

    fn refused(&self, arguments: &[&str], words: &[&str]) {
        let done = finish(self.command(arguments));
        assert_eq!((done.code(), &*done.stdout), (Some(2), ""), "{arguments:?}: {}", done.stderr);
        for word in words {
            assert!(done.stderr.contains(word), "{arguments:?}: no '{word}' in {}", done.stderr);
        }
    }
}

/// The only forward of a group, whose figures add up.
fn forward(groups: &Value, group: &str) -> Value {
    let groups = groups["groups"].as_array().unwrap_or_else(|| panic!("{groups}"));
    let group = groups.iter().find(|of| of["name"] == group).unwrap_or_else(|| panic!("{groups:?}"));
    let [forward] = &group["forwards"].as_array().unwrap()[..] else { panic!("{group}") };
    let of = |key: &str| forward[key].as_u64().unwrap_or_else(|| panic!("{key}: {forward}"));
    let refused: u64 = forward["refused"].as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum();
    assert_eq!(of("given"), of("read") + of("missed") + of("behind"), "{forward}");
    assert_eq!(of("read"), of("sent") + refused, "{forward}");
    forward.clone()
}

fn summary(done: &Done) -> Value {
    serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", done.stdout, done.stderr))
}

fn datas(packets: &[Record]) -> Vec<&[u8]> {
    packets.iter().map(|packet| &packet.data[..]).collect()
}

fn bytes_of<F: AsRef<[u8]>>(frames: &[F]) -> usize {
    frames.iter().map(|frame| frame.as_ref().len()).sum()
}

fn capture_of(frames: &[Vec<u8>]) -> Capture {
    let mut capture = Capture::ethernet("left");
    capture.packets =
        (0..).zip(frames).map(|(at, frame)| Record::new(START_NS + at * 1000, frame.clone())).collect();
    capture
}

#[test]
fn a_tee_sends_all_that_is_recorded_byte_for_byte_in_order_and_the_rest_at_the_end() {
    let Some(stand) = Stand::or_skip() else { return };
    let conversations =
        Conversations { packets: 3000, vlan: 20, snapped: 0, payload_max: 1400, ..Conversations::default() };
    let frames: Vec<Vec<u8>> =
        conversations.capture().packets.into_iter().map(|packet| packet.data).collect();
    let receiver = stand.receiver();
    let to = format!("all={}", stand.near);
    let running =
        stand.start(&["--source", "afpacket:vb,direction=in", "--group", "all,steer=all", "--forward", &to]);
    let status = running.get("groups").body;
    let (ready, name) = (forward(&status, "all"), format!("forward-{}", stand.near));
    assert!(ready["name"] == name && ready["interface"] == *stand.near, "{status}");
    let member = &status["groups"][0]["members"][0];
    assert_eq!((&status["attach"], &member["name"]), (&Value::Null, &Value::from(&*name)), "{status}");
    stand.live.sender().send(&frames).unwrap();
    wait_until("all packets in the ring", || {
        running.get("groups").body["groups"][0]["published"] == frames.len()
    });
    let words = finish(wirescope(&["groups", "--control", running.socket().to_str().unwrap()]));
    let line = format!("{name}: ");
    assert!(words.stdout.contains(&line) && words.stdout.contains(" + 0 refused"), "{}", words.stdout);
    let metrics = running.ask("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
    for metric in ["wirescope_forward_sent_packets_total{", "wirescope_forward_refused_packets_total{"] {
        assert!(metrics.contains(metric), "no {metric} in {metrics}");
    }
    running.started.signal(libc::SIGTERM);
    let done = running.started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let said = forward(&summary(&done), "all");
    assert_eq!((&said["sent"], &said["missed"]), (&frames.len().into(), &0.into()), "{said}");
    assert_eq!(said["bytes"], bytes_of(&frames), "{said}");
    let came = receiver.end(frames.len(), bytes_of(&frames));
    assert_eq!(datas(&came), frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

#[test]
fn two_forwards_are_a_bridge_and_no_packet_goes_round() {
    let Some(stand) = Stand::or_skip() else { return };
    let Stand { live, far, near } = &stand;
    const PACKETS: u64 = 500;
    let frames = |port| (0..PACKETS).map(|number| numbered(number, port, 300)).collect::<Vec<_>>();
    let (to_right, to_left) = (frames(1000), frames(2000));
    let (left, right) = (Receiver::begin(live, live.lab.a(), "va"), Receiver::begin(live, live.lab.a(), far));
    let sources = ["afpacket:vb,direction=in".to_string(), format!("afpacket:{near},direction=in")];
    let (there, back) = (format!("there={near}"), "back=vb".to_string());
    let of_near = format!("back,steer=all,interface={near}");
    let groups = ["--group", "there,steer=all,interface=vb", "--group", &of_near];
    let running = stand.start(
        &[
            &["--source", &sources[0], "--source", &sources[1], "--forward", &there, "--forward", &back],
            &groups[..],
        ]
        .concat(),
    );
    let from_right = RawSender::open(live.lab.a(), far).unwrap();
    for (one, other) in to_right.chunks(50).zip(to_left.chunks(50)) {
        live.sender().send(one).unwrap();
        from_right.send(other).unwrap();
    }
    let bytes = bytes_of(&to_right);
    let came = right.end(PACKETS as usize, bytes);
    assert_eq!(datas(&came), to_right.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let came = left.end(PACKETS as usize, bytes);
    assert_eq!(datas(&came), to_left.iter().map(Vec::as_slice).collect::<Vec<_>>());
    running.started.signal(libc::SIGTERM);
    let done = running.started.finish(LIMIT);
    let said = summary(&done);
    assert_eq!((done.code(), &said["received"]["packets"]), (Some(0), &(2 * PACKETS).into()), "{said}");
    for group in ["there", "back"] {
        let forward = forward(&said, group);
        assert_eq!((&forward["given"], &forward["sent"]), (&PACKETS.into(), &PACKETS.into()), "{said}");
    }
}

#[test]
fn a_source_with_direction_in_records_what_arrives_and_not_what_leaves() {
    let Some(live) = Live::or_skip() else { return };
    let frames = |port| (0..100).map(|number| numbered(number, port, 100)).collect::<Vec<_>>();
    let (arrive, leave) = (frames(1000), frames(2000));
    let own = RawSender::open(live.lab.b(), "vb").unwrap();
    for (source, both) in [
        ("afpacket:vb,direction=in", false),
        ("afpacket:vb,workers=2,direction=in", false),
        ("afpacket:v*,workers=0,direction=in,prefilter=udp", false),
        ("pcap:vb,direction=in", false),
        ("afpacket:vb,direction=both", true),
    ] {
        let place = Place::new();
        let started = live.start_at(&place, &["--source", source]);
        wait_until("the run to be ready", || started.words().contains("ready, process"));
        own.send(&leave).unwrap();
        live.sender().send(&arrive).unwrap();
        let wanted = if both { 200 } else { 100 };
        let received = || {
            let socket = place.out().join("wirescope.sock");
            let asked = finish(wirescope(&["status", "--json", "--control", socket.to_str().unwrap()]));
            serde_json::from_str::<Value>(&asked.stdout).ok()?["received"]["packets"].as_u64()
        };
        wait_until("all that arrives", || received() >= Some(wanted));
        started.signal(libc::SIGTERM);
        let done = started.finish(LIMIT);
        let said = summary(&done);
        assert_eq!(
            (done.code(), &said["received"]["packets"]),
            (Some(0), &wanted.into()),
            "{source}: {said}"
        );
    }
}

#[test]
fn a_file_is_sent_whole_cut_packets_are_padded_and_what_the_interface_does_not_take_is_refused() {
    let Some(stand) = Stand::or_skip() else { return };
    let mut capture = capture_of(&(0..1000).map(|number| numbered(number, 7, 200)).collect::<Vec<_>>());
    capture.interfaces.push(Interface::new("tun", RAW));
    let cut = |len, original_len| Record { original_len, ..Record::new(START_NS + 5_000_000, vec![7; len]) };
    let others = [cut(100, 1000), cut(1514, 1514), cut(1515, 1515), cut(60, 9000), cut(13, 13)];
    capture.packets.extend(others.clone());
    capture.packets.push(Record { interface: 1, ..Record::new(START_NS + 6_000_000, vec![0x45; 60]) });
    let source = stand.live.place.source_of("in.pcapng", &pcapng(&capture, Precision::Nano, false));
    let (receiver, to) = (stand.receiver(), format!("all={}", stand.near));
    let done =
        finish(stand.command(&["--source", &source, "--group", "all,steer=all,members=1", "--forward", &to]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let said = forward(&summary(&done), "all");
    assert_eq!(
        (&said["given"], &said["behind"], &said["missed"]),
        (&1006.into(), &0.into(), &0.into()),
        "{said}"
    );
    let warnings = summary(&done)["warnings"].to_string();
    let words = format!("forward all={}: 4 of 1006 packets were not sent: 2 too_long", stand.near);
    assert!(warnings.contains(&words), "{warnings}");
    let reasons = serde_json::json!({ "too_long": 2, "link_type": 1, "too_short": 1 });
    assert_eq!(
        (&said["refused"], &said["padded"], &said["sent"]),
        (&reasons, &1.into(), &1002.into()),
        "{said}"
    );
    let mut expected: Vec<Vec<u8>> =
        capture.packets[..1000].iter().map(|packet| packet.data.clone()).collect();
    expected.extend([[vec![7; 100], vec![0; 900]].concat(), vec![7; 1514]]);
    let came = receiver.end(1002, bytes_of(&expected));
    assert_eq!(datas(&came), expected.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

#[test]
fn a_forward_is_one_of_the_members_that_a_run_of_files_waits_for() {
    let Some(stand) = Stand::or_skip() else { return };
    let source =
        stand.live.place.source(&capture_of(&(0..100).map(|n| numbered(n, 7, 200)).collect::<Vec<_>>()));
    let (socket, to) = (stand.live.place.path("attach"), format!("all={}", stand.near));
    let at = socket.to_str().unwrap();
    let started = Started::new(stand.command(&[
        "--source",
        &source,
        "--attach",
        at,
        "--group",
        "all,steer=all,members=2",
        "--forward",
        &to,
    ]));
    wait_until("the run to wait", || started.words().contains("1 of 2 members have joined"));
    let mut tap = wirescope(&["tap", "all", "--attach", at, "-w"]);
    tap.arg(stand.live.place.path("tapped.pcapng"));
    let tapped = finish(tap);
    assert_eq!(tapped.code(), Some(0), "{}", tapped.stderr);
    let done = started.finish(LIMIT);
    assert_eq!(
        (done.code(), &forward(&summary(&done), "all")["sent"]),
        (Some(0), &100.into()),
        "{}",
        done.stderr
    );
    assert!(tapped.stderr.contains("100 packets to"), "{}", tapped.stderr);
}

#[test]
fn what_is_due_while_the_interface_is_down_is_refused_as_down_and_the_rest_goes() {
    let Some(stand) = Stand::or_skip() else { return };
    let (b, near) = (stand.live.lab.b(), &stand.near);
    let to = format!("all={near}");
    // A machine that is too busy to send anything meanwhile gets more time.
    with_enough_time(Duration::from_millis(200), |time| {
        let running =
            stand.start(&["--source", "synth:rate=1k,size=64", "--group", "all,steer=all", "--forward", &to]);
        let sent = || forward(&running.get("groups").body, "all")["sent"].as_u64().unwrap();
        wait_until("a packet", || sent() > 0);
        b.ip(&["link", "set", near, "down"]).unwrap();
        std::thread::sleep(time);
        b.ip(&["link", "set", near, "up"]).unwrap();
        stand.live.lab.wait_for_link(&stand.far, near).unwrap();
        let before = sent();
        wait_until("a packet again", || sent() > before);
        let threads = running.started.threads();
        for status in threads.iter().filter(|status| status.contains("forward-")) {
            let line = |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            assert!(line("Seccomp:").ends_with('2') && line("CapEff:").ends_with("0000000000"), "{status}");
        }
        assert!(threads.iter().any(|status| status.contains("Name:\tforward-0")), "{threads:?}");
        running.started.signal(libc::SIGINT);
        let done = running.started.finish(LIMIT);
        let said = forward(&summary(&done), "all");
        said["refused"]["down"].as_u64().map(|down| assert!(down > 0 && done.code() == Some(0), "{said}"))
    });
}

#[test]
fn a_source_that_would_record_what_is_sent_is_refused_with_what_helps() {
    let Some(stand) = Stand::or_skip() else { return };
    let near = &stand.near;
    let to = format!("all={near}");
    let check = |source: &[&str], remedy: &str| {
        let arguments = [source, &["--group", "all,steer=all", "--forward", &to]].concat();
        stand.refused(&arguments, &["it would record what --forward all=", "again and again", remedy]);
    };
    check(&["-i", near], &format!("--source afpacket:{near},direction=in"));
    check(&["-i", "v*"], "afpacket:v*,direction=in");
    let (two, pcap) = (format!("afpacket:{near},workers=2,direction=both"), format!("pcap:{near}"));
    check(&["--source", &two], &format!("--source afpacket:{near},workers=2,direction=in"));
    check(&["--source", &pcap], &format!("--source pcap:{near},direction=in"));
    check(&["--source", "pcap:any"], "--source pcap:any,direction=in");
}

#[test]
fn all_that_is_wrong_with_forwards_is_told_at_once() {
    let Some(stand) = Stand::or_skip() else { return };
    let b = stand.live.lab.b();
    b.ip(&["link", "set", &stand.near, "down"]).unwrap();
    b.ip(&["link", "property", "add", "dev", "vb", "altname", "other0"]).unwrap();
    let down = format!("one={}", stand.near);
    let forwards = ["vb", "ring=vb", "none=vb", "one=nosuch0", "one=other0", &down, "two=vb", "two=vb"];
    let forwards = forwards.iter().flat_map(|forward| ["--forward", forward]);
    let arguments = ["--source", "synth:rate=1k", "--group", "one,members-max=1", "--group", "two"];
    let words = [
        "'vb' is no GROUP=IFACE",
        "make a group of all: --group all",
        "there is no group 'none'",
        "there are: one, two",
        "no interface 'nosuch0'",
        "no interface 'other0'",
        "is down",
        "one more member than the group may have",
        "it is given twice",
    ];
    stand.refused(&arguments.into_iter().chain(forwards).collect::<Vec<_>>(), &words);
    let source =
        ["--source", "afpacket:vb,direction=in", "--group", "one,interface=eth7", "--forward", "one=vb"];
    stand.refused(&source, &["'eth7' is captured by no source", "there are: vb"]);
    let idle = ["--source", "synth:rate=1k", "--group", "one", "--group", "two", "--forward", "one=vb"];
    stand.refused(&idle, &["there is no socket to attach at"]);
}

#[test]
fn without_the_right_to_send_a_forward_is_refused_with_the_command_that_gives_it() {
    let Some(stand) = Stand::or_skip() else { return };
    let mut command = Command::new(stand.live.place.binary_for_all());
    let (source, to) = ("synth:rate=1k", format!("all={}", stand.near));
    command.args(["run", "--source", source, "--ring", "64MiB", "--summary", "json", "--out"]);
    command.arg(stand.live.place.out()).args(["--group", "all", "--forward", &to]).uid(NOBODY).gid(NOBODY);
    let done = stand.live.lab.b().enter(|| Started::new(command)).finish(LIMIT);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for word in ["no permission to send on", "CAP_NET_RAW", "setcap cap_net_raw=ep"] {
        assert!(done.stderr.contains(word), "no '{word}' in {}", done.stderr);
    }
}
