//! One capture file with the times of its packets judged: a packet whose time is odd waits until those behind
//! it are known.
//!
//! ```text
//!  capture ─► near the clock? ── yes ─► the next packet, in the buffer
//!                     └─ no ─► copied; up to 15 packets behind it are copied, too, until it can be judged ─► the next packet, a copy
//! ```

use std::collections::VecDeque;

use super::capture::{Advance, Capture};
use super::course::{BEHIND_PACKETS, Course, Judgement};
use super::record::{Interfaces, Record};

/// Bytes that wait to be judged in one file, at most, beside one packet; beyond, the oldest is judged by what
/// is known.
const HELD_BYTES_MAX: usize = 1 << 20;
/// So many waits for a pipe that brings nothing, of 10 ms each, and what waits to be judged is judged by what
/// is known.
const WAITS_MAX: u32 = 10;

/// Where the bytes of the next packet are.
enum Next {
    /// None is known.
    Nothing,
    /// In the buffer: [`Capture::next`].
    InBuffer,
    Copied(Record, Box<[u8]>),
}

/// A file, and its clock.
pub(super) struct Timed {
    pub(super) capture: Capture,
    course: Course,
    next: Next,
    judgement: Judgement,
    /// Copies of packets behind the next one, the oldest of which isn't near the clock.
    held: VecDeque<(Record, Box<[u8]>)>,
    held_bytes: usize,
    /// Nothing comes behind what is held.
    ended: bool,
    /// What is held is judged by what is known.
    hurried: bool,
    waits: u32,
}

impl Timed {
    /// Takes a file that was opened, and stands before its first packet or, as a pipe, doesn't know it yet.
    pub(super) fn new(capture: Capture) -> Timed {
        let (course, next) = match capture.next() {
            Some(first) => (Course::begin(first.time_ns), Next::InBuffer),
            None => (Course::begin(i64::MIN), Next::Nothing),
        };
        let (held, judgement) = (VecDeque::new(), Judgement::Believed);
        Timed {
            capture,
            course,
            next,
            judgement,
            held,
            held_bytes: 0,
            ended: false,
            hurried: false,
            waits: 0,
        }
    }

    /// The next packet's record, if one is known, and what is made of its time.
    #[inline]
    pub(super) fn next(&self) -> Option<(&Record, Judgement)> {
        match &self.next {
            Next::InBuffer => self.capture.next().map(|record| (record, Judgement::Believed)),
            Next::Copied(record, _) => Some((record, self.judgement)),
            Next::Nothing => None,
        }
    }

    /// When it takes its turn among the packets of other files, ns: at its time, or, a stray, at once.
    #[inline]
    pub(super) fn turn_ns(&self) -> i64 {
        match self.next() {
            Some((record, Judgement::Believed)) => record.time_ns,
            _ => self.course.clock_ns(),
        }
    }

    /// The bytes of the next packet.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.next {
            Next::InBuffer => self.capture.next().map_or(&[], |record| self.capture.bytes(record)),
            Next::Copied(_, bytes) => bytes,
            Next::Nothing => &[],
        }
    }

    /// The next packet's bytes, if they are a copy, to be kept by the caller.
    #[inline]
    pub(super) fn take_copy(&mut self) -> Option<Box<[u8]>> {
        match &mut self.next {
            Next::Copied(_, bytes) => Some(std::mem::take(bytes)),
            _ => None,
        }
    }

    /// Goes on to the next packet.
    #[inline]
    pub(super) fn advance(&mut self, interfaces: &mut Interfaces) -> Advance {
        if self.held.is_empty() && !self.ended {
            let advance = self.capture.advance(interfaces);
            let time_ns = self.capture.next().map_or(i64::MIN, |record| record.time_ns);
            if advance == Advance::Packet && self.course.advance_if_near(time_ns) {
                self.next = Next::InBuffer;
                return Advance::Packet;
            }
            self.next = Next::Nothing;
            if advance != Advance::Packet {
                return advance;
            }
            self.hold();
        }
        self.advance_held(interfaces)
    }

    /// Moves packets to `batch` that aren't later than `until_ns`, while those behind them are near the clock
    /// and need no closer look; the rest is for [`Timed::advance`]. A packet is next before and after.
    #[inline]
    pub(super) fn run(&mut self, batch: &mut Vec<Record>, most: usize, until_ns: i64) {
        if !matches!(self.next, Next::InBuffer) || !self.held.is_empty() || self.ended {
            return;
        }
        let course = &mut self.course;
        self.capture
            .run(batch, most, |time_ns, behind_ns| time_ns <= until_ns && course.advance_if_near(behind_ns));
    }

    /// Copies what the capture has found, to be judged.
    fn hold(&mut self) {
        let Some(&record) = self.capture.next() else { return };
        let bytes: Box<[u8]> = self.capture.bytes(&record).into();
        if self.course.clock_ns() == i64::MIN {
            self.course = Course::begin(record.time_ns); // a pipe's first packet
        }
        self.held_bytes += bytes.len();
        self.held.push_back((record, bytes));
    }

    #[cold]
    fn advance_held(&mut self, interfaces: &mut Interfaces) -> Advance {
        self.next = Next::Nothing;
        loop {
            let Some((first, _)) = self.held.front() else { return Advance::Ended };
            let time_ns = first.time_ns;
            let known = self.held.len() > BEHIND_PACKETS
                || self.held_bytes > HELD_BYTES_MAX
                || self.ended
                || self.hurried;
            let judgement = if self.course.advance_if_near(time_ns) {
                Judgement::Believed
            } else if known {
                self.course.judge(
                    time_ns,
                    self.held
                        .range(1..self.held.len().min(1 + BEHIND_PACKETS))
                        .map(|(record, _)| record.time_ns),
                )
            } else {
                match self.capture.advance(interfaces) {
                    Advance::Packet => self.hold(),
                    Advance::Ended => self.ended = true,
                    Advance::Refill => return Advance::Refill,
                }
                continue;
            };
            let Some((record, bytes)) = self.held.pop_front() else { return Advance::Ended };
            self.held_bytes -= bytes.len();
            if self.held.is_empty() {
                (self.hurried, self.waits) = (false, 0);
            }
            (self.next, self.judgement) = (Next::Copied(record, bytes), judgement);
            return Advance::Packet;
        }
    }

    /// A pipe brought nothing for 10 ms: whether an advance may go on all the same, with what waits to be
    /// judged.
    pub(super) fn hurry(&mut self) -> bool {
        self.waits += u32::from(!self.held.is_empty());
        self.hurried = self.waits >= WAITS_MAX;
        self.hurried
    }

    /// Reading failed: whether there is something still to be handed out before that is reported.
    pub(super) fn fail(&mut self) -> bool {
        self.ended = true;
        !self.held.is_empty()
    }
}
