//! Where the files of a run go: a folder like any other, one that is full soon, or a file system of its own that
//! can be frozen, full, failing, read-only or gone.

use anyhow::{Context, Result, ensure};
use std::fs::{File, Permissions, read_link, read_to_string, remove_file, set_permissions, write};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder of the disk that is there.
    Plain,
    /// Memory, with room for so many KiB.
    Small(u32),
    /// A file system of its own, in a file of so many MiB.
    Own(u32),
}

/// The folder; dropped, whatever was mounted is unmounted.
pub struct Disk {
    kind: Kind,
    path: PathBuf,
    /// Keeps the file system frozen; it thaws it when its input ends, so also when this process is killed.
    freezer: Option<Child>,
    /// The device of a file system of its own: it stays as long as it is open.
    device: Option<File>,
}

/// The file that fills the disk.
const FILLER: &str = "filler";
/// Of a file system of its own the figures, journal and tables all lie before this.
pub const DATA_FROM_MIB: u64 = 12;
/// What folders may take before that, bytes.
const FOLDERS: u64 = 128 << 10;
/// `struct loop_info64`, and where the end of the device is in it.
type LoopInfo = [u64; 29];
const LOOP_END: usize = 4;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4c04;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
/// A device that is being written to takes another end a moment later.
const LOOP_MAX: Duration = Duration::from_secs(60);

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

/// Takes what is left before [`DATA_FROM_MIB`], but for some room for folders: no byte of a file lies there.
fn keep_data_behind(path: &Path) -> Result<()> {
    let (folders, rest) = (path.join("folders"), File::create(path.join("rest"))?);
    let reserve = |file: &File, bytes: u64| -> Result<()> {
        // SAFETY: takes numbers only; the file is open.
        let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes.cast_signed()) };
        ensure!(done == 0, "room could not be taken: {}", io::Error::last_os_error());
        Ok(())
    };
    let file = File::create(&folders)?;
    reserve(&file, FOLDERS)?;
    let next = first_byte(&file)? + FOLDERS;
    if let Some(left) = (DATA_FROM_MIB << 20).checked_sub(next) {
        reserve(&rest, left)?;
        ensure!(first_byte(&rest)? == next, "the file system's data don't lie where they are expected");
    }
    drop(file);
    remove_file(&folders)?;
    // What a file had is free for others from here on.
    // SAFETY: the file is open.
    ensure!(unsafe { libc::syncfs(rest.as_raw_fd()) } == 0, "{}", io::Error::last_os_error());
    Ok(())
}

/// Where the file's first byte lies on its device.
fn first_byte(file: &File) -> Result<u64> {
    // `struct fiemap` with one `struct fiemap_extent`: its length, how many extents fit, where the first one lies.
    const ASK: libc::c_ulong = 0xc020_660b;
    let mut map = [0u64; 4 + 7];
    (map[1], map[3]) = (u64::MAX, 1);
    // SAFETY: the call writes at most the one extent that it was told there is room for.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), ASK as _, map.as_mut_ptr()) };
    ensure!(answer == 0, "FIEMAP: {}", io::Error::last_os_error());
    Ok(map[5])
}

impl Disk {
    /// Mounts what there is to be mounted at `path`, a folder; an image is made beside it.
    ///
    /// # Errors
    /// The system's.
    pub fn mount(kind: Kind, path: &Path) -> Result<Disk> {
        let at = path.to_str().context("the path of the folder is no UTF-8")?;
        let mut device = None;
        match kind {
            Kind::Plain => {}
            Kind::Small(kib) => {
                run("mount", &["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0755"), "tmpfs", at])?
            }
            Kind::Own(mib) => {
                let image = format!("{at}.img");
                run("truncate", &["-s", &format!("{mib}M"), &image])?;
                let layout = ["-b", "4096", "-E", "packed_meta_blocks=1", "-J", "size=4"];
                run("mkfs.ext4", &[&["-q", "-F"], &layout[..], &[&image]].concat())?;
                run("mount", &["-o", "loop", &image, at])?;
                let mounts = read_to_string("/proc/thread-self/mounts")?;
                let own = mounts.lines().rev().find(|line| line.split(' ').nth(1) == Some(at));
                let own = own.and_then(|line| line.split(' ').next());
                let own = own.context("the file system isn't among the mounted ones")?;
                device = Some(File::options().read(true).write(true).open(own)?);
                keep_data_behind(path)?;
            }
        }
        Ok(Disk { kind, path: path.to_path_buf(), freezer: None, device })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Others take all the room that is left.
    ///
    /// # Errors
    /// The system's.
    pub fn fill(&self) -> Result<()> {
        let filler = File::create(self.path.join(FILLER))?;
        let (mut at, mut bytes) = (0, 1 << 30);
        while bytes >= 4096 {
            // SAFETY: takes numbers only; the file is open.
            match unsafe { libc::fallocate(filler.as_raw_fd(), 0, at, bytes) } {
                0 => at += bytes,
                _ => bytes /= 2,
            }
        }
        Ok(())
    }

    /// The room is there again.
    ///
    /// # Errors
    /// The system's.
    pub fn relieve(&self) -> Result<()> {
        remove_file(self.path.join(FILLER)).context("the file that fills the disk")
    }

    /// The device of a file system of its own ends behind so many MiB from now on: what lies behind can't be
    /// read or written (EIO). `None`: all of it is there again, unchanged.
    ///
    /// # Errors
    /// The system's.
    pub fn end_at(&self, mib: Option<u64>) -> Result<()> {
        let device = self.device.as_ref().context("it has no device of its own")?;
        let begun = Instant::now();
        loop {
            let mut info: LoopInfo = [0; 29];
            // SAFETY: both calls read or write one `struct loop_info64`, which is as long as `LoopInfo`.
            let done = unsafe {
                libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) == 0 && {
                    info[LOOP_END] = mib.unwrap_or(0) << 20;
                    libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64 as _, &raw const info) == 0
                }
            };
            if done {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            ensure!(begun.elapsed() < LOOP_MAX, "the disk takes no other end: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its file system finds itself broken, and lets nothing be changed any more until it is mounted again.
    ///
    /// # Errors
    /// The system's.
    pub fn break_down(&self) -> Result<()> {
        let at = self.path.to_str().unwrap_or_default();
        run("mount", &["-o", "remount,errors=remount-ro", at])?;
        Ok(write(self.of_kernel()?.join("trigger_fs_error"), "on purpose")?)
    }

    /// The kernel's folder of its file system.
    fn of_kernel(&self) -> Result<PathBuf> {
        let device = self.device_path()?;
        Ok(Path::new("/sys/fs/ext4").join(device.file_name().context("a device without a name")?))
    }

    fn device_path(&self) -> Result<PathBuf> {
        let device = self.device.as_ref().context("it has no device of its own")?;
        Ok(read_link(format!("/proc/self/fd/{}", device.as_raw_fd()))?)
    }

    /// Takes it away from its folder, whoever uses it.
    ///
    /// # Errors
    /// The system's.
    pub fn unmount(&self) -> Result<()> {
        run("umount", &["-l", self.path.to_str().unwrap_or_default()])
    }

    /// Mounts a file system of its own again.
    ///
    /// # Errors
    /// The system's.
    pub fn mount_again(&self) -> Result<()> {
        let device = self.device_path()?;
        run("mount", &[device.to_str().unwrap_or_default(), self.path.to_str().unwrap_or_default()])
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
        if self.device.is_some() {
            let _ = self.end_at(None);
        }
        if self.kind != Kind::Plain {
            let _ = run("umount", &["-l", self.path.to_str().unwrap_or_default()]);
        }
    }
}
