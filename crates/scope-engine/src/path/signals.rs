//! The stage that measures: what the batch at hand adds to the signals, by bins of capture time.
//!
//! Each tally is asked once for the whole batch; what it matches is added bin by bin, and most batches lie in
//! one bin. A bin is handed on at the commit behind which nothing comes any more that belongs to it.

use super::batch::Batch;
use crate::measuring::{Measuring, SUMS_MAX};
use crate::patterns::Matches;
use scope_filter::{FILTER_INPUTS_MAX, Predicate};
use scope_packet::{DropReason, Drops, Headers, LinkType, Moment};
use scope_trigger::bins::{Bins, SLOTS, bin_of};
use scope_trigger::measure::{BIN_NS, BINS_PER_SECOND};
use scope_trigger::meter::{Distinct, Handed};
use scope_trigger::sketch::{Sketch, hash};
use scope_trigger::{Match, Trigger};
use std::sync::Arc;

/// Bytes of what tells flows apart: protocol, two addresses, two ports.
const FLOW_BYTES: usize = 1 + 2 * 18;

/// What one worker measures.
pub(super) struct Signals<'a> {
    measuring: &'a Measuring,
    index: u32,
    grace_ns: i64,
    /// Of each lane the filters of the tallies behind the first, for its link type.
    predicates: Vec<Vec<Predicate>>,
    bins: Bins,
    /// Values of seconds that aren't over.
    seconds: Vec<Distinct>,
    /// Its clock is in this era.
    era: u64,
    /// What is closed in this era, and not handed on.
    handed: Handed,
    /// The same of eras that are over.
    before: Vec<Handed>,
    /// What conditions on several packets matched, and what isn't handed on.
    matches: Matches,
    hits: Vec<u64>,
    /// Some tally wants distinct values.
    wants_distinct: bool,
    /// Lost before any time was believed, by reason.
    unplaced: Drops,
}

/// Packets of a batch that lie in one bin: bits.
#[derive(Clone, Copy, Default)]
struct Run {
    bin: i64,
    which: u64,
}

