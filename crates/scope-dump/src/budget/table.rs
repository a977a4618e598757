//! The table by which runs that write into one folder keep one budget: a small file there, a line for each
//! run.
//!
//! ```text
//!      0  head   0 magic | 8 named: bytes of files that got their names, ever | 16 deleted: files deleted, ever
//!     64  line 1    0 in use | 8 claim: bytes that the run's files without a name may take | 16 budget | 24 rotates
//!    128  line 2    ...                                                    numbers of 64 bits, little-endian
//!   4032  line 63
//! ```
//! A run locks its line for as long as it lives, and the head for each turn, which is a few microseconds. The
//! locks end with the process (`scope_folder::locks`), so no run needs to know which process that was. The
//! line of a run that is gone, by its end or a kill, is *buried* by the run that finds it: its claim counts
//! as named, until those that are left have read the folder again, and know better.
//! ```text
//!  claim   lock | read all | is there room? | write my claim | unlock        then the bytes are written
//!  name    link | lock | named += bytes | claim -= bytes | unlock            a kill in between: the claim is buried
//!  read    lock | note named, deleted | unlock | list the folder             so a file counts once at least
//!  delete  unlink | lock | deleted += 1 | unlock                             the others read the folder again
//! ```

use scope_folder::{Folder, locks};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The file's name.
pub const TABLE_FILE: &str = "wirescope.budget";
/// Runs that can keep one budget at once; a further one is refused at its start.
pub const RUNS_MAX: usize = 63;
/// How long a run waits for the turn of another one, which may have been stopped in it.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// After that, no run waits for this long.
const NO_WAIT: Duration = Duration::from_secs(1);
/// Pauses between two tries, at least and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));

const MAGIC: &[u8; 8] = b"WSBUDGT1";
const LINE_BYTES: usize = 64;
const TABLE_BYTES: usize = LINE_BYTES * (1 + RUNS_MAX);
/// Places of the counts in the head.
const NAMED_AT: usize = 8;
const DELETED_AT: usize = 16;
/// Locked for a turn.
const HEAD: Range<u64> = 0..LINE_BYTES as u64;

/// The line of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Bytes that its files without a name may take.
    pub claim: u64,
    /// Bytes that all dumps of the folder may take, by its flags.
    pub bytes_max: u64,
    /// It deletes old dumps.
    pub rotate: bool,
}

/// The table as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Bytes of all files that got their names, ever.
    pub named: u64,
    /// Files that were deleted, ever.
    pub deleted: u64,
    /// The runs that live, without the one that looks.
    pub others: Vec<Line>,
}

/// One run's place in the table.
#[derive(Debug)]
pub(super) struct Table {
    file: File,
    line: usize,
    /// Since when another run has kept the head locked.
    stuck: Option<Instant>,
}

impl Table {
    /// Takes a line in the table of `folder`, which is made where there is none.
    ///
    /// # Errors
    /// `InvalidInput` or `InvalidData` where something else has the name, `QuotaExceeded` where all lines are
    /// taken: the run can't keep the budget. Others: there is no table for now.
    pub(super) fn join(folder: &Folder, own: &Line) -> io::Result<Table> {
        let mut table = Table { file: folder.shared(OsStr::new(TABLE_FILE))?, line: 0, stuck: None };
        table.enter(true)?;
        let joined = table.take_line(own);
        table.end();
        joined.map(|()| table)
    }

