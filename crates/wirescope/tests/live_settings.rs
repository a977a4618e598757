//! How an interface is captured: prefilters in the kernel and in the worker give the same, one's own traffic
//! stays out, libpcap gives what the ring of AF_PACKET gives.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, inside, mixed_frames, odd_frames, stop};
use run::{Done, Place, Started, wait_until};
use scope_testkit::lab::RawSender;
use scope_testkit::oracle;
use scope_testkit::traffic::frame::{self, Tag};
use scope_testkit::traffic::{DIRECTION_MASK, ETHERNET};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Small rings: several runs at once.
const SMALL: [&str; 4] = ["--ring", "16MiB", "--segment", "64KiB"];

/// A run in namespace b with files of its own, its ring written out at the end.
struct Recording {
    place: Place,
    started: Started,
}

impl Recording {
    fn begin(live: &Live, arguments: &[&str], environment: &[(&str, &str)]) -> Recording {
        let place = Place::new();
        let ring = place.path("ring.pcapng");
        let all = [arguments, &SMALL, &["--ring-out", ring.to_str().expect("a plain path")]].concat();
        let mut command: Command = inside(live.lab.b(), &place.command(&all));
        command.env_remove("SSH_CONNECTION").env_remove("SSH_CLIENT").envs(environment.iter().copied());
        Recording::of(place, command)
    }

    /// The same, below a shell that has `environment` and takes it away from the run, as sudo does.
    fn begin_below(live: &Live, arguments: &[&str], environment: &[(&str, &str)]) -> Recording {
        const SHELL: &str = r#"trap 'kill -TERM $!' INT; env -u SSH_CONNECTION "$@" & wait $!; wait $!"#;
        let place = Place::new();
        let ring = place.path("ring.pcapng");
        let all = [arguments, &SMALL, &["--ring-out", ring.to_str().expect("a plain path")]].concat();
        let run = inside(live.lab.b(), &place.command(&all));
        // A shell can't trap what it was started to ignore, as below `nohup`.
        let mut shell = Command::new("env");
        shell
            .args(["--default-signal=INT", "sh", "-c", SHELL, "sh"])
            .arg(run.get_program())
            .args(run.get_args());
        shell.env_remove("SSH_CLIENT").envs(environment.iter().copied());
        Recording::of(place, shell)
    }

    fn of(place: Place, command: Command) -> Recording {
        let started = Started::new(command);
        let log = place.out().join("wirescope.jsonl");
        wait_until("the log's first line", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
        });
        Recording { place, started }
    }

    fn end(self) -> Recorded {
        let done = stop(self.started);
        let log = std::fs::read_to_string(self.place.out().join("wirescope.jsonl")).unwrap();
        let start: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        done.summary().assert_adds_up();
        let whole: Value = serde_json::from_str(&done.stdout).unwrap();
        let of_source = |key: &str| whole["sources"][0][key].as_u64().unwrap();
        assert_eq!(of_source("offered"), of_source("received"), "{whole}");
        Recorded {
            packets: packets(&self.place.path("ring.pcapng")),
            start: start.to_string(),
            done,
            place: self.place,
        }
    }
}

/// What a run left.
struct Recorded {
    packets: Counted,
    start: String,
    done: Done,
    place: Place,
}

/// Bytes, original length and direction of packets, and how often each came.
type Counted = BTreeMap<(Vec<u8>, u32, u32), u32>;

fn packets(path: &Path) -> Counted {
    let mut counted = Counted::new();
    for packet in oracle::read(path).unwrap().capture.packets {
        *counted.entry((packet.data, packet.original_len, packet.flags & DIRECTION_MASK)).or_default() += 1;
    }
    counted
}

