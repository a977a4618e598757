//! VLAN tags in Linux cooked captures, where libpcap's language has no `vlan`: the text's own program, moved
//! behind the tags.
//!
//! ```text
//!  LINUX_SLL    0 ... | 14 type                | 16 tag, type | 20 tag, type | 24 network layer
//!  LINUX_SLL2   0 type | 2 ...                 | 20 tag, type | 24 tag, type | 28 network layer
//! ```
//! The moved program reads the last type where the header has its own, and everything behind the header where
//! it stands behind the tags; so it says of a packet with tags what the text's program says of the same
//! packet without them. `len` stays the length with them, as under `vlan and` on Ethernet. A text that reads
//! bytes of the link layer by number (`link[14:2]`) means these bytes and isn't moved.

use scope_packet::LinkType;

use crate::bpf::Instruction;
use crate::words;

/// Bytes of one tag: its own two, and the type of what follows.
const TAG_BYTES: u32 = 4;
/// What loads at a constant place, at a place behind X, and a header's length, by the mode of their
/// instruction.
const MODE_MASK: u16 = 0xe0;
const ABSOLUTE: u16 = 0x20;
const BEHIND_X: u16 = 0x40;
const HEADER_LENGTH: u16 = 0xa0;
/// Classes of instructions that load A and X.
const CLASS_MASK: u16 = 0x07;
const LOADS: [u16; 2] = [0, 1];

/// Where a cooked capture's header has its type, and where it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cooked {
    type_at: u32,
    end: u32,
}

impl Cooked {
    /// `None` for all other link types.
    pub fn of(link: LinkType) -> Option<Cooked> {
        match link {
            LinkType::LINUX_SLL => Some(Cooked { type_at: 14, end: 16 }),
            LinkType::LINUX_SLL2 => Some(Cooked { type_at: 0, end: 20 }),
            _ => None,
        }
    }

    /// Whether the text's program means the same behind tags.
    pub fn moves(self, text: &str) -> bool {
        let tokens = words::tokens(text);
        let by_number = |pair: &[words::Token<'_>]| {
            pair[1].text == "["
                && ["ether", "link", "fddi", "tr", "wlan", "ppp", "slip"]
                    .iter()
                    .any(|name| pair[0].is_word(name))
        };
        !tokens.windows(2).any(by_number)
    }

    /// The program for packets with `tags` tags, out of that for packets without.
    pub fn behind(self, tags: usize, mut program: Vec<Instruction>) -> Vec<Instruction> {
        let tag_bytes = TAG_BYTES * tags as u32;
        for instruction in &mut program {
            instruction.k = match instruction.code & MODE_MASK {
                _ if !LOADS.contains(&(instruction.code & CLASS_MASK)) => instruction.k,
                // Negative places are libpcap's own, in no packet.
                ABSOLUTE | HEADER_LENGTH if i32::try_from(instruction.k).is_err() => instruction.k,
                ABSOLUTE | HEADER_LENGTH if instruction.k >= self.end => instruction.k + tag_bytes,
                ABSOLUTE if instruction.k == self.type_at => self.end - 2 + tag_bytes,
                BEHIND_X => instruction.k.wrapping_add(tag_bytes),
                _ => instruction.k,
            };
        }
        program
    }
}
