//! Fields of Wireshark's display filters, and what they are in tcpdump's words.

/// Fields that stand for a qualifier, and the value behind them.
pub(super) const QUALIFIERS: [(&str, &str); 24] = [
    ("ip.addr", "host"),
    ("ip.src", "src host"),
    ("ip.dst", "dst host"),
    ("ip.host", "host"),
    ("ipv6.addr", "host"),
    ("ipv6.src", "src host"),
    ("ipv6.dst", "dst host"),
    ("eth.addr", "ether host"),
    ("eth.src", "ether src"),
    ("eth.dst", "ether dst"),
    ("tcp.port", "tcp port"),
    ("tcp.srcport", "tcp src port"),
    ("tcp.dstport", "tcp dst port"),
    ("udp.port", "udp port"),
    ("udp.srcport", "udp src port"),
    ("udp.dstport", "udp dst port"),
    ("sctp.port", "sctp port"),
    ("sctp.srcport", "sctp src port"),
    ("sctp.dstport", "sctp dst port"),
    ("vlan.id", "vlan"),
    ("ip.proto", "ip proto"),
    ("ipv6.nxt", "ip6 proto"),
    ("eth.type", "ether proto"),
    ("arp.src.proto_ipv4", "arp src host"),
];
/// Fields that stand for a number in the packet.
pub(super) const NUMBERS: [(&str, &str); 15] = [
    ("frame.len", "len"),
    ("ip.len", "ip[2:2]"),
    ("ip.id", "ip[4:2]"),
    ("ip.ttl", "ip[8]"),
    ("ip.dsfield", "ip[1]"),
    ("ipv6.hlim", "ip6[7]"),
    ("tcp.flags", "tcp[12:2] & 0xfff"),
    ("tcp.window_size_value", "tcp[14:2]"),
    ("udp.length", "udp[4:2]"),
    ("icmp.type", "icmp[icmptype]"),
    ("icmp.code", "icmp[icmpcode]"),
    ("icmpv6.type", "icmp6[icmp6type]"),
    ("icmpv6.code", "icmp6[icmp6code]"),
    ("tcp.len", "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2)"),
    ("arp.opcode", "arp[6:2]"),
];
/// TCP's flags.
pub(super) const FLAGS: [(&str, &str); 9] = [
    ("tcp.flags.reset", "tcp-rst"),
    ("tcp.flags.syn", "tcp-syn"),
    ("tcp.flags.fin", "tcp-fin"),
    ("tcp.flags.ack", "tcp-ack"),
    ("tcp.flags.push", "tcp-push"),
    ("tcp.flags.urg", "tcp-urg"),
    ("tcp.flags.ece", "tcp-ece"),
    ("tcp.flags.ecn", "tcp-ece"),
    ("tcp.flags.cwr", "tcp-cwr"),
];
/// Words that mean the same in both languages.
pub(super) const SAME: [&str; 11] =
    ["ip", "ip6", "tcp", "udp", "sctp", "arp", "rarp", "icmp", "icmp6", "igmp", "vlan"];
/// First words of fields' names.
const FIELDS: &str = " _ws frame eth ip ipv6 ip6 tcp udp sctp icmp icmpv6 icmp6 igmp arp http http2 http3 tls ssl dns mdns dhcp \
    dhcpv6 bootp smb smb2 rdp ssh sip rtp rtcp ntp snmp quic data vlan mpls gre vxlan ftp smtp imap pop kerberos ldap radius ldap \
    rtsp expert gtp modbus mysql pgsql websocket nbns llmnr ";

/// A field's name as Wireshark has it: that of ICMP and of IP over IPv6 has a `v`.
pub(super) fn as_named(word: &str) -> String {
    match word.split_once('.') {
        Some(("icmp6", field)) => format!("icmpv6.{field}"),
        Some(("ip6", field)) => format!("ipv6.{field}"),
        _ => word.to_string(),
    }
}

/// Last words of hosts' names: `ftp.debian.org` is no field.
const DOMAINS: &str = " com org net edu gov de io local lan arpa ";

/// Whether a word looks like a field.
pub(super) fn is_field(word: &str) -> bool {
    let is_host = word.rsplit_once('.').is_some_and(|(_, last)| DOMAINS.contains(&format!(" {last} ")));
    let begins_so = |(first, field): (&str, &str)| {
        FIELDS.contains(&format!(" {first} ")) && field.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    !is_host && word.split_once('.').is_some_and(begins_so)
}
