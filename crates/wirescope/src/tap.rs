//! `wirescope tap`: packets of a running instance as they come, into a file, a pipe or another program.
//!
//! 1. The command line is understood, the output opened, the run joined, its ring mapped, or all faults said.
//! 2. All rights are given up but reading that memory, and writing to what is open.
//! 3. Packets are copied out of the ring, filtered, put in order of time, and written.
//!
//! Whoever reads too slowly loses packets of its own, which are counted; the run never waits. It ends with the run, by
//! Ctrl-C, with the n-th packet, or when nobody reads the pipe any more.

mod joining;
mod order;
mod outlet;

use crate::args::TapArgs;
use crate::export::{self, Output, missing_words};
use crate::plan::faults::Faults;
use crate::plan::places::{STDOUT, has_ending};
use crate::reading::Stop;
use crate::speech::{Level, say, say_fault};
use crate::stdio::{warn_of_closed_stdout, widen_pipe};
use crate::words::counted;
use crate::{DONE, NoResult, UNDONE, told};
use joining::not_read;
pub use joining::{Wanted, not_joined, wanted};
use order::Order;
use outlet::Outlet;
use scope_config::Settings;
use scope_fault::Fault;
use scope_filter::{Filter, FilterEngine, Predicate, VlanRule};
use scope_packet::pcapng::{PacketBlock, PacketHead};
use scope_packet::{Gap, GapReason, Headers, LinkType};
use scope_ring::{Begin, OutsideBatch, OutsideError, OutsideInterface, OutsideReader};
use scope_share::message::Greeting;
use scope_share::page::LANES;
use scope_share::{Joined, Progress, REMOVED, RING, join};
use scope_store::export::{Export, Format, Question, Target, Written};
use scope_store::head::HeadInterface;
use scope_store::timeline::{InterfaceKey, KnownInterfaces, Losses, Span};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How it is called where it isn't told.
const NAME: &str = "tap";
/// A packet waits so long at most for older ones of other lanes.
const PATIENCE: Duration = Duration::from_millis(500);
/// What was gathered is written so often.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// The page is written so often.
const PAGE_EVERY: Duration = Duration::from_millis(50);
/// Whether the run is over is looked at so often while packets come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Packets that are copied before those that can are written.
const TURN_BYTES: usize = 8 << 20;
/// Sleep while packets come steadily: what comes meanwhile finds room in the smallest memory at 400 Mbyte/s.
const NAP: Duration = Duration::from_millis(5);
/// Gaps that are told one by one; what is beyond stands with the last.
const GAPS_MAX: usize = 64;

/// What is asked for, understood.
struct Asked {
    path: PathBuf,
    greeting: Greeting,
    filter: Filter,
    past_ns: Option<i64>,
    packets_max: Option<u64>,
    format: Format,
    output: Output,
}

/// Writes the packets. Exit codes: 0 all that came was written, 1 packets were missed, or couldn't be written, 2 refused.
pub fn tap(args: &TapArgs) -> u8 {
    match understand(args) {
        Ok(asked) => answer(asked),
        Err(faults) => told(Err(NoResult::Refused(faults))),
    }
}

