//! What stands in the way of capture on an interface, and of its truth: each with the line that mends it.

use super::Nic;
use crate::spec::SNAP_LEN_MAX;
use crate::{Altered, afpacket};
use std::io;

/// A receive ring of the card with fewer entries than this is small where it can have more.
const RING_SMALL: u32 = 1024;
/// Entries that are asked for at most: more only adds delay.
const RING_WANTED: u32 = 4096;
/// Offloads that join received packets, and ethtool's words for them.
const JOINING: [(&str, &str); 5] = [
    ("rx-gro", "gro"),
    ("rx-lro", "lro"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("rx-gro-list", "rx-gro-list"),
    ("rx-udp-gro-forwarding", "rx-udp-gro-forwarding"),
];

/// Why an interface can't be captured, or brings nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// What to do about it; empty: nothing can be done from here.
    pub remedy: String,
    /// Capture is refused until then; else it begins, and waits.
    pub refused: bool,
}

/// Something that makes capture lose or change packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// One word for programs: `joined`, `nic_ring`, `split`, `checksums`.
    pub kind: &'static str,
    /// What it is.
    pub what: String,
    /// The line that mends it.
    pub remedy: String,
}

impl Nic {
    /// What is missing to capture here; `permission` is the answer of [`afpacket::may_capture`].
    pub fn missing(&self, permission: &io::Result<()>) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut add = |what: String, remedy: String, refused| missing.push(Missing { what, remedy, refused });
        if let Err(cause) = permission {
            let (what, remedy) = match cause.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => (
                    "missing CAP_NET_RAW".to_string(),
                    format!("run as root, or once: setcap cap_net_raw,cap_net_admin,cap_ipc_lock=ep {}", crate::this_program()),
                ),
                _ => (format!("no packet sockets: {cause}"), "use a kernel with CONFIG_PACKET".to_string()),
            };
            add(what, remedy, true);
        }
        if self.link_type.is_none() {
            let what = format!("link type of kind {} (ARPHRD) is not supported", self.link.kind);
            add(what, format!("supported are {}", afpacket::SUPPORTED), true);
        }
        if !self.link.up {
            add("the interface is down".to_string(), format!("ip link set dev {} up", self.name), false);
        } else if self.carrier == Some(false) {
            add("no link: nothing is at the other end".to_string(), "look at cable, switch port or peer".to_string(), false);
        }
        missing
    }
}

/// What makes capture on this interface lose or change packets, as far as its settings tell.
pub fn advise(nic: &Nic) -> Vec<Advice> {
    let mut advice = Vec::new();
    let joining: Vec<&str> =
        JOINING.iter().filter(|(feature, _)| nic.feature(feature) == Some(true)).map(|(_, word)| *word).collect();
    // On a loopback interface packets are never cut in the first place.
    if !joining.is_empty() && !nic.loopback {
        advice.push(Advice {
            kind: "joined",
            what: format!("{} joins received packets before capture sees them ({})", nic.name, joining.join(", ")),
            remedy: off_line(&nic.name, &joining),
        });
    }
    if let Some(rings) = nic.rings.filter(|rings| rings.rx < RING_SMALL && rings.rx < rings.rx_max) {
        advice.push(Advice {
            kind: "nic_ring",
            what: format!("{} has a receive ring of {} entries, and can have {}", nic.name, rings.rx, rings.rx_max),
            remedy: format!("ethtool -G {} rx {}", nic.name, rings.rx_max.min(RING_WANTED)),
        });
    }
    advice
}

/// What is said when packets longer than the interface's MTU came: `joined` of received ones, `split` of those that this host sent
/// and the card is to cut.
pub fn superpacket_advice(name: &str, mtu: u32, altered: &Altered) -> Vec<Advice> {
    let Altered { joined, split, long, unchecked, .. } = *altered;
    let mut advice = Vec::new();
    let mut add = |kind, packets: u64, what: String, remedy: String| {
        if packets > 0 {
            advice.push(Advice { kind, what, remedy });
        }
    };
    let longer = format!("longer than its MTU of {mtu} B: not as they are on the wire");
    add("joined", joined, format!("{name} received packets {longer}"), off_line(name, &["gro", "lro"]));
    add("split", split, format!("{name} sent packets {longer}"), off_line(name, &["tso", "gso"]));
    add("long", long, format!("{name} brings packets {longer}"), off_line(name, &["gro", "lro", "tso", "gso"]));
    add(
        "checksums",
        unchecked,
        format!("{name} brings packets whose checksum the card has still to fill in: tools will call them wrong"),
        off_line(name, &["tx"]),
    );
    advice
}

