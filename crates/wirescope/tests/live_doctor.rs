//! `wirescope doctor` on live runs, and the network card's own counters: each loss is brought about between
//! two namespaces.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, inside, mixed_frames};
use run::{Done, Started, finish, wait_until, wirescope};
use scope_testkit::lab::Namespace;
use scope_testkit::traffic::frame;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One load at a time: the machine may be small.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn doctor(live: &Live) -> Done {
    finish(wirescope(&["doctor", "--json", "--out", live.place.out().to_str().unwrap()]))
}

fn object(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}\n{}", done.stdout, done.stderr))
}

fn findings(done: &Done) -> Vec<Value> {
    object(done)["findings"].as_array().expect("an array").clone()
}

/// The finding of a kind, which has to be there.
fn finding(done: &Done, kind: &str) -> Value {
    let found = findings(done);
    found
        .iter()
        .find(|finding| finding["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind}: {found:#?}"))
        .clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Interrupts a run; its summary.
fn stop(started: Started) -> Value {
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stderr))
}

/// Frames of one kind, `len` bytes of payload each.
fn long_frames(count: u32, len: usize) -> Vec<Vec<u8>> {
    let payload = |number: u32| [&number.to_be_bytes()[..], &vec![0x5a; len]].concat();
    (0..count).map(|number| frame::ethernet(&[], frame::EXPERIMENT, &payload(number))).collect()
}

fn kernel_dropped(summary: &Value) -> u64 {
    summary["dropped"]["kernel"].as_u64().expect("a number")
}

#[test]
fn a_process_that_stood_still_is_found_with_what_it_lost() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "afpacket:vb", "--ring", "160MiB"]);
    let log = live.place.out().join("wirescope.jsonl");
    wait_until("the first status", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"status\""))
    });
    started.stand_still();
    live.sender().send(&long_frames(60_000, 1400)).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let stopped = doctor(&live);
    assert_eq!((stopped.code(), text(&finding(&stopped, "stopped")["sureness"])), (Some(1), "certain"));
    started.signal(libc::SIGCONT);
    wait_until("the loss in the log", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"loss\""))
    });
    let running = doctor(&live);
    assert_eq!((text(&object(&running)["state"]), running.code()), ("running", Some(1)));
    let lost = kernel_dropped(&stop(started));
    let done = doctor(&live);
    let found = finding(&done, "process_stalled");
    assert_eq!(
        (text(&found["stage"]), text(&found["sureness"])),
        ("kernel ring", "certain"),
        "it was told that it goes on: {found}"
    );
    assert!(text(&found["cause"]).contains("a signal had stopped it (SIGSTOP"), "{found}");
    assert_eq!(
        (found["lost_min"].as_u64(), found["lost_max"].as_u64()),
        (Some(lost), Some(lost)),
        "counted exactly"
    );
    assert!(lost > 0 && text(&found["cause"]).contains("stood still for"), "{found}");
}

#[test]
fn a_burst_that_the_kernel_s_ring_does_not_hold_is_found() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["--source", "afpacket:vb", "--ring", "160MiB"]);
    let flood = long_frames(60_000, 1400);
    started.stand_still();
    live.sender().send(&flood).unwrap();
    started.signal(libc::SIGCONT);
    std::thread::sleep(Duration::from_millis(1200));
    let lost = kernel_dropped(&stop(started));
    assert!(lost > 0, "the test did not overrun the kernel's ring");
    let done = doctor(&live);
    // Held up so shortly it is a burst. On a busy machine the flood may take so long that the process stood
    // still, or the worker gets no processor when it goes on.
    let kinds = ["kernel_ring", "process_stalled", "worker_starved"].map(Value::from);
    let of_ring: Vec<Value> =
        findings(&done).into_iter().filter(|found| kinds.contains(&found["kind"])).collect();
    assert_eq!(
        of_ring.iter().filter_map(|found| found["lost_min"].as_u64()).sum::<u64>(),
        lost,
        "{:#?}",
        findings(&done)
    );
    let of_kernel: Vec<&Value> = of_ring.iter().filter(|found| found["stage"] == "kernel ring").collect();
    assert!(of_kernel.iter().all(|found| found["remedies"].to_string().contains("blocks=")), "{of_ring:#?}");
    assert_eq!(done.code(), Some(1));
}

