//! What happens in a soak, second by second.

use super::disk::Disk;
use crate::live::sender::{Pace, Quiet, Sender, while_sending};
use crate::live::{Config, Stand, flap, received};
use crate::wirescope::{Finished, Run};
use anyhow::{Context, Result};
use scope_measure::{Packets, Sizes};
use scope_testkit::lab::RawSender;
use scope_testkit::traffic::ETHERNET;
use scope_testkit::traffic::frame::{on_link, udp};
use std::fs::create_dir;
use std::time::{Duration, Instant};

/// Packets per second, and bytes of each.
const PACE: Pace = Pace::PerSecond(20_000);
const FRAME_BYTES: usize = 512;
/// After so many seconds the same happens again.
const CYCLE_S: usize = 10;
/// How long all threads stand still.
const STILL: Duration = Duration::from_millis(300);
const SETTLE: Duration = Duration::from_millis(300);
/// The end may take so long: the last dumps are written.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Triggers that must make dumps.
pub const TRIGGERS: [&str; 2] = ["one", "everything"];

/// What came of it.
pub struct Soaked {
    /// Memory in use, second by second, KiB.
    pub resident_kib: Vec<u64>,
    /// Packets that the kernel gave the interface.
    pub arrived: u64,
    /// How often the configuration was read again.
    pub reloads: usize,
    /// What the run says.
    pub finished: Finished,
}

/// A soak that goes on.
pub struct Scene<'a> {
    stand: &'a Stand<'a>,
    run: Run,
    config: Config,
    disk: Disk,
    hits: RawSender,
    resident_kib: Vec<u64>,
    reloads: usize,
}

/// The packet that fires a trigger.
fn hit(port: u16) -> Vec<u8> {
    on_link(ETHERNET, &[], &udp(([192, 0, 2, 250], 4000).into(), ([192, 0, 2, 251], port).into(), b"fires"))
}

/// The configuration: what must fire, and besides it triggers that change and never do.
fn config(version: usize) -> String {
    let dumps_max = 6 + version % 3;
    let never = version % 200 + 1;
    format!(
        "before = \"1s\"\nafter = \"300ms\"\nholdoff = \"500ms\"\ndumps-max = {dumps_max}\n\
         [[trigger]]\nname = \"one\"\nexpr = \"udp dst port 40001\"\ndump = \"host $srcIP\"\n\
         [[trigger]]\nname = \"everything\"\nexpr = \"udp dst port 40002\"\ndump = \"\"\nbefore = \"3s\"\nafter = \"1s\"\n\
         [[trigger]]\nname = \"never\"\nexpr = \"udp dst port 9 and host 192.0.2.{never}\"\n"
    )
}

impl<'a> Scene<'a> {
    /// Plays it for `span`.
    ///
    /// # Errors
    /// What failed; that something doesn't add up is for the caller to find.
    pub fn play(stand: &'a Stand<'a>, span: Duration) -> Result<Soaked> {
        let mut scene = Scene::begin(stand)?;
        std::thread::sleep(SETTLE);
        let before = received(stand.lab.b(), "vb")?;
        let mut sender = Sender::open(stand.lab.a(), "va", &Packets::new(Sizes::Fixed(FRAME_BYTES)))?;
        let quiet = Quiet::default();
        let ((), sent) =
            while_sending(&mut sender, stand.sender_core, PACE, &quiet, || scene.seconds(span, &quiet))?;
        std::thread::sleep(SETTLE);
        let arrived = received(stand.lab.b(), "vb")? - before;
        eprintln!("{} packets sent, {arrived} of them arrived", sent.packets);
        scene.run.interrupt()?;
        let finished = scene.run.finish_worn(END_LIMIT)?;
        Ok(Soaked { resident_kib: scene.resident_kib, arrived, reloads: scene.reloads, finished })
    }

    fn begin(stand: &'a Stand<'a>) -> Result<Scene<'a>> {
        let config_file = Config::new(stand.workspace.out_folder()?, &config(0))?;
        let folder = stand.workspace.out_folder()?;
        let out = folder.path().join("out");
        create_dir(&out)?;
        let disk = Disk::mount(&out)?;
        let path = config_file.path().to_str().context("the path of the file is no UTF-8")?.to_string();
        let arguments = ["-i", "vb", "--ring", "128MiB", "--config", &path, "--status-every", "1s"];
        let mut run = Run::start_in(folder, stand.workspace, Some(stand.lab.b()), &arguments)?;
        run.wait_started()?;
        let hits = RawSender::open(stand.lab.a(), "va")?;
        Ok(Scene { stand, run, config: config_file, disk, hits, resident_kib: Vec::new(), reloads: 0 })
    }

    fn seconds(&mut self, span: Duration, quiet: &Quiet) -> Result<()> {
        let begun = Instant::now();
        for second in 0..span.as_secs() as usize {
            if second % 60 == 0 {
                eprintln!("minute {} of {}", second / 60 + 1, span.as_secs().div_ceil(60));
            }
            self.act(second, quiet).with_context(|| format!("second {second}"))?;
            self.resident_kib.push(self.run.resident_kib()?);
            std::thread::sleep(Duration::from_secs(second as u64 + 1).saturating_sub(begun.elapsed()));
        }
        // A full disk isn't the end of it: the log is to say how it went.
        if Scene::is_full(span.as_secs() as usize) { self.disk.relieve() } else { Ok(()) }
    }

    /// Whether the disk is full at the beginning of a second.
    fn is_full(second: usize) -> bool {
        (6..=7).contains(&(second % CYCLE_S))
    }

    fn act(&mut self, second: usize, quiet: &Quiet) -> Result<()> {
        match second % CYCLE_S {
            5 => self.disk.fill()?,
            7 => self.disk.relieve()?,
            _ if Scene::is_full(second) => {}
            _ => self.disk.clear()?,
        }
        match second % CYCLE_S {
            1 | 8 => self.reload()?,
            2 => flap(self.stand, quiet)?,
            3 => self.stand_still()?,
            _ => {}
        }
        self.fire(second)
    }

    /// One dump of a host each second; twice in a cycle one of everything, of which the first ends on the
    /// full disk.
    fn fire(&self, second: usize) -> Result<()> {
        self.hits.send(&[hit(40_001)])?;
        if matches!(second % CYCLE_S, 4 | 9) {
            self.hits.send(&[hit(40_002)])?;
        }
        Ok(())
    }

    fn reload(&mut self) -> Result<()> {
        self.reloads += 1;
        self.config.reload(&self.run, &config(self.reloads))
    }

    fn stand_still(&self) -> Result<()> {
        self.run.signal(libc::SIGSTOP)?;
        std::thread::sleep(STILL);
        self.run.signal(libc::SIGCONT)
    }
}
