//! The VLAN rule: what a filter means on packets with 0 to 3 tags.

use scope_packet::{Headers, LinkType};

use crate::specimens::{Random, filter, tagged_packet};
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
    assert_eq!(
        matches("ether proto 0x800 and ether[12:2] = 0x800", VlanRule::Transparent),
        [yes, no, no, no]
    );
}

/// A cooked capture's packet with so many tags.
fn cooked(link: LinkType, tags: usize) -> Vec<u8> {
    let mut behind = frame(tags)[12..].to_vec();
    let mut ethertype = [behind.remove(0), behind.remove(0)].to_vec();
    let mut head = match link {
        LinkType::LINUX_SLL => vec![0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0],
        _ => vec![0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0],
    };
    if link == LinkType::LINUX_SLL {
        head.append(&mut ethertype);
    } else {
        ethertype.append(&mut head);
        head = ethertype;
    }
    head.append(&mut behind);
    head
}

#[test]
fn cooked_captures_are_looked_through_as_ethernet_is() {
    let (yes, no) = (true, false);
    let long = (0..60).map(|n| format!("host 10.0.1.{n} or ")).collect::<String>() + "host 10.0.0.1";
    for link in [LinkType::LINUX_SLL, LinkType::LINUX_SLL2] {
        let check = |text: &str, rule, expected: [bool; 4]| {
            let filter = Filter::compile(text, rule, &[link]).unwrap();
            for native in [false, true] {
                let predicate = filter.for_link(link);
                if native {
                    predicate.make_native().unwrap();
                }
                let got = [0, 1, 2, 3].map(|tags| {
                    let data = cooked(link, tags);
                    let headers = Headers::parse(link, &data);
                    assert_eq!(headers.vlan_tags() as usize, tags);
                    predicate.matches(&headers, &data, data.len() as u32)
                });
                assert_eq!(got, expected, "{} {text}", link.name());
            }
            let screen = filter.screen(link);
            for (tags, expected) in expected.into_iter().enumerate() {
                let entry = scope_packet::KeyEntry::new(&Headers::parse(link, &cooked(link, tags)));
                assert!(screen.may_match(&entry) || !expected, "{text}");
            }
        };
        let transparent = VlanRule::Transparent;
        check("host 10.0.0.1", transparent, [yes, yes, yes, no]);
        check(&long, transparent, [yes, yes, yes, no]);
        check("not host 10.0.0.1", transparent, [no, no, no, yes]);
        check("udp port 60000 and ip[9] = 17 and udp[0:2] = 1000", transparent, [yes, yes, yes, no]);
        check("udp[4:2] = 13", transparent, [no; 4]);
        check("udp[udp[4:2] - 4:4] = 0x01020304", transparent, [yes, yes, yes, no]);
        check("ip6 or arp", transparent, [no; 4]);
        check("host 10.0.0.1", VlanRule::Exact, [yes, no, no, no]);
        check("not host 10.0.0.1", VlanRule::Exact, [no, yes, yes, yes]);
        // The text means bytes by their number.
        check("host 10.0.0.1 and link[3] != 99", transparent, [yes, no, no, no]);
    }
}

/// The same packet of a cooked capture behind so many tags.
fn behind_tags(link: LinkType, untagged: &[u8], tags: usize) -> Vec<u8> {
    let (type_at, end) = if link == LinkType::LINUX_SLL { (14, 16) } else { (0, 20) };
    let mut bytes = untagged.to_vec();
    for tag in 0..tags {
        let ethertype = [bytes[type_at], bytes[type_at + 1]];
        bytes.splice(end..end, [0x20, 7 + tag as u8, ethertype[0], ethertype[1]]);
        bytes[type_at..type_at + 2].copy_from_slice(&[[0x81, 0], [0x88, 0xa8]][tag % 2]);
    }
    bytes
}

