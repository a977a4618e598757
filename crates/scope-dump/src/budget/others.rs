//! What a run knows of the other runs that keep the same budget, and what it reports to them: claims in
//! blocks, so that few writes need the table.

use super::table::{Line, TABLE_FILE, Table, View};
use scope_folder::Folder;
use std::io;
use std::time::{Duration, Instant};

/// Claims are a multiple of this, where there is room: as much as a run may have claimed and not use.
pub(super) const CLAIM_BYTES: u64 = 256 << 10;
/// How often to look at what others do while nothing is written.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often to look for a table that is lost.
const REJOIN_EVERY: Duration = Duration::from_secs(1);

/// The other runs of a folder, and this one's place among them.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// `None`: this run keeps no budget, or keeps it alone.
    table: Option<Table>,
    /// This run's line; its claim as last written.
    own: Line,
    /// As it was at the last look.
    view: View,
    /// What of `view` was there when the folder was last read, or was done by this run.
    named_read: u64,
    deleted_read: u64,
    /// What this run did and the table doesn't have yet.
    named_unreported: u64,
    deleted_unreported: u64,
    looked: Option<Instant>,
    /// When the table's name was looked at last.
    checked: Option<Instant>,
    /// Why there is no table, and since when.
    apart: Option<(String, Instant)>,
}

/// The outcome of a claim.
pub(super) enum Claimed {
    /// The bytes may be written.
    Yes,
    /// There is no room for them.
    NoRoom,
    /// Another run holds the lock of the table.
    Busy,
}

