//! Interfaces that come, go, flap and change while they are captured, with rights and without, alone and many
//! by one worker.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_support;

use live_support::{Kept, LIMIT, add_link, drop_capabilities, frames, make_again, take_up, wait_for_link};
use scope_source::afpacket::{self, AfPacketOptions, AfPacketSource, PORTS_MAX};
use scope_source::{InterfaceCounters, InterfaceEvent, InterfaceState, Polled, Source, SourceError};
use scope_testkit::lab::{Lab, Namespace, RawSender};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the test sees of a worker while that polls.
#[derive(Default)]
struct Seen {
    news: Mutex<Vec<InterfaceEvent>>,
    warnings: Mutex<Vec<String>>,
    /// Packets that all workers have received.
    received: Arc<AtomicU64>,
    /// Polls of each worker that are over.
    polls: Arc<Vec<AtomicU64>>,
    /// Which of them it is.
    worker: usize,
    over: AtomicBool,
}

impl Seen {
    fn count(&self, interface: &str, state: InterfaceState) -> usize {
        let news = self.news.lock().unwrap();
        news.iter().filter(|news| news.interface == interface && news.state == state).count()
    }

    /// Waits until `interface` was told to be in `state` so many times.
    fn wait_for(&self, interface: &str, state: InterfaceState, times: usize) {
        let begun = Instant::now();
        while self.count(interface, state.clone()) < times {
            assert!(begun.elapsed() < LIMIT, "{interface} {state:?}: {:?}", self.news.lock().unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_packets(&self, received: u64) {
        let begun = Instant::now();
        while self.received.load(Ordering::Relaxed) < received {
            assert!(
                begun.elapsed() < LIMIT,
                "{} of {received} packets",
                self.received.load(Ordering::Relaxed)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Tells the worker that it is over, also when the test panics.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How a worker ended.
struct Ended {
    kept: Kept,
    interfaces: Vec<InterfaceCounters>,
    error: Option<SourceError>,
}

/// Polls until the test is over, then to the source's end; the law holds for each interface.
fn poll_to_the_end(source: &mut AfPacketSource, seen: &Seen) -> Ended {
    let (mut kept, mut interfaces, mut stopped) = (Kept::default(), Vec::new(), false);
    let mut stop_at = Instant::now() + 3 * LIMIT;
    loop {
        if !stopped && seen.over.load(Ordering::Relaxed) {
            (stopped, stop_at) = (true, Instant::now() + LIMIT);
            source.stop();
        }
        let before = kept.packets.len();
        let polled = source.poll(&mut kept);
        seen.polls[seen.worker].fetch_add(1, Ordering::Relaxed);
        seen.received.fetch_add((kept.packets.len() - before) as u64, Ordering::Relaxed);
        seen.news.lock().unwrap().extend(source.interface_events());
        seen.warnings.lock().unwrap().extend(source.warnings());
        assert!(Instant::now() < stop_at, "it doesn't end");
        if let Ok(Polled::Packets | Polled::Nothing) = polled {
            continue;
        }
        source.interface_counters(&mut interfaces, &mut Vec::new());
        for entry in &interfaces {
            let counters = entry.counters;
            assert_eq!(counters.offered, counters.received + counters.kernel_dropped, "{entry:?}");
            assert_eq!(counters.received, kept.of(&entry.interface).len() as u64, "{entry:?}");
        }
        assert_eq!(source.counters().kernel_dropped, kept.dropped);
        return Ended { kept, interfaces, error: polled.err() };
    }
}

/// Captures by `sources`, a thread of namespace a each, while `task` runs.
fn capture_during(
    lab: &Lab,
    sources: Vec<AfPacketSource>,
    rights: Rights,
    task: impl FnOnce(&Seen),
) -> (Vec<Ended>, Seen) {
    let received = Arc::new(AtomicU64::new(0));
    let polls: Arc<Vec<AtomicU64>> = Arc::new(sources.iter().map(|_| AtomicU64::new(0)).collect());
    let of_worker =
        |worker| Seen { received: received.clone(), polls: polls.clone(), worker, ..Seen::default() };
    let seen: Vec<Seen> = (0..sources.len()).map(of_worker).collect();
    let ended = std::thread::scope(|scope| {
        let workers: Vec<_> = sources
            .into_iter()
            .zip(&seen)
            .map(|(mut source, seen)| {
                scope.spawn(move || {
                    lab.a().enter(|| {
                        if rights == Rights::Dropped {
                            drop_capabilities();
                        }
                        poll_to_the_end(&mut source, seen)
                    })
                })
            })
            .collect();
        {
            let _over: Vec<_> = seen.iter().map(|seen| SetAtEnd(&seen.over)).collect();
            task(&seen[0]);
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    (ended, seen.into_iter().next().unwrap())
}

#[derive(Clone, Copy, PartialEq)]
enum Rights {
    Kept,
    Dropped,
}

/// 8 MiB for each interface and worker.
fn options(interface: &str, workers: u32) -> AfPacketOptions {
    AfPacketOptions { workers, ..AfPacketOptions::new(interface) }.with_small_ring()
}

/// Waits until so many packet sockets are bound to `interface`, and until the polls that bound them, and do
/// the rest, are over.
fn wait_for_sockets(lab: &Lab, seen: &Seen, interface: &str, sockets: usize) {
    let begun = Instant::now();
    let bound = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
        let index = index_of(interface).to_string();
        table.lines().filter(|line| line.split_whitespace().nth(4) == Some(&index)).count()
    };
    while lab.a().enter(bound) < sockets {
        assert!(begun.elapsed() < LIMIT, "{interface} has no {sockets} sockets");
        std::thread::sleep(Duration::from_millis(1));
    }
    let polls = || seen.polls.iter().map(|polls| polls.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let before = polls();
    while polls().iter().zip(&before).any(|(now, before)| now < &(before + 2)) {
        assert!(begun.elapsed() < LIMIT, "a worker doesn't come round: {:?}", polls());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open_in(namespace: &Namespace, options: &AfPacketOptions) -> Vec<AfPacketSource> {
    namespace.enter(|| afpacket::open(options, &format!("afpacket:{}", options.interface))).unwrap()
}

/// A burst of frames, and when it was sent.
struct Burst {
    from: Instant,
    to: Instant,
    frames: Vec<Vec<u8>>,
}

/// Sends some 20,000 packets a second until it is over, all different.
fn send_bursts(sender: &RawSender, over: &AtomicBool, sent: &AtomicU64) -> Vec<Burst> {
    let mut bursts = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let frames = frames(bursts.len() as u32, 20, 200);
        let from = Instant::now();
        sender.send(&frames).unwrap();
        bursts.push(Burst { from, to: Instant::now(), frames });
        sent.store(bursts.len() as u64, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
    bursts
}

/// The frames that were sent while the interface was up.
fn due<'a>(bursts: &'a [Burst], down: &[(Instant, Instant)]) -> Vec<&'a Vec<u8>> {
    let is_due = |burst: &&Burst| down.iter().all(|(from, to)| burst.to < *from || burst.from > *to);
    bursts.iter().filter(is_due).flat_map(|burst| &burst.frames).collect()
}

fn check_flaps_lose_nothing(workers: u32) {
    const FLAPS: usize = 50;
    let Some(lab) = Lab::or_skip() else { return };
    let sender = RawSender::open(lab.b(), "vb").unwrap();
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut bursts, mut down) = (Vec::new(), Vec::new());
    let (ended, seen) =
        capture_during(&lab, open_in(lab.a(), &options("va", workers)), Rights::Kept, |seen| {
            std::thread::scope(|scope| {
                let set_at_end = SetAtEnd(&over);
                let sending = scope.spawn(|| send_bursts(&sender, &over, &sent));
                // At least six bursts begin and end in it.
                let pass_load = || {
                    let (begun, before) = (Instant::now(), sent.load(Ordering::Relaxed));
                    while sent.load(Ordering::Relaxed) < before + 7 {
                        assert!(begun.elapsed() < LIMIT, "{before} bursts sent, and no more");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                };
                for flap in 1..=FLAPS {
                    pass_load();
                    let from = Instant::now();
                    lab.a().ip(&["link", "set", "va", "down"]).unwrap();
                    lab.a().ip(&["link", "set", "va", "up"]).unwrap();
                    wait_for_link(lab.b(), "vb");
                    down.push((from, Instant::now()));
                    seen.wait_for("va", InterfaceState::Up, flap);
                }
                pass_load();
                drop(set_at_end);
                bursts = sending.join().unwrap();
            });
            seen.wait_for_packets(due(&bursts, &down).len() as u64);
            std::thread::sleep(Duration::from_millis(100));
        });
    let received: BTreeSet<&[u8]> = ended.iter().flat_map(|ended| ended.kept.of("va")).collect();
    let due = due(&bursts, &down);
    let lost = due.iter().filter(|frame| !received.contains(&frame[..])).count();
    eprintln!(
        "{workers} workers, {FLAPS} flaps: {} packets sent, {} of them while the interface was up, \
         interface_flap_loss {lost}",
        20 * bursts.len(),
        due.len()
    );
    assert!(due.len() > 5000, "{}: no load", due.len());
    assert_eq!(lost, 0);
    assert_eq!(
        (seen.count("va", InterfaceState::Down), seen.count("va", InterfaceState::Up)),
        (FLAPS, FLAPS)
    );
    assert!(ended.iter().all(|ended| ended.kept.interfaces.len() == 1 && ended.error.is_none()));
}

#[test]
fn fifty_flaps_under_load_lose_nothing_but_what_was_sent_meanwhile() {
    check_flaps_lose_nothing(1);
}

#[test]
fn fifty_flaps_under_load_lose_nothing_with_two_workers() {
    check_flaps_lose_nothing(2);
}

fn check_one_made_again_is_captured_again(options: &AfPacketOptions, rights: Rights, times: u32) {
    let Some(lab) = Lab::or_skip() else { return };
    let load = |round| frames(round, 300, 120);
    let (ended, seen) = capture_during(&lab, open_in(lab.a(), options), rights, |seen| {
        RawSender::open(lab.b(), "vb").unwrap().send(&load(0)).unwrap();
        for round in 1..=times {
            make_again(&lab);
            seen.wait_for("va", InterfaceState::Back, round as usize);
            if options.workers > 1 {
                wait_for_sockets(&lab, seen, "va", options.workers as usize); // also those of the other workers, who tell nothing
            }
            take_up(&lab, "va", "vb");
            RawSender::open(lab.b(), "vb").unwrap().send(&load(round)).unwrap();
        }
        seen.wait_for_packets(300 * (1 + u64::from(times)));
    });
    let mut received: Vec<&[u8]> = ended.iter().flat_map(|ended| ended.kept.of("va")).collect();
    let sent: Vec<Vec<u8>> = (0..=times).flat_map(load).collect();
    received.sort();
    assert!(
        received == sent,
        "{} of {} received: {:?}",
        received.len(),
        sent.len(),
        seen.news.lock().unwrap()
    );
    assert_eq!(seen.count("va", InterfaceState::Gone), times as usize);
    for ended in &ended {
        assert!(ended.error.is_none(), "{:?}", ended.error);
        assert_eq!(
            (ended.kept.interfaces.len(), ended.interfaces.len()),
            (1, 1),
            "it is the same interface again"
        );
    }
}

#[test]
fn an_interface_that_is_made_again_is_captured_again() {
    check_one_made_again_is_captured_again(&options("va", 1), Rights::Kept, 5);
    check_one_made_again_is_captured_again(&options("va", 2), Rights::Kept, 5);
    check_one_made_again_is_captured_again(&options("v*", 1), Rights::Kept, 5);
}

#[test]
fn without_rights_one_socket_serves_its_interface_again_and_again() {
    let bare = AfPacketOptions { spares: Some(0), ..options("va", 1) };
    check_one_made_again_is_captured_again(&bare, Rights::Dropped, 5);
    check_one_made_again_is_captured_again(
        &AfPacketOptions { spares: Some(0), ..options("v*", 1) },
        Rights::Dropped,
        5,
    );
}

#[test]
fn without_rights_spare_sockets_serve_an_interface_of_two_workers_again() {
    check_one_made_again_is_captured_again(
        &AfPacketOptions { spares: Some(2), ..options("va", 2) },
        Rights::Dropped,
        2,
    );
}

#[test]
fn without_rights_and_spare_sockets_it_ends_with_the_remedy() {
    let Some(lab) = Lab::or_skip() else { return };
    let bare = AfPacketOptions { spares: Some(0), ..options("va", 2) };
    let (ended, seen) = capture_during(&lab, open_in(lab.a(), &bare), Rights::Dropped, |seen| {
        RawSender::open(lab.b(), "vb").unwrap().send(&frames(0, 300, 120)).unwrap();
        lab.a().ip(&["link", "del", "va"]).unwrap();
        seen.wait_for("va", InterfaceState::Gone, 1);
        seen.wait_for_packets(300); // what the rings held is taken
        add_link(&lab, "va", "vb");
        seen.wait_for("va", InterfaceState::Refused, 1);
    });
    assert_eq!(ended.iter().map(|ended| ended.kept.packets.len()).sum::<usize>(), 300);
    // The other worker may be stopped before it has met that.
    let said: Vec<String> =
        ended.iter().filter_map(|ended| ended.error.as_ref()).map(ToString::to_string).collect();
    assert!(!said.is_empty(), "nothing can come any more");
    assert!(said.iter().all(|said| said.contains("'va'") && said.contains("spare=")), "{said:?}");
    assert!(seen.news.lock().unwrap().iter().any(|news| news.text.contains("spare=")));
}

#[test]
fn a_pattern_takes_what_matches_now_and_what_comes_later() {
    for (rights, workers) in [(Rights::Kept, 1), (Rights::Dropped, 1), (Rights::Dropped, 2)] {
        let Some(lab) = Lab::or_skip() else { return };
        let some = AfPacketOptions { spares: Some(2), ..options("v*", workers) };
        let (ended, seen) = capture_during(&lab, open_in(lab.a(), &some), rights, |seen| {
            assert_eq!(seen.count("lo", InterfaceState::New), 0);
            seen.wait_for("va", InterfaceState::New, 1);
            seen.wait_for("afpacket:v*", InterfaceState::Spare(2), 1);
            for round in 1..=2u32 {
                let (end_a, end_b) = (format!("va{round}"), format!("vb{round}"));
                add_link(&lab, &end_a, &end_b);
                seen.wait_for(&end_a, InterfaceState::New, 1);
                wait_for_sockets(&lab, seen, &end_a, workers as usize);
                take_up(&lab, &end_a, &end_b);
                RawSender::open(lab.b(), &end_b).unwrap().send(&frames(round, 300, 120)).unwrap();
            }
            RawSender::open(lab.b(), "vb").unwrap().send(&frames(9, 300, 120)).unwrap();
            if rights == Rights::Dropped {
                // Both spare sockets are in use.
                add_link(&lab, "va3", "vb3");
                seen.wait_for("va3", InterfaceState::Refused, 1);
            }
            if rights == Rights::Dropped && workers == 1 {
                // The socket of one that goes is free for it.
                seen.wait_for_packets(900);
                lab.a().ip(&["link", "del", "va1"]).unwrap();
                seen.wait_for("va3", InterfaceState::New, 1);
                take_up(&lab, "va3", "vb3");
                RawSender::open(lab.b(), "vb3").unwrap().send(&frames(3, 300, 120)).unwrap();
                seen.wait_for_packets(1200);
            }
            seen.wait_for_packets(900);
        });
        let last = (rights == Rights::Dropped && workers == 1).then_some(("va3", 3));
        for (name, seed) in [("va", 9), ("va1", 1), ("va2", 2)].into_iter().chain(last) {
            let mut received: Vec<&[u8]> = ended.iter().flat_map(|ended| ended.kept.of(name)).collect();
            received.sort();
            assert!(received == frames(seed, 300, 120), "{name}: {} received", received.len());
        }
        let refused: Vec<String> = seen
            .news
            .lock()
            .unwrap()
            .iter()
            .filter(|news| news.state == InterfaceState::Refused)
            .map(|news| news.text.clone())
            .collect();
        assert_eq!(refused.len(), usize::from(rights == Rights::Dropped), "{refused:?}");
        assert!(refused.iter().all(|text| text.contains("va3") && text.contains("spare=")), "{refused:?}");
        assert!(ended.iter().all(|ended| ended.error.is_none()));
    }
}

#[test]
fn a_pattern_takes_so_many_interfaces_and_says_which_it_does_not() {
    let Some(lab) = Lab::or_skip() else { return };
    for number in 0..=PORTS_MAX / 2 {
        let (end_a, end_b) = (format!("m{number}"), format!("n{number}"));
        lab.a().ip(&["link", "add", &end_a, "type", "veth", "peer", "name", &end_b]).unwrap();
    }
    let tiny = AfPacketOptions { block_bytes: 64 << 10, blocks: 2, ..AfPacketOptions::new("*") };
    let mut source = open_in(lab.a(), &tiny).remove(0);
    let news = source.interface_events();
    let of =
        |state| news.iter().filter(|news| news.state == state).map(|news| &news.text).collect::<Vec<_>>();
    // These, lo and va.
    assert_eq!((of(InterfaceState::New).len(), of(InterfaceState::Refused).len()), (PORTS_MAX, 4));
    assert!(of(InterfaceState::Refused).iter().all(|text| text.contains("at most 64")), "{news:?}");
}

#[test]
fn a_pattern_that_matches_nothing_yet_waits() {
    let Some(lab) = Lab::or_skip() else { return };
    let (ended, seen) = capture_during(&lab, open_in(lab.a(), &options("later*", 1)), Rights::Kept, |seen| {
        add_link(&lab, "later0", "vb9");
        seen.wait_for("later0", InterfaceState::New, 1);
        take_up(&lab, "later0", "vb9");
        RawSender::open(lab.b(), "vb9").unwrap().send(&frames(1, 100, 80)).unwrap();
        seen.wait_for_packets(100);
    });
    assert_eq!(ended[0].kept.of("later0").len(), 100);
    assert!(seen.warnings.lock().unwrap().iter().any(|text| text.contains("no interface matches yet")));
}

#[test]
fn without_rights_the_socket_of_one_that_is_gone_serves_one_of_another_name() {
    let Some(lab) = Lab::or_skip() else { return };
    let bare = AfPacketOptions { spares: Some(0), ..options("v*", 1) };
    let (ended, _) = capture_during(&lab, open_in(lab.a(), &bare), Rights::Dropped, |seen| {
        RawSender::open(lab.b(), "vb").unwrap().send(&frames(0, 300, 120)).unwrap();
        for round in 1..=3u32 {
            let old = if round == 1 { "va".to_string() } else { format!("v{}", round - 1) };
            let (end_a, end_b) = (format!("v{round}"), format!("w{round}"));
            lab.a().ip(&["link", "del", &old]).unwrap();
            add_link(&lab, &end_a, &end_b);
            seen.wait_for(&end_a, InterfaceState::New, 1);
            take_up(&lab, &end_a, &end_b);
            RawSender::open(lab.b(), &end_b).unwrap().send(&frames(round, 300, 120)).unwrap();
        }
        seen.wait_for_packets(1200);
    });
    for (name, seed) in [("va", 0), ("v1", 1), ("v2", 2), ("v3", 3)] {
        assert!(ended[0].kept.of(name) == frames(seed, 300, 120), "{name}");
    }
}

#[test]
fn more_changes_than_can_be_told_are_found_all_the_same() {
    let Some(lab) = Lab::or_skip() else { return };
    let mut sources = open_in(lab.a(), &options("va", 1));
    let index = lab.a().enter(|| index_of("va"));
    // Nobody reads meanwhile. At the end there is another interface of the same name and number, and one is
    // gone for good.
    for round in 0..400 {
        lab.a().ip(&["link", "set", "va", "mtu", &(1000 + round).to_string()]).unwrap();
    }
    lab.a().ip(&["link", "del", "va"]).unwrap();
    let made = [
        "link",
        "add",
        "va",
        "index",
        &index.to_string(),
        "arp",
        "off",
        "type",
        "veth",
        "peer",
        "name",
        "vb",
    ];
    lab.a().ip(&[&made[..], &["netns", lab.b().name()]].concat()).unwrap();
    take_up(&lab, "va", "vb");
    let mut kept = Kept::default();
    let begun = Instant::now();
    let mut states = Vec::new();
    while !states.contains(&InterfaceState::Back) {
        sources[0].poll(&mut kept).unwrap();
        states.extend(sources[0].interface_events().into_iter().map(|news| news.state));
        assert!(begun.elapsed() < LIMIT, "{states:?}");
    }
    assert!(states.len() < 400, "the socket took all in, so nothing was tried");
    RawSender::open(lab.b(), "vb").unwrap().send(&frames(1, 300, 120)).unwrap();
    while kept.packets.len() < 300 {
        sources[0].poll(&mut kept).unwrap();
        assert!(begun.elapsed() < LIMIT, "{} packets", kept.packets.len());
    }
    assert!(kept.of("va") == frames(1, 300, 120));
}

/// The number of interface `name` of this thread's namespace.
fn index_of(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a C string that lives through the call.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

#[test]
fn frames_of_a_larger_mtu_come_whole() {
    let Some(lab) = Lab::or_skip() else { return };
    let long = frames(2, 50, 9014);
    let (ended, seen) = capture_during(&lab, open_in(lab.a(), &options("va", 1)), Rights::Kept, |seen| {
        RawSender::open(lab.b(), "vb").unwrap().send(&frames(1, 50, 1514)).unwrap();
        lab.a().ip(&["link", "set", "va", "mtu", "9000"]).unwrap();
        lab.b().ip(&["link", "set", "vb", "mtu", "9000"]).unwrap();
        seen.wait_for("va", InterfaceState::Mtu(9000), 1);
        RawSender::open(lab.b(), "vb").unwrap().send(&long).unwrap();
        seen.wait_for_packets(100);
    });
    let received = ended[0].kept.of("va");
    assert!(received[..50] == frames(1, 50, 1514) && received[50..] == long, "{} received", received.len());
    assert!(seen.warnings.lock().unwrap().is_empty());
}

#[test]
fn an_mtu_beyond_a_block_is_told() {
    let Some(lab) = Lab::or_skip() else { return };
    let small = AfPacketOptions { block_bytes: 64 << 10, ..options("va", 1) };
    let (_, seen) = capture_during(&lab, open_in(lab.a(), &small), Rights::Kept, |seen| {
        lab.a().ip(&["link", "set", "va", "mtu", "65535"]).unwrap();
        seen.wait_for("va", InterfaceState::Mtu(65535), 1);
    });
    let warnings = seen.warnings.lock().unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("are truncated"), "{warnings:?}");
}

#[test]
fn a_link_that_is_lost_at_the_other_end_is_told() {
    let Some(lab) = Lab::or_skip() else { return };
    let (_, seen) = capture_during(&lab, open_in(lab.a(), &options("va", 1)), Rights::Kept, |seen| {
        lab.b().ip(&["link", "set", "vb", "down"]).unwrap();
        seen.wait_for("va", InterfaceState::Down, 1);
        lab.b().ip(&["link", "set", "vb", "up"]).unwrap();
        seen.wait_for("va", InterfaceState::Up, 1);
    });
    assert!(seen.news.lock().unwrap()[0].text.contains("lost its link"), "{:?}", seen.news.lock().unwrap());
}

#[test]
fn an_interface_that_is_renamed_is_captured_on_and_once() {
    let Some(lab) = Lab::or_skip() else { return };
    let (ended, seen) = capture_during(&lab, open_in(lab.a(), &options("v*", 1)), Rights::Kept, |seen| {
        lab.a().ip(&["link", "set", "va", "down"]).unwrap();
        lab.a().ip(&["link", "set", "va", "name", "vx"]).unwrap();
        take_up(&lab, "vx", "vb");
        seen.wait_for("va", InterfaceState::Up, 1);
        RawSender::open(lab.b(), "vb").unwrap().send(&frames(1, 300, 120)).unwrap();
        seen.wait_for_packets(300);
    });
    assert!(ended[0].kept.of("va") == frames(1, 300, 120));
    assert_eq!(seen.count("vx", InterfaceState::New), 0);
    assert_eq!(seen.count("va", InterfaceState::Renamed { from: "va".into(), to: "vx".into() }), 1);
    let [entry] = &ended[0].interfaces[..] else { panic!("{:?}", ended[0].interfaces) };
    assert_eq!((&entry.interface[..], &entry.called[..]), ("va", "vx"));
}

#[test]
fn one_that_takes_the_name_of_a_renamed_one_is_another_interface() {
    let Some(lab) = Lab::or_skip() else { return };
    let mut source = open_in(lab.a(), &options("v*", 1)).remove(0);
    let (mut kept, mut told) = (Kept::default(), Vec::new());
    let mut poll_until =
        |source: &mut AfPacketSource, kept: &mut Kept, state: InterfaceState, times: usize| {
            let begun = Instant::now();
            while told.iter().filter(|told| **told == state).count() < times {
                source.poll(kept).unwrap();
                told.extend(source.interface_events().into_iter().map(|news| news.state));
                assert!(begun.elapsed() < LIMIT, "{state:?}: {told:?}");
            }
        };
    let names = |source: &mut AfPacketSource| {
        let mut interfaces = Vec::new();
        source.interface_counters(&mut interfaces, &mut Vec::new());
        interfaces
            .iter()
            .map(|entry| (entry.interface.to_string(), entry.called.to_string()))
            .collect::<Vec<_>>()
    };
    lab.a().ip(&["link", "set", "va", "down"]).unwrap();
    lab.a().ip(&["link", "set", "va", "name", "vx"]).unwrap();
    poll_until(&mut source, &mut kept, InterfaceState::Renamed { from: "va".into(), to: "vx".into() }, 1);
    add_link(&lab, "va", "vb9");
    poll_until(&mut source, &mut kept, InterfaceState::New, 2);
    let pair = |interface: &str, called: &str| (interface.to_string(), called.to_string());
    assert_eq!(names(&mut source), [pair("va", "vx"), pair("va", "va")]);
    lab.a().ip(&["link", "del", "vx"]).unwrap();
    poll_until(&mut source, &mut kept, InterfaceState::Gone, 1);
    assert_eq!(names(&mut source), [pair("va", "va"), pair("va", "va")], "what is gone is called nothing");
}

#[test]
fn counts_of_interfaces_that_are_gone_are_not_copied_at_each_poll() {
    let Some(lab) = Lab::or_skip() else { return };
    let mut source = open_in(lab.a(), &options("v*", 1)).remove(0);
    let (mut kept, mut interfaces, mut states) = (Kept::default(), Vec::new(), Vec::new());
    RawSender::open(lab.b(), "vb").unwrap().send(&frames(1, 100, 80)).unwrap();
    lab.a().ip(&["link", "del", "va"]).unwrap();
    add_link(&lab, "v2", "w2");
    let begun = Instant::now();
    // Long enough that the socket of the one that is gone has served its time.
    while kept.packets.len() < 100
        || !states.contains(&InterfaceState::Gone)
        || begun.elapsed() < Duration::from_millis(300)
    {
        source.poll(&mut kept).unwrap();
        source.interface_counters(&mut interfaces, &mut Vec::new());
        states.extend(source.interface_events().into_iter().map(|news| news.state));
        assert!(begun.elapsed() < LIMIT, "{states:?}");
    }
    assert_eq!(
        interfaces.iter().map(|entry| (&entry.interface[..], entry.counters.received)).collect::<Vec<_>>(),
        [("va", 100), ("v2", 0)]
    );
    // A mark stays where nothing has changed.
    interfaces[0].counters.received = 12345;
    interfaces[1].counters.received = 12345;
    source.poll(&mut kept).unwrap();
    let mut changed = Vec::new();
    source.interface_counters(&mut interfaces, &mut changed);
    assert_eq!(interfaces.iter().map(|entry| entry.counters.received).collect::<Vec<_>>(), [12345, 0]);
    assert_eq!(changed, [1], "what was put right is named");
    let mut anew = Vec::new();
    source.interface_counters(&mut anew, &mut Vec::new());
    assert_eq!(anew.iter().map(|entry| entry.counters.received).collect::<Vec<_>>(), [100, 0]);
    assert_eq!(source.counters().received, 100);
}

#[test]
fn one_worker_serves_three_interfaces_and_none_is_starved() {
    let Some(lab) = Lab::or_skip() else { return };
    let others: Vec<(String, String)> = (0..2).map(|_| lab.another_link().unwrap()).collect();
    // Each ring holds all that is sent, so that nothing is lost either where the worker hardly ever runs.
    let spec = |name: &str| {
        (AfPacketOptions { blocks: 160, ..options(name, 0) }, format!("afpacket:{name},workers=0"))
    };
    let source = lab
        .a()
        .enter(|| afpacket::open_shared(&[spec("va"), spec(&others[0].0), spec(&others[1].0)]))
        .unwrap();
    assert_eq!(source.name(), "afpacket:va,workers=0 + afpacket:va1,workers=0 + afpacket:va2,workers=0");
    let (flood, slow) = (frames(0, 60_000, 100), [frames(1, 200, 100), frames(2, 200, 100)]);
    let (mut ended, _) = capture_during(&lab, vec![source], Rights::Kept, |seen| {
        let flooding = RawSender::open(lab.b(), "vb").unwrap();
        let slowly = others
            .iter()
            .map(|(_, end_b)| RawSender::open(lab.b(), end_b).unwrap())
            .zip(&slow)
            .collect::<Vec<_>>();
        // 60 of the flood in each millisecond, and in the first fifth of it one of each slow one.
        for (step, part) in flood.chunks(60).enumerate() {
            flooding.send(part).unwrap();
            for (sender, frames) in &slowly {
                sender.send(frames.get(step..=step).unwrap_or_default()).unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.wait_for_packets(60_400);
    });
    let Ended { kept, interfaces, .. } = ended.remove(0);
    assert_eq!(
        kept.interfaces.iter().map(|interface| (&interface.name[..], interface.part)).collect::<Vec<_>>(),
        [("va", 0), ("va1", 1), ("va2", 2)]
    );
    assert_eq!(kept.dropped, 0, "{interfaces:?}");
    assert!(kept.of("va1") == slow[0] && kept.of("va2") == slow[1]);
    let of_flood = interfaces[0].counters;
    assert_eq!(of_flood.offered, flood.len() as u64);
    // The slow ones' packets lie among the flood's, not behind it.
    let last_slow = kept.packets.iter().rposition(|(interface, _)| *interface == 1).unwrap();
    assert!(last_slow < kept.packets.len() / 2, "packet {last_slow} of {}", kept.packets.len());
}
