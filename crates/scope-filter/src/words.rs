//! The language's tokens, split as libpcap's scanner splits them, and what is refused before libpcap sees a
//! text.
//!
//! libpcap looks up names over the network in the place of a host, net or gateway. Which place a name stands
//! in follows from the qualifiers before it, which `and`, `or`, `not` and parentheses hand on
//! (`port 80 or http`); [`check`] follows them and refuses every name that would be looked up as anything but
//! a port, a protocol or one of libpcap's own constants. Names of ports and protocols become numbers
//! (`crate::names`). A name without qualifiers is left to libpcap, which calls it a syntax error without
//! looking it up.

use std::net::Ipv6Addr;

/// Longest filter text, bytes: about 1300 ports. In pieces that takes about half a second to compile, one sum
/// of so many terms, which can't be split, some seconds.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 10;
/// Deepest nesting of parentheses and brackets.
pub(crate) const NESTING_MAX: usize = 256;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word of the language, `&&` and `||` included.
    Word,
    /// A decimal or hexadecimal number, or a named constant such as `tcp-syn`.
    Number,
    /// An Ethernet, IPv4, IPv6 or ARCNET address.
    Address,
    /// Anything else that looks like a name.
    Name,
    /// An operator or a bracket.
    Symbol,
    /// A character that the language doesn't have.
    Bad,
}

/// A token and its place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub kind: Kind,
    pub at: usize,
    pub text: &'a str,
}

impl Token<'_> {
    /// Offset behind the token's last byte.
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }

    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }
}

/// The words of libpcap's language.
const WORDS: &str = "dst src link ether ppp slip fddi tr wlan arp rarp ip sctp tcp udp icmp igmp igrp pim vrrp carp radio ip6 \
    icmp6 ah esp atalk aarp decnet lat sca moprc mopdl iso esis es-is isis is-is l1 l2 iih lsp snp csnp psnp clnp stp ipx netbeui \
    host net mask port portrange proto protochain gateway type subtype direction dir address1 addr1 address2 addr2 address3 \
    addr3 address4 addr4 ra ta less greater byte broadcast multicast and or not len length inbound outbound ifindex vlan mpls \
    pppoed pppoes geneve lane llc metac bcc oam oamf4 oamf4ec oamf4sc sc ilmic vpi vci connectmsg metaconnect on ifname rset \
    ruleset rnr rulenum srnr subrulenum reason action fisu lssu lsu msu hfisu hlssu hmsu sio opc dpc sls hsio hopc hdpc hsls";

/// Named constants, which stand for numbers.
pub(crate) const CONSTANTS: &str = "icmptype icmpcode icmp-echoreply icmp-unreach icmp-sourcequench icmp-redirect icmp-echo \
    icmp-routeradvert icmp-routersolicit icmp-timxceed icmp-paramprob icmp-tstamp icmp-tstampreply icmp-ireq icmp-ireqreply \
    icmp-maskreq icmp-maskreply icmp6type icmp6code icmp6-destinationunreach icmp6-packettoobig icmp6-timeexceeded \
    icmp6-parameterproblem icmp6-echo icmp6-echoreply icmp6-multicastlistenerquery icmp6-multicastlistenerreportv1 \
    icmp6-multicastlistenerdone icmp6-routersolicit icmp6-routeradvert icmp6-neighborsolicit icmp6-neighboradvert icmp6-redirect \
    icmp6-routerrenum icmp6-nodeinformationquery icmp6-nodeinformationresponse icmp6-ineighbordiscoverysolicit \
    icmp6-ineighbordiscoveryadvert icmp6-multicastlistenerreportv2 icmp6-homeagentdiscoveryrequest icmp6-homeagentdiscoveryreply \
    icmp6-mobileprefixsolicit icmp6-mobileprefixadvert icmp6-certpathsolicit icmp6-certpathadvert icmp6-multicastrouteradvert \
    icmp6-multicastroutersolicit icmp6-multicastrouterterm tcpflags tcp-fin tcp-syn tcp-rst tcp-push tcp-ack tcp-urg tcp-ece \
    tcp-cwr";

