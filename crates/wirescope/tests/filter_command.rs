//! `wirescope filter`: programs and counts as tcpdump has them, tshark's opinion on plain filters, refusals
//! with their place.

mod run;

use run::{Place, finish, wirescope};
use scope_testkit::oracle::{VlanRule, have, tcpdump_selects};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Precision, RAW, Record, pcap};
use std::fs::File;
use std::process::{Command, Stdio};

fn explained(arguments: &[&str]) -> String {
    let done = finish(wirescope(&[&["filter"], arguments].concat()));
    assert_eq!(done.code(), Some(0), "{arguments:?}: {}", done.stderr);
    done.stdout
}

/// The lines under the first headline that begins with `title`, without their indent.
fn section<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| !line.starts_with(title)).skip(1);
    lines.map_while(|line| line.strip_prefix("  ")).collect()
}

/// How many matched, by the line of all packets.
fn taken(text: &str, title: &str) -> usize {
    let lines = section(text, title);
    let all =
        lines.iter().find(|line| line.starts_with("all: ")).unwrap_or_else(|| panic!("no counts in {text}"));
    let number = all.split(", ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("{all}"))
}

/// Traffic of all kinds on Ethernet, a third of it tagged.
fn traffic(packets: usize) -> Capture {
    Conversations { packets, vlan: 30, oddities: 30, ..Conversations::default() }.capture()
}

#[test]
fn the_program_is_that_of_tcpdump() {
    if !have("tcpdump") {
        return;
    }
    let place = Place::new();
    std::fs::write(place.path("none.pcap"), pcap(&Capture::ethernet("x"), Precision::Micro, false)).unwrap();
    for text in [
        "port 53",
        "host 10.0.0.1 and not tcp",
        "net 10.0.0.0/16 and (icmp or arp)",
        "tcp[tcpflags] & tcp-syn != 0",
    ] {
        let file = File::open(place.path("none.pcap")).unwrap();
        let output = Command::new("tcpdump")
            .args(["-n", "-d", "-r", "-", text])
            .stdin(file)
            .stderr(Stdio::null())
            .output();
        let expected = String::from_utf8(output.unwrap().stdout).unwrap();
        let mut expected: Vec<&str> = expected.lines().collect();
        let said = explained(&[text]);
        let found = section(&said, "Program for packets without VLAN tags (ETHERNET)");
        // tcpdump returns the file's snap length, which is the length of packets that an accepting program
        // asks for.
        let accepting = |line: &&str| line.contains("ret      #") && !line.ends_with("#0");
        expected.retain(|line| !accepting(line));
        let (found, accepts): (Vec<&str>, Vec<&str>) = found.into_iter().partition(|line| !accepting(line));
        assert_eq!(found, expected, "{text}");
        assert_eq!(accepts.len(), 1, "{text}");
    }
}

#[test]
fn a_file_s_counts_are_those_of_tcpdump_under_both_vlan_rules() {
    let place = Place::new();
    let (capture, file) = (traffic(1500), place.path("in.pcapng").display().to_string());
    place.source(&capture);
    for text in [
        "host 10.0.0.1",
        "not port 53",
        "udp or arp",
        "vlan 2",
        "ip6 and tcp",
        "ip[6:2] & 0x3fff != 0",
        "port 80 or 443",
    ] {
        for (word, rule) in [("transparent", VlanRule::Transparent), ("exact", VlanRule::Exact)] {
            let said = explained(&["-r", &file, "--vlan", word, text]);
            let expected = tcpdump_selects(&capture, text, rule).unwrap().len();
            assert_eq!(taken(&said, "Packets of"), expected, "{text}, {word}\n{said}");
            assert!(expected > 0, "{text}, {word}: a test that says nothing");
            assert!(section(&said, "Packets of")[0].starts_with("all: 1,500 packets, "), "{said}");
            assert!(!section(&said, "Time per packet").is_empty(), "{said}");
        }
    }
}

#[test]
fn tshark_s_display_filters_take_as_many_packets_where_they_mean_the_same() {
    if !have("tshark") {
        return;
    }
    let place = Place::new();
    let plain = Conversations {
        packets: 1200,
        vlan: 30,
        oddities: 0,
        snapped: 0,
        seed: 7,
        ..Conversations::default()
    };
    let (capture, file) = (plain.capture(), place.path("in.pcapng").display().to_string());
    place.source(&capture);
    for (text, display) in [
        ("host 10.0.0.1", "ip.addr == 10.0.0.1"),
        ("src fd00::2", "ipv6.src == fd00::2"),
        ("dst net 10.0.0.0/30", "ip.dst == 10.0.0.0/30"),
        ("port 53", "tcp.port == 53 or udp.port == 53"),
        ("tcp dst port 443", "tcp.dstport == 443"),
        ("not host 10.0.0.2", "!(ip.addr == 10.0.0.2)"),
        ("portrange 50-100 and ip6", "ipv6 and (tcp.port in {50..100} or udp.port in {50..100})"),
    ] {
        let mut command = Command::new("tshark");
        command
            .args(["-n", "-r", &file, "-Y", display, "-T", "fields", "-e", "frame.number"])
            .stderr(Stdio::null());
        let output = command.output().unwrap();
        let expected = String::from_utf8_lossy(&output.stdout).lines().count();
        assert_eq!(
            taken(&explained(&["-r", &file, text]), "Packets of"),
            expected,
            "{text} is not {display}"
        );
        assert!(expected > 0 && expected < 1200, "{text}: a test that says nothing");
    }
}

#[test]
fn what_is_told_is_meaning_program_screen_and_time() {
    let said = explained(&["host", "10.0.0.1", "or", "udp", "and", "port", "53"]);
    assert!(said.starts_with("Filter: host 10.0.0.1 or udp and port 53\n"), "{said}");
    let meaning = section(&said, "Meaning").join("\n");
    assert!(
        meaning.contains("(host 10.0.0.1 or udp) and port 53") && meaning.contains("'transparent'"),
        "{said}"
    );
    for tags in ["without VLAN tags", "with one VLAN tag", "with two VLAN tags"] {
        assert!(section(&said, &format!("Program for packets {tags}")).len() > 10, "{said}");
    }
    let screen = section(&said, "Screening").join("\n");
    assert!(screen.contains("source port 53") && screen.contains("destination port 53"), "{said}");
    let time = section(&said, "Time per packet");
    assert!(time.len() == 2 && time.iter().all(|line| line.ends_with(" ns")), "{said}");
    assert!(time[0].starts_with("interpreter ") && time[1].starts_with("native "), "{said}");

    let exact = explained(&["--vlan", "exact", "vlan 7 and udp"]);
    assert!(section(&exact, "Program for all packets (ETHERNET)").len() > 5, "{exact}");
    assert!(section(&exact, "Screening").join("\n").contains("VLAN tag"), "{exact}");
    let raw = explained(&["--link-type", "raw", "ip protochain 6"]);
    assert!(section(&raw, "Screening (RAW)").join(" ").contains("every packet"), "{raw}");
    assert!(explained(&[""]).contains("matches every packet"));
}

#[test]
fn a_file_of_several_link_types_is_told_by_link_type() {
    let place = Place::new();
    let interfaces = vec![Interface::new("left", ETHERNET), Interface::new("tun", RAW)];
    let capture = Conversations { packets: 600, interfaces, ..Conversations::default() }.capture();
    place.source(&capture);
    let said =
        explained(&["-r", &place.path("in.pcapng").display().to_string(), "ether host 1:2:3:4:5:6 or udp"]);
    assert!(said.contains("Link type RAW\n  this link type lacks what the filter needs"), "{said}");
    let udp = explained(&["-r", &place.path("in.pcapng").display().to_string(), "udp"]);
    let counted =
        |name: &str| taken(&udp, &format!("Packets of {} ({name})", place.path("in.pcapng").display()));
    let expected = tcpdump_selects(&capture, "udp", VlanRule::Transparent).unwrap().len();
    assert_eq!(counted("ETHERNET") + counted("RAW"), expected, "{udp}");
    assert!(counted("RAW") > 0);
}

#[test]
fn what_can_t_be_explained_is_refused_with_its_place() {
    let place = Place::new();
    std::fs::write(place.path("text"), "this is no capture at all, it only lies there").unwrap();
    let check = |arguments: &[&str], words: &[&str]| {
        let done = finish(wirescope(&[&["filter"], arguments].concat()));
        assert_eq!((done.code(), done.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", done.stderr);
        for word in words {
            assert!(done.stderr.contains(word), "{arguments:?}: no '{word}' in {}", done.stderr);
        }
    };
    check(&["udp prot 5"], &["at byte 4", "\n  udp prot 5\n      ^\n"]);
    check(&["host example.org and udp"], &["byte 5", "names are not resolved"]);
    check(&["host $srcIP"], &["template"]);
    check(&["--link-type", "RAW", "ether host 1:2:3:4:5:6"], &["RAW"]);
    check(&["--link-type", "nosuch", "udp prot 5"], &["'nosuch'", "ETHERNET", "byte 4"]);
    check(&["--vlan", "sometimes", "udp"], &["'sometimes'", "exact"]);
    check(&["-r", &place.path("missing").display().to_string(), "udp"], &["missing"]);
    check(&["-r", &place.path("text").display().to_string(), "udp"], &["/text"]);
    check(&["-r", "x.pcap", "--link-type", "RAW", "udp"], &["--link-type"]);
    check(&[&"(".repeat(1000)], &["nested deeper"]);
    check(&[&"udp or ".repeat(100_000 / 7)], &["too long"]);
    check(&[], &["EXPR"]);
}

#[test]
fn of_a_file_with_very_many_link_types_the_first_are_looked_at_and_the_rest_is_counted() {
    let place = Place::new();
    let mut capture = Capture::ethernet("first");
    for number in 0..70 {
        let link_type = if number == 0 { ETHERNET } else { 2000 + number };
        if number > 0 {
            capture.interfaces.push(Interface::new("more", link_type));
        }
        for n in 0..2 {
            capture.packets.push(Record {
                interface: number.into(),
                ..Record::new(i64::from(number * 2 + n), vec![0; 60])
            });
        }
    }
    let file = place.path("in.pcapng").display().to_string();
    place.source(&capture);
    let said = explained(&["-r", &file, "len > 0"]);
    assert_eq!(said.matches("Screening (").count(), 64, "{said}");
    let beyond = section(&said, &format!("Packets of {file} of further link types"));
    assert!(
        beyond[0].starts_with("12 packets: the filter was evaluated for the first 64 link types only"),
        "{said}"
    );
}