    fn take_line(&mut self, own: &Line) -> io::Result<()> {
        self.expect_table()?;
        for line in 1..=RUNS_MAX {
            if locks::try_lock(&self.file, range(line))? {
                let mut bytes = self.bytes()?;
                self.bury(&mut bytes, line)?;
                self.line = line;
                return self.write_line(own);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{RUNS_MAX} runs share the budget of this folder already; use another folder, or end one \
                 of them"
            ),
        ))
    }

    /// Makes a table of an empty file.
    fn expect_table(&self) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        let mut magic = [0; MAGIC.len()];
        if len > 0 && (self.file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC) {
            let text = format!(
                "it is not a budget table of wirescope: move it away, or use --out with another folder \
                 ({TABLE_FILE})"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if len < TABLE_BYTES as u64 {
            let mut bytes = [0; TABLE_BYTES];
            bytes[..MAGIC.len()].copy_from_slice(MAGIC);
            self.file.write_all_at(&bytes, 0)?;
        }
        Ok(())
    }

    /// Whether the table that a run finds under the name is this one.
    pub(super) fn is_in(&self, folder: &Folder) -> bool {
        folder.leads_to(OsStr::new(TABLE_FILE), &self.file).unwrap_or(true)
    }

    /// Begins a turn, in which no other run looks; the table as it stands. `None`: another run has its turn,
    /// and didn't end it in time, where this one waits.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begin(&mut self, waits: bool) -> io::Result<Option<View>> {
        match self.enter(waits) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
            entered => entered?,
        }
        let view = self.view();
        if view.is_err() {
            self.end();
        }
        view.map(Some)
    }

    /// Ends the turn.
    pub(super) fn end(&self) {
        // Where even that fails nobody waits for long, and the lock ends with the run.
        let _ = locks::unlock(&self.file, HEAD);
    }

    /// In a turn: says what the run claims from now on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write_line(&self, own: &Line) -> io::Result<()> {
        self.write_numbers(self.line * LINE_BYTES, &[1, own.claim, own.bytes_max, own.rotate.into()])
    }

    /// In a turn: says what got names and was deleted, ever. Before a claim falls by it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write_counts(&self, named: u64, deleted: u64) -> io::Result<()> {
        self.write_numbers(NAMED_AT, &[named, deleted])
    }

    #[cfg(test)]
    pub(super) fn wait_no_more(&mut self) {
        self.stuck = Some(Instant::now());
    }

    fn enter(&mut self, waits: bool) -> io::Result<()> {
        let began = Instant::now();
        let is_stuck = self.stuck.is_some_and(|since| since.elapsed() < NO_WAIT);
        let patience = if waits && !is_stuck { WAIT_MAX } else { Duration::ZERO };
        let mut pause = PAUSES.0;
        while !locks::try_lock(&self.file, HEAD)? {
            if began.elapsed() >= patience {
                if !patience.is_zero() {
                    self.stuck = Some(Instant::now());
                }
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
        self.stuck = None;
        Ok(())
    }

    fn bytes(&self) -> io::Result<[u8; TABLE_BYTES]> {
        let mut bytes = [0; TABLE_BYTES];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn view(&self) -> io::Result<View> {
        let mut bytes = self.bytes()?;
        let mut others = Vec::new();
        for line in (1..=RUNS_MAX).filter(|line| *line != self.line) {
            if number(&bytes, line * LINE_BYTES) == 0 {
                continue;
            }
            if locks::is_locked(&self.file, range(line))? {
                others.push(line_of(&bytes, line));
            } else {
                self.bury(&mut bytes, line)?;
            }
        }
        Ok(View { named: number(&bytes, NAMED_AT), deleted: number(&bytes, DELETED_AT), others })
    }

    /// Nobody has this line any more: what it claims may stand under names.
    fn bury(&self, bytes: &mut [u8; TABLE_BYTES], line: usize) -> io::Result<()> {
        let at = line * LINE_BYTES;
        if bytes[at..at + LINE_BYTES].iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let claim = line_of(bytes, line).claim;
        if claim > 0 {
            // Most of it is nowhere: as after deleting, the others read the folder before they say that there
            // is no room.
            let named = number(bytes, NAMED_AT).saturating_add(claim);
            let deleted = number(bytes, DELETED_AT).saturating_add(1);
            self.write_counts(named, deleted)?;
            bytes[NAMED_AT..DELETED_AT].copy_from_slice(&named.to_le_bytes());
            bytes[DELETED_AT..DELETED_AT + 8].copy_from_slice(&deleted.to_le_bytes());
        }
        bytes[at..at + LINE_BYTES].fill(0);
        self.file.write_all_at(&bytes[at..at + LINE_BYTES], at as u64)
    }

    fn write_numbers(&self, at: usize, numbers: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, at as u64)
    }
}

fn range(line: usize) -> Range<u64> {
    let at = (line * LINE_BYTES) as u64;
    at..at + LINE_BYTES as u64
}

fn line_of(bytes: &[u8; TABLE_BYTES], line: usize) -> Line {
    let at = line * LINE_BYTES;
    Line {
        claim: number(bytes, at + 8),
        bytes_max: number(bytes, at + 16),
        rotate: number(bytes, at + 24) != 0,
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}
