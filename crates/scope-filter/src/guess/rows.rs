//! What people type and what is proposed: tables, and that whatever is proposed is a filter.

use super::meant;
use crate::specimens::Random;
use crate::words::{Kind, tokens};
use crate::{Filter, Template, VlanRule};

/// What people write who know other programs, or are in a hurry, and the expression.
pub(super) const MEANT: [(&str, &str); 79] = [
    ("tcp host 10.0.0.1", "tcp and host 10.0.0.1"),
    ("udp net 10.0.0.0/8", "udp and net 10.0.0.0/8"),
    ("tcp src host 10.0.0.1", "tcp and src host 10.0.0.1"),
    ("tcp src 10.0.0.1", "tcp and src 10.0.0.1"),
    ("tcp 10.0.0.1", "tcp and host 10.0.0.1"),
    ("arp or tcp host 10.0.0.1", "arp or (tcp and host 10.0.0.1)"),
    ("not tcp host 10.0.0.1", "not (tcp and host 10.0.0.1)"),
    ("tcp host 10.0.0.1 or 10.0.0.2", "tcp and (host 10.0.0.1 or 10.0.0.2)"),
    ("tcp host $srcIP", "tcp and host $srcIP"),
    ("ip 10.0.0.1", "ip host 10.0.0.1"),
    ("src ip 10.0.0.1", "src host 10.0.0.1"),
    ("tcp 80", "tcp port 80"),
    ("udp/53", "udp port 53"),
    ("port 80-90", "portrange 80-90"),
    ("tcp port 80-90", "tcp portrange 80-90"),
    ("udp ports 10000-20000", "udp portrange 10000-20000"),
    ("port range 80-90", "portrange 80-90"),
    ("portrange 80..90", "portrange 80-90"),
    ("portrange 80 90", "portrange 80-90"),
    ("port >= 1024", "portrange 1024-65535"),
    ("port > 1023 and tcp", "portrange 1024-65535 and tcp"),
    ("port 80,443", "port (80 or 443)"),
    ("port 80 443", "port (80 or 443)"),
    ("host 10.0.0.1:80", "host 10.0.0.1 and port 80"),
    ("src 10.0.0.1:80", "src 10.0.0.1 and src port 80"),
    ("arp or 10.0.0.1:80", "arp or (host 10.0.0.1 and port 80)"),
    ("tcp host 10.0.0.1:80", "tcp and host 10.0.0.1 and port 80"),
    ("host [fe80::1]:80", "host fe80::1 and port 80"),
    ("src 10.0.0.1 dst 10.0.0.2", "src 10.0.0.1 and dst 10.0.0.2"),
    ("from 10.0.0.1 to 10.0.0.2", "src 10.0.0.1 and dst 10.0.0.2"),
    ("host 1.2.3.4 port 80", "host 1.2.3.4 and port 80"),
    ("host $srcIP port $srcPort", "host $srcIP and port $srcPort"),
    ("tcp port 80 tcp port 443", "tcp port 80 or tcp port 443"),
    ("host 1.2.3.4 not port 22", "host 1.2.3.4 and not port 22"),
    ("tcp udp", "tcp or udp"),
    ("tcp & port 80", "tcp and port 80"),
    ("tcp|udp", "tcp or udp"),
    ("icmp6.type == 135", "icmp6[icmp6type] = 135"),
    ("icmpv6.code == 0", "icmp6[icmp6code] = 0"),
    ("ip6.addr == ::1", "host ::1"),
    ("tcp.len > 0", "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) > 0"),
    ("tcp.port in {80, 443}", "(tcp port 80 or tcp port 443)"),
    ("udp.port in {53 1000..2000}", "(udp port 53 or udp portrange 1000-2000)"),
    ("tcp.dstport > 1024", "tcp dst portrange 1025-65535"),
    ("ip.addr == 10.0.0.1/24", "net 10.0.0.0/24"),
    ("ip.proto == tcp", "ip proto \\tcp"),
    ("ospf", "ip proto 89"),
    ("vxlan", "udp port 4789"),
    ("eigrp or lldp", "ip proto 88 or ether proto 0x88cc"),
    ("tcp-rest", "tcp[tcpflags] & tcp-rst != 0"),
    ("icmp-ecko", "icmp[icmptype] = icmp-echo"),
    ("tcp flags syn", "tcp[tcpflags] & tcp-syn != 0"),
    ("tcp[tcpflags] & rst != 0", "tcp[tcpflags] & tcp-rst != 0"),
    ("tcp[13] & 2", "tcp[13] & 2 != 0"),
    ("(tcp[13] & 2) or udp", "(tcp[13] & 2) != 0 or udp"),
    ("icmp echo", "icmp[icmptype] = icmp-echo"),
    ("icmp type 8", "icmp[icmptype] = 8"),
    ("arp request", "arp[6:2] = 1"),
    ("host fe80::1%eth0", "host fe80::1"),
    ("host 10.0.0.1-10.0.0.5", "net 10.0.0.0/29"),
    ("host 10.0.0.*", "net 10.0.0.0/24"),
    ("net 10/8", "net 10.0.0.0/8"),
    ("10.0.0.0/8", "net 10.0.0.0/8"),
    ("dst 10.0.0.0/8", "dst net 10.0.0.0/8"),
    ("net 10.0.0.0/255.255.255.0", "net 10.0.0.0 mask 255.255.255.0"),
    ("net 10.0.0.0 255.255.255.0", "net 10.0.0.0 mask 255.255.255.0"),
    ("port = 80", "port 80"),
    ("host != 10.0.0.1", "not host 10.0.0.1"),
    ("tcp port != 80", "tcp and not port 80"),
    ("ip == 10.0.0.1", "host 10.0.0.1"),
    ("ip proto tcp", "ip proto \\tcp"),
    ("dport 80", "dst port 80"),
    ("source 10.0.0.1", "src 10.0.0.1"),
    ("mac aa:bb:cc:dd:ee:ff", "ether host aa:bb:cc:dd:ee:ff"),
    ("vlan id 5", "vlan 5"),
    ("greater than 1000", "greater 1000"),
    ("except port 22", "not port 22"),
    ("host '10.0.0.1'", "host 10.0.0.1"),
    ("(host 10.0.0.1", "(host 10.0.0.1)"),
];

