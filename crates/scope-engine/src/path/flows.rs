//! The stage that counts: flows and intervals of the batch at hand, handed on at commits.

use super::batch::Batch;
use super::triggers::Evaluate;
use crate::statistics::Statistics;
use scope_flow::counting::Counting;
use scope_flow::rows::LossRow;
use scope_packet::{Headers, Interface, Moment, Packet};
use std::sync::Arc;

/// Losses that wait to be handed on, each by itself.
const LOSSES_MAX: usize = 1 << 8;

/// What one worker counts, if the run has statistics.
pub(super) struct Flows<'a> {
    of: Option<Of<'a>>,
}

struct Of<'a> {
    statistics: &'a Statistics,
    index: u32,
    grace_ns: i64,
    counting: Counting,
    /// Names of its interfaces, by number.
    interfaces: Arc<[Arc<str>]>,
    /// What stands in front of their frames, by number; empty: nothing does.
    pseudo_headers: Vec<u32>,
    losses: Vec<LossRow>,
}

impl<'a> Flows<'a> {
    /// For a worker that has no interface yet.
    pub fn new(statistics: Option<&'a Statistics>, index: u32, grace_ns: i64) -> Flows<'a> {
        let of = statistics.map(|statistics| Of {
            statistics,
            index,
            grace_ns,
            counting: statistics.counting(index),
            interfaces: Arc::default(),
            pseudo_headers: Vec::new(),
            losses: Vec::new(),
        });
        Flows { of }
    }

    /// An interface more.
    pub fn interface(&mut self, interface: &Interface) {
        if let Some(of) = &mut self.of {
            let bytes = interface.link_type.pseudo_header_bytes();
            if bytes > 0 {
                of.pseudo_headers.resize(of.interfaces.len(), 0);
                of.pseudo_headers.push(bytes);
            }
            of.interfaces = of.interfaces.iter().cloned().chain([Arc::from(&*interface.name)]).collect();
        }
    }

    /// Counts a batch but for what a prefilter refused, and has triggers ask the flows of their packets. Packets
    /// without a lane were not parsed.
    #[inline]
    pub fn run(
        &mut self,
        batch: &Batch<'_>,
        refused: u64,
        headers: impl Fn(usize) -> Headers,
        triggers: &mut Evaluate,
    ) {
        let Some(of) = &mut self.of else { return };
        if batch.packets.is_empty() {
            return;
        }
        let all = !0 >> (u64::BITS as usize - batch.packets.len());
        let parsed = batch.lanes().fold(0, |parsed, (_, which)| parsed | which);
        let headers = |at: usize| (parsed >> at & 1 != 0).then(|| headers(at));
        let pseudo_headers = &of.pseudo_headers;
        let bytes = |packet: &Packet<'_>| match pseudo_headers.get(packet.interface as usize) {
            None => packet.original_len,
            Some(bytes) => packet.original_len.saturating_sub(*bytes),
        };
        let asking = triggers.asking();
        of.counting.run(batch.packets, all & !refused, headers, bytes, |at, flow| {
            if asking >> at & 1 != 0 {
                triggers.ask(at, flow);
            }
        });
    }

    /// These numbers of conditions, a bit each, are from now on those of triggers that are new.
    pub fn begin_conditions(&mut self, numbers: u16) {
        if let Some(of) = &mut self.of {
            of.counting.begin_conditions(numbers);
        }
    }

    /// Packets of an interface are lost.
    #[cold]
    pub fn lost(&mut self, interface: u32, reason: &'static str, packets: u64, (from_ns, to_ns): (i64, i64)) {
        let Some(of) = &mut self.of else { return };
        let interface = of.interfaces.get(interface as usize).cloned();
        let is_same = |known: &&mut LossRow| known.interface == interface && known.reason == reason;
        // Where nobody takes them, those of one interface and reason become one, of a longer span.
        if of.losses.len() >= LOSSES_MAX
            && let Some(known) = of.losses.iter_mut().find(is_same)
        {
            known.from_ns = known.from_ns.min(from_ns);
            known.to_ns = known.to_ns.max(to_ns);
            known.packets += packets;
            return;
        }
        of.losses.push(LossRow {
            from_ns,
            to_ns,
            interface,
            reason,
            packets,
            late_until_ns: 0,
            filed_until_ns: 0,
        });
    }

    /// The worker has come to `clock`: what nothing belongs to any more is handed on. `waits`: until there is room.
    #[inline]
    pub fn commit(&mut self, clock: Moment, waits: bool) {
        let Some(of) = &mut self.of else { return };
        if of.counting.step(clock.time_ns.saturating_sub(of.grace_ns)) || !of.losses.is_empty() {
            of.hand_on(clock, waits);
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self, clock: Moment) {
        if let Some(of) = &mut self.of {
            while of.counting.end() {
                of.hand_on(clock, true);
            }
            of.hand_on(clock, true);
        }
    }
}

impl Of<'_> {
    #[cold]
    fn hand_on(&mut self, clock: Moment, waits: bool) {
        let (counting, losses) = (&mut self.counting, &mut self.losses);
        self.statistics.hand_on(self.index, (counting, losses), &self.interfaces, clock.time_ns, waits);
    }
}
