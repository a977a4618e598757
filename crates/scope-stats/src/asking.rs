//! What a database of statistics is asked, whoever asks: the busiest, flows, any SELECT, its files, a copy of one.
//!
//! ```text
//! FILE     ─► one connection ────────────────────────────┐
//! FOLDER/  ─► a connection for each file, one by one ────┼─► rows
//!          └► for SQL: virtual tables over all files ────┘
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`error`] | why there is no answer |
//! | [`reading`] | opens one file, for reading only |
//! | `held` | connections to one file, opened before that can't be done any more |
//! | [`database`] | a file, or a folder of files: what there is |
//! | [`table`] | the columns of each table |
//! | [`bounds`] | what an answer may take, and what it was cut by |
//! | [`top`] | the addresses, ports, pairs or VLANs with the most |
//! | [`flows`] | records of flows that a filter matches, also as they come |
//! | [`sql`] | one SELECT |
//! | `union` | the tables of all files of a folder as one, for SQL |
//! | `owned_rows` | rows of a statement that keeps its connection |
//! | [`copy`] | a whole copy of one file |
//! | [`spare`] | files without a name, for copies that are only passed on |
//!
//! Nothing is written, made or changed but the copy that is asked for.

pub mod bounds;
pub mod copy;
pub mod database;
pub mod error;
pub mod flows;
mod held;
mod owned_rows;
pub mod reading;
pub mod spare;
pub mod sql;
pub mod table;
pub mod top;
mod union;

pub use bounds::{Bounds, Cut, Watch};
pub use copy::Copy;
pub use database::{Database, FileFacts};
pub use error::AskError;
pub use reading::Access;
pub use spare::Spares;
