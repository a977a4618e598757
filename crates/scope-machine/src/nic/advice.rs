//! What stands in the way of capture on an interface, and of its truth: each with the line that fixes it.

use super::{Altered, SNAP_LEN_MAX, SUPPORTED, this_program};
use super::{Nic, Peer};
use scope_spelling::printable::shell_word;
use std::io;

/// A receive ring of the card with fewer entries than this is small where it can have more.
const RING_SMALL: u32 = 1024;
/// Entries that advice proposes at most: more only adds delay.
const RING_WANTED: u32 = 4096;
/// Offloads that join received packets, and ethtool's words for them.
const JOINING: [(&str, &str); 5] = [
    ("rx-gro", "gro"),
    ("rx-lro", "lro"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("rx-gro-list", "rx-gro-list"),
    ("rx-udp-gro-forwarding", "rx-udp-gro-forwarding"),
];

/// What a sender turns off so that it splits packets itself, TCP and UDP.
const SPLIT_EARLY: &str = "tso off tx-udp-segmentation off";
/// What a sender turns off so that it fills in checksums itself.
const FILL_IN_EARLY: &str = "tx off";

/// Interfaces under one that a remedy names.
const RECEIVERS_NAMED: usize = 3;

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
    /// One word for programs: `joined`, `nic_ring`, `split`, `long`, `checksums`, `checksums_sent`,
    /// `cut_by_block`, `cut_by_bound`.
    pub kind: &'static str,
    /// What it is.
    pub what: String,
    /// The line that fixes it.
    pub remedy: String,
}

impl Nic {
    /// What is missing to capture here; `permission` is the answer of `scope_source::afpacket::may_capture`.
    pub fn missing(&self, permission: &io::Result<()>) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut add = |what: String, remedy: String, refused| missing.push(Missing { what, remedy, refused });
        if let Err(cause) = permission {
            let (what, remedy) = match cause.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => (
                    "missing CAP_NET_RAW".to_string(),
                    format!("run as root, or once: setcap cap_net_raw=ep {}", this_program()),
                ),
                _ => (format!("no packet sockets: {cause}"), "use a kernel with CONFIG_PACKET".to_string()),
            };
            add(what, remedy, true);
        }
        if self.link_type.is_none() {
            let what = format!("link type of kind {} (ARPHRD) is not supported", self.link.kind);
            add(what, format!("supported are {}", SUPPORTED), true);
        }
        if !self.link.up {
            add(
                "the interface is down".to_string(),
                format!("ip link set dev {} up", shell_word(&self.name)),
                false,
            );
        } else if self.carrier == Some(false) {
            add(
                "no link: nothing is at the other end".to_string(),
                "look at cable, switch port or peer".to_string(),
                false,
            );
        }
        missing
    }
}

/// What makes capture on this interface lose or change packets, as far as its settings show.
pub fn advise(nic: &Nic) -> Vec<Advice> {
    let mut advice = Vec::new();
    let receivers = nic.receivers();
    let joiners: Vec<(&Nic, Vec<&str>)> =
        receivers.into_iter().map(|nic| (nic, joining(nic))).filter(|(_, words)| !words.is_empty()).collect();
    if !joiners.is_empty() {
        let words: Vec<String> =
            joiners.iter().map(|(nic, words)| format!("{} ({})", nic.name, words.join(", "))).collect();
        let what = match joiners.as_slice() {
            [(only, words)] if only.name == nic.name => {
                format!("{} joins received packets before capture sees them ({})", nic.name, words.join(", "))
            }
            _ => format!(
                "{} brings packets that were joined before capture sees them, by {}",
                nic.name,
                words.join(", ")
            ),
        };
        let lines: Vec<String> = joiners.iter().map(|(nic, words)| off_line(&nic.name, words)).collect();
        advice.push(Advice { kind: "joined", what, remedy: lines.join(" && ") });
    }
    if let Some(rings) = nic.rings.filter(|rings| rings.rx < RING_SMALL && rings.rx < rings.rx_max) {
        advice.push(Advice {
            kind: "nic_ring",
            what: format!(
                "{} has a receive ring of {} entries, and can have {}",
                nic.name, rings.rx, rings.rx_max
            ),
            remedy: format!("ethtool -G {} rx {}", shell_word(&nic.name), rings.rx_max.min(RING_WANTED)),
        });
    }
    advice
}

