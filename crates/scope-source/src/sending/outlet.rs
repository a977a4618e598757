//! The interface that packets are sent out of: which packets it takes, and why none can be sent.

use super::counts::Refusal;
use scope_fault::Fault;
use scope_machine::nic::{Ethtool, Nic, interface_names, link_type, this_program};
use scope_packet::LinkType;
use scope_spelling::printable::shell_word;
use std::io;

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;
/// Bytes of a VLAN tag, which the system lets pass beyond the MTU.
const TAG_BYTES: usize = 4;
/// What an Ethernet header says of a frame with such a tag.
const TAGGED: [u8; 2] = [0x81, 0x00];
/// Kinds of interfaces that the system sends packets out of with a link header that is known.
const KINDS: &str = "Ethernet, loopback, raw IP (tun, ipip, sit)";

/// An interface that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: i32,
    /// Link type of the packets that it takes.
    pub link_type: LinkType,
    /// Most bytes behind the link header.
    pub mtu: u32,
    /// Queues that the kernel has for what is sent; 1 where that is unknown.
    pub queues: u32,
}

/// Why nothing can be sent out of an interface.
#[derive(Debug)]
pub enum OutletFault {
    /// There is no such interface; those that there are, comma separated.
    Unknown(String),
    /// It is switched off.
    Off,
    /// Nothing is at its other end.
    NoLink,
    /// Its packets have a link header that no capture file has: its ARPHRD number, and the kinds that go.
    Kind(u16, &'static str),
    /// The system doesn't say anything of interfaces.
    System(io::Error),
}

impl OutletFault {
    /// As a fault of a setting that names the interface so.
    pub fn into_fault(self, of: Fault, name: &str) -> Fault {
        match self {
            OutletFault::Unknown(known) => {
                of.cause(format!("no interface '{name}'")).remedy(format!("there are: {known}"))
            }
            OutletFault::Off => of
                .cause(format!("interface {name} is down"))
                .remedy(format!("ip link set {} up", shell_word(name))),
            OutletFault::NoLink => {
                let cause = format!("interface {name} has no link: nothing is at its other end");
                of.cause(cause).remedy("plug it in, or set its other end up")
            }
            OutletFault::Kind(kind, known) => {
                let cause =
                    format!("interface {name} is of kind {kind} (ARPHRD), which can't be sent out of");
                of.cause(cause).remedy(format!("supported are {known}"))
            }
            OutletFault::System(error) => of.error(&error),
        }
    }
}

/// Why no socket that sends was opened, as a fault of a setting that names the interface so.
pub fn not_opened(error: &io::Error, of: Fault, name: &str) -> Fault {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            let cause = format!("no permission to send on '{name}': missing CAP_NET_RAW");
            let program = this_program();
            of.cause(cause).remedy(format!("run as root, or once: setcap cap_net_raw=ep {program}"))
        }
        _ => of.error(error),
    }
}

impl Outlet {
    /// Looks at the interface named `name`.
    ///
    /// # Errors
    /// All that is against sending there, but the right to.
    pub fn look(name: &str) -> Result<Outlet, Vec<OutletFault>> {
        let mut ethtool = Ethtool::open().map_err(|error| vec![OutletFault::System(error)])?;
        // The system finds one by an alternative name, too, by which nothing else of a run knows it.
        let known = interface_names();
        let nic = known.iter().any(|known| known == name).then(|| Nic::look(name, &mut ethtool));
        let Some(nic) = nic.flatten() else {
            return Err(vec![OutletFault::Unknown(known.join(", "))]);
        };
        let kind = nic.link.kind;
        let link_type = link_type(kind).filter(|known| [LinkType::ETHERNET, LinkType::RAW].contains(known));
        let mut faults = Vec::new();
        match (nic.link.up, nic.link.running) {
            (false, _) => faults.push(OutletFault::Off),
            (true, false) => faults.push(OutletFault::NoLink),
            (true, true) => {}
        }
        match link_type {
            Some(link_type) if faults.is_empty() => Ok(Outlet {
                name: name.to_string(),
                index: nic.link.index,
                link_type,
                mtu: nic.link.mtu,
                queues: nic.kernel_queues.map_or(1, |(_, sending)| sending.max(1)),
            }),
            Some(_) => Err(faults),
            None => {
                faults.push(OutletFault::Kind(kind, KINDS));
                Err(faults)
            }
        }
    }

    /// Whether it takes a packet of this link type that begins with `data` and has `len` bytes.
    pub(super) fn takes(&self, link_type: LinkType, data: &[u8], len: usize) -> Result<(), Refusal> {
        if link_type != self.link_type {
            return Err(Refusal::LinkType);
        }
        let head = if self.link_type == LinkType::ETHERNET { ETHERNET_BYTES } else { 0 };
        if len < head.max(1) {
            return Err(Refusal::TooShort);
        }
        let is_tagged = head > 0 && data.get(head - 2..head) == Some(&TAGGED);
        let len_max = self.mtu as usize + head + if is_tagged { TAG_BYTES } else { 0 };
        if len > len_max { Err(Refusal::TooLong) } else { Ok(()) }
    }

    /// Bytes of a packet at most, its link header and a VLAN tag included.
    pub fn tagged_bytes_max(&self) -> usize {
        self.mtu as usize + ETHERNET_BYTES + TAG_BYTES
    }

    /// The same without a tag.
    pub fn bytes_max(&self) -> u64 {
        let head = if self.link_type == LinkType::ETHERNET { ETHERNET_BYTES } else { 0 };
        u64::from(self.mtu) + head as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_takes_its_own_link_type_and_what_fits_its_mtu() {
        let outlet = |link_type| Outlet { name: "x".to_string(), index: 1, link_type, mtu: 1500, queues: 1 };
        let check = |own, other, head: &[u8], len, expected| {
            let mut data = [head, &[0; 2000]].concat();
            data.truncate(len);
            assert_eq!(outlet(own).takes(other, &data, len), expected, "{own:?} {other:?} {len}");
        };
        let (ethernet, raw) = (LinkType::ETHERNET, LinkType::RAW);
        check(ethernet, ethernet, &[], 1514, Ok(()));
        check(ethernet, ethernet, &[], 1515, Err(Refusal::TooLong));
        check(ethernet, ethernet, &[], 14, Ok(()));
        check(ethernet, ethernet, &[], 13, Err(Refusal::TooShort));
        check(ethernet, ethernet, &[], 0, Err(Refusal::TooShort));
        check(ethernet, raw, &[], 100, Err(Refusal::LinkType));
        let tagged = [&[0; 12][..], &TAGGED].concat();
        check(ethernet, ethernet, &tagged, 1518, Ok(()));
        check(ethernet, ethernet, &tagged, 1519, Err(Refusal::TooLong));
        check(raw, raw, &[], 1500, Ok(()));
        check(raw, raw, &tagged, 1501, Err(Refusal::TooLong));
        check(raw, raw, &[], 0, Err(Refusal::TooShort));
        check(raw, ethernet, &[], 100, Err(Refusal::LinkType));
    }

    #[test]
    fn an_interface_that_is_not_there_is_said_with_those_that_are() {
        match &Outlet::look("nosuch0").unwrap_err()[..] {
            [OutletFault::Unknown(known)] => assert!(known.contains("lo"), "{known}"),
            other => panic!("{other:?}"),
        }
    }
}
