//! Packets and filters for the tests: few addresses and ports, so that many filters match some packets.

use std::time::Duration;

use scope_packet::LinkType;

/// A number that the environment may give for the long tests.
pub fn asked_for(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// How long this thread has run, which says on a busy machine too what something costs.
pub(crate) fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// A small generator of numbers (xorshift): a seed gives the same specimens on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Link types for which [`packet`] makes link headers.
pub(crate) const LINKS: [LinkType; 11] = [
    LinkType::ETHERNET,
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
    LinkType::LOOP,
    LinkType::PPP,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType(127),
];

const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 1, 9], [255, 255, 255, 255]];
const V6: [[u16; 8]; 3] =
    [[0xfe80, 0, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2], [0xff02, 0, 0, 0, 0, 0, 0, 1]];
const PORTS: [u16; 5] = [53, 80, 443, 1000, 60000];
const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]];

/// A packet without damage.
pub(crate) fn packet(random: &mut Random, link: LinkType) -> Vec<u8> {
    let tags = if random.one_in(2) { 0 } else { random.below(4) as usize };
    tagged_packet(random, link, tags)
}

/// A packet without damage that has `tags` VLAN tags if `link` is Ethernet or a cooked capture.
pub(crate) fn tagged_packet(random: &mut Random, link: LinkType, tags: usize) -> Vec<u8> {
    let kind = match link {
        LinkType::IPV4 => 9,
        LinkType::IPV6 => 2,
        _ => random.below(10),
    };
    let (ethertype, network) = match kind {
        0 => (0x0806, arp(random)),
        1 => (0x88cc, vec![0; 30]),
        2..=4 => (0x86dd, ipv6(random)),
        _ => (0x0800, ipv4(random)),
    };
    let mut bytes = link_header(random, link, ethertype, tags);
    bytes.extend(network);
    bytes
}

/// A packet that may be truncated or have bytes changed.
pub(crate) fn damaged_packet(random: &mut Random, link: LinkType) -> Vec<u8> {
    let mut bytes = packet(random, link);
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.next() as u8;
    }
    if random.one_in(3) {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    bytes
}

