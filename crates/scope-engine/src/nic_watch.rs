//! The network cards under a run's live sources: notes at the start and as packets tell, counters each
//! second. All of it stands apart from packet accounting.

use crate::interfaces::InterfaceStatus;
use crate::plan::SourceEntry;
use scope_events::counts;
use scope_events::fact::Counters;
use scope_machine::nic::Altered;
use scope_machine::nic::{
    Advice, Ethtool, Link, Nic, NicCounters, Peer, Peers, Softnet, advise, altered_advice, truncation_advice,
};
use scope_source::spec::Pattern;
use std::collections::BTreeMap;

/// Interfaces that are watched at most.
const WATCHED_MAX: usize = 64;

/// What one network card did since the run began.
#[derive(Clone, Debug, Default)]
pub struct NicStatus {
    /// Its interface.
    pub interface: String,
    /// The kernel's counters of it, by their names in `/sys/class/net/NAME/statistics`; empty: unknown.
    pub counters: BTreeMap<String, u64>,
    /// Those of the driver's own counters that count losses.
    pub driver: BTreeMap<String, u64>,
    /// Packets that aren't as they are on the wire.
    pub altered: Altered,
    /// What the kernel says of the interface; `None`: it isn't there.
    pub link: Option<Link>,
    /// What was noted of it.
    pub notes: Vec<Advice>,
}

impl NicStatus {
    /// As summary and log have it.
    fn facts(&self) -> counts::Nic {
        let note = |note: &Advice| counts::Note {
            kind: note.kind.into(),
            what: note.what.clone(),
            remedy: note.remedy.clone(),
        };
        let link = |link: Link| counts::Link {
            up: Some(link.up),
            running: Some(link.running),
            mtu: Some(link.mtu.into()),
        };
        counts::Nic {
            counters: Counters(self.counters.clone()),
            driver: self.driver.clone(),
            altered: altered_facts(&self.altered),
            link: self.link.map(link),
            notes: self.notes.iter().map(note).collect(),
        }
    }

    /// Packets that a counter counts; 0 where it isn't known.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

fn altered_facts(altered: &Altered) -> counts::Altered {
    let Altered { joined, split, unchecked, unchecked_sent, long, sliced, cut_by_block, cut_by_bound } =
        *altered;
    counts::Altered { joined, split, long, unchecked, unchecked_sent, sliced, cut_by_block, cut_by_bound }
}

/// The object `nic`: an entry for each interface.
pub(crate) fn nic_facts(nics: &[NicStatus]) -> BTreeMap<String, counts::Nic> {
    nics.iter().map(|nic| (nic.interface.clone(), nic.facts())).collect()
}

/// Watches the cards of one run. What it needs open it opens at the beginning.
pub(crate) struct NicWatch {
    ethtool: Option<Ethtool>,
    peers: Option<Peers>,
    watched: Vec<Watched>,
    softnet_before: Option<Softnet>,
    /// Notes that nobody has said yet.
    untold: Vec<Advice>,
    /// Packets that are cut although no snap length asked for it: more than notes.
    cuts_untold: Vec<Advice>,
}

/// One card.
struct Watched {
    counters: NicCounters,
    status: NicStatus,
    /// The other end of a virtual pair: found while there are rights to look for it.
    peer: Option<Peer>,
    /// Kinds that packets have told.
    told: Vec<&'static str>,
}

impl NicWatch {
    /// Begins with the interfaces that `sources` name; each counter's growth counts from here. Before rights
    /// are given up.
    pub(crate) fn begin(sources: &[SourceEntry]) -> NicWatch {
        let live = sources.iter().filter_map(|entry| entry.plan.interface());
        let live: Vec<&str> = live.collect();
        let ethtool = if live.is_empty() { None } else { Ethtool::open().ok() };
        let softnet_before = if live.is_empty() { None } else { Softnet::now() };
        let peers = if live.is_empty() { None } else { Peers::open().ok() };
        let mut watch = NicWatch {
            ethtool,
            peers,
            watched: Vec::new(),
            softnet_before,
            untold: Vec::new(),
            cuts_untold: Vec::new(),
        };
        for name in live.into_iter().filter(|name| !Pattern::new(name).is_glob()) {
            watch.follow(name);
        }
        watch
    }