/// Frames of all kinds: no, one and two tags, fragments, IPv6, extension headers, ARP, and hardly any bytes
/// at all.
fn frames_of_all_kinds() -> Vec<Vec<u8>> {
    let mut frames = [mixed_frames(7, 300), odd_frames(8, 300)].concat();
    for len in [14, 15, 17, 18, 21, 33, 34, 37, 41, 53] {
        frames.extend([frames[len].clone(), frames[300 + len].clone()].map(|mut frame| {
            frame.truncate(len);
            frame
        }));
    }
    for type_of_tag in [0x8100u16, 0x88a8, 0x9100] {
        // A tag with nothing behind it, and with half of the next.
        let head = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &type_of_tag.to_be_bytes()].concat();
        frames.extend([
            head.clone(),
            [&head[..], &[0, 5, 0x08]].concat(),
            [&head[..], &[0, 5, 0x81, 0, 0]].concat(),
        ]);
    }
    frames
}

/// Records everything and, beside it, what `prefilter` takes; gives the latter to a worker as well, out of
/// the file of everything.
fn check_prefilter(live: &Live, prefilter: &str, options: &str, flags: &[&str], in_kernel: bool) {
    let everything = Recording::begin(live, &["--source", &format!("afpacket:vb{options}")], &[]);
    let source = format!("afpacket:vb,prefilter={prefilter}{options}");
    let chosen = Recording::begin(live, &[&["--source", &source], flags].concat(), &[]);
    let frames = frames_of_all_kinds();
    let sent = live.sender().send(&frames).unwrap();
    // The other way, tags are in the bytes.
    let sent = sent + RawSender::open(live.lab.b(), "vb").unwrap().send(&frames).unwrap();
    let (everything, chosen) = (everything.end(), chosen.end());
    // The network stack drops frames that end inside a tag before anybody sees them.
    let came = everything.done.summary().received.packets;
    assert!((sent - 20..=sent).contains(&came), "{came} of {sent}");

    let place = Place::new();
    let (file, ring) =
        (format!("file:{}", everything.place.path("ring.pcapng").display()), place.path("ring.pcapng"));
    let arguments = [
        &["--source", &file, "--prefilter", prefilter, "--ring-out", ring.to_str().unwrap()],
        flags,
        &SMALL[..],
    ]
    .concat();
    let by_worker = place.summary(&arguments);
    by_worker.assert_adds_up();
    let expected = packets(&ring);
    assert!(!expected.is_empty() && by_worker.filtered.packets > 0, "'{prefilter}' tells packets apart");
    let missing = expected.keys().find(|packet| !chosen.packets.contains_key(*packet));
    let surplus = chosen.packets.keys().find(|packet| !expected.contains_key(*packet));
    assert!(
        expected == chosen.packets,
        "'{prefilter}{options}': missing {missing:02x?}, too much {surplus:02x?}"
    );

    let received = chosen.done.summary().received.packets;
    let (said, arrived) = if in_kernel {
        ("prefilter: in the kernel", received < came)
    } else {
        ("not in the kernel", received == came)
    };
    assert!(
        chosen.start.contains(said) && chosen.done.stderr.contains(said),
        "no '{said}' in {}",
        chosen.start
    );
    assert!(arrived, "{received} of {came} packets came to the worker");
}

#[test]
fn a_prefilter_in_the_kernel_takes_what_one_in_the_worker_takes() {
    let Some(live) = Live::or_skip() else { return };
    for prefilter in [
        "udp",
        "not tcp and len > 60",
        "ip6",
        "ip[6:2] & 0x1fff != 0 or arp",
        "vlan 5 or icmp",
        "tcp port 443",
    ] {
        check_prefilter(&live, prefilter, "", &[], true);
    }
    let long: Vec<String> = (0..60).map(|n| format!("host 192.0.2.{n}")).collect();
    check_prefilter(&live, &format!("not ({} or host 10.0.0.1)", long.join(" or ")), "", &[], true);
}

#[test]
fn a_prefilter_in_the_kernel_takes_the_same_for_several_workers_and_by_the_letter_of_libpcap() {
    let Some(live) = Live::or_skip() else { return };
    check_prefilter(&live, "udp or arp", ",workers=2", &[], true);
    for prefilter in ["udp", "not ip", "vlan and ip6"] {
        check_prefilter(&live, prefilter, "", &["--vlan", "exact"], true);
    }
}

