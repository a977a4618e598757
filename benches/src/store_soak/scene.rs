//! What happens to the disks of a store, second by second.

use super::room::taken;
use crate::wirescope::{Finished, Run};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::disk::{self, DATA_FROM_MIB, Disk, Kind, own_mounts};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::create_dir;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// 5 MB/s, which wait for nobody.
const TRAFFIC: &str = "synth:rate=10k,size=500,seed=11";
/// MiB that the volumes may take, and that a file has at most.
pub const BUDGETS_MIB: [u64; 2] = [48, 40];
pub const FILE_MIB: u64 = 8;
/// Size of the first one's file system, MiB.
const DISK_MIB: u32 = 96;
/// After so many seconds the same happens again.
const CYCLE_S: u64 = 60;
/// A dump by hand.
const DUMP_EVERY_S: u64 = 10;
/// What was begun must be told before it ends, and its end before the next one begins.
const TOLD_MAX: Duration = Duration::from_secs(100);
/// The end may take so long.
const END_LIMIT: Duration = Duration::from_secs(120);
/// Packets of the run behind, which closes what the disks failed.
const CLOSING_PACKETS: u64 = 10;

/// What came of it.
pub struct Soaked {
    /// How long it was, s.
    pub seconds: u64,
    /// Bytes that each volume took, second by second.
    pub taken: Vec<[u64; 2]>,
    /// How often each state was brought about.
    pub happened: BTreeMap<&'static str, usize>,
    /// What the run says.
    pub finished: Finished,
    /// Packets that were stored behind it.
    pub added: u64,
    /// What `verify --json` says of both volumes.
    pub verified: Value,
}

/// A soak that goes on.
pub struct Scene {
    run: Run,
    disk: Disk,
    stores: [PathBuf; 2],
    program: PathBuf,
    taken: Vec<[u64; 2]>,
    happened: BTreeMap<&'static str, usize>,
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path is no UTF-8")
}

/// What a command of the program prints; it must end with one of these exit codes.
fn ask(program: &Path, arguments: &[&str], codes: &[i32]) -> Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    ensure!(
        code.is_some_and(|code| codes.contains(&code)),
        "wirescope {}: {}: {}",
        arguments[0],
        output.status,
        words.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Scene {
    /// Plays it for `span`.
    ///
    /// # Errors
    /// What failed; that something doesn't add up is for the caller to find.
    pub fn play(workspace: &Workspace, span: Duration) -> Result<Soaked> {
        if let Some(lacking) = disk::lacks() {
            anyhow::bail!("skipped: {lacking}");
        }
        own_mounts().context("mounts of its own")?;
        let folder = workspace.out_folder()?;
        let mounted = folder.path().join("disk");
        create_dir(&mounted)?;
        let disk = Disk::mount(Kind::Own(DISK_MIB), &mounted)?;
        let stores = [mounted.join("store"), folder.path().join("store")];
        let (first, second) = (text(&stores[0])?.to_string(), text(&stores[1])?.to_string());
        let [budget, other] = BUDGETS_MIB.map(|mib| format!("{mib}MiB"));
        let file = format!("{FILE_MIB}MiB");
        let volumes = ["--store", &first, "--store", &second, "--store-file", &file];
        let bounds = ["--store-budget", &budget, "--store-budget", &other, "--store-flush", "200ms"];
        let ring = ["--ring", "64MiB", "--segment", "64KiB", "--status-every", "1s", "--before", "1s"];
        let orders = [&["--source", TRAFFIC], &volumes[..], &bounds, &ring].concat();
        let mut run = Run::start(workspace, None, &orders)?;
        run.wait_started()?;
        let program = workspace.wirescope.clone();
        let (taken, happened) = (Vec::new(), BTreeMap::new());
        let mut scene = Scene { run, disk, stores, program, taken, happened };
        scene.seconds(span.as_secs())?;
        scene.run.interrupt()?;
        let Scene { run, disk, program, taken, happened, .. } = scene;
        let finished = run.finish_worn(END_LIMIT)?;
        // What a disk failed at the end is closed by the next run.
        let out = tempfile::tempdir_in(folder.path())?;
        let source = format!("synth:packets={CLOSING_PACKETS},pace=max");
        let more = ["--out", text(out.path())?, "--ring", "16MiB", "--segment", "64KiB"];
        let closing = [&["run", "--source", &source, "--store", &first, "--store", &second], &more[..]];
        ask(&program, &closing.concat(), &[0])?;
        // Packets were missed, and deleted: exit code 1 is as good as 0.
        let said = ask(&program, &["verify", "--json", &first, &second], &[0, 1])?;
        let verified = serde_json::from_str(&said).context("verify")?;
        drop(disk);
        Ok(Soaked { seconds: span.as_secs(), taken, happened, finished, added: CLOSING_PACKETS, verified })
    }

    fn seconds(&mut self, seconds: u64) -> Result<()> {
        let begun = Instant::now();
        for second in 0..seconds {
            if second % CYCLE_S == 0 {
                eprintln!("minute {} of {}", second / CYCLE_S + 1, seconds.div_ceil(CYCLE_S));
            }
            // What begins in the last minute ends in it.
            self.act(second % CYCLE_S).with_context(|| format!("second {second}"))?;
            if second % DUMP_EVERY_S == 5 {
                self.run.signal(libc::SIGUSR1)?;
            }
            let room = |volume: usize| taken(&self.stores[volume], BUDGETS_MIB[volume] << 20);
            let looks = [room(0), room(1)];
            self.taken.push(looks);
            std::thread::sleep(Duration::from_secs(second + 1).saturating_sub(begun.elapsed()));
        }
        Ok(())
    }

    fn act(&mut self, second: u64) -> Result<()> {
        match second {
            10 => self.disk.freeze(),
            18 => self.happens("stalled", 0),
            19 => self.disk.thaw(),
            25 => self.disk.end_at(Some(DATA_FROM_MIB)),
            32 => self.happens("failing", 0),
            33 => self.disk.end_at(None),
            40 => self.disk.fill(),
            46 => self.disk.relieve(),
            48 => {
                let span = ["--from", "2000-01-01 00:00", "--to", "2100-01-01 00:00"];
                let hold = ["hold", "add", "--note", "soak", "--store", text(&self.stores[1])?];
                ask(&self.program, &[&hold[..], &span].concat(), &[0]).map(drop)
            }
            55 => self.happens("held", 1),
            56 => {
                let store = text(&self.stores[1])?;
                let list = ask(&self.program, &["hold", "list", "--store", store], &[0])?;
                let id = list.split([' ', ':']).find(|word| word.parse::<u64>().is_ok());
                let id = id.with_context(|| format!("no number of a hold in '{list}'"))?;
                ask(&self.program, &["hold", "remove", id, "--store", store], &[0]).map(drop)
            }
            39 | 47 | 59 => self.wait_for(0, "writing"),
            _ => Ok(()),
        }
    }

    /// Waits until a volume is in a state that was brought about.
    fn happens(&mut self, state: &'static str, volume: usize) -> Result<()> {
        self.wait_for(volume, state)?;
        *self.happened.entry(state).or_default() += 1;
        Ok(())
    }

    fn wait_for(&self, volume: usize, state: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let last = self.run.last("status");
            let found = last.as_ref().map(|line| &line["stores"][volume]["state"]);
            if found.is_some_and(|found| found == state) {
                return Ok(());
            }
            ensure!(begun.elapsed() < TOLD_MAX, "volume {volume} isn't {state}, but {found:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
