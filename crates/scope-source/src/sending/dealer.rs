//! The sink of a source whose packets are sent: judges each, dates it, and deals it to the queue of its flow.

use super::BURSTS_MAX;
use super::burst::{Burst, Frame};
use super::counts::{Counts, Refusal};
use super::outlet::Outlet;
use super::schedule::Schedule;
use crate::file::flow_hash;
use scope_packet::{Interface, LinkType, Packet, Sink, Turn};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// What becomes of packets of which not all bytes were captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zeros stand for what is missing: each has its length on the wire.
    Zero,
    /// They are sent as they are.
    None,
}

/// Says of each packet how it goes out of an interface, or why not.
#[derive(Debug)]
pub struct Judge {
    outlet: Outlet,
    padding: Padding,
}

impl Judge {
    /// Of packets that go out there, padded so.
    pub fn new(outlet: Outlet, padding: Padding) -> Judge {
        Judge { outlet, padding }
    }

    /// The zeros that follow a packet's `len` bytes, which begin with `head`, and whether bytes are missing at its end.
    ///
    /// # Errors
    /// It isn't sent.
    pub(super) fn judge(
        &self,
        link_type: LinkType,
        head: &[u8],
        len: usize,
        original_len: u32,
    ) -> Result<(u32, bool), Refusal> {
        // Files may say that a packet was shorter than its bytes: these are what is there.
        let missing = (original_len as usize).saturating_sub(len);
        let zeros = if self.padding == Padding::Zero { missing } else { 0 };
        self.outlet.takes(link_type, head, len + zeros)?;
        Ok((zeros as u32, missing > zeros))
    }
}

/// The end of a queue at which packets go in.
#[derive(Debug)]
pub struct DealerEnd {
    filling: Burst,
    full: SyncSender<Burst>,
    empty: Receiver<Burst>,
}

/// The end at which they come out.
#[derive(Debug)]
pub struct SenderEnd {
    full: Receiver<Burst>,
    empty: Sender<Burst>,
}

/// So many queues, both ends of each.
pub fn queues(count: u32) -> (Vec<DealerEnd>, Vec<SenderEnd>) {
    let queue = |_| {
        let ((full, to_send), (given_back, empty)) = (sync_channel(BURSTS_MAX), channel());
        let dealer = DealerEnd { filling: Burst::default(), full, empty };
        (dealer, SenderEnd { full: to_send, empty: given_back })
    };
    (0..count).map(queue).unzip()
}

impl DealerEnd {
    /// Hands a burst on; waits while others do.
    ///
    /// # Errors
    /// Nobody takes it any more.
    pub(super) fn hand_on(&mut self, burst: Burst) -> Result<(), Burst> {
        self.full.send(burst).map_err(|unsent| unsent.0)
    }
}

impl SenderEnd {
    /// The next burst; waits for it. `None`: there are no more.
    pub(super) fn next(&self) -> Option<Burst> {
        self.full.recv().ok()
    }

    /// Its memory serves the next packets.
    pub(super) fn give_back(&self, burst: Burst) {
        let _ = self.empty.send(burst); // whoever has read everything needs none
    }
}

/// Deals packets to queues.
#[derive(Debug)]
pub struct Dealer {
    judge: Judge,
    schedule: Schedule,
    /// By interface of the source.
    link_types: Vec<LinkType>,
    /// The times of the next batch are not believed.
    is_stray: bool,
    queues: Vec<DealerEnd>,
    counts: Counts,
}

impl Dealer {
    /// Deals to these queues, at least one, what is to be sent.
    pub fn new(judge: Judge, schedule: Schedule, queues: Vec<DealerEnd>) -> Dealer {
        let (link_types, counts) = (Vec::new(), Counts::default());
        Dealer { judge, schedule, link_types, is_stray: false, queues, counts }
    }

    /// The source is at its end and is read again from its beginning.
    pub fn begin_again(&mut self) {
        self.link_types.clear();
        self.is_stray = false;
        self.schedule.begin_era();
    }

    /// Lets what was dealt so far go on its way.
    pub fn hand_on(&mut self) {
        (0..self.queues.len()).for_each(|queue| self.hand_on_queue(queue));
    }

    /// Nothing more comes: the queues end. What was read and what was refused of it here.
    pub fn end(mut self) -> Counts {
        self.hand_on();
        self.counts
    }

    fn hand_on_queue(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        if queue.filling.is_empty() {
            return;
        }
        let next = queue.empty.try_recv().unwrap_or_default();
        let full = std::mem::replace(&mut queue.filling, next);
        if let Err(unsent) = queue.hand_on(full) {
            self.counts.refuse(Refusal::Ended, unsent.len() as u64);
        }
    }
}

