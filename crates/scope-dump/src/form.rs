//! The two forms of a dump's file: pcapng, which keeps all that is known, and pcap, which older programs
//! read.
//!
//! ```text
//!  pcap: | head 24: a1b23c4d 2.4 0 0 snap length, link type | seconds, nanoseconds, captured, original length, bytes | ...
//! ```
//! A pcap file has no place for interfaces, directions, losses, and for who fired: these facts stand in a
//! text file beside it. Its seconds have 32 bits: later packets than 2106-02-07 don't fit.

use crate::mark::{PCAP, PCAPNG};
use scope_packet::LinkType;
use scope_packet::pcapng::{self, PACKET_HEAD_BYTES, PacketBlock, le32};
use scope_packet::time::NS_PER_SECOND;
use std::io::{self, Read};

/// Magic number of a pcap file with nanoseconds.
const PCAP_MAGIC: u32 = 0xA1B2_3C4D;
/// Bytes in front of each of its packets.
const PCAP_RECORD_BYTES: usize = 16;
/// Its snap length: the most that libpcap accepts.
const PCAP_SNAP_LEN: u32 = 262_144;

/// The form of a dump's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DumpFormat {
    /// pcapng, with nanoseconds.
    #[default]
    Pcapng,
    /// Classic pcap, with nanoseconds.
    Pcap,
}

impl DumpFormat {
    /// Ending of its files' names.
    pub fn ending(self) -> &'static str {
        match self {
            DumpFormat::Pcapng => PCAPNG,
            DumpFormat::Pcap => PCAP,
        }
    }

    /// What a file begins with: of a pcapng file a reserve, `reserve_bytes` long, that is filled in at its
    /// end.
    pub(crate) fn head(self, link_type: LinkType, reserve_bytes: usize) -> Vec<u8> {
        match self {
            DumpFormat::Pcapng => vec![0; reserve_bytes],
            DumpFormat::Pcap => {
                let mut head = PCAP_MAGIC.to_le_bytes().to_vec();
                head.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                head.extend(PCAP_SNAP_LEN.to_le_bytes());
                head.extend(u32::from(link_type.0).to_le_bytes());
                head
            }
        }
    }

    /// Whether a packet of this time can be written.
    pub(crate) fn holds(self, time_ns: i64) -> bool {
        self == DumpFormat::Pcapng || time_ns / NS_PER_SECOND <= i64::from(u32::MAX)
    }

    /// Appends a packet that lies there as a pcapng block; `interface` is its number in the file, `comments`
    /// what is added to it.
    pub(crate) fn packet(self, out: &mut Vec<u8>, block: &[u8], interface: u32, comments: &[String]) {
        let at = out.len();
        match self {
            DumpFormat::Pcapng => {
                match comments {
                    [] => out.extend(block),
                    _ => pcapng::commented(out, block, comments.iter().map(String::as_str)),
                }
                out[at + 8..at + 12].copy_from_slice(&interface.to_le_bytes());
            }
            DumpFormat::Pcap => {
                let Some(packet) = PacketBlock::first(block) else { return };
                let time_ns = packet.time_ns();
                out.extend(((time_ns / NS_PER_SECOND) as u32).to_le_bytes());
                out.extend(((time_ns % NS_PER_SECOND) as u32).to_le_bytes());
                out.extend(&block[PACKET_HEAD_BYTES - 8..PACKET_HEAD_BYTES]); // both lengths
                out.extend(packet.data());
            }
        }
    }

    /// Whether what [`DumpFormat::read`] has read describes an interface.
    pub(crate) fn is_description(self, record: &[u8]) -> bool {
        self == DumpFormat::Pcapng && record.len() >= 4 && le32(record, 0) == pcapng::INTERFACE
    }

    /// Reads what comes next behind the head into `record`: a packet's time; of a block that holds none, a
    /// time before all others, so that it keeps its place. `None` at the end.
    pub(crate) fn read(self, from: &mut impl Read, record: &mut Vec<u8>) -> io::Result<Option<i64>> {
        let head_bytes = if self == DumpFormat::Pcapng { 8 } else { PCAP_RECORD_BYTES };
        record.clear();
        record.resize(head_bytes, 0);
        match from.read_exact(record) {
            Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let total = match self {
            DumpFormat::Pcapng => le32(record, 4) as usize,
            DumpFormat::Pcap => PCAP_RECORD_BYTES + le32(record, 8) as usize,
        };
        record.resize(total, 0);
        from.read_exact(&mut record[head_bytes..])?;
        Ok(Some(match self {
            DumpFormat::Pcapng => PacketBlock::first(record).map_or(i64::MIN, |packet| packet.time_ns()),
            DumpFormat::Pcap => i64::from(le32(record, 0)) * NS_PER_SECOND + i64::from(le32(record, 4)),
        }))
    }
}
