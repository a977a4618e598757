//! What stands in for libpcap's live capture in programs that nobody changes: loaded before libpcap, it makes the capture
//! device [`DEVICE`] a group of a run.
//!
//! ```text
//! program ─► pcap_open_live("wirescope") ─► here: joins the group ─► pcap_loop: its packets, copied, filtered, handed out
//!        └─► pcap_open_live("eth0"), pcap_open_offline(...) ─► the real libpcap, as ever
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`abi`] | libpcap's structures and numbers |
//! | [`calls`] | the functions that programs call: for handles of the table, else passed on |
//! | [`capture`] | a member of the group, and its packets as a copy |
//! | [`handle`] | what a program has set of a handle, and what it gets from it |
//! | [`program`] | a program's compiled filter |
//! | [`real`] | the real libpcap |
//! | [`signs`] | what a signal handler may touch of a handle |
//! | [`table`] | which handles are ours |
//!
//! A handle that a program holds is one that the real libpcap has made by `pcap_open_dead`, so that whatever isn't stood in for
//! finds what it expects. Once it is activated a second one behind it has the link type and the bytes that packets really have;
//! it compiles filters and opens files.
//!
//! Which run and group, and how they are joined, stands in the environment: see [`SOCKET`], [`GROUP`] and [`OPTIONS`].
//! Without a group nothing is stood in for.

pub mod abi;
pub mod calls;
pub mod capture;
pub mod handle;
pub mod program;
pub mod real;
pub mod signs;
pub mod table;

/// The device that is the group.
pub const DEVICE: &str = "wirescope";
/// The environment's name for the socket of the run; not set: the service's.
pub const SOCKET: &str = "WIRESCOPE_ATTACH";
/// The environment's name for the group.
pub const GROUP: &str = "WIRESCOPE_GROUP";
/// The environment's name for what the program asks for as a member: `name=x,weight=2`.
pub const OPTIONS: &str = "WIRESCOPE_OPTIONS";
