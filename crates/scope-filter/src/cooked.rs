//! Programs for Linux cooked captures behind VLAN tags: libpcap's language has no `vlan` there, so its program for untagged packets is
//! moved to where a tagged packet has the same bytes.
//!
//! ```text
//! SLL    0 packet type ... 14 protocol 16 network               SLL2   0 protocol 2 ... 20 network
//! tag    0 ...             14 0x8100   16 tag 18 protocol 20    tag    0 0x8100   2 ... 20 tag 22 protocol 24 network
//! ```
//! Each further tag moves protocol and network by four more bytes. What stands in front stays where it is.

use crate::bpf::Instruction;
use scope_packet::LinkType;

/// Bytes of a tag.
const TAG_BYTES: u32 = 4;
/// Loads at a fixed place, and the header length of IPv4; loads at a place behind X.
const FIXED: [u16; 4] = [0x20, 0x28, 0x30, 0xb1];
const BEHIND_X: [u16; 3] = [0x40, 0x48, 0x50];
/// Where the protocol and the network layer of SLL begin, and the network layer of SLL2, whose protocol is at 0.
const SLL_PROTOCOL_AT: u32 = 14;
const SLL2_NETWORK_AT: u32 = 20;

/// Whether the link type is a cooked capture.
pub(crate) fn is_cooked(link: LinkType) -> bool {
    matches!(link, LinkType::LINUX_SLL | LinkType::LINUX_SLL2)
}

/// The program as it is for packets with `tags` tags; the same where there are none, or `link` is no cooked capture.
pub(crate) fn behind_tags(mut program: Vec<Instruction>, link: LinkType, tags: usize) -> Vec<Instruction> {
    if tags == 0 || !is_cooked(link) {
        return program;
    }
    let by = TAG_BYTES * tags as u32;
    let moved = |at: u32| match link {
        LinkType::LINUX_SLL2 if at < 2 => at + SLL2_NETWORK_AT + by - 2,
        LinkType::LINUX_SLL2 if at < SLL2_NETWORK_AT => at,
        _ if at < SLL_PROTOCOL_AT => at,
        _ => at.saturating_add(by),
    };
    for instruction in &mut program {
        // A place behind X is that of a header that X is the length of, unless it is in front of the network layer.
        if FIXED.contains(&instruction.code) || (BEHIND_X.contains(&instruction.code) && instruction.k >= SLL_PROTOCOL_AT) {
            instruction.k = moved(instruction.k);
        }
    }
    program
}