/// All that can be wrong before anything is made or read.
fn understand(args: &TapArgs) -> Result<Asked, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let Wanted { path, greeting, past_ns } = wanted(&args.group, &args.member, (NAME, 1), &mut faults);
    let write = args.write.clone().unwrap_or_else(|| PathBuf::from(STDOUT));
    let format = match args.format.as_deref() {
        Some("pcapng") => Format::Pcapng,
        Some("pcap") => Format::Pcap,
        Some(other) => {
            faults
                .add(Fault::of("format").value(other, "is no form of a tap").remedy("write pcapng or pcap"));
            Format::Pcapng
        }
        None if has_ending(&write, &["pcap"]) => Format::Pcap,
        None => Format::Pcapng,
    };
    let packets_max = args.count.as_deref().and_then(|text| match text.parse::<u64>() {
        Ok(packets @ 1..) => Some(packets),
        _ => {
            faults.add(Fault::of("count").value(text, "is no number of packets").remedy("write 1 or more"));
            None
        }
    });
    let text = args.filter.as_deref().unwrap_or_default();
    let filter = Filter::compile(text, VlanRule::default(), &[]).map_err(|error| faults.add(error.fault()));
    // A pipe is waited for, until somebody reads it: not where something else is wrong.
    let is_looked_at = faults.is_empty() || !export::is_stream(&write);
    let output = is_looked_at.then(|| export::output(&write, None, &[], &mut faults)).flatten();
    match (filter, output) {
        (Ok(filter), Some(output)) if faults.is_empty() => {
            Ok(Asked { path, greeting, filter, past_ns, packets_max, format, output })
        }
        _ => Err(faults.into_vec()),
    }
}

/// Joins, gives up rights, reads, writes, and reports; the exit code.
fn answer(asked: Asked) -> u8 {
    if matches!(asked.output, Output::Stdout) {
        warn_of_closed_stdout();
    }
    let refused = |fault: Fault| told(Err(NoResult::Refused(vec![fault])));
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let joined = match join(&asked.path, &asked.greeting) {
        Ok(joined) => joined,
        Err(error) => return refused(not_joined(&asked.path, &asked.greeting.group, &error)),
    };
    let begin = asked.past_ns.map_or(Begin::Now, Begin::Past);
    let reader = match OutsideReader::map(joined.ring(), begin) {
        Ok(reader) => reader,
        Err(error) => return refused(not_read(&asked.path, &error)),
    };
    let (file, place) = match opened(&asked.output) {
        Ok(opened) => opened,
        Err(fault) => return refused(fault),
    };
    widen_pipe(&file);
    let outlet = Outlet::new(file, &stop.flag);
    // Machine code is made while memory may still become code.
    if let Err(error) = asked.filter.prepare(FilterEngine::Native) {
        say(Level::Warning, &format!("wirescope: no machine code for the filter: {error}"));
    }
    match scope_rights::keep_to_what_is_open() {
        Ok(kept) => {
            if let Some(lack) = kept.lack() {
                say(Level::Warning, &format!("wirescope: {lack}"));
            }
        }
        Err(error) => return refused(error.fault()),
    }
    let mut tapping = Tapping::new(&asked, reader, joined, outlet);
    let read = tapping.go(&stop);
    let missed = tapping.missed();
    let is_removed = tapping.joined.was_removed();
    let (written, gaps) = tapping.finish();
    let broken = read.err().map(|error| not_read(&asked.path, &error));
    let removed = is_removed.then(|| {
        Fault::of_thing(&asked.greeting.group)
            .cause(REMOVED)
            .remedy("see: wirescope groups, and the run's log")
    });
    tell(&asked, &place, missed, &written, &gaps, broken.or(removed))
}

/// Where packets go, and what that is called. A new file gets its name at once, and grows.
fn opened(output: &Output) -> Result<(File, String), Fault> {
    match output {
        Output::Stdout => {
            let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            let file = file.map_err(|error| Fault::of_thing("standard output").error(&error))?;
            Ok((file, "standard output".to_string()))
        }
        Output::Pipe(file, path) => {
            let file = file.try_clone().map_err(|error| Fault::of("write").error(&error))?;
            Ok((file, path.display().to_string()))
        }
        Output::New { folder, name, .. } => {
            let path = folder.path().join(name);
            let file = File::options().write(true).create_new(true).open(&path);
            let file =
                file.map_err(|error| Fault::of("write").with_value(path.to_string_lossy()).error(&error))?;
            Ok((file, path.display().to_string()))
        }
    }
}

