//! A text's programs for one link type and each number of VLAN tags, and how they are shown.

use std::sync::Arc;

use scope_packet::LinkType;

use crate::assembly::{self, Printed};
use crate::bpf::{Instruction, Program};
use crate::choice::{BYTE_ORDERS, Choice, PROGRAMS};
use crate::cooked::Cooked;
use crate::libpcap::{self, ByteOrder, OPTIMISED_BYTES_MAX};
use crate::pieces::Pieces;
use crate::place;

/// The program that accepts nothing: return 0.
const NOTHING: Instruction = Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0 };

/// A program and what it was made of.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub program: Arc<Program>,
    /// As libpcap made them; `None` where the program was joined from pieces.
    instructions: Option<Arc<[Instruction]>>,
}

/// Compiles `text`, or gives libpcap's words for why not. `transparent`: packets with n tags have the program
/// of n times `vlan and` before the text, or, in cooked captures, the text's own program moved behind the
/// tags: see [`crate::cooked`].
pub(crate) fn compile(
    text: &str,
    link: LinkType,
    transparent: bool,
) -> Result<(Choice, [Listing; PROGRAMS]), String> {
    let compiler = Compiler::new(text);
    let plain = compiler.listing(0, link, ByteOrder::Native)?;
    let mut listings: [Listing; PROGRAMS] = std::array::from_fn(|_| plain.clone());
    if link == LinkType::NULL {
        listings[1] = compiler.listing(0, link, ByteOrder::Swapped)?;
        return Ok((Choice::ByteOrder, listings));
    }
    if transparent {
        for (tags, listing) in listings.iter_mut().enumerate().skip(1) {
            *listing = compiler.tagged(tags, link)?.unwrap_or(plain.clone());
        }
    }
    Ok((Choice::Tags, listings))
}

/// Makes the programs of one text.
struct Compiler<'a> {
    text: &'a str,
    /// Of texts that are too long for libpcap to compile them whole in little time.
    pieces: Option<Pieces>,
}

impl<'a> Compiler<'a> {
    fn new(text: &'a str) -> Compiler<'a> {
        let pieces = if text.len() > OPTIMISED_BYTES_MAX { Pieces::of(text) } else { None };
        Compiler { text, pieces }
    }

    /// The program for packets with `tags` tags; `None` where the link type has none.
    fn tagged(&self, tags: usize, link: LinkType) -> Result<Option<Listing>, String> {
        if let Some(cooked) = Cooked::of(link) {
            return cooked.moves(self.text).then(|| self.behind(tags, link, cooked)).transpose();
        }
        match self.listing(tags, link, ByteOrder::Native) {
            Ok(listing) => Ok(Some(listing)),
            Err(cause) if place::rejects_all(&cause) => Listing::of(&[NOTHING]).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The text's own program, which reads everything behind the header where it stands behind `tags` tags.
    fn behind(&self, tags: usize, link: LinkType, cooked: Cooked) -> Result<Listing, String> {
        let moved = |instructions: Vec<Instruction>| cooked.behind(tags, instructions);
        if let Some(program) = self.pieces.as_ref().and_then(|pieces| pieces.moved_program(link, &moved)) {
            return Ok(Listing { program: Arc::new(program), instructions: None });
        }
        Listing::of(&moved(libpcap::compile(self.text, link, ByteOrder::Native)?))
    }

    /// The program of the text under `tags` times `vlan and`.
    fn listing(&self, tags: usize, link: LinkType, order: ByteOrder) -> Result<Listing, String> {
        if let Some(program) = self.pieces.as_ref().and_then(|pieces| pieces.program(tags, link, order)) {
            return Ok(Listing { program: Arc::new(program), instructions: None });
        }
        let text = self.text;
        Listing::of(&match tags {
            0 => libpcap::compile(text, link, order)?,
            _ => libpcap::compile(&format!("{}({text})", "vlan and ".repeat(tags)), link, order)?,
        })
    }
}

impl Listing {
    fn of(instructions: &[Instruction]) -> Result<Listing, String> {
        let program = Program::new(instructions).map_err(|error| error.to_string())?;
        Ok(Listing { program: Arc::new(program), instructions: Some(instructions.into()) })
    }

    /// As libpcap made them; `None` where the program was joined from pieces.
    pub fn instructions(&self) -> Option<&[Instruction]> {
        self.instructions.as_deref()
    }

    fn printed(&self, packets: &'static str) -> Printed {
        Printed { packets, lines: self.instructions.as_deref().map_or(Vec::new(), assembly::lines) }
    }
}

/// All different programs in words.
pub(crate) fn printed(choice: Choice, listings: &[Listing; PROGRAMS]) -> Vec<Printed> {
    let same = |other: &Listing| Arc::ptr_eq(&listings[0].program, &other.program);
    let packets: &[&str] = match choice {
        Choice::Tags if listings.iter().all(same) => &["all packets"],
        Choice::Tags => &const { PACKETS_BY_TAGS },
        Choice::ByteOrder => &const { PACKETS_BY_ORDER },
    };
    listings.iter().zip(packets).map(|(listing, packets)| listing.printed(packets)).collect()
}

const PACKETS_BY_TAGS: [&str; PROGRAMS] =
    ["packets without VLAN tags", "packets with one VLAN tag", "packets with two VLAN tags and more"];
const PACKETS_BY_ORDER: [&str; BYTE_ORDERS] =
    ["packets of hosts with this host's byte order", "packets of hosts with the other byte order"];
