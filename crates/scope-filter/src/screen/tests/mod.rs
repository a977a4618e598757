//! What screening promises: it never loses a packet, and it is worth something.

mod captures;
mod packets;
mod sound;
mod worth;

use scope_packet::{Headers, KeyEntry, LinkType};

fn entry(link: LinkType, data: &[u8]) -> KeyEntry {
    KeyEntry::new(&Headers::parse(link, data))
}
