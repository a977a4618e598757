//! A member of a group: joins it, goes through its packets in place, waits for more, and says on its page how far it is.
//!
//! ```text
//! next      give the last batch back ─► a look at the ring ─► packets: how many, for a part which, by the key column
//!           nothing new ─► is the run over? news are taken; (kept) the page says: waits ─► one look more ─► sleep ─► look
//! packet    asks memory for one some packets ahead, then looks at its entry and block: nobody waits for one after the other
//! is_whole  the generation of the segment is as before: what was read is as it was written
//! ```
//! A batch has at most [`BATCH_PACKETS_MAX`] packets of one lane: an overrun costs no more than these.

use crate::error::{OpenError, ReadError};
use crate::options::Options;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use scope_ring::{
    Begin, Bytes, Lent, LentPacket, OutsideCounts, OutsideError, OutsideInterface, OutsideReader, Steering,
};
use scope_share::message::{Greeting, is_name};
use scope_share::{DEFAULT_PATH, Joined, Progress, REMOVED, RING, join};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Packets of a batch at most.
pub const BATCH_PACKETS_MAX: u32 = 1024;
/// Sleep where nobody wakes a member that waits: in the group `ring`.
const NAP: Duration = Duration::from_millis(1);
/// Sleep where the run wakes it: it looks again after this time, whatever becomes of the news.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The page is written so often, where nothing waits for it.
const PAGE_EVERY: Duration = Duration::from_millis(1);

/// So many packets ahead memory is asked for one: as long as a few of them take, it needs.
const FETCHED_AHEAD: u32 = 8;
/// And so many ahead for its key entry, which says where it begins.
const ENTRIES_AHEAD: u32 = 48;

/// What [`Member::next`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// So many packets, 1 or more.
    Packets(u32),
    /// None yet.
    NoneYet,
    /// The run is over, and all that it left was handed out.
    Ended,
}

/// Packets since it joined: `given = seen + missed + behind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Gone through; those of other parts included.
    pub seen: u64,
    /// Overwritten before they were seen, or while somebody looked at them.
    pub missed: u64,
    /// There, and still to be seen.
    pub behind: u64,
}

/// One packet in place.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The captured bytes.
    pub data: Bytes<'a>,
    /// Capture time, ns since the epoch.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub original_len: u32,
    /// Number of the interface.
    pub interface: u32,
    /// `epb_flags`, 0 where there are none.
    pub flags: u32,
    /// What a rule of the group has marked it with; 0: nothing.
    pub mark: u32,
    /// Packets that are missing directly before it: lost by the run, or missed here.
    pub lost_before: u64,
}

/// The packets that are lent at the moment.
struct Batch {
    lent: Lent,
    /// So many at the begin are not for this member.
    skipped: u32,
    /// Those that fall to this member.
    packets: u32,
    /// Missed before the first of them.
    missed_before: u64,
    /// Counted as missed: it was overrun.
    is_forgotten: bool,
}

/// What is kept of a lane.
#[derive(Clone, Default)]
struct Lane {
    /// Packets from before the time that was asked for are over.
    has_begun: bool,
    /// Missed before packets that fell to others.
    carried: u64,
}

/// A member of a group.
pub struct Member {
    reader: OutsideReader,
    joined: Joined,
    steering: Option<Steering>,
    lanes: Vec<Lane>,
    batch: Option<Batch>,
    /// Of those that take a part of the packets: which of the batch fall to it.
    picked: Vec<u32>,
    /// No packet begins where one of the batch should: it was overwritten, or the ring is damaged.
    is_unreadable: Cell<bool>,
    is_over: bool,
    /// The run looks at the page for what it may recycle.
    is_place_needed: bool,
    failed: Option<ReadError>,
    said: Progress,
    said_at: Instant,
    /// Of the group `ring`: becomes readable after a nap.
    alarm: Option<OwnedFd>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("number", &self.joined.member).finish_non_exhaustive()
    }
}

impl Member {
    /// Joins `group` of the run that listens at `socket`; `None`: where the service does.
    ///
    /// # Errors
    /// Why not.
    pub fn open(socket: Option<&Path>, group: &str, options: &Options) -> Result<Member, OpenError> {
        if !is_name(group) {
            return Err(OpenError::Group(group.to_string()));
        }
        options.check_for(group).map_err(OpenError::Options)?;
        let socket = socket.unwrap_or(Path::new(DEFAULT_PATH));
        let greeting = Greeting {
            weight: options.weight,
            class: options.class.clone(),
            hold: options.hold,
            ..Greeting::new(group, &options.name)
        };
        let joined = join(socket, &greeting).map_err(|error| OpenError::Join {
            socket: socket.to_path_buf(),
            group: group.to_string(),
            error,
        })?;
        let begin = options.past_ns.map_or(Begin::Now, Begin::Past);
        let part = options.part.filter(|_| group == RING);
        let steering = part.map(|(part, parts)| Steering::new(part - 1, parts));
        let mut member = Member::begin(joined, socket, begin, steering)?;
        member.is_place_needed |= options.hold > 0;
        Ok(member)
    }

