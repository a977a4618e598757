//! `wirescope bench`: what this machine can sustain at which packet size, and what limits it, in plain words.
//!
//! ```text
//! memory   a ring, prefaulted, and a quarter as much beside it, which is filled past the caches: the limit of all storing
//! rows     packet sizes, each with one worker, one worker and a reader, and as many workers as there are cores
//! rounds   every row once, three times; the middle value counts; every run checks what lies in the ring, byte for byte
//! ```
//! Packets are made, parsed, keyed and appended as a worker does it. What the kernel and the card need to
//! deliver them comes on top, and isn't measured here.

mod words;

use crate::NoResult;
use crate::args::BenchArgs;
use crate::plan::faults::{bad, of_ring, such_as};
use crate::speech::{Level, say};
use scope_fault::Fault;
use scope_machine::Machine;
use scope_measure::{Arena, Beside, Feeder, Packets, Run, Sizes, fill_rate};
use scope_ring::{Form, Ring, RingError, RingMemory};
use scope_spelling::figures::counted;
use scope_spelling::values::parse_size;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest ring that is taken unasked, bytes.
const RING_BYTES_DEFAULT: u64 = 1 << 30;
/// Smallest ring that says anything: caches must not hold it.
const RING_BYTES_MIN: u64 = 64 << 20;
/// The ring that is taken unasked is this part of free memory.
const FREE_SHARE: u64 = 4;
/// Bytes beside the ring that are filled, as a part of it.
const ARENA_SHARE: u64 = 4;
/// Interleaved rounds.
const ROUNDS: usize = 3;
/// Workers at most.
const WORKERS_MAX: usize = 8;
/// How long one run aims to take.
const RUN: Duration = Duration::from_millis(150);

const SIZES: [(&str, Sizes); 5] = [
    ("64 B", Sizes::Fixed(64)),
    ("128 B", Sizes::Fixed(128)),
    ("512 B", Sizes::Fixed(512)),
    ("1518 B", Sizes::Fixed(1518)),
    ("IMIX", Sizes::Imix),
];

/// One line of the table.
struct Row {
    size: &'static str,
    packets: usize,
    workers: usize,
    reader: bool,
    /// Per round: the time of a packet, ns.
    ns: Vec<f64>,
    /// Most packets that the reader missed in a round, as a share of all.
    missed: f64,
}

/// Everything that was measured.
struct Figures {
    machine: String,
    ring_bytes: u64,
    segment_bytes: u64,
    /// How packets are written.
    form: Form,
    prefault: Duration,
    memory: RingMemory,
    /// Bytes per ns with one thread and with `workers`.
    fill_one: f64,
    fill_all: f64,
    workers: usize,
    sources: Vec<Packets>,
    rows: Vec<Row>,
}

/// Measures, and says it as text for standard output.
///
/// # Errors
/// Where the ring can't be had, or a result doesn't check.
pub fn bench(args: &BenchArgs) -> Result<String, NoResult> {
    let form = Form::choose().map_err(|error| NoResult::Refused(vec![Fault::whole(error.to_string())]))?;
    let ring_bytes = ring_bytes(args.ring.as_deref()).map_err(|fault| NoResult::Refused(vec![fault]))?;
    say(
        Level::Info,
        &format!(
            "measuring for 10 to 20 s, with {} of memory; keep the machine quiet",
            crate::words::size(ring_bytes)
        ),
    );
    let figures = measure(ring_bytes, form)?;
    Ok(words::report(&figures))
}

/// The ring that is asked for, or what suits the machine, bytes.
fn ring_bytes(asked: Option<&str>) -> Result<u64, Fault> {
    let (available, limit) = Machine::this().available(None);
    let size = crate::words::size;
    let Some(text) = asked else {
        let bytes = (available / FREE_SHARE).min(RING_BYTES_DEFAULT) >> 21 << 21;
        if bytes >= RING_BYTES_MIN {
            return Ok(bytes);
        }
        let (free, needed) = (size(available), size(RING_BYTES_MIN * FREE_SHARE));
        let fault =
            Fault::whole(format!("too little memory: {free} are free ({limit}), {needed} are needed"));
        return Err(fault.remedy("end other programs"));
    };
    let fault = Fault::of("ring");
    let bytes = match parse_size(text) {
        Ok(bytes) => bytes,
        Err(cause) => return Err(bad(fault, cause).remedy(such_as("ring", "1GiB"))),
    };
    match bytes {
        ..RING_BYTES_MIN => {
            Err(fault.value(text, "is too small: caches hold it").remedy("write 64MiB or more"))
        }
        bytes if bytes + bytes / ARENA_SHARE > available => {
            let is = format!(
                "and a quarter beside it is more than the {} that are free ({limit})",
                size(available)
            );
            Err(fault.value(text, is).remedy("write less"))
        }
        bytes => Ok(bytes),
    }
}

