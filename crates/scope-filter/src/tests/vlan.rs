//! The VLAN rule: what a filter means on packets with 0 to 3 tags.

use scope_packet::{Headers, LinkType};

use crate::{Filter, VlanRule};

const HOST: [u8; 4] = [10, 0, 0, 1];

fn frame(tags: usize) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    for tag in 0..tags {
        bytes.extend([0x81, 0, 0, 7 + tag as u8]);
    }
    bytes.extend([8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0]);
    bytes.extend(HOST);
    bytes.extend([10, 0, 0, 2, 0x03, 0xe8, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
    bytes
}

/// Which of the frames with 0, 1, 2 and 3 tags match.
fn matches(text: &str, rule: VlanRule) -> [bool; 4] {
    let predicate = Filter::compile(text, rule, &[]).unwrap().for_link(LinkType::ETHERNET);
    [0, 1, 2, 3].map(|tags| {
        let data = frame(tags);
        predicate.matches(&Headers::parse(LinkType::ETHERNET, &data), &data, data.len() as u32)
    })
}

#[test]
fn tags_are_looked_through_unless_the_filter_says_vlan() {
    let check = |text: &str, transparent, exact| {
        assert_eq!(matches(text, VlanRule::Transparent), transparent, "transparent: {text}");
        assert_eq!(matches(text, VlanRule::Exact), exact, "exact: {text}");
    };
    let (yes, no) = (true, false);
    check("", [yes; 4], [yes; 4]);
    check(" \n", [yes; 4], [yes; 4]);
    check("host 10.0.0.1", [yes, yes, yes, no], [yes, no, no, no]);
    check("not host 10.0.0.1", [no, no, no, yes], [no, yes, yes, yes]);
    check("not host 10.0.0.9", [yes; 4], [yes; 4]);
    check("udp port 60000 or arp", [yes, yes, yes, no], [yes, no, no, no]);
}

#[test]
fn a_filter_that_says_vlan_has_libpcaps_letter() {
    let (yes, no) = (true, false);
    for (text, expected) in [
        ("vlan", [no, yes, yes, yes]),
        ("vlan 7", [no, yes, yes, yes]),
        ("vlan 8", [no; 4]),
        ("vlan 7 and vlan 8", [no, no, yes, yes]),
        ("not vlan", [yes, no, no, no]),
        ("vlan and host 10.0.0.1", [no, yes, no, no]),
        ("host 10.0.0.1 or (vlan and host 10.0.0.1)", [yes, yes, no, no]),
    ] {
        assert_eq!(matches(text, VlanRule::Transparent), expected, "{text}");
        assert_eq!(matches(text, VlanRule::Exact), expected, "{text}");
    }
}

#[test]
fn a_filter_without_alternatives_under_tags_matches_nothing_there() {
    let (yes, no) = (true, false);
    assert_eq!(matches("ether proto 0x800 and ether[12:2] = 0x800", VlanRule::Transparent), [yes, no, no, no]);
}

#[test]
fn a_link_type_without_vlans_has_the_plain_program_for_all_packets() {
    let mut cooked = vec![0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
    cooked.extend(&frame(1)[12..]);
    let headers = Headers::parse(LinkType::LINUX_SLL, &cooked);
    assert_eq!(headers.vlan_tags(), 1);
    let check = |text: &str, expected| {
        let filter = Filter::compile(text, VlanRule::Transparent, &[LinkType::LINUX_SLL]).unwrap();
        assert_eq!(filter.for_link(LinkType::LINUX_SLL).matches(&headers, &cooked, cooked.len() as u32), expected, "{text}");
    };
    check("host 10.0.0.1", false);
    check("not host 10.0.0.1", true);
}

#[test]
fn loopback_packets_of_a_host_with_another_byte_order_are_understood() {
    let filter = Filter::compile("host 10.0.0.1", VlanRule::Transparent, &[LinkType::NULL]).unwrap();
    for family in [[2, 0, 0, 0], [0, 0, 0, 2]] {
        let data = [&family[..], &frame(0)[14..]].concat();
        let headers = Headers::parse(LinkType::NULL, &data);
        assert!(filter.for_link(LinkType::NULL).matches(&headers, &data, data.len() as u32), "{family:?}");
    }
}