impl Others {
    /// Joins them; the folder is to be read afterwards.
    ///
    /// # Errors
    /// Something else has the table's name, or all its lines are taken. Where there can't be a table the run
    /// keeps the budget alone.
    pub(super) fn join(&mut self, folder: &Folder, own: Line) -> io::Result<()> {
        self.own = own;
        self.apart = None;
        match Table::join(folder, &own) {
            Ok(table) => {
                self.table = Some(table);
                (self.named_unreported, self.deleted_unreported) = (0, 0); // the folder is read again
                self.refresh(true);
                Ok(())
            }
            Err(error) => {
                let is_final = matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::QuotaExceeded
                );
                if is_final {
                    return Err(error);
                }
                self.lose(&error);
                Ok(())
            }
        }
    }

    /// Joins them again where the table was lost or moved away; whether the folder is to be read.
    pub(super) fn rejoin(&mut self, folder: &Folder, making: u64) -> bool {
        let is_due = self.apart.as_ref().is_some_and(|(_, since)| since.elapsed() >= REJOIN_EVERY);
        let checks = self.table.is_some() && self.checked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if checks {
            self.checked = Some(Instant::now());
        }
        let is_moved = checks && self.table.as_ref().is_some_and(|table| !table.is_in(folder));
        if !is_due && !is_moved {
            return false;
        }
        self.table = None;
        let own = Line { claim: in_blocks(making), ..self.own };
        if let Err(error) = self.join(folder, own) {
            self.lose(&error);
        }
        self.table.is_some()
    }

    /// Why this run keeps the budget alone, if it does.
    pub(super) fn apart(&self) -> Option<&str> {
        self.apart.as_ref().map(|(why, _)| why.as_str())
    }

    /// Bytes that they claim, and of what got names since the folder was read.
    pub(super) fn used(&self) -> u64 {
        let claims = self.view.others.iter().fold(0u64, |sum, line| sum.saturating_add(line.claim));
        claims.saturating_add(self.view.named.saturating_sub(self.named_read))
    }

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        !self.view.others.is_empty()
    }

    /// Whether one of them is writing dumps.
    pub(super) fn are_writing(&self) -> bool {
        self.view.others.iter().any(|line| line.claim > 0)
    }

    /// The smallest budget of the others; of those that rotate, where `rotating`.
    pub(super) fn bytes_max(&self, rotating: bool) -> Option<u64> {
        let lines = self.view.others.iter().filter(|line| line.rotate || !rotating);
        lines.map(|line| line.bytes_max).filter(|bytes| *bytes > 0).min()
    }

    /// Whether one of them has deleted something since the folder was read.
    pub(super) fn have_deleted(&self) -> bool {
        self.view.deleted > self.deleted_read
    }

    /// Looks again, if the last look isn't of just now.
    pub(super) fn refresh_if_due(&mut self) {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.refresh(false);
        }
    }

    /// Looks again.
    pub(super) fn refresh(&mut self, waits: bool) {
        self.turn(waits, |_, _| Ok(()));
    }

    /// The folder is about to be read: whatever gets its name from here on is seen there, or counted here.
    pub(super) fn begin_reading(&mut self) {
        // Who can't look counts what got a name meanwhile twice, until the next time.
        self.refresh(false);
        (self.named_read, self.deleted_read) = (self.view.named, self.view.deleted);
    }

    /// Claims what files without a name take once `bytes` more than `making` are written. `has` says, of what
    /// it finds, whether there is room for so many more.
    pub(super) fn claim(&mut self, making: u64, bytes: u64, has: impl Fn(&Others, u64) -> bool) -> Claimed {
        // What got a name and isn't reported is claimed still.
        let making = making.saturating_add(self.named_unreported);
        let wanted = making.saturating_add(bytes);
        let alone = |others: &Others| if has(others, bytes) { Claimed::Yes } else { Claimed::NoRoom };
        if self.table.is_none() || wanted <= self.own.claim {
            return alone(self);
        }
        let claimed = self.turn(true, |others, table| {
            if !has(others, bytes) {
                return Ok(Claimed::NoRoom);
            }
            let block = in_blocks(wanted);
            let claim = if has(others, block - making) { block } else { wanted };
            others.write(table, claim)?;
            Ok(Claimed::Yes)
        });
        match claimed {
            Some(claimed) => claimed,
            None if self.table.is_some() => Claimed::Busy,
            None => alone(self), // the table was lost just now
        }
    }

    /// Files got names, or were deleted: the others learn of it, and of what is claimed no more.
    pub(super) fn report(&mut self, named: u64, deleted: u64, making: u64) {
        self.report_and_wait(named, deleted, making, true);
    }

    /// The same without waiting: what can't be reported now is reported the next time.
    pub(super) fn report_at_once(&mut self, making: u64) {
        self.report_and_wait(0, 0, making, false);
    }

    fn report_and_wait(&mut self, named: u64, deleted: u64, making: u64, waits: bool) {
        self.named_unreported = self.named_unreported.saturating_add(named);
        self.deleted_unreported = self.deleted_unreported.saturating_add(deleted);
        let claim = in_blocks(making);
        let is_news = self.named_unreported > 0 || self.deleted_unreported > 0 || claim < self.own.claim;
        if is_news && self.table.is_some() {
            self.turn(waits, |others, table| others.write(table, claim.min(others.own.claim)));
        }
    }

    /// In a turn: counts first, so that what got a name is claimed or named at any moment, if not both.
    fn write(&mut self, table: &Table, claim: u64) -> io::Result<()> {
        let (named, deleted) =
            (std::mem::take(&mut self.named_unreported), std::mem::take(&mut self.deleted_unreported));
        if named > 0 || deleted > 0 {
            self.view.named = self.view.named.saturating_add(named);
            self.view.deleted = self.view.deleted.saturating_add(deleted);
            table.write_counts(self.view.named, self.view.deleted)?;
            // This run's own sums have them.
            self.named_read = self.named_read.saturating_add(named);
            self.deleted_read = self.deleted_read.saturating_add(deleted);
        }
        self.own.claim = claim;
        table.write_line(&self.own)
    }

    /// One turn; `None`: there is no table, or another run has it.
    fn turn<T>(&mut self, waits: bool, act: impl FnOnce(&mut Others, &Table) -> io::Result<T>) -> Option<T> {
        let mut table = self.table.take()?;
        let done = match table.begin(waits) {
            Ok(Some(view)) => {
                (self.view, self.looked) = (view, Some(Instant::now()));
                let done = act(self, &table);
                table.end();
                done.map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match done {
            Ok(done) => {
                self.table = Some(table);
                done
            }
            Err(error) => {
                self.lose(&error);
                None
            }
        }
    }

    /// The next turn is had at once, or not at all.
    #[cfg(test)]
    pub(super) fn wait_no_more(&mut self) {
        if let Some(table) = &mut self.table {
            table.wait_no_more();
        }
    }

    fn lose(&mut self, error: &io::Error) {
        self.table = None;
        self.view.others.clear();
        self.apart = Some((format!("{TABLE_FILE}: {error}"), Instant::now()));
    }
}

fn in_blocks(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(CLAIM_BYTES).unwrap_or(bytes)
}
