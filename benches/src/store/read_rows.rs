//! A store that is read: `wirescope verify` against one thread that reads and hashes the same files, and how
//! much of the files is index.
//!
//! The files are made once, of segments of 2 MiB with packets of mixed sizes, and read before each measurement, so
//! that the page cache has them.

use super::place::Place;
use super::stored_run::{self, Way};
use super::turns::by_turns;
use crate::Scale;
use crate::figures::median;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_store::{State, StoredFile};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;
use twox_hash::XxHash3_128;

/// Rows, and what each is of.
pub const SPEED: &str = "verify_speed";
pub const VERIFY: &str = "wirescope verify";
pub const HASH: &str = "one thread that reads and hashes";
pub const INDEX: &str = "index_bytes";
pub const MIXED: &str = "2 MiB segments, mixed sizes";
/// Measurements of each kind in a round.
const TURNS: usize = 5;
/// Bytes that are read and hashed at a time: those of a segment.
const CHUNK_BYTES: usize = 2 << 20;
/// Of the mix, what a packet takes in a segment on average: data, padding, block and key entry.
const MIXED_BYTES_STORED: u64 = 362 + 1 + 32 + 16;

/// All rounds.
pub fn measure(place: &Place, workspace: &Workspace, scale: Scale, table: &mut Table) {
    let store = match made(place, workspace, scale.store_read_bytes) {
        Ok(store) => store,
        Err(error) => {
            let why = format!("{error:#}");
            table.leave_out(SPEED, VERIFY, "MB/s", &why);
            table.leave_out(SPEED, HASH, "MB/s", &why);
            return table.leave_out(INDEX, MIXED, "", &why);
        }
    };
    table.put(INDEX, MIXED, "", store.index_share().map_err(|error| format!("{error:#}")));
    for round in 0..scale.rounds {
        table.begin_round(round);
        let speeds = by_turns(round % 2 == 0, TURNS, |ours| match ours {
            true => store.verify_speed(workspace),
            false => store.hash_speed(),
        });
        for (of, speeds) in [HASH, VERIFY].into_iter().zip(speeds) {
            let speed = speeds.and_then(|speeds| median(&speeds).ok_or_else(|| "nothing".to_string()));
            table.put(SPEED, of, "MB/s", speed);
        }
    }
    if let Err(error) = place.empty("store") {
        table.put(SPEED, VERIFY, "MB/s", Err(format!("{error:#}")));
    }
}

/// A store that is read.
struct Store {
    folder: PathBuf,
    files: Vec<PathBuf>,
    bytes: u64,
    packets: u64,
}

fn made(place: &Place, workspace: &Workspace, bytes: u64) -> Result<Store> {
    let folder = place.empty("store")?;
    let packets = bytes / MIXED_BYTES_STORED;
    let source = format!("synth:packets={packets},size=imix,pace=max,seed=1");
    let arguments = ["--source", &source, "--ring", "512MiB", "--segment", "2MiB", "--store-file", "1GiB"];
    let finished =
        stored_run::start(workspace, &folder, Way::Uring, &arguments)?.finish(stored_run::END_LIMIT)?;
    stored_run::check_all_stored(&finished, packets, Way::Uring)?;
    let files = stored_run::files(&folder)?;
    let bytes = stored_run::bytes_of(&files)?;
    Ok(Store { folder, files, bytes, packets })
}

impl Store {
    /// What is behind the last segment of each file, of all bytes.
    fn index_share(&self) -> Result<f64> {
        let index: u64 = self.files.iter().map(|file| index_bytes(file)).sum::<Result<u64>>()?;
        Ok(index as f64 / self.bytes as f64)
    }

    fn warm(&self) -> Result<()> {
        for file in &self.files {
            io::copy(&mut File::open(file)?, &mut io::sink())?;
        }
        Ok(())
    }

    /// Bytes of files per second, in millions.
    fn verify_speed(&self, workspace: &Workspace) -> Result<f64> {
        self.warm()?;
        let begun = Instant::now();
        let report = stored_run::verify(workspace, &self.folder)?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(report["packets"] == self.packets, "{} packets of {}", report["packets"], self.packets);
        Ok(self.bytes as f64 / seconds / 1e6)
    }

    fn hash_speed(&self) -> Result<f64> {
        self.warm()?;
        let begun = Instant::now();
        let bytes = self.files.iter().map(|file| hashed(file)).sum::<Result<u64>>()?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(bytes == self.bytes, "{bytes} bytes were read of {}", self.bytes);
        Ok(self.bytes as f64 / seconds / 1e6)
    }
}

fn index_bytes(file: &Path) -> Result<u64> {
    let stored = StoredFile::open(File::open(file)?).with_context(|| file.display().to_string())?;
    ensure!(stored.state() == State::Closed, "{} isn't closed", file.display());
    ensure!(stored.segment_bytes() == CHUNK_BYTES, "segments of {} bytes", stored.segment_bytes());
    let last =
        stored.segments().last().map_or(stored.head_bytes(), |facts| facts.offset + CHUNK_BYTES as u64);
    Ok(stored.bytes() - last)
}

/// Reads and hashes a file; how many bytes.
fn hashed(path: &Path) -> Result<u64> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok(bytes);
        }
        std::hint::black_box(XxHash3_128::oneshot(&chunk[..read]));
        bytes += read as u64;
    }
}