/// A filter that no packet passes, and that takes long to say so.
fn heavy_trigger(number: usize) -> String {
    let hosts: Vec<String> = (0..40).map(|host| format!("host 10.{number}.{host}.1")).collect();
    format!("t{number}={}", hosts.join(" or "))
}

#[test]
fn a_worker_that_its_triggers_make_too_slow_is_found() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    let triggers: Vec<String> = (0..20).map(heavy_trigger).collect();
    let mut orders = vec!["--source", "afpacket:vb", "--ring", "160MiB", "--filter-engine", "interpreter"];
    triggers.iter().for_each(|trigger| orders.extend(["--trigger", trigger]));
    let started = live.start(&orders);
    let from = "10.200.0.1:1000".parse().unwrap();
    let to = "10.200.0.2:2000".parse().unwrap();
    let ip = frame::udp(from, to, &[0x5a; 1400]);
    let frames = vec![frame::on_link(scope_testkit::traffic::ETHERNET, &[], &ip); 10_000];
    let (sender, begun) = (live.sender(), Instant::now());
    let lost = || live.place.log().contains("\"event\":\"loss\"");
    while begun.elapsed() < Duration::from_secs(5) || !lost() {
        assert!(begun.elapsed() < run::LIMIT, "the test did not overrun the worker");
        sender.send(&frames).unwrap();
    }
    let lost = kernel_dropped(&stop(started));
    let done = doctor(&live);
    let of_worker: Vec<Value> = findings(&done)
        .into_iter()
        .filter(|found| found["stage"] == "worker" && found["loses"] == true)
        .collect();
    // On a machine that others use, too, the worker may rather have waited for its processor than used it up.
    let told: u64 = of_worker.iter().filter_map(|found| found["lost_min"].as_u64()).sum();
    assert!(told * 2 > lost, "{told} of {lost} lost packets are the worker's: {:#?}", findings(&done));
    if let Some(busy) = of_worker.iter().find(|found| found["kind"] == "worker_busy") {
        let remedies: Vec<&str> = busy["remedies"].as_array().unwrap().iter().map(text).collect();
        assert!(remedies[0].contains("machine code") && remedies[1].contains("20 are armed"), "{remedies:?}");
    }
}

/// One more link, with addresses and every offload as the kernel has it: `oa` in a, `ob` in b.
fn offloading_link(live: &Live) {
    let (a, b): (&Namespace, &Namespace) = (live.lab.a(), live.lab.b());
    a.ip(&["link", "add", "oa", "type", "veth", "peer", "name", "ob", "netns", b.name()]).unwrap();
    for (namespace, end, address) in [(a, "oa", "10.77.0.1/24"), (b, "ob", "10.77.0.2/24")] {
        namespace.ip(&["addr", "add", address, "dev", end]).unwrap();
        namespace.ip(&["link", "set", end, "up"]).unwrap();
    }
}

/// Sends a megabyte from a to b over TCP.
fn send_by_tcp(live: &Live) {
    let listener = live.lab.b().enter(|| TcpListener::bind("10.77.0.2:7777").expect("a listener"));
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            std::io::copy(&mut stream.take(1 << 20), &mut std::io::sink()).expect("a megabyte")
        });
        let mut stream = live.lab.a().enter(|| TcpStream::connect("10.77.0.2:7777").expect("a connection"));
        stream.write_all(&vec![1; 1 << 20]).expect("a megabyte sent");
        assert_eq!(receiving.join().unwrap(), 1 << 20);
    });
}

