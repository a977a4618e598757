//! The targets, by name: each takes any bytes and panics where something is wrong.

use crate::{capture, text};
use scope_packet::{Headers, KeyEntry, LinkType};
use scope_source::nic::answers;

/// What is done with an input.
pub type Target = fn(&[u8]);

/// All targets; the names are those of the folders of the corpus.
pub const ALL: [(&str, Target); 10] = [
    ("pcap", capture::check),
    ("pcapng", capture::check),
    ("headers", headers),
    ("filter", text::filter),
    ("template", text::template),
    ("toml", text::toml),
    ("doctor_log", text::doctor_log),
    ("dump_mark", text::dump_mark),
    ("ethtool", ethtool),
    ("source_spec", text::source_spec),
];

/// The target of a name.
pub fn of(name: &str) -> Option<Target> {
    ALL.iter().find(|(other, _)| *other == name).map(|(_, target)| *target)
}

/// Two bytes link type, then a packet. What is no partial parse knows all that a filter can see of addresses and ports: more bytes
/// behind the packet change nothing.
fn headers(data: &[u8]) {
    let Some((link, packet)) = data.split_first_chunk() else { return };
    let link = LinkType(u16::from_le_bytes(*link));
    let headers = Headers::parse(link, packet);
    let addresses = headers.address_bytes(packet);
    assert_eq!(addresses.is_some(), headers.addresses());
    let key = KeyEntry::new(&headers);
    assert_eq!(key.partial(), headers.partial());
    if !headers.partial() {
        let longer = [packet, &[0x5a; 64]].concat();
        assert_eq!(Headers::parse(link, &longer), headers, "{link:?}");
    }
}

/// One byte that says how many entries are asked for, then the driver's words.
fn ethtool(data: &[u8]) {
    let Some((&count, data)) = data.split_first() else { return };
    let count = usize::from(count);
    let words: Vec<u32> = data.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
    let driver = answers::driver(data);
    for text in [driver.name, driver.version, driver.firmware, driver.bus] {
        assert!(text.chars().all(|letter| letter.is_ascii_graphic() || letter == ' '));
    }
    let _values = (answers::rings(&words), answers::queues(&words), answers::timestamping(&words));
    for list in 0..32 {
        assert!(answers::entries(&words, list, count).is_none_or(|entries| (1..=count).contains(&entries)));
    }
    if let Ok(names) = answers::names(data, count) {
        assert_eq!(names.len(), count);
        assert!(answers::features(&words, names).len() <= count);
    }
    assert!(answers::counter_values(&words, count).is_ok_and(|values| values.len() == count) || words.len() < 2 + 2 * count || words[1] as usize != count);
}
