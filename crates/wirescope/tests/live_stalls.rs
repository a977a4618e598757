//! A disk or a pipe that stands still for longer than a turn of the ring, under traffic: what pins can hold
//! is in the dump, and what it lacks is stated.
//!
//! Needs root, `fsfreeze` and loop devices; says so and passes without, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, Numbers, came, faults, inside, now_ns};
use run::{LIMIT, skip, wait_until, wirescope};
use scope_testkit::lab::disk::{self, Disk, Kind, own_mounts};
use scope_testkit::lab::witness::Witness;
use scope_testkit::oracle::truth::{HIT_PORT, Truth, WITNESS_NS};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Half of it is what dumps may hold.
const RING_BYTES: u64 = 8 << 20;
/// A turn of it takes 2.7 s at least: no thread of the run waits so long for a processor.
const RING: [&str; 4] = ["--ring", "8MiB", "--segment", "64KiB"];
/// Frames that come in a millisecond at most: a window of 300 ms has at most 1 MB.
const PER_MS: u64 = 3;
const FRAME_BYTES: usize = 1000;
/// Fires the window that outlasts everything.
const LONG_PORT: u16 = 10;

/// The triggers: one whose window dumps can hold, and one whose window only the end of the run ends. A place
/// is free a moment after its dump has a name: so there are two.
const TRIGGERS: &str = "
dumps-max = 2
holdoff = 0
[[trigger]]
name = \"short\"
expr = \"udp dst port 9\"
dump = \"\"
before = \"100ms\"
after = \"200ms\"
[[trigger]]
name = \"long\"
expr = \"udp dst port 10\"
dump = \"\"
before = \"100ms\"
after = \"300s\"
";

/// Why it lacks something: each reason once.
fn reasons(dump: &Value) -> Vec<&str> {
    let reasons: BTreeSet<&str> =
        dump["gaps"].as_array().expect("gaps").iter().filter_map(|gap| gap["reason"].as_str()).collect();
    reasons.into_iter().collect()
}

#[test]
fn a_frozen_disk_costs_nothing_that_pins_can_hold_and_what_it_costs_is_stated() {
    let Some(live) = Live::or_skip() else { return };
    if let Some(lacking) = disk::lacks() {
        return skip(lacking);
    }
    own_mounts().unwrap();
    let mut disk = Disk::mount(Kind::Own(256), &live.place.out()).unwrap();
    let config = live.place.path("triggers.toml");
    std::fs::write(&config, TRIGGERS).unwrap();
    let witness = Witness::begin(live.lab.b(), "vb").unwrap();
    let began_ns = now_ns();
    let orders = ["--source", "afpacket:vb", "--config", config.to_str().unwrap()];
    let started = live.start_at(&live.place, &[&RING[..], &orders].concat());
    let numbers = Numbers::begin(&live, PER_MS, FRAME_BYTES);
    numbers.pass(RING_BYTES);

    // What pins can hold: the hit, its window, and a turn and a half of the ring come while nothing can be
    // written.
    disk.freeze().unwrap();
    numbers.hit(HIT_PORT);
    numbers.pass(RING_BYTES * 3 / 2);
    assert_eq!(live.dumps(), 0);
    disk.thaw().unwrap();
    live.wait_for_dumps(1);

    // What they can't: the window goes on, more than two turns come meanwhile.
    numbers.hit(LONG_PORT);
    numbers.pass(RING_BYTES / 4);
    disk.freeze().unwrap();
    numbers.pass(RING_BYTES * 5 / 2);
    disk.thaw().unwrap();
    numbers.pass(RING_BYTES / 4);

    // It is stopped while nothing can be written, and ends when everything is.
    disk.freeze().unwrap();
    numbers.pass(RING_BYTES / 4);
    let sent = numbers.end();
    started.signal(libc::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(live.dumps() == 1 && started.threads().len() > 1, "it waits for its disk");
    disk.thaw().unwrap();
    let done = started.finish(LIMIT);

    let summary: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stderr));
    let dumps = summary["dumps"].as_array().expect("dumps");
    assert_eq!((dumps.len(), done.code()), (2, Some(1)), "{}", done.stderr);
    let truth = Truth {
        came: came(witness),
        unheard: vec![(0, began_ns), (now_ns(), i64::MAX)],
        same_ns: WITNESS_NS,
    };
    assert_eq!(truth.came.len() as u64, sent);
    assert_eq!(faults(&truth, dumps, None), Vec::<String>::new());
    assert_eq!((&dumps[0]["complete"], &dumps[0]["error"]), (&true.into(), &Value::Null), "{:#}", dumps[0]);
    assert!(dumps[0]["packets"].as_u64().unwrap() > 100, "{:#}", dumps[0]);
    assert_eq!(reasons(&dumps[1]), ["evicted", "stopped"], "{:#}", dumps[1]);
    assert!(dumps[1]["lost_min"].as_u64().unwrap() > 1000, "{:#}", dumps[1]);
    // Capture itself went on.
    let dropped = summary["dropped"].as_object().expect("dropped");
    assert!(dropped.values().all(|packets| packets == 0), "{dropped:?}");
    assert_eq!(
        (&summary["received"]["packets"], &summary["stored"]["packets"]),
        (&sent.into(), &sent.into())
    );
}

