//! One database that is open for writing: how it is made, continued, written in transactions, and closed.
//!
//! ```text
//! open     made whole, if it isn't there; then its log (WAL) is
//! lock     all of NAME-wal, by an opening of its own: who has it writes
//! write    one transaction: all rows, and this run's line; or nothing
//! empty    the log goes into the database, once it is long; a reader that stays keeps it from that
//! close    this run's line gets its end; the log is emptied
//! ```
//! The lock lies on the log, since the system takes SQLite's own locks from the database when any opening of
//! it is closed by this process. SQLite locks nothing of the log.
//!
//! A kill costs what isn't written: a transaction is whole or isn't there. A loss of power may also cost the
//! newest transactions, whole ones: the log isn't flushed for each.

use crate::failed::Failed;
use crate::handle::{keep_wal, system_error};
use crate::head::Head;
use crate::parts::Part;
use crate::place::{BESIDE, beside};
use crate::rows::{add_flows, add_intervals, add_losses, add_traffic};
use crate::schema::{APPLICATION_ID, SCHEMA, VERSION};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};
use scope_folder::Folder;
use scope_folder::locks::{WHOLE, try_lock};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long another program that writes is waited for. Readers are never waited for, but to empty a log that
/// may not grow any more.
const BUSY: Duration = Duration::from_millis(100);
/// The log is emptied once it is so long.
const WAL_EMPTY_BYTES: u64 = 4 << 20;
/// It never gets longer, unless one interval alone is.
pub const WAL_BYTES_MAX: u64 = 256 << 20;
/// What a changed page takes of the log.
const FRAME_BYTES: u64 = 4096 + 24;
/// Where connections find changed pages, KiB.
const CACHE: &str = "-8192";

/// What wrote the rows: the line of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// The run's identifier.
    pub run: String,
    /// The machine's name.
    pub host: String,
    /// Of this program.
    pub version: String,
    /// When the run began, ns since the epoch, by the wall clock.
    pub begin_ns: i64,
    /// As typed.
    pub sources: Vec<String>,
    /// Which addresses are local.
    pub local: String,
}

/// Why a file isn't written.
#[derive(Debug)]
pub enum Refused {
    /// What it is instead of a database of ours.
    Not(Head),
    /// It has intervals of another length.
    Interval(i64),
    /// Another run writes it.
    Written,
    /// It can't be.
    Failed(Failed),
}

/// A database that is open for writing.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    connection: Connection,
    /// Its log, locked.
    log: File,
    /// Device and number of the file.
    identity: (u64, u64),
    /// Length of its intervals.
    interval_ns: i64,
    /// This run's line, once it is there.
    line: Option<i64>,
    /// The counters in it.
    noted: String,
    wal_bytes_max: u64,
}