/// Offloads of this interface that are on and join received packets, in ethtool's words. On a loopback
/// interface packets are never split in the first place.
fn joining(nic: &Nic) -> Vec<&'static str> {
    let on = |feature: &str| nic.feature(feature) == Some(true) && !nic.loopback;
    JOINING.iter().filter(|(feature, _)| on(feature)).map(|(_, word)| *word).collect()
}

/// Advice about packets that aren't as they are on the wire. What was sent is fixed at this interface. What
/// was received so was joined here, or was sent so: then it is fixed at its sender, the `peer` of a virtual
/// pair.
pub fn altered_advice(nic: &Nic, peer: Option<&Peer>, altered: &Altered) -> Vec<Advice> {
    let mut advice = Vec::new();
    let mut add = |kind, packets: u64, what: &str, remedy: String| {
        if packets > 0 {
            advice.push(Advice { kind, what: format!("{} {what}", nic.name), remedy });
        }
    };
    let longer = format!("longer than its MTU of {} B: not as they are on the wire", nic.link.mtu);
    add(
        "joined",
        altered.joined,
        &format!("received packets {longer}"),
        received_remedy(nic, peer, SPLIT_EARLY),
    );
    add(
        "split",
        altered.split,
        &format!("sent packets {longer}"),
        format!("ethtool -K {} {SPLIT_EARLY}", shell_word(&nic.name)),
    );
    let joined_or_split = ["gro", "lro", "tso", "gso"];
    add("long", altered.long, &format!("packets {longer}"), off_line(&nic.name, &joined_or_split));
    add(
        "checksums",
        altered.unchecked.saturating_sub(altered.unchecked_sent),
        "received packets whose checksum is open (left to a card by their sender, or undone by joining): \
         tools will call them wrong",
        if nic.loopback { unfixable() } else { received_remedy(nic, peer, FILL_IN_EARLY) },
    );
    add(
        "checksums_sent",
        altered.unchecked_sent,
        "sent packets whose checksum the card has still to fill in: tools will call them wrong",
        if nic.loopback {
            unfixable()
        } else {
            format!("ethtool -K {} {FILL_IN_EARLY}", shell_word(&nic.name))
        },
    );
    advice
}

/// Where received packets are altered: by joining, if that is on, and at their sender, if that is no other
/// machine. What only passes packets on is fixed at the interfaces under it.
fn received_remedy(nic: &Nic, peer: Option<&Peer>, sender_words: &str) -> String {
    let receivers = nic.receivers();
    match receivers.as_slice() {
        [] => {
            format!(
                "at the interfaces under {}, or at the senders behind them: ethtool -K NAME gro off \
                 {sender_words}",
                nic.name
            )
        }
        [only] => receiver_remedy(only, peer.filter(|_| only.name == nic.name), sender_words),
        several => {
            let mut remedies: Vec<String> = several
                .iter()
                .take(RECEIVERS_NAMED)
                .map(|receiver| receiver_remedy(receiver, None, sender_words))
                .collect();
            remedies.dedup();
            if several.len() > RECEIVERS_NAMED {
                remedies.push(format!("the same for the other interfaces under {}", nic.name));
            }
            remedies.join("; and ")
        }
    }
}

fn receiver_remedy(nic: &Nic, peer: Option<&Peer>, sender_words: &str) -> String {
    let own = joining(nic);
    let own = (!own.is_empty()).then(|| off_line(&nic.name, &own));
    let sender = if nic.loopback {
        Some(format!("ethtool -K {} {sender_words}", shell_word(&nic.name)))
    } else if nic.is_driven_by("veth") {
        Some(peer.unwrap_or(&Peer::default()).line(&nic.name, sender_words))
    } else if nic.is_driven_by("tun") {
        Some(format!("in the virtual machine behind {}: ethtool -K ITS-INTERFACE {sender_words}", nic.name))
    } else if own.is_some() {
        None
    } else {
        Some(format!(
            "at their sender, a virtual machine or container of this machine: ethtool -K ITS-INTERFACE \
             {sender_words}"
        ))
    };
    let joint = if sender.as_ref().is_some_and(|sender| sender.contains(": ")) { "; and " } else { " && " };
    own.into_iter().chain(sender).collect::<Vec<_>>().join(joint)
}

/// On a loopback interface no switch fills them in.
fn unfixable() -> String {
    "no setting fixes it: packets that stay on this machine have no checksum; tools can skip the check \
     (tcpdump -K)"
        .to_string()
}

