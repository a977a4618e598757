//! Templates: names, values, fallbacks, faults, and what filled texts select.

use scope_packet::{Headers, LinkType};

use crate::specimens::{LINKS, Random, damaged_packet, packet, tagged_packet};
use crate::{
    Filter, NoFilter, Template, TemplateError, Unfilled, VlanRule, host_pair_default, host_pair_values,
};

const ETHERNET: LinkType = LinkType::ETHERNET;

fn udp4() -> Vec<u8> {
    let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 0x0a, 0x81, 0, 0x20, 9, 8, 0];
    frame.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x03, 0xe8, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

fn fill(template: &str, data: &[u8]) -> Result<String, String> {
    let headers = Headers::parse(ETHERNET, data);
    Template::parse(template).unwrap().fill(&headers, ETHERNET, data).map_err(|unfilled| unfilled.name.into())
}

#[test]
fn names_are_filled_from_the_packet() {
    let check = |template: &str, expected: &str| {
        assert_eq!(fill(template, &udp4()).as_deref(), Ok(expected), "{template}")
    };
    check("host $srcIP and host $dstIP", "host 10.0.0.1 and host 10.0.0.2");
    check("host $SRCIP and port {dstport} or ${srcPORT}", "host 10.0.0.1 and port 60000 or 1000");
    check("ip proto $proto", "ip proto 17");
    check(
        "ether src $srcMAC and ether dst $dstMAC",
        "ether src 04:04:04:04:04:0a and ether dst 02:02:02:02:02:02",
    );
    check("vlan $vlan", "vlan 9");
    check("tcp", "tcp");
    check("", "");
    check("link host $1f or port $srcPort", "link host $1f or port 1000");
    check(
        "$flow",
        "(host 10.0.0.1 and host 10.0.0.2 and ((udp and ((src host 10.0.0.1 and src port 1000 and dst port 60000) or \
         (src host 10.0.0.2 and src port 60000 and dst port 1000))) or (ip proto 17 and ip[6:2] & 0x1fff != 0)))",
    );
}

#[test]
fn a_missing_field_is_named_or_takes_the_fallback() {
    let lldp = [[2; 12].as_slice(), &[0x88, 0xcc], &[0; 46]].concat();
    let check = |template: &str, expected: Result<&str, &str>| {
        assert_eq!(fill(template, &lldp), expected.map(String::from).map_err(String::from), "{template}");
    };
    for name in ["$srcIP", "$dstIP", "$srcPort", "$dstPort", "$proto", "$vlan", "$flow"] {
        check(&format!("x {name}"), Err(name));
    }
    check("ether host {SRCMAC}", Ok("ether host 02:02:02:02:02:02"));
    check("host $srcIP ?: ether proto 0x88cc", Ok("ether proto 0x88cc"));
    check("host $srcIP ?:", Ok(""));
    let headers = Headers::parse(ETHERNET, &lldp);
    assert_eq!(
        Template::parse("$srcIP").unwrap().values(&headers, ETHERNET, &lldp).unwrap_err().name,
        "$srcIP"
    );
    let fallback = Template::parse("$srcIP ?: arp").unwrap();
    assert!(fallback.values(&headers, ETHERNET, &lldp).is_ok());
    assert_eq!(host_pair_default(&headers, ETHERNET, &lldp), "");
}

#[test]
fn unknown_names_are_refused_with_place_and_nearest_name() {
    let check = |text: &str, place: usize, like: &str| match Template::parse(text) {
        Err(TemplateError::UnknownName { at, nearest, .. }) => {
            assert_eq!((at, nearest.as_deref().unwrap_or("")), (place, like), "{text}")
        }
        found => panic!("{text}: {found:?}"),
    };
    check("host $scrIP", 5, "$srcIP");
    check("host $srcIP and port {destPort}", 21, "$dstPort");
    check("$flows", 0, "$flow");
    check("$srcIPand", 0, "$srcIP");
    check("host $x", 5, "");
    check("$bogus", 0, "");
    for (text, place) in [("host $ and", 5), ("host {srcIP", 5), ("tcp }", 4), ("host {}", 5)] {
        assert!(
            matches!(Template::parse(text), Err(TemplateError::NoName { at, .. }) if at == place),
            "{text}"
        );
    }
    assert!(matches!(
        Template::parse("tcp ?: host $srcIP"),
        Err(TemplateError::NameInFallback { at: 12, .. })
    ));
    assert!(matches!(Template::parse(&"$vlan ".repeat(300)), Err(TemplateError::TooManyNames { .. })));
}

