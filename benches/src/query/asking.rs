//! Questions to the store, by `wirescope query` and by tcpdump over the same files.

use super::answer::Answer;
use super::cache;
use super::process::{self, Ended};
use super::store::Store;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use scope_testkit::oracle;
use serde_json::Value;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The store with those who ask.
pub struct Asking<'a> {
    /// Paths.
    pub workspace: &'a Workspace,
    /// What is asked.
    pub store: &'a Store,
    /// The most memory that a query had by now, KiB.
    pub resident_kib: AtomicU64,
}

/// An answer of ours that was looked through.
pub struct Answered {
    /// The process.
    pub ended: Ended,
    /// Its packets.
    pub answer: Answer,
    /// From its start to the first byte of a packet; `None`: there was none.
    pub first_seconds: Option<f64>,
}

impl Asking<'_> {
    /// The files leave the page cache.
    ///
    /// # Errors
    /// As [`cache::empty`].
    pub fn cool(&self) -> Result<()> {
        cache::empty(&self.store.files)
    }

    /// The page cache has the files.
    ///
    /// # Errors
    /// The system's.
    pub fn warm(&self) -> Result<()> {
        cache::fill(&self.store.files)
    }

    /// `wirescope query` over the store, with `arguments`.
    pub fn command(&self, arguments: &[&str]) -> Command {
        query(self.workspace, &self.store.folder, arguments)
    }

    /// Notes how much memory a query had.
    pub fn note(&self, ended: &Ended) {
        self.resident_kib.fetch_max(ended.resident_kib, Ordering::Relaxed);
    }

    /// The packets of a question, through a pipe; exit code 0.
    ///
    /// # Errors
    /// What the query said, and what isn't a capture in order of time.
    pub fn packets(&self, arguments: &[&str]) -> Result<Answered> {
        let answered = packets(&mut self.command(&[arguments, &["-w", "-"]].concat()))?;
        self.note(&answered.ended);
        Ok(answered)
    }

    /// The packets that a question counts; exit code 0.
    ///
    /// # Errors
    /// What the query said.
    pub fn count(&self, arguments: &[&str]) -> Result<(Ended, u64)> {
        let mut said = Vec::new();
        let ended =
            process::run(&mut self.command(&[arguments, &["--count", "--json"]].concat()), |piece| {
                said.extend(piece);
                Ok(())
            })?;
        self.note(&ended);
        ended.expect(0)?;
        let count: Value = serde_json::from_slice(&said).context("the object of a count")?;
        Ok((ended, count["packets"].as_u64().context("no count of packets")?))
    }

    /// A question whose packets go to `/dev/null`: how many it says they are; exit code 0.
    ///
    /// # Errors
    /// What the query said.
    pub fn to_nowhere(&self, arguments: &[&str]) -> Result<(Ended, u64)> {
        let mut said = Vec::new();
        let ended = process::run(&mut self.command(&[arguments, &["-w", "/dev/null"]].concat()), |piece| {
            said.extend(piece);
            Ok(())
        })?;
        self.note(&ended);
        ended.expect(0)?;
        let said = format!("{} {}", String::from_utf8_lossy(&said), ended.words);
        let packets =
            packets_in(&said).with_context(|| format!("no count of packets in '{}'", said.trim()))?;
        Ok((ended, packets))
    }

    /// tcpdump over all files, one after the other; how many packets it selects.
    ///
    /// # Errors
    /// What it said.
    pub fn tcpdump(&self, filter: &str) -> Result<(Ended, u64)> {
        let mut selected = Vec::new();
        let ended = process::run(&mut self.tcpdump_command(filter, "-")?, |piece| {
            selected.extend(piece);
            Ok(())
        })?;
        ended.expect(0)?;
        let file = oracle::parse(&selected).map_err(anyhow::Error::msg).context("what tcpdump wrote")?;
        Ok((ended, file.capture.packets.len() as u64))
    }

    /// The same with its packets to `/dev/null`.
    ///
    /// # Errors
    /// What it said.
    pub fn tcpdump_to_nowhere(&self, filter: &str) -> Result<Ended> {
        let ended = process::run(&mut self.tcpdump_command(filter, "/dev/null")?, |_| Ok(()))?;
        ended.expect(0)?;
        Ok(ended)
    }

    /// Packets that tcpdump counts.
    ///
    /// # Errors
    /// What it said.
    pub fn tcpdump_count(&self, filter: &str) -> Result<u64> {
        let mut said = Vec::new();
        let mut command = self.tcpdump_reading()?;
        command.args(["--count", filter]);
        let ended = process::run(&mut command, |piece| {
            said.extend(piece);
            Ok(())
        })?;
        ended.expect(0)?;
        packets_in(&String::from_utf8_lossy(&said)).context("no count from tcpdump")
    }

    fn tcpdump_command(&self, filter: &str, output: &str) -> Result<Command> {
        let mut command = self.tcpdump_reading()?;
        command.args(["-w", output, filter]);
        Ok(command)
    }

    /// It gets the list of files by standard input: it may be confined to certain names of files.
    fn tcpdump_reading(&self) -> Result<Command> {
        let mut list = tempfile::tempfile_in(&self.workspace.scratch)?;
        for file in &self.store.files {
            writeln!(list, "{}", file.display())?;
        }
        list.seek(SeekFrom::Start(0))?;
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-Z", "root", "-V", "-"]).stdin(list);
        Ok(command)
    }
}

