//! What each dump says of itself, held against what was sent.

use crate::packets::{FILTERS, HITS, PREFILTER, Sent, number_of};
use crate::run::Ran;
use crate::source::Fate;
use scope_dump::DumpReport;
use scope_packet::pcapng::{self, PacketBlock};
use std::collections::BTreeSet;
use std::path::Path;

/// Counts over one run or many, to see that every case was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Dumps.
    pub dumps: u64,
    /// Those that say complete.
    pub complete: u64,
    /// Those that lack something in truth.
    pub lacking: u64,
    /// Those that couldn't be written as a whole.
    pub failed: u64,
    /// Packets that are missing in dumps, in truth.
    pub missing: u64,
    /// Packets that the kernel dropped.
    pub dropped_by_kernel: u64,
    /// Packets that were dropped because all segments were pinned.
    pub dropped_for_pins: u64,
    /// Packets later than promised.
    pub late: u64,
    /// Runs in which the clock was set back.
    pub set_back: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.packets += other.packets;
        self.dumps += other.dumps;
        self.complete += other.complete;
        self.lacking += other.lacking;
        self.failed += other.failed;
        self.missing += other.missing;
        self.dropped_by_kernel += other.dropped_by_kernel;
        self.dropped_for_pins += other.dropped_for_pins;
        self.late += other.late;
        self.set_back += other.set_back;
    }
}

/// Packets of a dump's files, by number; what is wrong with the files.
struct Written {
    numbers: BTreeSet<u32>,
    faults: Vec<String>,
}

/// Checks all dumps of a run.
pub(crate) fn check(ran: &Ran) -> (Tally, Vec<String>) {
    let mut faults: Vec<String> = ran.panics.iter().map(|thread| format!("thread {thread} failed")).collect();
    let fate = |fate: Fate| ran.scene.packets.iter().filter(|packet| ran.fates.of(packet) == fate).count() as u64;
    let counts = ran.ring.counters();
    let mut tally = Tally {
        runs: 1,
        packets: ran.scene.packets.len() as u64,
        dropped_by_kernel: fate(Fate::Dropped),
        dropped_for_pins: counts.total().dropped.get(scope_packet::DropReason::RingPinned),
        late: fate(Fate::Late),
        set_back: ran.scene.wall.steps.iter().any(|(_, by_ns)| *by_ns < 0).into(),
        ..Tally::default()
    };
    if !counts.add_up() {
        faults.push("the workers' counts don't add up".to_string());
    }
    if counts.total().received_packets != fate(Fate::HandedOver) + fate(Fate::Late) {
        faults.push("the workers didn't count what they were handed".to_string());
    }
    if ran.ring.budget().taken() != 0 {
        faults.push(format!("{} segments are still charged", ran.ring.budget().taken()));
    }
    let reported: BTreeSet<u64> = ran.reports.iter().map(|report| report.id).collect();
    if reported.len() != ran.windows.len() || reported.len() != ran.reports.len() {
        faults.push(format!("{} dumps began and {} were reported", ran.windows.len(), ran.reports.len()));
    }
    for report in &ran.reports {
        let (found, wrong) = check_dump(ran, report);
        tally.add(&found);
        faults.extend(wrong.into_iter().map(|fault| format!("dump {}: {fault}", report.id)));
    }
    (tally, faults)
}