#[test]
fn faults_of_a_template_are_found_before_it_is_needed_and_placed_in_its_own_text() {
    let check = |text: &str, at: Option<usize>| {
        let error = Template::parse(text).unwrap().check(VlanRule::Transparent, &[ETHERNET]).unwrap_err();
        assert_eq!(error.at(), at, "{text}: {error}");
        assert!(error.to_string().contains(text) || at.is_none(), "{error}");
    };
    check("host $srcIP an port $srcPort", Some(12));
    check("host $srcIP and port $srcPort and foo", Some(34));
    check("host {srcIP} and", Some(16));
    check("port $srcIP", Some(5));
    check("net $srcIP/24", Some(11));
    check("tcp prot 80", Some(4));
    check("host $srcIP ?: prot", Some(15));
    check("host example.org and port $srcPort", Some(5));
    for text in [
        "host $srcIP",
        "ip host $srcIP",
        "ip6 host $srcIP",
        "src host $srcIP and src host $dstIP",
        "$flow",
        "not $flow",
        "vlan $vlan",
        "ether host $srcMAC",
        "ip proto $proto or ip6 proto $proto",
        "portrange $srcPort-$dstPort",
        "",
        "host $srcIP ?: arp",
    ] {
        let found = Template::parse(text).unwrap().check(VlanRule::Transparent, &[ETHERNET]);
        assert!(found.is_ok(), "{text}: {found:?}");
    }
}

fn selects(text: &str, link: LinkType, data: &[u8]) -> bool {
    let headers = Headers::parse(link, data);
    let filter =
        Filter::compile_filled(text, VlanRule::Transparent, link).unwrap_or_else(|error| panic!("{error}"));
    filter.for_link(link).matches(&headers, data, data.len() as u32)
}

#[test]
fn what_a_packet_fills_compiles_and_selects_the_packet() {
    let mut random = Random::new(21);
    let mut filled = 0;
    for _ in 0..3000 {
        let link = random.pick(&LINKS);
        let tags = random.below(3) as usize;
        let data = if random.one_in(4) {
            damaged_packet(&mut random, link)
        } else {
            tagged_packet(&mut random, link, tags)
        };
        let headers = Headers::parse(link, &data);
        for template in [
            "host $srcIP and host $dstIP",
            "$flow",
            "host $dstIP and port $srcPort",
            "src host $srcIP ?: arp",
        ] {
            let Ok(text) = Template::parse(template).unwrap().fill(&headers, link, &data) else { continue };
            if let Err(error) = Filter::compile_filled(&text, VlanRule::Transparent, link) {
                assert!(text == "arp", "{error}");
                continue;
            }
            filled += 1;
            // Damaged headers and extension headers hide ports and addresses from libpcap that the parse
            // sees.
            if !headers.partial() && template != "src host $srcIP ?: arp" {
                assert!(selects(&text, link, &data), "{text} on {} {data:02x?}", link.name());
            }
        }
        if headers.addresses() && !headers.partial() {
            assert!(selects(&host_pair_default(&headers, link, &data), link, &data));
        }
    }
    assert!(filled > 3000, "{filled}");
}

/// The flow as the parse sees it, without direction.
fn flow_of(headers: &Headers, data: &[u8]) -> Option<impl PartialEq + std::fmt::Debug> {
    let (source, destination) = headers.address_bytes(data)?;
    let (from, to) = headers.ports()?;
    let (a, b) = ((source.to_vec(), from), (destination.to_vec(), to));
    Some((headers.protocol(), a.clone().min(b.clone()), a.max(b)))
}

#[test]
fn flow_takes_exactly_the_packets_of_its_flow() {
    let mut random = Random::new(22);
    let packets: Vec<_> = (0..400).map(|_| packet(&mut random, ETHERNET)).collect();
    let template = Template::parse("$flow").unwrap();
    let whole = |headers: &Headers| headers.ports().is_some() && !headers.partial();
    let (mut hits, mut taken) = (0, 0);
    for hit in packets.iter().take(120) {
        let headers = Headers::parse(ETHERNET, hit);
        if !whole(&headers) {
            continue;
        }
        hits += 1;
        let text = template.fill(&headers, ETHERNET, hit).unwrap();
        let predicate =
            Filter::compile_filled(&text, VlanRule::Transparent, ETHERNET).unwrap().for_link(ETHERNET);
        for data in &packets {
            let other = Headers::parse(ETHERNET, data);
            let same = whole(&other) && flow_of(&headers, hit) == flow_of(&other, data);
            // With extension headers or more than two tags the parse sees farther than libpcap. Which flow a
            // later fragment is of, only its first one shows.
            if !(other.partial() || other.fragment() && other.ports().is_none()) {
                assert_eq!(predicate.matches(&other, data, data.len() as u32), same, "{text} on {data:02x?}");
            }
            taken += u32::from(same);
        }
    }
    assert!(hits > 30 && taken > hits, "{hits} {taken}");
}

