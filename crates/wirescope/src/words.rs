//! Figures and reports in plain words, as people read them.

use scope_dump::gaps_in_words;
use scope_engine::{
    DumpSummary, DumpTotals, Failure, ForwardStatus, GroupStatus, InterfaceStatus, NicStatus, RunPlan,
    ScriptStatus, SourceRule, StatsStatus, Status, Summary, TakenByRule,
};
use scope_packet::Drops;
use scope_packet::segment::{KEPT_BYTES_MAX, kept_bytes_max};
use scope_ring::RingMemory;
pub use scope_spelling::figures::{bit_rate, counted, number, size, span};
use scope_spelling::printable::{printable, shell_word};
use scope_spelling::time::iso;
use scope_store::{Amount, VolumeReport};

/// Counters of a network card that count lost packets.
const NIC_LOSSES: [&str; 6] = [
    "rx_dropped",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_length_errors",
];

/// Of each trigger whose filter is empty, that every packet fires it.
pub fn everything_fires(plan: &RunPlan) -> Vec<String> {
    let in_force = plan.live.triggers.iter();
    let empty =
        in_force.filter(|trigger| trigger.condition.filter().is_some_and(|filter| filter.is_everything()));
    empty
        .map(|trigger| format!("trigger '{}': its filter is empty, so every packet fires it", trigger.name))
        .collect()
}

/// What a ring holds: bytes, how long that lasts at a rate, and what of a packet, where that isn't the most
/// that can be kept.
pub fn ring(segment_bytes: u64, segments: u64, bits_per_s: f64, rate: &str) -> String {
    let bytes = segment_bytes * segments;
    let lasts_ns = (bytes as f64 * 8e9 / bits_per_s.max(1.0)).min(i64::MAX as f64) as i64;
    let kept = kept_bytes_max(segment_bytes as usize);
    let kept = match kept < KEPT_BYTES_MAX {
        true => format!(
            "; of a packet at most {} are kept (a larger --ring, or --segment 1MiB, keeps up to {})",
            size(kept as u64),
            size(KEPT_BYTES_MAX as u64)
        ),
        false => String::new(),
    };
    format!(
        "ring: {} in {segments} segments of {}; that is {} of traffic at {rate}{kept}",
        size(bytes),
        size(segment_bytes),
        span(lasts_ns)
    )
}

/// That the ring is ready, and in which memory.
pub fn memory(memory: &RingMemory) -> String {
    format!("ring: ready; recording; memory: {memory}")
}

/// That capture begins, how to fire and how to stop.
pub fn ready(plan: &RunPlan) -> String {
    let pid = std::process::id();
    let does = statistics_alone(plan).unwrap_or_else(|| dumps(plan, pid));
    format!("ready, process {pid}; {does}; Ctrl-C or kill {pid} stops")
}

/// Where statistics are seen, of a run that can write no dump.
fn statistics_alone(plan: &RunPlan) -> Option<String> {
    let RunPlan { fixed, .. } = plan;
    let stats = fixed.stats.as_ref().filter(|_| fixed.folder.is_none() && fixed.dump.single.is_none())?;
    match &stats.db {
        Some(options) => {
            Some(format!("wirescope stats top --db {} shows the traffic", shell_word(&options.db)))
        }
        None => stats.ipfix.map(|collector| format!("records of flows go to {collector}")),
    }
}

/// How to fire by hand, and what that writes.
fn dumps(plan: &RunPlan, pid: u32) -> String {
    let before = match plan.live.before_ns {
        0 => "nothing".to_string(),
        ns => format!("the last {}", span(ns)),
    };
    let writes = plan.fixed.ring_out.is_some() || plan.fixed.store.is_some();
    match (plan.live.triggers.len(), writes) {
        (0, false) => format!("no trigger, so only this writes: kill -USR1 {pid}, a dump of {before}"),
        _ => format!("kill -USR1 {pid} dumps {before}"),
    }
}

/// One line that says how a run goes, for logs.
pub fn status(status: &Status) -> String {
    traffic(status) + &store_in_short(status)
}

/// How a run goes, for a terminal: lines of about 80 letters, the first one without the store, then one for each
/// volume.
pub fn status_lines(status: &Status) -> Vec<String> {
    let volumes = status.stores.iter().map(|report| format!("store {}", volume_in_short(report)));
    [traffic(status)].into_iter().chain(volumes).collect()
}

