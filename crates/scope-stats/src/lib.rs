//! Traffic statistics on disk: databases that a run writes and other programs read.
//!
//! | module | what it holds |
//! |---|---|
//! | [`schema`] | tables, indexes and views, and by what a database is recognised |
//! | [`place`] | a file, or a folder of files by time; which rows belong to which |
//! | [`options`] | what is asked, and what can't be meant |
//! | [`writer`] | who writes: rows into their files, the oldest deleted |
//! | [`database`] | one database open for writing: transactions, its log, its lock |
//! | [`parts`] | rows cut into transactions |
//! | `rows` | how rows are spelled, and added to those that are there |
//! | [`retain`] | which files go |
//! | [`failed`] | why rows could not be written |
//! | [`head`] | what a file says of itself before SQLite opens it |
//! | `handle` | what of SQLite has no safe form |
//! | [`page`] | docs/reference/statistics.md |
//! | [`asking`] | what a database is asked, for reading only |
//! | [`export`] | its rows as Parquet, CSV or JSON |
//! | [`ipfix`] | flows for collectors |

pub mod asking;
pub mod database;
pub mod export;
pub mod failed;
mod handle;
pub mod head;
pub mod ipfix;
pub mod options;
pub mod page;
pub mod parts;
pub mod place;
pub mod retain;
mod rows;
pub mod schema;
pub mod writer;

pub use database::RunFacts;
pub use failed::Failed;
pub use options::{Options, check, check_interval};
pub use place::{Every, Place};
pub use writer::{Counters, Writer};
