//! The peers: their programs, each with the settings it is known to do best with, and what they say of
//! themselves at the end.
//!
//! | peer | kernel's ring | output |
//! |---|---|---|
//! | tcpdump | TPACKET_V3 of libpcap, 64 MiB | pcap to /dev/null |
//! | dumpcap | the same | pcap to /dev/null |
//! | netsniff-ng | TPACKET_V3, 64 MiB, bound to its core by itself, too | pcap to /dev/null by scatter and gather |
//! | stenotype | TPACKET_V3, 128 blocks of 1 MiB | O_DIRECT files and an index on disk |
//!
//! In the rows of the store the first three write a file on the disk instead.
//!
//! Ours has 64 MiB, too; stenotype writes the kernel's blocks themselves to disk and needs more of them. What
//! a peer holds in a block that isn't full comes with that block's time-out: so long it is given behind the
//! last packet. stenotype counts with every block, and is killed: ordered to stop, it waits for the last of
//! its writes without end on some kernels.

use crate::live::{Counted, WORDS_MAX};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use scope_testkit::lab::Namespace;
use std::fs::{File, create_dir};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A peer's end may take so long.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Where peers write that needn't write to a disk.
const NOWHERE: &str = "/dev/null";

/// The file that they write else.
const FILE: &str = "packets.pcap";

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nowhere, but of stenotype, which can't.
    Nowhere,
    /// Onto the disk.
    Disk,
}

/// One peer.
pub struct Peer {
    /// Its name: that of its program.
    pub name: &'static str,
    /// Below the folder of fetched peers, if it comes from there; otherwise it is looked for where programs
    /// are.
    fetched: Option<&'static str>,
    /// Its arguments; CORE and FOLDER stand for the core it runs on and a folder of its own.
    arguments: &'static [&'static str],
    /// The time-out of its blocks, and a little.
    pub settle: Duration,
    /// What ends it.
    stop: i32,
    /// Reads its last words.
    counted: fn(&str) -> Option<Counted>,
}

/// All of them.
pub const PEERS: [Peer; 4] = [
    Peer {
        name: "tcpdump",
        fetched: None,
        arguments: &["-i", "vb", "-n", "-B", "65536", "-w", "/dev/null"],
        settle: Duration::from_millis(1200),
        stop: libc::SIGINT,
        counted: tcpdump,
    },
    Peer {
        name: "dumpcap",
        fetched: None,
        arguments: &["-i", "vb", "-q", "-P", "-B", "64", "-w", "/dev/null"],
        settle: Duration::from_millis(500),
        stop: libc::SIGINT,
        counted: dumpcap,
    },
    Peer {
        name: "netsniff-ng",
        fetched: Some("usr/sbin/netsniff-ng"),
        arguments: &["-i", "vb", "-o", "/dev/null", "-s", "-S", "64MiB", "-b", "CORE", "-Q", "-A", "-N"],
        settle: Duration::from_millis(500),
        stop: libc::SIGINT,
        counted: netsniff,
    },
    Peer {
        name: "stenotype",
        fetched: Some("usr/sbin/stenotype"),
        arguments: &[
            "--iface=vb",
            "--dir=FOLDER",
            "--threads=1",
            "--blocks=128",
            "--aiops=64",
            "--blocksize_kb=1024",
            "--blockage_sec=1",
            "--filesize_mb=4096",
            "--no_watchdogs",
            "--seccomp=none",
            "--uid=root",
            "--gid=root",
            "--stats_blocks=1",
            "-v",
        ],
        settle: Duration::from_millis(1300),
        stop: libc::SIGKILL,
        counted: stenotype,
    },
];

impl Peer {
    /// Its command line, for the record.
    pub fn command_line(&self) -> String {
        format!("{} {}", self.name, self.arguments.join(" "))
    }

    /// Starts it inside `namespace`, bound to the core that the caller is bound to.
    ///
    /// # Errors
    /// The system's, and where it isn't there.
    pub fn start(
        &self,
        workspace: &Workspace,
        namespace: &Namespace,
        core: usize,
        output: Output,
    ) -> Result<PeerRun> {
        let folder = workspace.out_folder()?;
        for name in ["PKT0", "IDX0"] {
            create_dir(folder.path().join(name))?;
        }
        let root = workspace.peers();
        let program = self.fetched.map_or_else(|| PathBuf::from(self.name), |path| root.join(path));
        ensure!(
            self.fetched.is_none() || program.is_file(),
            "{} isn't there: it couldn't be fetched",
            self.name
        );
        let said = folder.path().join("said");
        let mut command = namespace.command(program.to_str().context("its path is no UTF-8")?);
        let core = core.to_string();
        let file = match output {
            Output::Nowhere => NOWHERE.to_string(),
            Output::Disk => text(&folder.path().join(FILE)),
        };
        command.args(self.arguments.iter().map(|word| {
            word.replace("CORE", &core).replace("FOLDER", &text(folder.path())).replace(NOWHERE, &file)
        }));
        command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
        command
            .stdin(Stdio::null())
            .stdout(File::create(&said)?)
            .stderr(File::options().append(true).open(&said)?);
        let child = command.spawn().context(self.name)?;
        Ok(PeerRun { child, folder, stop: self.stop, counted: self.counted })
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A peer that captures; killed when dropped.
pub struct PeerRun {
    child: Child,
    folder: TempDir,
    stop: i32,
    counted: fn(&str) -> Option<Counted>,
}

impl PeerRun {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// What it said, where it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("it ended at its start with {status}: {}", self.words()),
            None => Ok(()),
        }
    }