fn traffic(status: &Status) -> String {
    let dropped: u64 = status.counts.dropped.iter().map(|(_, packets)| packets).sum();
    format!(
        "{:>5.0} s  {} packets/s  {}  ring {}  dropped {}  dumps {}{}{}",
        status.elapsed_s,
        number(status.packets_per_s as u64),
        bit_rate(status.bits_per_s),
        span(status.depth_ns),
        number(dropped),
        status.dumps_done,
        if status.dumps_open > 0 { format!(", {} open", status.dumps_open) } else { String::new() },
        if status.space.is_some_and(|space| space.full) { ", NO SPACE for more" } else { "" }
    )
}

/// Rate and lag of the store, all volumes together, and whether one fails.
fn store_in_short(status: &Status) -> String {
    if status.stores.is_empty() {
        return String::new();
    }
    let bytes_per_s: f64 = status.stores.iter().map(|report| report.bytes_per_s).sum();
    let behind: u64 = status.stores.iter().map(|report| report.behind.packets).sum();
    let fails = status.stores.iter().any(|report| report.error.is_some());
    let fails = if fails { ", NOT STORING everything" } else { "" };
    let closing =
        status.stores.iter().filter_map(closing).next().map_or(String::new(), |it| format!(", {it}"));
    format!("  store {}/s, {} behind{fails}{closing}", size(bytes_per_s as u64), number(behind))
}

/// One line for each worker and open dump.
pub fn details(status: &Status) -> Vec<String> {
    let rates = |packets: f64, bits: f64| format!("{} packets/s  {}", number(packets as u64), bit_rate(bits));
    let workers = status.workers.iter().enumerate().map(|(number, worker)| {
        let lag = worker.lag_ns.map_or("times are not current".to_string(), |ns| format!("lag {}", span(ns)));
        let busy = worker.time.map_or(String::new(), |time| format!("  busy {:.0} %", time.busy * 100.0));
        format!(
            "      worker {number} {}  {}  {lag}{busy}",
            worker.source,
            rates(worker.packets_per_s, worker.bits_per_s)
        )
    });
    let interfaces = status.interfaces.iter().map(|entry| format!("      interface {}", interface(entry)));
    let nics = status.nics.iter().map(|status| format!("      nic {}", nic(status)));
    let dumps = status.dumps.iter().map(|dump| {
        let rates = rates(dump.packets_per_s, dump.bits_per_s);
        let written = counted(dump.packets, "packet");
        format!(
            "      dump {} {}  {written}  {rates}  {} to its end",
            dump.id,
            dump.trigger,
            span(dump.lag_ns)
        )
    });
    let space = status
        .space
        .map(|space| format!("      dumps take {}; {} are free", size(space.used), size(space.free)));
    let volumes = status.stores.iter().map(|report| format!("      store {}", volume(report)));
    let scripts = status.scripts.iter().map(|status| {
        let (packets_per_s, cpu) = (status.packets_per_s as u64, status.cpu * 100.0);
        format!("      script {}  {} packets/s  busy {cpu:.0} %", script(status), number(packets_per_s))
    });
    let groups = status.groups.iter().map(|status| format!("      group {}", group(status)));
    let stats = status.stats.iter().map(|status| {
        let behind =
            if status.lag_ns > 0 { format!("  {} behind", span(status.lag_ns)) } else { String::new() };
        format!("      stats {}{behind}", stats(status))
    });
    let lines = workers.chain(interfaces).chain(nics).chain(dumps).chain(scripts).chain(groups).chain(stats);
    lines.chain(space).chain(volumes).collect()
}

/// What a group was given.
fn group(status: &GroupStatus) -> String {
    let standings = status.members.iter().map(|member| &member.standing).chain([&status.gone.standing]);
    let (given, missed) =
        standings.fold((0, 0), |(given, missed), it| (given + it.given, missed + it.missed));
    let mut text = format!(
        "{}: {}, {} gone; {} given",
        status.name,
        counted(status.members.len() as u64, "member"),
        number(status.gone.members),
        counted(given, "packet")
    );
    for (count, fate) in [
        (missed, "missed by members"),
        (status.counts.missed, "recycled before they were looked at"),
        (status.counts.unclaimed, "unclaimed"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {fate}", number(count)));
        }
    }
    text
}

