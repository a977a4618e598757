//! What a program has set of a handle, and what it gets from it: packets, the end of the run, errors in words.

use crate::abi::{ERROR_BYTES, FAILED, Handle, Header, NANO, ONLY_IN, ONLY_OUT, SNAPLEN_MAX};
use crate::capture::{Capture, Filled};
use crate::program::Filter;
use crate::signs::Signs;
use libc::{c_int, timeval};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// What a run's end is called.
const ENDED: &str = "the run has ended";
/// A wait is cut into pieces of this length: so soon a loop that is to end ends.
const PIECE: Duration = Duration::from_millis(50);
/// Of `epb_flags`: the direction, and what goes out.
const DIRECTION: u32 = 3;
const OUTBOUND: u32 = 2;

/// A handle of ours.
pub struct State {
    /// What the program holds.
    outer: AtomicPtr<libc::c_void>,
    /// Of the real link type and length; NULL until it is activated.
    inner: AtomicPtr<libc::c_void>,
    /// As it was set.
    pub settings: Settings,
    filter: Option<Filter>,
    capture: Option<Capture>,
    /// What members have read and missed that this handle had before.
    before: [u64; 3],
    header: Header,
    error: [u8; ERROR_BYTES],
}

/// What can be set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a packet that are handed out at most.
    pub snaplen: c_int,
    /// How long a call waits for packets; 0: for ever.
    pub timeout_ms: c_int,
    /// Whether times are in ns.
    pub precision: c_int,
    /// Whether calls never wait.
    pub is_nonblocking: bool,
    /// Whether the monitor mode is asked for, which no group has.
    pub monitors: bool,
    /// `PCAP_D_...`.
    pub direction: c_int,
}

/// A packet for the program: its bytes lie in the handle's copy until the next ones are read.
pub struct Lent {
    /// What is known of it.
    pub header: Header,
    /// Its first byte.
    pub data: *const u8,
}

/// What a turn has brought.
pub enum Turn {
    /// A packet.
    Packet(Lent),
    /// Nothing in the time that was set.
    TimedOut,
    /// The copy is used up, and it is time to say so.
    UsedUp,
    /// The loop is to end.
    Broken,
    /// An error, which the handle says.
    Failed,
}

impl State {
    /// A handle that the program may set up.
    pub fn new(outer: Handle) -> State {
        State {
            outer: AtomicPtr::new(outer),
            inner: AtomicPtr::new(null_mut()),
            settings: Settings {
                snaplen: SNAPLEN_MAX,
                timeout_ms: 0,
                precision: 0,
                is_nonblocking: false,
                monitors: false,
                direction: 0,
            },
            filter: None,
            capture: None,
            before: [0; 3],
            header: Header::default(),
            error: [0; ERROR_BYTES],
        }
    }

    /// The handles that libpcap made for it; the second one is NULL before it is activated.
    pub fn handles(&self) -> [Handle; 2] {
        [self.outer.load(Ordering::Relaxed), self.inner.load(Ordering::Relaxed)]
    }

    /// The handle that knows link type and length; before it is activated that of the program.
    pub fn known(&self) -> Handle {
        let [outer, inner] = self.handles();
        if inner.is_null() { outer } else { inner }
    }

    /// Whether it was activated.
    pub fn is_active(&self) -> bool {
        !self.handles()[1].is_null()
    }

    /// Whether it reads, and its run isn't over.
    pub fn is_reading(&self) -> bool {
        self.capture.as_ref().is_some_and(|capture| !capture.has_ended())
    }

    /// Joins the group; the link type, as libpcap counts them in files.
    ///
    /// # Errors
    /// Why not; it stands in the handle, too.
    pub fn join(&mut self) -> Result<u16, c_int> {
        self.leave();
        match Capture::open() {
            Ok(capture) => {
                let link_type = capture.link_type();
                self.capture = Some(capture);
                Ok(link_type)
            }
            Err(why) => Err(self.fail(&why)),
        }
    }

    /// Leaves the group; what was counted stays.
    pub fn leave(&mut self) {
        self.before = self.figures();
        self.capture = None;
    }

    /// It is active from now on.
    pub fn activated(&mut self, inner: Handle) {
        self.inner.store(inner, Ordering::Relaxed);
    }

    /// The filter from now on.
    pub fn set_filter(&mut self, filter: Filter) {
        self.filter = Some(filter);
    }

    /// Says why something failed.
    pub fn fail(&mut self, words: &str) -> c_int {
        let words = &words[..words.floor_char_boundary(ERROR_BYTES - 1)];
        self.error = [0; ERROR_BYTES];
        self.error[..words.len()].copy_from_slice(words.as_bytes());
        FAILED
    }

    /// What the last failure says, ended by a NUL.
    pub fn error(&self) -> &[u8; ERROR_BYTES] {
        &self.error
    }

    /// Where a header stays until the next packet.
    pub fn keep(&mut self, header: Header) -> *mut Header {
        self.header = header;
        &raw mut self.header
    }

