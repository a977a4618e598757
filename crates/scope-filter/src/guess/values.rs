//! Values as other programs write them: ranges of ports, an address with its port, masks, networks with a
//! star, zones.

use std::net::{IpAddr, Ipv4Addr};

use super::address;
use super::edits::{Edit, before, begins_operand, edited, grouped, is_joint, takes_over, touch, word};
use crate::words::{Kind, Token, tokens};

fn port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `80-90`, `80:90`, `80..90`.
fn range(text: &str) -> Option<String> {
    let (from, to) = text.split_once("..").or_else(|| text.split_once(['-', ':']))?;
    let (from, to) = (port(from)?, port(to)?);
    (from <= to).then(|| format!("{from}-{to}"))
}

/// The ports for which a comparison holds.
pub(super) fn ports(relation: &str, value: &str) -> Option<String> {
    let value = port(value)?;
    let (from, to) = match relation {
        ">" => (value.checked_add(1)?, u16::MAX),
        ">=" => (value, u16::MAX),
        "<" => (0, value.checked_sub(1)?),
        "<=" => (0, value),
        _ => return None,
    };
    Some(format!("{from}-{to}"))
}

/// `port 80-90`, `port 80 to 90`, `port > 1024`, `portrange 80:90` as `portrange 80-90`, and `port 80 443` as
/// a list.
pub(super) fn ranges(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    for at in (0..found.len()).filter(|&at| matches!(found[at].text, "port" | "portrange")) {
        let first = at + 1 + usize::from(word(found, at + 1) == "range");
        // The value: as far as it goes without a blank.
        let mut last = first;
        while last + 1 < found.len() && touch(found, last) && found[last + 1].text != ")" {
            last += 1;
        }
        let (Some(from), Some(to)) = (found.get(first), found.get(last)) else { continue };
        let value = &text[from.at..to.end()];
        let open_end = || ports(">=", value.strip_suffix('-')?);
        let compared =
            || ports(from.text, word(found, first + 1)).filter(|_| last == first || last == first + 1);
        if let Some(range) = range(value).or_else(open_end) {
            edits.push((found[at].at..to.end(), format!("portrange {range}")));
        } else if let Some(range) = compared() {
            edits.push((found[at].at..found[first + 1].end(), format!("portrange {range}")));
        } else if word(found, last + 1) == "to"
            && let Some(range) = range(&format!("{value}-{}", word(found, last + 2)))
        {
            edits.push((found[at].at..found[last + 2].end(), format!("portrange {range}")));
        } else if found[at].text == "portrange"
            && let Some(range) = range(&format!("{value}-{}", word(found, last + 1)))
        {
            edits.push((found[at].at..found[last + 1].end(), format!("portrange {range}")));
        } else if found[at].text == "port" {
            let listed: Vec<&str> = found[first..]
                .iter()
                .map(|token| token.text)
                .take_while(|word| port(word).is_some())
                .collect();
            if listed.len() > 1 {
                edits.push((
                    from.at..found[first + listed.len() - 1].end(),
                    format!("({})", listed.join(" or ")),
                ));
            }
        }
    }
    edited(text, edits)
}

/// `host 10.0.0.1:80`, `src [fe80::1]:80` as the address and the port apart.
pub(super) fn sockets(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    for at in (0..found.len()).filter(|&at| found[at].kind == Kind::Address) {
        let bracketed = before(found, at) == "[" && word(found, at + 1) == "]";
        let (first, colon) = if bracketed { (at - 1, at + 2) } else { (at, at + 1) };
        let is_ip = found[at].text.parse::<IpAddr>().is_ok();
        if word(found, colon) != ":" || !touch(found, colon - 1) || !touch(found, colon) || !is_ip {
            continue;
        }
        let Some(port) = port(word(found, colon + 1)) else { continue };
        let is_value = found.get(colon + 3).is_some_and(|next| next.kind != Kind::Word);
        if takes_over(found, first) || (is_joint(word(found, colon + 2)) && is_value) {
            return None; // of a list: which values are whose ports isn't known
        }
        let mut begin = first;
        while matches!(before(found, begin), "host" | "src" | "dst" | "ip" | "ip6") {
            begin -= 1;
        }
        let qualifiers = if begin == first { "host " } else { &text[found[begin].at..found[first].at] };
        let direction =
            found[begin..first].iter().map(|token| token.text).find(|word| matches!(*word, "src" | "dst"));
        let apart = format!("{qualifiers}{} and {} port {port}", found[at].text, direction.unwrap_or(""));
        let place = if begins_operand(found, begin) { begin } else { begin - 1 }; // behind a protocol
        edits.push((found[begin].at..found[colon + 1].end(), grouped(found, place, apart)));
    }
    edited(text, edits)
}

/// `10.0.0.1.443`, as tcpdump prints it, as the address and the port apart.
pub(super) fn dotted(text: &str, found: &[Token]) -> Option<String> {
    let socket = |token: &Token| {
        let (address, number) = token.text.rsplit_once('.')?;
        let (address, number) = (address.parse::<Ipv4Addr>().ok()?, port(number)?);
        Some((token.at..token.end(), format!("{address}:{number}")))
    };
    let with_colons = edited(text, found.iter().filter_map(socket).collect())?;
    sockets(&with_colons, &tokens(&with_colons))
}

