//! One thread that sends packets as they come, in their order: all that it has taken is sent or refused before it takes more.

use super::burst::Burst;
use super::clock::SystemClock;
use super::counts::Counts;
use super::dealer::Judge;
use super::sender::{Begin, Sender, Wire};
use scope_packet::LinkType;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// So many bytes of a packet are looked at: an Ethernet header is shorter.
const HEAD_BYTES: usize = 16;

/// See the module.
pub struct Straight<W: Wire> {
    judge: Judge,
    sender: Sender<W, SystemClock>,
    burst: Burst,
}

impl<W: Wire> Straight<W> {
    /// Sends through `wire` what `judge` lets pass. Once `stop` is set all else is refused as `ended`.
    pub fn new(judge: Judge, wire: W, stop: Arc<AtomicBool>) -> Straight<W> {
        let sender = Sender::new(wire, SystemClock::begin(), Begin::default(), stop);
        Straight { judge, sender, burst: Burst::default() }
    }

    /// Takes a packet of `len` bytes, of which `copy` writes as many as it is given room for. It is sent together with
    /// others, or at [`flush`](Self::flush).
    pub fn push(&mut self, link_type: LinkType, len: usize, original_len: u32, copy: impl Fn(&mut [u8])) {
        let mut head = [0; HEAD_BYTES];
        let head = &mut head[..len.min(HEAD_BYTES)];
        copy(head);
        self.sender.counts().read += 1;
        match self.judge.judge(link_type, head, len, original_len) {
            Ok((zeros, is_cut)) => self.burst.take(len, zeros, is_cut, copy),
            Err(why) => self.sender.counts().refuse(why, 1),
        }
        if self.burst.is_full() {
            self.flush();
        }
    }

    /// Sends all that was taken.
    pub fn flush(&mut self) {
        self.sender.send(&self.burst);
        self.burst.clear();
    }

    /// What became of all that was taken, once it is flushed: `read = sent + refused`.
    pub fn counts(&mut self) -> Counts {
        *self.sender.counts()
    }

    /// The first error of the system that has no word of its own.
    pub fn error(&self) -> Option<&io::Error> {
        self.sender.error()
    }
}

#[cfg(test)]
mod tests {
    use super::super::burst::Frame;
    use super::super::counts::Refusal;
    use super::super::dealer::Padding;
    use super::super::outlet::Outlet;
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    /// Takes all, with its padding.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Wire for Kept {
        fn send(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
            let whole = |frame: &Frame<'_>| [frame.data, &vec![0; frame.zeros as usize]].concat();
            self.0.lock().unwrap().extend(frames.iter().map(whole));
            Ok(frames.len())
        }
        fn is_up(&self) -> bool {
            true
        }
    }

    #[test]
    fn packets_go_in_their_order_padded_and_what_was_read_is_sent_or_refused() {
        let link_type = LinkType::ETHERNET;
        let outlet = Outlet { name: "x".to_string(), index: 1, link_type, mtu: 100, queues: 1 };
        let (kept, stop) = (Kept::default(), Arc::new(AtomicBool::new(false)));
        let mut straight = Straight::new(Judge::new(outlet, Padding::Zero), kept.clone(), stop.clone());
        let push = |straight: &mut Straight<Kept>, link_type, byte: u8, len: usize, original_len| {
            straight.push(link_type, len, original_len, |room| room.fill(byte));
        };
        for number in 0..3000u32 {
            push(&mut straight, link_type, number as u8, 60, 60 + number % 2);
        }
        push(&mut straight, link_type, 1, 60, 115);
        push(&mut straight, link_type, 1, 13, 13);
        push(&mut straight, LinkType::RAW, 1, 60, 60);
        straight.flush();
        let counts = straight.counts();
        assert_eq!((counts.read, counts.sent, counts.padded, counts.refused_all()), (3003, 3000, 1500, 3));
        let reasons = [Refusal::TooLong, Refusal::TooShort, Refusal::LinkType];
        assert_eq!(reasons.map(|why| counts.refused(why)), [1, 1, 1]);
        let expected = |number: u32| [vec![number as u8; 60], vec![0; (number % 2) as usize]].concat();
        assert_eq!(*kept.0.lock().unwrap(), (0..3000).map(expected).collect::<Vec<_>>());
        stop.store(true, Ordering::Relaxed);
        push(&mut straight, link_type, 1, 60, 60);
        straight.flush();
        assert_eq!((straight.counts().refused(Refusal::Ended), straight.counts().read), (1, 3004));
        assert!(straight.error().is_none());
    }
}