/// Words that say: what follows is a host, net or gateway, or, without more, a host.
const RESOLVING: &str = "host net gateway mask src dst link ether ppp slip fddi tr wlan arp rarp ip sctp tcp udp icmp igmp igrp \
    pim vrrp carp radio ip6 icmp6 ah esp atalk aarp decnet lat sca moprc mopdl iso esis es-is isis is-is l1 l2 iih lsp snp csnp \
    psnp clnp stp ipx netbeui address1 addr1 address2 addr2 address3 addr3 address4 addr4 ra ta";

/// Words after which a name is looked up in local files or in libpcap's own tables only.
const LOCAL: &str =
    "port portrange proto protochain type subtype direction dir llc on ifname rset ruleset reason action";

fn listed(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// Whether `word` is a word or a named constant of the filter language: a trigger can't be called so.
pub fn is_filter_word(word: &str) -> bool {
    listed(WORDS, word) || listed(CONSTANTS, word)
}

/// Whether the text tests VLAN tags itself.
pub(crate) fn says_vlan(text: &str) -> bool {
    tokens(text).iter().any(|token| token.is_word("vlan"))
}

/// Splits a text into tokens; never fails.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if matches!(first, ' ' | '\r' | '\n' | '\t') {
            at += 1;
            continue;
        }
        let (kind, len) = next(&text[at..], first);
        tokens.push(Token { kind, at, text: &text[at..at + len] });
        at += len;
    }
    tokens
}

/// The longest token wins, among equally long ones the first in this order, as in libpcap's scanner.
fn next(rest: &str, first: char) -> (Kind, usize) {
    let name_len = name_len(rest);
    let name = &rest[..name_len];
    let candidates = [
        (Kind::Word, if listed(WORDS, name) { name_len } else { 0 }),
        (Kind::Symbol, symbol_len(rest)),
        (Kind::Address, arcnet_len(rest).max(mac_len(rest))),
        (Kind::Number, number_len(rest)),
        (Kind::Address, ipv4_len(rest).max(ipv6_len(rest)).max(bogus_mac_len(rest))),
        (Kind::Number, if listed(CONSTANTS, name) { name_len } else { 0 }),
        (Kind::Name, name_len.max(escaped_len(rest))),
        (Kind::Bad, first.len_utf8()),
    ];
    let mut best = (Kind::Bad, 0);
    for (kind, len) in candidates {
        if len > best.1 {
            best = (kind, len);
        }
    }
    match (best.0, &rest[..best.1]) {
        (Kind::Symbol, "&&" | "||") => (Kind::Word, 2),
        _ => best,
    }
}

fn count(text: &str, accept: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|&byte| accept(byte)).count()
}

/// Letters, digits, and inside also `-`, `_` and `.`; it doesn't end with `-` or `_`.
fn name_len(rest: &str) -> usize {
    if !rest.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return 0;
    }
    let len = count(rest, |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    rest[..len].trim_end_matches(['-', '_']).len()
}

/// `\tcp`: a name that is also a word.
fn escaped_len(rest: &str) -> usize {
    let Some(name) = rest.strip_prefix('\\') else { return 0 };
    let len = count(name, |b| !matches!(b, b' ' | b'!' | b'(' | b')' | b'\n' | b'\t'));
    if len > 0 { len + 1 } else { 0 }
}

fn symbol_len(rest: &str) -> usize {
    match rest.as_bytes() {
        [b'&', b'&', ..]
        | [b'|', b'|', ..]
        | [b'>' | b'<' | b'!' | b'=', b'=', ..]
        | [b'<', b'<', ..]
        | [b'>', b'>', ..] => 2,
        [first, ..] if b"+-*/%:[]!<>()&|^=".contains(first) => 1,
        _ => 0,
    }
}

fn number_len(rest: &str) -> usize {
    if let Some(digits) = rest.strip_prefix("0x").or(rest.strip_prefix("0X")) {
        let len = count(digits, |b| b.is_ascii_hexdigit());
        if len > 0 {
            return len + 2;
        }
    }
    count(rest, |b| b.is_ascii_digit())
}

