//! Screening on the capture files of the folder that CAPTURES names, with filters made of their own packets.

use std::path::PathBuf;

use scope_packet::{Headers, LinkType};
use scope_testkit::oracle;

use super::sound::{Tally, hold};
use crate::specimens::{Random, filter};
use crate::{Filter, Template, VlanRule};

/// Packets of one file that are looked at.
const PACKETS_MAX: usize = 300;
/// Filters for each link type of a file.
const FILTERS: usize = 24;

const TEMPLATES: [&str; 9] = [
    "host $srcIP",
    "src host $srcIP and not port $dstPort",
    "net $srcIP/32 or arp",
    "not host $dstIP",
    "port $srcPort or port $dstPort",
    "$flow",
    "vlan $vlan or port $srcPort",
    "ip proto $proto or ip6 proto $proto",
    "(host $srcIP or host $dstIP) and not $flow",
];

/// A filter made from one of the packets, or of the grammar.
fn a_filter(random: &mut Random, link: LinkType, packets: &[Vec<u8>]) -> Option<Filter> {
    let rule = if random.one_in(3) { VlanRule::Exact } else { VlanRule::Transparent };
    if random.one_in(3) {
        return Filter::compile(&filter(random, 2), rule, &[link]).ok();
    }
    let data = &packets[random.below(packets.len() as u64) as usize];
    let template = Template::parse(random.pick(&TEMPLATES)).unwrap();
    template.fill_filter(&Headers::parse(link, data), link, data, rule).ok()
}

#[test]
fn screening_never_loses_a_packet_of_recorded_captures() {
    let Some(folder) = std::env::var_os("CAPTURES") else {
        println!("skipped: CAPTURES names no folder");
        return;
    };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut random, mut tally, mut read) = (Random::new(51), Tally::default(), 0);
    for file in files {
        // Damaged files are the sources' business.
        let Ok(file) = oracle::read(&file) else { continue };
        read += 1;
        let capture = file.capture;
        let mut links: Vec<u16> = capture.interfaces.iter().map(|interface| interface.link_type).collect();
        links.dedup();
        for link in links {
            let of_link = |record: &&scope_testkit::traffic::Record| {
                capture.interfaces[record.interface].link_type == link
            };
            let packets =
                capture.packets.iter().filter(of_link).take(PACKETS_MAX).map(|record| record.data.clone());
            let packets: Vec<Vec<u8>> = packets.collect();
            for _ in 0..if packets.is_empty() { 0 } else { FILTERS } {
                if let Some(filter) = a_filter(&mut random, LinkType(link).canonical(), &packets) {
                    hold(&filter, LinkType(link).canonical(), &packets, &mut tally);
                }
            }
        }
    }
    println!("{read} files, {tally:?}");
    assert!(read == 0 || tally.pairs > 0);
}