#[test]
fn a_prefilter_in_the_kernel_sees_through_a_snap_length_as_one_in_the_worker_does() {
    let Some(live) = Live::or_skip() else { return };
    check_prefilter(&live, "udp[8:4] != 0 or ip6[60] > 100", ",snaplen=64", &[], true);
    check_prefilter(&live, "not ether[70] = 0", ",snaplen=96", &[], true);
}

#[test]
fn a_prefilter_that_the_kernel_would_run_another_way_runs_in_the_worker() {
    let Some(live) = Live::or_skip() else { return };
    check_prefilter(&live, "ip6 protochain 6", "", &[], false);
    check_prefilter(&live, "ip[0] << ip[1] != 0", "", &[], false);
}

/// Ethernet frames of the session 10.0.0.9:50000 -> 10.0.0.1:22, both ways and in IPv6, and of what only
/// looks like it.
fn session_and_others() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let tcp = |from: &str, to: &str, flags| {
        frame::tcp(from.parse().unwrap(), to.parse().unwrap(), 1, flags, b"typed")
    };
    let plain = |ip: &[u8]| frame::on_link(ETHERNET, &[], ip);
    let (client, server) = ("10.0.0.9:50000", "10.0.0.1:22");
    let to = tcp(client, server, 24);
    let with_options = [&[0x46][..], &to[1..20], &[1, 1, 1, 0], &to[20..]].concat();
    let own = vec![
        plain(&to),
        plain(&tcp(server, client, 16)),
        plain(&with_options),
        frame::on_link(ETHERNET, &[Tag::q(5)], &to),
    ];
    let mut later_fragment = to.clone();
    later_fragment[7] = 1;
    let udp = frame::udp(client.parse().unwrap(), server.parse().unwrap(), b"no session");
    let mut others: Vec<Vec<u8>> = [
        tcp("10.0.0.9:50001", server, 24),
        tcp(client, "10.0.0.1:23", 24),
        tcp("10.0.0.8:50000", server, 24),
        tcp(client, "10.0.0.2:22", 24),
        tcp("10.0.0.1:50000", "10.0.0.9:22", 24),
        later_fragment,
        udp,
    ]
    .iter()
    .map(|ip| plain(ip))
    .collect();
    // Cut before the ports, and the longest header with nothing behind it.
    others.push(plain(&to[..20]));
    others.push(plain(&[&[0x4f][..], &to[1..40]].concat()));
    others.extend(mixed_frames(3, 20));
    (own, others)
}

