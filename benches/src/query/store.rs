//! The store that is asked: made once, kept between calls, and read whole before it is used.
//!
//! ```text
//!  generator ─► capture file ─► `wirescope run`, two workers that share it ─► target/bench/query-NMiB/store
//! ```
//! What is known of its packets by construction stands beside it. The capture file goes as soon as the run has ended.

use super::survey::Survey;
use super::traffic::{self, Known, LANES};
use crate::store::stored_run::{self, Way};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::traffic::Random;
use serde_json::Value;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Sizes are whole multiples of this.
const STEP_BYTES: u64 = 256 << 20;
const CHUNK_BYTES: usize = 1 << 20;
/// Of a segment's packets that are kept in memory for filters.
const SAMPLE_BYTES: usize = 128 << 20;
/// Length of a span that is asked for, ns.
pub const SPAN_NS: i64 = 10_000_000_000;
/// What stands beside the store.
const KNOWN: &str = "known.json";
/// Of all segments, those with the host: what was meant, and how far from it they may be.
const HOST_SHARE: (f64, f64) = (0.1, 0.03);

/// It, and what is known of it.
pub struct Store {
    /// Its folder.
    pub folder: PathBuf,
    /// Its files, oldest first.
    pub files: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
    /// What its packets are.
    pub known: Known,
    /// What it was found to have.
    pub survey: Survey,
    /// Spans of 10 s anywhere in it, ns; how many packets each has, the survey says.
    pub spans: Vec<(i64, i64)>,
}

/// The store of at most `bytes`: a third of the disk's room or of the memory, if that is less. The one that is there if
/// it is right, else a new one.
///
/// # Errors
/// The system's, and what a run says.
pub fn prepare(workspace: &Workspace, bytes: u64, spans: usize) -> Result<Store> {
    let bytes = least(workspace, bytes);
    let place = workspace.scratch.join(format!("query-{}MiB", bytes >> 20));
    if let Some(known) = kept(&place) {
        match looked_at(&place, known, spans) {
            Ok(store) => return Ok(store),
            Err(error) => eprintln!("{}: made again: {error:#}", place.display()),
        }
    }
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    eprintln!("making {} (kept for the next time)", place.display());
    let known = make(workspace, &place, bytes)?;
    looked_at(&place, known, spans)
}

/// A third of what there is, if that is less than `bytes`.
fn least(workspace: &Workspace, bytes: u64) -> u64 {
    let has = |name: &str| name.starts_with("query-") && name.ends_with("MiB");
    let entries = fs::read_dir(&workspace.scratch).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(has)).map(|entry| entry.path());
    let kept: u64 = ours
        .flat_map(|place| stored_run::files(&place.join("store")).unwrap_or_default())
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum();
    let disk = scope_machine::disk::disk(&workspace.scratch).map_or(u64::MAX, |disk| disk.free_bytes);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory = memory.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let memory = memory.map_or(u64::MAX, |kib| kib << 10);
    let third = (disk.saturating_add(kept).min(memory) / 3) / STEP_BYTES * STEP_BYTES;
    bytes.min(third.max(STEP_BYTES))
}

fn kept(place: &Path) -> Option<Known> {
    let text = fs::read_to_string(place.join(KNOWN)).ok()?;
    Known::read(&serde_json::from_str::<Value>(&text).ok()?)
}

/// Makes it aside; it gets its name when it is whole.
fn make(workspace: &Workspace, place: &Path, bytes: u64) -> Result<Known> {
    let aside = tempfile::Builder::new().prefix("making-query-").tempdir_in(&workspace.scratch)?;
    let store = aside.path().join("store");
    fs::create_dir(&store)?;
    let capture = aside.path().join("in.pcap");
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, File::create(&capture)?);
    let known = traffic::write(bytes, &mut out).with_context(|| capture.display().to_string())?;
    drop(out);
    let source = format!("file:{},workers={LANES}", capture.display());
    let arguments = ["--source", &source, "--ring", "512MiB", "--segment", "2MiB", "--store-file", "1GiB"];
    let finished =
        stored_run::start(workspace, &store, Way::Uring, &arguments)?.finish(stored_run::END_LIMIT)?;
    fs::remove_file(&capture)?;
    finished.check_packets(known.all.packets)?;
    let stored = stored_run::packets(stored_run::volume(&finished)?, "stored");
    ensure!(stored == known.all.packets, "{stored} packets are on the disk of {}", known.all.packets);
    drop(finished);
    fs::write(aside.path().join(KNOWN), known.json().to_string())?;
    fs::rename(aside.keep(), place).with_context(|| place.display().to_string())?;
    Ok(known)
}

/// Reads it whole: what it has must be what is known.
fn looked_at(place: &Path, known: Known, spans: usize) -> Result<Store> {
    eprintln!("reading {} whole", place.display());
    let folder = place.join("store");
    let files = stored_run::files(&folder)?;
    let spans = spans_within(&known, spans);
    let survey = Survey::of(&files, &spans, SAMPLE_BYTES)?;
    ensure!(survey.found == known, "it has {:?}, made was {known:?}", survey.found);
    let share = survey.columns.len() as f64 / survey.segments as f64;
    let (meant, apart) = HOST_SHARE;
    ensure!((share - meant).abs() < apart, "{:.1} % of the segments have the host", share * 100.0);
    Ok(Store { bytes: stored_run::bytes_of(&files)?, folder, files, known, survey, spans })
}

/// Spans of [`SPAN_NS`] anywhere.
fn spans_within(known: &Known, count: usize) -> Vec<(i64, i64)> {
    let mut random = Random::new(10);
    let room = (known.last_ns - known.first_ns - SPAN_NS).max(1) as u64;
    let span = |_| {
        let from_ns = known.first_ns + random.below(room) as i64;
        (from_ns, from_ns + SPAN_NS)
    };
    (0..count).map(span).collect()
}
