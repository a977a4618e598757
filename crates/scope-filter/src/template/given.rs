//! Values that somebody gives for a template's names, where no packet fills them: each is read as what its name is, and
//! written anew from that. So nothing that was given is ever text of a filter.
//!
//! ```text
//! srcIP = "10.0.0.1"            ─► an address ─► host 10.0.0.1
//! srcIP = "10.0.0.1 or port 80" ─► refused
//! ```
//! `$flow` is no value of its own: it is made of addresses, ports and protocol.

use std::fmt;
use std::net::IpAddr;

use super::fields::{Field, Flow, between, mac};
use super::{Template, Unfilled};

/// What kind of value a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Of IPv4 or IPv6.
    Address,
    /// From 0 to 65535.
    Port,
    /// Of Ethernet: six pairs of hexadecimal digits.
    Mac,
    /// From 0 to this.
    Number(u16),
}

impl fmt::Display for NameKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameKind::Address => out.write_str("an IPv4 or IPv6 address"),
            NameKind::Port => out.write_str("a port, from 0 to 65535"),
            NameKind::Mac => out.write_str("an Ethernet address, such as 02:00:00:00:00:01"),
            NameKind::Number(most) => write!(out, "a number from 0 to {most}"),
        }
    }
}

/// A value that isn't what its name is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no value of {name}, which is {kind}")]
pub struct BadGiven {
    /// The name, with its `$`.
    pub name: &'static str,
    /// What it is.
    pub kind: NameKind,
}

/// A name that can be given a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenName(Field);

impl GivenName {
    /// All of them.
    pub const ALL: [GivenName; 8] = [
        GivenName(Field::SrcIp),
        GivenName(Field::DstIp),
        GivenName(Field::SrcPort),
        GivenName(Field::DstPort),
        GivenName(Field::Proto),
        GivenName(Field::SrcMac),
        GivenName(Field::DstMac),
        GivenName(Field::Vlan),
    ];

    /// The one that is called so, in any case, with its `$` or without; `None`: there is none.
    pub fn of(name: &str) -> Option<GivenName> {
        let field = Field::by_name(name.strip_prefix('$').unwrap_or(name))?;
        GivenName::ALL.into_iter().find(|given| given.0 == field)
    }

    /// Its name, without `$`.
    pub fn word(self) -> &'static str {
        &self.0.name()[1..]
    }

    /// What its values are.
    pub fn kind(self) -> NameKind {
        match self.0 {
            Field::SrcIp | Field::DstIp => NameKind::Address,
            Field::SrcPort | Field::DstPort => NameKind::Port,
            Field::SrcMac | Field::DstMac => NameKind::Mac,
            Field::Vlan => NameKind::Number(4095),
            Field::Proto | Field::Flow => NameKind::Number(255),
        }
    }

    /// The value as a filter has it; `None`: `text` is none.
    fn read(self, text: &str) -> Option<String> {
        // A sign, or digits that were added in front, are no number.
        let number = |most: u16| {
            let is_plain =
                text.len() <= 5 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>()
                .ok()
                .filter(|number| is_plain && *number <= most)
                .map(|number| number.to_string())
        };
        match self.kind() {
            NameKind::Address => text.parse::<IpAddr>().ok().map(|address| address.to_string()),
            NameKind::Port => number(u16::MAX),
            NameKind::Number(most) => number(most),
            NameKind::Mac => {
                let parts = text.split([':', '-']).map(|part| {
                    (part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
                        .then(|| u8::from_str_radix(part, 16).ok())?
                });
                let bytes = parts.collect::<Option<Vec<u8>>>()?;
                (bytes.len() == 6).then(|| mac(&bytes))
            }
        }
    }
}

/// Values for a template's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given(Vec<(Field, String)>);

impl Given {
    /// Gives `name` a value; one that it had is replaced.
    ///
    /// # Errors
    /// `text` isn't what the name is.
    pub fn set(&mut self, name: GivenName, text: &str) -> Result<(), BadGiven> {
        let bad = || BadGiven { name: name.0.name(), kind: name.kind() };
        let value = name.read(text.trim()).ok_or_else(bad)?;
        self.0.retain(|(field, _)| *field != name.0);
        self.0.push((name.0, value));
        Ok(())
    }

    /// What went between its two hosts, where both are given: what dumps keep that have no template.
    pub fn hosts(&self) -> Option<String> {
        let address = |field| self.get(field)?.parse::<IpAddr>().ok();
        Some(between(address(Field::SrcIp)?, address(Field::DstIp)?))
    }

    fn get(&self, field: Field) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == field).map(|(_, value)| &**value)
    }

    fn value(&self, field: Field) -> Option<String> {
        match field {
            Field::Flow => self.flow(),
            field => self.get(field).map(str::to_string),
        }
    }

    /// The filter of the flow that the values tell of; `None`: two addresses are needed.
    fn flow(&self) -> Option<String> {
        let address = |field| self.get(field)?.parse::<IpAddr>().ok();
        let number = |field| self.get(field)?.parse::<u16>().ok();
        let addresses = (address(Field::SrcIp)?, address(Field::DstIp)?);
        let ports = number(Field::SrcPort).zip(number(Field::DstPort));
        let protocol = number(Field::Proto).and_then(|number| u8::try_from(number).ok());
        Flow::given(addresses, ports, protocol).map(|flow| flow.filter())
    }
}