/// What became of the packets that a forward of a group was given.
fn forward(group: &str, status: &ForwardStatus) -> String {
    let ForwardStatus { interface, standing, counts, .. } = status;
    let mut text = format!("{group} to {interface}: {} sent", counted(counts.sent, "packet"));
    let refused = counts.refused_all();
    if refused > 0 {
        let each: Vec<String> =
            counts.refusals().map(|(why, many)| format!("{} {}", number(many), why.name())).collect();
        text.push_str(&format!(", {} refused ({})", number(refused), each.join(", ")));
    }
    for (count, fate) in [
        (counts.padded, "padded with zeros"),
        (standing.missed, "missed"),
        (standing.behind, "still to be sent"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {fate}", number(count)));
        }
    }
    text
}

/// What statistics have done.
fn stats(status: &StatsStatus) -> String {
    let counts = [
        (status.flows, "flow", "going on"),
        (status.evicted, "flow", "evicted"),
        (status.folded_rows + status.folded_flows, "row", "folded into sums"),
        (status.unwritten, "row", "not written in time"),
        (status.late, "packet", "late"),
        (status.moved_aside, "damaged file", "renamed"),
        (status.sent, "record", "sent"),
        (status.unsent, "record", "not sent"),
    ];
    let some = counts.iter().filter(|(count, ..)| *count > 0);
    let told: String = some.map(|(count, what, how)| format!(", {} {how}", counted(*count, what))).collect();
    let failing = status.ended.as_ref().or(status.failing.as_ref());
    let failing = failing.map(|why| format!("; failing: {why}")).unwrap_or_default();
    let written = status.of.db.as_ref().map(|_| format!(", {} written", counted(status.rows, "row")));
    let told = format!("{}{told}{failing}", written.unwrap_or_default());
    told.strip_prefix(", ").map_or_else(|| "no flow goes on".to_string(), str::to_string)
}

/// What one script has done so far.
fn script(status: &ScriptStatus) -> String {
    let (of_dumps, yes) = match (status.kind, status.hits) {
        ("dump", _) => (", of dumps", "kept"),
        (_, 1) => ("", "hit"),
        _ => ("", "hits"),
    };
    let counted_too = [(status.missed, "missed"), (status.errors, "failed")];
    let more = counted_too.iter().filter(|(count, _)| *count > 0);
    let more: String = more.map(|(count, word)| format!(", {} {word}", number(*count))).collect();
    let disabled = if status.disabled.is_some() { ", DISABLED" } else { "" };
    let packets = counted(status.packets, "packet");
    format!(
        "{} ({}{of_dumps}): {packets}, {} {yes}{more}{disabled}",
        status.name,
        status.file,
        number(status.hits)
    )
}

/// The same of one volume, what is least important last: at most 80 letters without its path.
fn volume_in_short(report: &VolumeReport) -> String {
    let trouble = if report.error.is_some() { format!(" ({})", report.state.word()) } else { String::new() };
    let missed = match report.missed.packets {
        0 => String::new(),
        packets => format!(", MISSED {}", number(packets)),
    };
    let rate = size(report.bytes_per_s as u64);
    let behind = match report.behind_ns / 1_000_000 {
        0 => format!("{} behind", number(report.behind.packets)),
        ms => format!("{} behind ({ms} ms)", number(report.behind.packets)),
    };
    let room = room(report);
    let reach = match (closing(report), report.reach_ns()) {
        (Some(closing), _) => closing,
        (None, Some(reach_ns)) => format!("back {}", span(reach_ns)),
        (None, None) => "empty".to_string(),
    };
    format!("{rate}/s{trouble}{missed}, {behind}, {room}, {reach}  {}", report.path.display())
}

/// How far a volume is with files that were left growing, as long as it isn't done.
fn closing(report: &VolumeReport) -> Option<String> {
    let recovery = report.recovery.filter(|recovery| !recovery.is_over())?;
    let percent = recovery.bytes_done * 100 / recovery.bytes.max(1);
    Some(format!("closing {} of {} files, {percent} %", recovery.files_done, recovery.files))
}

/// Bytes that a volume takes, and may take.
fn room(report: &VolumeReport) -> String {
    match report.budget {
        Some(budget) => format!("{} of {}", size(report.used), size(budget)),
        None => format!("{} used", size(report.used)),
    }
}