fn check_dump(ran: &Ran, report: &DumpReport) -> (Tally, Vec<String>) {
    let Some(window) = ran.windows.get(&report.id) else { return (Tally::default(), vec!["it has no window".to_string()]) };
    let (from_ns, to_ns) = (window.from_ns(), window.to_ns());
    let written = written(ran, report);
    let mut faults = written.faults;
    let belongs = |packet: &Sent| (from_ns..=to_ns).contains(&packet.time_ns) && matches(ran, report, packet);
    for packet in written.numbers.iter().map(|&number| &ran.scene.packets[number as usize]) {
        if !belongs(packet) && !may_have_fired(ran, report, packet) {
            let of = (&report.trigger, report.time_ns);
            faults.push(format!("{} doesn't belong to {from_ns} to {to_ns}, fired by {of:?}", words(ran, packet)));
        }
    }
    let was_sent = |packet: &&Sent| matches!(ran.fates.of(packet), Fate::HandedOver | Fate::Dropped | Fate::Late);
    let lacked = |packet: &&Sent| belongs(packet) && !written.numbers.contains(&packet.number);
    let mut missing: Vec<&Sent> = ran.scene.packets.iter().filter(was_sent).filter(lacked).collect();
    // The packet that fired is kept whatever the filter says: where it is known which one did, it may be missing, too.
    let hits: Vec<&Sent> = ran.scene.packets.iter().filter(|packet| may_have_fired(ran, report, packet)).collect();
    if !hits.iter().any(|hit| written.numbers.contains(&hit.number) || belongs(hit)) {
        missing.extend(hits.first());
    }
    // What comes later than its source promises may be missed by a dump that had closed.
    let certain = missing.iter().filter(|packet| ran.fates.of(packet) != Fate::Late).count() as u64;
    let said = || {
        let cause = report.error.as_deref().unwrap_or("no error");
        let gaps: Vec<_> =
            report.gaps.iter().map(|gap| (gap.reason.name(), gap.from_ns, gap.to_ns, gap.lost_min, gap.lost_max)).collect();
        format!("{} packets, lacks {} to {} in {gaps:?}, {cause}", report.packets, report.lost_min, report.lost_max)
    };
    if report.packets != written.numbers.len() as u64 {
        faults.push(format!("it has {} packets and says: {}", written.numbers.len(), said()));
    }
    if report.asked != (from_ns, to_ns) {
        faults.push(format!("it was asked for {from_ns} to {to_ns} and says {:?}", report.asked));
    }
    if let Some(unheard) = unheard(ran).into_iter().find(|span| report.complete && span.0 <= to_ns && span.1 >= from_ns) {
        faults.push(format!("it says complete for {from_ns} to {to_ns}, and nobody listened in {unheard:?}"));
    }
    if report.complete && certain > 0 {
        faults.push(format!("it says complete and lacks {certain} packets, such as {}", words(ran, missing[0])));
    }
    if certain > report.lost_max {
        faults.push(format!("it lacks {certain} packets, such as {}, and says: {}", words(ran, missing[0]), said()));
    }
    if report.lost_min > missing.len() as u64 {
        faults.push(format!("it lacks {} packets and says: {}", missing.len(), said()));
    }
    let stated = |packet: &Sent| report.gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&packet.time_ns));
    let outside = |packet: &&&Sent| ran.fates.of(packet) != Fate::Late && !stated(packet);
    if let Some(packet) = missing.iter().find(outside) {
        faults.push(format!("{} is missing outside of all gaps: {}", words(ran, packet), said()));
    }
    let tally = Tally {
        dumps: 1,
        complete: report.complete.into(),
        lacking: u64::from(certain > 0),
        failed: report.error.is_some().into(),
        missing: certain,
        ..Tally::default()
    };
    (tally, faults)
}

fn words(ran: &Ran, packet: &Sent) -> String {
    format!("packet {} of {} ns ({:?}, {})", packet.number, packet.time_ns, ran.fates.of(packet), packet.link_type.name())
}

/// Whether the packet may be the one that fired the dump.
fn may_have_fired(ran: &Ran, report: &DumpReport, packet: &Sent) -> bool {
    let condition =
        ran.scene.triggers.iter().map(|trigger| trigger.condition).find(|condition| report.trigger == format!("t{condition}"));
    let is_hit = condition.is_some_and(|condition| packet.kind == HITS[condition]);
    // One that came late, when the clock had been set, fires at the clock's time.
    let is_of_time = packet.time_ns == report.time_ns || ran.fates.of(packet) == Fate::Late && !ran.scene.wall.steps.is_empty();
    is_hit && report.why != "by hand" && is_of_time && ran.fates.of(packet) != Fate::NotSent
}