/// Where a guess that lies near would mean something else.
pub(super) const CLOSE_TO_WRONG: [(&str, &str); 37] = [
    // Joints: of ports of one kind `or`, of a tag its place.
    ("tcp port 80 udp port 53", "tcp port 80 or udp port 53"),
    ("src port 80 dst port 443", "src port 80 and dst port 443"),
    ("host 10.0.0.1 vlan 5", "vlan 5 and host 10.0.0.1"),
    ("port 80 vlan 5", "vlan 5 and port 80"),
    ("http port 8080", "tcp port 8080"),
    ("tls port 8443", "tcp port 8443"),
    ("not http port 8080", "not tcp port 8080"),
    ("http host 10.0.0.1", "tcp port 80 and host 10.0.0.1"),
    // Display filters: `and` binds tighter than `or`; what isn't TCP has no port of TCP to be unequal.
    (
        "ip.addr==10.0.0.1 || ip.addr==10.0.0.2 && tcp.port==80",
        "host 10.0.0.1 or (host 10.0.0.2 and tcp port 80)",
    ),
    ("ip.addr==10.0.0.1 && tcp.port==80 || udp", "host 10.0.0.1 and tcp port 80 or udp"),
    ("tcp.port == 80 && vlan.id == 5", "vlan 5 and tcp port 80"),
    ("tcp.port != 80", "tcp and not tcp port 80"),
    ("udp || tcp.port != 80", "udp or (tcp and not tcp port 80)"),
    ("!(tcp.port != 80)", "not (tcp and not tcp port 80)"),
    ("not ip.src != 10.0.0.1", "not (ip and not src host 10.0.0.1)"),
    ("eth.addr != 02:00:00:00:00:01", "not ether host 02:00:00:00:00:01"),
    ("tcp.flags == 0x12", "tcp[12:2] & 0xfff = 0x12"),
    ("ip.addr == 10.0.0.256", "'10.0.0.256' is not an IPv4 address: 256 is more than 255"),
    // Values.
    ("port 80 to 90", "portrange 80-90"),
    ("ports 80 to 90", "portrange 80-90"),
    ("post 80", "port 80"),
    ("dst 10.0.0.* or 10.0.1.*", "dst net 10.0.0.0/24 or 10.0.1.0/24"),
    ("tcp and dst 10.0.0.1.443", "tcp and dst 10.0.0.1 and dst port 443"),
    ("not src 10.0.0.1.80", "not (src 10.0.0.1 and src port 80)"),
    ("udp or tcp port != 80", "udp or (tcp and not port 80)"),
    ("arp or tcp port != 80", "arp or (tcp and not port 80)"),
    // Protocols by name, and words that are only nearly one.
    ("rip", "udp port 520"),
    ("ldp", "port 646"),
    ("scp", "tcp port 22"),
    ("https", "tcp port 443"),
    ("!dns && !ntp", "!port 53 && !udp port 123"),
    ("upd", "udp"),
    ("tpc", "tcp"),
    // One line.
    ("tcp host\n10.0.0.1", "tcp and host 10.0.0.1"),
    ("upd\rport\t53", "udp port 53"),
    ("hots $srcIP ?: arp", "host $srcIP ?: arp"),
    ("vlan $vlan and hots $srcIP", "vlan $vlan and host $srcIP"),
];

