//! Network cards as capture needs to know them: what there is, what is missing to capture there, what a card
//! loses or changes before capture sees it.
//!
//! | file | what it holds |
//! |---|---|
//! | `ethtool` | the driver's answers: the system calls |
//! | [`answers`] | what these answers mean |
//! | `counters` | what the card and its driver counted since a run began |
//! | `kinds`, [`netlink`], `altered` | kinds of interfaces; messages of the route socket; packets that aren't as on the wire |
//! | `peer` | the other end of a virtual pair |
//! | `advice` | what stands in the way of capture, and of its truth, with the line that fixes it |
//!
//! What a driver doesn't answer is unknown (`None`) and never guessed. Everything here works without
//! privileges.

pub mod addresses;
mod advice;
mod altered;
pub mod answers;
pub(crate) mod counters;
mod ethtool;
mod kinds;
pub mod netlink;
pub(crate) mod peer;

pub use advice::{Advice, Missing, advise, altered_advice, truncation_advice};
pub use altered::Altered;
pub use answers::{Driver, Queues, RingSizes, Timestamping};
pub use counters::{NicCounters, Softnet};
pub use ethtool::{Ethtool, Link};
pub use kinds::{SUPPORTED, interface_names, link_type};
pub use peer::{Namespace, Peer, Peers};

use scope_packet::LinkType;
use std::path::{Path, PathBuf};

/// Snap length in bytes at most: what a segment keeps of a packet, and the longest that libpcap reads from a
/// file.
pub const SNAP_LEN_MAX: u32 = 256 << 10;
/// Path of this program, for commands that are to change it.
pub fn this_program() -> String {
    std::env::current_exe().map_or_else(|_| "wirescope".to_string(), scope_spelling::printable::shell_word)
}

/// Interfaces that are listed at most.
pub const LISTED_MAX: usize = 4096;

/// Interfaces under one that are looked at.
const BELOW_MAX: usize = 16;
/// Levels of them: a VLAN of a bond of cards has two.
const LEVELS_MAX: u32 = 3;
/// Drivers of interfaces that only pass on what those under them have received.
const PASSING_ON: [&str; 6] = ["bridge", "bonding", "team", "802.1Q VLAN Support", "macvlan", "ipvlan"];

/// One network interface. `None` is unknown: neither kernel nor driver answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// What the kernel says of it.
    pub link: Link,
    /// Something is at the other end, says the driver.
    pub carrier: Option<bool>,
    /// Link type that it is captured with; `None` where capture doesn't support it.
    pub link_type: Option<LinkType>,
    /// Its packets come back to this machine.
    pub loopback: bool,
    /// Speed, bits/s.
    pub bits_per_s: Option<u64>,
    /// Its driver.
    pub driver: Option<Driver>,
    /// Queues, as the driver says.
    pub queues: Option<Queues>,
    /// Queues that the kernel has for it, receiving and sending.
    pub kernel_queues: Option<(u32, u32)>,
    /// Entries of the card's rings.
    pub rings: Option<RingSizes>,
    /// Who can stamp packets.
    pub timestamping: Option<Timestamping>,
    /// Offloads by name, and whether each is on.
    pub features: Option<Vec<(String, bool)>>,
    /// The interfaces that it consists of: ports of a bridge, cards of a bond, what a VLAN lies on.
    pub below: Vec<Nic>,
}

impl Nic {
    /// Looks at the interface named `name`; `None` where there is none in this network namespace.
    pub fn look(name: &str, ethtool: &mut Ethtool) -> Option<Nic> {
        Nic::look_down(name, ethtool, LEVELS_MAX)
    }

