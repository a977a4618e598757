//! How fast packets come, and how long a thread that shares them waits for more.
//!
//! ```text
//! they come steadily       a nap, in which some gather: each wake-up is one of the thread and of every member that waits
//! one by one               sleep until a worker wakes it, at most a millisecond
//! nothing for a while      the same, at most 10 ms: a thousand looks a second would cost 3 % of a processor for nothing
//! ```
//! A sleep has a limit since a worker that commits just when the thread falls asleep may not see that it does.

use std::time::{Duration, Instant};

/// The longest nap while packets come steadily: each costs a wake-up of the thread and of every member that waits.
const NAP_MAX: Duration = Duration::from_millis(2);
/// And no longer than until about so many packets have come.
const NAP_PACKETS: u32 = 1024;
/// Packets come steadily where the mean gap between them is no longer; else each is handed out as it comes.
const STEADY_GAP: Duration = Duration::from_micros(125);
/// The longest sleep while packets come one by one.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// Behind so much time without a packet it is quiet.
const QUIET_AFTER: Duration = Duration::from_millis(20);
/// The longest sleep while it is quiet.
const QUIET_SLEEP_MAX: Duration = Duration::from_millis(10);

/// How a thread waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// So long, whatever comes.
    Nap(Duration),
    /// Until a worker wakes it, at most so long.
    Sleep(Duration),
}

/// What a thread remembers of how packets came.
pub(crate) struct Pace {
    /// Packets since then.
    since: Instant,
    packets: u64,
    /// `None`: they come one by one.
    nap: Option<Duration>,
    /// When it last waited shortly behind packets.
    came: Instant,
}

impl Pace {
    /// Nothing has come yet.
    pub fn new(now: Instant) -> Pace {
        Pace { since: now, packets: 0, nap: None, came: now }
    }

    /// Packets have come.
    #[inline]
    pub fn add(&mut self, packets: u64) {
        self.packets += packets;
    }

    /// How to wait now: by what came in the longest nap or more.
    pub fn wait(&mut self, now: Instant) -> Wait {
        if self.packets > 0 {
            self.came = now;
        }
        let time = now.duration_since(self.since);
        if time >= NAP_MAX {
            self.nap = nap(std::mem::take(&mut self.packets), time);
            self.since = now;
        }
        match self.nap {
            Some(nap) => Wait::Nap(nap),
            None if now.duration_since(self.came) >= QUIET_AFTER => Wait::Sleep(QUIET_SLEEP_MAX),
            None => Wait::Sleep(SLEEP_MAX),
        }
    }
}

/// How long to nap where so many packets came in this time.
fn nap(packets: u64, time: Duration) -> Option<Duration> {
    let gap = (packets > 0).then(|| time.div_f64(packets as f64))?;
    (gap <= STEADY_GAP).then(|| NAP_MAX.min(gap * NAP_PACKETS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_are_taken_where_packets_come_steadily_and_end_before_many_have_come() {
        let second = Duration::from_secs(1);
        assert_eq!(nap(0, second), None);
        assert_eq!(nap(1000, second), None, "each is handed out as it comes");
        assert_eq!(nap(8000, second), Some(NAP_MAX));
        assert_eq!(nap(300_000, second), Some(NAP_MAX));
        assert_eq!(nap(8_000_000, second), Some(Duration::from_micros(128)));
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        pace.add(1000);
        let sleep = Wait::Sleep(SLEEP_MAX);
        assert_eq!(pace.wait(begun + NAP_MAX / 2), sleep, "nothing is known of so short a time");
        assert_eq!(pace.wait(begun + NAP_MAX), Wait::Nap(NAP_MAX));
        assert_eq!(pace.wait(begun + NAP_MAX * 3 / 2), Wait::Nap(NAP_MAX), "until more is known");
        assert_eq!(pace.wait(begun + 2 * NAP_MAX), sleep, "nothing came");
    }

    #[test]
    fn a_thread_looks_a_hundred_times_a_second_where_nothing_comes() {
        let (mut now, end) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let (mut pace, mut sleeps) = (Pace::new(now), 0);
        while now < end {
            let Wait::Sleep(limit) = pace.wait(now) else { panic!("nothing comes, and it naps") };
            now += limit;
            sleeps += 1;
        }
        assert!(sleeps <= 120, "{sleeps}");
        pace.add(1);
        assert_eq!(pace.wait(now), Wait::Sleep(SLEEP_MAX), "something came");
        assert_eq!(pace.wait(now + QUIET_AFTER / 2), Wait::Sleep(SLEEP_MAX));
        assert_eq!(pace.wait(now + QUIET_AFTER), Wait::Sleep(QUIET_SLEEP_MAX));
    }
}