/// Where it is said that a joint is missing, and not which.
const UNJOINED: [&str; 21] = [
    "not host 10.0.0.1 port 22",
    "host 10.0.0.1 host 10.0.0.2",
    "host 10.0.0.1 port 80 or port 443",
    "tcp port 80 icmp",
    "vlan 5 vlan 6",
    "(host 10.0.0.1) (port 80)",
    "(port 80 port 443)",
    "(host 10.0.0.1 host 10.0.0.2)",
    "ip host 10.0.0.1 host 10.0.0.2",
    "net 10.0.0.0/8 host 10.0.0.1",
    "(not host 10.0.0.1 port 22)",
    "tcp port 80 port 443",
    "dst port 80 port 443",
    "port 80 host 10.0.0.1 port 443",
    "port 80 and host 10.0.0.1 port 443",
    "broadcast multicast",
    "less 100 greater 50",
    "udp port 53 tcp",
    "not port 53 udp",
    "tcp and not port 22 host 10.0.0.1",
    "host 10.0.0.1 and host 10.0.0.2 host 10.0.0.3",
];

/// Display filters for which no expression is known to mean the same.
pub(super) const UNKNOWN: [&str; 18] = [
    "tcp.port==80 && udp.port==53",
    "ip.addr==10.0.0.1 && mpls",
    "vlan.id in {1,2}",
    "vlan.id == 5 || tcp.port == 80",
    "vlan.id != 5",
    "tcp.port not in {80,443}",
    "ip.ttl in {1,2}",
    "tcp.flags & 2",
    "tcp.seq == 1",
    "ip.flags.df == 1",
    "frame.cap_len > 100",
    "tcp.window_size > 100",
    "eth.addr[0:3] == 00:06:5b",
    "snmp.name == 1.3.6.1.2.1",
    "dns.qry.name == 1.2.3.4.5",
    "ip.addr in {10.0.0.1..10.0.0.5}",
    "!tcp.flags.syn",
    "tcp.flags.syn == 2",
];

/// Where nothing is said.
const SILENT: [&str; 39] = [
    "vlan 5-7",
    "host 10.0.0.1 10.0.0.2",
    "80",
    "10.5",
    "retransmission",
    "net 10.0.0.0/33",
    "tcp+udp",
    "tcp ot udp",
    "not tcp host 10.0.0.1 port 80",
    "not tcp port != 80",
    "tcp and port != 80 or 443",
    "not tcp udp",
    "tcp to 90",
    "size from 80",
    "cdp",
    "ndp",
    "rtcp",
    "lan",
    "icp port 80",
    "prots 80",
    "tcp[0:4:5] = 1",
    "any port 80",
    "upd port 53 or host 10.0.0.1 vlan 5",
    "host 10.0.0.1and port 80",
    "hots $srcIP port $srcPort",
    "hots $srcPort",
    "host 10.0.0.1:80 or 443",
    "host 10.0.0.1 or 10.0.0.2:80",
    "ports 80 and 443",
    "tcp|udp port 53",
    "tcp|udp & port 53",
    "src 10.0.0.1 or 10.0.0.2 and tcp 80-",
    "vlan id 5 or upd",
    "(port 80 or port 443 and udp",
    "not (port 80 or port 443",
    "dhcp port 67",
    "http and dns",
    "ftp.debian.org",
    "src any",
];