impl Sink for Dealer {
    fn interface(&mut self, interface: &Interface) {
        self.link_types.push(interface.link_type);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        for packet in packets {
            self.counts.read += 1;
            let link_type = self.link_types[packet.interface as usize];
            let judged = self.judge.judge(link_type, packet.data, packet.data.len(), packet.original_len);
            let (zeros, is_cut) = match judged {
                Ok(judged) => judged,
                Err(why) => {
                    self.counts.refuse(why, 1);
                    continue;
                }
            };
            let queue = match self.queues.len() as u64 {
                1 => 0,
                queues => (flow_hash(link_type, packet.data) % queues) as usize,
            };
            let due_ns = self.schedule.due_ns(Some(packet.time_ns).filter(|_| !self.is_stray));
            self.queues[queue].filling.push(Frame { data: packet.data, zeros, is_cut, due_ns });
            if self.queues[queue].filling.is_full() {
                self.hand_on_queue(queue);
            }
        }
        self.is_stray = false;
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Back => self.schedule.begin_era(),
            Turn::Stray => self.is_stray = true,
        }
    }

    fn idle(&mut self, _: i64) {}
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Pace;
    use super::*;
    use scope_packet::TimestampSource;

    fn dealer(padding: Padding, pace: Pace, count: u32) -> (Dealer, Vec<SenderEnd>) {
        let (dealers, senders) = queues(count);
        let (name, link_type) = ("x".to_string(), LinkType::ETHERNET);
        let outlet = Outlet { name, index: 1, link_type, mtu: 100, queues: 1 };
        let mut dealer = Dealer::new(Judge::new(outlet, padding), Schedule::new(pace), dealers);
        for link_type in [LinkType::ETHERNET, LinkType::RAW] {
            let (name, description) = (String::new(), String::new());
            let timestamps = TimestampSource::File;
            dealer.interface(&Interface { name, description, link_type, snap_len: 0, timestamps, part: 0 });
        }
        (dealer, senders)
    }

    fn packet(data: &[u8], original_len: u32, time_ns: i64, interface: u32) -> Packet<'_> {
        Packet { data, original_len, time_ns, interface, flags: 0, lost_before: 0 }
    }

    #[test]
    fn what_was_read_is_dealt_or_refused_and_missing_bytes_become_zeros() {
        let data = [7; 115];
        let packets = [
            packet(&data[..60], 60, 0, 0),
            packet(&data[..60], 114, 0, 0),
            packet(&data[..60], 115, 0, 0),
            packet(&data[..60], 60, 0, 1),
            packet(&data[..60], 20, 0, 0),
            packet(&data[..13], 13, 0, 0),
            packet(&data[..13], 60, 0, 0),
        ];
        let check = |padding, expected: &[(u32, bool)], refused: [u64; 3]| {
            let (mut dealer, senders) = dealer(padding, Pace::Max, 1);
            dealer.batch(&packets);
            let counts = dealer.end();
            let burst = senders[0].next().unwrap();
            let dealt: Vec<(u32, bool)> =
                (0..burst.len()).map(|index| (burst.frame(index).zeros, burst.frame(index).is_cut)).collect();
            assert_eq!(dealt, expected);
            let reasons = [Refusal::TooLong, Refusal::LinkType, Refusal::TooShort];
            assert_eq!(reasons.map(|why| counts.refused(why)), refused);
            assert_eq!(counts.read, dealt.len() as u64 + counts.refused_all());
            assert!(senders[0].next().is_none());
        };
        check(Padding::Zero, &[(0, false), (54, false), (0, false), (47, false)], [1, 1, 1]);
        check(Padding::None, &[(0, false), (0, true), (0, true), (0, false)], [0, 1, 2]);
    }

    #[test]
    fn times_of_strays_wait_for_nothing_and_a_step_back_begins_anew() {
        let (mut dealer, senders) = dealer(Padding::Zero, Pace::Recorded(1.0), 1);
        let data = [0; 60];
        dealer.batch(&[packet(&data, 60, 1_000, 0), packet(&data, 60, 4_000, 0)]);
        dealer.turn(Turn::Stray);
        dealer.batch(&[packet(&data, 60, i64::MAX, 0)]);
        dealer.batch(&[packet(&data, 60, 5_000, 0)]);
        dealer.turn(Turn::Back);
        dealer.batch(&[packet(&data, 60, 10, 0), packet(&data, 60, 20, 0)]);
        dealer.end();
        let burst = senders[0].next().unwrap();
        let due: Vec<u64> = (0..burst.len()).map(|index| burst.frame(index).due_ns).collect();
        assert_eq!(due, [0, 3_000, 3_000, 4_000, 4_000, 4_010]);
    }

    #[test]
    fn whoever_reads_waits_for_whoever_sends_and_counts_what_nobody_takes() {
        let (mut dealer, senders) = dealer(Padding::Zero, Pace::Max, 2);
        drop(senders);
        let data = [0; 60];
        let packets = [packet(&data, 60, 0, 0); 64];
        (0..100).for_each(|_| dealer.batch(&packets));
        let counts = dealer.end();
        assert_eq!((counts.read, counts.refused(Refusal::Ended)), (6400, 6400));
    }
}