    /// Orders it to stop, and reads what it counted.
    ///
    /// # Errors
    /// What it said, where it doesn't end or doesn't say.
    pub fn finish(mut self) -> Result<Counted> {
        // SAFETY: kill takes no pointers, and the child is not waited for yet, so the number is still its
        // own.
        unsafe { libc::kill(self.child.id() as i32, self.stop) };
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(begun.elapsed() < END_LIMIT, "it still runs {END_LIMIT:?} after it was ordered to stop");
            std::thread::sleep(Duration::from_millis(10));
        }
        (self.counted)(&self.said()).with_context(|| format!("it reported no counts: {}", self.words()))
    }

    fn said(&self) -> String {
        std::fs::read(self.folder.path().join("said"))
            .map(|said| String::from_utf8_lossy(&said).into_owned())
            .unwrap_or_default()
    }

    /// The end of what it said.
    fn words(&self) -> String {
        let said = self.said().trim().replace('\n', " / ");
        said.chars().skip(said.chars().count().saturating_sub(WORDS_MAX)).collect()
    }
}

impl Drop for PeerRun {
    fn drop(&mut self) {
        // Both do nothing where its end was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `N packets captured`, `N packets dropped by kernel`.
fn tcpdump(said: &str) -> Option<Counted> {
    let number =
        |words: &str| said.lines().find_map(|line| line.trim().strip_suffix(words)?.trim().parse().ok());
    Some(Counted { seen: number("packets captured")?, lost: number("packets dropped by kernel")? })
}

/// `Packets received/dropped on interface 'vb': N/M (pcap:...`.
fn dumpcap(said: &str) -> Option<Counted> {
    let line = said.lines().find_map(|line| line.split_once("received/dropped on interface"))?.1;
    let (seen, lost) = line.split_once(':')?.1.split_whitespace().next()?.split_once('/')?;
    Some(Counted { seen: seen.parse().ok()?, lost: lost.parse().ok()? })
}

/// `N  packets passed filter`, `N  packets failed filter (out of space)`.
fn netsniff(said: &str) -> Option<Counted> {
    let number =
        |words: &str| said.lines().find_map(|line| line.trim().strip_suffix(words)?.trim().parse().ok());
    Some(Counted {
        seen: number("packets passed filter")?,
        lost: number("packets failed filter (out of space)")?,
    })
}

/// The last `Thread 0 stats: ... packets=N blocks=... drops=M ...`: it counts on from its start.
fn stenotype(said: &str) -> Option<Counted> {
    let line = said.lines().rev().find(|line| line.contains("stats: MB="))?;
    let number = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok());
    Some(Counted { seen: number("packets=")?, lost: number("drops=")? })
}

/// Version of the package that a peer was fetched from or is installed from, where Debian knows it.
pub fn versions() -> Vec<String> {
    let packages = ["tcpdump", "wireshark-common", "netsniff-ng", "stenographer"];
    packages.iter().filter_map(|package| candidate(package)).collect()
}

/// The version of a package that Debian would install.
pub fn candidate(package: &str) -> Option<String> {
    let output = Command::new("apt-cache").args(["policy", package]).output().ok()?;
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = words
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate:").map(str::trim).map(String::from))?;
    Some(format!("{package} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_each_peer_are_understood() {
        let check = |counted: fn(&str) -> Option<Counted>, said, seen, lost| {
            assert_eq!(counted(said), Some(Counted { seen, lost }), "{said}");
            assert_eq!(counted("killed"), None);
        };
        check(
            tcpdump,
            "50 packets captured\n57 packets received by filter\n7 packets dropped by kernel\n",
            50,
            7,
        );
        let said = "File: /dev/null\nPackets captured: 50\nPackets received/dropped on interface 'vb': 50/7 \
            (pcap:7/dumpcap:0) (87%)";
        check(dumpcap, said, 50, 7);
        let said = "   57  packets incoming (0 unread on exit)\n   50  packets passed filter\n    7  packets \
            failed filter (out of space)\n";
        check(netsniff, said, 50, 7);
        let said = "T Thread 0 stats: MB=1 secs=1 packets=5 blocks=1 drops=0 drop%=0\nT Thread 0 stats: MB=2 \
            packets=50 blocks=2 polls=1 drops=7 drop%=0\n";
        check(stenotype, said, 50, 7);
    }
}
