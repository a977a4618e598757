//! Runs that store: how they are started, and whether what they say is what their folder has.

use crate::wirescope::{Finished, Run};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A run may take so long to end.
pub const END_LIMIT: Duration = Duration::from_secs(300);
/// Packets, of which no one is for this port: a run has one trigger, as most have.
pub const TRIGGER: [&str; 2] = ["--trigger", "udp dst port 9"];

/// How a run is to write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// io_uring, past the page cache.
    Uring,
    /// `pwrite`: the process may not set io_uring up.
    Pwrite,
}

impl Way {
    /// Its word in the summary.
    fn word(self) -> &'static str {
        match self {
            Way::Uring => "io_uring",
            Way::Pwrite => "pwrite",
        }
    }
}

/// Starts `wirescope run` with `arguments`, which stores into `store`.
///
/// # Errors
/// The system's.
pub fn start(workspace: &Workspace, store: &Path, way: Way, arguments: &[&str]) -> Result<Run> {
    let store = store.to_str().context("the folder's path is no UTF-8")?;
    // Never met where all goes well: what is measured is writing. Else the disk stays free for others.
    let arguments = [arguments, &["--store", store, "--store-budget", "12GiB"]].concat();
    Run::start_prepared(workspace, &arguments, |command| {
        if way == Way::Pwrite {
            // SAFETY: between fork and exec only two calls of prctl are made, with memory of its own stack.
            unsafe { command.pre_exec(refuse_io_uring) };
        }
    })
}

/// A filter on system calls that says of io_uring what a kernel without it says. It stays on through exec.
fn refuse_io_uring() -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let (no, yes, mode): (libc::c_ulong, libc::c_ulong, libc::c_ulong) =
        (0, 1, libc::SECCOMP_MODE_FILTER.into());
    // SAFETY: the program and its steps outlive the calls.
    let taken = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, no, no, no) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) == 0
    };
    if taken { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The one volume of a run.
///
/// # Errors
/// Where it has another number of volumes.
pub fn volume(finished: &Finished) -> Result<&Value> {
    match finished.summary["stores"].as_array().map(Vec::as_slice) {
        Some([volume]) => Ok(volume),
        _ => anyhow::bail!("the summary doesn't have one volume: {}", finished.summary["stores"]),
    }
}

/// A count of packets of a volume.
pub fn packets(volume: &Value, key: &str) -> u64 {
    volume[key]["packets"].as_u64().unwrap_or(0)
}

/// Checks that all of `sent` packets were received and stored on disk, in this way.
///
/// # Errors
/// What is different.
pub fn check_all_stored(finished: &Finished, sent: u64, way: Way) -> Result<()> {
    finished.check_packets(sent)?;
    let volume = volume(finished)?;
    let stored = packets(volume, "stored");
    ensure!(stored == sent, "{stored} packets are on the disk of {sent}: {volume}");
    check_way(volume, way)
}

/// Checks that a volume was written to in this way.
///
/// # Errors
/// In which else.
pub fn check_way(volume: &Value, way: Way) -> Result<()> {
    let said = volume["way"].as_str().unwrap_or_default();
    let same = said.strip_prefix(way.word()).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    ensure!(same, "it was to write by {} and wrote by {said}", way.word());
    Ok(())
}

/// The files of a store, oldest first. None of them may still grow.
///
/// # Errors
/// The system's, and a file that grows.
pub fn files(store: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for day in fs::read_dir(store).with_context(|| store.display().to_string())? {
        let day = day?.path();
        if day.is_dir() {
            for file in fs::read_dir(&day).with_context(|| day.display().to_string())? {
                files.push(file?.path());
            }
        }
    }
    files.sort();
    let grows = files.iter().find(|file| file.extension().is_none_or(|ending| ending != "pcapng"));
    ensure!(grows.is_none(), "{} is no whole file", grows.map_or(Path::new(""), |file| file).display());
    Ok(files)
}

/// Bytes of files.
///
/// # Errors
/// The system's.
pub fn bytes_of(files: &[PathBuf]) -> Result<u64> {
    files.iter().map(|file| Ok(file.metadata()?.len())).sum()
}

/// Runs `wirescope verify --json` on a store, which must find it whole.
///
/// # Errors
/// What it says else.
pub fn verify(workspace: &Workspace, store: &Path) -> Result<Value> {
    let (report, code) = verified(workspace, store)?;
    ensure!(code == Some(0) && report["verdict"] == "whole", "wirescope verify: {}", first_fault(&report));
    Ok(report)
}

/// Its report, and its exit code, which is 1 where packets are missing or bytes are damaged.
fn verified(workspace: &Workspace, store: &Path) -> Result<(Value, Option<i32>)> {
    let output = Command::new(&workspace.wirescope)
        .args(["verify", "--json"])
        .arg(store)
        .stdin(Stdio::null())
        .output()
        .context("wirescope verify")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("wirescope verify ended with {}: {}", output.status, said.trim()))?;
    Ok((report, output.status.code()))
}

/// The verdict, and of the first file that isn't whole what was found.
fn first_fault(report: &Value) -> String {
    let faulty = report["files"].as_array().into_iter().flatten().find(|file| file["verdict"] != "whole");
    let faulty = faulty.map(Value::to_string).unwrap_or_default();
    format!("{} {}", report["verdict"], faulty.chars().take(500).collect::<String>())
}

/// Checks that a store is whole and has so many packets in it.
///
/// # Errors
/// What is different.
pub fn check_whole(workspace: &Workspace, store: &Path, packets: u64) -> Result<()> {
    check_count(&verify(workspace, store)?, packets)
}

/// Checks that of a store that missed packets nothing is damaged, and that it has so many packets in it.
///
/// # Errors
/// What is different.
pub fn check_undamaged(workspace: &Workspace, store: &Path, packets: u64) -> Result<()> {
    let (report, code) = verified(workspace, store)?;
    let damaged = report["verdict"] != "whole" && report["verdict"] != "lost";
    ensure!(matches!(code, Some(0 | 1)) && !damaged, "wirescope verify: {}", first_fault(&report));
    check_count(&report, packets)
}

fn check_count(report: &Value, packets: u64) -> Result<()> {
    let found = &report["packets"];
    ensure!(*found == packets, "{found} packets are in the files, {packets} were counted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_process_that_may_not_set_io_uring_up_is_told_that_there_is_none() {
        let mut command = Command::new("true");
        // SAFETY: as in `start`.
        unsafe { command.pre_exec(refuse_io_uring) };
        assert!(command.status().unwrap().success());
        let refused = std::thread::spawn(|| {
            refuse_io_uring().unwrap();
            // SAFETY: io_uring_setup writes into the parameters, which aren't reached.
            let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null_mut::<u8>()) };
            (result, io::Error::last_os_error().raw_os_error())
        });
        assert_eq!(refused.join().unwrap(), (-1, Some(libc::ENOSYS)));
    }

    #[test]
    fn a_way_is_known_by_its_first_word() {
        let check = |said: &str, way, holds| {
            assert_eq!(check_way(&json!({ "way": said }), way).is_ok(), holds, "{said}");
        };
        check("io_uring", Way::Uring, true);
        check("io_uring, the ring's memory is not registered (no)", Way::Uring, true);
        check("pwrite: io_uring is refused by the system (no)", Way::Pwrite, true);
        check("pwrite: io_uring is refused by the system (no)", Way::Uring, false);
        check("pwritev", Way::Pwrite, false);
    }
}