/// `$` and one or two hexadecimal digits.
fn arcnet_len(rest: &str) -> usize {
    match rest.strip_prefix('$').map(|digits| count(digits, |b| b.is_ascii_hexdigit()).min(2)) {
        Some(len) if len > 0 => len + 1,
        _ => 0,
    }
}

/// Two to four numbers with dots between them.
fn ipv4_len(rest: &str) -> usize {
    let mut len = number_len(rest);
    let mut parts = usize::from(len > 0);
    while parts > 0 && parts < 4 && rest[len..].starts_with('.') {
        match number_len(&rest[len + 1..]) {
            0 => break,
            more => len += 1 + more,
        }
        parts += 1;
    }
    if parts >= 2 { len } else { 0 }
}

/// The longest IPv6 address that the text begins with.
fn ipv6_len(rest: &str) -> usize {
    const ADDRESS_BYTES_MAX: usize = 45;
    let run = count(rest, |b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.')).min(ADDRESS_BYTES_MAX);
    (2..=run).rev().find(|&len| rest[..len].parse::<Ipv6Addr>().is_ok()).unwrap_or(0)
}

/// Six hexadecimal bytes with `:`, `-` or `.` between them, three words with `.` between them, or twelve
/// digits.
fn mac_len(rest: &str) -> usize {
    let hex = |text: &str, max: usize| count(text, |b| b.is_ascii_hexdigit()).min(max);
    let mut longest = if hex(rest, 12) == 12 { 12 } else { 0 };
    for (separator, groups, min, max) in [(':', 6, 1, 2), ('-', 6, 1, 2), ('.', 6, 1, 2), ('.', 3, 4, 4)] {
        let mut len = 0;
        for group in 0..groups {
            if group > 0 {
                if !rest[len..].starts_with(separator) {
                    len = 0;
                    break;
                }
                len += 1;
            }
            let digits = hex(&rest[len..], max);
            if digits < min {
                len = 0;
                break;
            }
            len += digits;
        }
        longest = longest.max(len);
    }
    longest
}

/// What the scanner calls a bogus Ethernet address: groups of hexadecimal digits that end with colons.
fn bogus_mac_len(rest: &str) -> usize {
    let (mut len, mut groups) = (0, 0);
    loop {
        let digits = count(&rest[len..], |b| b.is_ascii_hexdigit()).min(2);
        let colons = count(&rest[len + digits..], |b| b == b':');
        if digits == 0 || colons == 0 {
            return if groups >= 2 { len } else { 0 };
        }
        len += digits + colons;
        groups += 1;
    }
}

/// How a name at this place would be looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lookup {
    /// Not at all: a syntax error.
    Never,
    /// In local files and tables.
    Local,
    /// As a host, net or gateway.
    Resolved,
}

/// Why a text isn't given to libpcap. Offsets are bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal<'a> {
    /// Longer than [`TEXT_BYTES_MAX`].
    TooLong,
    /// Nested deeper than [`NESTING_MAX`] from here on.
    TooDeep { at: usize },
    /// A name that would be looked up over the network.
    Name { at: usize, name: &'a str },
}

