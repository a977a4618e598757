//! The thread of one trigger script: it follows the ring, runs the script over what comes, and fires.
//!
//! ```text
//!  ring ─► reader ─► batch of at most 256 packets ─► Lua ─► hits ─► Dumps::occurred
//!                                                     ▲
//!                             watchdog: this call has lasted too long: the thread is left behind
//! ```
//! Live it is a lossy reader: nobody waits for it, and what it misses is counted. Of files workers wait for it, and
//! dumps don't count a time as settled before it has come there.

use super::left_behind::begin_thread;
use super::tally::Tally;
use crate::dumps::Dumps;
use scope_dump::HitPacket;
use scope_packet::{Headers, LinkType, Moment};
use scope_ring::{Allowance, Batch, Follower, Judge, Reader, Ring, Steering};
use scope_script::{Counts, Ended, Hit, Lent, Options, Plain, RECORDS_MAX, Script};
use scope_trigger::{Key, Matched, Occurrence, Own, Requester, ScriptFile, Trigger, Why};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Dumps that wait to be told to `on_dump` at most.
const FACTS_MAX: usize = 64;
/// How long a round reads at most before others see how far it is, and hear what it is to do.
const ROUND_MAX: Duration = Duration::from_millis(50);
/// How often a script that has read everything looks for what it is told.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a script is told of a dump.
pub(super) type Facts = Vec<(&'static str, Plain)>;

/// What the run and the script's thread share.
pub(super) struct Seat {
    pub tally: Arc<Tally>,
    /// Which flows are this thread's; `None`: all.
    steering: Option<Steering>,
    /// Where workers can wait: how far it has come.
    judge: Option<Arc<Judge>>,
    follower: OnceLock<Arc<Follower>>,
    order: Mutex<Order>,
    /// Rises with each order.
    version: AtomicU64,
    facts: Mutex<VecDeque<Facts>>,
    /// It has read all that will ever come.
    has_read: AtomicBool,
    /// It wants to be told of dumps.
    wants_dumps: AtomicBool,
    /// That they come too fast for it was said.
    told_of_many: AtomicBool,
}

/// What it is to do.
#[derive(Debug)]
struct Order {
    /// What it fires.
    trigger: Arc<Trigger>,
    /// What it runs.
    script: ScriptFile,
    leaves: bool,
}

impl Seat {
    pub fn new(
        tally: Arc<Tally>,
        trigger: &Arc<Trigger>,
        script: &ScriptFile,
        steering: Option<Steering>,
        judge: Option<Arc<Judge>>,
    ) -> Seat {
        let order = Order { trigger: trigger.clone(), script: script.clone(), leaves: false };
        Seat {
            tally,
            steering,
            judge,
            follower: OnceLock::new(),
            order: Mutex::new(order),
            version: AtomicU64::new(0),
            facts: Mutex::default(),
            has_read: AtomicBool::new(false),
            wants_dumps: AtomicBool::new(false),
            told_of_many: AtomicBool::new(false),
        }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is to run, whether it is to end, and which order that was. The trigger is taken for each hit alone: a thread
    /// that is left behind holds none.
    fn ordered(&self) -> (u64, ScriptFile, bool) {
        let order = self.order();
        (self.version.load(Ordering::Acquire), order.script.clone(), order.leaves)
    }

    /// Whether it is to end, also in the middle of a batch.
    fn is_left(&self) -> bool {
        self.order().leaves
    }

    fn has_news(&self, version: u64) -> bool {
        self.version.load(Ordering::Acquire) != version
    }

    /// From the next batch on it runs this for that trigger.
    pub fn takes_over(&self, trigger: &Arc<Trigger>, script: &ScriptFile) {
        let mut order = self.order();
        (order.trigger, order.script) = (trigger.clone(), script.clone());
        self.version.fetch_add(1, Ordering::Release);
    }

    /// It ends.
    pub fn leaves(&self) {
        self.order().leaves = true;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// What the script has functions for.
    fn wants(&self, script: &Script) {
        self.wants_dumps.store(script.forms().contains(&"on_dump"), Ordering::Release);
    }

    /// A dump is written.
    pub fn dumped(&self, facts: impl FnOnce() -> Facts) {
        if !self.wants_dumps.load(Ordering::Acquire) {
            return;
        }
        let mut waiting = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < FACTS_MAX {
            waiting.push_back(facts());
        } else if !self.told_of_many.swap(true, Ordering::Relaxed) {
            self.tally.warn(format!(
                "{} isn't told of every dump: they come faster than it takes them",
                self.tally.called()
            ));
        }
    }

    fn take_facts(&self) -> VecDeque<Facts> {
        std::mem::take(&mut *self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it reads nothing more.
    pub fn has_read(&self) -> bool {
        self.has_read.load(Ordering::Acquire) || self.has_ended()
    }

    /// Whether nothing more comes from it.
    pub fn has_ended(&self) -> bool {
        self.tally.has_ended.load(Ordering::Acquire)
    }

    /// Nobody waits for it any more, and it fires nothing more: it has ended, or it is left behind.
    pub fn is_over(&self) {
        if let Some(judge) = &self.judge {
            judge.withdraw();
        }
        if let Some(follower) = self.follower.get() {
            follower.needs_nothing();
        }
        self.tally.has_ended.store(true, Ordering::Release);
    }
}

/// However its thread ends.
struct Over(Arc<Seat>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.is_over();
    }
}

/// What the thread begins with.
pub(super) struct Begin {
    pub seat: Arc<Seat>,
    /// It sees what comes from here on.
    pub from: Outset,
    pub ring: Arc<Ring>,
    pub dumps: Arc<Dumps>,
    pub options: Options,
    pub live: bool,
}

/// A reader, and where it begins: made before the thread, so that workers that begin with it wait for it.
pub(super) struct Outset {
    reader: Reader,
    /// By lane: packets before this number came before the script did.
    packets: Vec<u64>,
}

impl Outset {
    /// Sees what comes from here on.
    pub fn now(ring: &Arc<Ring>, live: bool) -> Outset {
        let reader = match live {
            true => Reader::new(ring),
            // It reads what it is at; that workers wait is what it needs.
            false => Reader::holding(ring, Allowance::none()),
        };
        let before = (0..ring.lanes()).map(|lane| reader.counts(lane));
        let packets = before.map(|counts| counts.missed + counts.behind).collect();
        Outset { reader, packets }
    }
}

/// The thread's own.
struct Reading {
    seat: Arc<Seat>,
    ring: Arc<Ring>,
    dumps: Arc<Dumps>,
    options: Options,
    live: bool,
    script: Script,
    /// What scripts counted that it has replaced.
    before: Counts,
    file: ScriptFile,
    version: u64,
    /// By lane: packets before this number came before the script did.
    from: Vec<u64>,
    /// Packets that were recycled and came before the script did.
    missed_before: u64,
    /// Everything before this was shown to the script.
    judged: Moment,
    /// The latest era of a packet.
    era: u64,
    /// The latest time in it that was shown to the script: what is committed lies behind it by the grace.
    shown_ns: i64,
    /// The latest time of a packet in it.
    latest_ns: i64,
    /// When its counts were told last.
    told: Instant,
}

/// Why the thread ends.
struct Stop;

/// Follows the ring until the script leaves, is disabled or left behind.
pub(super) fn read(begin: Begin) {
    let Begin { seat, from, ring, dumps, options, live } = begin;
    let Outset { mut reader, packets: from } = from;
    let over = Over(seat.clone());
    seat.tally.thread.store(begin_thread(), Ordering::Relaxed);
    if let Some(follower) = reader.follower() {
        let _ = seat.follower.set(follower);
    }
    let (version, file, _) = seat.ordered();
    let script = match load(&file, &options, &seat.tally) {
        Ok(script) => script,
        Err(why) => return seat.tally.disable(&why),
    };
    seat.wants(&script);
    let before = Counts::default();
    let judged = Moment::BEGIN;
    let mut reading = Reading {
        seat,
        ring,
        dumps,
        options,
        live,
        script,
        before,
        file,
        version,
        from,
        missed_before: 0,
        judged,
        era: 0,
        shown_ns: i64::MIN,
        latest_ns: i64::MIN,
        told: Instant::now(),
    };
    while reading.round(&mut reader).is_ok() {}
    reading.publish(&reader);
    drop(reader);
    drop(over);
}

/// Loads a script under the watch of its tally.
fn load(script: &ScriptFile, options: &Options, tally: &Tally) -> Result<Script, String> {
    let options = Options { name: script.file().to_string(), ..options.clone() };
    let loaded = Script::load_watched(script.text(), &options, tally.watch.clone());
    let loaded = loaded.map_err(|error| error.to_string())?;
    match loaded.disabled() {
        Some(disabled) => Err(disabled.to_string()),
        None => Ok(loaded),
    }
}

impl Reading {
    /// Reads what is there, and waits a little for more.
    fn round(&mut self, reader: &mut Reader) -> Result<(), Stop> {
        if self.seat.has_news(self.version) {
            self.obey()?;
        }
        for facts in self.seat.take_facts() {
            let told = self.script.dumped(&facts);
            self.check(told.map(drop))?;
        }
        let committed = self.ring.committed();
        let (mut has_drained, begun) = (true, Instant::now());
        while let Some(batch) = reader.next_batch() {
            self.batch(&batch)?;
            if self.seat.has_news(self.version) || begun.elapsed() >= ROUND_MAX {
                has_drained = false;
                break;
            }
        }
        if has_drained {
            // Where nothing more comes the last packet was the latest.
            let now = match committed {
                Moment::END => Moment::new(self.era, self.latest_ns),
                now => now,
            };
            self.tick(now)?;
        }
        self.publish(reader);
        if has_drained {
            self.judged = self.judged.max(committed);
            if let Some(judge) = &self.seat.judge {
                judge.has_judged(committed);
            }
        }
        if has_drained && committed == Moment::END {
            self.seat.has_read.store(true, Ordering::Release);
            std::thread::sleep(LOOK_EVERY);
        } else if has_drained {
            reader.wait();
        }
        Ok(())
    }

    /// The packets of one batch, in parts that the watchdog measures.
    fn batch(&mut self, batch: &Batch<'_>) -> Result<(), Stop> {
        let lane = batch.lane();
        let link_type = self.ring.lane_info(lane).link_type;
        let from = self.from.get(lane as usize).copied().unwrap_or(0);
        let first_missed = batch.first_packet() - batch.missed_before();
        self.missed_before += batch.first_packet().min(from).saturating_sub(first_missed);
        let steering = self.seat.steering;
        let entries = batch.entries();
        let mut numbers: Vec<u64> = Vec::with_capacity(RECORDS_MAX);
        let mut part: Vec<Lent<'_>> = Vec::with_capacity(RECORDS_MAX);
        let mut keys = entries.iter();
        for (number, block) in (batch.first_packet()..).zip(batch.blocks()) {
            let key = keys.next();
            if number < from || steering.is_some_and(|steering| key.is_some_and(|key| !steering.takes(&key)))
            {
                continue;
            }
            let head = block.head();
            numbers.push(number);
            part.push(Lent {
                data: block.data(),
                original_len: head.original_len,
                time_ns: head.time_ns,
                interface: head.interface,
                flags: head.flags,
                link_type,
            });
            if part.len() == RECORDS_MAX {
                self.part(lane, link_type, &numbers, &part)?;
                numbers.clear();
                part.clear();
            }
        }
        self.part(lane, link_type, &numbers, &part)
    }

    /// Runs the script for these packets, and fires.
    fn part(
        &mut self,
        lane: u32,
        link_type: LinkType,
        numbers: &[u64],
        part: &[Lent<'_>],
    ) -> Result<(), Stop> {
        let Some((last, number)) = part.last().zip(numbers.last()) else { return Ok(()) };
        let last = self.ring.moment_of(lane, *number, last.time_ns);
        if last.era > self.era {
            (self.era, self.shown_ns, self.latest_ns) = (last.era, i64::MIN, i64::MIN);
        }
        self.latest_ns = self.latest_ns.max(last.time_ns);
        if self.ring.lanes() > 1 {
            // Batches of several lanes lie behind each other: what is committed is the one clock.
            self.script.tick_by_clock();
        } else {
            self.shown_ns = self.latest_ns;
        }
        let (ended, hits) = match self.script.run(part) {
            Ok([]) => (Ok(()), Vec::new()),
            Ok(hits) => (Ok(()), hits.to_vec()),
            Err(ended) => (Err(ended), Vec::new()),
        };
        for hit in &hits {
            let packet =
                hit.packet.map(|at| (HitPacket { lane, packet: numbers[at], link_type }, part[at].data));
            self.fire(hit, packet);
        }
        if self.told.elapsed() >= ROUND_MAX {
            // A batch of a slow script takes many seconds.
            self.tell_counts();
            if self.seat.has_news(self.version) && self.seat.is_left() {
                return Err(Stop);
            }
        }
        self.check(ended)
    }

    /// Capture time has come to `now` without a packet.
    fn tick(&mut self, now: Moment) -> Result<(), Stop> {
        if now.time_ns <= 0 || (now.era <= self.era && now.time_ns <= self.shown_ns) {
            return Ok(());
        }
        // Ticks count from the first packet of the era, however much is committed by the first look.
        if self.shown_ns == i64::MIN {
            let first = self.ring.heard_in(now.era).map(|(first_ns, _)| first_ns);
            let Some(first_ns) = first.filter(|first_ns| *first_ns < now.time_ns) else { return Ok(()) };
            let begun = self.script.clock(first_ns).map(drop);
            self.check(begun)?;
        }
        (self.era, self.shown_ns) = (self.era.max(now.era), now.time_ns);
        let (ended, hits) = match self.script.clock(now.time_ns) {
            Ok([]) => (Ok(()), Vec::new()),
            Ok(hits) => (Ok(()), hits.to_vec()),
            Err(ended) => (Err(ended), Vec::new()),
        };
        hits.iter().for_each(|hit| self.fire(hit, None));
        self.check(ended)
    }

    /// Lets the trigger decide on one hit.
    fn fire(&mut self, hit: &Hit, packet: Option<(HitPacket, &[u8])>) {
        let trigger = self.seat.order().trigger.clone();
        let at = match packet {
            Some((HitPacket { lane, packet, .. }, _)) => self.ring.moment_of(lane, packet, hit.time_ns),
            None => Moment::new(self.era, hit.time_ns),
        };
        self.era = self.era.max(at.era);
        let filter = hit.dump_filter();
        let headers = packet.map(|(place, data)| Headers::parse(place.link_type, data));
        let matched = packet.zip(headers.as_ref());
        let matched = matched.map(|((HitPacket { link_type, .. }, data), headers)| Matched {
            link_type,
            headers,
            data,
        });
        let link_types: Vec<LinkType> =
            (0..self.ring.lanes()).map(|lane| self.ring.lane_info(lane).link_type).collect();
        let occurrence = Occurrence {
            at,
            clock_ns: at.time_ns,
            key: Key::OfPacket,
            why: Why::Script(hit.text.as_deref().unwrap_or(self.file.file())),
            packet: matched,
            given: None,
            own: Own { before_ns: hit.before_ns, after_ns: hit.after_ns, filter: filter.as_deref() },
            link_types: &link_types,
            requester: if self.live { Requester::Live } else { Requester::Waiting(self.judged) },
        };
        self.dumps.occurred(&trigger, &occurrence, packet.map(|(place, _)| place));
    }

    /// What the last call into the script came to.
    fn check(&mut self, ended: Result<(), Ended>) -> Result<(), Stop> {
        let tally = &self.seat.tally;
        if let Err(Ended::Abandoned) = ended {
            return Err(Stop); // whoever left it behind has said so
        }
        tally.report(self.script.report());
        tally.printed(self.script.take_notes());
        match self.script.disabled() {
            Some(disabled) => {
                tally.disable(&disabled.to_string());
                Err(Stop)
            }
            None => Ok(()),
        }
    }

    /// Another order: another trigger, another text, or the end.
    fn obey(&mut self) -> Result<(), Stop> {
        let (version, file, leaves) = self.seat.ordered();
        self.version = version;
        if leaves {
            for facts in self.seat.take_facts() {
                let told = self.script.dumped(&facts);
                self.check(told.map(drop))?;
            }
            return Err(Stop);
        }
        if file == self.file {
            return Ok(());
        }
        let kept = self.script.kept();
        let tally = self.seat.tally.clone();
        let mut new = match load(&file, &self.options, &tally) {
            Ok(new) => new,
            Err(_) if tally.watch.is_abandoned() => return Err(Stop),
            Err(why) => {
                self.before.errors += 1;
                tally.report(Some(why.clone()));
                tally.warn(format!(
                    "{}: its new text isn't taken up, the old one goes on: {why}",
                    tally.called()
                ));
                return Ok(());
            }
        };
        let ended = match kept {
            Ok(kept) => new.take_over(&kept),
            Err(why) => {
                tally.warn(format!("{} keeps nothing over the reload: {why}", tally.called()));
                Ok(())
            }
        };
        let counts = self.script.counts();
        self.before.packets += counts.packets;
        self.before.hits += counts.hits;
        self.before.errors += counts.errors;
        self.before.ticks += counts.ticks;
        self.before.flows_evicted += counts.flows_evicted;
        self.seat.wants(&new);
        self.file = file;
        let old = std::mem::replace(&mut self.script, new);
        old.close().map_err(|_| Stop)?;
        self.check(ended)
    }

    /// Lets others see how far it is.
    fn publish(&mut self, reader: &Reader) {
        self.tell_counts();
        let tally = &self.seat.tally;
        let counts = (0..self.ring.lanes()).map(|lane| reader.counts(lane));
        let (missed, behind) = counts.fold((0, 0), |sum, lane| (sum.0 + lane.missed, sum.1 + lane.behind));
        tally.missed.store(missed.saturating_sub(self.missed_before), Ordering::Relaxed);
        tally.behind.store(behind, Ordering::Relaxed);
    }

    /// The same of what the script counts.
    fn tell_counts(&mut self) {
        self.told = Instant::now();
        self.seat.tally.publish(&self.before, &self.script.counts());
        self.seat.tally.count_cpu();
    }
}
