//! What happens in a live run, drawn from its seed, and played.

use super::running::{Done, Running, Stall};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use scope_testkit::lab::disk::{Disk, Kind};
use scope_testkit::lab::witness::{Seen, Witness, numbered};
use scope_testkit::lab::{Lab, RawSender};
use scope_testkit::oracle::truth::{Came, Counted, HIT_PORT, Truth, WITNESS_NS};
use scope_testkit::traffic::Random;
use std::fmt::Write;
use std::fs::{create_dir, write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// After the last packet there is this long until the stop, or none.
const REST_MS: u64 = 600;

/// Something that is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// SIGSTOP for so many ms.
    Stand(u64),
    /// The interface is down for so many ms.
    Down(u64),
    /// The disk is frozen for so many ms.
    Freeze(u64),
    /// Nothing can be made in the folder for so many ms.
    Close(u64),
    /// SIGUSR1.
    Fire,
    /// The configuration changes, and SIGHUP.
    Reload,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Scene {
    disk: Kind,
    stall: Option<Stall>,
    acts: Vec<(u64, Act)>,
    length_ms: u64,
    per_second: u64,
    bytes: (u64, u64),
    /// One packet in so many fires.
    hit_every: u64,
    ring: &'static str,
    blocks: u64,
    timeout_ms: u64,
    before_ms: u64,
    after_ms: u64,
    holdoff_ms: u64,
    dumps_max: u64,
    filter: &'static str,
    /// Triggers beside it that never fire and take the worker's time.
    idle_triggers: u64,
    /// It is stopped while packets still come.
    stopped_early: bool,
}

impl Scene {
    /// Draws one: its main matter by the seed, so that all are met.
    pub fn draw(seed: u64, random: &mut Random) -> Scene {
        let length_ms = 1200 + random.below(1800);
        let at = |random: &mut Random| 150 + random.below(length_ms - 300);
        let for_long = |random: &mut Random| 100 + random.below(1500);
        let mut acts = Vec::new();
        let mut disk = Kind::Plain;
        let mut stall = None;
        let mut idle_triggers = random.below(4);
        match seed % 9 {
            0 => {
                for _ in 0..1 + random.below(3) {
                    acts.push((at(random), Act::Stand(for_long(random))));
                }
            }
            1 => acts.push((at(random), Act::Down(for_long(random)))),
            2 => idle_triggers = 200,
            3 => {
                disk = Kind::Own(64);
                acts.push((at(random), Act::Freeze(for_long(random) * 2)));
            }
            4 => disk = Kind::Small(100 + random.below(4000) as u32),
            5 => acts.push((at(random), Act::Close(for_long(random)))),
            6 => {
                let ms = |random: &mut Random| Duration::from_millis(random.below(2500));
                stall = Some(Stall { first: ms(random), then: ms(random) });
            }
            7 => {
                for _ in 0..3 {
                    acts.push((at(random), Act::Reload));
                }
            }
            _ => acts.push((at(random), Act::Stand(2000 + random.below(2500)))),
        }
        if random.chance(30) {
            acts.push((at(random), Act::Fire));
        }
        if random.chance(20) {
            acts.push((at(random), Act::Stand(for_long(random) / 4)));
        }
        acts.sort_by_key(|(at_ms, _)| *at_ms);
        let long = random.chance(40);
        let window = |random: &mut Random| if long { random.below(2000) } else { random.below(400) };
        Scene {
            disk,
            stall,
            acts,
            length_ms,
            per_second: random.pick(&[1000, 4000, 12_000]),
            bytes: random.pick(&[(60, 120), (60, 1400), (1000, 1400)]),
            hit_every: random.pick(&[300, 1500, 5000]),
            ring: random.pick(&["1MiB", "2MiB", "8MiB"]),
            blocks: random.pick(&[2, 4, 16]),
            timeout_ms: random.pick(&[4, 20]),
            before_ms: window(random),
            after_ms: window(random),
            holdoff_ms: random.pick(&[0, 100, 400]),
            dumps_max: random.pick(&[2, 8, 30]),
            filter: random.pick(&["", "", "udp port 53"]),
            idle_triggers,
            stopped_early: random.chance(30),
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        format!("{self:?}")
    }

    /// The configuration; `version` changes it without effect on what its dumps should hold.
    fn config(&self, version: u64) -> String {
        let mut text = format!(
            "before = \"{}ms\"\nafter = \"{}ms\"\nholdoff = \"{}ms\"\ndumps-max = {}\n",
            self.before_ms,
            self.after_ms + version % 2,
            self.holdoff_ms,
            self.dumps_max
        );
        let _ = write!(
            text,
            "[[trigger]]\nname = \"hit\"\nexpr = \"udp dst port 9\"\ndump = \"{}\"\n",
            self.filter
        );
        for number in 0..self.idle_triggers {
            let _ = write!(
                text,
                "[[trigger]]\nname = \"idle{number}\"\nexpr = \"udp[8:4] = {number} and len > 9000\"\ndump = \
                 \"\"\n"
            );
        }
        text
    }

    /// Plays it: what was met, and which statements aren't true.
    ///
    /// # Errors
    /// Where it couldn't be played.
    pub fn play(&self, workspace: &Workspace, random: &mut Random) -> Result<(Counted, Vec<String>)> {
        let lab = Lab::new().map_err(|skipped| anyhow::anyhow!("{skipped}"))?;
        let folder = workspace.out_folder()?;
        let (out, config) = (folder.path().join("out"), folder.path().join("wirescope.toml"));
        create_dir(&out)?;
        write(&config, self.config(0))?;
        let mut disk = Disk::mount(self.disk, &out)?;
        let witness = Witness::begin(lab.b(), "vb")?;
        let before_ns = now_ns()?;
        let mut running =
            Running::start(workspace, Some(lab.b()), &out, &self.arguments(&config)?, self.stall)?;
        running.wait_started()?;
        let mut truth = Truth { came: Vec::new(), unheard: vec![(0, before_ns)], same_ns: WITNESS_NS };
        let sender = Sending::begin(&lab, self, Random::new(random.word()))?;
        let begun = Instant::now();
        let mut reloads = 0;
        for (at_ms, act) in &self.acts {
            std::thread::sleep(Duration::from_millis(*at_ms).saturating_sub(begun.elapsed()));
            match act {
                Act::Stand(ms) => {
                    running.signal(libc::SIGSTOP)?;
                    std::thread::sleep(Duration::from_millis(*ms));
                    running.signal(libc::SIGCONT)?;
                }
                Act::Down(ms) => truth.unheard.push(down(&lab, Duration::from_millis(*ms))?),
                Act::Freeze(ms) => {
                    disk.freeze()?;
                    std::thread::sleep(Duration::from_millis(*ms));
                    disk.thaw()?;
                }
                Act::Close(ms) => {
                    disk.set_closed(true)?;
                    std::thread::sleep(Duration::from_millis(*ms));
                    disk.set_closed(false)?;
                }
                Act::Fire => running.signal(libc::SIGUSR1)?,
                Act::Reload => {
                    reloads += 1;
                    write(&config, self.config(reloads))?;
                    running.signal(libc::SIGHUP)?;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(self.length_ms).saturating_sub(begun.elapsed()));
        if !self.stopped_early {
            sender.end()?;
            std::thread::sleep(Duration::from_millis(REST_MS));
            running.signal(libc::SIGINT)?;
        } else {
            running.signal(libc::SIGINT)?;
            std::thread::sleep(Duration::from_millis(50));
            sender.end()?;
        }
        let done = running.finish()?;
        truth.unheard.push((now_ns()?, i64::MAX));
        truth.came = witness
            .end()?
            .iter()
            .map(|&Seen { number, port, time_ns }| Came { number, port, time_ns, era: 0 })
            .collect();
        check(&truth, &done)
    }

    fn arguments(&self, config: &Path) -> Result<Vec<String>> {
        let source = format!("afpacket:vb,block=64KiB,blocks={},timeout={}ms", self.blocks, self.timeout_ms);
        let config = config.to_str().context("the path of the file is no UTF-8")?;
        let mut arguments =
            vec!["--source", &source, "--ring", self.ring, "--segment", "64KiB", "--config", config];
        if self.stall.is_some() {
            arguments.extend(["-w", "-"]);
        }
        Ok(arguments.into_iter().map(String::from).collect())
    }
}

/// Checks all dumps of a run.
///
/// # Errors
/// Where what they say can't be understood.
pub fn check(truth: &Truth, done: &Done) -> Result<(Counted, Vec<String>)> {
    let mut counted = Counted { packets: truth.came.len() as u64, ..Counted::default() };
    let mut faults = Vec::new();
    for dump in &done.dumps {
        let (of_dump, wrong) = truth.check(dump, done.piped.as_deref()).with_context(|| dump.to_string())?;
        counted.add(&of_dump);
        faults.extend(wrong);
    }
    Ok((counted, faults))
}

fn now_ns() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

/// Sets the interface down for a while: the span in which it certainly was.
fn down(lab: &Lab, time: Duration) -> Result<(i64, i64)> {
    lab.b().ip(&["link", "set", "vb", "down"]).map_err(anyhow::Error::msg)?;
    let from_ns = now_ns()?;
    std::thread::sleep(time);
    let to_ns = now_ns()?;
    lab.b().ip(&["link", "set", "vb", "up"]).map_err(anyhow::Error::msg)?;
    Ok((from_ns, to_ns))
}

/// A thread that sends numbered packets.
struct Sending {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Sending {
    fn begin(lab: &Lab, scene: &Scene, mut random: Random) -> Result<Sending> {
        let sender = RawSender::open(lab.a(), "va")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, scene) = (stop.clone(), scene.clone());
        let thread = std::thread::Builder::new().name("sender".into()).spawn(move || {
            let (begun, mut number) = (Instant::now(), 0);
            while !stopped.load(Ordering::Relaxed) {
                let due = begun.elapsed().as_millis() as u64 * scene.per_second / 1000;
                // A machine that was busy catches up a little, no more.
                let count = due.saturating_sub(number).min(scene.per_second / 20);
                number = number.max(due - count);
                let frames: Vec<Vec<u8>> =
                    (number..number + count).map(|number| frame(&scene, number, &mut random)).collect();
                sender.send(&frames)?;
                number += count;
                std::thread::sleep(Duration::from_millis(1 + random.below(4)));
            }
            Ok(())
        })?;
        Ok(Sending { stop, thread })
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the sender failed"))?
    }
}

fn frame(scene: &Scene, number: u64, random: &mut Random) -> Vec<u8> {
    let port = if random.below(scene.hit_every) == 0 { HIT_PORT } else { random.pick(&[53, 80, 443]) };
    numbered(number, port, (scene.bytes.0 + random.below(scene.bytes.1 - scene.bytes.0)) as usize)
}
