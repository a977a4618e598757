//! A door to the network in front of a run: `wirescope serve` with tokens, as others start it.

use crate::wirescope::resident_kib;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// It may take so long until it answers.
const START_LIMIT: Duration = Duration::from_secs(30);

/// One that goes on; killed when dropped.
pub struct Door {
    child: Child,
    folder: TempDir,
    /// Where it answers.
    pub address: String,
}

impl Door {
    /// In front of the run with this socket; `more` arguments, such as those of TLS.
    ///
    /// # Errors
    /// What it said where it doesn't begin.
    pub fn open(workspace: &Workspace, control: &Path, tokens: &Path, more: &[&str]) -> Result<Door> {
        let folder = workspace.out_folder()?;
        let words = folder.path().join("words");
        let file = std::fs::File::create(&words)?;
        let mut command = Command::new(&workspace.wirescope);
        command.args(["serve", "--listen", "127.0.0.1:0", "--user", "root", "--control"]).arg(control);
        command.arg("--tokens").arg(tokens).args(more);
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("wirescope serve")?;
        let mut door = Door { child, folder, address: String::new() };
        let begun = Instant::now();
        loop {
            let said = read_to_string(&words)?;
            let line = said.lines().find(|line| line.starts_with("serving "));
            if let Some((_, rest)) = line.and_then(|line| line.split_once("://")) {
                door.address = rest.split_whitespace().next().unwrap_or_default().to_string();
                return Ok(door);
            }
            ensure!(door.child.try_wait()?.is_none(), "the door ended at its start: {said}");
            ensure!(begun.elapsed() < START_LIMIT, "the door takes longer than {START_LIMIT:?}: {said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its memory, KiB.
    ///
    /// # Errors
    /// It is gone.
    pub fn resident_kib(&self) -> Result<u64> {
        resident_kib(self.child.id())
    }

    /// All that it said.
    pub fn said(&self) -> String {
        read_to_string(self.folder.path().join("words")).unwrap_or_default()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tokens in a file of their own.
pub struct Tokens {
    folder: TempDir,
    program: PathBuf,
}

impl Tokens {
    /// None yet.
    ///
    /// # Errors
    /// The system's.
    pub fn new(workspace: &Workspace) -> Result<Tokens> {
        Ok(Tokens { folder: workspace.out_folder()?, program: workspace.wirescope.clone() })
    }

    /// Their file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    /// Makes one.
    ///
    /// # Errors
    /// What the program said.
    pub fn add(&self, words: &[&str]) -> Result<String> {
        self.run(&[&["add"], words].concat())
    }

    /// From now on this one is no good.
    ///
    /// # Errors
    /// What the program said.
    pub fn revoke(&self, name: &str) -> Result<()> {
        self.run(&["revoke", name]).map(drop)
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        let output = command
            .arg("token")
            .args(words)
            .arg("--tokens")
            .arg(self.path())
            .stdin(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_string())
    }
}