/// Reports what was written and what is missing; the exit code.
fn tell(
    asked: &Asked,
    place: &str,
    missed: u64,
    written: &Written,
    gaps: &[Gap],
    broken: Option<Fault>,
) -> u8 {
    let is_restricted = !asked.filter.text().is_empty() || written.other_types > 0;
    let packets = counted(written.packets, "packet");
    // Whoever closes a pipe has had enough.
    let error = written.unfinished.as_ref().map(|unfinished| &unfinished.error);
    let error = error.filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    let words = match error {
        None => format!("{packets} to {place}; {}", missing_words(gaps, is_restricted)),
        Some(_) => format!("{place} is truncated, after at most {packets}"),
    };
    say(Level::Info, &format!("wirescope: {words}"));
    let mut faults: Vec<Fault> = broken.into_iter().collect();
    if missed > 0 {
        let many = counted(missed, "packet");
        let fault = Fault::of_thing(&asked.greeting.group);
        faults.push(match asked.greeting.group.as_str() {
            RING => fault
                .cause(format!("{many} missed: they were recycled before they were read"))
                .remedy("read faster, filter by -f, or give the run a larger --ring"),
            _ => fault
                .cause(format!("{many} missed: they found no room in the memory of this member"))
                .remedy("read faster, add members, or give the group a larger memory="),
        });
    }
    if written.left_out > 0 {
        let cause =
            format!("{} left out: the form has no place for the time", counted(written.left_out, "packet"));
        faults.push(Fault::of("format").cause(cause).remedy("use --format pcapng"));
    }
    if written.other_types > 0 {
        let many = counted(written.other_types, "packet");
        let note = format!("wirescope: {many} of other link types left out: a capture holds one");
        say(Level::Warning, &note);
    }
    if written.late > 0 {
        let note = format!("wirescope: {} behind newer ones", counted(written.late, "packet"));
        say(Level::Warning, &note);
    }
    if let Some(error) = error {
        faults.push(Fault::of_thing(place).error(error));
    }
    faults.iter().for_each(say_fault);
    if faults.is_empty() { DONE } else { UNDONE }
}

/// The run's interfaces as far as they are known.
#[derive(Default)]
struct Known {
    run: [u8; 16],
    interfaces: Mutex<Vec<OutsideInterface>>,
}

impl Known {
    fn key_and_head(&self, number: usize, interface: &OutsideInterface) -> (InterfaceKey, HeadInterface) {
        let OutsideInterface { link_type, name, description } = interface.clone();
        ((self.run, number as u32), HeadInterface { name, description, link_type })
    }

    fn update(&self, all: &[OutsideInterface]) {
        let mut known = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let from = known.len().min(all.len());
        known.extend_from_slice(&all[from..]);
    }
}

impl KnownInterfaces for Known {
    fn of(&self, _lane: u32, number: u32) -> Option<(InterfaceKey, HeadInterface)> {
        let known = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(number as usize).map(|interface| self.key_and_head(number as usize, interface))
    }

    fn all(&self, link_type: LinkType) -> Vec<(InterfaceKey, HeadInterface)> {
        let known = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let of_type = known.iter().enumerate().filter(|(_, interface)| interface.link_type == link_type);
        of_type.map(|(number, interface)| self.key_and_head(number, interface)).collect()
    }
}

/// What is known of a lane.
struct Lane {
    link_type: LinkType,
    predicate: Predicate,
    /// Missed, and told by no packet yet.
    missed: u64,
    /// Time of its newest packet, ns.
    last_ns: i64,
}

/// Packets on their way.
struct Sifting {
    filter: Filter,
    since_ns: i64,
    lanes: HashMap<u32, Lane>,
    /// What packets that aren't written say of losses before them, by lane and interface.
    carried: HashMap<(u32, u32), u64>,
    order: Order,
    gaps: Vec<Gap>,
    /// What the run itself has lost, by what its packets say.
    lost_before: u64,
}

