//! Where the part `store` writes: a folder on the machine's own disk, of bounded size, removed at the end,
//! also when the bench is ordered to stop.
//!
//! It is named after this process, beside the folder of the other parts. What a killed call left is removed
//! by the next one.

use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_spelling::figures::size;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the part never exceeds, bytes, with room for what else the disk needs.
const ROOM_BYTES: u64 = 14 << 30;
/// In front of the number of the process in the folder's name.
const PREFIX: &str = "bench-store-";
/// Programs that were stopped may write for so long.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);

/// The folder; removed when dropped.
pub struct Place {
    folder: PathBuf,
}

impl Place {
    /// Makes it, and from now on removes it when the bench is ordered to stop.
    ///
    /// # Errors
    /// The system's, and where the disk has no room.
    pub fn make(workspace: &Workspace) -> Result<Place> {
        let beside = workspace.scratch.parent().context("the folder of the folder for scratch files")?;
        remove_left(beside);
        let free = scope_machine::disk::disk(beside).map_or(u64::MAX, |disk| disk.free_bytes);
        ensure!(
            free >= ROOM_BYTES,
            "{}: {} are free, {} are needed",
            beside.display(),
            size(free),
            size(ROOM_BYTES)
        );
        let folder = beside.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let place = Place { folder };
        remove_on_stop(place.folder.clone())?;
        Ok(place)
    }

    /// The workspace with its scratch files in here.
    pub fn workspace(&self, workspace: &Workspace) -> Workspace {
        Workspace {
            wirescope: workspace.wirescope.clone(),
            scratch: self.folder.clone(),
            root: workspace.root.clone(),
        }
    }

    /// Where the folder `name` is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new, empty folder `name` in here; what was in it is gone. The disk has nothing else to do when this
    /// returns.
    ///
    /// # Errors
    /// The system's.
    pub fn empty(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        settle(&self.folder)?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder); // the next call tries again
    }
}

/// Waits until the file system has nothing on its way to the disk.
fn settle(folder: &Path) -> Result<()> {
    let folder = File::open(folder)?;
    // SAFETY: takes a number only; the descriptor is open.
    let result = unsafe { libc::syncfs(folder.as_raw_fd()) };
    ensure!(result == 0, "syncfs: {}", io::Error::last_os_error());
    Ok(())
}

/// Removes the folders of calls that are no more.
fn remove_left(beside: &Path) {
    for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
        if process.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
            let _ = fs::remove_dir_all(entry.path()); // the next call tries again
        }
    }
}

/// Ends this process, and what it started, when it is ordered to stop; the folder goes with it.
fn remove_on_stop(folder: PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        let begun = Instant::now();
        while folder.exists() && begun.elapsed() < REMOVE_LIMIT {
            children().into_iter().for_each(kill);
            let _ = fs::remove_dir_all(&folder); // as long as somebody writes to it, it isn't empty
        }
        std::process::exit(128 + signal);
    };
    std::thread::Builder::new().name("stop".to_string()).spawn(wait).context("a thread")?;
    Ok(())
}

/// Processes that this one started.
fn children() -> Vec<i32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn kill(process: i32) {
    // SAFETY: takes numbers only. The process is a child of this one: nobody else has its number before it is
    // waited for.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_calls_left_goes_and_what_others_use_stays() {
        let beside = tempfile::tempdir().unwrap();
        let own = format!("{PREFIX}{}", std::process::id());
        for name in [&own, "bench-store-4194999", "bench-store-x", "bench"] {
            fs::create_dir(beside.path().join(name)).unwrap();
        }
        remove_left(beside.path());
        let mut left: Vec<_> = fs::read_dir(beside.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = vec!["bench".to_string(), own, "bench-store-x".to_string()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
