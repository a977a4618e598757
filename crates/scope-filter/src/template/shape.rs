//! Which of a packet's values decide whether a filled template is a filter.
//!
//! ```text
//! ip host $srcIP and port $srcPort       decided by the kind of address alone: one answer for all IPv6 packets
//! ip[2:2] / $srcPort = 1                 decided by the value: port 0 makes no filter
//! ```
//! For a name that stands by itself behind a word that accepts any value of its kind, the kind decides; for
//! every other one the value. So an answer that is kept for a [`Shape`] holds for all packets of that shape.

use std::net::IpAddr;

use scope_packet::LinkType;

use super::fields::{Field, Flow};
use super::subject::Subject;
use super::text::Piece;
use super::values::{Gatherer, Part, Values};
use crate::words::{Kind, Token, tokens};

/// All of a packet that decides whether a template's text for it is a filter. Two packets of the same shape
/// have the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape(Values);

impl Shape {
    /// Begins to gather, for packets of `link` behind so many MPLS labels.
    pub(super) fn gatherer(link: LinkType, labels: usize) -> Gatherer {
        Gatherer::default().part(Part::Labels, &[labels as u8]).part(Part::Bytes, &link.0.to_le_bytes())
    }

    /// That of packets which get the fallback.
    pub(super) fn of_fallback(link: LinkType) -> Shape {
        Shape(Gatherer::default().part(Part::Fallback, &link.0.to_le_bytes()).values())
    }

    /// Of all that was gathered.
    pub(super) fn of(gathered: &Gatherer) -> Shape {
        Shape(gathered.values())
    }
}

/// A field of a template, once, and what of it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decides {
    pub field: Field,
    /// The value itself, not its kind alone.
    pub by_value: bool,
}

/// The fields of a template in the order in which they stand first.
pub(super) fn decides(pieces: &[Piece]) -> Vec<Decides> {
    let text = |piece: Option<&Piece>| match piece {
        Some(Piece::Text { text, .. }) => text.clone(),
        Some(Piece::Name { .. }) => "$".to_string(), // joined to another name: no token of its own
        None => String::new(),
    };
    let mut found: Vec<Decides> = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let Piece::Name { field, .. } = *piece else { continue };
        let before = text(at.checked_sub(1).and_then(|at| pieces.get(at)));
        let by_value = !stands_alone(field, &before, &text(pieces.get(at + 1)));
        match found.iter_mut().find(|known| known.field == field) {
            Some(known) => known.by_value |= by_value,
            None => found.push(Decides { field, by_value }),
        }
    }
    found
}

/// Whether any value of the field's kind has the same answer between these texts.
fn stands_alone(field: Field, before: &str, behind: &str) -> bool {
    let (before_tokens, behind_tokens) = (tokens(before), tokens(behind));
    let joins = |token: Option<&Token>| match token {
        None => true,
        Some(token) => matches!((token.kind, token.text), (Kind::Word, "and" | "or" | "&&" | "||")),
    };
    let ends = behind_tokens.first().is_some_and(|token| token.text == ")") || joins(behind_tokens.first());
    let apart = before.is_empty() || before.ends_with([' ', '\t', '\n', '\r', '(', '!']);
    let apart_behind = behind.is_empty() || behind.starts_with([' ', '\t', '\n', '\r', ')']);
    let last = before_tokens.last();
    let operator = joins(last) || last.is_some_and(|token| matches!(token.text, "(" | "!" | "not"));
    let word =
        |known: &[&str]| last.is_some_and(|token| token.kind == Kind::Word && known.contains(&token.text));
    let fits = match field {
        Field::Flow => operator,
        Field::SrcIp | Field::DstIp => word(&["host", "net", "src", "dst"]) || (operator && last.is_some()),
        Field::SrcMac | Field::DstMac => word(&["host", "src", "dst"]) || (operator && last.is_some()),
        Field::SrcPort | Field::DstPort => word(&["port"]),
        Field::Proto => word(&["proto"]),
        Field::Vlan => word(&["vlan"]),
    };
    fits && ends && apart && apart_behind
}

impl Field {
    /// Adds the kind of this field's value; `None` where the packet lacks it. Values of one kind all have
    /// texts of one form.
    pub fn gather_kind(self, packet: &Subject<'_>, shape: &mut Gatherer) -> Option<()> {
        let version = |address: IpAddr| if address.is_ipv4() { 4 } else { 6 };
        match self {
            Field::SrcIp => shape.add(Part::Bytes, &[version(packet.addresses()?.0)]),
            Field::DstIp => shape.add(Part::Bytes, &[version(packet.addresses()?.1)]),
            Field::SrcPort | Field::DstPort => drop(packet.ports()?),
            Field::Proto => drop(packet.protocol()?),
            Field::SrcMac | Field::DstMac => drop(packet.mac(0)?),
            Field::Vlan => drop(packet.vlan()?),
            Field::Flow => Flow::of(packet)?.gather_form(shape),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Template;

    #[test]
    fn a_value_decides_where_its_name_is_no_operand_of_its_own() {
        let check = |text: &str, expected: &[bool]| {
            let found: Vec<bool> =
                Template::parse(text).unwrap().decides.iter().map(|decides| decides.by_value).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("host $srcIP and port $srcPort", &[false, false]);
        check("ip host {srcIP} or ip6 src ${dstIP}", &[false, false]);
        check("host ($srcIP or $dstIP)", &[false, false]);
        check("host 10.0.0.1 or $srcIP", &[false]);
        check("$flow", &[false]);
        check("(not $flow) && vlan $vlan", &[false, false]);
        check("ether host $srcMAC or ether dst $dstMAC", &[false, false]);
        check("ip proto $proto", &[false]);
        check("net {srcIP}/32", &[true]);
        check("net $srcIP mask 255.255.255.255", &[true]);
        check("port 1{srcPort}", &[true]);
        check("port {srcPort}1", &[true]);
        check("portrange $srcPort-$dstPort", &[true, true]);
        check("tcp[0:2] = $srcPort", &[true]);
        check("ip[8] / $proto = 1", &[true]);
        check("host $srcIP and ip[2:2] / $srcPort = 1", &[false, true]);
        check("port $srcPort and len > $srcPort", &[true]);
        check("port 80 or $srcPort", &[true]);
        check("ip proto $proto $proto", &[true]);
    }
}