impl Database {
    /// Opens the file `name`, which is made if it isn't there.
    pub fn open(folder: &Folder, name: &OsStr, interval_ns: i64) -> Result<Database, Refused> {
        let path = folder.path().join(name);
        let of_system = |cause| Refused::Failed(Failed::of_system(&path, cause));
        make(folder, name, &path).map_err(Refused::Failed)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW)
            .map_err(|error| Refused::Failed(Failed::of(&path, None, error)))?;
        let failed = |error| Refused::Failed(Failed::of(&path, Some(&connection), error));
        let head = prepare(&connection).map_err(failed)?;
        if head != Head::Ours {
            return Err(Refused::Not(head));
        }
        let log =
            OpenOptions::new().read(true).write(true).open(beside(&path, BESIDE[0])).map_err(of_system)?;
        if !try_lock(&log, WHOLE).map_err(of_system)? {
            return Err(Refused::Written);
        }
        let mut found = connection
            .prepare("SELECT interval_ns FROM runs WHERE interval_ns <> ? ORDER BY id DESC LIMIT 1")
            .map_err(failed)?;
        match found.query_row([interval_ns], |row| row.get(0)) {
            Ok(other_ns) => return Err(Refused::Interval(other_ns)),
            Err(rusqlite::Error::QueryReturnedNoRows) => {}
            Err(error) => return Err(failed(error)),
        }
        drop(found);
        let identity = identity(&path).map_err(of_system)?;
        Ok(Database {
            path,
            connection,
            log,
            identity,
            interval_ns,
            line: None,
            noted: String::new(),
            wal_bytes_max: WAL_BYTES_MAX,
        })
    }

    /// Writes all of it, with this run's line and its counters, or nothing; whether there was anything to
    /// write.
    ///
    /// # Errors
    /// Then nothing of it is written.
    pub fn write(&mut self, part: &Part<'_>, facts: &RunFacts, counters: &str) -> Result<bool, Failed> {
        self.expect_in_place()?;
        self.make_room(part.pages_max() * FRAME_BYTES)?;
        let (line, noted) = (self.line, self.line.filter(|_| self.noted == counters));
        if noted.is_some() && part.rows() == 0 {
            return Ok(false);
        }
        let interval_ns = self.interval_ns;
        let written = transact(&mut self.connection, |transaction| {
            add_intervals(transaction, part.intervals)?;
            add_traffic(transaction, part.traffic)?;
            add_flows(transaction, part.flows)?;
            add_losses(transaction, part.losses)?;
            noted.map_or_else(|| note(transaction, line, facts, counters, interval_ns), Ok)
        });
        self.line = Some(written.map_err(|error| self.failed(error))?);
        counters.clone_into(&mut self.noted);
        if self.wal_bytes() >= WAL_EMPTY_BYTES {
            // It is written whatever becomes of this; what stays in the log is seen when it has no room.
            let _ = empty(&self.connection, "PASSIVE");
        }
        Ok(true)
    }

    /// That its name still leads to it, as far as that can be seen.
    fn expect_in_place(&self) -> Result<(), Failed> {
        match identity(&self.path) {
            Ok(found) if found == self.identity => Ok(()),
            // A run that has given up its rights may not look there.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Ok(()),
            _ => {
                let cause = "it was removed or replaced while it was written".to_string();
                Err(Failed::Damaged { path: self.path.clone(), cause })
            }
        }
    }

    /// Empties the log where it would get too long.
    fn make_room(&self, bytes: u64) -> Result<(), Failed> {
        let is_short = |now: u64| now <= WAL_EMPTY_BYTES || now + bytes <= self.wal_bytes_max;
        if is_short(self.wal_bytes()) {
            return Ok(());
        }
        empty(&self.connection, "TRUNCATE").map_err(|error| self.failed(error))?;
        match self.wal_bytes() {
            now if is_short(now) => Ok(()),
            bytes => Err(Failed::WalTooLarge { path: self.path.clone(), bytes }),
        }
    }

    /// Ends this run's line and empties the log, which stays if it is `kept`.
    ///
    /// # Errors
    /// The line, or the log, couldn't be written. What was written before stays.
    pub fn close(mut self, end_ns: i64, facts: &RunFacts, counters: &str, kept: bool) -> Result<(), Failed> {
        if let Err(failed) = self.expect_in_place() {
            // What has its name now isn't to be touched.
            self.abandon();
            return Err(failed);
        }
        let (line, interval_ns) = (self.line, self.interval_ns);
        let ended = transact(&mut self.connection, |transaction| {
            let line = note(transaction, line, facts, counters, interval_ns)?;
            transaction.execute("UPDATE runs SET end_ns = ?2 WHERE id = ?1", params![line, end_ns]).map(drop)
        })
        .and_then(|()| empty(&self.connection, "TRUNCATE"))
        .and_then(|()| keep_wal(&self.connection, kept));
        ended.map_err(|error| self.failed(error))
    }

    /// Leaves everything as it is, and closes.
    pub fn abandon(self) {
        // Refused, its log would go into it: nothing worse.
        let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    /// What it takes, bytes.
    pub fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |facts| facts.len()) + self.wal_bytes()
    }

    /// How long its log is, bytes.
    pub fn wal_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |facts| facts.len())
    }

    fn failed(&self, error: rusqlite::Error) -> Failed {
        Failed::of(&self.path, Some(&self.connection), error)
    }
}

/// Makes the file, if it isn't there: with all tables, at once, for its owner to write and its group to read.
/// What SQLite makes beside it has its owner and mode.
fn make(folder: &Folder, name: &OsStr, path: &Path) -> Result<(), Failed> {
    let of_system = |cause| Failed::of_system(path, cause);
    if fs::symlink_metadata(path).is_ok() {
        return folder.is_plain_or_free(name).map_err(of_system);
    }
    let content = content().map_err(|error| Failed::of(path, None, error))?;
    let made = || {
        let mut draft = match folder.draft(name) {
            // Another one was killed while it made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => folder.draft_over(name)?,
            draft => draft?,
        };
        draft.file().write_all(&content)?;
        draft.file().sync_all()?;
        folder.give_to_owner(draft.file())?;
        draft.publish()
    };
    match made() {
        // Another one was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(of_system),
    }
}

