//! Which of a packet's values decide whether a filled template is a filter.
//!
//! ```text
//! ip host $srcIP and port $srcPort       decided by the kind of address alone: one answer for all IPv6 packets
//! ip[2:2] / $srcPort = 1                 decided by the value: port 0 makes no filter
//! ```
//! A name that stands by itself behind a word that takes any value of its kind is told by its kind, every other one by its value. So
//! an answer that is kept for a [`Shape`] holds for all packets of that shape.

use scope_packet::{Headers, Kind, LinkType};

use super::Piece;
use super::fields::Field;
use crate::words::{Kind as TokenKind, Token, tokens};

/// Most bytes that the values of all fields take.
const SHAPE_BYTES_MAX: usize = 128;
/// The length of the shape that stands for the fallback, which has no names.
const FALLBACK_LEN: u8 = u8::MAX;

/// All of a packet that decides whether a template's text for it is a filter. Two packets of the same shape have the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    link: LinkType,
    len: u8,
    bytes: [u8; SHAPE_BYTES_MAX],
}

impl Shape {
    pub(super) fn new(link: LinkType) -> Shape {
        Shape { link, len: 0, bytes: [0; SHAPE_BYTES_MAX] }
    }

    /// That of packets which take the fallback.
    pub(super) fn of_fallback(link: LinkType) -> Shape {
        Shape { len: FALLBACK_LEN, ..Shape::new(link) }
    }

    /// Adds what a field has. All fields together stay below the bound.
    pub(super) fn push(&mut self, more: &[u8]) {
        let at = usize::from(self.len);
        if let Some(room) = self.bytes.get_mut(at..at + more.len()) {
            room.copy_from_slice(more);
            self.len += more.len() as u8;
        }
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
        Some(token) => matches!((token.kind, token.text), (TokenKind::Word, "and" | "or" | "&&" | "||")),
    };
    let ends = behind_tokens.first().is_some_and(|token| token.text == ")") || joins(behind_tokens.first());
    let apart = before.is_empty() || before.ends_with([' ', '\t', '\n', '\r', '(', '!']);
    let apart_behind = behind.is_empty() || behind.starts_with([' ', '\t', '\n', '\r', ')']);
    let last = before_tokens.last();
    let operator = joins(last) || last.is_some_and(|token| matches!(token.text, "(" | "!" | "not"));
    let word = |known: &[&str]| last.is_some_and(|token| token.kind == TokenKind::Word && known.contains(&token.text));
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
    /// Adds to `shape` what of this field decides; `None` where the packet lacks it.
    pub fn shape(self, by_value: bool, headers: &Headers, data: &[u8], shape: &mut Shape) -> Option<()> {
        let (source, destination) = match self {
            Field::SrcIp | Field::DstIp | Field::Flow => headers.address_bytes(data)?,
            _ => (&[][..], &[][..]),
        };
        let mut address = |bytes: &[u8]| {
            shape.push(&[bytes.len() as u8]);
            if by_value {
                shape.push(bytes);
            }
        };
        match self {
            Field::SrcIp => address(source),
            Field::DstIp => address(destination),
            Field::SrcPort | Field::DstPort => {
                let (from, to) = headers.ports()?;
                let port = if self == Field::SrcPort { from } else { to };
                if by_value {
                    shape.push(&port.to_be_bytes());
                }
            }
            Field::Proto => {
                let protocol = super::fields::protocol(headers)?;
                if by_value {
                    shape.push(&[protocol]);
                }
            }
            Field::SrcMac | Field::DstMac => {
                let at = if self == Field::SrcMac { 6 } else { 0 };
                let bytes = data.get(at..at + 6).filter(|_| headers.ethernet())?;
                if by_value {
                    shape.push(bytes);
                }
            }
            Field::Vlan => {
                if headers.vlan_tags() == 0 {
                    return None;
                }
                if by_value {
                    shape.push(&headers.vlan_id().to_be_bytes());
                }
            }
            Field::Flow => {
                address(source);
                address(destination);
                let flags = u8::from(headers.ports().is_some()) | u8::from(headers.partial()) << 1;
                let next_header = match headers.kind() {
                    Kind::Ipv6 => data.get(headers.network_offset() as usize + 6).copied().unwrap_or(0),
                    _ => 0,
                };
                shape.push(&[headers.kind() as u8, headers.protocol(), flags, next_header]);
                if by_value {
                    let (from, to) = headers.ports().unwrap_or_default();
                    shape.push(&from.to_be_bytes());
                    shape.push(&to.to_be_bytes());
                }
            }
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
            let found: Vec<bool> = Template::parse(text).unwrap().decides.iter().map(|decides| decides.by_value).collect();
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