/// `wirescope query` over one store.
pub fn query(workspace: &Workspace, store: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(&workspace.wirescope);
    command.arg("query").args(arguments).arg("--store").arg(store).stdin(Stdio::null());
    command
}

/// Runs a query that writes to standard output, and looks through what comes.
///
/// # Errors
/// As [`Asking::packets`].
pub fn packets(command: &mut Command) -> Result<Answered> {
    let mut answer = Answer::default();
    let mut first_seconds = None;
    let begun = Instant::now();
    let ended = process::run(command, |piece| {
        answer.push(piece)?;
        if first_seconds.is_none() && answer.has_begun() {
            first_seconds = Some(begun.elapsed().as_secs_f64());
        }
        Ok(())
    })?;
    ended.expect(0)?;
    answer.end()?;
    ensure!(answer.steps_back == 0, "{} packets are older than the one before", answer.steps_back);
    Ok(Answered { ended, answer, first_seconds })
}

/// Checks a number of packets.
///
/// # Errors
/// Where it is another one.
pub fn expect(found: u64, expected: u64) -> Result<()> {
    if found != expected {
        bail!("{found} packets, not {expected}");
    }
    Ok(())
}

/// The last number in front of the word `packet` or `packets`, with or without separators of thousands.
fn packets_in(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let numbers = words.windows(2).filter(|pair| {
        let word = pair[1].trim_matches(|c: char| !c.is_alphabetic());
        word == "packet" || word == "packets"
    });
    numbers.filter_map(|pair| pair[0].replace(',', "").parse().ok()).next_back()
}

/// The seconds that `--explain` says at last, of the lines of standard error.
///
/// # Errors
/// Where it says none.
pub fn explained_seconds(words: &str) -> Result<f64> {
    let tokens: Vec<&str> = words.split_whitespace().collect();
    let seconds = tokens.windows(2).filter(|pair| pair[1].trim_end_matches([',', '.', ';']) == "s");
    let last = seconds.filter_map(|pair| pair[0].parse::<f64>().ok()).next_back();
    last.with_context(|| format!("no seconds in '{}'", words.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_found_in_words() {
        assert_eq!(
            packets_in("x.pcapng: 1 packet, 3 B\n10,000 packets in 1 file; nothing is missing"),
            Some(10_000)
        );
        assert_eq!(packets_in("reading from file -, link-type EN10MB\n23 packets"), Some(23));
        assert_eq!(packets_in("nothing"), None);
        let said = "wirescope: 3 segments in the span,\n  2 read whole, 4.0 MiB read, 0.012 s\n";
        assert_eq!(explained_seconds(said).unwrap(), 0.012);
        assert!(explained_seconds("3 segments").is_err());
    }
}