#[test]
fn values_that_make_no_filter_take_the_fallback_or_leave_it_unfilled() {
    let mut random = Random::new(23);
    let data = loop {
        let data = tagged_packet(&mut random, ETHERNET, 0);
        if data[12..14] == [0x86, 0xdd] {
            break data;
        }
    };
    let headers = Headers::parse(ETHERNET, &data);
    let filter = |text: &str| {
        Template::parse(text).unwrap().fill_filter(&headers, ETHERNET, &data, VlanRule::Transparent)
    };
    assert_eq!(filter("ip host $srcIP").unwrap_err(), NoFilter::Unfilled(Unfilled { name: "$srcIP" }));
    assert_eq!(filter("ip host $srcIP ?: ip6").unwrap().text(), "ip6");
    assert!(filter("host $srcIP").unwrap().compiles_for(ETHERNET));
}

#[test]
fn contradictory_values_select_nothing_instead_of_failing() {
    let data = udp4();
    let headers = Headers::parse(ETHERNET, &data);
    let template = Template::parse("src host $srcIP and src host $dstIP").unwrap();
    let filter = template.fill_filter(&headers, ETHERNET, &data, VlanRule::Transparent).unwrap();
    assert!(!filter.for_link(ETHERNET).matches(&headers, &data, data.len() as u32));
}

/// The same packet on its way back: addresses and ports exchanged.
fn turned(data: &[u8]) -> Vec<u8> {
    let (headers, mut back) = (Headers::parse(ETHERNET, data), data.to_vec());
    let at = headers.network_offset() as usize;
    let (from, len) = if data[at] >> 4 == 4 { (at + 12, 4) } else { (at + 8, 16) };
    back[from..from + 2 * len].rotate_left(len);
    if headers.ports().is_some() {
        let ports_at = at + if data[at] >> 4 == 4 { (data[at] & 15) as usize * 4 } else { 40 };
        back[ports_at..ports_at + 4].rotate_left(2);
    }
    back
}

#[test]
fn both_directions_fill_a_flow_and_the_default_with_one_text_and_equal_values_are_equal_texts() {
    let mut random = Random::new(24);
    let templates = [
        "$flow",
        "host $srcIP and port $dstPort",
        "ether host $srcMAC",
        "vlan $vlan",
        "ip proto $proto",
        "$flow ?: arp",
    ];
    let templates: Vec<Template> = templates.iter().map(|text| Template::parse(text).unwrap()).collect();
    let (mut seen, mut both) = (std::collections::HashMap::new(), 0);
    for _ in 0..3000 {
        let data = tagged_packet(&mut random, ETHERNET, 0);
        let headers = Headers::parse(ETHERNET, &data);
        for (at, template) in templates.iter().enumerate() {
            let filled = template.fill(&headers, ETHERNET, &data);
            let values = template.values(&headers, ETHERNET, &data);
            assert_eq!(filled.is_ok(), values.is_ok(), "{}", template.text());
            if let (Ok(text), Ok(values)) = (filled, values) {
                assert_eq!(seen.entry((at, values)).or_insert(text.clone()), &text, "{}", template.text());
            }
        }
        let whole = headers.ports().is_some() && !headers.partial();
        if whole {
            let back = turned(&data);
            let other = Headers::parse(ETHERNET, &back);
            let flow = |headers, data| {
                (templates[0].fill(headers, ETHERNET, data), templates[0].values(headers, ETHERNET, data))
            };
            assert_eq!(flow(&headers, &data), flow(&other, &back));
            let pair = |headers, data: &[u8]| {
                (host_pair_default(headers, ETHERNET, data), host_pair_values(headers, ETHERNET, data))
            };
            assert_eq!(pair(&headers, &data), pair(&other, &back));
            both += 1;
        }
    }
    let texts: std::collections::HashSet<_> = seen.iter().map(|((at, _), text)| (at, text)).collect();
    assert_eq!(texts.len(), seen.len(), "different values are different texts");
    assert!(both > 500 && seen.len() > 100, "{both} {}", seen.len());
}