    fn follow(&mut self, interface: &str) {
        if self.watched.len() >= WATCHED_MAX
            || self.watched.iter().any(|nic| nic.status.interface == interface)
        {
            return;
        }
        let counters = NicCounters::begin(interface, self.ethtool.as_mut());
        let nic = self.ethtool.as_mut().and_then(|ethtool| Nic::look(interface, ethtool));
        let notes = nic.as_ref().map(advise).unwrap_or_default();
        self.untold.extend(notes.iter().cloned());
        let pair = nic.as_ref().filter(|nic| nic.is_driven_by("veth"));
        let peer = pair.and_then(|nic| self.peers.as_ref()?.of(nic.link.index));
        let link = nic.map(|nic| nic.link);
        let status = NicStatus { interface: interface.to_string(), notes, link, ..NicStatus::default() };
        self.watched.push(Watched { counters, status, peer, told: Vec::new() });
    }

    /// Reads all counters, those of interfaces that have come since included; `seen` is what capture says of
    /// them.
    pub(crate) fn look(&mut self, seen: &[InterfaceStatus]) {
        for entry in seen {
            self.follow(&entry.interface);
        }
        for Watched { counters, status, peer, told } in &mut self.watched {
            counters.look(self.ethtool.as_mut());
            status.counters = counters.kernel().clone();
            status.driver = counters.driver().clone();
            if let Some(ethtool) = &self.ethtool {
                status.link = ethtool.link(&status.interface).ok();
            }
            status.altered = altered(&status.interface, seen);
            if kinds(&status.altered) > told.len() {
                // Its settings may have changed since the beginning.
                let nic = self.ethtool.as_mut().and_then(|ethtool| Nic::look(&status.interface, ethtool));
                let nic = nic.unwrap_or_else(|| Nic { name: status.interface.clone(), ..Nic::default() });
                let (cuts, notes): (Vec<_>, Vec<_>) =
                    notes_of_packets(status, advice_of_packets(&nic, peer.as_ref(), status), told)
                        .into_iter()
                        .partition(|note| note.kind.starts_with("cut_by_"));
                self.cuts_untold.extend(cuts);
                self.untold.extend(notes);
            }
        }
    }

    /// Notes since the last call.
    pub(crate) fn notes(&mut self) -> Vec<Advice> {
        std::mem::take(&mut self.untold)
    }

    /// Warnings of packets that are cut although no snap length asked for it, since the last call.
    pub(crate) fn cuts(&mut self) -> Vec<String> {
        self.cuts_untold.drain(..).map(|cut| format!("{}: {}", cut.what, cut.remedy)).collect()
    }

    /// Every card.
    pub(crate) fn status(&self) -> Vec<NicStatus> {
        self.watched.iter().map(|nic| nic.status.clone()).collect()
    }

