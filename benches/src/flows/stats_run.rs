//! Runs of `wirescope stats`: started, stopped or killed, and what they say at their end.

use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use scope_testkit::lab::Namespace;
use serde_json::Value;
use std::fs::{File, read_to_string};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Of what a run that failed said, so many characters are repeated.
const WORDS_MAX: usize = 300;

/// A run that goes on; killed when dropped.
pub struct StatsRun {
    child: Child,
    /// Has what it says.
    folder: TempDir,
    begun: Instant,
}

impl StatsRun {
    /// Starts `wirescope stats` with `arguments`, which writes into `db`, inside `namespace` if one is given.
    ///
    /// # Errors
    /// The system's.
    pub fn start(
        workspace: &Workspace,
        namespace: Option<&Namespace>,
        db: &Path,
        arguments: &[&str],
    ) -> Result<StatsRun> {
        let folder = workspace.out_folder()?;
        let program = workspace.wirescope.to_str().context("the binary's path is no UTF-8")?;
        let mut command =
            namespace.map_or_else(|| Command::new(program), |namespace| namespace.command(program));
        command.arg("stats").args(arguments).args(["--summary", "json", "--db"]).arg(db);
        // Files, not pipes: nobody reads while it runs.
        let stdout = File::create(folder.path().join("stdout"))?;
        let stderr = File::create(folder.path().join("stderr"))?;
        let begun = Instant::now();
        let child =
            command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().context("wirescope stats")?;
        Ok(StatsRun { child, folder, begun })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// That it still runs.
    ///
    /// # Errors
    /// What it said, where it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("wirescope stats ended with {status}: {}", self.words()),
            None => Ok(()),
        }
    }

    /// Orders it to stop, as Ctrl-C does.
    ///
    /// # Errors
    /// The system's.
    pub fn interrupt(&self) -> Result<()> {
        // SAFETY: kill takes no pointers, and the child is not waited for yet, so the number is still its own.
        let result = unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        ensure!(result == 0, "SIGINT: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Kills it as it goes, and waits until it is gone.
    ///
    /// # Errors
    /// The system's, and where it had ended by itself.
    pub fn kill(mut self) -> Result<()> {
        self.check_alive()?;
        self.child.kill().context("killing wirescope stats")?;
        self.child.wait().context("waiting for wirescope stats")?;
        Ok(())
    }

    /// Waits for its end, which must be exit code 0 within `limit`: its summary, and how long it took from its start.
    ///
    /// # Errors
    /// What it said, where it fails or takes longer.
    pub fn finish(mut self, limit: Duration) -> Result<(Value, Duration)> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(self.begun.elapsed() < limit, "wirescope stats still runs after {limit:?}");
            std::thread::sleep(Duration::from_millis(1));
        };
        let took = self.begun.elapsed();
        ensure!(status.success(), "wirescope stats ended with {status}: {}", self.words());
        let said = read_to_string(self.folder.path().join("stdout"))?;
        Ok((serde_json::from_str(&said).context("summary of wirescope stats")?, took))
    }

    fn words(&self) -> String {
        let words = read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
        words.trim().replace('\n', " / ").chars().take(WORDS_MAX).collect()
    }
}

impl Drop for StatsRun {
    fn drop(&mut self) {
        // Both do nothing where its end was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A figure of the part `stats` of a summary.
///
/// # Errors
/// Where it has none.
pub fn figure(summary: &Value, name: &str) -> Result<u64> {
    summary["stats"][name].as_u64().with_context(|| format!("no '{name}' in {}", summary["stats"]))
}

/// Packets that workers received, and those that were dropped, for whatever reason.
///
/// # Errors
/// Where the summary has none.
pub fn received_and_dropped(summary: &Value) -> Result<(u64, u64)> {
    let received = summary["received"]["packets"].as_u64().context("no packets received in the summary")?;
    let dropped = summary["dropped"].as_object().context("no 'dropped' in the summary")?;
    Ok((received, dropped.values().filter_map(Value::as_u64).sum()))
}

/// That nothing of the statistics was folded, unwritten, late, or evicted.
///
/// # Errors
/// What was.
pub fn expect_untouched(summary: &Value) -> Result<()> {
    for name in ["folded_flows", "unwritten", "late", "evicted"] {
        let count = figure(summary, name)?;
        ensure!(count == 0, "{name}: {count}");
    }
    Ok(())
}
