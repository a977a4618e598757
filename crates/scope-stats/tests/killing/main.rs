//! Statistics under kills, and on a full disk: tests that start other programs.
//!
//! A program that is about to start has all open files for a moment, and their locks with them: no test here
//! opens a database a second time while others start one.

mod full;
mod kills;
#[path = "../writing/made.rs"]
mod made;