/// How a volume of the store does: rate, what is to be written, room, how far it reaches back.
fn volume(report: &VolumeReport) -> String {
    let behind = match report.behind.packets {
        0 => "nothing behind".to_string(),
        packets => format!("{} ({} ms) behind", counted(packets, "packet"), report.behind_ns / 1_000_000),
    };
    let trouble = match &report.error {
        Some(error) => format!("; {}: {error}", report.state.word()),
        None => String::new(),
    };
    let missed = match report.missed.packets {
        0 => String::new(),
        packets => format!(", {} missed", counted(packets, "packet")),
    };
    let closing = closing(report).map_or(String::new(), |closing| format!(", {closing}"));
    let rate = size(report.bytes_per_s as u64);
    let room = room(report);
    let reach = match report.reach_ns() {
        Some(reach_ns) => format!("reaches back {}", span(reach_ns)),
        None => "empty".to_string(),
    };
    let written = report.budget.is_some() && report.bytes_per_s >= 1.0;
    let at = if written { " at this rate" } else { "" };
    let path = report.path.display();
    format!("{path}: {rate}/s, {behind}{missed}, {room}, {reach}{at}{closing}{trouble}")
}

/// What a network card counted since the run began: what it received, and every loss that it knows of.
fn nic(status: &NicStatus) -> String {
    let what = match status.counters.get("rx_packets") {
        Some(packets) => format!("{} received", counted(*packets, "packet")),
        None => "counters unknown".to_string(),
    };
    let losses = NIC_LOSSES.iter().map(|name| (*name, status.count(name)));
    let driver = status.driver.iter().map(|(name, count)| (name.as_str(), *count));
    let told: Vec<String> = losses
        .chain(driver)
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {}", number(count)))
        .collect();
    let told = if told.is_empty() { "no losses counted".to_string() } else { told.join(", ") };
    format!("{}: {what}, {told}", status.interface)
}

/// The summary at the end. What matters most stands last: dumps, a line each, then what isn't complete, what
/// failed, what was lost. Where `told`, the reader has seen each dump already: then only those
/// that aren't complete are.
pub fn summary(summary: &Summary, told: bool) -> String {
    let mut text = String::new();
    let amount = |packets: u64, bytes: u64| format!("{}, {}", counted(packets, "packet"), size(bytes));
    line(&mut text, format!("received  {}", amount(summary.received.packets, summary.received.bytes)));
    line(&mut text, format!("stored    {}", amount(summary.stored.packets, summary.stored.bytes)));
    if summary.filtered.packets > 0 {
        line(&mut text, format!("filtered  {}", amount(summary.filtered.packets, summary.filtered.bytes)));
    }
    for SourceRule { source, rule, taken: TakenByRule { dropped, cut } } in &summary.source_rules {
        let (dropped, cut) = (number(*dropped), number(*cut));
        line(&mut text, format!("rule      {rule} of {source}: {dropped} dropped, {cut} truncated"));
    }
    for entry in &summary.interfaces {
        line(&mut text, format!("interface {}", interface(entry)));
    }
    for status in &summary.nics {
        line(&mut text, format!("nic       {}", nic(status)));
    }
    line(&mut text, format!("memory    {}", summary.memory));
    for (name, hits) in &summary.hits {
        let fates: Vec<String> = hits
            .each()
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(verdict, count)| format!("{} {}", number(*count), fate(verdict)))
            .collect();
        let fates = if fates.is_empty() { String::new() } else { format!(": {}", fates.join(", ")) };
        line(&mut text, format!("trigger   {name}: {}{fates}", counted(hits.total(), "hit")));
    }
    for status in &summary.scripts {
        line(&mut text, format!("script    {}", script(status)));
    }
    for status in &summary.groups {
        line(&mut text, format!("group     {}", group(status)));
        for own in &status.forwards {
            line(&mut text, format!("forward   {}", forward(&status.name, own)));
        }
    }
    if let Some(status) = &summary.stats {
        line(&mut text, format!("stats     {}", stats(status)));
    }
    if let Some(exec) = &summary.exec {
        let fates = [(exec.failed, "failed"), (exec.timed_out, "took too long"), (exec.skipped, "skipped")];
        let told = fates
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, fate)| format!(", {} {fate}", number(*count)));
        line(&mut text, format!("commands  {} run{}", number(exec.started), told.collect::<String>()));
    }
    for report in &summary.stores {
        let Amount { packets, bytes } = report.stored;
        let missed = match report.missed.packets {
            0 => String::new(),
            packets => format!(", {} missed", counted(packets, "packet")),
        };
        let left_out = match report.filtered.packets {
            0 => String::new(),
            packets => format!(", {} left out by its filter", number(packets)),
        };
        let deleted = match report.deleted.packets {
            0 => String::new(),
            packets => format!("; {} deleted to keep its bounds", counted(packets, "packet")),
        };
        let path = report.path.display();
        line(
            &mut text,
            format!(
                "store     {path}: {}{left_out}{missed}; takes {}{deleted}",
                amount(packets, bytes),
                size(report.used)
            ),
        );
    }
    if let Some(space) = &summary.space {
        let deleted = match space.usage.deleted {
            0 => String::new(),
            dumps => format!("; {} deleted to make room", counted(dumps, "dump")),
        };
        let of = space.bytes_max.map_or(String::new(), |bytes| format!(" of {}", size(bytes)));
        line(
            &mut text,
            format!(
                "space     dumps take {}{of}, {} are free{deleted}",
                size(space.usage.used),
                size(space.usage.free)
            ),
        );
    }
    let odd = [
        (summary.unreadable, "in damaged records could not be read"),
        (summary.stepped_back, "older than a packet that came before"),
        (summary.strays, "with a time that no other packet confirms: it moved no clock"),
        (summary.time_clamped, "with a time that can't be stored and was changed"),
        (summary.cut, "truncated although no snap length asked for it"),
    ];
    for (packets, what) in odd.iter().filter(|(packets, _)| *packets > 0) {
        line(&mut text, format!("note      {} {what}", counted(*packets, "packet")));
    }
    if summary.set_back > 0 {
        let times = counted(summary.set_back, "time");
        line(
            &mut text,
            format!("note      capture time was set back {times}: windows end there and new ones begin"),
        );
    }
    for path in &summary.ring_out {
        line(&mut text, format!("ring      {}", path.display()));
    }
    for warning in &summary.warnings {
        line(&mut text, format!("warning   {warning}"));
    }
    if summary.dumps_left_out() > 0 {
        let left_out = counted(summary.dumps_left_out(), "older dump");
        line(&mut text, format!("dumps     {left_out} are in wirescope.jsonl only"));
    }
    let (whole, lacking): (Vec<_>, Vec<_>) = summary.dumps.iter().partition(|report| is_whole(report));
    for report in whole.iter().filter(|_| !told).chain(&lacking) {
        line(&mut text, dump(report));
    }
    if told && summary.dump_totals.dumps > 0 {
        let totals = &summary.dump_totals;
        let lacking =
            if totals.failed > 0 { format!(", {} failed", number(totals.failed)) } else { String::new() };
        line(&mut text, format!("dumps     {}{lacking}", number(totals.dumps)));
    }
    for failure in other_failures(summary) {
        line(&mut text, format!("failure   {}", failure.fault));
    }
    let lacking = |report: &VolumeReport| report.missed.packets + report.behind.packets;
    line(&mut text, lost(&summary.dropped, &summary.dump_totals, summary.stores.iter().map(lacking).sum()));
    text
}

