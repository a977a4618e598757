//! One queue's thread: waits until packets are due, hands them to the system, and counts what that says.
//!
//! Where gaps are kept, a packet that went late makes those behind it as late, so that one gap is wrong and not two.
//! The lag is made up in small parts:
//!
//! ```text
//! due = begin + time + lag;   lag grows by what a packet is late, and shrinks with each gap by 1/256 of it, 200 ns at least
//! ```
//! It has a bound: what is later than that goes at once. Where a rate is kept, all that is late goes at once.

use super::burst::{Burst, Frame};
use super::clock::{Clock, Waiter};
use super::counts::{Counts, Refusal};
use super::dealer::SenderEnd;
use scope_machine::cpus::pin_this_thread;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Packets handed to the system at once, at most.
pub(super) const CALL_FRAMES_MAX: usize = 128;
/// Where the system has no room for a packet, it is tried again for so long, ns.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Between two tries, ns.
const RETRY_NS: u64 = 50_000;

/// A lag is made up by this part of each gap, and by so many ns at least.
const LAG_PART: u64 = 256;
const LAG_STEP_NS: u64 = 200;
/// A lag is no longer than this, ns.
const LAG_MAX_NS: u64 = 20_000_000;
/// Whoever is this late was kept off its processor, and tries the next one, ns. What it sent before has left by then.
const MOVED_ON_NS: u64 = 1_000_000;

