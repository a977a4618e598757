//! Filters against `tcpdump -r FILE -w - EXPR` on generated captures.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use scope_packet::{Headers, LinkType};

use crate::specimens::{Random, damaged_packet, filter, packet};
use crate::{Filter, VlanRule};

const PACKETS: u32 = 300;

/// A pcap file whose packets carry their index as time.
fn capture(link: LinkType, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4u32.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
    file.extend(u32::from(link.0).to_le_bytes());
    for (index, data) in packets.iter().enumerate() {
        for word in [index as u32, 0, data.len() as u32, data.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(data);
    }
    file
}

/// The indices of the packets that tcpdump selects; `None` where it refuses the filter.
fn tcpdump(file: &std::path::Path, text: &str) -> Option<BTreeSet<u32>> {
    let input = std::fs::File::open(file).unwrap();
    let output = Command::new("tcpdump")
        .args(["-n", "-r", "-", "-w", "-", text])
        .stdin(input)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    if !output.status.success() {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes(output.stdout[at..at + 4].try_into().unwrap());
    let (mut selected, mut at) = (BTreeSet::new(), 24);
    while at < output.stdout.len() {
        selected.insert(word(at));
        at += 16 + word(at + 8) as usize;
    }
    Some(selected)
}

fn ours(filter: &Filter, link: LinkType, packets: &[Vec<u8>]) -> BTreeSet<u32> {
    let predicate = filter.for_link(link);
    let matches = |data: &[u8]| predicate.matches(&Headers::parse(link, data), data, data.len() as u32);
    (0..).zip(packets).filter(|(_, data)| matches(data)).map(|(index, _)| index).collect()
}

/// tcpdump's answer under the VLAN rule: each packet gets the filter for its number of tags.
fn transparent(file: &std::path::Path, link: LinkType, text: &str, packets: &[Vec<u8>]) -> BTreeSet<u32> {
    let by_tags = [0, 1, 2].map(|tags| match tags {
        0 => tcpdump(file, text).unwrap_or_default(),
        _ => tcpdump(file, &format!("{}({text})", "vlan and ".repeat(tags))).unwrap_or_default(),
    });
    let tags = |data: &[u8]| (Headers::parse(link, data).vlan_tags() as usize).min(2);
    (0..)
        .zip(packets)
        .filter(|(index, data)| by_tags[tags(data)].contains(index))
        .map(|(index, _)| index)
        .collect()
}

#[test]
fn filters_select_what_tcpdump_selects() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        eprintln!("skipped: tcpdump is missing");
        return;
    }
    let mut random = Random::new(11);
    let links = [
        LinkType::ETHERNET,
        LinkType::RAW,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::LOOP,
        LinkType::PPP,
        LinkType::IPV6,
    ];
    for link in links {
        let make =
            |_| if random.one_in(3) { damaged_packet(&mut random, link) } else { packet(&mut random, link) };
        let packets: Vec<_> = (0..PACKETS).map(make).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&capture(link, &packets)).unwrap();
        for _ in 0..if link == LinkType::ETHERNET { 120 } else { 40 } {
            let text = filter(&mut random, 2);
            let expected = tcpdump(file.path(), &text);
            let exact = Filter::compile(&text, VlanRule::Exact, &[link]);
            assert_eq!(exact.is_ok(), expected.is_some(), "{text} on {}: {exact:?}", link.name());
            let (Ok(exact), Some(expected)) = (exact, expected) else { continue };
            assert_eq!(ours(&exact, link, &packets), expected, "{text} on {}", link.name());
            if link == LinkType::ETHERNET && !text.contains("vlan") {
                let looking_through = Filter::compile(&text, VlanRule::Transparent, &[link]).unwrap();
                assert_eq!(
                    ours(&looking_through, link, &packets),
                    transparent(file.path(), link, &text, &packets),
                    "{text}"
                );
            }
        }
    }
}
