//! Triggers that fire by themselves where nothing has fired them for a while, in capture time.
//!
//! ```text
//!  fired ─── auto ───► due: fired ─── auto ───► due ...        at most [`ROW_MAX`] in one stretch of time
//! ```
//! A stretch is what becomes known at once: on a file a gap between packets, however long. What would be due behind
//! the bound is skipped, and said.

use crate::measuring::Watched;
use crate::triggers::TriggerSet;
use scope_packet::Moment;
use scope_trigger::Trigger;
use std::collections::VecDeque;
use std::sync::Arc;

/// Fires of all triggers in one stretch of time at most.
const ROW_MAX: usize = 100;

/// One trigger.
#[derive(Debug)]
struct Auto {
    trigger: Watched,
    auto_ns: i64,
    /// When it fired last, or since when it waits.
    since: Moment,
    /// Its fires behind that, in order.
    fires: VecDeque<Moment>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Autos {
    waiting: Vec<Auto>,
    era: Option<u64>,
    /// Fires in the stretch at hand.
    row: usize,
    skipped: u64,
    told: bool,
}

impl Autos {
    /// Time goes on to `now`, in an era that began at `begun_ns`, with these triggers in force.
    pub fn come_to(&mut self, begun_ns: i64, now: Moment, set: &TriggerSet) {
        // With an era all begin anew; one that comes while it goes waits from now on.
        let begins = self.era.replace(now.era) != Some(now.era);
        let since = if begins { Moment::new(now.era, begun_ns) } else { now };
        let is_in_force = |trigger: &Watched| set.all().iter().any(|other| Arc::ptr_eq(other, &trigger.0));
        self.waiting.retain(|auto| !begins && is_in_force(&auto.trigger));
        for trigger in set.all() {
            let Some(auto_ns) = trigger.config().auto_ns else { continue };
            let watched = Watched(trigger.clone());
            if !self.waiting.iter().any(|auto| auto.trigger == watched) {
                self.waiting.push(Auto { trigger: watched, auto_ns, since, fires: VecDeque::new() });
            }
        }
        self.row = 0;
    }

    /// The next that is due before `now`, in order of time.
    pub fn next_due(&mut self, now: Moment) -> Option<(Arc<Trigger>, Moment)> {
        let each = self.waiting.iter_mut().enumerate().map(|(at, auto)| (auto.due(now), at));
        let (due, at) = each.min()?;
        if due >= now {
            return None;
        }
        if self.row == ROW_MAX {
            for auto in &mut self.waiting {
                let behind_ns = now.time_ns.saturating_sub(auto.since.time_ns).max(0);
                self.skipped += (behind_ns / auto.auto_ns) as u64;
                auto.since = now;
            }
            return None;
        }
        self.row += 1;
        self.waiting[at].since = due;
        Some((self.waiting[at].trigger.0.clone(), due))
    }

    /// That fires were skipped, once, in words.
    pub fn skipped(&mut self) -> Option<String> {
        (self.skipped > 0 && !std::mem::replace(&mut self.told, true)).then(|| {
            format!(
                "auto: {} fires by themselves are skipped: at most {ROW_MAX} come in a stretch of time without \
                 packets; write a longer --auto",
                self.skipped
            )
        })
    }
}

impl Auto {
    /// When it is due, as far as its fires up to `now` are known.
    fn due(&mut self, now: Moment) -> Moment {
        self.fires.extend(self.trigger.0.take_fires(now));
        while let Some(&fired) = self.fires.front().filter(|fired| **fired <= self.since.plus(self.auto_ns)) {
            self.since = self.since.max(fired);
            self.fires.pop_front();
        }
        self.since.plus(self.auto_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triggers::Triggers;
    use scope_filter::VlanRule;
    use scope_trigger::{Condition, Response, TriggerConfig};

    fn config(name: &str, auto_ns: Option<i64>) -> TriggerConfig {
        TriggerConfig {
            name: name.into(),
            condition: Condition::Hand,
            response: Response {
                template: None,
                script: None,
                before_ns: 0,
                after_ns: 0,
                vlan: VlanRule::Exact,
            },
            when: None,
            holdoff_ns: 0,
            holdoff_key: None,
            single: false,
            auto_ns,
        }
    }

    /// What is due up to `to`: names and times.
    fn due(autos: &mut Autos, begun_ns: i64, to: Moment, set: &TriggerSet) -> Vec<(String, i64)> {
        autos.come_to(begun_ns, to, set);
        let next = || autos.next_due(to).map(|(trigger, at)| (trigger.config().name.clone(), at.time_ns));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn they_are_due_in_order_of_time_and_with_each_era_anew() {
        let configs = [config("a", Some(10)), config("b", Some(4)), config("c", None)];
        let set = Triggers::new(&configs, config("manual", None)).current();
        let mut autos = Autos::default();
        let of = |of: &[(&str, i64)]| of.iter().map(|(name, at)| (name.to_string(), *at)).collect::<Vec<_>>();
        assert_eq!(due(&mut autos, 100, Moment::new(0, 104), &set), of(&[]));
        assert_eq!(
            due(&mut autos, 100, Moment::new(0, 111), &set),
            of(&[("b", 104), ("b", 108), ("a", 110)])
        );
        assert_eq!(due(&mut autos, 50, Moment::new(1, 55), &set), of(&[("b", 54)]), "not 112");
        assert_eq!(autos.skipped(), None);
    }

    #[test]
    fn of_a_year_without_packets_so_many_are_due_and_the_rest_is_said_once() {
        let set = Triggers::new(&[config("a", Some(10))], config("manual", None)).current();
        let mut autos = Autos::default();
        assert_eq!(due(&mut autos, 0, Moment::new(0, 1_000_000_000), &set).len(), ROW_MAX);
        assert!(autos.skipped().is_some_and(|said| said.contains(" 99999900 fires")));
        assert_eq!(autos.skipped(), None);
        assert_eq!(due(&mut autos, 0, Moment::new(0, 1_000_000_015), &set).len(), 1, "from there it goes on");
    }
}