#[test]
fn random_filters_say_of_a_tagged_packet_of_a_cooked_capture_what_they_say_of_it_without_its_tags() {
    let mut random = Random::new(34);
    let mut matched = [0; 2];
    for round in 0..600 {
        let link = [LinkType::LINUX_SLL, LinkType::LINUX_SLL2][round % 2];
        let text = filter(&mut random, 2);
        if ["vlan", "link", "ether", "wlan", "ppp"].iter().any(|word| text.contains(word)) {
            continue;
        }
        let Ok(compiled) = Filter::compile(&text, VlanRule::Transparent, &[link]) else { continue };
        let (predicate, screen) = (compiled.for_link(link), compiled.screen(link));
        for _ in 0..30 {
            let plain = tagged_packet(&mut random, link, 0);
            let says = |data: &[u8]| predicate.matches(&Headers::parse(link, data), data, plain.len() as u32);
            let expected = says(&plain);
            for tags in 1..=2 {
                let data = behind_tags(link, &plain, tags);
                let headers = Headers::parse(link, &data);
                assert_eq!(
                    (headers.vlan_tags() as usize, says(&data)),
                    (tags, expected),
                    "{text}: {data:x?}"
                );
                assert!(
                    !expected || screen.may_match(&scope_packet::KeyEntry::new(&headers)),
                    "{text}: {data:x?}"
                );
            }
            matched[usize::from(expected)] += 1;
        }
    }
    assert!(matched.iter().all(|&packets| packets > 1000), "{matched:?}");
}

#[test]
fn a_link_type_without_vlans_has_the_plain_program_for_all_packets() {
    let data = [&[0xff, 3, 0, 0x21], &frame(0)[14..]].concat();
    let headers = Headers::parse(LinkType::PPP, &data);
    let filter = Filter::compile("host 10.0.0.1", VlanRule::Transparent, &[LinkType::PPP]).unwrap();
    assert_eq!(filter.printed(LinkType::PPP).len(), 1);
    assert!(filter.for_link(LinkType::PPP).matches(&headers, &data, data.len() as u32));
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

#[test]
fn in_cooked_captures_filters_see_the_same_packet_behind_tags() {
    let hosts: Vec<String> = (0..60).map(|host| format!("host 10.0.1.{host}")).collect();
    let long = format!("{} or host 10.0.0.1", hosts.join(" or "));
    assert!(long.len() > 512, "taken in pieces");
    for text in [
        "host 10.0.0.1",
        "not host 10.0.0.1",
        "udp port 60000",
        "ip[9] = 17 and udp[0:2] = 1000",
        "ip6",
        "arp",
        &long,
    ] {
        let ethernet = Filter::compile(text, VlanRule::Transparent, &[LinkType::ETHERNET])
            .unwrap()
            .for_link(LinkType::ETHERNET);
        for (link, tags) in [LinkType::LINUX_SLL, LinkType::LINUX_SLL2]
            .into_iter()
            .flat_map(|link| [0, 1, 2, 3].map(|tags| (link, tags)))
        {
            let filter = Filter::compile(text, VlanRule::Transparent, &[link]).unwrap();
            let (data, plain) = (cooked(link, tags), frame(tags));
            let (headers, of_plain) =
                (Headers::parse(link, &data), Headers::parse(LinkType::ETHERNET, &plain));
            assert_eq!(headers.vlan_tags() as usize, tags);
            let expected = ethernet.matches(&of_plain, &plain, plain.len() as u32);
            let name = link.name();
            assert_eq!(
                filter.for_link(link).matches(&headers, &data, data.len() as u32),
                expected,
                "{text} {name} {tags}"
            );
            let key = scope_packet::KeyEntry::new(&headers);
            assert!(!expected || filter.screen(link).may_match(&key), "screened out: {text} {name} {tags}");
            let exact = Filter::compile(text, VlanRule::Exact, &[link]).unwrap().for_link(link);
            let untagged =
                filter.for_link(link).matches(&Headers::parse(link, &cooked(link, 0)), &cooked(link, 0), 99);
            assert_eq!(
                exact.matches(&Headers::parse(link, &cooked(link, 0)), &cooked(link, 0), 99),
                untagged,
                "{text}"
            );
            filter.make_native().unwrap();
            assert_eq!(
                filter.for_link(link).matches(&headers, &data, data.len() as u32),
                expected,
                "as machine code: {text}"
            );
        }
        let tagged = Filter::compile(text, VlanRule::Transparent, &[LinkType::LINUX_SLL]).unwrap();
        assert!(tagged.in_kernel(LinkType::LINUX_SLL, 96).is_err(), "it sees untagged packets only");
    }
}
