//! Statistics are asked: the busiest, flows, SQL, files, copies, exports, also while they are written.

mod access;
mod copies;
mod exports;
mod flows;
mod made;
mod sql;
mod top;
