//! What each dump says of itself, held against what was sent.

use crate::packets::{FILTERS, HITS, PREFILTER, Sent, number_of};
use crate::run::Ran;
use crate::source::Fate;
use scope_dump::{DumpFormat, DumpReport};
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
    /// Runs whose windows became one file.
    pub all: u64,
    /// Runs that made dumps in the form pcap.
    pub pcap: u64,
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
        self.all += other.all;
        self.pcap += other.pcap;
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
    let fate =
        |fate: Fate| ran.scene.packets.iter().filter(|packet| ran.fates.of(packet) == fate).count() as u64;
    let counts = ran.ring.counters();
    let mut tally = Tally {
        runs: 1,
        packets: ran.scene.packets.len() as u64,
        dropped_by_kernel: fate(Fate::Dropped),
        dropped_for_pins: counts.total().dropped.get(scope_packet::DropReason::RingPinned),
        late: fate(Fate::Late),
        set_back: ran.scene.wall.steps.iter().any(|(_, by_ns)| *by_ns < 0).into(),
        all: ran.all.is_some().into(),
        pcap: (ran.scene.format == DumpFormat::Pcap && !ran.windows.is_empty()).into(),
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
    if ran.scene.all && ran.all.is_none() != ran.windows.is_empty() {
        faults.push(format!(
            "{} dumps began, and the file of all windows says {:?}",
            ran.windows.len(),
            ran.all
        ));
    }
    for statement in statements(ran) {
        let (found, wrong) = check_statement(ran, &statement);
        tally.add(&found);
        faults.extend(wrong.into_iter().map(|fault| format!("{}: {fault}", statement.name)));
    }
    (tally, faults)
}

/// The report on a window, or on all windows of a run that are one file.
struct Statement<'a> {
    name: String,
    said: &'a DumpReport,
    /// The dumps whose windows it is about.
    windows: Vec<Asked<'a>>,
}

/// What a dump is to have.
struct Asked<'a> {
    report: &'a DumpReport,
    from_ns: i64,
    to_ns: i64,
}

/// All statements whose files can be read.
fn statements(ran: &Ran) -> Vec<Statement<'_>> {
    let asked = |report| {
        let window: &DumpReport = report;
        ran.windows.get(&window.id).map(|of| Asked {
            report: window,
            from_ns: of.from_ns(),
            to_ns: of.to_ns(),
        })
    };
    if !ran.scene.all {
        let of_dump = |report| Statement {
            name: name(report),
            said: report,
            windows: asked(report).into_iter().collect(),
        };
        return ran.reports.iter().map(of_dump).collect();
    }
    let of_all = |said| Statement {
        name: "all windows".to_string(),
        said,
        windows: ran.reports.iter().filter_map(asked).collect(),
    };
    ran.all.iter().map(of_all).collect()
}

fn name(report: &DumpReport) -> String {
    format!("dump {}", report.id)
}

