//! Where the dumps of a run go: a folder like any other, one that is full soon, or a file system that can be frozen.

use anyhow::{Context, Result, ensure};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder of the disk that is there.
    Plain,
    /// Memory, with room for so many KiB.
    Small(u32),
    /// A file system of its own, in a file, which can be frozen.
    Own,
}

/// The folder; dropped, whatever was mounted is unmounted.
pub struct Disk {
    kind: Kind,
    path: PathBuf,
}

/// Runs a command that must end well.
fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().with_context(|| program.to_string())?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), words.trim());
    Ok(())
}

impl Disk {
    /// Mounts what there is to be mounted at `path`, a folder; an image is made beside it.
    ///
    /// # Errors
    /// The system's.
    pub fn mount(kind: Kind, path: &Path) -> Result<Disk> {
        let at = path.to_str().context("the path of the folder is no UTF-8")?;
        match kind {
            Kind::Plain => {}
            Kind::Small(kib) => run("mount", &["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0755"), "tmpfs", at])?,
            Kind::Own => {
                let image = format!("{at}.img");
                run("truncate", &["-s", "64M", &image])?;
                run("mkfs.ext4", &["-q", "-F", &image])?;
                run("mount", &["-o", "loop", &image, at])?;
            }
        }
        Ok(Disk { kind, path: path.to_path_buf() })
    }

    /// Nothing that is written gets on from now on, until [`Disk::thaw`].
    ///
    /// # Errors
    /// The system's.
    pub fn freeze(&self) -> Result<()> {
        run("fsfreeze", &["-f", self.path.to_str().unwrap_or_default()])
    }

    /// Everything gets on again.
    ///
    /// # Errors
    /// The system's.
    pub fn thaw(&self) -> Result<()> {
        run("fsfreeze", &["-u", self.path.to_str().unwrap_or_default()])
    }

    /// Nothing can be made in the folder, or everything again.
    ///
    /// # Errors
    /// The system's.
    pub fn set_closed(&self, closed: bool) -> Result<()> {
        Ok(set_permissions(&self.path, Permissions::from_mode(if closed { 0o555 } else { 0o755 }))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.kind == Kind::Own {
            let _ = self.thaw(); // fails where it isn't frozen
        }
        if self.kind != Kind::Plain {
            let _ = run("umount", &["-l", self.path.to_str().unwrap_or_default()]);
        }
    }
}