/// A database without rows.
fn content() -> rusqlite::Result<Vec<u8>> {
    /// Where a database says by which version of SQLite's formats it is written and read.
    const FORMATS_AT: std::ops::Range<usize> = 18..20;
    /// With a log.
    const WITH_LOG: u8 = 2;
    let made = Connection::open_in_memory()?;
    made.execute_batch(&format!(
        "{SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
    ))?;
    let mut content = made.serialize("main")?.to_vec();
    content[FORMATS_AT].fill(WITH_LOG);
    Ok(content)
}

/// Settings of a connection that writes. What isn't ours is left as it is.
fn prepare(connection: &Connection) -> rusqlite::Result<Head> {
    connection.busy_timeout(BUSY)?;
    for (setting, value) in [
        ("temp_store", "MEMORY"),
        ("trusted_schema", "OFF"),
        ("cache_size", CACHE),
        ("synchronous", "NORMAL"),
        ("wal_autocheckpoint", "0"),
        // A log that is written from its begin again is cut to that: its length says how full it is.
        ("journal_size_limit", "0"),
    ] {
        connection.pragma_update(None, setting, value)?;
    }
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
    let head = Head::of(number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    if head == Head::Ours {
        // People can have switched the log off; and here it is opened: no further file after this.
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if mode != "wal" {
            return Err(rusqlite::Error::InvalidParameterName(NO_WAL.to_string()));
        }
        number("SELECT count(*) FROM runs")?;
        keep_wal(connection, true)?;
    }
    Ok(head)
}

const NO_WAL: &str = "the file system has no shared memory, which readers need beside a writer";

/// A transaction that is carried out as a whole, or not at all.
fn transact<T>(
    connection: &mut Connection,
    task: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = task(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Writes the run's line; its number.
fn note(
    transaction: &Transaction<'_>,
    line: Option<i64>,
    facts: &RunFacts,
    counters: &str,
    interval_ns: i64,
) -> rusqlite::Result<i64> {
    if let Some(line) = line {
        let mut update = transaction.prepare_cached("UPDATE runs SET counters = ?2 WHERE id = ?1")?;
        return update.execute(params![line, counters]).map(|_| line);
    }
    let RunFacts { run, host, version, begin_ns, sources, local } = facts;
    let sources = serde_json::Value::from(sources.as_slice()).to_string();
    transaction.execute(
        "INSERT INTO runs (run, host, version, begin_ns, sources, interval_ns, local, counters) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![run, host, version, begin_ns, sources, interval_ns, local, counters],
    )?;
    Ok(transaction.last_insert_rowid())
}

/// Carries the log into the database as far as readers allow; `TRUNCATE` also waits for them a while.
fn empty(connection: &Connection, how: &str) -> rusqlite::Result<()> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|facts| (facts.dev(), facts.ino()))
}

impl Failed {
    fn of_system(path: &Path, cause: io::Error) -> Failed {
        let path = path.to_path_buf();
        match cause.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Failed::DiskFull { path },
            _ => Failed::Io { path, cause },
        }
    }

    fn of(path: &Path, connection: Option<&Connection>, error: rusqlite::Error) -> Failed {
        let path = path.to_path_buf();
        let cause = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failed::Locked { path },
            Some(ErrorCode::DiskFull) => Failed::DiskFull { path },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
                Failed::Damaged { path, cause }
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                let system = connection.and_then(system_error);
                Failed::of_system(&path, system.unwrap_or_else(|| io::Error::other(cause)))
            }
            _ => Failed::Io { path, cause: io::Error::other(cause) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_flow::rows::{CommunityId, FlowRow, Reason, Side};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    /// Flows between addresses that nobody has seen before: each lies at another place of the indexes.
    fn flows(from: u32, count: u32) -> Vec<FlowRow> {
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number.wrapping_mul(2_654_435_761)));
        let flow = |number: u32| FlowRow {
            start_ns: i64::from(number),
            end_ns: i64::from(number),
            interface: Arc::from("eth0"),
            interface_rev: None,
            vlan: 0,
            proto: 17,
            source: Some((address(number), 1)),
            destination: Some((address(!number), 2)),
            forward: Side::default(),
            reverse: Side::default(),
            rtt_server_ns: None,
            rtt_client_ns: None,
            state: None,
            community_id: CommunityId::new("1:LQU9qZlK+B5F3KDmev6m5PMibrg=").unwrap(),
            reason: Reason::Idle,
        };
        (from..from + count).map(flow).collect()
    }

    struct Made {
        database: Database,
        next: u32,
    }

    impl Made {
        fn new(folder: &tempfile::TempDir) -> Made {
            let folder = Folder::open(folder.path()).unwrap();
            let database = Database::open(&folder, "x.sqlite".as_ref(), 1_000_000_000).unwrap();
            Made { database, next: 0 }
        }

        fn write(&mut self, count: u32) -> Result<u64, Failed> {
            let flows = flows(self.next, count);
            let part = Part { flows: &flows, ..Part::default() };
            self.database.write(&part, &RunFacts::default(), "{}")?;
            self.next += count;
            Ok(part.pages_max() * FRAME_BYTES)
        }

        fn count(&self) -> u32 {
            self.database.connection.query_row("SELECT count(*) FROM flows", [], |row| row.get(0)).unwrap()
        }
    }

    #[test]
    fn a_reader_that_stays_lets_the_log_grow_to_its_bound_and_then_rows_wait() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = Made::new(&folder);
        made.database.wal_bytes_max = 16 * MIB;
        let reader = Connection::open(folder.path().join("x.sqlite")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM flows").unwrap();
        let failed = loop {
            if let Err(failed) = made.write(500) {
                break failed;
            }
            assert!(made.database.wal_bytes() <= 16 * MIB, "{}", made.database.wal_bytes());
        };
        let Failed::WalTooLarge { bytes, .. } = failed else { panic!("{failed}") };
        assert!((4 * MIB..=16 * MIB).contains(&bytes), "{bytes}");
        assert!(matches!(made.write(500), Err(Failed::WalTooLarge { .. })));
        assert_eq!(made.count(), made.next, "nothing of what was refused");
        reader.execute_batch("ROLLBACK").unwrap();
        made.write(500).unwrap();
        assert!(made.database.wal_bytes() < 4 * MIB, "it is emptied as soon as the reader has gone");
        assert_eq!(made.count(), made.next);
    }

    #[test]
    fn without_readers_the_log_stays_short() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = Made::new(&folder);
        let mut longest = 0;
        for _ in 0..60 {
            let most = made.write(500).unwrap();
            longest = longest.max(made.database.wal_bytes());
            assert!(longest <= WAL_EMPTY_BYTES + most, "{longest}");
        }
        assert!(longest > WAL_EMPTY_BYTES / 2, "{longest}: it was long enough to be emptied");
        made.database.close(0, &RunFacts::default(), "{}", false).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["x.sqlite"]);
    }

    #[test]
    fn no_transaction_changes_more_pages_than_are_reckoned_with() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = Made::new(&folder);
        for _ in 0..20 {
            empty(&made.database.connection, "TRUNCATE").unwrap();
            let most = made.write(crate::parts::ROWS as u32).unwrap();
            let found = made.database.wal_bytes();
            assert!(found <= most, "{found} of {most}");
        }
    }

    #[test]
    fn what_is_wrong_is_known_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = Made::new(&folder);
        made.write(1).unwrap();
        // No room: the database may have no further page.
        let pages: u32 =
            made.database.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        made.database.connection.pragma_update(None, "max_page_count", pages).unwrap();
        assert!(matches!(made.write(1000), Err(Failed::DiskFull { .. })));
        assert_eq!(made.count(), 1);
        made.database.connection.pragma_update(None, "max_page_count", u32::MAX / 4).unwrap();
        made.write(1000).unwrap();
        assert_eq!(made.count(), 1001);
        // Somebody takes a table away.
        made.database.connection.execute_batch("DROP TABLE flows").unwrap();
        assert!(matches!(made.write(1), Err(Failed::Damaged { .. })));
        assert!(made.database.connection.is_autocommit(), "no transaction is left open");
        let words = [
            Failed::DiskFull { path: "x".into() },
            Failed::Locked { path: "x".into() },
            Failed::WalTooLarge { path: "x".into(), bytes: 256 * MIB },
        ];
        assert_eq!(
            words.map(|failed| format!("{}: {failed}", failed.word())),
            [
                "disk-full: no room on the disk of x",
                "locked: x is locked by another program",
                "wal-too-large: a program that reads x keeps its log from being emptied: 256 MiB",
            ]
        );
    }
}
