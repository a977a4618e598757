//! The peers: other programs that make flows of packets, each with the settings it does best with, and what they say
//! of themselves.
//!
//! | peer | reads | settings |
//! |---|---|---|
//! | nfpcapd | files | its records go into a folder, as nfdump reads them |
//! | softflowd | files, interfaces | room for 131072 flows, as ours has; records go to a socket as NetFlow 9 |
//!
//! softflowd gets a control socket only where it captures, and says there what it has counted. Where it reads a file, it
//! would wait for somebody at the socket instead, and says it at its end.

use crate::live::candidate;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use scope_testkit::lab::Namespace;
use std::fs::File;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Of what a peer said, so many characters are repeated.
const WORDS_MAX: usize = 300;
/// Flows that softflowd has room for.
const FLOWS_MAX: &str = "131072";
/// libpcap's memory for packets that wait, bytes: as much as `wirescope stats` has.
const BUFFER_BYTES: &str = "8388608";
/// softflowd may take so long to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Its control socket.
const SOCKET: &str = "control";

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// nfpcapd of nfdump.
    Nfpcapd,
    /// softflowd.
    Softflowd,
}

impl Peer {
    /// Those that read files.
    pub const ALL: [Peer; 2] = [Peer::Nfpcapd, Peer::Softflowd];

    /// Its program's name.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Nfpcapd => "nfpcapd",
            Peer::Softflowd => "softflowd",
        }
    }

    fn place(self) -> &'static str {
        match self {
            Peer::Nfpcapd => "usr/bin/nfpcapd",
            Peer::Softflowd => "usr/sbin/softflowd",
        }
    }

    /// Where it is.
    ///
    /// # Errors
    /// It is missing.
    fn program(self, workspace: &Workspace) -> Result<String> {
        let program = workspace.peers().join(self.place());
        ensure!(program.is_file(), "missing: {} couldn't be fetched", self.name());
        program.to_str().map(String::from).context("its path is no UTF-8")
    }

    /// How long it takes to read `file`, from its start to its end; it must have seen `packets`.
    ///
    /// # Errors
    /// What it said, where it fails or counts otherwise.
    pub fn read(self, workspace: &Workspace, file: &Path, packets: u64) -> Result<Duration> {
        let folder = workspace.out_folder()?;
        let sink = UdpSocket::bind("127.0.0.1:0")?;
        let mut command = Command::new(self.program(workspace)?);
        command.arg("-r").arg(file);
        match self {
            Peer::Nfpcapd => command.arg("-w").arg(folder.path()),
            Peer::Softflowd => command
                .args(softflowd_words(&sink)?)
                .args(["-c", "none", "-p"])
                .arg(folder.path().join("pid")),
        };
        command.stdin(Stdio::null());
        let begun = Instant::now();
        let output = command.output().context(self.name())?;
        let took = begun.elapsed();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(output.status.success(), "{} ended with {}: {}", self.name(), output.status, end_of(&said));
        let seen = match self {
            Peer::Nfpcapd => nfpcapd_seen(&said),
            Peer::Softflowd => Words(&said).number("Packets processed:"),
        };
        let seen = seen.with_context(|| format!("{} reported no counts: {}", self.name(), end_of(&said)))?;
        ensure!(seen == packets, "{} counts {seen} packets of {packets}", self.name());
        Ok(took)
    }
}

/// What it always gets.
fn softflowd_words(sink: &UdpSocket) -> Result<Vec<String>> {
    let to = sink.local_addr()?.to_string();
    Ok(["-d", "-v", "9", "-m", FLOWS_MAX, "-n", &to].map(String::from).to_vec())
}

/// softflowd that captures; killed when dropped.
pub struct Softflowd {
    child: Child,
    folder: TempDir,
    /// Where its records go. Nobody reads them.
    _sink: UdpSocket,
}

/// What softflowd counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Packets that it has seen.
    pub packets: u64,
    /// Packets that didn't get to it.
    pub dropped: u64,
    /// Flows that it has followed.
    pub flows: u64,
    /// Those of them whose place was needed.
    pub forced: u64,
}

impl Softflowd {
    /// Its command line, for the record.
    pub fn command_line() -> String {
        format!(
            "softflowd -i vb -B {BUFFER_BYTES} -d -v 9 -m {FLOWS_MAX} -n 127.0.0.1:PORT -p FILE -c SOCKET"
        )
    }

