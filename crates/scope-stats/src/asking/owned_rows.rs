//! Rows of a statement that keeps its connection, for whoever reads them bit by bit and can't borrow it: a cursor that
//! SQLite calls.

use super::reading::Reading;
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{Connection, Params, Row, Rows, Statement};
use std::ptr::NonNull;
use std::rc::Rc;

/// The rows, the statement and the connection, given back in that order.
pub struct OwnedRows {
    /// Borrows from `statement`; `None` only while both are given back.
    rows: Option<Rows<'static>>,
    /// A box of its own; borrows from `connection`.
    statement: NonNull<Statement<'static>>,
    /// Kept for its address, which is the same as long as it is held.
    _connection: Rc<Reading>,
}

impl OwnedRows {
    /// The rows of `sql`.
    ///
    /// # Errors
    /// SQLite's.
    pub fn query(connection: Rc<Reading>, sql: &str, parameters: impl Params) -> rusqlite::Result<OwnedRows> {
        // SAFETY: the connection lies behind the `Rc`, which is held in the same value until the statement is given
        // back (see `drop`). Nobody has it mutably: an `Rc` lends it shared only.
        let lent: &'static Connection = unsafe { &*Rc::as_ptr(&connection) };
        let statement = NonNull::from(Box::leak(Box::new(lent.prepare(sql)?)));
        let mut rows = OwnedRows { rows: None, statement, _connection: connection };
        // SAFETY: the box was leaked just now, and only `drop` takes it back, behind the rows. This is its only borrow.
        let lent: &'static mut Statement<'static> = unsafe { &mut *statement.as_ptr() };
        rows.rows = Some(lent.query(parameters)?);
        Ok(rows)
    }

    /// The next one.
    ///
    /// # Errors
    /// SQLite's.
    pub fn next(&mut self) -> rusqlite::Result<bool> {
        match &mut self.rows {
            Some(rows) => Ok(rows.next()?.is_some()),
            None => Ok(false),
        }
    }

    /// The one that [`OwnedRows::next`] went to.
    pub fn row(&self) -> Option<&Row<'_>> {
        self.rows.as_ref().and_then(|rows| rows.get())
    }
}

impl Drop for OwnedRows {
    fn drop(&mut self) {
        self.rows = None;
        // SAFETY: it was leaked as a box in `query`, and what borrowed from it is gone. The connection goes behind it.
        drop(unsafe { Box::from_raw(self.statement.as_ptr()) });
    }
}
