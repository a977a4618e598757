//! What a database of statistics says, as SQLite reads it, and what must hold of each.

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// How long a reader waits for a lock.
const BUSY: Duration = Duration::from_secs(10);

/// Intervals whose traffic has another sum, received or sent.
const UNEQUAL: &str = "\
SELECT count(*) FROM (
    SELECT ts_ns, interface, vlan, sum(ip_packets) AS packets, sum(ip_bytes) AS bytes
    FROM intervals GROUP BY 1, 2, 3
) LEFT JOIN (
    SELECT ts_ns, interface, vlan, sum(in_packets) AS received, sum(out_packets) AS sent,
           sum(in_ip_bytes) AS received_bytes, sum(out_ip_bytes) AS sent_bytes
    FROM traffic GROUP BY 1, 2, 3
) USING (ts_ns, interface, vlan)
WHERE packets <> ifnull(received, 0) OR packets <> ifnull(sent, 0)
    OR bytes <> ifnull(received_bytes, 0) OR bytes <> ifnull(sent_bytes, 0)";

/// A database that is read.
pub struct Database(Connection);

impl Database {
    /// Opens it for reading only.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(path: &Path) -> Result<Database> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .with_context(|| path.display().to_string())?;
        connection.busy_timeout(BUSY)?;
        Ok(Database(connection))
    }

    /// The one number that a question has; 0: there is none.
    ///
    /// # Errors
    /// SQLite's.
    pub fn number(&self, question: &str) -> Result<i64> {
        let number = self.0.prepare_cached(question)?.query_row([], |row| row.get::<_, Option<i64>>(0));
        Ok(number.with_context(|| question.to_string())?.unwrap_or(0))
    }

    /// Both numbers of each row of a question.
    ///
    /// # Errors
    /// SQLite's.
    pub fn pairs(&self, question: &str) -> Result<Vec<(i64, i64)>> {
        let mut statement = self.0.prepare_cached(question)?;
        let pairs = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        pairs.collect::<Result<_, _>>().with_context(|| question.to_string())
    }

    /// How many rows a question has: all of them are looked at.
    ///
    /// # Errors
    /// SQLite's.
    pub fn rows(&self, question: &str) -> Result<u64> {
        let mut statement = self.0.prepare_cached(question)?;
        let mut rows = statement.query([])?;
        let mut count = 0;
        while rows.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// That SQLite finds nothing wrong with the file.
    ///
    /// # Errors
    /// What it finds.
    pub fn expect_sound(&self) -> Result<()> {
        let said: String = self.0.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        ensure!(said == "ok", "SQLite finds the database damaged: {said}");
        Ok(())
    }

    /// That traffic adds up to its interval, everywhere.
    ///
    /// # Errors
    /// How many don't.
    pub fn expect_equal_sums(&self) -> Result<()> {
        let unequal = self.number(UNEQUAL)?;
        ensure!(unequal == 0, "the traffic of {unequal} intervals doesn't add up to them");
        Ok(())
    }

    /// That so many packets are in intervals; of IP, that flows add up to them; and [`Database::expect_equal_sums`].
    ///
    /// # Errors
    /// What is different.
    pub fn expect_packets(&self, packets: u64) -> Result<()> {
        let found = self.number("SELECT sum(packets) FROM intervals")?;
        ensure!(found == packets as i64, "{found} packets in intervals of {packets}");
        let of_ip = self.number("SELECT sum(ip_packets) FROM intervals")?;
        let of_flows = self.number("SELECT sum(packets_fwd + packets_rev) FROM flows")?;
        ensure!(of_flows == of_ip, "flows add up to {of_flows} packets, intervals to {of_ip} of IP");
        self.expect_equal_sums()
    }
}
