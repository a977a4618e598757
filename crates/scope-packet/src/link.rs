//! Link types as capture files number them (the LINKTYPE_ registry of tcpdump.org).

/// No number above this has a name.
const NAMED_MAX: u16 = 276;

/// A link type, numbered as in pcap and pcapng files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: a 4-byte address family in the capturing host's byte order.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// SLIP: 16 bytes of direction and compression, then IP.
    pub const SLIP: LinkType = LinkType(8);
    /// PPP with the protocol field behind address and control.
    pub const PPP: LinkType = LinkType(9);
    /// PPP in HDLC-like framing.
    pub const PPP_HDLC: LinkType = LinkType(50);
    /// Raw IPv4 or IPv6.
    pub const RAW: LinkType = LinkType(101);
    /// OpenBSD loopback: a 4-byte address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// Raw IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// Raw IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// The other number that this type goes by in files, where there is one: libpcap's own (its DLT_ value).
    ///
    /// libpcap 1.10.3 refuses a pcapng file with several interfaces of a type whose two numbers differ: it
    /// holds the second interface's number against its own number of the first. Under libpcap's own number
    /// such a file is read by it, and by Wireshark's programs as well.
    pub const fn alias(self) -> Option<LinkType> {
        match self.0 {
            100 => Some(LinkType(11)),
            101 => Some(LinkType(12)),
            102 => Some(LinkType(15)),
            103 => Some(LinkType(16)),
            106 => Some(LinkType(19)),
            _ => None,
        }
    }

    /// Bytes that capture puts in front of each frame, and that programs which show lengths don't count: ATM as SunATM
    /// captures it, MTP2, Bluetooth, PPP, each with what capture knows of the frame.
    pub const fn pseudo_header_bytes(self) -> u32 {
        match self.0 {
            123 | 139 | 201 => 4,
            204 => 1,
            _ => 0,
        }
    }

    /// The registry's number of a type that a file may have by either number; see [`LinkType::alias`].
    pub const fn canonical(self) -> LinkType {
        match self.0 {
            11 => LinkType(100),
            12 => LinkType(101),
            15 => LinkType(102),
            16 => LinkType(103),
            19 => LinkType(106),
            _ => self,
        }
    }

    /// The type of a name as [`LinkType::name`] gives it, in any case, also with the prefix that the registry or
    /// libpcap puts in front, or of a number. Ethernet has a second name, libpcap's own.
    pub fn named(text: &str) -> Option<LinkType> {
        let prefixes = ["LINKTYPE_", "DLT_"];
        let has =
            |prefix: &&str| text.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix));
        let text = &text[prefixes.iter().find(|prefix| has(prefix)).map_or(0, |prefix| prefix.len())..];
        if text.eq_ignore_ascii_case("EN10MB") {
            return Some(LinkType::ETHERNET);
        }
        let named = |number: &u16| LinkType(*number).name().eq_ignore_ascii_case(text);
        (0..=NAMED_MAX).find(named).or_else(|| text.parse().ok()).map(|number| LinkType(number).canonical())
    }

    /// The registry's name without its LINKTYPE_ prefix; the number where this list knows no name.
    pub fn name(self) -> String {
        let name = match self.0 {
            0 => "NULL",
            1 => "ETHERNET",
            6 => "IEEE802_5",
            7 => "ARCNET_BSD",
            8 => "SLIP",
            9 => "PPP",
            10 => "FDDI",
            50 => "PPP_HDLC",
            51 => "PPP_ETHER",
            100 => "ATM_RFC1483",
            101 => "RAW",
            104 => "C_HDLC",
            105 => "IEEE802_11",
            107 => "FRELAY",
            108 => "LOOP",
            113 => "LINUX_SLL",
            117 => "PFLOG",
            119 => "IEEE802_11_PRISM",
            122 => "IP_OVER_FC",
            123 => "SUNATM",
            127 => "IEEE802_11_RADIOTAP",
            143 => "DOCSIS",
            189 => "USB_LINUX",
            192 => "PPI",
            195 => "IEEE802_15_4_WITHFCS",
            220 => "USB_LINUX_MMAPPED",
            228 => "IPV4",
            229 => "IPV6",
            230 => "IEEE802_15_4_NOFCS",
            249 => "USBPCAP",
            253 => "NETLINK",
            276 => "LINUX_SLL2",
            _ => return self.0.to_string(),
        };
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_leads_back_to_its_type() {
        for number in 0..300 {
            let link_type = LinkType(number);
            assert_eq!(link_type.alias().map_or(link_type, LinkType::canonical), link_type, "{number}");
        }
        assert_eq!(LinkType(12).canonical(), LinkType::RAW);
    }

    #[test]
    fn a_type_is_found_by_its_name_or_number() {
        for number in 0..=u16::MAX {
            let link_type = LinkType(number);
            assert_eq!(LinkType::named(&link_type.name()), Some(link_type.canonical()), "{number}");
            assert!(number <= NAMED_MAX || link_type.name() == number.to_string());
        }
        assert_eq!(LinkType::named("linux_sll2"), Some(LinkType::LINUX_SLL2));
        assert_eq!(LinkType::named("12"), Some(LinkType::RAW));
        assert_eq!(LinkType::named("LINKTYPE_LINUX_SLL"), LinkType::named("linux_sll"));
        assert_eq!([LinkType::named("EN10MB"), LinkType::named("dlt_en10mb")], [Some(LinkType::ETHERNET); 2]);
        assert_eq!([LinkType::named("ethernot"), LinkType::named("65536"), LinkType::named("")], [None; 3]);
    }
}
