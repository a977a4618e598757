//! How fast a store is written: by io_uring against fio, by `pwrite` against dd; each writes as many bytes
//! into files of the same size on the same disk, and the time is that until the last of them is safe.
//!
//! ```text
//! ours   generator ─► ring ─► store: waits for the disk          `start` to `end` of its own log
//! fio    its own blocks ─► io_uring, O_DIRECT, as deep as ours   its own clock, `end_fsync` in it
//! dd     /dev/zero ─► page cache ─► fdatasync at the end         from outside
//! ```
//! The generator makes some times as much as the disk takes, and waits for it: nothing is lost.

use super::place::Place;
use super::stored_run::{self, Way};
use crate::Scale;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Rows: by io_uring and by pwrite, and what each is of.
pub const DIRECT: &str = "store_speed";
pub const PLAIN: &str = "store_speed_plain";
pub const OURS: &str = "wirescope";
pub const FIO: &str = "fio";
pub const DD: &str = "dd";
/// Bytes of a file, and of a block: those of a segment.
const FILE_BYTES: u64 = 1 << 30;
const BLOCK_BYTES: u64 = 2 << 20;
/// Bytes that are on their way to the disk at once: as ours has (`DEPTH_BYTES` in scope-store).
const DEPTH_BYTES: u64 = 32 << 20;
/// Of a packet: what is captured, and what it takes in a segment, key entry included.
const PACKET_BYTES: u64 = 1518;
const PACKET_BYTES_STORED: u64 = 1520 + 32 + 16;
/// Blocks that are synced at a time where nothing is known of the disk yet.
const SYNC_BLOCKS_FIRST: u64 = 256;

/// The speed of the disk as it was seen last, bytes per second.
#[derive(Default)]
pub struct Speed(Option<f64>);

impl Speed {
    /// Blocks in a second's worth.
    fn sync_blocks(&self) -> u64 {
        self.0.map_or(SYNC_BLOCKS_FIRST, |speed| (speed / BLOCK_BYTES as f64) as u64).max(1)
    }
}

/// One round of both pairs; who begins changes from round to round.
pub fn round(place: &Place, workspace: &Workspace, scale: Scale, speed: &mut Speed, table: &mut Table) {
    let bytes = scale.store_bytes;
    let ours_first = table.round().is_multiple_of(2);
    for ours in [ours_first, !ours_first] {
        let (of, outcome) = match ours {
            true => (OURS, ours_by(place, workspace, Way::Uring, bytes)),
            false => (FIO, fio(place, bytes, speed.sync_blocks())),
        };
        speed.0 = outcome.as_ref().ok().copied().or(speed.0);
        table.put(DIRECT, of, "MB/s", outcome.map(mb).map_err(|error| format!("{error:#}")));
    }
    for ours in [ours_first, !ours_first] {
        let (of, outcome) = match ours {
            true => (OURS, ours_by(place, workspace, Way::Pwrite, bytes / 2)),
            false => (DD, dd(place, bytes / 2)),
        };
        table.put(PLAIN, of, "MB/s", outcome.map(mb).map_err(|error| format!("{error:#}")));
    }
}

fn mb(bytes: f64) -> f64 {
    bytes / 1e6
}

/// Command lines, for the record.
pub fn settings(bytes: u64) -> Value {
    let fio = fio_arguments(Path::new("FOLDER"), bytes, 1).join(" ");
    serde_json::json!({
        "fio": fio.replace("fdatasync=1", "fdatasync=SECOND"),
        "dd": dd_arguments(Path::new("FILE"), bytes / 2).join(" "),
    })
}

/// Bytes of files per second.
fn ours_by(place: &Place, workspace: &Workspace, way: Way, bytes: u64) -> Result<f64> {
    let store = place.empty("store")?;
    let packets = bytes / PACKET_BYTES_STORED;
    let source = format!("synth:packets={packets},size={PACKET_BYTES},pace=max,seed=1");
    let file_bytes = FILE_BYTES.to_string();
    let arguments = ["--source", &source, "--ring", "512MiB", "--store-file", &file_bytes];
    let run = stored_run::start(workspace, &store, way, &arguments)?;
    let finished = run.finish(stored_run::END_LIMIT)?;
    stored_run::check_all_stored(&finished, packets, way)?;
    let written = stored_run::bytes_of(&stored_run::files(&store)?)?;
    stored_run::check_whole(workspace, &store, packets)?;
    place.empty("store")?;
    Ok(written as f64 / finished.seconds()?)
}