/// Spans in which some interface, or the whole run, certainly heard nothing.
fn unheard(ran: &Ran) -> Vec<(i64, i64)> {
    if !ran.scene.live {
        let times = || ran.scene.packets.iter().map(|packet| packet.time_ns);
        let (first_ns, last_ns) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        return vec![(0, first_ns - 1), (last_ns + 1, i64::MAX)];
    }
    let stopped_ns = ran.fates.stopped_ns();
    let wall = &ran.scene.wall;
    let downs = ran.scene.ports.iter().flat_map(|port| &port.down).map(|down| down.start..down.end.min(stopped_ns));
    let downs = downs.filter(|down| !down.is_empty()).flat_map(|down| wall.parts(down)).map(|part| (part.start, part.end - 1));
    // Where the clock was set back, what it showed before ends, and begins anew.
    let backs: Vec<i64> =
        wall.steps.iter().filter(|(at_ns, by_ns)| *by_ns < 0 && *at_ns < stopped_ns).map(|step| step.0).collect();
    let begins = std::iter::once(0).chain(backs.iter().copied());
    let ends = backs.iter().copied().chain([stopped_ns + 1]);
    let mut heard: Vec<(i64, i64)> =
        begins.zip(ends).map(|(begin_ns, end_ns)| (wall.at(begin_ns), wall.at(end_ns - 1))).collect();
    heard.sort_unstable();
    let mut before = 0;
    let mut silent = Vec::new();
    for (from_ns, to_ns) in heard {
        silent.push((before, from_ns - 1));
        before = before.max(to_ns + 1);
    }
    silent.push((before, i64::MAX));
    downs.chain(silent).filter(|(from_ns, to_ns)| from_ns <= to_ns).collect()
}

/// Whether a packet passes the dump's filter, and the sources' prefilter.
fn matches(ran: &Ran, report: &DumpReport, packet: &Sent) -> bool {
    let filter = FILTERS.iter().find(|(text, _)| *text == report.filter).map(|(_, naive)| *naive);
    let passes = !ran.scene.prefilter || PREFILTER.1(packet.kind);
    passes && filter.is_none_or(|naive| naive(packet.kind))
}

/// Reads the dump's files.
fn written(ran: &Ran, report: &DumpReport) -> Written {
    let mut written = Written { numbers: BTreeSet::new(), faults: Vec::new() };
    let stream = ran.stream.iter().filter(|_| report.to_stream);
    for path in report.paths.iter().chain(stream) {
        read(ran, report, path, &mut written);
    }
    written
}

fn read(ran: &Ran, report: &DumpReport, path: &Path, written: &mut Written) {
    // What of the last write has come through a pipe that failed, isn't known to who writes: its own count holds.
    let failed_stream = report.to_stream && report.error.is_some();
    let file = match std::fs::read(path) {
        Ok(file) => file,
        Err(error) => return written.faults.push(format!("{}: {error}", path.display())),
    };
    let (mut at, mut newest_ns) = (0, i64::MIN);
    while at < file.len() && !(failed_stream && written.numbers.len() as u64 == report.packets) {
        if at + 12 > file.len() {
            return written.faults.push(format!("a block is cut at {at}"));
        }
        let total = pcapng::le32(&file, at + 4) as usize;
        if total < 12 || at + total > file.len() || pcapng::le32(&file, at + total - 4) as usize != total {
            return written.faults.push(format!("no block at {at}"));
        }
        if let Some(block) = PacketBlock::first(&file[at..]) {
            let number = number_of(block.data());
            let sent = number.and_then(|number| ran.scene.packets.get(number as usize));
            match sent.filter(|sent| sent.time_ns == block.time_ns() && sent.frame() == block.data()) {
                Some(sent) if !written.numbers.insert(sent.number) => {
                    written.faults.push(format!("packet {} comes twice", sent.number))
                }
                Some(_) => {}
                None => written.faults.push(format!("the packet at {at} was never sent")),
            }
            if block.time_ns() < newest_ns && !report.to_stream {
                written.faults.push(format!("packet {number:?} stands behind a later one"));
            }
            newest_ns = block.time_ns();
        }
        at += total;
    }
}
