//! What screening promises: it never loses a packet, and it is worth something.

mod captures;
mod packets;
mod sound;
mod worth;

use scope_packet::{Headers, KeyEntry, LinkType};

use crate::{Filter, VlanRule};

fn entry(link: LinkType, data: &[u8]) -> KeyEntry {
    KeyEntry::new(&Headers::parse(link, data))
}

/// 16 KiB of ports once took half a minute: a dump with such a filter lost its window meanwhile.
#[test]
fn a_screen_is_derived_in_bounded_time_or_lets_everything_pass() {
    for part in ["port", "portrange 1-", "src port 9 and dst port"] {
        let list: Vec<String> = (1..2000).map(|n| format!("{part} {}", n * 7).replace("- ", "-")).collect();
        let mut text = list.join(" or ");
        text.truncate(16_000);
        text.truncate(text.rfind(" or ").unwrap());
        let filter = Filter::compile(&text, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
        let begun = std::time::Instant::now();
        filter.screen(LinkType::ETHERNET);
        let took = begun.elapsed();
        assert!(took < 3 * super::DERIVING_TIME_MAX, "{part}: {took:?}");
    }
}