fn fio_arguments(folder: &Path, bytes: u64, sync_blocks: u64) -> Vec<String> {
    let depth = DEPTH_BYTES / BLOCK_BYTES;
    let files = bytes.div_ceil(FILE_BYTES);
    [
        "--name=store --ioengine=io_uring --direct=1 --rw=write --fallocate=keep --end_fsync=1 --thread"
            .to_string(),
        format!("--bs={BLOCK_BYTES} --iodepth={depth} --fdatasync={sync_blocks}"),
        format!("--size={bytes} --nrfiles={files} --file_service_type=sequential"),
        format!("--directory={} --output-format=json", folder.display()),
    ]
    .iter()
    .flat_map(|line| line.split_whitespace().map(String::from))
    .collect()
}

/// Bytes per second by fio's own clock.
fn fio(place: &Place, bytes: u64, sync_blocks: u64) -> Result<f64> {
    let folder = place.empty("fio")?;
    let mut command = Command::new("fio");
    command.args(fio_arguments(&folder, bytes, sync_blocks)).stdin(Stdio::null());
    let output = command.output().context("fio, which `make bench` installs")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fio ended with {}: {} {}", output.status, words.trim(), said.trim());
    let seconds = fio_seconds(&said, bytes)?;
    let files: Vec<_> = std::fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    let written = stored_run::bytes_of(&files)?;
    ensure!(written == bytes, "fio's files have {written} bytes of {bytes}");
    place.empty("fio")?;
    Ok(bytes as f64 / seconds)
}

/// How long fio wrote, by its report.
fn fio_seconds(said: &str, bytes: u64) -> Result<f64> {
    let object = said.find('{').map(|at| &said[at..]).context("no report of fio")?;
    let report: Value = serde_json::from_str(object).context("the report of fio")?;
    let job = &report["jobs"][0];
    ensure!(job["error"] == 0, "fio met error {}", job["error"]);
    let written = &job["write"]["io_bytes"];
    ensure!(*written == bytes, "fio says it wrote {written} bytes of {bytes}");
    let ms = job["write"]["runtime"].as_f64().filter(|&ms| ms > 0.0).context("no time in fio's report")?;
    Ok(ms / 1e3)
}

fn dd_arguments(file: &Path, bytes: u64) -> Vec<String> {
    let blocks = bytes / BLOCK_BYTES;
    vec![
        "if=/dev/zero".to_string(),
        format!("of={}", file.display()),
        "bs=2M".to_string(),
        format!("count={blocks}"),
        "conv=fdatasync".to_string(),
    ]
}

/// Bytes per second from dd's start to its end.
fn dd(place: &Place, bytes: u64) -> Result<f64> {
    let file = place.empty("dd")?.join("file");
    let begun = Instant::now();
    let output =
        Command::new("dd").args(dd_arguments(&file, bytes)).stdin(Stdio::null()).output().context("dd")?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(output.status.success(), "dd: {}", String::from_utf8_lossy(&output.stderr).trim());
    let written = file.metadata()?.len();
    ensure!(written == bytes, "dd wrote {written} bytes of {bytes}");
    place.empty("dd")?;
    Ok(bytes as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_is_believed_where_it_wrote_everything() {
        let report = |error, bytes, ms| {
            format!(
                "fio: a note\n{{\"jobs\":[{{\"error\":{error},\"write\":{{\"io_bytes\":{bytes},\"runtime\":{ms}}}}}]}}"
            )
        };
        assert_eq!(fio_seconds(&report(0, 100, 2500), 100).unwrap(), 2.5);
        for (report, words) in [
            (report(28, 100, 2500), "met error 28"),
            (report(0, 99, 2500), "wrote 99 bytes of 100"),
            (report(0, 100, 0), "no time"),
            ("fio: no such engine".to_string(), "no report"),
        ] {
            let fault = fio_seconds(&report, 100).unwrap_err().to_string();
            assert!(fault.contains(words), "{fault}");
        }
    }

    #[test]
    fn a_second_is_synced_at_a_time_as_soon_as_the_disk_is_known() {
        assert_eq!(Speed(None).sync_blocks(), SYNC_BLOCKS_FIRST);
        assert_eq!(Speed(Some(838_860_800.0)).sync_blocks(), 400);
        assert_eq!(Speed(Some(1.0)).sync_blocks(), 1);
    }
}
