//! A screen in words, for people who write filters.

use std::fmt::{Display, Formatter, Result};
use std::net::Ipv4Addr;

use scope_packet::Kind;

use super::Screen;
use super::clause::{Clause, Field, kind_name};
use super::numbers::Numbers;

/// Values or ranges of a field that are listed; more are counted.
const LISTED_MAX: usize = 6;

/// One line for each clause and one for partial entries; "everything" where all pass.
impl Display for Screen {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.is_everything() {
            return f.write_str("everything");
        }
        for clause in &self.clauses {
            writeln!(f, "{clause}")?;
        }
        f.write_str(
            "not wholly described by its entry (tunnels, IPv6 extension headers, truncated or odd headers)",
        )
    }
}

impl Display for Clause {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let demands =
            [Field::Kind, Field::Vlan, Field::Fragment, Field::Protocol, Field::Source, Field::Destination]
                .into_iter()
                .chain([Field::SourcePort, Field::DestinationPort])
                .filter(|&field| !self.matches_all(field))
                .map(|field| match field {
                    // The entry has 128 bits folded to 32.
                    Field::Source | Field::Destination
                        if *self.get(Field::Kind) == Numbers::one(Kind::Ipv6 as u32) =>
                    {
                        demand(field, self.get(field)).replacen(' ', " folded to ", 1)
                    }
                    _ => demand(field, self.get(field)),
                });
        f.write_str(&demands.collect::<Vec<_>>().join(", "))
    }
}

/// What a field must be, in words; what it must not be where that is shorter.
fn demand(field: Field, numbers: &Numbers) -> String {
    let flag = |name: &str| format!("{}{name}", if numbers.contains(1) { "" } else { "no " });
    match field {
        Field::Vlan => return flag("VLAN tag"),
        Field::Fragment => return flag("fragment"),
        _ => {}
    }
    let others = numbers.complement(field.last());
    let name = match field {
        Field::Source => "source ",
        Field::Destination => "destination ",
        Field::SourcePort => "source port ",
        Field::DestinationPort => "destination port ",
        Field::Protocol => "protocol ",
        _ => "",
    };
    match others.ranges().len() < numbers.ranges().len()
        || others.len() < numbers.len() && field != Field::Kind
    {
        true => format!("{name}not {}", list(field, &others)),
        false => format!("{name}{}", list(field, numbers)),
    }
}

fn list(field: Field, numbers: &Numbers) -> String {
    let ranges = numbers.ranges();
    if field == Field::Kind {
        let kinds = (0..=field.last()).filter(|&kind| numbers.contains(kind));
        return kinds.map(kind_name).collect::<Vec<_>>().join(" or ");
    }
    let value = |number: u32| match field {
        Field::Source | Field::Destination => Ipv4Addr::from(number).to_string(),
        Field::Protocol => protocol_name(number),
        _ => number.to_string(),
    };
    let range = |&(first, last): &(u32, u32)| match last - first {
        0 => value(first),
        width if field.bits() == 32 && width.wrapping_add(1).is_power_of_two() && first & width == 0 => {
            format!("{}/{}", value(first), width.leading_zeros())
        }
        _ => format!("{}-{}", value(first), value(last)),
    };
    let listed = ranges.iter().take(LISTED_MAX).map(range).collect::<Vec<_>>().join(" or ");
    match ranges.len().checked_sub(LISTED_MAX) {
        None | Some(0) => listed,
        Some(more) => format!("{listed} or {more} more"),
    }
}

fn protocol_name(protocol: u32) -> String {
    match protocol {
        1 => "icmp".into(),
        2 => "igmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "icmp6".into(),
        132 => "sctp".into(),
        other => other.to_string(),
    }
}