/// Where packets go. A trait because refusals of the system can't be had at will.
pub trait Wire: Send {
    /// Sends the first of `frames`, some thousand bytes each; returns how many, at least one.
    ///
    /// # Errors
    /// Why the first one wasn't sent.
    fn send(&mut self, frames: &[Frame<'_>]) -> io::Result<usize>;

    /// Whether packets can go: it is switched on, and has a link.
    fn is_up(&self) -> bool;
}

/// When the first packet could be sent, ns of the clock: the same for all queues.
pub type Begin = Arc<OnceLock<u64>>;

/// One queue.
pub struct Sender<W, C> {
    wire: W,
    clock: C,
    waiter: Waiter,
    begin: Begin,
    stop: Arc<AtomicBool>,
    /// How late packets are on purpose, ns; `None`: gaps aren't kept.
    lag_ns: Option<u64>,
    /// When the last packet was due, ns since the begin.
    last_ns: u64,
    /// Processors that it may run on, one at a time, the one that it is on first; empty: any.
    cpus: Vec<u32>,
    counts: Counts,
    /// Since when the system has had no room, ns.
    full_since_ns: Option<u64>,
    /// The first error that is none of the expected ones.
    error: Option<io::Error>,
    ended_ns: u64,
}

impl<W: Wire, C: Clock> Sender<W, C> {
    /// A queue that ends when `stop` is set, and otherwise with its packets.
    pub fn new(wire: W, clock: C, begin: Begin, stop: Arc<AtomicBool>) -> Sender<W, C> {
        Sender {
            wire,
            clock,
            waiter: Waiter::default(),
            begin,
            stop,
            lag_ns: None,
            last_ns: 0,
            cpus: Vec::new(),
            counts: Counts::default(),
            full_since_ns: None,
            error: None,
            ended_ns: 0,
        }
    }

    /// The same, and gaps between packets are kept rather than their times.
    pub fn keeping_gaps(self) -> Sender<W, C> {
        Sender { lag_ns: Some(0), ..self }
    }

    /// The same, on one of these processors at a time, since a thread that moves at any time could overtake its own
    /// packets: the system may choose a queue of the card by the processor. With none: wherever the system puts it.
    pub fn on_cpus(self, cpus: Vec<u32>) -> Sender<W, C> {
        Sender { cpus, ..self }
    }

    /// Sends what is dealt until nothing more comes: what it counted, ns of the clock after the last packet, and
    /// the first error that has no word of its own.
    pub fn run(mut self, dealt: &SenderEnd) -> (Counts, u64, Option<io::Error>) {
        // Where a processor went offline meanwhile, the thread runs anywhere.
        let _ = pin_this_thread(&self.cpus[..self.cpus.len().min(1)]);
        while let Some(mut burst) = dealt.next() {
            self.send(&burst);
            burst.clear();
            dealt.give_back(burst);
        }
        (self.counts, self.ended_ns, self.error)
    }

    /// Sends a burst, each packet when it is due.
    pub(super) fn send(&mut self, burst: &Burst) {
        let before = self.counts.sent;
        self.send_in_time(burst);
        if self.counts.sent > before {
            self.ended_ns = self.clock.now_ns();
        }
    }

    /// What it has counted so far.
    pub(super) fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// The first error that has no word of its own.
    pub(super) fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    fn send_in_time(&mut self, burst: &Burst) {
        let mut now_ns = self.clock.now_ns();
        let begin_ns = *self.begin.get_or_init(|| now_ns);
        let mut frames = [Frame { data: &[], zeros: 0, is_cut: false, due_ns: 0 }; CALL_FRAMES_MAX];
        let mut waiting = 0;
        for index in 0..burst.len() {
            let frame = burst.frame(index);
            let due_ns = begin_ns.saturating_add(self.lagging(frame.due_ns));
            // What is due goes before anybody waits.
            if due_ns > now_ns {
                self.flush(&frames[..std::mem::take(&mut waiting)]);
                match self.waiter.wait_until(&self.clock, due_ns, &self.stop) {
                    Some(then_ns) => now_ns = then_ns,
                    None => return self.counts.refuse(Refusal::Ended, (burst.len() - index) as u64),
                }
            }
            self.is_late(now_ns - due_ns);
            frames[waiting] = frame;
            waiting += 1;
            if waiting == CALL_FRAMES_MAX {
                self.flush(&frames);
                waiting = 0;
            }
        }
        self.flush(&frames[..waiting]);
    }

    /// When a packet that is due at `due_ns` goes, ns since the begin: with the lag, of which a part is made up.
    fn lagging(&mut self, due_ns: u64) -> u64 {
        let gap_ns = due_ns.saturating_sub(std::mem::replace(&mut self.last_ns, due_ns));
        let Some(lag_ns) = &mut self.lag_ns else { return due_ns };
        let part_ns = (gap_ns / LAG_PART).max(LAG_STEP_NS).min(gap_ns);
        *lag_ns = lag_ns.saturating_sub(part_ns).min(LAG_MAX_NS);
        due_ns.saturating_add(*lag_ns)
    }

    /// The packet that goes next is so late.
    fn is_late(&mut self, late_ns: u64) {
        let Some(lag_ns) = &mut self.lag_ns else { return };
        *lag_ns = lag_ns.saturating_add(late_ns);
        if late_ns > MOVED_ON_NS && self.cpus.len() > 1 {
            self.cpus.rotate_left(1);
            let _ = pin_this_thread(&self.cpus[..1]);
        }
    }

    /// Hands packets to the system, each once.
    fn flush(&mut self, frames: &[Frame<'_>]) {
        let mut left = frames;
        while !left.is_empty() {
            if self.stop.load(Ordering::Relaxed) {
                return self.counts.refuse(Refusal::Ended, left.len() as u64);
            }
            match self.wire.send(left) {
                Ok(sent) => {
                    let (gone, rest) = left.split_at(sent.clamp(1, left.len()));
                    gone.iter().for_each(|frame| self.count(frame));
                    self.full_since_ns = None;
                    left = rest;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if let Some(why) = self.refusal(error) {
                        self.counts.refuse(why, 1);
                        left = &left[1..];
                    }
                }
            }
        }
    }

    fn count(&mut self, frame: &Frame<'_>) {
        self.counts.sent += 1;
        self.counts.bytes += frame.data.len() as u64 + u64::from(frame.zeros);
        self.counts.padded += u64::from(frame.zeros > 0);
        self.counts.cut += u64::from(frame.is_cut);
    }

    /// Why a packet is refused that failed with `error`; `None`: it is to be tried again.
    fn refusal(&mut self, error: io::Error) -> Option<Refusal> {
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Some(Refusal::Down),
            Some(libc::EMSGSIZE) => Some(Refusal::TooLong),
            Some(libc::ENOBUFS | libc::EAGAIN | libc::ENOMEM) => {
                // What has no link has no room, either.
                if !self.wire.is_up() {
                    return Some(Refusal::Down);
                }
                let now_ns = self.clock.now_ns();
                let since_ns = *self.full_since_ns.get_or_insert(now_ns);
                if now_ns.saturating_sub(since_ns) >= PATIENCE_NS {
                    return Some(Refusal::NoBuffer);
                }
                self.clock.sleep(RETRY_NS);
                None
            }
            _ => {
                self.error.get_or_insert(error);
                Some(Refusal::Error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::tests::FakeClock;
    use super::super::dealer::queues;
    use super::*;

    /// Takes three packets at a time and answers with these errors in between.
    #[derive(Default)]
    struct FakeWire {
        errors: Vec<i32>,
        is_down: bool,
        sent: Arc<std::sync::Mutex<Vec<u8>>>,
    }

    impl Wire for FakeWire {
        fn send(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
            match self.errors.pop() {
                Some(0) | None => {}
                Some(error) => return Err(io::Error::from_raw_os_error(error)),
            }
            let some = &frames[..frames.len().min(3)];
            self.sent.lock().unwrap().extend(some.iter().map(|frame| frame.data[0]));
            Ok(some.len())
        }
        fn is_up(&self) -> bool {
            !self.is_down
        }
    }

    /// Sends packets with these bytes and times; what was counted, and what went out.
    fn send(wire: FakeWire, packets: &[(u8, u64)], stop: bool) -> (Counts, Vec<u8>, u64) {
        let (mut dealers, senders) = queues(1);
        let mut burst = Burst::default();
        for &(byte, due_ns) in packets {
            burst.push(Frame { data: &[byte], zeros: 2, is_cut: false, due_ns });
        }
        dealers[0].hand_on(burst).unwrap();
        dealers.clear();
        let (sent, stop) = (wire.sent.clone(), Arc::new(AtomicBool::new(stop)));
        let sender = Sender::new(wire, FakeClock::default(), Begin::default(), stop);
        let (counts, ended_ns, _) = sender.run(&senders[0]);
        let sent = sent.lock().unwrap().clone();
        (counts, sent, ended_ns)
    }

    fn at_once(packets: std::ops::Range<u8>) -> Vec<(u8, u64)> {
        packets.map(|byte| (byte, 0)).collect()
    }

    #[test]
    fn what_the_system_takes_in_parts_is_sent_once_and_in_order() {
        let (counts, sent, _) = send(FakeWire::default(), &at_once(0..200), false);
        assert_eq!((counts.sent, counts.bytes, counts.padded, counts.refused_all()), (200, 600, 200, 0));
        assert_eq!(sent, (0..200).collect::<Vec<u8>>());
    }

    #[test]
    fn each_error_of_the_system_refuses_one_packet_under_its_word() {
        let check = |error, why| {
            let wire = FakeWire { errors: vec![0, error, 0], ..FakeWire::default() };
            let (counts, sent, _) = send(wire, &at_once(0..9), false);
            assert_eq!((counts.sent, counts.refused(why), counts.refused_all()), (8, 1, 1), "{why:?}");
            assert_eq!(sent, [0, 1, 2, 4, 5, 6, 7, 8]);
        };
        check(libc::ENETDOWN, Refusal::Down);
        check(libc::ENXIO, Refusal::Down);
        check(libc::EMSGSIZE, Refusal::TooLong);
        check(libc::EINVAL, Refusal::Error);
    }

    #[test]
    fn a_packet_without_room_is_tried_again_for_a_second_and_then_refused() {
        let wire = FakeWire { errors: vec![libc::ENOBUFS; 10], ..FakeWire::default() };
        let (counts, ..) = send(wire, &at_once(0..9), false);
        assert_eq!((counts.sent, counts.refused_all()), (9, 0));
        let wire = FakeWire { errors: vec![libc::EAGAIN; 1_000_000], ..FakeWire::default() };
        let (counts, sent, ended_ns) = send(wire, &at_once(0..9), false);
        assert_eq!((counts.sent, counts.refused(Refusal::NoBuffer)), (0, 9));
        assert!(sent.is_empty() && ended_ns == 0, "nothing was sent");
        let tries = (PATIENCE_NS / RETRY_NS) as usize;
        let wire = FakeWire { errors: vec![libc::EAGAIN; tries / 2], ..FakeWire::default() };
        let (counts, _, ended_ns) = send(wire, &at_once(0..9), false);
        assert_eq!((counts.sent, counts.refused_all()), (9, 0));
        assert!((PATIENCE_NS / 2..PATIENCE_NS).contains(&ended_ns), "{ended_ns}");
        let wire = FakeWire { errors: vec![libc::ENOBUFS; 2], is_down: true, ..FakeWire::default() };
        let (counts, ..) = send(wire, &at_once(0..9), false);
        assert_eq!((counts.sent, counts.refused(Refusal::Down)), (7, 2));
    }

    #[test]
    fn packets_wait_for_their_time_and_what_is_due_goes_first() {
        let (counts, sent, ended_ns) =
            send(FakeWire::default(), &[(1, 0), (2, 5_000_000), (3, 9_000_000)], false);
        assert_eq!((counts.sent, sent), (3, vec![1, 2, 3]));
        assert!((9_000_000..9_001_000).contains(&ended_ns), "{ended_ns}");
    }

    #[test]
    fn a_packet_that_goes_late_leaves_the_gaps_behind_it_as_they_were_and_the_lag_is_made_up() {
        let (clock, wire) = (FakeClock::default(), FakeWire::default());
        let mut sender = Sender::new(wire, clock, Begin::default(), Arc::default()).keeping_gaps();
        assert_eq!(sender.lagging(1_000_000), 1_000_000);
        sender.is_late(50_000);
        assert_eq!(sender.lagging(2_000_000), 2_050_000 - 1_000_000 / LAG_PART);
        assert_eq!(sender.lagging(2_000_100), 2_046_094, "never more than the gap");
        let ends = (0..30).map(|n| sender.lagging(3_000_000 + n * 1_000_000)).last().unwrap();
        assert_eq!(ends, 32_000_000, "all of it was made up");
        sender.is_late(1_000_000_000);
        assert_eq!(sender.lagging(32_000_000), 32_000_000 + LAG_MAX_NS);
        let mut sender =
            Sender::new(FakeWire::default(), FakeClock::default(), Begin::default(), Arc::default());
        sender.is_late(50_000);
        assert_eq!(sender.lagging(2_000_000), 2_000_000, "at a rate what is late goes at once");
    }

    #[test]
    fn once_stopped_all_that_is_left_is_refused_as_ended() {
        let (counts, sent, _) = send(FakeWire::default(), &at_once(0..9), true);
        assert_eq!((counts.sent, counts.refused(Refusal::Ended), sent.len()), (0, 9, 0));
        let (counts, ..) = send(FakeWire::default(), &[(1, 5_000_000), (2, 0)], true);
        assert_eq!((counts.sent, counts.refused(Refusal::Ended)), (0, 2));
    }
}