#[test]
fn a_host_that_talks_to_itself_has_a_flow_and_a_default_of_its_own() {
    let mut frame = udp4();
    frame[34..38].copy_from_slice(&[10, 0, 0, 1]);
    let mut other = udp4();
    other[37] = 9;
    for text in [
        fill("$flow", &frame).unwrap(),
        host_pair_default(&Headers::parse(ETHERNET, &frame), ETHERNET, &frame),
    ] {
        assert!(selects(&text, ETHERNET, &frame), "{text}");
        assert!(!selects(&text, ETHERNET, &other), "{text}");
    }
}

/// IPv6 from 2001:db8::1 to ::2 on Ethernet, with an extension header in front of UDP or none.
fn udp6(extension: Option<u8>, ports: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![
        2,
        2,
        2,
        2,
        2,
        2,
        4,
        4,
        4,
        4,
        4,
        4,
        0x86,
        0xdd,
        0x60,
        0,
        0,
        0,
        0,
        12,
        extension.unwrap_or(17),
        64,
    ];
    for host in [1, 2] {
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    if extension.is_some() {
        frame.extend([17, 0, 0, 0, 0, 0, 0, 0]);
    }
    frame.extend(ports);
    frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

#[test]
fn a_flow_keeps_later_fragments_and_what_stands_behind_extension_headers() {
    let whole = udp4();
    let text = fill("$flow", &whole).unwrap();
    let mut fragment = udp4();
    fragment[25] = 9; // of its offset
    assert!(selects(&text, ETHERNET, &whole) && selects(&text, ETHERNET, &fragment), "{text}");
    fragment[27] = 6; // TCP
    assert!(!selects(&text, ETHERNET, &fragment), "{text}");
    let ports = [0, 7, 0, 9];
    let direct = fill("$flow", &udp6(None, ports)).unwrap();
    assert!(direct.len() <= 512, "short enough for libpcap's optimiser");
    for extension in [0, 43, 51, 60, 135, 139, 140, 44] {
        let packet = udp6(Some(extension), ports);
        assert!(selects(&direct, ETHERNET, &packet), "{extension}: {direct}");
        if extension != 51 {
            assert_eq!(fill("$flow", &packet).as_deref(), Ok(&direct[..]), "{extension}: the same flow");
        }
    }
    assert!(!selects(&direct, ETHERNET, &udp6(None, [0, 7, 0, 10])), "{direct}");
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff";
    let mut long = udp6(None, [0xff; 4]);
    long[22..53].fill(0xff);
    assert!(fill("$flow", &long).unwrap().contains(longest) && fill("$flow", &long).unwrap().len() <= 512);
}

#[test]
fn behind_mpls_labels_templates_are_filled_from_the_packet_that_is_carried() {
    let plain = [&udp4()[..12], &udp4()[16..]].concat();
    let labelled = |labels: usize| {
        let mut frame = plain.clone();
        frame[12..14].copy_from_slice(&[0x88, 0x47]);
        let stack = (1..=labels).flat_map(|label| [0, 1, u8::from(label == labels), 64]);
        frame.splice(14..14, stack);
        frame
    };
    for template in ["$flow", "host $srcIP and port $dstPort", "mpls and host $srcIP"] {
        let text = fill(template, &labelled(1)).unwrap();
        assert!(selects(&text, ETHERNET, &labelled(1)), "{text}");
        assert_eq!(selects(&text, ETHERNET, &plain), !template.starts_with("mpls"), "{text}");
    }
    let text = fill("$flow", &labelled(2)).unwrap();
    for labels in 0..=2 {
        let frame = if labels == 0 { plain.clone() } else { labelled(labels) };
        assert!(selects(&text, ETHERNET, &frame), "{labels}: {text}");
    }
    let headers = Headers::parse(ETHERNET, &labelled(2)[..]);
    let pair = host_pair_default(&headers, ETHERNET, &labelled(2));
    assert!(selects(&pair, ETHERNET, &labelled(2)) && selects(&pair, ETHERNET, &plain), "{pair}");
    assert_eq!(fill("host $srcIP", &labelled(4)), Err("$srcIP".into()), "more labels than are looked behind");
    assert_ne!(
        host_pair_values(&headers, ETHERNET, &labelled(2)),
        host_pair_values(&Headers::parse(ETHERNET, &plain), ETHERNET, &plain),
        "other texts"
    );
}
