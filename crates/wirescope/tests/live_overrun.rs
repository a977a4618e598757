//! A worker that is stopped and starved while the kernel's ring overruns: no dump says complete and lacks a
//! packet, whichever way of capture.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, Numbers, came, faults, now_ns};
use run::{LIMIT, Started, wait_until};
use scope_testkit::lab::witness::Witness;
use scope_testkit::oracle::truth::{HIT_PORT, Truth, WITNESS_NS};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of them one in a while goes to the port that fires; small, so that a ring has many.
const FRAME_BYTES: usize = 300;
/// How often the run is stopped, and then its worker starved.
const PULSES: u32 = 8;
/// Hits between two of them.
const HITS: u32 = 8;
const STOPPED: Duration = Duration::from_millis(40);
const STARVED: Duration = Duration::from_millis(60);
/// Triggers that never fire and cost the worker some ten microseconds a packet each, so that it can't keep
/// up.
const COSTLY: usize = 6;
/// Numbers that such a one compares a packet with.
const COMPARISONS: u64 = 600;

/// Windows that reach 10 ms back and 15 ms ahead, much less than a slow worker's poll takes.
fn config() -> String {
    let mut text =
        "holdoff = 0\ndumps-max = 200\nfilter-engine = \"interpreter\"\nbefore = \"10ms\"\nafter = \
         \"15ms\"\n"
            .to_string();
    text += "[[trigger]]\nname = \"hit\"\nexpr = \"udp dst port 9\"\ndump = \"\"\n";
    let numbers: Vec<String> =
        (0..COMPARISONS).map(|number| format!("udp[9:4]={}", 4_000_000_000 + number)).collect();
    for costly in 0..COSTLY {
        text += &format!(
            "[[trigger]]\nname = \"costly{costly}\"\nexpr = \"{}\"\ndump = \"\"\n",
            numbers.join(" or ")
        );
    }
    text
}

/// Keeps one processor busy for a thread of the run that may run nowhere else, and only where nobody else
/// wants to.
fn starve(started: &Started, time: Duration) {
    let Some(worker) = started.thread("worker-0") else { return };
    // SAFETY: all-zero bytes are a valid set.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: processor 0 has its place in every set.
    unsafe { libc::CPU_SET(0, &mut one) };
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: the set lives through the calls and has this length; a thread that has ended is an error, and
    // nothing else.
    unsafe {
        libc::sched_setaffinity(worker, len, &raw const one);
        libc::setpriority(libc::PRIO_PROCESS, worker as libc::id_t, 19);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let busy = std::thread::spawn(move || {
        // SAFETY: as above; 0 is this thread.
        unsafe { libc::sched_setaffinity(0, len, &raw const one) };
        while !stopped.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    std::thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
}

fn overrun(source: &str) {
    let Some(live) = Live::or_skip() else { return };
    let witness = Witness::begin(live.lab.b(), "vb").unwrap();
    let began_ns = now_ns();
    let config_path = live.place.path("triggers.toml");
    std::fs::write(&config_path, config()).unwrap();
    let orders = [
        "--source",
        source,
        "--config",
        config_path.to_str().unwrap(),
        "--ring",
        "64MiB",
        "--segment",
        "64KiB",
    ];
    let started = live.start_at(&live.place, &orders);
    // A calm begin, in which nothing is lost.
    let numbers = Numbers::begin(&live, 1, FRAME_BYTES);
    for _ in 0..HITS {
        numbers.hit(HIT_PORT);
        std::thread::sleep(Duration::from_millis(60));
    }
    live.wait_for_dumps(1);
    numbers.set_rate(40);
    // As often as planned, and on until one lacks something: how soon that is, is a matter of the machine's
    // load.
    let lacks = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        line["event"] == "dump" && line["lost_max"].as_u64() > Some(0)
    };
    let (begun, mut pulses) = (Instant::now(), 0);
    while pulses < PULSES || !live.place.log().lines().any(lacks) {
        assert!(begun.elapsed() < LIMIT, "nothing was lost in {pulses} pulses");
        pulses += 1;
        for _ in 0..HITS {
            numbers.hit(HIT_PORT);
            std::thread::sleep(Duration::from_millis(10));
        }
        started.signal(libc::SIGSTOP);
        numbers.hit(HIT_PORT);
        std::thread::sleep(STOPPED);
        started.signal(libc::SIGCONT);
        numbers.hit(HIT_PORT);
        starve(&started, STARVED);
    }
    let begun = Instant::now();
    numbers.set_rate(1);
    wait_until("quiet", || begun.elapsed() > Duration::from_millis(200));
    numbers.end();
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    let summary: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stderr));
    let dumps = summary["dumps"].as_array().expect("dumps");
    let truth = Truth {
        came: came(witness),
        unheard: vec![(0, began_ns), (now_ns(), i64::MAX)],
        same_ns: WITNESS_NS,
    };
    let complete = dumps.iter().filter(|dump| dump["complete"] == true).count();
    let lacking = dumps.iter().filter(|dump| dump["lost_max"].as_u64() > Some(0)).count();
    assert_eq!(faults(&truth, dumps, None), Vec::<String>::new());
    let dropped = &summary["dropped"]["kernel"];
    // How many are complete is a matter of the machine's load.
    assert!(lacking > 0, "{complete} complete, {lacking} lacking of {}; {dropped} dropped", dumps.len());
}

#[test]
fn no_dump_of_an_overrun_ring_says_complete_and_lacks_a_packet() {
    overrun("afpacket:vb,block=64KiB,blocks=32,timeout=4ms");
}

#[test]
fn no_dump_of_an_overrun_capture_through_libpcap_says_complete_and_lacks_a_packet() {
    overrun("pcap:vb,buffer=2MiB,timeout=4ms");
}