    /// A member that has joined already, from now on.
    ///
    /// # Errors
    /// Its memory can't be read, or its page not be written.
    pub fn of(joined: Joined) -> Result<Member, OpenError> {
        Member::begin(joined, Path::new(""), Begin::Now, None)
    }

    /// What the run gives to a member comes once its page says where it began.
    fn begin(
        joined: Joined,
        socket: &Path,
        begin: Begin,
        steering: Option<Steering>,
    ) -> Result<Member, OpenError> {
        let reader = OutsideReader::map(joined.ring(), begin)
            .map_err(|error| OpenError::Ring { socket: socket.to_path_buf(), error })?;
        let mut member = Member {
            reader,
            joined,
            steering,
            lanes: Vec::new(),
            batch: None,
            picked: Vec::new(),
            is_unreadable: Cell::new(false),
            is_over: false,
            is_place_needed: false,
            failed: None,
            said: Progress::default(),
            said_at: Instant::now(),
            alarm: None,
        };
        member.is_place_needed = member.joined.is_kept;
        let progress = member.progress(false);
        member.joined.page.write(&progress).map_err(OpenError::Page)?;
        member.said = progress;
        Ok(member)
    }

    /// Whether what isn't read stays as it is: then packets can't be overwritten while somebody looks at them.
    pub fn is_kept(&self) -> bool {
        self.joined.is_kept
    }