/// What failed, but for dumps that have a line of their own.
pub fn other_failures(summary: &Summary) -> impl Iterator<Item = &Failure> {
    let has_a_line = |id: u64| summary.dumps.iter().any(|dump| !is_whole(dump) && dump.id == id);
    summary.failures.iter().filter(move |failure| !failure.dump.is_some_and(has_a_line))
}

/// Nothing that came was lost: what nobody listened to is no failure.
fn is_whole(report: &DumpSummary) -> bool {
    !report.has_failed()
}

/// What became of hits, in words.
fn fate(verdict: &str) -> &str {
    match verdict {
        "fired" => "fired",
        "extended" => "extended an open dump",
        "held_off" => "held off",
        "no_space" => "found no space for a dump",
        "too_many" => "found too many dumps open",
        "template_unfilled" => "lacked a field of the template",
        "filter_uncompiled" => "have a link type without such a filter",
        "disarmed" => "came when it was disarmed",
        other => other,
    }
}

/// What one live interface brought, and what the kernel dropped of it.
fn interface(entry: &InterfaceStatus) -> String {
    let dropped = match entry.counters.kernel_dropped {
        0 => "none dropped by the kernel".to_string(),
        packets => format!("{} dropped by the kernel", number(packets)),
    };
    let called = if entry.called == entry.interface {
        String::new()
    } else {
        format!(" (called {} now)", entry.called)
    };
    format!("{}{called}: {}, {dropped}", entry.interface, counted(entry.counters.received, "packet"))
}

fn line(text: &mut String, words: String) {
    text.push_str(&printable(&words));
    text.push('\n');
}

fn drops(dropped: &Drops) -> String {
    let told: Vec<String> = dropped
        .iter()
        .filter(|(_, packets)| *packets > 0)
        .map(|(reason, packets)| format!("{} ({})", counted(packets, "packet"), reason.name()))
        .collect();
    if told.is_empty() { "nothing".to_string() } else { told.join(", ") }
}