impl<'a> Signals<'a> {
    /// For a worker that has no lane yet.
    pub fn new(measuring: &'a Measuring, index: u32, grace_ns: i64) -> Signals<'a> {
        let tallies = measuring.set().tallies.len();
        Signals {
            measuring,
            index,
            grace_ns: grace_ns.clamp(0, (SLOTS as i64 - 2) * BIN_NS),
            predicates: Vec::new(),
            bins: Bins::new(tallies + DropReason::ALL.len()),
            seconds: Vec::new(),
            era: 0,
            handed: Handed::default(),
            before: Vec::new(),
            matches: Vec::new(),
            hits: vec![0; tallies],
            wants_distinct: measuring.set().tallies.iter().any(|tally| tally.hosts || tally.flows),
            unplaced: Drops::default(),
        }
    }

    /// A lane more, of packets of `link_type`.
    pub fn open_lane(&mut self, link_type: LinkType) {
        let filters = self.measuring.set().tallies.iter().filter_map(|tally| tally.filter.as_ref());
        self.predicates.push(filters.map(|filter| filter.for_link(link_type)).collect());
    }

    /// Adds a batch; `stray_ns` is the time at which its packets count where their own isn't believed.
    #[inline]
    pub fn run(&mut self, batch: &Batch<'_>, stray_ns: Option<i64>, headers: impl Fn(usize) -> Headers) {
        self.hits[0] = batch.lanes().fold(0, |all, (_, which)| all | which);
        if self.hits[0] == 0 {
            return;
        }
        batch.evaluate(&self.predicates, &mut self.hits[1..]);
        if let Some(time_ns) = stray_ns {
            let run = Run { bin: bin_of(time_ns).max(self.bins.floor()), which: self.hits[0] };
            return self.add(&[run], batch, &headers);
        }
        let first_ns = batch.packets[0].time_ns;
        let bin = bin_of(first_ns);
        let (from_ns, to_ns) = (bin * BIN_NS, (bin + 1) * BIN_NS);
        let is_one = batch.packets.iter().all(|packet| packet.time_ns >= from_ns && packet.time_ns < to_ns);
        if is_one {
            return self.add(&[Run { bin, which: self.hits[0] }], batch, &headers);
        }
        let mut runs = [Run::default(); FILTER_INPUTS_MAX];
        let mut count = 0;
        for (at, packet) in batch.packets.iter().enumerate() {
            let bit = self.hits[0] & 1 << at;
            let bin = bin_of(packet.time_ns);
            if bit == 0 {
                continue;
            }
            if count > 0 && runs[count - 1].bin == bin {
                runs[count - 1].which |= bit;
            } else {
                runs[count] = Run { bin, which: bit };
                count += 1;
            }
        }
        self.add(&runs[..count], batch, &headers);
    }

    #[inline]
    fn add(&mut self, runs: &[Run], batch: &Batch<'_>, headers: &impl Fn(usize) -> Headers) {
        for run in runs {
            if run.bin < self.bins.floor() {
                self.bins.count_late(run.which.count_ones().into());
                continue;
            }
            if !self.bins.has_room(run.bin) {
                self.close((run.bin * BIN_NS).saturating_sub(self.grace_ns));
            }
            let set = self.measuring.set();
            let sums = self.bins.of(run.bin);
            for ((tally, sum), hits) in set.tallies.iter().zip(sums).zip(&self.hits) {
                let which = hits & run.which;
                if which == 0 {
                    continue;
                }
                sum.0 += u64::from(which.count_ones());
                if tally.bytes {
                    sum.1 += bytes(batch, which);
                }
            }
            if self.wants_distinct {
                self.count_distinct(*run, batch, headers);
            }
        }
    }

    fn count_distinct(&mut self, run: Run, batch: &Batch<'_>, headers: &impl Fn(usize) -> Headers) {
        let (set, seed) = (self.measuring.set(), self.measuring.seed());
        for (place, (tally, hits)) in set.tallies.iter().zip(&self.hits).enumerate() {
            for flows in [false, true] {
                let which = hits & run.which;
                if which == 0 || !(if flows { tally.flows } else { tally.hosts }) {
                    continue;
                }
                let sketch = of_second(&mut self.seconds, run.bin.div_euclid(BINS_PER_SECOND), place, flows);
                for at in bits(which) {
                    let data = batch.packets[at].data;
                    let headers = headers(at);
                    let Some((source, destination)) = headers.address_bytes(data) else { continue };
                    sketch.add(if flows {
                        flow_hash(seed, &headers, source, destination)
                    } else {
                        hash(seed, source)
                    });
                }
            }
        }
    }

    /// A packet that a filter of `trigger`'s condition matched.
    pub fn matched(&mut self, trigger: &Arc<Trigger>, one: Match) {
        match self.matches.iter_mut().find(|(known, _)| Arc::ptr_eq(known, trigger)) {
            Some((_, matches)) => matches.push(one),
            None => self.matches.push((trigger.clone(), vec![one])),
        }
    }

    /// Counts packets that the run lost for `reason`, about `time_ns`. Where no bin of that time is open, they count
    /// at the clock: a time that a file gives moves none.
    #[cold]
    pub fn lost(&mut self, reason: DropReason, packets: u64, time_ns: i64, clock_ns: i64) {
        let [bin, now] = [time_ns, clock_ns].map(|time_ns| bin_of(time_ns.max(0)));
        if now == 0 {
            return self.unplaced.add(reason, packets);
        }
        let is_open = |bin: i64| bin >= self.bins.floor() && self.bins.has_room(bin);
        let is_near = bin.saturating_add(SLOTS as i64) > now;
        match (is_near && is_open(bin), is_open(now)) {
            (true, true) => self.count_lost(reason, packets, bin),
            (false, true) => self.count_lost(reason, packets, now),
            // Nothing is open where the clock is: with the next commit there is.
            _ => self.unplaced.add(reason, packets),
        }
    }

    /// What had no place yet counts at the clock.
    fn place_lost(&mut self, clock: Moment) {
        if bin_of(clock.time_ns) <= 0 {
            return; // nothing is known of the time yet
        }
        for (reason, packets) in std::mem::take(&mut self.unplaced).iter() {
            self.count_lost(reason, packets, bin_of(clock.time_ns).max(self.bins.floor()));
        }
    }

    fn count_lost(&mut self, reason: DropReason, packets: u64, bin: i64) {
        if packets > 0 {
            let place = self.measuring.set().tallies.len() + reason as usize;
            self.bins.of(bin)[place].0 += packets;
        }
    }

    /// Closes what lies before `time_ns`.
    fn close(&mut self, time_ns: i64) {
        self.bins.close(bin_of(time_ns.max(0)), &mut self.handed.sums);
        let floor = self.bins.floor();
        for at in (0..self.seconds.len()).rev() {
            if (self.seconds[at].second + 1) * BINS_PER_SECOND <= floor {
                self.handed.distinct.push(self.seconds.swap_remove(at));
            }
        }
    }

    /// The worker has come to `clock`: what nothing belongs to any more is handed on. `waits`: until it is.
    #[inline]
    pub fn commit(&mut self, clock: Moment, waits: bool) {
        let floor_ns = clock.time_ns.saturating_sub(self.grace_ns);
        if bin_of(floor_ns) <= self.bins.floor() && self.before.is_empty() {
            return;
        }
        self.hand_on(floor_ns, clock, waits);
    }

    #[cold]
    fn hand_on(&mut self, floor_ns: i64, clock: Moment, waits: bool) {
        self.close(floor_ns);
        self.measuring.count_late(self.bins.take_late());
        self.place_lost(clock);
        self.handed.reached = self.handed.reached.max(bin_of(clock.time_ns));
        let until = Moment::new(self.era, self.bins.floor() * BIN_NS);
        let mut handed: Vec<Handed> = std::mem::take(&mut self.before);
        let of_era = Handed { era: self.era, reached: self.handed.reached, ..Handed::default() };
        handed.push(std::mem::replace(&mut self.handed, of_era));
        let matches = std::mem::take(&mut self.matches);
        if let Err((mut kept, matches)) = self.measuring.hand_on(self.index, (handed, matches), until, waits)
        {
            self.matches = matches;
            if self.matches.iter().map(|(_, matches)| matches.len()).sum::<usize>() > SUMS_MAX {
                let lost: usize = self.matches.drain(..).map(|(_, matches)| matches.len()).sum();
                self.measuring.count_unmeasured(lost as u64);
            }
            let mut unhanded = kept.pop().unwrap_or_default();
            if unhanded.sums.len() > SUMS_MAX {
                self.measuring.count_unmeasured(unhanded.sums.len() as u64);
                unhanded.sums.clear();
            }
            (self.handed, self.before) = (unhanded, kept);
        }
    }

    /// Capture time was set back from `clock_ns`: what comes from here on belongs to `era`.
    #[cold]
    pub fn begin_era(&mut self, clock_ns: i64, era: u64) {
        self.handed.reached = self.handed.reached.max(bin_of(clock_ns));
        self.bins.restart(&mut self.handed.sums);
        self.handed.distinct.append(&mut self.seconds);
        self.before.push(std::mem::replace(&mut self.handed, Handed { era, ..Handed::default() }));
        self.era = era;
    }

    /// Nothing more comes.
    pub fn end(&mut self, clock: Moment) {
        let reached = self.handed.reached.max(bin_of(clock.time_ns));
        self.place_lost(clock);
        self.bins.restart(&mut self.handed.sums);
        self.handed.distinct.append(&mut self.seconds);
        self.handed.reached = reached;
        let mut handed = std::mem::take(&mut self.before);
        handed.push(std::mem::take(&mut self.handed));
        self.measuring.count_late(self.bins.take_late());
        let matches = std::mem::take(&mut self.matches);
        let _ = self.measuring.hand_on(self.index, (handed, matches), Moment::END, true);
    }
}

/// Bytes on the wire of these packets.
#[inline]
fn bytes(batch: &Batch<'_>, which: u64) -> u64 {
    let all = !0u64 >> (64 - batch.packets.len().clamp(1, 64));
    if which == all {
        return batch.packets.iter().map(|packet| u64::from(packet.original_len)).sum();
    }
    bits(which).map(|at| u64::from(batch.packets[at].original_len)).sum()
}

/// The places of the bits that are set.
#[inline]
fn bits(mut which: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (which != 0).then(|| which.trailing_zeros() as usize)?;
        which &= which - 1;
        Some(at)
    })
}