    /// Gives the last packets back and goes on to the next ones, waiting for them for this time; `None`: for ever.
    ///
    /// # Errors
    /// What stands in the ring can't be so; then it stays like that.
    pub fn next(&mut self, wait: Option<Duration>) -> Result<Next, ReadError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let is_damaged = self.is_unreadable.take() && self.is_whole();
        self.give_back();
        let next = match is_damaged {
            true => Err(ReadError("a segment has other packets than it says".to_string())),
            false => self.look(wait).map_err(|error| ReadError(error.to_string())),
        };
        let next = match next {
            Ok(Next::Ended) if self.joined.was_removed() => Err(ReadError(REMOVED.to_string())),
            next => next,
        };
        self.failed = next.clone().err();
        next
    }

    fn look(&mut self, wait: Option<Duration>) -> Result<Next, OutsideError> {
        let (mut until, mut is_last_look) = (None, false);
        loop {
            if let Some(lent) = self.reader.lend(BATCH_PACKETS_MAX)? {
                let packets = self.begin_batch(lent);
                self.say_progress(false);
                if packets > 0 {
                    return Ok(Next::Packets(packets));
                }
                self.give_back();
                continue;
            }
            if self.is_over {
                self.say(false);
                return Ok(Next::Ended); // nothing came since it was seen to be over
            }
            if !is_last_look {
                // Of what has come up to here the news are gone, and the run may not have seen that this waits.
                self.is_over = self.joined.is_over();
                if self.joined.is_kept && !self.said.waits {
                    self.say(true);
                }
                is_last_look = true;
                continue;
            }
            self.say_progress(self.joined.is_kept);
            let now = Instant::now();
            let left = wait.map_or(SLEEP_MAX, |wait| {
                let until = until.get_or_insert_with(|| now.checked_add(wait));
                until.map_or(SLEEP_MAX, |until| until.saturating_duration_since(now))
            });
            if left.is_zero() {
                self.set_alarm();
                return Ok(Next::NoneYet);
            }
            self.joined.wait(left.min(if self.joined.is_kept { SLEEP_MAX } else { NAP }));
            is_last_look = false;
        }
    }

    /// Finds the packets of what is lent that fall to this member: how many.
    fn begin_batch(&mut self, lent: Lent) -> u32 {
        let lane = lent.lane as usize;
        if self.lanes.len() <= lane {
            self.lanes.resize(lane + 1, Lane::default());
        }
        let missed_before = lent.missed_before.saturating_add(std::mem::take(&mut self.lanes[lane].carried));
        let skipped = self.too_early(&lent);
        let packets = match self.steering {
            None => lent.packets - skipped, // an entry is looked at with its packet: all at once, memory is waited for
            Some(steering) => {
                let reader = &self.reader;
                let takes = |index: &u32| reader.key(&lent, *index).is_some_and(|key| steering.takes(&key));
                self.picked.clear();
                self.picked.extend((skipped..lent.packets).filter(takes));
                self.picked.len() as u32
            }
        };
        if packets == 0 {
            self.lanes[lane].carried = missed_before;
        }
        self.batch = Some(Batch { lent, skipped, packets, missed_before, is_forgotten: false });
        if self.is_whole() { packets } else { 0 }
    }

    /// How many packets at the begin are from before the time that was asked for.
    fn too_early(&mut self, lent: &Lent) -> u32 {
        let lane = &mut self.lanes[lent.lane as usize];
        let Some(since_ns) = self.reader.since_ns().filter(|_| !lane.has_begun) else { return 0 };
        let is_early = |index: &u32| {
            let packet = self.reader.key(lent, *index).and_then(|key| self.reader.packet(lent, key.offset()));
            packet.is_some_and(|packet| packet.time_ns < since_ns)
        };
        let skipped = (0..lent.packets).take_while(is_early).count() as u32;
        lane.has_begun = skipped < lent.packets;
        skipped
    }

    /// Gives the last packets back. What was overrun while somebody looked at it counts as missed.
    fn give_back(&mut self) {
        self.is_whole();
        self.batch = None;
    }

    /// Whether all that was read of the packets up to now is as it was written; else they count as missed.
    pub fn is_whole(&mut self) -> bool {
        let Some(batch) = &mut self.batch else { return true };
        if !batch.is_forgotten && !self.reader.is_whole(&batch.lent) {
            batch.is_forgotten = true;
            self.reader.forget(&batch.lent);
            // What was missed before it is missing before the next ones, too; the reader tells its own part of that.
            let carried = batch.missed_before.saturating_sub(batch.lent.missed_before);
            self.lanes[batch.lent.lane as usize].carried = carried;
        }
        !batch.is_forgotten
    }

    /// Packet `index`, from 0, of those that were found; `None`: there is none, or it was overwritten.
    #[inline(always)]
    pub fn packet(&self, index: u32) -> Option<Packet<'_>> {
        let batch = self.batch.as_ref().filter(|batch| index < batch.packets)?;
        let packet = self.look_at(batch, index);
        if packet.is_none() {
            self.is_unreadable.set(true);
        }
        packet
    }

    /// The packets that were found, one after another; it ends early where they were overwritten.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'_>> {
        let packets = self.batch.as_ref().map_or(0, |batch| batch.packets);
        (0..packets).map_while(|index| self.look_at(self.batch.as_ref()?, index))
    }

    /// Packet `index` of those that were found as it is handed out, after asking memory for one that comes later.
    #[inline(always)]
    fn look_at(&self, batch: &Batch, index: u32) -> Option<Packet<'_>> {
        let key = |index: u32| {
            let of_lent = match self.steering {
                None => batch.skipped + index,
                Some(_) => *self.picked.get(index as usize)?,
            };
            self.reader.key(&batch.lent, of_lent)
        };
        self.reader.fetch_entry(&batch.lent, batch.skipped + index + ENTRIES_AHEAD);
        if index + FETCHED_AHEAD < batch.packets
            && let Some(ahead) = key(index + FETCHED_AHEAD)
        {
            self.reader.fetch(&batch.lent, ahead.offset());
        }
        let key = key(index)?;
        let LentPacket { interface, time_ns, original_len, flags, lost_before, data, .. } =
            self.reader.packet(&batch.lent, key.offset())?;
        let missed_before = if index == 0 { batch.missed_before } else { 0 };
        let lost_before = lost_before.saturating_add(missed_before);
        // Groups other than `ring` have it in the place of the source.
        let mark = if self.joined.is_kept { u32::from_le_bytes(key.source) } else { 0 };
        Some(Packet { data, time_ns, original_len, interface, flags, mark, lost_before })
    }

    /// Interface `number` of the run.
    ///
    /// # Errors
    /// What stands in the ring can't be so.
    pub fn interface(&mut self, number: u32) -> Result<Option<&OutsideInterface>, ReadError> {
        let interfaces = self.reader.interfaces().map_err(|error| ReadError(error.to_string()))?;
        Ok(interfaces.get(number as usize))
    }

    /// How much was seen and missed.
    pub fn counts(&self) -> Counts {
        let OutsideCounts { read, missed, behind, .. } = self.reader.counts();
        Counts { seen: read, missed, behind }
    }

    /// A descriptor for `poll(2)`: after [`Next::NoneYet`] it is readable once there may be packets, or the run is over.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_fd(&mut self) -> std::io::Result<BorrowedFd<'_>> {
        if self.joined.is_kept {
            return Ok(self.joined.connection());
        }
        if self.alarm.is_none() {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            self.alarm = Some(timerfd_create(TimerfdClockId::Monotonic, flags)?);
            self.set_alarm();
        }
        Ok(self.alarm.as_ref().map_or(self.joined.connection(), AsFd::as_fd))
    }

    /// Has the descriptor become readable after a nap; until then it isn't.
    fn set_alarm(&self) {
        if let Some(alarm) = &self.alarm {
            let it_value = Timespec { tv_sec: 0, tv_nsec: NAP.subsec_nanos().into() };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = timerfd_settime(alarm, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value });
        }
    }

    fn progress(&self, waits: bool) -> Progress {
        let OutsideCounts { began, read, missed, .. } = self.reader.counts();
        Progress { began, read, missed, waits, done: self.reader.done() }
    }

    /// Says on the page how far this is.
    fn say(&mut self, waits: bool) {
        self.said = self.progress(waits);
        self.said_at = Instant::now();
        let _ = self.joined.page.write(&self.said); // only figures of the run would lack it
    }

    /// The same where it is time for it, or where the run waits for it.
    fn say_progress(&mut self, waits: bool) {
        let is_needed =
            self.is_place_needed && (self.said.waits != waits || self.said.done != self.reader.done());
        if is_needed || self.said_at.elapsed() >= PAGE_EVERY && self.said != self.progress(waits) {
            self.say(waits);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.give_back();
        self.say(false);
    }
}