impl Sifting {
    /// Takes the packets of a batch that are wanted; bytes looked at.
    fn take(&mut self, batch: &OutsideBatch<'_>, now: Instant) -> usize {
        let (filter, number) = (&self.filter, batch.lane);
        let lane = self.lanes.entry(number).or_insert_with(|| Lane {
            link_type: batch.link_type,
            predicate: filter.for_link(batch.link_type),
            missed: 0,
            last_ns: 0,
        });
        let mut missed_before = batch.missed_before;
        lane.missed += missed_before;
        for (packet, block) in (batch.first_packet..).zip(batch.blocks()) {
            let time_ns = block.time_ns();
            if missed_before > 0 {
                let gap = Gap {
                    from_ns: lane.last_ns.min(time_ns),
                    to_ns: time_ns,
                    reason: GapReason::Evicted,
                    lost_min: missed_before,
                    lost_max: Some(missed_before),
                };
                note(&mut self.gaps, gap);
                missed_before = 0;
            }
            lane.last_ns = time_ns;
            let head = block.head();
            if head.lost_before > 0 {
                self.lost_before += head.lost_before;
                *self.carried.entry((number, head.interface)).or_default() += head.lost_before;
            }
            let data = block.data();
            let is_wanted = time_ns >= self.since_ns && {
                let headers = Headers::parse(lane.link_type, data);
                lane.predicate.matches(&headers, data, block.original_len())
            };
            if !is_wanted {
                continue;
            }
            let carried = match self.carried.is_empty() {
                true => 0,
                false => self.carried.remove(&(number, head.interface)).unwrap_or(0),
            };
            let lost_before = carried + std::mem::take(&mut lane.missed);
            let place = (time_ns, number, packet);
            if lost_before == head.lost_before {
                self.order.push(place, block.bytes(), now);
            } else {
                self.order.push(place, &told_lost(&block, lost_before), now);
            }
        }
        batch.blocks().bytes().len()
    }
}

/// A gap more, or a longer last one where there are many.
fn note(gaps: &mut Vec<Gap>, gap: Gap) {
    let is_full = gaps.len() >= GAPS_MAX;
    match gaps.last_mut().filter(|_| is_full) {
        None => gaps.push(gap),
        Some(last) => {
            last.to_ns = last.to_ns.max(gap.to_ns);
            last.lost_min += gap.lost_min;
            last.lost_max = last.lost_max.zip(gap.lost_max).map(|(a, b)| a + b);
        }
    }
}

/// The block of a packet that says so many losses before it.
fn told_lost(block: &PacketBlock<'_>, lost_before: u64) -> Vec<u8> {
    let head = PacketHead { lost_before, ..block.head() };
    let mut bytes = vec![0; head.block_bytes()];
    head.write(&mut bytes, block.data());
    bytes
}

/// A tap that goes.
struct Tapping<'a> {
    reader: OutsideReader,
    joined: Joined,
    sifting: Sifting,
    known: Arc<Known>,
    losses: Losses,
    export: Export<'a>,
    packets_max: u64,
    era: u64,
    flushed: Instant,
    paged: Instant,
    looked: Instant,
    /// What the page says.
    waits: bool,
    done: [u64; LANES],
    /// Packets behind the last ones that were missed when it was told to end.
    missed_last: u64,
}