fn check_statement(ran: &Ran, statement: &Statement<'_>) -> (Tally, Vec<String>) {
    let (report, windows) = (statement.said, &statement.windows);
    let written = written(ran, report);
    let mut faults = written.faults;
    let belongs_to = |window: &Asked<'_>, packet: &Sent| {
        (window.from_ns..=window.to_ns).contains(&packet.time_ns) && matches(ran, window.report, packet)
    };
    let belongs = |packet: &Sent| windows.iter().any(|window| belongs_to(window, packet));
    let fired = |packet: &Sent| windows.iter().any(|window| may_have_fired(ran, window.report, packet));
    let of_windows = || windows.iter().map(|window| (window.from_ns, window.to_ns));
    for packet in written.numbers.iter().map(|&number| &ran.scene.packets[number as usize]) {
        if !belongs(packet) && !fired(packet) {
            let hits: Vec<_> =
                windows.iter().map(|window| (&window.report.trigger, window.report.time_ns)).collect();
            let spans: Vec<_> = of_windows().collect();
            faults.push(format!("{} doesn't belong to {spans:?}, fired by {hits:?}", words(ran, packet)));
        }
    }
    let was_sent =
        |packet: &&Sent| matches!(ran.fates.of(packet), Fate::HandedOver | Fate::Dropped | Fate::Late);
    let lacked = |packet: &&Sent| belongs(packet) && !written.numbers.contains(&packet.number);
    let mut missing: Vec<&Sent> = ran.scene.packets.iter().filter(was_sent).filter(lacked).collect();
    // The packet that fired is kept whatever the filter says: where it is known which one did, it may be
    // missing, too.
    for window in windows {
        let hits: Vec<&Sent> =
            ran.scene.packets.iter().filter(|packet| may_have_fired(ran, window.report, packet)).collect();
        if !hits.iter().any(|hit| written.numbers.contains(&hit.number) || belongs(hit)) {
            missing.extend(hits.first());
        }
    }
    missing.sort_unstable_by_key(|packet| packet.number);
    missing.dedup_by_key(|packet| packet.number);
    // What comes later than its source promises may be missed by a dump that had closed.
    let certain = missing.iter().filter(|packet| ran.fates.of(packet) != Fate::Late).count() as u64;
    let said = || {
        let cause = report.error.as_deref().unwrap_or("no error");
        let gaps: Vec<_> = report
            .gaps
            .iter()
            .map(|gap| (gap.reason.name(), gap.from_ns, gap.to_ns, gap.lost_min, gap.lost_max))
            .collect();
        format!(
            "{} packets, lacks {} to {} in {gaps:?}, {cause}",
            report.packets, report.lost_min, report.lost_max
        )
    };
    if report.packets != written.numbers.len() as u64 {
        faults.push(format!("it has {} packets and says: {}", written.numbers.len(), said()));
    }
    let hull = of_windows().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    if Some(report.asked) != hull {
        faults.push(format!("it was asked for {hull:?} and says {:?}", report.asked));
    }
    let heard_all =
        |span: &(i64, i64)| of_windows().all(|(from_ns, to_ns)| span.0 > to_ns || span.1 < from_ns);
    if let Some(unheard) = unheard(ran).into_iter().find(|span| report.complete && !heard_all(span)) {
        faults.push(format!("it says complete for {hull:?}, and nobody listened in {unheard:?}"));
    }
    if report.complete && certain > 0 {
        faults.push(format!(
            "it says complete and lacks {certain} packets, such as {}",
            words(ran, missing[0])
        ));
    }
    if certain > report.lost_max {
        faults.push(format!(
            "it lacks {certain} packets, such as {}, and says: {}",
            words(ran, missing[0]),
            said()
        ));
    }
    if report.lost_min > missing.len() as u64 {
        faults.push(format!("it lacks {} packets and says: {}", missing.len(), said()));
    }
    let stated =
        |packet: &Sent| report.gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&packet.time_ns));
    let outside = |packet: &&&Sent| ran.fates.of(packet) != Fate::Late && !stated(packet);
    if let Some(packet) = missing.iter().find(outside) {
        faults.push(format!("{} is missing outside of all gaps: {}", words(ran, packet), said()));
    }
    let tally = Tally {
        dumps: windows.len() as u64,
        complete: report.complete.into(),
        lacking: u64::from(certain > 0),
        failed: report.error.is_some().into(),
        missing: certain,
        ..Tally::default()
    };
    (tally, faults)
}

fn words(ran: &Ran, packet: &Sent) -> String {
    format!(
        "packet {} of {} ns ({:?}, {})",
        packet.number,
        packet.time_ns,
        ran.fates.of(packet),
        packet.link_type.name()
    )
}