    /// What the kernel's queue between cards and sockets lost since the beginning, on the whole machine.
    pub(crate) fn softnet(&self) -> Option<Softnet> {
        Some(Softnet::now()?.since(self.softnet_before?))
    }
}

/// Sums what all sources saw of an interface.
fn altered(interface: &str, seen: &[InterfaceStatus]) -> Altered {
    let mut sum = Altered::default();
    for entry in seen.iter().filter(|entry| *entry.interface == *interface) {
        sum.add(&entry.counters.altered);
    }
    sum
}

/// Kinds of altered packets that came, as [`advice_of_packets`] tells them.
fn kinds(altered: &Altered) -> usize {
    let Altered { joined, split, unchecked, unchecked_sent, long, cut_by_block, cut_by_bound, .. } = *altered;
    let counts = [
        joined,
        split,
        unchecked.saturating_sub(unchecked_sent),
        unchecked_sent,
        long,
        cut_by_block,
        cut_by_bound,
    ];
    counts.iter().filter(|count| **count > 0).count()
}

/// What packets tell of their card: altered, or cut although no snap length asked for it.
fn advice_of_packets(nic: &Nic, peer: Option<&Peer>, status: &NicStatus) -> Vec<Advice> {
    let Altered { cut_by_block, cut_by_bound, .. } = status.altered;
    let mut advice = altered_advice(nic, peer, &status.altered);
    advice.extend(truncation_advice(
        &status.interface,
        status.link.map_or(0, |link| link.mtu),
        cut_by_block,
        cut_by_bound,
    ));
    advice
}

/// What packets tell that settings haven't told already; each kind once. Where settings told another remedy,
/// packets know better.
fn notes_of_packets(
    status: &mut NicStatus,
    advice: Vec<Advice>,
    told: &mut Vec<&'static str>,
) -> Vec<Advice> {
    let mut new = Vec::new();
    for advice in advice {
        if told.contains(&advice.kind) {
            continue;
        }
        told.push(advice.kind);
        let known = status.notes.iter().position(|known| known.kind == advice.kind);
        if known.is_some_and(|at| status.notes[at].remedy == advice.remedy) {
            continue;
        }
        known.map(|at| status.notes.remove(at));
        status.notes.push(advice.clone());
        new.push(advice);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_settings_have_told_packets_do_not_tell_again() {
        let card = Nic {
            name: "eth0".to_string(),
            features: Some(vec![("rx-gro".to_string(), true)]),
            ..Nic::default()
        };
        let mut status =
            NicStatus { interface: "eth0".to_string(), notes: advise(&card), ..NicStatus::default() };
        let mut told = Vec::new();
        let mut look = |altered: Altered, nic: &Nic| {
            status.altered = altered;
            let new = {
                let advice = advice_of_packets(nic, None, &status);
                notes_of_packets(&mut status, advice, &mut told)
            };
            assert_eq!(told.len(), kinds(&altered), "nothing is left to be told");
            (new.iter().map(|note| note.kind).collect::<Vec<_>>(), scope_events::Fact::write(&status.facts()))
        };
        let received = Altered { joined: 3, unchecked: 1, ..Altered::default() };
        let (kinds, object) = look(received, &card);
        assert_eq!(kinds, ["checksums"], "that the card joins has been said");
        assert_eq!(
            (&object["altered"]["joined"], object["notes"].as_array().map(Vec::len)),
            (&3.into(), Some(2))
        );
        assert!(look(received, &card).0.is_empty());
        let (kinds, object) = look(Altered { split: 1, unchecked: 2, unchecked_sent: 1, ..received }, &card);
        assert_eq!(kinds, ["split", "checksums_sent"]);
        assert_eq!(object["altered"]["unchecked_sent"], 1);
        let (kinds, _) = look(
            Altered {
                split: 1,
                unchecked: 2,
                unchecked_sent: 1,
                cut_by_block: 2,
                cut_by_bound: 1,
                ..received
            },
            &card,
        );
        assert_eq!(kinds, ["cut_by_block", "cut_by_bound"]);
    }

    #[test]
    fn packets_know_better_than_settings_where_to_mend() {
        let joins = Nic {
            name: "ob".to_string(),
            features: Some(vec![("rx-gro".to_string(), true)]),
            ..Nic::default()
        };
        let mut status =
            NicStatus { interface: "ob".to_string(), notes: advise(&joins), ..NicStatus::default() };
        let off = Nic { features: None, ..joins };
        let advice = altered_advice(&off, None, &Altered { joined: 1, ..Altered::default() });
        assert_eq!(notes_of_packets(&mut status, advice, &mut Vec::new()).len(), 1);
        assert_eq!(status.notes.len(), 1);
        assert!(status.notes[0].remedy.starts_with("at their sender"), "{:?}", status.notes);
    }
}