/// The expressions that a sentence proposes.
pub(super) fn proposals(said: &str) -> Vec<&str> {
    let introduced =
        |line: &str| ["did you mean:", "it is:", "this one:", "apart:"].iter().any(|end| line.ends_with(end));
    let lines: Vec<&str> = said.lines().collect();
    lines.windows(2).filter(|pair| introduced(pair[0])).map(|pair| pair[1].trim()).collect()
}

/// Whether the program accepts a text.
fn is_accepted(text: &str) -> bool {
    match Template::parse(text) {
        Ok(template) if template.has_names() => template.check(VlanRule::Transparent, &[]).is_ok(),
        _ => Filter::compile(text, VlanRule::Transparent, &[]).is_ok(),
    }
}

/// Checks what is proposed for a text, and counts it.
fn check_proposals(text: &str) -> usize {
    let said = meant(text).unwrap_or_default();
    let all = proposals(&said);
    for meant in &all {
        assert!(is_accepted(meant), "{text}: {meant}");
        for pair in tokens(meant).windows(2) {
            let is_bare =
                pair[1].kind == Kind::Number && matches!(pair[0].text, "host" | "src" | "dst" | "net");
            assert!(!is_bare, "{text}: {meant}");
        }
    }
    all.len()
}

#[test]
fn every_expression_that_is_proposed_compiles() {
    for (text, _) in MEANT.into_iter().chain(CLOSE_TO_WRONG) {
        check_proposals(text);
    }
    for text in UNJOINED.into_iter().chain(UNKNOWN).chain(SILENT) {
        assert_eq!(check_proposals(text), 0, "{text}");
    }
}

#[test]
fn of_generated_texts_too_every_expression_that_is_proposed_compiles() {
    const WORDS: &str = "host net port ports portrange src dst tcp udp ip icmp arp ether vlan mpls and or not ! && || ( ) 10.0.0.1 \
        10.0.0.2 10.0.0.0/8 10.0.0.* 10.0.0.1:80 10.0.0.1.80 80 443 5 80-90 80,443 != = > to from mac 02:00:00:00:00:01 upd prot \
        hots post rip dns http syn tcp-rst broadcast less greater & | tcp[13] 2 ::1 $srcIP $srcPort tcp.port ip.addr vlan.id == \
        in {80,443} tcp.flags.syn udp.port dport id proto";
    let vocabulary: Vec<&str> = WORDS.split_ascii_whitespace().collect();
    let mut random = Random::new(47);
    let rows: Vec<&str> = MEANT.into_iter().chain(CLOSE_TO_WRONG).map(|(text, _)| text).collect();
    let mut proposed = 0;
    for _ in 0..2500 {
        let words: Vec<&str> = (0..1 + random.below(8)).map(|_| random.pick(&vocabulary)).collect();
        proposed += check_proposals(&words.join(" "));
        let joint = random.pick(&[" and ", " or ", " ", " and not ", " && ", " || "]);
        let begin = random.pick(&["", "", "not ", "("]);
        proposed += check_proposals(&format!("{begin}{}{joint}{}", random.pick(&rows), random.pick(&rows)));
    }
    assert!(proposed > 500, "{proposed}");
}

#[test]
fn where_and_as_well_as_or_may_be_meant_neither_is_proposed() {
    for text in UNJOINED {
        let said = meant(text).unwrap_or_default();
        assert!(said.starts_with("'and' or 'or' is missing between"), "{text}: {said}");
    }
}

#[test]
fn no_hint_is_better_than_a_wrong_one() {
    for text in SILENT {
        assert_eq!(meant(text), None, "{text}");
    }
    assert!(!meant("port 5060 sip").unwrap_or_default().contains("ip"), "no service for a protocol");
}