/// What was lost, in capture, of dumps and of the store, which lacks so many packets: the last line of all.
fn lost(dropped: &Drops, dumps: &DumpTotals, store_lacks: u64) -> String {
    let of_dumps = match (dumps.lost_min, dumps.lost_max) {
        (_, 0) => None,
        (0, u64::MAX) => Some("may lack an unknown number of packets".to_string()),
        (least, u64::MAX) => Some(format!("lack at least {}", counted(least, "packet"))),
        (least, most) if least == most => Some(format!("lack {}", counted(most, "packet"))),
        (least, most) => Some(format!("lack {} to {}", number(least), counted(most, "packet"))),
    };
    let of_dumps = of_dumps.map(|lack| format!("dumps {lack}"));
    let of_store = (store_lacks > 0).then(|| format!("the store lacks {}", counted(store_lacks, "packet")));
    let others: Vec<String> = [of_dumps, of_store].into_iter().flatten().collect();
    match drops(dropped).as_str() {
        dropped if others.is_empty() => format!("lost      {dropped}"),
        "nothing" => format!("lost      nothing in capture; {}", others.join("; ")),
        dropped => format!("lost      {dropped}; {}", others.join("; ")),
    }
}

/// How complete a dump is.
pub fn completeness(report: &DumpSummary) -> String {
    if let Some(error) = &report.error {
        return format!("not complete: {error}");
    }
    if report.complete {
        return "complete".to_string();
    }
    let text = match (report.lost_min, report.lost_max) {
        (0, 0) => "not complete: no packet lost".to_string(),
        (0, u64::MAX) => "not complete: packets may be missing, how many is unknown".to_string(),
        (least, u64::MAX) => format!("not complete: at least {} lost", counted(least, "packet")),
        (least, most) if least == most => format!("not complete: {} lost", counted(most, "packet")),
        (least, most) => format!("not complete: {} to {} lost", number(least), counted(most, "packet")),
    };
    let but = if (report.lost_min, report.lost_max) == (0, 0) { " but" } else { "" };
    match &report.gaps[..] {
        [] => text,
        [one] if !but.is_empty() => format!("{text}, but the window has a gap {}", gaps_in_words(&[*one])),
        gaps => format!("{text},{but} {}", gaps_in_words(gaps)),
    }
}

/// A finished dump in one line: which, what it holds, whether that is all, and its files.
pub fn dump(report: &DumpSummary) -> String {
    let kept = counted(report.packets, "packet");
    let files: Vec<String> = report.paths.iter().map(|path| path.display().to_string()).collect();
    let files = if files.is_empty() { String::new() } else { format!("; {}", files.join(", ")) };
    format!(
        "dump      {} of {}: {kept}, {}, {}{files}",
        report.id,
        report.trigger,
        size(report.bytes),
        completeness(report)
    )
}

