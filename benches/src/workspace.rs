//! Where the binary under test, scratch files and records are.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The paths of one call.
#[derive(Debug)]
pub struct Workspace {
    /// The binary under test: the one that was built together with this program.
    pub wirescope: PathBuf,
    /// `target/bench`: on disk, kept between calls, never committed.
    pub scratch: PathBuf,
    /// The workspace.
    pub root: PathBuf,
}

impl Workspace {
    /// Looks beside this program.
    ///
    /// # Errors
    /// Where the binary isn't built.
    pub fn find() -> Result<Workspace> {
        let own = std::env::current_exe().context("the path of this program")?;
        let built = own.parent().context("the folder of this program")?;
        let wirescope = built.join("wirescope");
        ensure!(
            wirescope.is_file(),
            "{}: not there; build it first: cargo build --release --workspace",
            wirescope.display()
        );
        let scratch = built.parent().unwrap_or(built).join("bench");
        std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the folder of the workspace")?
            .to_path_buf();
        Ok(Workspace { wirescope, scratch, root })
    }

    /// A new folder for the output of one run; gone when dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn out_folder(&self) -> Result<TempDir> {
        tempfile::Builder::new().prefix("out-").tempdir_in(&self.scratch).context("a folder for output")
    }

    /// Where peers are that `scripts/fetch-peers.sh` fetched.
    pub fn peers(&self) -> PathBuf {
        self.scratch.with_file_name("peers")
    }

    /// Where the record of `part` goes.
    pub fn record_paths(&self, part: &str, cpu: &str, quick: bool) -> Vec<PathBuf> {
        if quick {
            return vec![self.scratch.join("quick.json")];
        }
        let folder = self.root.join("benches/record");
        let date = jiff::Timestamp::now().strftime("%Y-%m-%d");
        vec![folder.join("last.json"), folder.join(format!("{part}-{date}-{cpu}.json"))]
    }

    /// `text` without the place of the workspace: records name no path of the machine.
    pub fn without_root(&self, text: &str) -> String {
        let scratch = format!("{}/", self.scratch.display());
        text.replace(&scratch, "").replace(&format!("{}/", self.root.display()), "")
    }
}