    /// Starts it on `vb` inside `namespace`, bound to the core that the caller is bound to.
    ///
    /// # Errors
    /// The system's, and where it isn't there.
    pub fn start(workspace: &Workspace, namespace: &Namespace) -> Result<Softflowd> {
        let folder = workspace.out_folder()?;
        let sink = namespace.enter(|| UdpSocket::bind("127.0.0.1:0"))?;
        let mut command = namespace.command(&Peer::Softflowd.program(workspace)?);
        command.args(["-i", "vb", "-B", BUFFER_BYTES]).args(softflowd_words(&sink)?);
        command.arg("-p").arg(folder.path().join("pid")).arg("-c").arg(folder.path().join(SOCKET));
        let said = folder.path().join("said");
        command
            .stdin(Stdio::null())
            .stdout(File::create(&said)?)
            .stderr(File::options().append(true).open(&said)?);
        let child = command.spawn().context("softflowd")?;
        Ok(Softflowd { child, folder, _sink: sink })
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
            Some(status) => bail!("softflowd ended with {status}: {}", end_of(&self.said())),
            None => Ok(()),
        }
    }

    /// Asks what it has counted, and ends it.
    ///
    /// # Errors
    /// What it said, where it doesn't say.
    pub fn finish(mut self) -> Result<Counted> {
        self.check_alive()?;
        let mut socket =
            UnixStream::connect(self.folder.path().join(SOCKET)).context("softflowd's socket")?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.write_all(b"statistics\n")?;
        let mut said = String::new();
        socket.read_to_string(&mut said).context("softflowd's answer")?;
        counted(&said).with_context(|| format!("softflowd reported no counts: {}", end_of(&said)))
    }

    fn said(&self) -> String {
        let said = std::fs::read(self.folder.path().join("said")).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Softflowd {
    fn drop(&mut self) {
        // Both do nothing where its end was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Versions of the packages that peers come from, where Debian knows them.
pub fn versions() -> Vec<String> {
    ["nfdump", "softflowd"].iter().filter_map(|package| candidate(package)).collect()
}

/// What a program said.
struct Words<'a>(&'a str);

impl Words<'_> {
    /// The number behind these words at the begin of a line.
    fn number(&self, words: &str) -> Option<u64> {
        self.0
            .lines()
            .find_map(|line| line.trim().strip_prefix(words)?.split_whitespace().next()?.parse().ok())
    }
}

/// `Total: Processed: N, skipped: 0, ...`.
fn nfpcapd_seen(said: &str) -> Option<u64> {
    let behind = said.lines().find_map(|line| line.split_once("Total: Processed:"))?.1;
    behind.split(',').next()?.trim().parse().ok()
}

/// `Number of active flows: N`, `Packets processed: N`, `Flows expired: N (M forced)`, `Packets dropped by libpcap: N`.
fn counted(said: &str) -> Option<Counted> {
    let forced = said.lines().find_map(|line| line.trim().strip_prefix("Flows expired:")?.split_once('('))?.1;
    Some(Counted {
        packets: Words(said).number("Packets processed:")?,
        dropped: Words(said).number("Packets dropped by libpcap:")?,
        flows: Words(said).number("Number of active flows:")? + Words(said).number("Flows expired:")?,
        forced: forced.split_whitespace().next()?.parse().ok()?,
    })
}

/// The end of what a program said.
fn end_of(said: &str) -> String {
    let said = said.trim().replace('\n', " / ");
    said.chars().skip(said.chars().count().saturating_sub(WORDS_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_each_peer_are_understood() {
        let said = "Startup nfpcapd.\nIdent: 'none' Flows: 3, Packets: 57\nTotal: Processed: 57, skipped: 0, short caplen: 0";
        assert_eq!((nfpcapd_seen(said), nfpcapd_seen("killed")), (Some(57), None));
        let said = "Number of active flows: 5\nPackets processed: 50\nFragments: 0\nFlows expired: 9 (2 forced)\nFlows exported: 9 (18 records)\n\
                    Packets received by libpcap:     57\nPackets dropped by libpcap:      7\n";
        let expected = Counted { packets: 50, dropped: 7, flows: 14, forced: 2 };
        assert_eq!((counted(said), counted("killed")), (Some(expected), None));
    }
}
