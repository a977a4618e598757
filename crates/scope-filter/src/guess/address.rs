//! Addresses with a typing error, in words; and the network of an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is wrong with the first thing in a text that looks like an address and isn't one.
pub(super) fn fault(text: &str) -> Option<String> {
    let is_separator = |c: char| c.is_whitespace() || "()!&|=<>]{}$,".contains(c);
    let outside = outside_brackets(text);
    let mut before = "";
    for word in outside.split(is_separator).filter(|word| !word.is_empty()) {
        let bare = word.split('/').next().unwrap_or(word);
        if let Some(fault) = of_word(bare, matches!(before, "host" | "net" | "src" | "dst")) {
            return Some(fault);
        }
        before = word;
    }
    None
}

/// The text with blanks for what stands in brackets: places of bytes, `tcp[0:4]`.
fn outside_brackets(text: &str) -> String {
    let (mut outside, mut depth) = (String::new(), 0usize);
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        outside.push(if depth > 0 { ' ' } else { c });
    }
    outside
}

/// `expected`: an address stands there, whatever it looks like.
fn of_word(word: &str, expected: bool) -> Option<String> {
    let count = |wanted: char| word.chars().filter(|c| *c == wanted).count();
    let ascii = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == ':');
    if !ascii || word.parse::<IpAddr>().is_ok() {
        return None;
    }
    match (count('.'), count(':')) {
        (2.., 0) if word.starts_with(|c: char| c.is_ascii_digit()) => ipv4(word),
        (_, 2..) if is_mac_like(word) => mac(word),
        (_, colons @ 2..) if expected || colons > 2 || word.contains("::") => ipv6(word),
        _ => None,
    }
}

/// Letters that are typed for digits.
fn unlike(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            'l' | 'I' | 'i' => '1',
            'O' | 'o' => '0',
            other => other,
        })
        .collect()
}

fn ipv4(word: &str) -> Option<String> {
    let parts: Vec<&str> = word.split('.').collect();
    let odd: Vec<&&str> = parts.iter().filter(|part| part.chars().any(|c| !c.is_ascii_digit())).collect();
    let why = if let Some(first) = odd.first() {
        if parts.len() != 4 || odd.len() > 1 || first.len() > 3 {
            return None; // it may be a name
        }
        let meant = unlike(word);
        let hint = if meant.parse::<Ipv4Addr>().is_ok() {
            format!("; did you mean {meant}?")
        } else {
            String::new()
        };
        format!("'{first}' is not a number{hint}")
    } else if parts.iter().any(|part| part.is_empty()) {
        if !(4..=5).contains(&parts.len()) || word.ends_with('.') {
            return None; // it may be a range, or the end of a sentence
        }
        "a number is missing between two dots".to_string()
    } else if parts.len() > 4 {
        format!("it has {} numbers instead of 4", parts.len())
    } else if let Some(large) = parts.iter().find(|part| part.parse::<u8>().is_err()) {
        format!("{large} is more than 255")
    } else {
        return None; // a beginning of an address is a net to libpcap
    };
    Some(format!("'{word}' is not an IPv4 address: {why}"))
}

/// Bytes with one or two digits and single colons between them, as many as an Ethernet address may have been
/// meant to have.
fn is_mac_like(word: &str) -> bool {
    let groups: Vec<&str> = word.split(':').collect();
    (4..=7).contains(&groups.len()) && groups.iter().all(|group| group.len() == 2)
}

fn mac(word: &str) -> Option<String> {
    let groups: Vec<&str> = word.split(':').collect();
    let is_hex = |group: &&&str| group.chars().all(|c| c.is_ascii_hexdigit());
    let why = match groups.iter().find(|group| !is_hex(group)) {
        Some(odd) => format!("'{odd}' is not a hexadecimal number"),
        None if groups.len() == 6 => return None,
        None => format!("it has {} bytes instead of 6", groups.len()),
    };
    Some(format!("'{word}' is not an Ethernet address: {why}"))
}

fn ipv6(word: &str) -> Option<String> {
    let groups: Vec<&str> = word.split(':').filter(|group| !group.is_empty()).collect();
    let odd = word.chars().find(|c| !c.is_ascii_hexdigit() && *c != ':' && *c != '.');
    let why = if word.contains(":::") {
        let meant = word.replace(":::", "::");
        let hint = if meant.parse::<Ipv6Addr>().is_ok() {
            format!("; did you mean {meant}?")
        } else {
            String::new()
        };
        format!("it contains ':::'{hint}")
    } else if let Some(odd) = odd {
        format!("'{odd}' is not a hexadecimal digit")
    } else if word.matches("::").count() > 1 {
        "it contains '::' twice".to_string()
    } else if let Some(long) = groups.iter().find(|group| group.len() > 4 && !group.contains('.')) {
        format!("'{long}' has more than 4 digits")
    } else if groups.len() > 8 || (!word.contains("::") && groups.len() < 8 && !word.contains('.')) {
        format!("it has {} groups instead of 8", groups.len())
    } else {
        return None;
    };
    Some(format!("'{word}' is not an IPv6 address: {why}"))
}

/// The network of so many bits that an address lies in, without the bits of the host.
pub(super) fn network(address: &str, bits: &str) -> Option<String> {
    let bits: u32 = bits.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(address) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Some(Ipv4Addr::from(u32::from(address) & mask).to_string())
        }
        IpAddr::V6(address) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Some(Ipv6Addr::from(u128::from(address) & mask).to_string())
        }
        _ => None,
    }
}
