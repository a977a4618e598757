//! From facts to findings, in order of effect: a pure function, so that recorded counters test it.

use super::facts::{Facts, NicFacts, State, is_nearly_full};
use super::finding::{Finding, Stage, Sureness};
use super::{dump_findings, packet_findings, silence, stats_findings, store_findings};
use scope_machine::nic::{Nic, altered_advice};
use scope_source::spec::escape;
use scope_spelling::figures::counted;
use scope_spelling::printable::shell_word;
use std::cmp::Reverse;

/// Seconds after which a run that has received nothing is idle.
const IDLE_S: f64 = 2.0;

/// Everything to report of a run: losses first, the largest first, each counted once; then what follows from
/// them; then what is worth knowing.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    packet_findings::add(facts, &mut found);
    silence::add(facts, &mut found);
    run(facts, &mut found);
    dump_findings::add(facts, &mut found);
    store_findings::add(facts, &mut found);
    stats_findings::add(facts, &mut found);
    log(facts, &mut found);
    altered(facts, &mut found);
    idle(facts, &mut found);
    settings(facts, &mut found);
    found.sort_by_key(|finding| {
        let most = Reverse((finding.lost_min, finding.lost_max));
        (!finding.loses, !finding.follows.is_empty(), most, finding.sureness, finding.stage)
    });
    found
}

fn run(facts: &Facts, found: &mut Vec<Finding>) {
    let pid = facts.pid.unwrap_or(0);
    if facts.state == State::Stopped {
        let resume = format!("Continue the process: kill -CONT {pid}");
        // Generated traffic and files wait.
        let captures = facts.live && !facts.captures.is_empty();
        let meanwhile = if captures {
            "the kernel drops packets that its capture ring cannot hold"
        } else {
            "the run does nothing until it is continued"
        };
        let cause = format!("a signal has stopped process {pid}: {meanwhile}");
        let finding = Finding::loss("stopped", Stage::Run, Sureness::Certain, 0, cause, &[&resume]);
        found.push(Finding { loses: captures, ..finding });
    }
    let own = ["source failed", "the ring couldn't", "the event log", " is not captured"];
    for failure in facts.failures.iter().filter(|failure| own.iter().any(|words| failure.contains(words))) {
        found.push(Finding::loss("failed", Stage::Run, Sureness::Certain, 0, failure.clone(), &[]));
    }
    for (interface, refused) in &facts.refused {
        let reason = refused.split_once(" is not captured: ").map_or(&refused[..], |(_, reason)| reason);
        // The failures name what ended its source.
        if !facts.failures.iter().any(|failure| failure.contains(reason)) {
            let (cause, remedy) = refused.rsplit_once("; ").unwrap_or((refused, ""));
            let remedy = sentence(remedy);
            let remedies: &[&str] = if remedy.is_empty() { &[] } else { &[&remedy] };
            let cause = match cause.trim() {
                "" => format!("{interface} is not captured; the log doesn't say why"),
                told => told.to_string(),
            };
            let finding = Finding::loss("not_captured", Stage::Run, Sureness::Certain, 0, cause, remedies);
            // One that a pattern passed over was never begun.
            found.push(Finding { loses: facts.gone.contains(interface), ..finding });
        }
    }
    let unreadable: u64 = facts.sources.values().map(|source| source.unreadable).fold(0, u64::saturating_add);
    if unreadable > 0 {
        let cause = format!(
            "{unreadable} packets of a capture file could not be read: their records are \
            damaged"
        );
        found.push(Finding::loss(
            "unreadable",
            Stage::Run,
            Sureness::Certain,
            unreadable,
            cause,
            &["Copy the capture file again from where it was made."],
        ));
    }
    if facts.late > 0 {
        let cause = format!(
            "{} packets came so late that dumps may have been finished without them: a clock was set, or a \
             capture file is out of order",
            facts.late
        );
        let remedies = [
            "Synchronise the host and its network cards: chrony for the host, phc2sys for cards that have \
             a clock.",
            "Sort the capture file first: reordercap IN OUT",
        ];
        found.push(Finding::note("late", Stage::Dumps, Sureness::Possible, cause, &remedies));
    }
    if facts.cut_by_segment > 0 {
        let cause =
            format!("{} truncated: longer than a segment can hold", counted(facts.cut_by_segment, "packet"));
        found.push(Finding::note(
            "cut",
            Stage::Ring,
            Sureness::Certain,
            cause,
            &["Use larger segments: --segment 2MiB keeps packets of up to 256 KiB whole."],
        ));
    }
}