#[test]
fn joined_packets_and_open_checksums_are_noted_with_the_line_that_mends_them() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    offloading_link(&live);
    let started = live.start(&["-i", "ob"]);
    send_by_tcp(&live);
    std::thread::sleep(Duration::from_millis(1200));
    started.signal(libc::SIGINT);
    let run = started.finish(run::LIMIT);
    let sender = format!("ip netns exec {} ethtool -K oa", live.lab.a().name());
    assert!(
        run.stderr.contains(&format!("{sender} tso off tx-udp-segmentation off")),
        "said while it goes: {}",
        run.stderr
    );
    let summary: Value = serde_json::from_str(&run.stdout).unwrap();
    let nic = &summary["nic"]["ob"];
    assert!(
        nic["altered"]["joined"].as_u64().unwrap() > 5 && nic["altered"]["unchecked"].as_u64().unwrap() > 5,
        "{nic}"
    );
    let done = doctor(&live);
    assert_eq!(done.code(), Some(0), "nothing is lost: {}", done.stdout);
    let joined = finding(&done, "joined");
    assert_eq!((text(&joined["stage"]), text(&joined["sureness"])), ("NIC", "certain"));
    // What was received is mended where it was sent, and what was sent here.
    let remedy = |kind| command(&finding(&done, kind)).to_string();
    assert_eq!(remedy("joined"), format!("{sender} tso off tx-udp-segmentation off"));
    assert_eq!(remedy("checksums"), format!("{sender} tx off"));
    assert_eq!(remedy("checksums_sent"), "ethtool -K ob tx off");
}

/// The command in the first remedy, behind the words that say what it is for.
fn command(finding: &Value) -> &str {
    let remedy = text(&finding["remedies"][0]);
    remedy.rsplit_once(": ").unwrap_or_else(|| panic!("no command: {remedy}")).1
}

/// Does what the remedies of `kinds` say, in namespace b where they name none; each word that this knows once
/// at least.
fn follow_remedies(live: &Live, done: &Done, kinds: &[&str]) {
    let (a, b) = (live.lab.a(), live.lab.b());
    for kind in kinds {
        let remedy = command(&finding(done, kind)).to_string();
        let mut followed = 0;
        for line in remedy.split(" && ") {
            let (place, settings) =
                line.split_once("ethtool -K ").unwrap_or_else(|| panic!("no command: {remedy}"));
            let namespace = if place.contains(a.name()) { a } else { b };
            let words: Vec<&str> = settings.split(' ').collect();
            for word in words[1..].chunks(2) {
                assert_eq!(word[1], "off", "{remedy}");
                followed += usize::from(namespace.switch_off(words[0], word[0]).is_ok());
            }
        }
        assert!(followed > 0, "{kind}: {remedy}");
    }
}

#[test]
fn the_line_that_is_told_mends_what_was_altered() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    offloading_link(&live);
    let capture = |place: &run::Place| {
        let started = live.start_at(place, &["-i", "ob"]);
        send_by_tcp(&live);
        std::thread::sleep(Duration::from_millis(1200));
        stop(started)["nic"]["ob"]["altered"].clone()
    };
    let altered = capture(&live.place);
    let count = |altered: &Value, name: &str| altered[name].as_u64().expect("a count");
    assert!(
        count(&altered, "joined") > 5 && count(&altered, "unchecked") > count(&altered, "unchecked_sent"),
        "{altered}"
    );
    let done = doctor(&live);
    follow_remedies(&live, &done, &["joined"]);
    let second = run::Place::new();
    let altered = capture(&second);
    assert!(
        count(&altered, "joined") == 0 && count(&altered, "unchecked") > 0,
        "only the lengths are mended: {altered}"
    );
    follow_remedies(&live, &done, &["checksums", "checksums_sent"]);
    let third = run::Place::new();
    let altered = capture(&third);
    assert_eq!(
        (count(&altered, "joined"), count(&altered, "unchecked"), count(&altered, "unchecked_sent")),
        (0, 0, 0),
        "{altered}"
    );
}

#[test]
fn packets_that_the_sending_host_leaves_to_its_card_to_split_are_noted() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    offloading_link(&live);
    let capture = live.place.command(&["-i", "oa"]);
    let started = Started::new(inside(live.lab.a(), &capture));
    let log = live.place.out().join("wirescope.jsonl");
    wait_until("the log's first line", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
    });
    send_by_tcp(&live);
    std::thread::sleep(Duration::from_millis(100));
    let summary = stop(started);
    let altered = &summary["nic"]["oa"]["altered"];
    assert!(altered["split"].as_u64().unwrap() > 5 && altered["joined"] == 0, "{altered}");
    let done = doctor(&live);
    assert_eq!(command(&finding(&done, "split")), "ethtool -K oa tso off tx-udp-segmentation off");
    assert_eq!(command(&finding(&done, "checksums_sent")), "ethtool -K oa tx off");
}