impl Template {
    /// The filter text for given values; the fallback where one is missing.
    ///
    /// # Errors
    /// Names the first missing one where the template has no fallback.
    pub fn fill_given(&self, given: &Given) -> Result<String, Unfilled> {
        let missing = |field: Field| Unfilled { name: field.name() };
        match (self.parts.fill_with(|field| given.value(field).ok_or(missing(field))), self.fallback()) {
            (Ok(filled), _) => Ok(filled.text.trim().to_string()),
            (Err(_), Some(fallback)) => Ok(fallback.to_string()),
            (Err(unfilled), None) => Err(unfilled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Filter, VlanRule};
    use proptest::prelude::*;
    use scope_packet::LinkType;

    fn given(values: &[(&str, &str)]) -> Result<Given, BadGiven> {
        let mut given = Given::default();
        for (name, value) in values {
            given.set(GivenName::of(name).unwrap(), value)?;
        }
        Ok(given)
    }

    fn check(template: &str, values: &[(&str, &str)], expected: Result<&str, &str>) {
        let filled = Template::parse(template).unwrap().fill_given(&given(values).unwrap());
        assert_eq!(filled.as_deref().map_err(|unfilled| unfilled.name), expected, "{template} {values:?}");
    }

    #[test]
    fn values_stand_where_names_stood() {
        check("host $srcIP", &[("srcip", "10.0.0.1")], Ok("host 10.0.0.1"));
        check("host {srcIP}", &[("$srcIP", "2001:DB8:0::1")], Ok("host 2001:db8::1"));
        check(
            "port $dstPort and ip proto $proto",
            &[("dstPort", "80"), ("proto", "6")],
            Ok("port 80 and ip proto 6"),
        );
        check("ether host $srcMAC", &[("srcMAC", "02-00-00-00-00-FF")], Ok("ether host 02:00:00:00:00:ff"));
        check("vlan $vlan", &[("vlan", "4095")], Ok("vlan 4095"));
        check("host $dstIP", &[("srcIP", "10.0.0.1")], Err("$dstIP"));
        check("host $dstIP ?: arp", &[], Ok("arp"));
        check("udp", &[("srcIP", "10.0.0.1")], Ok("udp"));
        let hosts = given(&[("srcIP", "10.0.0.2"), ("dstIP", "10.0.0.1")]).unwrap().hosts();
        assert_eq!(hosts.as_deref(), Some("host 10.0.0.1 and host 10.0.0.2"));
        assert_eq!(given(&[("srcIP", "10.0.0.2")]).unwrap().hosts(), None);
        check("$flow", &[("srcIP", "10.0.0.1")], Err("$flow"));
        check("$flow", &[("srcIP", "10.0.0.1"), ("dstIP", "::1")], Err("$flow"));
        check(
            "$flow",
            &[("srcIP", "10.0.0.2"), ("dstIP", "10.0.0.1")],
            Ok("(host 10.0.0.1 and host 10.0.0.2)"),
        );
    }

    #[test]
    fn a_flow_with_ports_is_one_that_compiles() {
        let values = [
            ("srcIP", "10.0.0.2"),
            ("dstIP", "10.0.0.1"),
            ("srcPort", "9"),
            ("dstPort", "80"),
            ("proto", "6"),
        ];
        let text = Template::parse("$flow").unwrap().fill_given(&given(&values).unwrap()).unwrap();
        assert!(text.contains("tcp") && text.contains("src port 80"), "{text}");
        for text in [text, "(host 10.0.0.1 and host 10.0.0.2)".to_string()] {
            Filter::compile(&text, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
        }
    }

    #[test]
    fn what_is_not_of_its_names_kind_is_refused() {
        for (name, value) in [
            ("srcIP", "10.0.0.1 or port 80"),
            ("srcIP", "10.0.0.1:9100"),
            ("srcIP", "10.0.0.0/8"),
            ("srcIP", "example.com"),
            ("srcIP", ""),
            ("srcIP", "fe80::1%eth0"),
            ("dstPort", "65536"),
            ("dstPort", "+80"),
            ("dstPort", "http"),
            ("dstPort", "80-90"),
            ("proto", "256"),
            ("vlan", "4096"),
            ("srcMAC", "02:00:00:00:00"),
            ("srcMAC", "02:00:00:00:00:0x"),
            ("srcMAC", "02:00:00:00:00:00:01"),
        ] {
            let bad = given(&[(name, value)]).unwrap_err();
            assert_eq!(bad.kind, GivenName::of(name).unwrap().kind(), "{name}={value}");
        }
        assert_eq!((GivenName::of("flow"), GivenName::of("host")), (None, None));
    }

    proptest! {
        #[test]
        fn no_text_gets_into_a_filter_but_letters_of_its_kind(name in 0..8usize, text in "[0-9a-fA-F:. x-]{0,24}|.{0,24}") {
            let mut given = Given::default();
            if given.set(GivenName::ALL[name], &text).is_ok() {
                let value = given.0[0].1.clone();
                prop_assert!(value.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte)), "{value}");
            }
        }
    }
}
