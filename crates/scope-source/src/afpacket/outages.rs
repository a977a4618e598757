//! When an interface could bring nothing: spans from before the look that found it down or gone to after the
//! one that found it up again.

use super::life::Life;
use scope_packet::{Gap, GapReason, Sink};
use std::collections::BTreeMap;

/// The outages of a source's interfaces, by the source's own numbers.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// When the look before the last one began, ns: what the last one found may have happened since.
    before_ns: i64,
    /// When the last look began, ns.
    looked_ns: i64,
    /// Interfaces that can bring nothing now: why, and since when at the earliest, ns.
    current: BTreeMap<usize, (GapReason, i64)>,
    /// Gaps that the sink doesn't know yet, in order.
    unreported: Vec<(usize, Gap)>,
}

impl Outages {
    /// A source that is opened at `now_ns`.
    pub(crate) fn begin(now_ns: i64) -> Outages {
        Outages { before_ns: now_ns, looked_ns: now_ns, ..Outages::default() }
    }

    /// A look begins at `now_ns`; its findings follow.
    pub(crate) fn look(&mut self, now_ns: i64) {
        (self.before_ns, self.looked_ns) = (self.looked_ns, now_ns);
    }

    /// Interface `number` is as `life` says, found at `now_ns`. Where it doesn't count (`counts`), it has no
    /// outage.
    pub(crate) fn note(&mut self, number: usize, life: &Life, counts: bool, now_ns: i64) {
        let reason = if life.gone { GapReason::InterfaceGone } else { GapReason::InterfaceDown };
        let reason = (counts && !life.is_up()).then_some(reason);
        let before = self.current.get(&number).copied();
        if before.map(|(reason, _)| reason) == reason {
            return;
        }
        if let Some((reason, from_ns)) = before {
            self.unreported.push((number, gap(reason, from_ns, now_ns)));
            self.current.remove(&number);
        }
        if let Some(reason) = reason {
            self.unreported.push((number, gap(reason, self.before_ns, i64::MAX)));
            self.current.insert(number, (reason, self.before_ns));
        }
    }

    /// Reports gaps that the sink doesn't know: before any packet, or time, that comes after them.
    /// `ahead_ns`: how far an interface's packets are ahead of the system's clock.
    pub(crate) fn report(&mut self, sink: &mut dyn Sink, ahead_ns: impl Fn(usize) -> i64) {
        for (number, gap) in self.unreported.drain(..) {
            let ahead_ns = ahead_ns(number);
            let to_ns =
                if gap.to_ns == i64::MAX { i64::MAX } else { gap.to_ns.saturating_add(ahead_ns.max(0)) };
            let from_ns = gap.from_ns.saturating_add(ahead_ns.min(0)).max(0);
            sink.gap(number as u32, Gap { from_ns, to_ns, ..gap });
        }
    }
}

/// How many packets there would have been is unknown.
fn gap(reason: GapReason, from_ns: i64, to_ns: i64) -> Gap {
    Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None }
}

#[cfg(test)]
mod tests {
    use super::super::links::{Link, LinkState};
    use super::*;

    fn link(state: LinkState) -> Link {
        Link { index: 2, name: "va".into(), kind: 1, state, mtu: 1500 }
    }

    #[test]
    fn an_outage_begins_before_it_can_have_begun_and_ends_after_it_has_ended() {
        let mut outages = Outages::begin(100);
        let mut life = Life::begin(&link(LinkState::Up));
        outages.note(0, &life, true, 101);
        assert!(outages.unreported.is_empty());
        outages.look(200);
        outages.look(300);
        life.link(&link(LinkState::Down));
        outages.note(0, &life, true, 301);
        outages.note(0, &life, true, 302);
        assert_eq!(
            outages.unreported,
            [(0, gap(GapReason::InterfaceDown, 200, i64::MAX))],
            "open, and reported once"
        );
        outages.look(400);
        life.remove();
        outages.note(0, &life, true, 401);
        life.restore(&link(LinkState::Up));
        outages.note(0, &life, true, 402);
        let behind = [
            gap(GapReason::InterfaceDown, 200, 401),
            gap(GapReason::InterfaceGone, 300, i64::MAX),
            gap(GapReason::InterfaceGone, 300, 402),
        ];
        assert_eq!(outages.unreported[1..], behind.map(|gap| (0, gap)));
    }

    #[test]
    fn an_interface_that_does_not_count_yet_has_no_outage() {
        let mut outages = Outages::begin(100);
        outages.note(7, &Life::begin(&link(LinkState::NoCarrier)), false, 101);
        assert!(outages.unreported.is_empty());
    }
}
