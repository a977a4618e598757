//! `reload_loss`: packets lost while the configuration is read again a hundred times.
//!
//! 200 k packets/s of 128 bytes; before each SIGHUP the file gets other triggers, and the next one comes only
//! when the log has the event `reload`: signals that come too fast would become one.

use super::Stand;
use super::captures::{OUR_END_LIMIT, on_core};
use super::sender::{Pace, Quiet, Sender, while_sending};
use crate::wirescope::Run;
use anyhow::{Context, Result, ensure};
use scope_measure::{Packets, Sizes};
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RELOADS: usize = 100;
const PACE: Pace = Pace::PerSecond(200_000);
/// Between two reloads, and before the first and behind the last packet.
const GAP: Duration = Duration::from_millis(30);
const SETTLE: Duration = Duration::from_millis(300);
/// One reload may take so long.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);

/// A configuration file that changes; gone when dropped.
pub struct Config {
    _folder: TempDir,
    path: PathBuf,
    version: usize,
}

impl Config {
    /// A file with `text`, which any user can read: the run may have given up root.
    ///
    /// # Errors
    /// The system's.
    pub fn new(folder: TempDir, text: &str) -> Result<Config> {
        set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let path = folder.path().join("wirescope.toml");
        write(&path, text)?;
        Ok(Config { _folder: folder, path, version: 0 })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `text`, makes the run read it and waits until its log says that it did.
    ///
    /// # Errors
    /// Where it doesn't.
    pub fn reload(&mut self, run: &Run, text: &str) -> Result<()> {
        write(&self.path, text)?;
        self.version += 1;
        let logged = run.logged("reload");
        run.signal(libc::SIGHUP)?;
        let begun = Instant::now();
        while run.logged("reload") == logged {
            ensure!(
                begun.elapsed() < RELOAD_LIMIT,
                "reload {} isn't in the log after {RELOAD_LIMIT:?}",
                self.version
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Triggers that never fire: none of the packets is between these hosts or to this port.
fn triggers(version: usize) -> String {
    let trigger = |n: usize| {
        format!(
            "[[trigger]]\nname = \"never{n}\"\nexpr = \"udp dst port 9 and host 192.0.2.{n}\"\ndump = \"host \
             $srcIP\"\n"
        )
    };
    format!("before = \"{}s\"\n", version % 3 + 1)
        + &(0..version % 4 + 1).map(|n| trigger(n + version % 50)).collect::<String>()
}

/// How many packets were lost.
///
/// # Errors
/// What failed, and what doesn't add up.
pub fn lost(stand: &Stand) -> Result<u64> {
    let mut config = Config::new(stand.workspace.out_folder()?, &triggers(0))?;
    let path = config.path().to_str().context("the path of the file is no UTF-8")?.to_string();
    let arguments = ["-i", "vb", "--ring", "256MiB", "--config", &path];
    let mut run = on_core(stand, || Run::start(stand.workspace, Some(stand.lab.b()), &arguments))?;
    run.wait_started()?;
    std::thread::sleep(SETTLE);
    let mut sender = Sender::open(stand.lab.a(), "va", &Packets::new(Sizes::Fixed(128)))?;
    let ((), sent) = while_sending(&mut sender, stand.sender_core, PACE, &Quiet::default(), || {
        (1..=RELOADS).try_for_each(|version| {
            std::thread::sleep(GAP);
            config.reload(&run, &triggers(version))
        })
    })?;
    std::thread::sleep(SETTLE);
    run.interrupt()?;
    let finished = run.finish(OUR_END_LIMIT)?;
    let done = finished.events("reload").filter(|reload| reload["ok"] == true).count();
    ensure!(done == RELOADS, "{done} reloads of {RELOADS}");
    let (seen, dropped) = (finished.received(), finished.dropped());
    ensure!(
        seen + dropped == sent.packets,
        "{seen} packets seen and {dropped} lost of {} sent",
        sent.packets
    );
    ensure!(sent.per_second() > 190_000.0, "only {:.0} packets/s were sent", sent.per_second());
    Ok(sent.packets - seen)
}
