//! Runs of the program into stores, several into each: what came, and where it is.

use crate::traffic::{
    Capture, Conversations, ETHERNET, Interface, LINUX_SLL, Precision, RAW, Random, dropped, pcapng,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs that share a store.
const RUNS_OF_STORE: usize = 4;
const SECOND_NS: i64 = 1_000_000_000;

/// A run, by what it was given.
pub struct Run {
    /// Its packets, in the order in which they came.
    pub capture: Capture,
    /// What its files said that they lack.
    pub lacks: Vec<Lack>,
}

/// What a capture file says that it lacks, without a time.
#[derive(Clone, Copy, Debug)]
pub struct Lack {
    /// From when to when it may be missing, ns.
    pub span_ns: (i64, i64),
    /// Packets; `None`: the file is truncated, and nobody knows.
    pub packets: Option<u64>,
}

/// A store, by its runs.
pub struct Store {
    /// Its folder.
    pub folder: PathBuf,
    /// The runs that wrote it.
    pub runs: Vec<usize>,
}

/// All of them.
pub struct Scene {
    /// Runs.
    pub runs: Vec<Run>,
    /// Stores.
    pub stores: Vec<Store>,
}

impl Scene {
    /// Makes them in `folder`.
    ///
    /// # Errors
    /// What a run said.
    pub fn make(program: &Path, folder: &Path, random: &mut Random, runs: usize) -> Result<Scene, String> {
        let mut scene = Scene { runs: Vec::new(), stores: Vec::new() };
        for number in 0..runs {
            if number % RUNS_OF_STORE == 0 {
                let folder = folder.join(format!("store{}", scene.stores.len()));
                scene.stores.push(Store { folder, runs: Vec::new() });
            }
            let Some(store) = scene.stores.last_mut() else { continue };
            let capture = capture(random, number);
            let lacks = run(program, folder, &store.folder, &capture, random)
                .map_err(|fault| format!("run {number}: {fault}"))?;
            store.runs.push(number);
            scene.runs.push(Run { capture, lacks });
        }
        Ok(scene)
    }
}

/// What a run is given: its main matter by its number, so that all are met.
fn capture(random: &mut Random, number: usize) -> Capture {
    let types: &[u16] = match number % 7 {
        0 => &[ETHERNET],
        1 => &[ETHERNET, ETHERNET],
        2 => &[RAW],
        3 => &[ETHERNET, RAW],
        4 => &[LINUX_SLL],
        5 => &[ETHERNET, LINUX_SLL, RAW],
        _ => &[ETHERNET, ETHERNET, ETHERNET],
    };
    let named = |(at, &link_type): (usize, &u16)| Interface::new(&format!("port{at}"), link_type);
    let start_ns = crate::traffic::random::START_NS + random.below(20) as i64 * SECOND_NS;
    let mut capture = Conversations {
        seed: random.word(),
        packets: 200 + random.below(1000) as usize,
        interfaces: types.iter().enumerate().map(named).collect(),
        start_ns,
        gap_ns: random.pick(&[1_000_000, 5_000_000, 20_000_000]),
        vlan: random.pick(&[0, 30, 30]),
        ties: random.pick(&[0, 0, 30]),
        payload_max: random.pick(&[100, 700, 1400]),
        ..Conversations::default()
    }
    .capture();
    for _ in 0..random.below(3) {
        let from = random.below(capture.packets.len() as u64) as usize;
        let step_ns = random.pick(&[3600, -3600, 30, -7, -1]) * SECOND_NS;
        for packet in &mut capture.packets[from..] {
            packet.time_ns += step_ns;
        }
    }
    if random.chance(30) {
        capture.disorder(random, 50_000_000);
    }
    capture
}

/// What is put behind a file of these packets of a run, so that it says that it lacks some; and what it says.
fn lossy(part: &Capture, run: &Capture, random: &mut Random) -> (Vec<u8>, Vec<Lack>) {
    let (mut bytes, mut lacks) = (Vec::new(), Vec::new());
    let (Some(span_ns), Some(run_ns), Some(last)) = (part.span_ns(), run.span_ns(), part.packets.last())
    else {
        return (bytes, lacks);
    };
    if random.chance(30) {
        let packets = 1 + random.below(50);
        let interface = random.below(part.interfaces.len() as u64) as usize;
        bytes.extend(dropped(interface, packets, span_ns.1));
        lacks.push(Lack { span_ns, packets: Some(packets) });
    }
    if random.chance(30) {
        bytes.extend([6, 0, 0, 0, 200, 0, 0, 0, 0, 0]); // a packet block begins, and ends too early
        lacks.push(Lack { span_ns: (last.time_ns, run_ns.1), packets: None });
    }
    (bytes, lacks)
}

/// Puts a capture into a store, as one source or as two; what their files said that they lack.
fn run(
    program: &Path,
    folder: &Path,
    store: &Path,
    capture: &Capture,
    random: &mut Random,
) -> Result<Vec<Lack>, String> {
    let mut lacks = Vec::new();
    let sources = random.pick(&[1, 1, 2]);
    let out = folder.join("out");
    fs::create_dir_all(&out).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg("run").arg("--store").arg(store).arg("--out").arg(&out);
    command.args(["--segment", random.pick(&["64KiB", "128KiB"]), "--ring", "16MiB", "--quiet"]);
    for source in 0..sources {
        let indices: Vec<usize> = (source..capture.packets.len()).step_by(sources).collect();
        let file = folder.join(format!("in{source}.pcapng"));
        let part = capture.subset(&indices);
        let (behind, of_part) = lossy(&part, capture, random);
        lacks.extend(of_part);
        let bytes = [pcapng(&part, Precision::Nano, false), behind].concat();
        fs::write(&file, bytes).map_err(|error| error.to_string())?;
        command.arg("--source").arg(format!("file:{}", file.display()));
    }
    let done = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(lacks),
        false => Err(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim())),
    }
}
