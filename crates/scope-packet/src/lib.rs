//! Packet, key, header parse, pcapng blocks, segment layout and time: what every other room speaks, without
//! any I/O.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | the time of a process as a parameter |
//! | [`packet`] | the lent [`Packet`], the [`Interface`] it came through, the seam [`Sink`] |
//! | [`link`] | link types as capture files number them |
//! | [`headers`] | one parse per packet: where the layers begin, addresses, ports, tags |
//! | [`parsed`] | a batch of packets parsed together |
//! | [`key`] | the 16 bytes that a packet leaves in its segment's key column |
//! | [`pcapng`] | writing and reading of the pcapng blocks that Wirescope stores |
//! | [`segment`] | the layout of a segment, its foot, its limits |
//! | [`drops`] | the closed list of reasons for which a packet can be dropped |
//! | [`gap`] | what a span of capture time lacks, and the closed list of reasons |

pub mod clock;
pub mod drops;
pub mod fetch;
pub mod gap;
pub mod headers;
pub mod key;
pub mod link;
pub mod packet;
pub mod parsed;
pub mod pcapng;
#[cfg(target_arch = "x86_64")]
mod plain;
pub mod segment;
pub mod time;

pub use clock::{Clock, SystemClock};
pub use drops::{DropReason, Drops};
pub use gap::{Gap, GapReason};
pub use headers::{Headers, Kind};
pub use key::KeyEntry;
pub use link::LinkType;
pub use packet::{BATCH_PACKETS_MAX, Interface, Packet, Sink, TimestampSource, Turn};
pub use parsed::Parsed;
pub use segment::SegmentId;
pub use time::Moment;