/// `10.0.0.0/8` and `dst 10.0.0.0/8` with `net`; masks in dots with `mask`; `net 10/8` and `10.0.0.*` written
/// out.
pub(super) fn networks(text: &str, found: &[Token]) -> Option<String> {
    let mut edits: Vec<Edit> = Vec::new();
    for at in 0..found.len() {
        let token = &found[at];
        let is_address =
            token.kind == Kind::Address && (token.text.contains('.') || token.text.contains("::"));
        let is_mask = |at: usize| {
            found.get(at).is_some_and(|next| {
                next.kind == Kind::Address && next.text.parse::<Ipv4Addr>().is_ok_and(is_mask)
            })
        };
        let masked = is_address && is_mask(at + 1);
        let slashed = is_address && word(found, at + 1) == "/" && found.len() > at + 2;
        if masked || (slashed && is_mask(at + 2)) {
            let mask = if masked { at + 1 } else { at + 2 };
            edits.push((token.end()..found[mask].at, " mask ".into()));
        }
        let starred = token.kind == Kind::Name
            && token.text.ends_with('.')
            && word(found, at + 1) == "*"
            && touch(found, at);
        let begun = token.kind == Kind::Number && before(found, at) == "net" && word(found, at + 1) == "/";
        if begun {
            edits.push((token.end()..token.end(), ".0.0.0".into()));
        }
        if starred && let Some(net) = starred_net(token.text) {
            let mut last = at + 1;
            while last + 2 < found.len() && found[last + 1].text == "." && found[last + 2].text == "*" {
                last += 2;
            }
            edits.push((token.at..found[last].end(), net));
        }
        if masked || slashed || starred {
            match before(found, at) {
                "host" => edits.push((found[at - 1].at..found[at - 1].end(), "net".into())),
                "net" => {}
                "src" | "dst" => edits.push((token.at..token.at, "net ".into())),
                _ if begins_operand(found, at) && !takes_over(found, at) => {
                    edits.push((token.at..token.at, "net ".into()))
                }
                _ => {}
            }
        }
    }
    edited(text, edits)
}

fn is_mask(mask: Ipv4Addr) -> bool {
    let bits = u32::from(mask);
    bits.leading_ones() + bits.trailing_zeros() == 32 && bits != 0
}

/// `10.0.` as `10.0.0.0/16`.
fn starred_net(begin: &str) -> Option<String> {
    let parts: Vec<&str> = begin.trim_end_matches('.').split('.').collect();
    let fits = parts.len() < 4 && parts.iter().all(|part| part.parse::<u8>().is_ok());
    fits.then(|| format!("{}{}/{}", parts.join("."), ".0".repeat(4 - parts.len()), 8 * parts.len()))
}

/// `net 10.0.0.1/24` without the bits of the host.
pub(super) fn without_host_bits(text: &str, found: &[Token]) -> Option<String> {
    let net = |at: usize| {
        let token = &found[at];
        let slashed = token.kind == Kind::Address && word(found, at + 1) == "/";
        let net = address::network(token.text, word(found, at + 2)).filter(|_| slashed)?;
        (net != token.text).then(|| (token.at..token.end(), net))
    };
    edited(text, (0..found.len()).filter_map(net).collect())
}

/// An address with a zone (`fe80::1%eth0`): the zone, and the text without zones.
pub(super) fn zone<'a>(text: &'a str, found: &[Token<'a>]) -> Option<(&'a str, String)> {
    let zoned = |at: &usize| {
        found[*at].kind == Kind::Address
            && word(found, at + 1) == "%"
            && touch(found, *at)
            && touch(found, at + 1)
    };
    let places: Vec<usize> = (0..found.len()).filter(zoned).collect();
    let zone = word(found, places.first()? + 2);
    Some((
        zone,
        edited(
            text,
            places.iter().map(|at| (found[at + 1].at..found[at + 2].end(), String::new())).collect(),
        )?,
    ))
}

/// `host 10.0.0.1-10.0.0.5`: the text with the smallest network around such a range.
pub(super) fn around(text: &str, found: &[Token]) -> Option<String> {
    let place = |at: usize| {
        let (from, to) = found[at].text.split_once('-')?;
        let (from, to): (Ipv4Addr, Ipv4Addr) = (from.parse().ok()?, to.parse().ok()?);
        let bits = (u32::from(from) ^ u32::from(to)).leading_zeros();
        let net = format!("{}/{bits}", address::network(&from.to_string(), &bits.to_string())?);
        let begin = if before(found, at) == "host" { found[at - 1].at } else { found[at].at };
        let head = if before(found, at) == "net" { "" } else { "net " };
        Some((begin..found[at].end(), format!("{head}{net}")))
    };
    edited(text, (0..found.len()).filter_map(place).collect())
}
