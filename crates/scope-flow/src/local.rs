//! Which addresses are local: those whose traffic has rows of its own.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A network: its address, and the bits of that which count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Any address in it.
    pub address: IpAddr,
    /// How many bits of that count.
    pub bits: u8,
}

/// What counts as local.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// The addresses of the interface itself; all, where it has none.
    #[default]
    Own,
    /// All.
    Any,
    /// Those in one of these.
    Nets(Vec<Net>),
}

/// The rule, and what interfaces have now.
#[derive(Clone, Debug, Default)]
pub struct Local {
    rule: Rule,
    /// Addresses of each interface that has some.
    own: HashMap<Arc<str>, HashSet<IpAddr>>,
}

impl Net {
    /// Its first address: no bit behind those that count is set.
    pub fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits.min(32))).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits.min(128))).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(address)) => {
                let rest = 32 - u32::from(self.bits.min(32));
                u64::from(net.to_bits()) >> rest == u64::from(address.to_bits()) >> rest
            }
            (IpAddr::V6(net), IpAddr::V6(address)) => {
                let rest = 128 - u32::from(self.bits.min(128));
                net.to_bits().checked_shr(rest) == address.to_bits().checked_shr(rest)
            }
            _ => false,
        }
    }
}

impl Local {
    /// By this rule; no interface has an address yet.
    pub fn new(rule: Rule) -> Local {
        Local { rule, own: HashMap::new() }
    }

    /// Whether interfaces' own addresses are asked for.
    pub fn is_by_interface(&self) -> bool {
        self.rule == Rule::Own
    }

    /// The addresses that interfaces have from here on.
    pub fn set_own(&mut self, own: HashMap<Arc<str>, HashSet<IpAddr>>) {
        self.own = own;
    }

    /// Whether an address is local where it was seen.
    pub fn is_local(&self, interface: &str, address: IpAddr) -> bool {
        match &self.rule {
            Rule::Any => true,
            Rule::Nets(nets) => nets.iter().any(|net| net.contains(address)),
            Rule::Own => self.own.get(interface).is_none_or(|own| own.contains(&address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nets_are_told_apart_by_their_bits() {
        let check = |net: &str, bits: u8, address: &str, expected: bool| {
            let net = Net { address: net.parse().unwrap(), bits };
            assert_eq!(net.contains(address.parse().unwrap()), expected, "{net:?} {address}");
        };
        check("10.0.0.0", 8, "10.255.0.1", true);
        check("10.0.0.0", 8, "11.0.0.1", false);
        check("0.0.0.0", 0, "200.1.2.3", true);
        check("192.0.2.7", 32, "192.0.2.6", false);
        check("2001:db8::", 32, "2001:db8:ffff::1", true);
        check("2001:db8::", 32, "2001:db9::1", false);
        check("::", 0, "fe80::1", true);
        check("::", 0, "10.0.0.1", false);
    }

    #[test]
    fn a_net_begins_where_its_bits_end() {
        let check = |address: &str, bits: u8, first: &str| {
            let net = Net { address: address.parse().unwrap(), bits };
            assert_eq!(net.first(), first.parse::<IpAddr>().unwrap(), "{net:?}");
        };
        check("10.0.0.1", 8, "10.0.0.0");
        check("10.0.0.1", 32, "10.0.0.1");
        check("255.255.255.255", 0, "0.0.0.0");
        check("192.168.7.255", 23, "192.168.6.0");
        check("2001:db8:1::1", 32, "2001:db8::");
        check("2001:db8::1", 128, "2001:db8::1");
        check("ffff::1", 0, "::");
    }

    #[test]
    fn an_interface_without_addresses_has_all_of_them() {
        let mut local = Local::new(Rule::Own);
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        assert!(local.is_local("eth0", address));
        local.set_own(HashMap::from([("eth0".into(), HashSet::from(["192.0.2.2".parse().unwrap()]))]));
        assert!(!local.is_local("eth0", address) && local.is_local("mirror", address));
    }
}