impl<'a> Tapping<'a> {
    fn new(asked: &Asked, reader: OutsideReader, joined: Joined, outlet: Outlet) -> Tapping<'a> {
        let known = Arc::new(Known { run: reader.run_id(), interfaces: Mutex::default() });
        let run: String = reader.run_id().iter().map(|byte| format!("{byte:02x}")).collect();
        let losses = Losses::default();
        let question = Question {
            of: match asked.greeting.group.as_str() {
                RING => format!("the ring of run {run}, as they came, by {}", asked.greeting.name),
                group => format!("group {group} of run {run}, as they came, by {}", asked.greeting.name),
            },
            span: Span { from_ns: 0, to_ns: i64::MAX },
            heard: None,
            filter: asked.filter.text().to_string(),
            filters: Vec::new(),
            snaps: Vec::new(),
            partial: Vec::new(),
        };
        let target = Target::Pipe(Box::new(outlet));
        let export = Export::new(target, asked.format, None, question, known.clone(), losses.clone());
        let sifting = Sifting {
            filter: asked.filter.clone(),
            since_ns: reader.since_ns().unwrap_or(i64::MIN),
            lanes: HashMap::new(),
            carried: HashMap::new(),
            order: Order::default(),
            gaps: Vec::new(),
            lost_before: 0,
        };
        let (packets_max, now) = (asked.packets_max.unwrap_or(u64::MAX), Instant::now());
        let (era, flushed, paged, looked) = (0, now, now, now);
        let (waits, done) = (false, [0; LANES]);
        Tapping {
            reader,
            joined,
            sifting,
            known,
            losses,
            export,
            packets_max,
            era,
            flushed,
            paged,
            looked,
            waits,
            done,
            missed_last: 0,
        }
    }

    /// Reads and writes until somebody ends it.
    fn go(&mut self, stop: &Stop) -> Result<(), OutsideError> {
        let mut is_over = false;
        // A group gives nothing before.
        self.say_where(false, Instant::now());
        while self.goes_on() && !stop.flag.load(Ordering::Relaxed) {
            let read = self.turn()?;
            let now = Instant::now();
            if read == 0 || now.duration_since(self.flushed) >= FLUSH_EVERY {
                self.flushed = now;
                self.export.flush();
            }
            if read == 0 && is_over {
                break; // nothing came since the run was seen to be over
            }
            if read == 0 || now.duration_since(self.looked) >= LOOK_EVERY {
                self.looked = now;
                is_over = self.joined.is_over() || self.reader.has_ended();
            }
            // Whoever waits looks once more behind having said so. While packets come steadily a nap is cheaper than to be
            // woken for each few of them.
            let waited = self.waits;
            if self.waits != (read == 0) || now.duration_since(self.paged) >= PAGE_EVERY {
                self.say_where(read == 0, now);
            }
            match read {
                _ if is_over => {}
                0 if !self.joined.is_kept => self.reader.nap(),
                0 if waited => self.joined.wait(LOOK_EVERY),
                0 | TURN_BYTES.. => {}
                _ => std::thread::sleep(NAP),
            }
        }
        if stop.flag.load(Ordering::Relaxed) { self.pass_over() } else { Ok(()) }
    }

    /// Passes over what has come by now, to know what of it was missed: in a member's memory also what isn't there.
    fn pass_over(&mut self) -> Result<(), OutsideError> {
        let (_, marks) = self.reader.settled();
        while !self.reader.has_read(&marks) && self.reader.lend(u32::MAX)?.is_some() {}
        self.missed_last = if self.joined.is_kept { self.reader.unread(&marks) } else { 0 };
        Ok(())
    }

    /// Packets that were missed: at the end also those that found no room behind the last ones.
    fn missed(&self) -> u64 {
        let counts = self.reader.counts();
        let is_all = self.joined.is_kept && self.reader.has_ended();
        counts.missed + if is_all { counts.behind } else { self.missed_last }
    }

    fn goes_on(&self) -> bool {
        self.export.goes_on() && self.export.written().0 < self.packets_max
    }

    /// Copies what there is by now, and hands on what is settled; bytes that were looked at.
    fn turn(&mut self) -> Result<usize, OutsideError> {
        let (settled, marks) = self.reader.settled();
        let now = Instant::now();
        let mut read = 0;
        while read < TURN_BYTES && !self.sifting.order.is_full() {
            match self.reader.next_batch()? {
                Some(batch) => read += self.sifting.take(&batch, now),
                None => break,
            }
            // Its memory is soon full where nothing is given back.
            if self.joined.is_kept && self.reader.done() != self.done {
                self.say_where(false, now);
            }
        }
        self.known.update(self.reader.interfaces()?);
        let settled_ns = match self.reader.has_read(&marks) {
            true if settled.era > self.era => {
                self.era = settled.era;
                i64::MAX // of the era before nothing comes any more
            }
            true => settled.within(self.era),
            false => i64::MIN,
        };
        self.hand_on(settled_ns, now);
        Ok(read)
    }

    fn hand_on(&mut self, settled_ns: i64, now: Instant) {
        let Tapping { sifting, export, packets_max, .. } = self;
        let Sifting { order, lanes, .. } = sifting;
        order.hand_on(settled_ns, (now, PATIENCE), |lane, block| {
            if export.written().0 < *packets_max
                && let Some(lane_of) = lanes.get(&lane)
            {
                export.packet(lane, lane_of.link_type, block);
            }
        });
    }

    /// Says on the page how far this is.
    fn say_where(&mut self, waits: bool, now: Instant) {
        (self.paged, self.waits) = (now, waits);
        let counts = self.reader.counts();
        let done = self.reader.done();
        self.done = done;
        let progress =
            Progress { began: counts.began, read: counts.read, missed: counts.missed, waits, done };
        let _ = self.joined.page.write(&progress); // only figures of the run would lack it
    }

    /// Writes what still waits, and the end.
    fn finish(mut self) -> (Written, Vec<Gap>) {
        self.hand_on(i64::MAX, Instant::now());
        self.say_where(false, Instant::now());
        let missed = self.missed();
        let Sifting { filter, mut gaps, lost_before, lanes, .. } = self.sifting;
        let is_filtered = !filter.text().is_empty();
        // Missed by lanes that brought no packet any more is in the counts, and so here.
        let told: u64 = gaps.iter().map(|gap| gap.lost_min).sum();
        let untold = missed.saturating_sub(told);
        let last_ns = || lanes.values().map(|lane| lane.last_ns);
        // What no packet came behind was missed behind the last one of its lane, and nobody knows of which lane it is; before
        // the first packet of a lane there is no time. When the run has lost something only its packets say.
        let all_came = lanes.len() >= self.reader.settled().1.len();
        let from_ns = last_ns().min().filter(|_| all_came).unwrap_or(0);
        let spans = [
            (untold, GapReason::Evicted, (from_ns, i64::MAX)),
            (lost_before, GapReason::Kernel, (0, last_ns().max().unwrap_or(0))),
        ];
        for (packets, reason, (from_ns, to_ns)) in spans {
            if packets > 0 {
                let (lost_min, lost_max) = (packets, Some(packets));
                gaps.push(Gap { from_ns, to_ns, reason, lost_min, lost_max });
            }
        }
        self.losses.add(gaps.iter().copied());
        let gaps = scope_store::export::of_answer(gaps, is_filtered);
        let link_type = lanes.values().map(|lane| lane.link_type).next();
        (self.export.finish(link_type), gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from_ns: i64, packets: u64) -> Gap {
        let (to_ns, lost_max) = (from_ns + 1, Some(packets));
        Gap { from_ns, to_ns, reason: GapReason::Evicted, lost_min: packets, lost_max }
    }

    #[test]
    fn many_gaps_become_few_without_a_packet_lost_of_them() {
        let mut gaps = Vec::new();
        for at in 0..1000 {
            note(&mut gaps, gap(at, 3));
        }
        assert_eq!(gaps.len(), GAPS_MAX);
        assert_eq!(gaps.iter().map(|gap| gap.lost_min).sum::<u64>(), 3000);
        assert_eq!(gaps.last().map(|gap| gap.to_ns), Some(1000));
    }

    #[test]
    fn a_packet_can_be_told_to_have_losses_before_it() {
        let head = PacketHead { captured_len: 5, original_len: 9, flags: 2, ..PacketHead::default() };
        let mut bytes = vec![0; head.block_bytes()];
        head.write(&mut bytes, b"abcde");
        let told = told_lost(&PacketBlock::first(&bytes).unwrap(), 7);
        let block = PacketBlock::first(&told).unwrap();
        assert_eq!((block.data(), block.head()), (&b"abcde"[..], PacketHead { lost_before: 7, ..head }));
    }
}
