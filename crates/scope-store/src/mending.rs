//! Files that dead runs left growing, or that the disk failed in this run: closed step by step, between other
//! work.

use crate::account::Account;
use crate::chaining::Whole;
use crate::closing;
use crate::disk::{Disk, Standing};
use crate::file_writer::FileWriter;
use crate::files::Files;
use crate::maker::Maker;
use crate::recover::{Outcome, Recovery};
use crate::report::News;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file of this run that the disk has failed once more is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// What is to be closed.
pub(crate) struct Mending {
    recovery: Option<Recovery>,
    disk: Box<dyn Disk + Send>,
    /// Growing names of files that the disk failed in this run.
    failed: Vec<PathBuf>,
    /// These and those that are at work: whether anything in one was ever safe.
    own: BTreeMap<PathBuf, bool>,
    /// Until then those that failed once more wait.
    not_before: Option<Instant>,
}

impl Mending {
    /// `left` are the growing files of dead runs; `disk` is nobody else's.
    pub fn new(left: Vec<Standing>, disk: Box<dyn Disk + Send>) -> Mending {
        let recovery = (!left.is_empty()).then(|| Recovery::new(left));
        Mending { recovery, disk, failed: Vec::new(), own: BTreeMap::new(), not_before: None }
    }

    /// The disk failed the file that would have got this name: it is closed once the disk works again; removed,
    /// where not even its head can be read and nothing in it was ever safe (`has_kept`).
    pub fn add(&mut self, name: &Path, has_kept: bool) {
        let growing = closing::growing(name);
        self.own.insert(growing.clone(), has_kept);
        self.failed.push(growing);
    }

    /// Whether nothing is at work.
    pub fn is_over(&self) -> bool {
        self.recovery.is_none()
    }

    /// Begins the work on files that failed, where the writer has nothing of them any more.
    fn begin<'a>(&mut self, disk: &mut dyn Disk, files: impl Iterator<Item = &'a Files>) {
        let growing: Vec<PathBuf> =
            files.flat_map(Files::writers).map(FileWriter::name).map(closing::growing).collect();
        let (wait, ready): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.failed).into_iter().partition(|failed| growing.contains(failed));
        self.failed = wait;
        let Ok(standing) = disk.list() else { return };
        let left: Vec<_> = standing.into_iter().filter(|standing| ready.contains(&standing.name)).collect();
        self.recovery = (!left.is_empty()).then(|| Recovery::new(left));
    }

    /// One step: whether there is more, and the file that is whole by it. While the disk refuses (`works` is
    /// false), files that it failed wait.
    pub fn step<'a>(
        &mut self,
        works: bool,
        disk: &mut dyn Disk,
        files: impl Iterator<Item = &'a Files>,
        maker: &mut Maker,
        account: &mut Account,
    ) -> (bool, Option<Whole>) {
        let waits = self.not_before.is_some_and(|time| Instant::now() < time);
        if works && !waits && self.recovery.is_none() && !self.failed.is_empty() {
            self.not_before = None;
            self.begin(disk, files);
        }
        let Some(recovery) = &mut self.recovery else { return (false, None) };
        let mut whole = None;
        if let Some(done) = recovery.step(&mut *self.disk) {
            let path = account.report.path.display().to_string();
            let growing = done.name.display();
            let own = self.own.remove(&done.name);
            let outcome = match done.outcome {
                Outcome::Unreadable(_) if own == Some(false) => {
                    let folder = done.name.parent().unwrap_or(Path::new(""));
                    let removed = self.disk.remove(&done.name).and_then(|()| self.disk.sync_names(folder));
                    removed.map_or_else(Outcome::Failed, |()| Outcome::Removed)
                }
                outcome => outcome,
            };
            match outcome {
                Outcome::Closed(name) => {
                    maker.inventory.closed(disk, &name, &done.holds, None);
                    let bytes = maker.inventory.bytes_of(&name);
                    let cut_off = Some(done.cut.packets);
                    whole = Some(Whole { name, holds: done.holds, bytes, cut_off, run_id: done.run_id });
                }
                Outcome::Removed => {
                    if let Some(name) = closing::whole(&done.name) {
                        maker.inventory.gone(&name);
                    }
                }
                Outcome::Unreadable(error) => {
                    account
                        .note(News::Warning(format!("{path}: {growing}: {error}; the file stays as it is")));
                }
                Outcome::Failed(error) if own.is_some() => {
                    account
                        .note(News::Warning(format!("{path}: {growing}: {error}; it is tried again later")));
                    self.not_before = Some(Instant::now() + AGAIN_AFTER);
                    self.own.extend(own.map(|has_kept| (done.name.clone(), has_kept)));
                    self.failed.push(done.name);
                }
                Outcome::Failed(error) => {
                    account.note(News::Warning(format!(
                        "{path}: {growing}: {error}; the next run tries again to close it"
                    )));
                }
            }
        }
        let over = recovery.is_over();
        if over {
            self.recovery = None;
        }
        (!over, whole)
    }
}