/// The run's own words as a sentence.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// What the log itself lacks: a report is no better than its log.
fn log(facts: &Facts, found: &mut Vec<Finding>) {
    let mut add =
        |kind, cause: String| found.push(Finding::note(kind, Stage::Run, Sureness::Certain, cause, &[]));
    match facts.unreadable_lines {
        0 => {}
        lines => add(
            "log_damaged",
            format!("{} of the log cannot be read, and this report lacks that", counted(lines, "line")),
        ),
    }
    if facts.last_line_cut && !matches!(facts.state, State::Running | State::Dead) {
        add("log_cut", "the last line of the log is incomplete; this report lacks what it says".to_string());
    }
    if facts.headless {
        add(
            "log_headless",
            "the log lacks the run's first lines, which name its sources and its process; to rotate a log, \
             move it, then send SIGHUP to the run"
                .to_string(),
        );
    }
    if facts.unknown_lines > 0 && facts.version != env!("CARGO_PKG_VERSION") {
        let version = if facts.version.is_empty() { "another version" } else { &facts.version };
        let cause = format!(
            "this version ({}) does not know {} of the log's lines; the doctor of {version}, which wrote \
             them, may find more",
            env!("CARGO_PKG_VERSION"),
            facts.unknown_lines
        );
        add("log_of_other_version", cause);
    }
}

/// Packets that aren't as they are on the wire. The run knew the interface, and has noted where that is
/// fixed.
fn altered(facts: &Facts, found: &mut Vec<Finding>) {
    for nic in &facts.nics {
        let NicFacts { interface, altered, .. } = nic;
        let mut add = |kind, packets: u64, what: &str, remedy: &str| {
            if packets > 0 {
                let cause = format!("{packets} packets on {interface} {what}");
                found.push(Finding::note(kind, Stage::Nic, Sureness::Certain, cause, &[remedy]));
            }
        };
        let unknown = Nic { name: interface.clone(), ..Nic::default() };
        for advice in altered_advice(&unknown, None, altered) {
            let (packets, what) = match advice.kind {
                "joined" => (
                    altered.joined,
                    "are longer than its MTU: this host joined them on receipt (GRO, LRO), or their sender \
                     never split them",
                ),
                "split" => (
                    altered.split,
                    "are longer than its MTU: this host sent them, and its card splits them later (TSO)",
                ),
                "long" => (
                    altered.long,
                    "are longer than its MTU: this host joined them on receipt, or sent them for its card \
                     to split",
                ),
                "checksums_sent" => {
                    (altered.unchecked_sent, "were captured before the card filled in their checksums")
                }
                _ => (
                    altered.unchecked.saturating_sub(altered.unchecked_sent),
                    "were received without a valid checksum: their sender never filled it in, or joining \
                     undid it; other tools report it as wrong",
                ),
            };
            let line = nic.remedy(advice.kind).unwrap_or(&advice.remedy);
            let aim = match advice.kind {
                "joined" | "long" => "To capture packets as they are on the wire, switch off joining",
                "split" => "To capture packets as they are on the wire, let the kernel split them",
                _ => "To capture valid checksums, switch off checksum offload",
            };
            add(advice.kind, packets, what, &format!("{aim}: {line}"));
        }
        add(
            "cut_by_block",
            altered.cut_by_block,
            "were truncated although no snap length asked for it: they do not fit into a block of the \
             kernel's ring",
            "Use larger blocks in the source: block=1MiB (pcap: buffer=).",
        );
        add(
            "cut_by_bound",
            altered.cut_by_bound,
            "were truncated although no snap length asked for it: they are longer than the most that is \
             kept of a packet",
            &format!(
                "Limit the length of the packets that this host makes: ip link set dev {} gso_max_size 65536 \
                 gro_max_size 65536",
                shell_word(interface)
            ),
        );
        let snap_len = facts
            .captures
            .iter()
            .find(|capture| capture.interface == *interface)
            .and_then(|capture| capture.snap_len);
        let bytes = snap_len.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
        add(
            "sliced",
            altered.sliced,
            &format!("were truncated to the snap length{bytes} of the source"),
            "To keep more of each packet, set a larger snaplen= or -s, or none.",
        );
    }
}

