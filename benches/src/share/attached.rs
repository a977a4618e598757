//! A run on the veth pair with a group, and the programs that have joined it.

use super::programs::{Program, Programs};
use crate::wirescope::{Finished, Run};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::Lab;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Members are there within this time.
const LIMIT: Duration = Duration::from_secs(20);
/// A run may take so long to end.
const END_LIMIT: Duration = Duration::from_secs(30);
/// The group's name.
pub const GROUP: &str = "all";

/// A run that captures, with one group.
pub struct Shared {
    /// The run.
    pub run: Run,
    folder: TempDir,
}

impl Shared {
    /// Starts it on `vb`, with these options of its group, such as `steer=all`.
    ///
    /// # Errors
    /// What it said.
    pub fn start(workspace: &Workspace, lab: &Lab, options: &str) -> Result<Shared> {
        let folder = workspace.out_folder()?;
        let socket = folder.path().join("attach").display().to_string();
        let group = format!("{GROUP},{options}");
        let words =
            ["-i", "vb", "--ring", "256MiB", "--attach", &socket, "--attach-ring", "0", "--group", &group];
        let mut run = Run::start(workspace, Some(lab.b()), &words)?;
        run.wait_started()?;
        Ok(Shared { run, folder })
    }

    /// Where members connect.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("attach")
    }

    /// Starts one of the programs as a member of the group.
    ///
    /// # Errors
    /// What it said.
    pub fn member(&self, programs: &Programs, name: &str, more: &[&str]) -> Result<Program> {
        self.member_of(programs, GROUP, name, more)
    }

    /// The same of any group.
    ///
    /// # Errors
    /// What it said.
    pub fn member_of(&self, programs: &Programs, group: &str, name: &str, more: &[&str]) -> Result<Program> {
        let socket = self.socket().display().to_string();
        programs.start(name, &[&[&socket, group], more].concat())
    }

    /// Starts `wirescope` with this command and these words, told where members connect, inside its namespace.
    ///
    /// # Errors
    /// The system's.
    pub fn wirescope(&self, workspace: &Workspace, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(&workspace.wirescope);
        let (name, rest) = words.split_first().context("no command")?;
        command.arg(name).arg(rest.first().context("no group")?);
        command.arg("--attach").arg(self.socket()).args(&rest[1..]);
        Ok(command)
    }

    /// The group as the run shows it.
    ///
    /// # Errors
    /// Where it doesn't.
    pub fn group(&self) -> Result<Value> {
        self.group_called(GROUP)
    }

    fn group_called(&self, name: &str) -> Result<Value> {
        let answer = self.run.asked("groups")?;
        group_of(&answer["groups"], name)
    }

    /// Waits until so many members are there.
    ///
    /// # Errors
    /// They don't come.
    pub fn wait_for_members(&self, many: usize) -> Result<()> {
        self.wait_for_members_of(GROUP, many)
    }

    /// The same of any group.
    ///
    /// # Errors
    /// They don't come.
    pub fn wait_for_members_of(&self, name: &str, many: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            let group = self.group_called(name)?;
            if group["members"].as_array().is_some_and(|members| members.len() == many) {
                return Ok(());
            }
            ensure!(begun.elapsed() < LIMIT, "{many} members don't come: {group}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the run, which must have received `sent` packets and dropped none; its summary.
    ///
    /// # Errors
    /// What is different.
    pub fn finish(self, sent: u64) -> Result<Finished> {
        let finished = self.end()?;
        let (received, dropped) = (finished.received(), finished.dropped());
        ensure!(received == sent && dropped == 0, "{received} packets received and {dropped} lost of {sent}");
        Ok(finished)
    }

    /// Ends the run, which may have lost some of `sent` packets: beside others that take the processors.
    ///
    /// # Errors
    /// It doesn't know of all.
    pub fn finish_beside(self, sent: u64) -> Result<()> {
        let finished = self.end()?;
        let (received, dropped) = (finished.received(), finished.dropped());
        ensure!(received + dropped == sent, "{received} packets received and {dropped} lost of {sent}");
        Ok(())
    }

    fn end(self) -> Result<Finished> {
        self.run.interrupt()?;
        self.run.finish(END_LIMIT)
    }
}

/// The group of this name among all of them.
///
/// # Errors
/// It isn't there.
pub fn group_of(groups: &Value, name: &str) -> Result<Value> {
    let groups = groups.as_array().with_context(|| format!("no groups: {groups}"))?;
    let group = groups.iter().find(|group| group["name"] == name);
    group.cloned().with_context(|| format!("no group {name}: {groups:?}"))
}