/// A run that writes one dump into a pipe whose reader waits for a word; killed when dropped.
struct Piped {
    child: Child,
    read: Option<Sender<()>>,
    piped: Option<JoinHandle<Vec<u8>>>,
    said: Option<JoinHandle<String>>,
}

impl Piped {
    fn start(live: &Live, orders: &[&str]) -> Piped {
        let out = live.place.out();
        let arguments = [
            "run",
            "-w",
            "-",
            "--log-format",
            "json",
            "--source",
            "afpacket:vb",
            "--out",
            out.to_str().unwrap(),
        ];
        let mut command = inside(live.lab.b(), &wirescope(&[&arguments[..], &RING, orders].concat()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (read, word) = channel::<()>();
        let piped = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = word.recv();
            let _ = stdout.read_to_end(&mut all);
            all
        });
        let said = std::thread::spawn(move || {
            let mut all = String::new();
            let _ = stderr.read_to_string(&mut all);
            all
        });
        let log = out.join("wirescope.jsonl");
        let piped = Piped { child, read: Some(read), piped: Some(piped), said: Some(said) };
        wait_until("the log's first line", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
        });
        piped
    }

    /// Lets it be read.
    fn read_on(&mut self) {
        drop(self.read.take());
    }

    fn interrupt(&self) {
        // SAFETY: kill takes no pointers, and the child is not waited for yet, so the number is still its
        // own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) }, 0);
    }

    /// Waits for the run's end: what came through the pipe, and what the run said of its dump.
    fn finish(mut self) -> (Vec<u8>, Value) {
        let piped = self.piped.take().unwrap().join().unwrap();
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < LIMIT, "still running after {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = self.said.take().unwrap().join().unwrap();
        let dump = said
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["event"] == "dump");
        (piped, dump.unwrap_or_else(|| panic!("no dump: {said}"))["dump"].clone())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        drop(self.read.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A dump into a pipe that nobody reads until so many bytes have come behind the hit; `after` ends its
/// window, or else the run's end.
fn stalled_for(bytes: u64, after: Option<&str>) -> Option<Value> {
    let live = Live::or_skip()?;
    let witness = Witness::begin(live.lab.b(), "vb").unwrap();
    let began_ns = now_ns();
    let orders = [
        "--trigger",
        "hit=udp dst port 9",
        "--dump",
        "",
        "--before",
        "100ms",
        "--after",
        after.unwrap_or("300s"),
    ];
    let mut piped = Piped::start(&live, &orders);
    let numbers = Numbers::begin(&live, PER_MS, FRAME_BYTES);
    numbers.pass(RING_BYTES / 2);
    numbers.hit(HIT_PORT);
    numbers.pass(bytes);
    piped.read_on();
    if after.is_none() {
        numbers.pass(RING_BYTES / 4);
        piped.interrupt();
    }
    let (bytes, dump) = piped.finish();
    let ended_ns = now_ns();
    numbers.end();
    let truth = Truth {
        came: came(witness),
        unheard: vec![(0, began_ns), (ended_ns, i64::MAX)],
        same_ns: WITNESS_NS,
    };
    assert_eq!(faults(&truth, std::slice::from_ref(&dump), Some(&bytes)), Vec::<String>::new());
    Some(dump)
}

#[test]
fn a_stalled_pipe_costs_nothing_that_pins_can_hold() {
    let Some(dump) = stalled_for(RING_BYTES * 3 / 2, Some("200ms")) else { return };
    assert_eq!((&dump["complete"], &dump["error"]), (&true.into(), &Value::Null), "{dump:#}");
}

#[test]
fn what_a_stalled_pipe_costs_is_stated() {
    let Some(dump) = stalled_for(RING_BYTES * 5 / 2, None) else { return };
    assert_eq!(dump["complete"], false, "{dump:#}");
    assert_eq!(reasons(&dump), ["evicted", "stopped"], "{dump:#}");
    assert!(dump["lost_min"].as_u64().unwrap() > 0, "{dump:#}");
}
