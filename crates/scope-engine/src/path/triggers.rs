//! The stage that evaluates the triggers: which packets hit which of them.

use super::batch::Batch;
use crate::triggers::{self, TriggerSet};
use scope_filter::Predicate;
use scope_flow::table::FlowNow;
use scope_flow::when::{WHENS_MAX, When};
use scope_packet::LinkType;
use scope_trigger::Trigger;
use std::sync::Arc;

/// The triggers in force, as this worker evaluates them.
pub(super) struct Evaluate {
    set: Arc<TriggerSet>,
    /// Of each lane the triggers' filters for its link type.
    predicates: Vec<Vec<Predicate>>,
    /// For each trigger the packets at hand that hit it, a bit each.
    hits: Vec<u64>,
    /// Filters of conditions on several packets: the place of their trigger, and of the filter in its condition.
    steps: Vec<(usize, u8)>,
    /// Of each lane their predicates.
    step_predicates: Vec<Vec<Predicate>>,
    /// For each the packets at hand that match it.
    step_hits: Vec<u64>,
    /// Triggers that ask a packet's flow.
    on_flows: Vec<OnFlow>,
    /// Packets at hand that match one of their filters.
    asking: u64,
    /// Of each number of a condition on flows: the set in which that got its meaning.
    since: [u64; WHENS_MAX],
    /// Numbers that have another meaning than before, a bit each.
    renumbered: u16,
}

/// A trigger that asks the flow of a packet that its filter matches.
struct OnFlow {
    /// Its place among the triggers.
    place: usize,
    number: u8,
    when: When,
    /// Packets at hand that its filter matches.
    matched: u64,
}

impl Evaluate {
    /// For a worker that has no lane yet.
    pub fn new(set: Arc<TriggerSet>) -> Evaluate {
        let steps: Vec<(usize, u8)> = set
            .of_patterns
            .iter()
            .enumerate()
            .flat_map(|(place, trigger)| {
                let pattern = trigger.config().condition.pattern();
                let filters = pattern.map_or(0, |pattern| pattern.filters().len());
                (0..filters).map(move |step| (place, step as u8))
            })
            .collect();
        let on_flow = |of: &triggers::OnFlow| {
            let when = set.of_packets[of.place].config().when.clone()?;
            Some(OnFlow { place: of.place, number: of.number, when, matched: 0 })
        };
        let mut evaluate = Evaluate {
            hits: vec![0; set.of_packets.len()],
            predicates: Vec::new(),
            step_hits: vec![0; steps.len()],
            step_predicates: Vec::new(),
            steps,
            on_flows: set.on_flows.iter().filter_map(on_flow).collect(),
            asking: 0,
            since: [0; WHENS_MAX],
            renumbered: 0,
            set,
        };
        evaluate.renumber();
        evaluate
    }

    fn renumber(&mut self) {
        for of in &self.set.on_flows {
            let since = &mut self.since[usize::from(of.number)];
            self.renumbered |= u16::from(*since != of.since) << of.number;
            *since = of.since;
        }
    }

    /// Numbers of conditions on flows that have another meaning since this was last asked, a bit each.
    pub fn take_renumbered(&mut self) -> u16 {
        std::mem::take(&mut self.renumbered)
    }

    /// The triggers that it evaluates.
    pub fn set(&self) -> &Arc<TriggerSet> {
        &self.set
    }

    /// A lane more, of packets of `link_type`.
    pub fn open_lane(&mut self, link_type: LinkType) {
        self.predicates.push(predicates(&self.set, link_type));
        let patterns = self.set.of_patterns.iter().filter_map(|trigger| trigger.config().condition.pattern());
        let filters = patterns.flat_map(|pattern| pattern.filters());
        self.step_predicates.push(filters.map(|filter| filter.for_link(link_type)).collect());
    }

    /// Evaluates `set` from here on, in lanes of `link_types`: between two batches, so that no packet is held
    /// against both or none.
    #[cold]
    pub fn replace(&mut self, set: Arc<TriggerSet>, link_types: impl Iterator<Item = LinkType>) {
        let Evaluate { since, renumbered, .. } = *self;
        *self = Evaluate { since, renumbered, ..Evaluate::new(set) };
        self.renumber();
        for link_type in link_types {
            self.open_lane(link_type);
        }
    }