/// Whether the packet may be the one that fired the dump.
fn may_have_fired(ran: &Ran, report: &DumpReport, packet: &Sent) -> bool {
    let condition = ran
        .scene
        .triggers
        .iter()
        .map(|trigger| trigger.condition)
        .find(|condition| report.trigger == format!("t{condition}"));
    let is_hit = condition.is_some_and(|condition| packet.kind == HITS[condition]);
    // One that came late, when the clock had been set, fires at the clock's time.
    let is_of_time = packet.time_ns == report.time_ns
        || ran.fates.of(packet) == Fate::Late && !ran.scene.wall.steps.is_empty();
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
    let downs =
        ran.scene.ports.iter().flat_map(|port| &port.down).map(|down| down.start..down.end.min(stopped_ns));
    let downs = downs
        .filter(|down| !down.is_empty())
        .flat_map(|down| wall.parts(down))
        .map(|part| (part.start, part.end - 1));
    // Where the clock was set back, what it showed before ends, and begins anew.
    let backs: Vec<i64> = wall
        .steps
        .iter()
        .filter(|(at_ns, by_ns)| *by_ns < 0 && *at_ns < stopped_ns)
        .map(|step| step.0)
        .collect();
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
    // What of the last write has come through a pipe that failed, isn't known to who writes: its own count
    // holds.
    let failed_stream = report.to_stream && report.error.is_some();
    let file = match std::fs::read(path) {
        Ok(file) => file,
        Err(error) => return written.faults.push(format!("{}: {error}", path.display())),
    };
    let mut newest_ns = i64::MIN;
    let blocks = match ran.scene.format {
        DumpFormat::Pcapng => blocks_of_pcapng(&file),
        DumpFormat::Pcap => blocks_of_pcap(&file),
    };
    for block in blocks {
        if failed_stream && written.numbers.len() as u64 == report.packets {
            return;
        }
        let (time_ns, data) = match block {
            Ok(packet) => packet,
            Err(fault) => return written.faults.push(fault),
        };
        let number = number_of(data);
        let sent = number.and_then(|number| ran.scene.packets.get(number as usize));
        match sent.filter(|sent| sent.time_ns == time_ns && sent.frame() == data) {
            Some(sent) if !written.numbers.insert(sent.number) => {
                written.faults.push(format!("packet {} comes twice", sent.number))
            }
            Some(_) => {}
            None => written.faults.push(format!("the packet of {time_ns} ns was never sent")),
        }
        if time_ns < newest_ns && !report.to_stream {
            written.faults.push(format!("packet {number:?} stands behind a later one"));
        }
        newest_ns = time_ns;
    }
}

/// A packet of a file, with its time; or what is wrong with the file there, which ends it.
type Read<'a> = Result<(i64, &'a [u8]), String>;

fn blocks_of_pcapng(file: &[u8]) -> Vec<Read<'_>> {
    let (mut packets, mut at) = (Vec::new(), 0);
    while at < file.len() {
        let total = if at + 12 <= file.len() { pcapng::le32(file, at + 4) as usize } else { 0 };
        if total < 12 || at + total > file.len() || pcapng::le32(file, at + total - 4) as usize != total {
            packets.push(Err(format!("no block at {at}")));
            return packets;
        }
        packets.extend(PacketBlock::first(&file[at..]).map(|block| Ok((block.time_ns(), block.data()))));
        at += total;
    }
    packets
}

fn blocks_of_pcap(file: &[u8]) -> Vec<Read<'_>> {
    const HEAD_BYTES: usize = 24;
    const PACKET_HEAD_BYTES: usize = 16;
    if !file.is_empty() && file.len() < HEAD_BYTES {
        return vec![Err(format!("the head is truncated at {}", file.len()))];
    }
    let (mut packets, mut at) = (Vec::new(), HEAD_BYTES);
    while at < file.len() {
        let head = file.get(at..at + PACKET_HEAD_BYTES);
        let bytes = head.map(|head| pcapng::le32(head, 8) as usize);
        let data = bytes.and_then(|bytes| file.get(at + PACKET_HEAD_BYTES..at + PACKET_HEAD_BYTES + bytes));
        let Some((head, data)) = head.zip(data) else {
            packets.push(Err(format!("a packet is truncated at {at}")));
            return packets;
        };
        let time_ns = i64::from(pcapng::le32(head, 0)) * 1_000_000_000 + i64::from(pcapng::le32(head, 4));
        packets.push(Ok((time_ns, data)));
        at += PACKET_HEAD_BYTES + data.len();
    }
    packets
}