/// Advice about an interface some of whose packets were truncated without a snap length: `by_block` by the
/// kernel, whose blocks are too small for them, and `by_bound` to the most that is kept of a packet.
pub fn truncation_advice(name: &str, mtu: u32, by_block: u64, by_bound: u64) -> Vec<Advice> {
    let block = (by_block > 0).then(|| Advice {
        kind: "cut_by_block",
        what: format!(
            "packets of {name} are truncated: they don't fit into a block of the kernel's ring; its MTU is \
             {mtu} B"
        ),
        remedy: "a larger block= (pcap: a larger buffer=) keeps them whole".to_string(),
    });
    let bound = (by_bound > 0).then(|| Advice {
        kind: "cut_by_bound",
        what: format!(
            "packets of {name} are truncated to {SNAP_LEN_MAX} B, the most that is kept of one and that tools \
             read"
        ),
        remedy: format!(
            "ip link set dev {} gso_max_size 65536 gro_max_size 65536 (here, and on the peer of a veth pair)",
            shell_word(name)
        ),
    });
    block.into_iter().chain(bound).collect()
}

/// The line that turns offloads off.
fn off_line(name: &str, words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word} off")).collect();
    format!("ethtool -K {} {}", shell_word(name), words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::{Driver, Link, Namespace, RingSizes};
    use scope_packet::LinkType;

    #[test]
    fn an_interface_of_any_name_is_one_word_of_what_is_proposed() {
        let name = "a;reboot\u{1b}$(x)";
        let nic = Nic {
            name: name.to_string(),
            rings: Some(RingSizes { rx: 8, rx_max: 4096, tx: 8, tx_max: 8 }),
            ..nic()
        };
        let nic = Nic { features: Some(vec![("rx-gro".to_string(), true)]), ..nic };
        let all =
            Altered { joined: 1, split: 1, long: 1, unchecked: 2, unchecked_sent: 1, ..Altered::default() };
        let mut remedies: Vec<String> = advise(&nic).into_iter().map(|advice| advice.remedy).collect();
        remedies.extend(altered_advice(&nic, None, &all).into_iter().map(|advice| advice.remedy));
        remedies.extend(truncation_advice(name, 1500, 0, 1).into_iter().map(|advice| advice.remedy));
        let down = Nic { link: Link { up: false, ..nic.link }, ..nic };
        remedies.extend(down.missing(&Ok(())).into_iter().map(|missing| missing.remedy));
        assert!(remedies.len() >= 6, "{remedies:#?}");
        for remedy in &remedies {
            assert!(!remedy.contains(name) && !remedy.contains('\u{1b}'), "{remedy}");
        }
        assert!(
            remedies.iter().any(|remedy| remedy.contains(r"ethtool -G $'a;reboot\x1b$(x)' rx 4096")),
            "{remedies:#?}"
        );
    }

    fn nic() -> Nic {
        let link = Link { index: 2, kind: libc::ARPHRD_ETHER, up: true, running: true, mtu: 1500 };
        Nic {
            name: "eth0".to_string(),
            link,
            carrier: Some(true),
            link_type: Some(LinkType::ETHERNET),
            ..Nic::default()
        }
    }

    fn with_features(on: &[&str]) -> Nic {
        let all = JOINING.iter().map(|(name, _)| (name.to_string(), on.contains(name))).collect();
        Nic { features: Some(all), ..nic() }
    }

    #[test]
    fn joined_packets_are_named_with_the_line_that_fixes_them() {
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
    fn each_altered_packet_is_fixed_where_it_was_altered() {
        let check = |nic: &Nic, peer: Option<&Peer>, altered: Altered, expected: &[(&str, &str)]| {
            let found: Vec<_> = altered_advice(nic, peer, &altered)
                .into_iter()
                .map(|advice| (advice.kind, advice.remedy))
                .collect();
            let expected: Vec<_> =
                expected.iter().map(|(kind, remedy)| (*kind, remedy.to_string())).collect();
            assert_eq!(found, expected);
        };
        let driven_by = |name: &str, on: &[&str]| {
            let driver = Some(Driver { name: name.to_string(), ..Driver::default() });
            Nic { driver, ..with_features(on) }
        };
        let received = Altered { joined: 1, unchecked: 1, ..Altered::default() };
        let sent = Altered { split: 1, unchecked: 1, unchecked_sent: 1, ..Altered::default() };
        let peer = Peer { name: Some("oa".to_string()), namespace: Namespace::Named("red".to_string()) };
        let away = "ip netns exec red ethtool -K oa";
        let split = format!("{away} tso off tx-udp-segmentation off");
        let fill = format!("{away} tx off");
        // A pair: what its other end sends.
        check(&driven_by("veth", &[]), Some(&peer), received, &[("joined", &split), ("checksums", &fill)]);
        let (split, fill) =
            (format!("ethtool -K eth0 gro off && {split}"), format!("ethtool -K eth0 gro off && {fill}"));
        check(
            &driven_by("veth", &["rx-gro"]),
            Some(&peer),
            received,
            &[("joined", &split), ("checksums", &fill)],
        );
        // What this host sends, whatever the interface.
        let own = [
            ("split", "ethtool -K eth0 tso off tx-udp-segmentation off"),
            ("checksums_sent", "ethtool -K eth0 tx off"),
        ];
        check(&driven_by("veth", &["rx-gro"]), Some(&peer), sent, &own);
        check(&nic(), None, sent, &own);
        // A card that joins also undoes checksums.
        let joins = "ethtool -K eth0 gro off lro off";
        check(
            &with_features(&["rx-gro", "rx-lro"]),
            None,
            received,
            &[("joined", joins), ("checksums", joins)],
        );
        check(&nic(), None, Altered::default(), &[]);
        let remedy = |nic: &Nic| {
            altered_advice(nic, None, &received).pop().map(|advice| advice.remedy).unwrap_or_default()
        };
        assert!(
            remedy(&driven_by("tun", &[]))
                .contains("virtual machine behind eth0: ethtool -K ITS-INTERFACE tx off")
        );
        assert!(remedy(&driven_by("veth", &[])).contains("where eth0's other end is"));
        assert!(remedy(&nic()).starts_with("at their sender"));
        assert!(remedy(&Nic { loopback: true, ..nic() }).contains("tcpdump -K"));
    }

    #[test]
    fn what_only_passes_packets_on_is_fixed_at_the_interfaces_under_it() {
        let over = |driver: &str, below: Vec<Nic>| {
            let driver = Some(Driver { name: driver.to_string(), ..Driver::default() });
            Nic { name: "br0".to_string(), driver, below, ..with_features(&["rx-gro"]) }
        };
        let card = || with_features(&["rx-gro"]);
        let other = || Nic { name: "eth1".to_string(), ..card() };
        let received = Altered { joined: 1, ..Altered::default() };
        let check = |nic: &Nic, settings: &[&str], packets: &str| {
            assert_eq!(advise(nic).into_iter().map(|advice| advice.remedy).collect::<Vec<_>>(), settings);
            assert_eq!(altered_advice(nic, None, &received)[0].remedy, packets);
        };
        let line = "ethtool -K eth0 gro off";
        check(&over("bridge", vec![card()]), &[line], line);
        check(&over("802.1Q VLAN Support", vec![over("bonding", vec![card()])]), &[line], line);
        let both = "ethtool -K eth0 gro off && ethtool -K eth1 gro off";
        check(&over("bridge", vec![card(), other()]), &[both], &both.replace(" && ", "; and "));
        let unknown = "at the interfaces under br0, or at the senders behind them: ethtool -K NAME gro off \
            tso off tx-udp-segmentation off";
        check(&over("bridge", vec![]), &[], unknown);
        // A tunnel joins by itself, though it lies on a card.
        check(&over("vxlan", vec![card()]), &["ethtool -K br0 gro off"], "ethtool -K br0 gro off");
        let many = vec![card(), other(), card(), other()];
        assert!(
            altered_advice(&over("bridge", many), None, &received)[0]
                .remedy
                .ends_with("the other interfaces under br0")
        );
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
    fn what_is_missing_is_reported_with_its_remedy() {
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
        check(
            &nic(),
            Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
            &[("no packet sockets", "CONFIG_PACKET", true)],
        );
        let down = Nic { link: Link { up: false, ..nic().link }, carrier: None, ..nic() };
        check(&down, Ok(()), &[("is down", "ip link set dev eth0 up", false)]);
        check(&Nic { carrier: Some(false), ..nic() }, Ok(()), &[("no link", "cable", false)]);
        let can = Nic { link: Link { kind: libc::ARPHRD_CAN, ..nic().link }, link_type: None, ..nic() };
        check(&can, Ok(()), &[("kind 280", "Ethernet", true)]);
    }
}
