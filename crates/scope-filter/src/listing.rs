//! A filter's programs as libpcap made them, for one link type and each number of VLAN tags.

use std::sync::Arc;

use scope_packet::LinkType;

use crate::assembly::{self, Printed};
use crate::bpf::{Instruction, Program};
use crate::{libpcap, place};

/// Tags that the VLAN rule tells apart; packets with more are asked the last program.
pub(crate) const TAGS_MAX: usize = 2;

/// The program that accepts nothing: return 0.
const NOTHING: [Instruction; 1] = [Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0 }];

/// A program, shared where several numbers of tags have the same.
pub(crate) type Instructions = Arc<[Instruction]>;

/// What libpcap made of a text. All programs have passed [`Program::new`].
#[derive(Clone, Debug)]
pub(crate) enum Listing {
    /// The text is empty: every packet matches.
    Everything,
    /// By number of VLAN tags.
    ByTags([Instructions; TAGS_MAX + 1]),
    /// BSD loopback, captured by a host of this byte order and of the other one.
    Loopback { plain: Instructions, swapped: Instructions },
}

impl Listing {
    /// Compiles `text`, or gives libpcap's words for why not. `transparent`: packets with n tags have the program of n times
    /// `vlan and` before the text.
    pub fn compile(text: &str, link: LinkType, transparent: bool) -> Result<Listing, String> {
        let plain = compiled(text, link)?;
        if link == LinkType::NULL {
            return Ok(Listing::Loopback { plain, swapped: checked(libpcap::compile_swapped(text, link)?)? });
        }
        let mut by_tags: [Instructions; TAGS_MAX + 1] = std::array::from_fn(|_| plain.clone());
        if transparent {
            for (tags, slot) in by_tags.iter_mut().enumerate().skip(1) {
                *slot = tagged(text, tags, link).unwrap_or(plain.clone());
            }
        }
        Ok(Listing::ByTags(by_tags))
    }

    /// The programs that a packet with `tags` tags may be asked; `None` where it is asked none and matches.
    pub fn programs(&self, tags: usize) -> Option<Vec<&[Instruction]>> {
        match self {
            Listing::Everything => None,
            Listing::ByTags(by_tags) => Some(vec![&by_tags[tags.min(TAGS_MAX)]]),
            Listing::Loopback { plain, swapped } => Some(vec![plain, swapped]),
        }
    }
}

fn compiled(text: &str, link: LinkType) -> Result<Instructions, String> {
    checked(libpcap::compile(text, link)?)
}

/// The instructions, if they make a program that can be run.
fn checked(instructions: Vec<Instruction>) -> Result<Instructions, String> {
    Program::new(&instructions).map_err(|error| error.to_string())?;
    Ok(instructions.into())
}

impl Listing {
    /// All different programs in words.
    pub fn printed(&self) -> Vec<Printed> {
        let print = |asked, program: &Instructions| Printed { asked, lines: assembly::lines(program) };
        match self {
            Listing::Everything => Vec::new(),
            Listing::ByTags([none, one, two]) if none == one && one == two => vec![print("all packets", none)],
            Listing::ByTags([none, one, two]) => vec![
                print("packets without VLAN tags", none),
                print("packets with one VLAN tag", one),
                print("packets with two VLAN tags and more", two),
            ],
            Listing::Loopback { plain, swapped } => vec![
                print("packets of hosts with this host's byte order", plain),
                print("packets of hosts with the other byte order", swapped),
            ],
        }
    }
}

/// The program for packets with `tags` tags; `None` where the link type has none.
fn tagged(text: &str, tags: usize, link: LinkType) -> Option<Instructions> {
    match compiled(&format!("{}({text})", "vlan and ".repeat(tags)), link) {
        Ok(program) => Some(program),
        Err(cause) if place::rejects_all(&cause) => Some(NOTHING.into()),
        Err(_) => None,
    }
}