/// The sketch of a second, which is begun where it is its first value.
fn of_second(seconds: &mut Vec<Distinct>, second: i64, tally: usize, flows: bool) -> &mut Sketch {
    let is = |of: &Distinct| (of.second, of.tally as usize, of.flows) == (second, tally, flows);
    let at = seconds.iter().position(is).unwrap_or_else(|| {
        seconds.push(Distinct { second, tally: tally as u32, flows, sketch: Sketch::default() });
        seconds.len() - 1
    });
    &mut seconds[at].sketch
}

/// The same for both directions: the lesser end comes first.
fn flow_hash(seed: u64, headers: &Headers, source: &[u8], destination: &[u8]) -> u64 {
    let (from, to) = headers.ports().unwrap_or((0, 0));
    let (mut one, mut other) = ((source, from), (destination, to));
    if other < one {
        std::mem::swap(&mut one, &mut other);
    }
    let mut bytes = [0; FLOW_BYTES];
    bytes[0] = headers.protocol();
    let mut at = 1;
    for (address, port) in [one, other] {
        bytes[at..at + address.len()].copy_from_slice(address);
        at += address.len();
        bytes[at..at + 2].copy_from_slice(&port.to_be_bytes());
        at += 2;
    }
    hash(seed, &bytes[..at])
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::{packets, udp};
    use super::super::parse::Parse;
    use super::*;
    use scope_filter::VlanRule;
    use scope_trigger::signal::{SignalSet, Written};

    const MS: i64 = BIN_NS;

    fn measuring(signals: &[&str]) -> Measuring {
        let written: Vec<Written> = signals.iter().map(|text| Written::take_apart(text)).collect();
        let set = SignalSet::read(&written, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
        Measuring::new(Arc::new(set), 1, [3; 16], 1 << 20, false)
    }

    /// Runs packets to these ports, at these times; what is handed on when the clock comes to `clock_ns`.
    fn handed(
        measuring: &Measuring,
        ports: &[u16],
        times_ns: &[i64],
        clock_ns: i64,
    ) -> Vec<(i64, u32, u64, u64)> {
        let frames = udp(ports);
        let mut packets = packets(&frames, &[0]);
        packets.iter_mut().zip(times_ns).for_each(|(packet, time_ns)| packet.time_ns = *time_ns);
        let mut batch = Batch::new(&packets, |_| Some(0));
        let mut parse = Parse::default();
        parse.run(&mut batch, |_| LinkType::ETHERNET);
        let mut signals = Signals::new(measuring, 0, 10 * MS);
        signals.open_lane(LinkType::ETHERNET);
        signals.run(&batch, None, |at| parse.headers(at));
        signals.commit(Moment::new(0, clock_ns), false);
        let (taken, until) = measuring.taken(0);
        assert_eq!(until, Moment::new(0, (clock_ns / MS - 10) * MS));
        taken.iter().flat_map(|of| &of.sums).map(|of| (of.bin, of.tally, of.packets, of.bytes)).collect()
    }

    #[test]
    fn each_tally_has_its_packets_in_their_bins_and_open_bins_are_kept() {
        let measuring = measuring(&["dns:bps=port 53", "low=portrange 50-53"]);
        let times = [5 * MS, 5 * MS + 999_999, 6 * MS, 16 * MS];
        let handed = handed(&measuring, &[53, 52, 53, 53], &times, 16 * MS + 500_000);
        assert_eq!(handed, [(5, 0, 2, 120), (5, 1, 1, 60), (5, 2, 2, 0)], "6 is not over");
    }

    #[test]
    fn a_jump_within_a_batch_loses_nothing() {
        let measuring = measuring(&[]);
        let year = 366 * 86_400_000 * MS;
        let handed = handed(&measuring, &[1, 2, 3], &[5 * MS, year, year + MS], year + 20 * MS);
        let bins: Vec<(i64, u64)> = handed.iter().map(|of| (of.0, of.2)).collect();
        assert_eq!(bins, [(5, 1), (year / MS, 1), (year / MS + 1, 1)]);
    }

    /// Bins, tallies and packets of what was handed on, by era.
    fn all(measuring: &Measuring) -> Vec<(u64, i64, u32, u64)> {
        let (taken, _) = measuring.taken(0);
        let of_era = |of: &Handed| {
            let era = of.era;
            of.sums.iter().map(move |sum| (era, sum.bin, sum.tally, sum.packets)).collect::<Vec<_>>()
        };
        taken.iter().flat_map(of_era).collect()
    }

    #[test]
    fn losses_count_at_their_time_and_where_none_is_open_at_the_clock() {
        let measuring = measuring(&[]);
        let mut signals = Signals::new(&measuring, 0, 10 * MS);
        let kernel = 1 + DropReason::Kernel as u32;
        let hour = 3_600_000 * MS;
        signals.lost(DropReason::Kernel, 3, 0, 0); // nobody knows the time yet
        signals.lost(DropReason::Kernel, 2, hour, 0);
        signals.commit(Moment::new(0, hour), false);
        signals.lost(DropReason::Kernel, 4, hour - 5 * MS, hour);
        signals.lost(DropReason::Kernel, 1, hour - 500 * MS, hour); // closed
        signals.lost(DropReason::Kernel, 7, i64::MAX - 1, hour); // as a hostile file says
        signals.commit(Moment::new(0, hour + 20 * MS), false);
        let at = hour / MS;
        assert_eq!(all(&measuring), [(0, at - 5, kernel, 4), (0, at, kernel, 5 + 1 + 7)]);
    }

    #[test]
    fn an_era_is_handed_on_up_to_its_last_packet() {
        let measuring = measuring(&[]);
        let mut signals = Signals::new(&measuring, 0, 10 * MS);
        signals.lost(DropReason::Kernel, 1, 100 * MS, 100 * MS);
        signals.lost(DropReason::Kernel, 2, 107 * MS, 107 * MS);
        signals.begin_era(107 * MS, 1);
        signals.lost(DropReason::Kernel, 4, 50 * MS, 50 * MS);
        signals.end(Moment::new(1, 50 * MS));
        let (taken, until) = measuring.taken(0);
        let eras: Vec<_> = taken.iter().map(|of| (of.era, of.reached, of.sums.len())).collect();
        assert_eq!((eras, until), (vec![(0, 107, 2), (1, 50, 1)], Moment::END));
    }

    #[test]
    fn both_directions_are_one_flow() {
        let frame = &udp(&[53])[0];
        let headers = Headers::parse(LinkType::ETHERNET, frame);
        let mut back = frame.clone();
        back[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        back[34..38].copy_from_slice(&[0, 53, 3, 232]);
        let back_headers = Headers::parse(LinkType::ETHERNET, &back);
        let of = |headers: &Headers, data: &[u8]| {
            let (source, destination) = headers.address_bytes(data).unwrap();
            flow_hash(1, headers, source, destination)
        };
        assert_eq!(of(&headers, frame), of(&back_headers, &back));
        let other = &udp(&[54])[0];
        assert_ne!(of(&headers, frame), of(&Headers::parse(LinkType::ETHERNET, other), other));
    }
}
