//! The stage of a source's rules: packets that they drop go no further, and of others only so many bytes are recorded.

use super::batch::Batch;
use crate::source_rules::{SourceRules, TakenByRule};
use scope_group::rules::{Packets, RuleSet, TOGETHER, Working, bits};
use scope_packet::{KeyEntry, LinkType};
use std::sync::Arc;

/// Rules of one source at work.
struct Own {
    /// The number of the source.
    source: usize,
    rules: Arc<RuleSet>,
    working: Working,
    /// What of each rule was handed over.
    told: Vec<u64>,
    /// Packets that each has truncated since.
    cut: Vec<u64>,
    /// The packets at hand that they are applied to.
    which: u64,
}

/// At most one for each source of a worker; where there is none the stage does nothing.
pub(super) struct Rules<'a> {
    shared: &'a SourceRules,
    version: u64,
    own: Vec<Own>,
    /// Bytes of each packet at hand that are recorded.
    keep: [u32; TOGETHER],
    /// The packets of which that says something.
    kept: u64,
    /// What couldn't be handed over yet.
    taken: Vec<(usize, String, TakenByRule)>,
}

impl<'a> Rules<'a> {
    /// None yet.
    pub fn new(shared: &'a SourceRules) -> Rules<'a> {
        let keep = [u32::MAX; TOGETHER];
        Rules { shared, version: 0, own: Vec::new(), keep, kept: 0, taken: Vec::new() }
    }

    /// Whether others are in force by now.
    #[inline]
    pub fn are_past(&self) -> bool {
        self.shared.is_past(self.version)
    }

    /// Applies those that are in force from here on, to packets of these sources.
    #[cold]
    pub fn take(&mut self, sources: impl Iterator<Item = usize>) {
        self.note();
        let (version, all) = self.shared.current();
        self.version = version;
        let mut sources: Vec<usize> = sources.collect();
        sources.sort_unstable();
        sources.dedup();
        let before = std::mem::take(&mut self.own);
        for source in sources {
            let Some(rules) = all.get(source).filter(|rules| !rules.is_empty()) else { continue };
            let (mut working, many) = (Working::default(), rules.rules().len());
            working.set(rules, None);
            let own = Own {
                source,
                rules: rules.clone(),
                working,
                told: vec![0; many],
                cut: vec![0; many],
                which: 0,
            };
            self.own.push(own);
        }
        drop(before);
    }

    /// Takes out of the batch what rules drop, and returns those packets. `of` says of which source an interface is.
    #[inline]
    pub fn run(
        &mut self,
        batch: &mut Batch<'_>,
        of: impl Fn(u32) -> usize,
        link_type_of: impl Fn(usize) -> LinkType,
    ) -> u64 {
        bits(std::mem::take(&mut self.kept)).for_each(|at| self.keep[usize::from(at)] = u32::MAX);
        if self.own.is_empty() {
            return 0;
        }
        self.apply(batch, of, link_type_of)
    }

    fn apply(
        &mut self,
        batch: &mut Batch<'_>,
        of: impl Fn(u32) -> usize,
        link_type_of: impl Fn(usize) -> LinkType,
    ) -> u64 {
        // Packets of one interface come together.
        let (mut interface, mut place) = (None, None);
        for (at, packet) in batch.packets.iter().enumerate() {
            if interface != Some(packet.interface) {
                let source = of(packet.interface);
                place = self.own.iter().position(|own| own.source == source);
                interface = Some(packet.interface);
            }
            if let Some(place) = place {
                self.own[place].which |= 1 << at;
            }
        }
        let mut keys = [KeyEntry::default(); TOGETHER];
        keys.iter_mut().zip(batch.asked()).for_each(|(key, asked)| *key = *asked.key());
        let mut dropped = 0;
        for own in self.own.iter_mut().filter(|own| own.which != 0) {
            let of_source = std::mem::take(&mut own.which);
            for (lane, of_lane) in batch.lanes() {
                let which = of_source & of_lane;
                let inputs = batch.asked();
                let packets = Packets { link_type: link_type_of(lane), keys: &keys[..inputs.len()], inputs };
                let verdicts = own.working.apply(&packets, which);
                dropped |= which & !verdicts.alive;
                for at in bits(verdicts.touched & verdicts.alive).map(usize::from) {
                    if (verdicts.keep[at] as usize) < batch.packets[at].data.len() {
                        self.keep[at] = verdicts.keep[at];
                        self.kept |= 1 << at;
                        own.cut[usize::from(verdicts.keepers[at])] += 1;
                    }
                }
            }
        }
        batch.take_out(dropped);
        dropped
    }

    /// Bytes of each packet at hand that are recorded; `None`: all of all.
    #[inline]
    pub fn keep(&self) -> Option<&[u32; TOGETHER]> {
        (self.kept != 0).then_some(&self.keep)
    }

    /// Hands over what was taken; `waits`: the worker can wait.
    pub fn tell(&mut self, waits: bool) {
        if !self.own.is_empty() {
            self.note();
        }
        if !self.taken.is_empty() {
            self.shared.add(&mut self.taken, waits);
        }
    }

    fn note(&mut self) {
        for own in &mut self.own {
            let dropped = own.working.dropped().counts();
            for (at, rule) in own.rules.rules().iter().enumerate() {
                let more = TakenByRule {
                    dropped: dropped[at] - own.told[at],
                    cut: std::mem::take(&mut own.cut[at]),
                };
                own.told[at] = dropped[at];
                if more == TakenByRule::default() {
                    continue;
                }
                let known =
                    self.taken.iter_mut().find(|(of, name, _)| (*of, name) == (own.source, &rule.name));
                match known {
                    Some((.., known)) => *known += more,
                    None => self.taken.push((own.source, rule.name.clone(), more)),
                }
            }
        }
    }
}