/// More of it: its hit, filter and window.
pub fn dump_details(report: &DumpSummary) -> String {
    let what = if report.filter.is_empty() { "everything" } else { &report.filter };
    let [at, from, to] = [report.time_ns, report.from_ns, report.to_ns].map(iso);
    format!("          at {at}: {what}, from {from} to {to}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_engine::{WorkerStatus, WorkerTime};
    use scope_packet::{Gap, GapReason};

    #[test]
    fn the_status_is_one_line() {
        let busy = Status {
            elapsed_s: 10_000.0,
            packets_per_s: 2_345_678.0,
            bits_per_s: 9.87e9,
            depth_ns: 12_300_000_000,
            ..Status::default()
        };
        let said = super::status(&busy);
        assert_eq!(said, "10000 s  2,345,678 packets/s  9.87 Gbit/s  ring 12.3 s  dropped 0  dumps 0");
        assert!(said.chars().count() <= 80, "it fits a terminal");
        let said = super::status(&Status { dumps_open: 1, dumps_done: 2, ..busy });
        assert!(said.ends_with("  dumps 2, 1 open"), "{said}");
    }

    #[test]
    fn a_volume_has_a_line_on_a_terminal_and_a_part_of_the_line_in_a_log() {
        let amount = |packets| scope_store::report::Amount { packets, bytes: packets * 1500 };
        let fine = VolumeReport {
            path: "/srv/ws".into(),
            bytes_per_s: 812.0 * 1_048_576.0,
            behind: amount(1_234_567),
            behind_ns: 120_000_000,
            budget: Some(20 << 40),
            used: (19 << 40) + (700 << 30),
            ..VolumeReport::default()
        };
        let fails = VolumeReport {
            missed: amount(1_234_567),
            state: scope_store::report::VolumeState::Failing,
            error: Some("No space left on device".to_string()),
            ..fine.clone()
        };
        let both = Status { stores: vec![fine, fails], ..Status::default() };
        let lines = status_lines(&both);
        assert_eq!(
            lines[1..],
            [
                "store 812 MiB/s, 1,234,567 behind (120 ms), 19.7 TiB of 20 TiB, back 7 h 10 min  /srv/ws",
                "store 812 MiB/s (failing), MISSED 1,234,567, 1,234,567 behind (120 ms), 19.7 TiB of 20 TiB, \
                 back 7 h 10 min  /srv/ws",
            ]
        );
        assert!(
            lines[1].find("  /srv").is_some_and(|at| at <= 80)
                && lines[2].find(", 19.7").is_some_and(|at| at <= 80)
        );
        let said = super::status(&both);
        assert!(said.ends_with("  store 1.59 GiB/s, 2,469,134 behind, NOT STORING everything"), "{said}");
        assert!(said.starts_with(&lines[0]) && !said.contains('\n'));
    }

    #[test]
    fn a_volume_that_closes_files_left_growing_says_how_far_it_is_until_it_is_done() {
        let recovery = scope_store::report::RecoveryReport {
            files: 7,
            files_done: 2,
            bytes: 10 << 30,
            bytes_done: 4 << 30,
            ..Default::default()
        };
        let of = |recovery| {
            let report =
                VolumeReport { path: "/s".into(), recovery: Some(recovery), ..VolumeReport::default() };
            let status = Status { stores: vec![report], ..Status::default() };
            (status_lines(&status).remove(1), super::status(&status), details(&status).remove(0))
        };
        let (terminal, log, detail) = of(recovery);
        assert_eq!(terminal, "store 0 B/s, 0 behind, 0 B used, closing 2 of 7 files, 40 %  /s");
        assert!(log.ends_with("  store 0 B/s, 0 behind, closing 2 of 7 files, 40 %"), "{log}");
        assert!(detail.ends_with(", empty, closing 2 of 7 files, 40 %"), "{detail}");
        let (terminal, log, _) = of(scope_store::report::RecoveryReport { files_done: 7, ..recovery });
        assert!(terminal.ends_with(", empty  /s") && log.ends_with(" behind"), "{terminal}{log}");
    }

    #[test]
    fn workers_and_cards_have_a_line_each() {
        let worker = WorkerStatus { source: "afpacket:eth0".to_string(), ..WorkerStatus::default() };
        let time = Some(WorkerTime { busy: 0.314, starved: 0.0 });
        let count = |name: &str, count| (name.to_string(), count);
        let counters = [count("rx_packets", 1234), count("rx_missed_errors", 5)].into_iter().collect();
        let driver = [count("rx_no_dma_resources", 5)].into_iter().collect();
        let nic = NicStatus { interface: "eth0".to_string(), counters, driver, ..NicStatus::default() };
        let unknown = NicStatus { interface: "tun0".to_string(), ..NicStatus::default() };
        let workers = vec![WorkerStatus { time, lag_ns: Some(0), ..worker }];
        let said = details(&Status { workers, nics: vec![nic, unknown], ..Status::default() });
        assert_eq!(
            said,
            [
                "      worker 0 afpacket:eth0  0 packets/s  0 bit/s  lag 0 s  busy 31 %",
                "      nic eth0: 1,234 packets received, rx_missed_errors 5, rx_no_dma_resources 5",
                "      nic tun0: counters unknown, no losses counted",
            ]
        );
    }

    #[test]
    fn the_memory_is_told_with_what_would_be_better() {
        let kind = scope_ring::MemoryKind::Normal { bytes: 1 << 30 };
        let said = memory(&RingMemory { kind, locked: true, node: Some(0) });
        assert_eq!(
            said,
            "ring: ready; recording; memory: locked, on NUMA node 0, normal 4 KiB pages: \
             reserve huge pages with sysctl vm.nr_hugepages=512 for fewer TLB misses"
        );
    }

    #[test]
    fn the_ring_is_told_in_time() {
        let said = ring(2 << 20, 512, 10e9, "10 Gbit/s");
        assert_eq!(said, "ring: 1 GiB in 512 segments of 2 MiB; that is 859 ms of traffic at 10 Gbit/s");
        let small = ring(64 << 10, 64, 10e9, "10 Gbit/s");
        assert!(small.ends_with(
            "; of a packet at most 16 KiB are kept (a larger --ring, or --segment 1MiB, keeps up to 256 KiB)"
        ));
    }

    #[test]
    fn the_summary_ends_with_dumps_a_line_each_and_losses_and_says_nothing_twice() {
        let dump = |id, complete| DumpSummary {
            id,
            trigger: "hit".to_string(),
            complete,
            error: (!complete).then(|| "disk full".to_string()),
            paths: vec![format!("/d/{id}.pcapng").into()],
            ..DumpSummary::default()
        };
        let mut finished = Summary { dumps: vec![dump(1, false), dump(2, true)], ..Summary::default() };
        finished.dropped.add(scope_packet::DropReason::Kernel, 7);
        let of_dump =
            Failure { dump: Some(1), ..Failure::from("dump 1 is incomplete: disk full".to_string()) };
        finished.failures = vec![of_dump, "source failed".to_string().into()];
        finished.dump_totals.dumps = 2;
        finished.dump_totals.failed = 1;
        let last = |told| {
            super::summary(&finished, told).lines().rev().take(4).map(str::to_string).collect::<Vec<_>>()
        };
        let lost = "lost      7 packets (kernel)";
        let lacking = "dump      1 of hit: 0 packets, 0 B, not complete: disk full; /d/1.pcapng";
        let whole = "dump      2 of hit: 0 packets, 0 B, complete; /d/2.pcapng";
        assert_eq!(last(false), [lost, "failure   source failed", lacking, whole]);
        assert_eq!(last(true), [lost, "failure   source failed", "dumps     2, 1 failed", lacking]);
        let totals = |lost_min, lost_max| DumpTotals { lost_min, lost_max, ..DumpTotals::default() };
        let nothing = Drops::default();
        assert_eq!(
            super::lost(&nothing, &totals(20_169, 20_169), 0),
            "lost      nothing in capture; dumps lack 20,169 packets"
        );
        assert_eq!(
            super::lost(&finished.dropped, &totals(2, 9), 0),
            "lost      7 packets (kernel); dumps lack 2 to 9 packets"
        );
        assert_eq!(super::lost(&nothing, &totals(0, 0), 0), "lost      nothing");
        let unknown = "lost      nothing in capture; dumps may lack an unknown number of packets";
        assert_eq!(super::lost(&nothing, &totals(0, u64::MAX), 0), unknown);
    }

    #[test]
    fn a_summary_of_a_store_that_missed_packets_does_not_say_that_nothing_was_lost() {
        let missed = |missed, behind| {
            let amount = |packets| Amount { packets, bytes: packets * 100 };
            let (missed, behind) = (amount(missed), amount(behind));
            VolumeReport { path: "/s".into(), missed, behind, ..VolumeReport::default() }
        };
        let last = |stores, dropped| {
            let said = super::summary(&Summary { stores, dropped, ..Summary::default() }, false);
            said.lines().last().unwrap().to_string()
        };
        let nothing = Drops::default();
        assert_eq!(last(vec![missed(0, 0)], nothing), "lost      nothing");
        let lacks = "lost      nothing in capture; the store lacks 1,003 packets";
        assert_eq!(last(vec![missed(1000, 1), missed(2, 0)], nothing), lacks);
        let mut dropped = Drops::default();
        dropped.add(scope_packet::DropReason::Kernel, 7);
        assert_eq!(
            last(vec![missed(1, 0)], dropped),
            "lost      7 packets (kernel); the store lacks 1 packet"
        );
    }

    #[test]
    fn a_loss_is_told_with_its_bounds_and_its_span() {
        let gap = Gap { from_ns: 0, to_ns: 1, reason: GapReason::Kernel, lost_min: 2, lost_max: Some(1500) };
        let report = DumpSummary { lost_min: 2, lost_max: 1500, gaps: vec![gap], ..DumpSummary::default() };
        let span = "1970-01-01T00:00:00Z and 00:00:00.000000001Z (kernel)";
        assert_eq!(completeness(&report), format!("not complete: 2 to 1,500 packets lost, between {span}"));
        let unknown = DumpSummary { lost_max: u64::MAX, ..DumpSummary::default() };
        assert_eq!(completeness(&unknown), "not complete: packets may be missing, how many is unknown");
        let complete = DumpSummary { complete: true, ..DumpSummary::default() };
        assert_eq!(completeness(&complete), "complete");
    }
}
