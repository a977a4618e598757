//! Where the files of a run go: a folder like any other, one that is full soon, or a file system that can be
//! frozen.

use anyhow::{Context, Result, ensure};
use std::fs::{Permissions, set_permissions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder of the disk that is there.
    Plain,
    /// Memory, with room for so many KiB.
    Small(u32),
    /// A file system of its own, in a file of so many MiB, which can be frozen.
    Own(u32),
}

/// The folder; dropped, whatever was mounted is unmounted.
pub struct Disk {
    kind: Kind,
    path: PathBuf,
    /// Keeps the file system frozen; it thaws it when its input ends, so also when this process is killed.
    freezer: Option<Child>,
}

/// What the freezer does: its input's end, or a line there, thaws.
const FREEZER: &str = "fsfreeze -f \"$0\" || exit 1; echo frozen; read line; fsfreeze -u \"$0\"";

/// Why no file system can be frozen here; `None`: one can.
pub fn lacks() -> Option<&'static str> {
    let needed = ["mkfs.ext4", "fsfreeze"].iter().all(|program| crate::oracle::have(program));
    let loops = Path::new("/dev/loop-control").exists();
    (!needed || !loops).then_some("needs mkfs.ext4, fsfreeze and loop devices")
}

/// From now on what this thread, and whatever it starts, mounts is seen by them alone, and gone with them.
///
/// # Errors
/// The system's: only root may.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: plain system call; it changes this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let nothing = std::ptr::null();
    // SAFETY: the path is a C string; the other pointers may be null where only the propagation changes.
    match unsafe {
        libc::mount(nothing, c"/".as_ptr(), nothing, libc::MS_REC | libc::MS_PRIVATE, nothing.cast())
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs a command that must end well.
fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| program.to_string())?;
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
            Kind::Small(kib) => {
                run("mount", &["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0755"), "tmpfs", at])?
            }
            Kind::Own(mib) => {
                let image = format!("{at}.img");
                run("truncate", &["-s", &format!("{mib}M"), &image])?;
                run("mkfs.ext4", &["-q", "-F", &image])?;
                run("mount", &["-o", "loop", &image, at])?;
            }
        }
        Ok(Disk { kind, path: path.to_path_buf(), freezer: None })
    }

    /// Nothing that is written gets on from now on, until [`Disk::thaw`].
    ///
    /// # Errors
    /// The system's.
    pub fn freeze(&mut self) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", FREEZER]).arg(&self.path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut freezer = command.spawn().context("sh")?;
        let mut said = String::new();
        if let Some(stdout) = freezer.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        self.freezer = Some(freezer);
        ensure!(said == "frozen\n", "{} can't be frozen", self.path.display());
        Ok(())
    }

    /// Everything gets on again.
    ///
    /// # Errors
    /// The system's.
    pub fn thaw(&mut self) -> Result<()> {
        let Some(mut freezer) = self.freezer.take() else { return Ok(()) };
        drop(freezer.stdin.take());
        ensure!(freezer.wait()?.success(), "{} can't be thawed", self.path.display());
        Ok(())
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
        let _ = self.thaw();
        if self.kind != Kind::Plain {
            let _ = run("umount", &["-l", self.path.to_str().unwrap_or_default()]);
        }
    }
}