#[test]
fn an_mtu_that_grows_while_capturing_makes_no_joined_packets() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["-i", "vb"]);
    for (namespace, end) in [(live.lab.a(), "va"), (live.lab.b(), "vb")] {
        namespace.ip(&["link", "set", end, "mtu", "4000"]).unwrap();
    }
    live.sender().send(&long_frames(100, 3000)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let summary = stop(started);
    assert_eq!(
        (&summary["received"]["packets"], &summary["nic"]["vb"]["altered"]["joined"]),
        (&100.into(), &0.into())
    );
}

#[test]
fn the_card_counts_what_was_sent_and_cut_packets_are_found() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    let before = mixed_frames(1, 50);
    live.sender().send(&before).unwrap();
    let started = live.start(&["--source", "afpacket:vb,snaplen=100", "-v"]);
    let mut frames = long_frames(300, 1000);
    frames.extend(long_frames(200, 20));
    live.sender().send(&frames).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    let summary = stop(started);
    let nic = &summary["nic"]["vb"];
    assert_eq!(nic["rx_packets"], 500, "since the start, not before: {nic}");
    for counter in ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "rx_crc_errors"] {
        assert_eq!(nic[counter], 0, "{counter}");
    }
    assert_eq!(summary["adds_up"], true);
    let sliced = finding(&doctor(&live), "sliced");
    assert!(
        text(&sliced["cause"]).starts_with(
            "300 packets on vb were truncated to the snap length of 100 \
            bytes"
        ),
        "{sliced}"
    );
}

#[test]
fn the_final_words_tell_the_cards_counters() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    let mut command = wirescope(&["run", "--ring", "16MiB", "-i", "vb", "--out"]);
    command.arg(live.place.out());
    let started = Started::new(inside(live.lab.b(), &command));
    let log = live.place.out().join("wirescope.jsonl");
    wait_until("the log's first line", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
    });
    live.sender().send(&long_frames(40, 100)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert!(done.stdout.contains("nic       vb: 40 packets received, no losses counted"), "{}", done.stdout);
}

#[test]
fn a_run_to_which_nothing_comes_is_told_why() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    stop(live.start(&["-i", "vb"]));
    let done = doctor(&live);
    let idle = finding(&done, "idle");
    assert_eq!((text(&idle["sureness"]), done.code()), ("likely", Some(0)), "nothing came, nothing is lost");
    assert!(text(&idle["cause"]).contains("nothing arrives at this interface"), "{idle}");

    let Some(live) = Live::or_skip() else { return };
    stop(live.start(&["--source", "afpacket:vb,promisc=off"]));
    assert!(text(&finding(&doctor(&live), "idle")["cause"]).contains("only packets for this host"));

    let Some(live) = Live::or_skip() else { return };
    live.lab.b().ip(&["link", "set", "vb", "down"]).unwrap();
    stop(live.start(&["-i", "vb"]));
    let idle = finding(&doctor(&live), "idle");
    assert_eq!(text(&idle["sureness"]), "certain");
    assert_eq!(command(&idle), "ip link set dev vb up");
}

#[test]
fn packets_that_capture_got_and_nobody_else_wanted_are_no_loss() {
    let _alone = alone();
    let Some(live) = Live::or_skip() else { return };
    let started = live.start(&["-i", "vb"]);
    // Of many kinds, for which this namespace has no protocol: the kernel counts some as dropped behind
    // capture.
    live.sender().send(&mixed_frames(1, 400)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let summary = stop(started);
    assert_eq!(summary["received"]["packets"], 400);
    assert!(
        summary["nic"]["vb"]["rx_dropped"].as_u64().unwrap() > 0,
        "the kernel counts as it did: {}",
        summary["nic"]
    );
    let done = doctor(&live);
    assert_eq!(
        (done.code(), finding(&done, "rx_dropped")["loses"].as_bool()),
        (Some(0), Some(false)),
        "{}",
        done.stdout
    );
}