fn link_header(random: &mut Random, link: LinkType, ethertype: u16, tags: usize) -> Vec<u8> {
    let family: u8 = if ethertype == 0x86dd { 10 } else { 2 };
    let mut bytes = Vec::new();
    match link {
        LinkType::ETHERNET => {
            bytes.extend(random.pick(&MACS));
            bytes.extend(random.pick(&MACS));
            bytes.extend(tagged_type(random, ethertype, tags));
        }
        LinkType::LINUX_SLL => {
            bytes.extend([0, random.below(5) as u8, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
            bytes.extend(tagged_type(random, ethertype, tags));
        }
        LinkType::LINUX_SLL2 => {
            let types = tagged_type(random, ethertype, tags);
            bytes.extend(&types[..2]);
            bytes.extend([0, 0, 0, 0, 0, 3, 0, 1, random.below(5) as u8, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
            bytes.extend(&types[2..]);
        }
        LinkType::NULL => bytes.extend(u32::from(family).to_ne_bytes()),
        LinkType::LOOP => bytes.extend(u32::from(family).to_be_bytes()),
        LinkType::PPP => bytes.extend([0xff, 3, 0, if ethertype == 0x86dd { 0x57 } else { 0x21 }]),
        LinkType(127) => {
            bytes.extend([0, 0, 8, 0, 0, 0, 0, 0, 8, 1, 0, 0]);
            bytes.extend([random.pick(&MACS), random.pick(&MACS), random.pick(&MACS)].concat());
            bytes.extend([0, 0, 0xaa, 0xaa, 3, 0, 0, 0]);
            bytes.extend(ethertype.to_be_bytes());
        }
        _ => {}
    }
    bytes
}

/// Tags, and behind them the type.
fn tagged_type(random: &mut Random, ethertype: u16, tags: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..tags {
        bytes.extend(random.pick(&[0x8100u16, 0x8100, 0x88a8, 0x9100]).to_be_bytes());
        bytes.extend(random.pick(&[7u16, 9, 0x2007]).to_be_bytes());
    }
    bytes.extend(ethertype.to_be_bytes());
    bytes
}

fn arp(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1 + random.below(2) as u8];
    for _ in 0..2 {
        bytes.extend(random.pick(&MACS));
        bytes.extend(random.pick(&V4));
    }
    bytes.extend([0; 18]);
    bytes
}

fn ipv4(random: &mut Random) -> Vec<u8> {
    let protocol = random.pick(&[6u8, 6, 17, 17, 17, 132, 1, 47]);
    let options = if random.one_in(6) { 8 } else { 0 };
    let fragment = if random.one_in(8) { random.pick(&[[0x20, 0], [0x20, 5], [0, 9]]) } else { [0x40, 0] };
    let payload = transport(random, protocol);
    let total = (20 + options + payload.len()) as u16;
    let mut bytes = vec![0x45 + (options / 4) as u8, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(fragment);
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(random.pick(&V4));
    bytes.extend(random.pick(&V4));
    bytes.extend(vec![1; options]);
    bytes.extend(payload);
    bytes
}

fn ipv6(random: &mut Random) -> Vec<u8> {
    let protocol = random.pick(&[6u8, 17, 17, 132, 58]);
    let extension = random.one_in(5).then(|| random.pick(&[0u8, 44, 60]));
    let mut payload = transport(random, protocol);
    if let Some(kind) = extension {
        let offset = if kind == 44 && random.one_in(2) { 8 } else { 0 };
        payload.splice(0..0, [protocol, 0, 0, offset, 0, 0, 0, 0]);
    }
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([extension.unwrap_or(protocol), 64]);
    for _ in 0..2 {
        bytes.extend(random.pick(&V6).iter().flat_map(|word| word.to_be_bytes()));
    }
    bytes.extend(payload);
    bytes
}

fn transport(random: &mut Random, protocol: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    if matches!(protocol, 6 | 17 | 132) {
        bytes.extend(random.pick(&PORTS).to_be_bytes());
        bytes.extend(random.pick(&PORTS).to_be_bytes());
    }
    match protocol {
        6 => bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, random.next() as u8 & 0x3f, 1, 0, 0, 0, 0, 0]),
        1 | 58 => bytes.extend([random.pick(&[0, 3, 8, 128, 135]), 0, 0, 0, 0, 1, 0, 2]),
        _ => bytes.extend([0, 20, 0, 0]),
    }
    for _ in 0..random.below(40) {
        bytes.push(random.next() as u8);
    }
    bytes
}

/// A filter of libpcap's language, without names that are resolved. Not every link type compiles it.
pub(crate) fn filter(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.one_in(3) {
        return primitive(random);
    }
    let (left, right) = (filter(random, depth - 1), filter(random, depth - 1));
    match random.below(6) {
        0 => format!("not ({left})"),
        1 => format!("!({left}) or {right}"),
        2 | 3 => format!("({left}) and ({right})"),
        _ => format!("({left}) or ({right})"),
    }
}

/// A long list of hosts, nets and ports, as people paste them, sometimes inside something else.
pub(crate) fn list(random: &mut Random) -> String {
    let qualifier = random.pick(&[
        "host",
        "src host",
        "net",
        "port",
        "tcp port",
        "udp dst port",
        "src or dst host",
        "dst portrange",
    ]);
    let mut text = String::new();
    for entry in 0..2 + random.below(40) {
        let known = random.one_in(8);
        let value = match qualifier.rsplit(' ').next() {
            Some("port") if known => random.pick(&PORTS).to_string(),
            Some("port") => random.below(65_536).to_string(),
            Some("portrange") => format!("{}-{}", random.below(500), 500 + random.below(600)),
            Some("net") if known => {
                random.pick(&["10.0.0.0/8", "192.168.1.0/24", "2001:db8::/32", "fe80::/10"]).to_string()
            }
            Some("net") => format!("10.{}.0.0/16", random.below(256)),
            _ if known => address(random),
            _ => format!("10.0.{}.{}", random.below(3), random.below(256)),
        };
        let own = entry == 0 || random.below(4) > 0;
        let joined =
            if entry == 0 { "" } else { random.pick(&[" or ", " or ", " or ", " || ", " or not ", " and "]) };
        text.push_str(&format!(
            "{joined}{}{value}",
            if own { format!("{qualifier} ") } else { String::new() }
        ));
        if random.one_in(16) {
            text.push_str(&format!(" or ({})", primitive(random)));
        }
    }
    match random.below(4) {
        0 => format!("tcp and ({text})"),
        1 => format!("not ({text}) or {}", primitive(random)),
        _ => text,
    }
}

fn address(random: &mut Random) -> String {
    if random.one_in(3) {
        std::net::Ipv6Addr::from(random.pick(&V6)).to_string()
    } else {
        std::net::Ipv4Addr::from(random.pick(&V4)).to_string()
    }
}

fn primitive(random: &mut Random) -> String {
    let direction = random.pick(&["", "", "src ", "dst ", "src or dst ", "src and dst "]);
    let port = random.pick(&PORTS);
    let number = random.below(70);
    let relation = random.pick(&["=", "!=", ">", "<", ">=", "<="]);
    let operation = random.pick(&["+", "-", "*", "/", "%", "&", "|", "^"]);
    let layer = random.pick(&["ip", "ip6", "tcp", "udp", "ether", "icmp", "arp"]);
    match random.below(24) {
        0..=3 => format!("{direction}host {}", address(random)),
        4 | 5 => format!("{}{direction}port {port}", random.pick(&["", "tcp ", "udp ", "sctp "])),
        6 => format!("{direction}portrange {}-{}", port.min(500), port.max(500)),
        7 => format!(
            "{direction}net {}",
            random.pick(&["10.0.0.0/8", "192.168.1.0/24", "fe80::/10", "10.0", "2001:db8::/32"])
        ),
        8 | 9 => random
            .pick(&[
                "ip", "ip6", "tcp", "udp", "sctp", "icmp", "icmp6", "arp", "rarp", "igmp", "ah", "esp",
                "vrrp", "stp",
            ])
            .to_string(),
        10 => format!("{} {number}", random.pick(&["less", "greater", "len >", "len <", "len ="])),
        11 => format!(
            "{}ether host {}",
            "",
            random.pick(&["02:00:00:00:00:01", "02-00-00-00-00-02", "ff:ff:ff:ff:ff:ff"])
        ),
        12 => random
            .pick(&["ip broadcast", "ether broadcast", "ip multicast", "ip6 multicast", "ether multicast"])
            .to_string(),
        13 => format!(
            "{} proto {}",
            random.pick(&["ip", "ip6"]),
            random.pick(&["6", "17", "\\udp", "\\tcp", "58"])
        ),
        14 => format!("{}protochain {}", random.pick(&["ip6 ", "ip ", ""]), random.pick(&["6", "17"])),
        15 => format!("ether proto {}", random.pick(&["0x800", "\\ip", "\\arp", "0x88cc", "100"])),
        16 | 17 => {
            format!(
                "{layer}[{}:{}] {operation} {} {relation} {number}",
                random.below(30),
                random.pick(&[1, 2, 4]),
                1 + number
            )
        }
        18 => format!("{layer}[{layer}[{}] & 0xf] {relation} len {operation} {number}", random.below(20)),
        19 => format!("tcp[tcpflags] & ({}) != 0", random.pick(&["tcp-syn", "tcp-ack|tcp-fin", "tcp-rst"])),
        20 => format!("{layer}[0] {} {} {relation} -{number}", random.pick(&["<<", ">>"]), random.below(32)),
        21 => format!("vlan {}", random.pick(&["", "7", "9", "and ip", "and vlan 9"])),
        22 => format!("len {operation} {layer}[2] {relation} ip[1] << (udp[3] & 63)"),
        _ => random
            .pick(&["mpls", "pppoes", "llc", "inbound", "icmp[icmptype] = icmp-echo", "ip[6:2] & 0x1fff = 0"])
            .to_string(),
    }
}