#[test]
fn one_s_own_ssh_session_stays_out_exactly_and_is_no_loss() {
    let Some(live) = Live::or_skip() else { return };
    let session = [("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.1 22")];
    let (own, others) = session_and_others();
    type Begin = fn(&Live, &[&str], &[(&str, &str)]) -> Recording;
    let ways: [(&str, Begin); 3] = [
        ("afpacket:vb,exclude-self=on", Recording::begin),
        ("afpacket:vb,exclude-self=on,prefilter=len > 0", Recording::begin_below),
        ("pcap:vb,exclude-self=on", Recording::begin),
    ];
    for (source, begin) in ways {
        let recording = begin(&live, &["--source", source], &session);
        live.sender().send(&[own.clone(), others.clone()].concat()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let recorded = recording.end();
        let found: Vec<&Vec<u8>> = recorded.packets.keys().map(|(data, ..)| data).collect();
        assert!(own.iter().all(|frame| !found.contains(&frame)), "{source}: the session was captured");
        assert!(
            others.iter().all(|frame| found.contains(&frame)),
            "{source}: more than the session was left out"
        );
        assert_eq!(recorded.done.summary().received.packets, others.len() as u64, "{source}");
        let said = "not counted as loss: tcp 10.0.0.1:22 <-> 10.0.0.9:50000";
        assert!(recorded.done.stderr.contains(said), "no '{said}' in {}", recorded.done.stderr);
        assert!(recorded.start.contains(said), "{}", recorded.start);
    }
}

#[test]
fn a_session_over_ipv6_stays_out_and_without_a_session_it_is_said() {
    let Some(live) = Live::or_skip() else { return };
    let tcp = |from: &str, to: &str| {
        frame::on_link(ETHERNET, &[], &frame::tcp(from.parse().unwrap(), to.parse().unwrap(), 1, 24, b"x"))
    };
    let (client, server) = ("[2001:db8::9]:50000", "[2001:db8::1]:22");
    let frames = [
        tcp(client, server),
        tcp(server, client),
        tcp(client, "[2001:db8::1]:23"),
        tcp("[2001:db8::8]:50000", server),
    ];
    let with = Recording::begin(
        &live,
        &["-i", "vb", "--exclude-self"],
        &[("SSH_CONNECTION", "2001:db8::9 50000 2001:db8::1 22")],
    );
    live.sender().send(&frames).unwrap();
    let found: Vec<Vec<u8>> = with.end().packets.into_keys().map(|(data, ..)| data).collect();
    assert_eq!(found.len(), 2);
    assert!(found.contains(&frames[2]) && found.contains(&frames[3]));
    if std::env::var_os("SSH_CONNECTION").is_some() {
        return eprintln!("skipped: this test itself runs in an ssh session, which would be found");
    }
    let without = Recording::begin(&live, &["-i", "vb", "--exclude-self"], &[]);
    live.sender().send(&frames).unwrap();
    let without = without.end();
    assert_eq!(without.packets.len(), 4);
    assert!(without.done.stderr.contains("nothing is excluded"), "{}", without.done.stderr);
}

#[test]
fn libpcap_brings_what_the_ring_of_af_packet_brings() {
    let Some(live) = Live::or_skip() else { return };
    for options in ["", ",snaplen=70", ",prefilter=udp or arp"] {
        let ours = Recording::begin(&live, &["--source", &format!("afpacket:vb{options}")], &[]);
        let theirs = Recording::begin(&live, &["--source", &format!("pcap:vb{options}")], &[]);
        let sent = live.sender().send_paced(&frames_of_all_kinds(), 20_000).unwrap();
        let (ours, theirs) = (ours.end(), theirs.end());
        // libpcap doesn't tell the direction.
        let without_direction = |recorded: &Recorded| -> Counted {
            recorded.packets.iter().map(|((data, len, _), &count)| ((data.clone(), *len, 0), count)).collect()
        };
        assert!(
            without_direction(&ours) == without_direction(&theirs),
            "pcap:vb{options} brings other packets"
        );
        assert!(
            (sent - 20..=sent).contains(&theirs.done.summary().received.packets),
            "frames that end inside a tag are dropped"
        );
        assert!(!ours.packets.is_empty());
    }
}

#[test]
fn the_chosen_settings_of_the_kernel_s_ring_are_told() {
    let Some(live) = Live::or_skip() else { return };
    // A veth pair says 10 Gbit/s.
    let recorded = Recording::begin(&live, &["-v", "--source", "afpacket:vb,timeout=7ms,cpus=0"], &[]).end();
    let told =
        "source 'afpacket:vb,timeout=7ms,cpus=0': block=1MiB,blocks=64,timeout=7ms; workers pinned to CPUs 0";
    assert!(recorded.done.stderr.contains(told), "no '{told}' in {}", recorded.done.stderr);
    assert!(recorded.start.contains(told), "{}", recorded.start);
}

#[test]
fn what_libpcap_can_not_is_refused() {
    let Some(live) = Live::or_skip() else { return };
    let command = live.place.command(&["--source", "pcap:nosuch0", "--source", "pcap:vb,workers=2"]);
    let done = Started::new(inside(live.lab.b(), &command)).finish(run::LIMIT);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for word in ["no interface 'nosuch0'; there are: ", "vb", "pcap has no option 'workers'"] {
        assert!(done.stderr.contains(word), "no '{word}' in {}", done.stderr);
    }
}
