//! Files that dead runs left growing, or that the disk failed in this run: closed step by step, between other
//! work.

use crate::account::Account;
use crate::chaining::Whole;
use crate::closing;
use crate::disk::{Disk, Standing};
use crate::file_writer::FileWriter;
use crate::files::Files;
use crate::maker::Maker;
use crate::recover::{Outcome, Progress, Recovered, Recovery};
use crate::report::{News, RecoveryReport};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file of this run that the disk has failed once more is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// What is to be closed.
pub(crate) struct Mending {
    work: Option<Work>,
    disk: Box<dyn Disk + Send>,
    /// Growing names of files that the disk failed in this run.
    failed: Vec<PathBuf>,
    /// These and those that are at work: whether anything in one was ever safe.
    own: BTreeMap<PathBuf, bool>,
    /// Until then those that failed once more wait.
    not_before: Option<Instant>,
}

/// The files that are closed now.
struct Work {
    recovery: Recovery,
    began: Instant,
    /// What was done before it.
    before: RecoveryReport,
    /// What became of its files by now, but for its progress.
    done: RecoveryReport,
}

impl Work {
    fn begin(left: Vec<Standing>, before: RecoveryReport) -> Option<Work> {
        let recovery = (!left.is_empty()).then(|| Recovery::new(left))?;
        Some(Work { recovery, began: Instant::now(), before, done: before })
    }

    /// Counts a file that is done.
    fn count(&mut self, done: &Recovered) {
        self.done.cut.add(done.cut);
        match done.outcome {
            Outcome::Closed(_) => {
                self.done.closed += 1;
                self.done.kept.join(&done.holds);
            }
            Outcome::Removed => self.done.removed += 1,
            Outcome::Unreadable(_) | Outcome::Failed(_) => {}
        }
    }

    fn report(&self) -> RecoveryReport {
        let Progress { files, files_done, bytes, bytes_done } = self.recovery.progress();
        let before = &self.before;
        RecoveryReport {
            files: before.files + files,
            files_done: before.files_done + files_done,
            bytes: before.bytes + bytes,
            bytes_done: before.bytes_done + bytes_done,
            took: before.took + self.began.elapsed(),
            ..self.done
        }
    }
}

impl Mending {
    /// `left` are the growing files of dead runs; `disk` is nobody else's.
    pub fn new(left: Vec<Standing>, disk: Box<dyn Disk + Send>) -> Mending {
        let work = Work::begin(left, RecoveryReport::default());
        Mending { work, disk, failed: Vec::new(), own: BTreeMap::new(), not_before: None }
    }

    /// The disk failed the file that would have got this name: it is closed once the disk works again; removed,
    /// where not even its head can be read and nothing in it was ever safe (`has_kept`).
    pub fn add(&mut self, name: &Path, has_kept: bool) {
        let growing = closing::growing(name);
        self.own.insert(growing.clone(), has_kept);
        self.failed.push(growing);
    }

    /// Begins the work on files that failed, where the writer has nothing of them any more.
    fn begin<'a>(
        &mut self,
        disk: &mut dyn Disk,
        files: impl Iterator<Item = &'a Files>,
        before: RecoveryReport,
    ) {
        let growing: Vec<PathBuf> =
            files.flat_map(Files::writers).map(FileWriter::name).map(closing::growing).collect();
        let (wait, ready): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.failed).into_iter().partition(|failed| growing.contains(failed));
        self.failed = wait;
        let Ok(standing) = disk.list() else {
            self.failed.extend(ready);
            self.not_before = Some(Instant::now() + AGAIN_AFTER);
            return;
        };
        let left: Vec<_> = standing.into_iter().filter(|standing| ready.contains(&standing.name)).collect();
        self.work = Work::begin(left, before);
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
        if works && !waits && self.work.is_none() && !self.failed.is_empty() {
            self.not_before = None;
            self.begin(disk, files, account.report.recovery.unwrap_or_default());
        }
        let Some(work) = &mut self.work else { return (false, None) };
        let mut whole = None;
        if let Some(mut done) = work.recovery.step(&mut *self.disk) {
            let path = account.report.path.display().to_string();
            let growing = done.name.display();
            let own = self.own.remove(&done.name);
            if matches!(done.outcome, Outcome::Unreadable(_)) && own == Some(false) {
                let folder = done.name.parent().unwrap_or(Path::new(""));
                let removed = self.disk.remove(&done.name).and_then(|()| self.disk.sync_names(folder));
                done.outcome = removed.map_or_else(Outcome::Failed, |()| Outcome::Removed);
            }
            work.count(&done);
            match done.outcome {
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
        let report = work.report();
        account.report.recovery = Some(report);
        let over = work.recovery.is_over();
        if over {
            account.note(News::Recovered(report));
            self.work = None;
        }
        (!over, whole)
    }
}
