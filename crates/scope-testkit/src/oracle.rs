//! Second opinions: tcpdump on which packets a filter selects, capinfos and tshark on whether a file is
//! sound, and a plain reader of capture files that shares no code with the product.
//!
//! | module | what it holds |
//! |---|---|
//! | [`read`] | pcap and pcapng files into memory, strict |
//! | [`select`] | which packets tcpdump selects; what a dump has to hold |
//! | [`compare`] | two captures, and shortly what differs |
//! | [`course`] | how capture time runs where it jumps, and what a window holds then |
//! | [`tools`] | whether other programs open a file without a complaint |
//! | [`truth`] | what a dump says of itself, held against what came |
//! | [`copies`] | whether all of them copy it packet for packet, alone and merged |

pub mod compare;
pub mod copies;
pub mod course;
pub mod read;
pub mod select;
pub mod tools;
pub mod truth;

pub use compare::{difference, is_later_part};
pub use copies::every_tool_copies;
pub use read::{File, Statistics, parse, read};
pub use select::{VlanRule, expected_dump, tcpdump_selects};
pub use tools::{have, opens_cleanly};