/// Live sources that receive nothing.
fn idle(facts: &Facts, found: &mut Vec<Finding>) {
    for capture in &facts.captures {
        let offered = facts.sources.get(&capture.source).map(|source| source.offered);
        if offered != Some(0) || (facts.elapsed_s < IDLE_S && facts.state != State::Ended) {
            continue;
        }
        let name = &capture.interface;
        let nic = facts.nics.iter().find(|nic| nic.interface == *name);
        let arrived = nic
            .filter(|nic| !nic.counters.is_empty())
            .map(|nic| nic.count("rx_packets").saturating_add(nic.count("tx_packets")));
        let (up, running) = (nic.and_then(|nic| nic.up), nic.and_then(|nic| nic.running));
        let up_line = format!("Switch it on: ip link set dev {} up", shell_word(name));
        let promiscuous = format!(
            "Capture packets for other hosts, too, without promisc=off: --source {}",
            shell_word(format!("afpacket:{}", escape(name)))
        );
        let (sureness, cause, remedies): (_, &str, Vec<&str>) = match (up, running, arrived) {
            (Some(false), ..) => (Sureness::Certain, "the interface is down", vec![&up_line]),
            (_, Some(false), _) => {
                (Sureness::Certain, "the interface has no link", vec!["Check cable, switch port and peer."])
            }
            (.., Some(1..)) => (
                Sureness::Possible,
                "the card counts packets that capture never sees: an XDP program or another driver gets \
                 them first",
                vec!["Look for such a program: ip link show; bpftool net"],
            ),
            _ if !capture.promiscuous => (
                Sureness::Likely,
                "the source captures only packets for this host (promisc=off), and none \
                    came",
                vec![&promiscuous],
            ),
            (.., Some(0)) => (
                Sureness::Likely,
                "nothing arrives at this interface",
                vec![
                    "Check that it is the right interface: wirescope devices",
                    "Check that the switch's mirror port is set up.",
                ],
            ),
            _ => (
                Sureness::Possible,
                "the card's counters are not known",
                vec!["Look at the interface: wirescope devices"],
            ),
        };
        let stale = facts.counts_age_s.map_or(String::new(), |age_s| format!(" (as of {age_s:.0} s ago)"));
        let cause = format!("no packet at all on {name}: {cause}{stale}");
        found.push(Finding::note("idle", Stage::Nic, sureness, cause, &remedies));
    }
}

/// Settings that cost speed or safety.
fn settings(facts: &Facts, found: &mut Vec<Finding>) {
    let interpreted = facts.interpreted;
    if facts.interpreter_asked {
        let cause =
            "filters run in the interpreter, several times slower than machine code: --filter-engine \
             interpreter is set"
                .to_string();
        found.push(Finding::note(
            "interpreted",
            Stage::Worker,
            Sureness::Certain,
            cause,
            &["Use machine code: omit --filter-engine, or set --filter-engine native."],
        ));
    } else if interpreted > 0 {
        let cause =
            format!("{interpreted} filters run in the interpreter, several times slower than machine code");
        let remedies =
            ["Allow the process executable memory: MemoryDenyWriteExecute=no in a service; execmem under \
             SELinux."];
        found.push(Finding::note("interpreted", Stage::Worker, Sureness::Certain, cause, &remedies));
    }
    if facts.swapped {
        let cause = "the system swaps the ring out: packets may be dropped while it is read back".to_string();
        let remedies = [
            "Lock the ring in memory: --mlock.",
            "Make the ring smaller: --ring.",
            "Switch swapping off: swapoff -a.",
        ];
        found.push(Finding::note("swapped", Stage::Ring, Sureness::Certain, cause, &remedies));
    }
    if facts.normal_pages {
        let reserve = format!(
            "Reserve huge pages before the run starts: sysctl vm.nr_hugepages={}",
            facts.ring_bytes.div_ceil(2 << 20)
        );
        let cause = "the ring uses normal pages: each packet costs more time than with huge \
            pages"
            .to_string();
        found.push(Finding::note("normal_pages", Stage::Ring, Sureness::Certain, cause, &[&reserve]));
    }
    let (periods, seconds) = facts.throttled;
    if periods > 0 && facts.kernel.throttled == 0 {
        let cause = format!(
            "the run's control group used up its processor time {periods} times, and threads waited \
             {seconds:.1} s for more; no packet was lost by that"
        );
        let remedies = ["Allow it more processor time: CPUQuota= in a service, --cpus of a container."];
        found.push(Finding::note("throttled", Stage::Worker, Sureness::Certain, cause, &remedies));
    }
    if let Some(disk) = facts.disk.filter(|disk| is_nearly_full(disk.free_bytes, disk.bytes)) {
        let cause = format!(
            "the dump folder's disk has {} MiB left of {} MiB",
            disk.free_bytes >> 20,
            disk.bytes >> 20
        );
        let remedies = ["Move finished dumps away.", "Write to another disk: --out FOLDER"];
        found.push(Finding::note("disk_low", Stage::DumpDisk, Sureness::Certain, cause, &remedies));
    }
    for nic in &facts.nics {
        if let Some(remedy) = nic.remedy("nic_ring").filter(|_| nic.count("rx_missed_errors") == 0) {
            let cause = format!(
                "the receive ring of {} is small: a burst of packets may be lost there",
                nic.interface
            );
            let remedy = format!("Give the card a larger receive ring: {remedy}");
            found.push(Finding::note("nic_ring", Stage::Nic, Sureness::Possible, cause, &[&remedy]));
        }
        if let Some(remedy) = nic.remedy("joined").filter(|_| nic.altered.joined == 0) {
            let cause =
                format!("{} may join received packets; so far none was longer than its MTU", nic.interface);
            let remedy = format!("To capture packets as they are on the wire, switch off joining: {remedy}");
            found.push(Finding::note("may_join", Stage::Nic, Sureness::Possible, cause, &[&remedy]));
        }
    }
}
