//! Screening says no to most of what doesn't match, and says in words what it tests.

use scope_packet::{KeyEntry, LinkType};

use super::packets::any_packet;
use super::sound::{Tally, hold};
use super::{entry, screen_that_is_found};
use crate::screen::{CLAUSES_MAX, Screen};
use crate::specimens::Random;
use crate::{Filter, VlanRule};

fn screen(text: &str, rule: VlanRule, link: LinkType) -> Screen {
    screen_that_is_found(
        &Filter::compile(text, rule, &[link]).unwrap_or_else(|error| panic!("{error}")),
        link,
    )
}

#[test]
fn plain_filters_screen_out_nearly_all_that_does_not_match() {
    let check = |text: &str, rule: VlanRule, percent: u64| {
        let mut random = Random::new(41);
        for link in
            [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL, LinkType::LINUX_SLL2, LinkType::PPP]
        {
            let Ok(filter) = Filter::compile(text, rule, &[link]) else { continue };
            let packets: Vec<_> = (0..4000).map(|_| any_packet(&mut random, link)).collect();
            let mut tally = Tally::default();
            hold(&filter, link, &packets, &mut tally);
            let message = format!("{text} on {}: {tally:?}", link.name());
            println!("{message}");
            assert!(
                tally.could_be > 100 && tally.screened_out * 100 >= tally.could_be * percent,
                "{message}"
            );
        }
    };
    let rule = VlanRule::Transparent;
    check("host 10.0.0.1", rule, 99);
    check("not host 10.0.0.1", rule, 95);
    check("host 10.0.0.1 and host 10.0.0.2", rule, 99);
    check("src 10.0.0.1 or dst 10.0.0.2", rule, 99);
    check("host fe80::1", rule, 99);
    check("net 10.0.0.0/8", rule, 99);
    check("dst net 192.168.1.0/24 and tcp", rule, 99);
    check("port 53", rule, 99);
    check("tcp port 80", rule, 99);
    check("portrange 50-500", rule, 99);
    check("not port 53", rule, 99);
    check("not tcp and not udp", rule, 99);
    check("udp and port 53 or 443", rule, 99);
    check("icmp or icmp6", rule, 99);
    check("ip6", rule, 99);
    check("not ip6", rule, 99);
    // ARP and RARP are one kind in the entry.
    check("not ip6 and not arp", rule, 60);
    check("tcp[tcpflags] & tcp-rst != 0", rule, 70);
    check(
        "(src 10.0.0.1 and dst 10.0.0.2 and tcp src port 80) or (src 10.0.0.2 and dst 10.0.0.1 and tcp dst \
         port 80)",
        rule,
        99,
    );
    check("host 10.0.0.1", VlanRule::Exact, 99);
    check("port 53 and not vlan", rule, 99);
    // The entry says that there are tags, not how many.
    check("vlan and udp", rule, 90);
}

#[test]
fn sixteen_patterns_say_of_plain_filters_all_that_the_screen_says() {
    let mut random = Random::new(42);
    let packets: Vec<_> = (0..3000).map(|_| any_packet(&mut random, LinkType::ETHERNET)).collect();
    for text in [
        "host 10.0.0.1",
        "port 53",
        "net 10.0.0.0/8 and udp",
        "src host fe80::1",
        "not ip6",
        "tcp port 80 and host 10.0.0.1",
    ] {
        let screen = screen(text, VlanRule::Transparent, LinkType::ETHERNET);
        let patterns = screen.patterns(16);
        for entry in
            packets.iter().map(|data| entry(LinkType::ETHERNET, data)).filter(|entry| !entry.partial())
        {
            let by_patterns = patterns.iter().any(|pattern| pattern.matches(&entry));
            assert_eq!(by_patterns, screen.may_match(&entry), "{text}: {entry:?}\n{screen}\n{patterns:x?}");
        }
    }
}

const TAIL: &str =
    "not wholly described by its entry (tunnels, IPv6 extension headers, truncated or odd headers)";

#[test]
fn the_condition_is_told_in_words() {
    let check = |text: &str, rule: VlanRule, expected: &[&str]| {
        let message = screen(text, rule, LinkType::ETHERNET).to_string();
        let expected = expected.iter().copied().chain([TAIL]).collect::<Vec<_>>().join("\n");
        assert_eq!(message, expected, "{text}\n{message}");
    };
    let through = VlanRule::Transparent;
    check(
        "host 10.0.0.1",
        through,
        &["ip or arp or rarp, source 10.0.0.1", "ip or arp or rarp, destination 10.0.0.1"],
    );
    check("udp", through, &["ip or ip6, protocol udp"]);
    check("src fe80::1", through, &["ip6, source folded to 254.128.0.1"]);
    check("udp", VlanRule::Exact, &["ip or ip6, no VLAN tag, protocol udp"]);
}

#[test]
fn long_lists_of_ports_and_flows_keep_their_screen() {
    let check = |text: String, lines: usize| {
        let screen = screen(&text, VlanRule::Exact, LinkType::ETHERNET);
        println!("{screen}");
        assert!(text.len() > 2048, "libpcap's optimiser would have made it short");
        assert_eq!(screen.to_string().lines().count(), lines, "{screen}");
        let unrelated =
            KeyEntry { source_port: 7, destination_port: 9, word: 6 | 1 << 8, ..KeyEntry::default() };
        assert!(!screen.may_match(&unrelated), "{screen}");
    };
    let listed = |one: &dyn Fn(u32) -> String| (0..160).map(one).collect::<Vec<_>>().join(" or ");
    check(listed(&|n| format!("port {}", 10_001 + 40 * n)), 3);
    check(listed(&|n| format!("udp dst port {}", 10_001 + 40 * n)), 2);
    check(listed(&|n| format!("host fd00::{n:x}:1")), 3);
    // More clauses than the bound: some become one that matches more.
    check(
        listed(&|n| format!("(src 10.0.{n}.1 and dst 10.1.{n}.1 and tcp src port {})", 1000 + n)),
        CLAUSES_MAX + 1,
    );
}

#[test]
fn a_filter_of_six_hundred_hosts_is_screened_by_two_sets() {
    let hosts: Vec<_> = (0..600u32).map(|n| format!("host 10.{}.{}.1", n / 256, n % 256)).collect();
    let filter = Filter::compile(&hosts.join(" or "), VlanRule::Transparent, &[]).unwrap();
    let screen = screen_that_is_found(&filter, LinkType::ETHERNET);
    println!("{screen}");
    assert_eq!(screen.to_string().lines().count(), 3, "{screen}");
}