    /// Evaluates every trigger for the packets at hand. Those that ask flows are hit by what [`Evaluate::ask`] finds.
    #[inline]
    pub fn run(&mut self, batch: &Batch<'_>) {
        batch.evaluate(&self.predicates, &mut self.hits);
        if !self.on_flows.is_empty() {
            self.asking = 0;
            for of in &mut self.on_flows {
                of.matched = std::mem::take(&mut self.hits[of.place]);
                self.asking |= of.matched;
            }
        }
        if !self.steps.is_empty() {
            batch.evaluate(&self.step_predicates, &mut self.step_hits);
        }
    }

    /// Packets at hand whose flow is to be asked.
    #[inline]
    pub fn asking(&self) -> u64 {
        self.asking
    }

    /// Asks the flow of packet `at`, as it is right behind it.
    #[cold]
    #[inline(never)]
    pub fn ask(&mut self, at: usize, flow: &mut FlowNow<'_>) {
        for of in &self.on_flows {
            if of.matched >> at & 1 != 0 && of.when.holds(flow) && flow.fire(of.number) {
                self.hits[of.place] |= 1 << at;
            }
        }
    }

    /// Packets at hand that hit any trigger, or match a filter of a condition on several.
    #[inline]
    pub fn hits(&self) -> u64 {
        self.hits.iter().chain(&self.step_hits).fold(0, |any, hits| any | hits)
    }

    /// Conditions on several packets that packet `at` of the last batch matched: the place of the trigger, and
    /// which of its filters.
    pub fn matched_by(&self, at: usize) -> impl Iterator<Item = (usize, u8)> {
        let each = self.steps.iter().zip(&self.step_hits);
        each.filter(move |(_, hits)| **hits >> at & 1 != 0).map(|(step, _)| *step)
    }

    /// Triggers that packet `at` of the last batch hit, in their order.
    pub fn hit_by(&self, at: usize) -> impl Iterator<Item = &Arc<Trigger>> {
        self.set
            .of_packets
            .iter()
            .zip(&self.hits)
            .filter(move |(_, hits)| **hits >> at & 1 != 0)
            .map(|(trigger, _)| trigger)
    }
}

/// What the triggers evaluate of packets of one link type.
fn predicates(set: &TriggerSet, link_type: LinkType) -> Vec<Predicate> {
    let filters = set.of_packets.iter().filter_map(|trigger| trigger.config().condition.filter());
    filters.map(|filter| filter.for_link(link_type)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::{packets, udp};
    use super::super::parse::Parse;
    use super::*;
    use crate::triggers::Triggers;
    use scope_filter::{Filter, VlanRule};
    use scope_trigger::{Condition, Response, TriggerConfig};

    fn config(name: &str, condition: Condition) -> TriggerConfig {
        TriggerConfig {
            name: name.into(),
            condition,
            response: Response {
                template: None,
                script: None,
                before_ns: 0,
                after_ns: 0,
                vlan: VlanRule::Transparent,
            },
            when: None,
            holdoff_ns: 0,
            holdoff_key: None,
            single: false,
            auto_ns: None,
        }
    }

    fn filter(text: &str) -> Condition {
        Condition::Filter(Filter::compile(text, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap())
    }

    #[test]
    fn each_trigger_knows_the_packets_that_hit_it_and_a_new_set_forgets_them() {
        let configs = [
            config("dns", filter("port 53")),
            config("low", filter("portrange 50-53")),
            config("none", filter("tcp")),
        ];
        let triggers = Triggers::new(&configs, config("manual", Condition::Hand));
        let frames = udp(&[53, 52, 54, 53]);
        let packets = packets(&frames, &[0, 0, 0, 1]);
        let mut batch = Batch::new(&packets, |interface| (interface == 0).then_some(0));
        Parse::default().run(&mut batch, |_| LinkType::ETHERNET);
        let mut evaluate = Evaluate::new(triggers.current());
        evaluate.open_lane(LinkType::ETHERNET);
        let names = |evaluate: &Evaluate, at| {
            evaluate.hit_by(at).map(|trigger| trigger.config().name.to_string()).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            evaluate.run(&batch);
            assert_eq!(evaluate.hits(), 0b0011, "the last packet has no lane");
            assert_eq!(
                (names(&evaluate, 0), names(&evaluate, 1)),
                (vec!["dns".to_string(), "low".into()], vec!["low".into()])
            );
            assert!(names(&evaluate, 2).is_empty() && names(&evaluate, 3).is_empty());
        }
        let other = Triggers::new(&[config("all", filter(""))], config("manual", Condition::Hand));
        evaluate.replace(other.current(), [LinkType::ETHERNET].into_iter());
        assert!(names(&evaluate, 0).is_empty());
        evaluate.run(&batch);
        assert_eq!((evaluate.hits(), names(&evaluate, 2)), (0b0111, vec!["all".to_string()]));
    }
}