    /// Packets read and missed, and those of other link types.
    fn figures(&self) -> [u64; 3] {
        let of_now = self.capture.as_ref().map_or([0; 3], |capture| {
            let counts = capture.counts();
            [counts.seen, counts.missed, capture.other_types()]
        });
        std::array::from_fn(|figure| self.before[figure] + of_now[figure])
    }

    fn tell(&self, signs: &Signs) {
        signs.tell(self.figures());
    }

    /// A descriptor to poll.
    pub fn descriptor(&mut self) -> c_int {
        self.capture.as_mut().and_then(|capture| capture.descriptor().ok()).unwrap_or(FAILED)
    }

    /// The next packet that the program wants. Where there is none in the copy, more are waited for, unless `has_some`:
    /// then the call has something to return with.
    pub fn turn(&mut self, signs: &Signs, has_some: bool, since: Instant) -> Turn {
        loop {
            if signs.is_broken() {
                return Turn::Broken;
            }
            if let Some(lent) = self.wanted() {
                return Turn::Packet(lent);
            }
            self.tell(signs);
            if has_some {
                return Turn::UsedUp;
            }
            let left = self.left(since);
            let Some(capture) = self.capture.as_mut() else {
                self.fail("it was not activated");
                return Turn::Failed;
            };
            let filled = capture.fill(left.min(PIECE));
            self.tell(signs);
            match filled {
                Ok(Filled::Packets) => {}
                Ok(Filled::NoneYet) if self.left(since).is_zero() => return Turn::TimedOut,
                Ok(Filled::NoneYet) => {}
                Ok(Filled::Ended) => {
                    self.fail(ENDED);
                    return Turn::Failed;
                }
                Err(why) => {
                    self.fail(&why);
                    return Turn::Failed;
                }
            }
        }
    }

    /// How long a call that began then may still wait.
    fn left(&self, since: Instant) -> Duration {
        match u64::try_from(self.settings.timeout_ms) {
            _ if self.settings.is_nonblocking => Duration::ZERO,
            Ok(timeout_ms @ 1..) => Duration::from_millis(timeout_ms).saturating_sub(since.elapsed()),
            _ => PIECE,
        }
    }

    /// The next packet of the copy that matches the filter and goes the right way, truncated as libpcap does.
    fn wanted(&mut self) -> Option<Lent> {
        let Settings { snaplen, precision, direction, .. } = self.settings;
        let capture = self.capture.as_mut()?;
        while let Some((head, data)) = capture.next_packet() {
            let is_wanted = match direction {
                ONLY_IN => head.flags & DIRECTION != OUTBOUND,
                ONLY_OUT => head.flags & DIRECTION == OUTBOUND,
                _ => true,
            };
            let kept = self.filter.as_ref().map_or(u32::MAX, |filter| filter.keeps(data, head.original));
            if !is_wanted || kept == 0 {
                continue;
            }
            let captured = (data.len() as u32).min(kept).min(snaplen as u32);
            let header = Header { time: time(head.time_ns, precision), captured, original: head.original };
            return Some(Lent { header, data: data.as_ptr() });
        }
        None
    }
}

/// A time as libpcap has it: in µs, or in ns at the same place.
fn time(time_ns: i64, precision: c_int) -> timeval {
    let ns = time_ns.rem_euclid(1_000_000_000);
    let part = if precision == NANO { ns } else { ns / 1000 };
    timeval { tv_sec: time_ns.div_euclid(1_000_000_000), tv_usec: part }
}

/// What libpcap calls a link type that files call so: they differ for what is older than files of all systems.
pub fn of_file(link_type: u16) -> c_int {
    match link_type {
        0..=10 => link_type.into(),
        100 => 11,
        101 => 12,
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_us_or_in_ns_also_before_1970() {
        let check = |time_ns: i64, precision: c_int, expected: (i64, i64)| {
            let time = time(time_ns, precision);
            assert_eq!((time.tv_sec, time.tv_usec), expected, "{time_ns} {precision}");
        };
        check(1_500_000_000_123_456_789, 0, (1_500_000_000, 123_456));
        check(1_500_000_000_123_456_789, NANO, (1_500_000_000, 123_456_789));
        check(-1, NANO, (-1, 999_999_999));
        check(-1, 0, (-1, 999_999));
    }

    #[test]
    fn link_types_of_files_are_those_of_this_system() {
        // LINKTYPE_... and DLT_... of: BSD loopback, Ethernet, ATM, raw IP, 802.11, Linux cooked, IPv4
        for (of_files, here) in [(0, 0), (1, 1), (100, 11), (101, 12), (105, 105), (113, 113), (228, 228)] {
            assert_eq!(of_file(of_files), here);
        }
    }

    #[test]
    fn a_long_error_is_cut_between_letters_and_ends_with_a_nul() {
        let mut state = State::new(null_mut());
        assert_eq!(state.fail(&"ä".repeat(200)), FAILED);
        let error = std::ffi::CStr::from_bytes_until_nul(state.error()).unwrap();
        assert_eq!(error.to_str().unwrap(), "ä".repeat(127));
    }
}