/// What is to be said of an interface some of whose packets were cut though nobody asked for it: by the kernel, whose blocks are too
/// small for `by_block` of them, or to the most that is kept of a packet, as `by_bound` were.
pub fn cut_advice(name: &str, mtu: u32, by_block: u64, by_bound: u64) -> Vec<Advice> {
    let block = (by_block > 0).then(|| Advice {
        kind: "cut_by_block",
        what: format!("packets of {name} are cut: they don't fit into a block of the kernel's ring; its MTU is {mtu} B"),
        remedy: "a larger block= (pcap: a larger buffer=) takes them whole".to_string(),
    });
    let bound = (by_bound > 0).then(|| Advice {
        kind: "cut_by_bound",
        what: format!("packets of {name} are cut to {SNAP_LEN_MAX} B, the most that is kept of one and that tools read"),
        remedy: format!("ip link set dev {name} gso_max_size 65536 gro_max_size 65536 (here, and on the peer of a veth pair)"),
    });
    block.into_iter().chain(bound).collect()
}

/// The line that turns offloads off.
fn off_line(name: &str, words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word} off")).collect();
    format!("ethtool -K {name} {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::{Link, RingSizes};
    use scope_packet::LinkType;

    fn nic() -> Nic {
        let link = Link { index: 2, kind: libc::ARPHRD_ETHER, up: true, running: true, mtu: 1500 };
        Nic { name: "eth0".to_string(), link, carrier: Some(true), link_type: Some(LinkType::ETHERNET), ..Nic::default() }
    }

    fn with_features(on: &[&str]) -> Nic {
        let all = JOINING.iter().map(|(name, _)| (name.to_string(), on.contains(name))).collect();
        Nic { features: Some(all), ..nic() }
    }

    #[test]
    fn joined_packets_are_named_with_the_line_that_mends_them() {
        let check = |nic: &Nic, expected: &[&str]| {
            let remedies: Vec<String> = advise(nic).into_iter().map(|advice| advice.remedy).collect();
            assert_eq!(remedies, expected);
        };
        check(&with_features(&["rx-gro", "rx-lro"]), &["ethtool -K eth0 gro off lro off"]);
        check(&with_features(&["rx-gro-hw"]), &["ethtool -K eth0 rx-gro-hw off"]);
        check(&with_features(&[]), &[]);
        check(&nic(), &[]); // a driver that doesn't answer is not accused
        check(&Nic { loopback: true, ..with_features(&["rx-gro"]) }, &[]);
    }

    #[test]
    fn a_small_ring_is_named_where_it_can_be_larger() {
        let check = |rx, rx_max, expected: &[&str]| {
            let nic = Nic { rings: Some(RingSizes { rx, rx_max, tx: 0, tx_max: 0 }), ..nic() };
            let remedies: Vec<String> = advise(&nic).into_iter().map(|advice| advice.remedy).collect();
            assert_eq!(remedies, expected);
        };
        check(256, 4096, &["ethtool -G eth0 rx 4096"]);
        check(512, 16384, &["ethtool -G eth0 rx 4096"]);
        check(256, 511, &["ethtool -G eth0 rx 511"]);
        check(256, 256, &[]);
        check(1024, 4096, &[]);
    }

    #[test]
    fn what_is_missing_is_told_with_its_remedy() {
        let check = |nic: &Nic, permission: io::Result<()>, expected: &[(&str, &str, bool)]| {
            let missing = nic.missing(&permission);
            assert_eq!(missing.len(), expected.len(), "{missing:?}");
            for (missing, (what, remedy, refused)) in missing.iter().zip(expected) {
                assert!(missing.what.contains(what) && missing.remedy.contains(remedy), "{missing:?}");
                assert_eq!(missing.refused, *refused);
            }
        };
        check(&nic(), Ok(()), &[]);
        check(&nic(), Err(io::Error::from_raw_os_error(libc::EPERM)), &[("CAP_NET_RAW", "setcap", true)]);
        check(&nic(), Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)), &[("no packet sockets", "CONFIG_PACKET", true)]);
        let down = Nic { link: Link { up: false, ..nic().link }, carrier: None, ..nic() };
        check(&down, Ok(()), &[("is down", "ip link set dev eth0 up", false)]);
        check(&Nic { carrier: Some(false), ..nic() }, Ok(()), &[("no link", "cable", false)]);
        let can = Nic { link: Link { kind: libc::ARPHRD_CAN, ..nic().link }, link_type: None, ..nic() };
        check(&can, Ok(()), &[("kind 280", "Ethernet", true)]);
    }
}