/// Refuses texts that are too long or nested too deep, and names that would be looked up over the network.
pub(crate) fn check(text: &str) -> Result<(), Refusal<'_>> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Refusal::TooLong);
    }
    let (mut lookup, mut outer, mut nesting) = (Lookup::Never, Vec::new(), 0usize);
    for token in tokens(text) {
        match (token.kind, token.text) {
            (Kind::Symbol, "(" | "[") => {
                nesting += 1;
                if nesting > NESTING_MAX {
                    return Err(Refusal::TooDeep { at: token.at });
                }
                outer.push(lookup);
            }
            (Kind::Symbol, ")" | "]") => {
                nesting = nesting.saturating_sub(1);
                lookup = outer.pop().unwrap_or(lookup);
            }
            // libpcap stops at a character that isn't the language's, and looks up nothing behind it.
            (Kind::Bad, _) => break,
            (Kind::Word, word) if listed(RESOLVING, word) => lookup = Lookup::Resolved,
            (Kind::Word, word) if listed(LOCAL, word) => lookup = Lookup::Local,
            (Kind::Name, name) if lookup == Lookup::Resolved => {
                return Err(Refusal::Name { at: token.at, name });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_split_as_libpcap_splits_them() {
        let check = |text: &str, expected: &[(Kind, &str)]| {
            let found: Vec<_> = tokens(text).iter().map(|t| (t.kind, t.text)).collect();
            assert_eq!(found.as_slice(), expected, "{text}");
        };
        use Kind::*;
        check(
            "tcp[tcpflags] & tcp-syn != 0",
            &[
                (Word, "tcp"),
                (Symbol, "["),
                (Number, "tcpflags"),
                (Symbol, "]"),
                (Symbol, "&"),
                (Number, "tcp-syn"),
                (Symbol, "!="),
                (Number, "0"),
            ],
        );
        check(
            "host fe80::1&&!port 80-90",
            &[
                (Word, "host"),
                (Address, "fe80::1"),
                (Word, "&&"),
                (Symbol, "!"),
                (Word, "port"),
                (Name, "80-90"),
            ],
        );
        check(
            "1.2.3.4.5 1.2.3.4 1.2 1",
            &[(Name, "1.2.3.4.5"), (Address, "1.2.3.4"), (Address, "1.2"), (Number, "1")],
        );
        check(
            "aa:bb:cc:dd:ee:ff a-b-c-d-e-f abcd.abcd.abcd $1f",
            &[
                (Address, "aa:bb:cc:dd:ee:ff"),
                (Address, "a-b-c-d-e-f"),
                (Address, "abcd.abcd.abcd"),
                (Address, "$1f"),
            ],
        );
        check("\\tcp 0x10 0xzz tcpx", &[(Name, "\\tcp"), (Number, "0x10"), (Name, "0xzz"), (Name, "tcpx")]);
        check(
            "ether[0:4]",
            &[(Word, "ether"), (Symbol, "["), (Number, "0"), (Symbol, ":"), (Number, "4"), (Symbol, "]")],
        );
        check("::1 :: é", &[(Address, "::1"), (Address, "::"), (Bad, "é")]);
    }

    #[test]
    fn names_that_would_be_resolved_are_refused_with_their_place() {
        let check = |text: &str, expected: Option<usize>| match (check(text), expected) {
            (Ok(()), None) => {}
            (Err(Refusal::Name { at, .. }), Some(place)) => assert_eq!(at, place, "{text}"),
            (found, _) => panic!("{text}: {found:?}"),
        };
        check("host example.org", Some(5));
        check("net loopback", Some(4));
        check("gateway gw", Some(8));
        check("ether host printer", Some(11));
        check("src printer or dst printer", Some(4));
        check("tcp printer", Some(4));
        check("host 1.2.3.4 or printer", Some(16));
        check("host (1.2.3.4 or printer)", Some(17));
        check("host 1.2.3.4 and (port 80) or gorp", Some(30));
        check("host \\tcp", Some(5));
        check("host 1.2.3.4.5", Some(5));
        check("not host my-printer", Some(9));
        check("port http or https or (domain)", None);
        check("tcp port (http or https)", None);
        check("ip proto \\tcp and ether proto \\ip", None);
        check("portrange 80-90 and host 10.0.0.1", None);
        check("type mgt subtype beacon", None);
        check("host 10.0.0.1 and port http", None);
    }

    #[test]
    fn nesting_and_length_have_their_bounds() {
        let nested = |n: usize| format!("{}tcp{}", "(".repeat(n), ")".repeat(n));
        assert!(check(&nested(NESTING_MAX)).is_ok());
        assert!(matches!(check(&nested(NESTING_MAX + 1)), Err(Refusal::TooDeep { at: 256 })));
        assert!(matches!(check(&" ".repeat(TEXT_BYTES_MAX + 1)), Err(Refusal::TooLong)));
    }
}
