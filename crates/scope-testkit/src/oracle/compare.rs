//! Two captures side by side, and shortly what differs.

use crate::traffic::{Capture, DIRECTION_MASK, Record};
use std::collections::HashMap;

/// What has to be the same: time, bytes, original length, interface name, link type, direction. A name is
/// compared only where the expected capture has one.
#[derive(PartialEq, Eq, Hash)]
struct Seen<'a> {
    time_ns: i64,
    data: &'a [u8],
    original_len: u32,
    name: &'a str,
    link_type: u16,
    direction: u32,
}

fn seen<'a>(capture: &'a Capture, packet: &'a Record, names: bool) -> Seen<'a> {
    let interface = &capture.interfaces[packet.interface];
    Seen {
        time_ns: packet.time_ns,
        data: &packet.data,
        original_len: packet.original_len,
        name: if names { &interface.name } else { "" },
        link_type: interface.link_type,
        direction: packet.flags & DIRECTION_MASK,
    }
}

impl Seen<'_> {
    fn show(&self) -> String {
        let head: String = self.data.iter().take(48).map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{} ns, {} of {} bytes, '{}' link type {} direction {}, {head}",
            self.time_ns,
            self.data.len(),
            self.original_len,
            self.name,
            self.link_type,
            self.direction
        )
    }
}

fn all<'a>(capture: &'a Capture, names: bool) -> Vec<Seen<'a>> {
    capture.packets.iter().map(|packet| seen(capture, packet, names)).collect()
}

fn has_names(capture: &Capture) -> bool {
    capture.interfaces.iter().any(|interface| !interface.name.is_empty())
}

/// What differs between two captures, packet by packet and in order; `None` where nothing does.
pub fn difference(expected: &Capture, found: &Capture) -> Option<String> {
    let names = has_names(expected);
    compare(&all(expected, names), &all(found, names))
}

fn compare(expected: &[Seen], found: &[Seen]) -> Option<String> {
    if expected == found {
        return None;
    }
    let mut balance: HashMap<&Seen, i64> = HashMap::new();
    for packet in expected {
        *balance.entry(packet).or_default() += 1;
    }
    for packet in found {
        *balance.entry(packet).or_default() -= 1;
    }
    let missing: i64 = balance.values().filter(|&&n| n > 0).sum();
    let extra: i64 = -balance.values().filter(|&&n| n < 0).sum::<i64>();
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    let show = |packets: &[Seen]| packets.get(at).map_or("nothing more".to_string(), Seen::show);
    Some(format!(
        "{} packets expected, {} found, {missing} missing, {extra} not expected; first at {at}:\n  expected \
         {}\n  found    {}",
        expected.len(),
        found.len(),
        show(expected),
        show(found)
    ))
}

/// Whether `found` is the later part of `expected`: how many packets are missing from its front.
///
/// # Errors
/// What differs where it is not.
pub fn is_later_part(expected: &Capture, found: &Capture) -> Result<usize, String> {
    let names = has_names(expected);
    let (whole, part) = (all(expected, names), all(found, names));
    let missing = whole.len().checked_sub(part.len()).ok_or(format!(
        "{} packets expected at most, {} found",
        whole.len(),
        part.len()
    ))?;
    match compare(&whole[missing..], &part) {
        None => Ok(missing),
        Some(words) => {
            Err(format!("{missing} packets less than the window, but not the first ones: {words}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Conversations;

    #[test]
    fn every_property_counts() {
        let expected = Conversations { packets: 50, snapped: 0, ..Conversations::default() }.capture();
        assert_eq!(difference(&expected, &expected), None);
        let check = |change: fn(&mut Capture)| {
            let mut found = expected.clone();
            change(&mut found);
            assert!(difference(&expected, &found).is_some());
        };
        check(|c| c.packets[3].time_ns += 1);
        check(|c| c.packets[3].data[0] ^= 1);
        check(|c| c.packets[3].original_len += 1);
        check(|c| c.packets[3].flags ^= 1);
        check(|c| c.packets.swap(3, 4));
        check(|c| drop(c.packets.pop()));
        check(|c| c.interfaces[0].name.push('x'));
        check(|c| c.interfaces[0].link_type = 101);
    }

    #[test]
    fn names_don_t_count_where_none_are_known() {
        let found = Conversations { packets: 5, ..Conversations::default() }.capture();
        let mut expected = found.clone();
        expected.interfaces[0].name.clear();
        assert_eq!(difference(&expected, &found), None);
    }

    #[test]
    fn a_later_part_says_how_much_is_missing() {
        let whole = Conversations { packets: 20, ..Conversations::default() }.capture();
        let part = |indices: &[usize]| whole.subset(indices);
        assert_eq!(is_later_part(&whole, &part(&[17, 18, 19])), Ok(17));
        assert_eq!(is_later_part(&whole, &part(&[])), Ok(20));
        assert!(is_later_part(&whole, &part(&[16, 18, 19])).is_err());
        assert!(is_later_part(&whole, &part(&[0, 1])).is_err());
    }
}