    fn look_down(name: &str, ethtool: &mut Ethtool, levels: u32) -> Option<Nic> {
        let link = ethtool.link(name).ok()?;
        let folder = sys_folder(name, link.index);
        let names = folder.as_deref().filter(|_| levels > 0).map(names_below).unwrap_or_default();
        let below = names.iter().filter_map(|name| Nic::look_down(name, ethtool, levels - 1)).collect();
        Some(Nic {
            name: name.to_string(),
            link,
            carrier: number(folder.as_deref(), "carrier").map(|carrier| carrier != 0),
            link_type: link_type(link.kind),
            loopback: link.kind == libc::ARPHRD_LOOPBACK,
            bits_per_s: number(folder.as_deref(), "speed")
                .filter(|megabits| *megabits > 0)
                .map(|megabits| megabits as u64 * 1_000_000),
            driver: ethtool.driver(name).ok(),
            queues: ethtool.queues(name).ok(),
            kernel_queues: folder.as_deref().and_then(kernel_queues),
            rings: ethtool.rings(name).ok(),
            timestamping: ethtool.timestamping(name).ok(),
            features: ethtool.features(name).ok(),
            below,
        })
    }

    /// All interfaces of this network namespace, by number; at most [`LISTED_MAX`].
    pub fn all(ethtool: &mut Ethtool) -> Vec<Nic> {
        let mut nics: Vec<Nic> =
            interface_names().iter().take(LISTED_MAX).filter_map(|name| Nic::look(name, ethtool)).collect();
        nics.sort_by_key(|nic| nic.link.index);
        nics
    }

    /// Whether its driver names itself so.
    pub fn is_driven_by(&self, driver: &str) -> bool {
        self.driver.as_ref().is_some_and(|known| known.name == driver)
    }

    /// Who receives what comes in here: itself, or the interfaces under it, as far as they are known.
    pub fn receivers(&self) -> Vec<&Nic> {
        match PASSING_ON.iter().any(|driver| self.is_driven_by(driver)) {
            true => self.below.iter().flat_map(Nic::receivers).collect(),
            false => vec![self],
        }
    }

    /// Whether an offload is on; `None` where the driver says nothing of it.
    pub fn feature(&self, name: &str) -> Option<bool> {
        self.features.as_ref()?.iter().find(|(known, _)| known == name).map(|(_, on)| *on)
    }
}

/// The folder of an interface under `/sys`. After a thread has entered a network namespace, `/sys` may still
/// show the one that it came from: then the number is another, or the name isn't there, and nothing of it is
/// believed.
fn sys_folder(name: &str, index: i32) -> Option<PathBuf> {
    let folder = Path::new("/sys/class/net").join(name);
    (number(Some(&folder), "ifindex") == Some(i64::from(index))).then_some(folder)
}

fn number(folder: Option<&Path>, file: &str) -> Option<i64> {
    std::fs::read_to_string(folder?.join(file)).ok()?.trim().parse().ok()
}

/// Names of the interfaces that one lies on, sorted.
fn names_below(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let lower =
        |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("lower_").map(String::from);
    let mut names: Vec<String> = entries.flatten().filter_map(lower).take(BELOW_MAX).collect();
    names.sort();
    names
}

fn kernel_queues(folder: &Path) -> Option<(u32, u32)> {
    let names: Vec<String> = std::fs::read_dir(folder.join("queues"))
        .ok()?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count() as u32;
    Some((count("rx-"), count("tx-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_is_listed_with_what_the_kernel_says_of_it() {
        let nics = Nic::all(&mut Ethtool::open().unwrap());
        let loopback = nics.iter().find(|nic| nic.name == "lo").expect("a loopback interface");
        assert!(loopback.loopback && loopback.link.index > 0 && loopback.link.mtu > 0);
        assert_eq!(loopback.link_type, Some(LinkType::ETHERNET));
        assert_eq!(loopback.rings, None, "unknown, not 0");
        assert!(nics.is_sorted_by_key(|nic| nic.link.index));
    }

    #[test]
    fn what_sys_says_of_another_interface_of_that_name_is_not_believed() {
        assert!(sys_folder("lo", i32::MAX).is_none());
        assert!(sys_folder("no-such-iface0", 1).is_none());
    }
}
