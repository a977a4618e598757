//! What screening promises: it never loses a packet, and it is worth something.

mod captures;
mod packets;
mod sound;
mod worth;

use std::time::Instant;

use scope_packet::{Headers, KeyEntry, LinkType};

use super::Screen;
use crate::specimens::thread_time;
use crate::{Filter, VlanRule};

fn entry(link: LinkType, data: &[u8]) -> KeyEntry {
    KeyEntry::new(&Headers::parse(link, data))
}

/// The screen of a filter that has one: on a busy machine the time for deriving it may be over too early, so
/// it is tried again.
fn screen_that_is_found(filter: &Filter, link: LinkType) -> Screen {
    let begun = Instant::now();
    loop {
        let screen = filter.screen(link);
        if !screen.is_everything() || begun.elapsed().as_secs() >= 120 {
            return screen;
        }
    }
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
        let before = thread_time();
        filter.screen(LinkType::ETHERNET);
        let took = thread_time() - before; // what others of the machine take doesn't count
        assert!(took < 3 * super::DERIVING_TIME_MAX, "{part}: {took:?}");
    }
}