fn measure(ring_bytes: u64, form: Form) -> Result<Figures, NoResult> {
    let system = |error: RingError| NoResult::Failed(of_ring(&error, &[]));
    let failed = |cause: String| NoResult::Failed(Fault::whole(cause));
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(WORKERS_MAX);
    let begun = Instant::now();
    let ring = scope_measure::ring(ring_bytes, None, workers as u32).map_err(system)?;
    let prefault = begun.elapsed();
    let memory = ring.memory();
    let mut arena = Arena::new(ring_bytes / ARENA_SHARE).map_err(system)?;
    let feeders = (0..workers as u32).map(|worker| Feeder::new(&ring, worker)).collect::<Result<Vec<_>, _>>();
    let mut feeders = feeders.map_err(system)?;
    let sources: Vec<Packets> = SIZES.iter().map(|(_, sizes)| Packets::new(*sizes)).collect();
    let mut rows = rows(workers);
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(fill_rate(&mut arena, 1).map_err(failed)?);
        all.push(fill_rate(&mut arena, workers).map_err(failed)?);
        for row in &mut rows {
            row.measure(&ring, &sources[row.packets], &mut feeders).map_err(failed)?;
        }
    }
    Ok(Figures {
        machine: machine(),
        form,
        ring_bytes,
        segment_bytes: ring.segment_bytes() as u64,
        prefault,
        memory,
        fill_one: middle(&one),
        fill_all: middle(&all),
        workers,
        sources,
        rows,
    })
}

/// All lines: what one core can do with several is left out where there is only one.
fn rows(workers: usize) -> Vec<Row> {
    let forms: &[(usize, bool)] =
        if workers == 1 { &[(1, false)] } else { &[(1, false), (1, true), (workers, false)] };
    let of_size = |(index, (size, _)): (usize, &(&'static str, Sizes))| {
        let row = |&(workers, reader): &(usize, bool)| Row {
            size,
            packets: index,
            workers,
            reader,
            ns: Vec::new(),
            missed: 0.0,
        };
        forms.iter().map(row).collect::<Vec<_>>()
    };
    SIZES.iter().enumerate().flat_map(of_size).collect()
}

impl Row {
    /// One round. The first one begins with a short run, which says how many packets take long enough.
    fn measure(&mut self, ring: &Arc<Ring>, source: &Packets, feeders: &mut [Feeder]) -> Result<(), String> {
        let beside = if self.reader { Beside::Packets } else { Beside::Nobody };
        let run = |packets: u64, feeders: &mut [Feeder]| {
            Run { ring, source, packets, beside }.measure(&mut feeders[..self.workers]).map_err(|fault| {
                format!(
                    "{} with {}: {fault}; this is a defect, please report it",
                    self.size,
                    counted(self.workers as u64, "worker")
                )
            })
        };
        let known = match self.ns.first() {
            Some(ns) => *ns,
            None => run(200_000, feeders)?.0,
        };
        let packets = (RUN.as_nanos() as f64 / known.max(1.0)) as u64 / self.workers as u64;
        let (ns, followed) = run(packets.max(10_000), feeders)?;
        self.ns.push(ns);
        let missed = followed
            .map_or(0.0, |followed| followed.missed as f64 / (followed.seen + followed.missed) as f64);
        self.missed = self.missed.max(missed);
        Ok(())
    }
}

/// The value in the middle; 0 without values.
fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// The CPU as the kernel calls it, and the kernel.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, kernel {}", name.unwrap_or("unknown CPU"), kernel.trim())
}
