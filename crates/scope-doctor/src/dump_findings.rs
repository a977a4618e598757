//! Findings about dumps: what they lack and why, hits that got none, and what the disk, or a limit of the
//! process, refused.

use super::facts::{DumpFacts, Facts};
use super::finding::{Finding, Stage, Sureness};
use scope_packet::GapReason;
use scope_spelling::figures::counted;
use scope_trigger::DUMPS_MAX;

/// Findings whose packets a dump then lacks, by the reason that the dump states.
const CAUSES: [(GapReason, &[&str]); 6] = [
    (
        GapReason::Kernel,
        &["worker_busy", "worker_throttled", "worker_starved", "process_stalled", "kernel_ring"],
    ),
    (GapReason::RingPinned, &["dump_disk_slow", "ring_pinned"]),
    (GapReason::Limit, &["link_types", "interfaces"]),
    (GapReason::Unreadable, &["unreadable"]),
    (GapReason::InterfaceGone, &["not_captured"]),
    (GapReason::Disk, &["dump_disk_full", "dump_disk_read_only", "file_size_limit", "dump_failed"]),
];

/// What dumps lack of the past that stores keep: kind, reason, words and remedies.
const OF_STORE: [(&str, GapReason, &str, [&str; 2]); 3] = [
    (
        "dumps_deleted",
        GapReason::Deleted,
        "the store had deleted",
        [
            "Keep more on disk: a larger --store-budget, a longer --store-age.",
            "Cover less of the past: a shorter --before.",
        ],
    ),
    (
        "dumps_not_stored",
        GapReason::NotStored,
        "the store had not written",
        [
            "See why the store misses packets, above or in the log: store_missed, store_state.",
            "Give the ring more memory: --ring.",
        ],
    ),
    (
        "dumps_left_out",
        GapReason::LeftOut,
        "the store's filter may have left out",
        [
            "Store everything in one more volume, or what dumps need: --store-filter.",
            "Give the ring more memory, so that more of the past is whole: --ring.",
        ],
    ),
];

/// Adds everything about dumps; `found` has the other findings.
pub(super) fn add(facts: &Facts, found: &mut Vec<Finding>) {
    failed(facts, found);
    incomplete(facts, found);
    refused(facts, found);
    unexplained(facts, found);
}

/// Dumps that only the totals of the last line count: their own lines are in an earlier file, or beyond what
/// is read.
fn unexplained(facts: &Facts, found: &mut Vec<Finding>) {
    let Some((all, broken)) = facts.dump_totals else { return };
    let unexplained = broken.saturating_sub(facts.dumps.len() as u64);
    if unexplained > 0 {
        let cause = format!(
            "the end of the log counts {broken} of {all} dumps as incomplete or failed; for {unexplained} \
             of them this log has no reason"
        );
        let remedies = ["If the log was moved, look at the one before: wirescope doctor --log FILE"];
        found.push(Finding::loss("dumps_untold", Stage::Dumps, Sureness::Certain, 0, cause, &remedies));
    }
}

/// Why the system refused to write.
struct Refusal {
    kind: &'static str,
    /// In an error's words.
    signs: &'static [&'static str],
    stage: Stage,
    what: &'static str,
    remedies: &'static [&'static str],
}

const REFUSALS: [Refusal; 5] = [
    Refusal {
        kind: "dump_disk_full",
        signs: &["os error 28", "os error 122", "No space"],
        stage: Stage::DumpDisk,
        what: "the disk was full, or a quota was used up",
        remedies: &[
            "Free space there, or write to another disk: --out FOLDER",
            "Keep less in each dump: a narrower --dump, a shorter --before and --after.",
            "Limit the space of all dumps: --dump-budget 10GiB --dump-rotate",
        ],
    },
    Refusal {
        kind: "dump_disk_read_only",
        signs: &["os error 30"],
        stage: Stage::DumpDisk,
        what: "the disk is read-only",
        remedies: &[
            "Find out why the kernel made it read-only (often a failing disk): dmesg | grep -i 'read-only'",
            "Until it is repaired, write to another disk: --out FOLDER",
        ],
    },
    Refusal {
        kind: "file_size_limit",
        signs: &["os error 27"],
        stage: Stage::DumpDisk,
        what: "the process reached its limit of file sizes",
        remedies: &[
            "Lift the limit before the run starts: ulimit -f unlimited; in a service: LimitFSIZE=infinity.",
            "Make smaller dumps: a narrower --dump, a shorter --before and --after.",
        ],
    },
    Refusal {
        kind: "open_files_limit",
        signs: &["os error 24", "os error 23"],
        stage: Stage::Run,
        what: "the process reached its limit of files open at once",
        remedies: &["Let the process open more files: ulimit -n 4096; in a service: LimitNOFILE=4096."],
    },
    Refusal {
        kind: "threads_limit",
        signs: &["no thread"],
        stage: Stage::Run,
        what: "the system refused the process another thread",
        remedies: &[
            "Allow more threads: TasksMax=4096 in a service, --pids-limit of a container, ulimit -u 4096 in \
             a shell.",
            "Allow fewer dumps at once, each needs a thread: --dumps-max 4",
        ],
    },
];

/// Dumps that could not be written, by what refused it.
fn failed(facts: &Facts, found: &mut Vec<Finding>) {
    let refusal =
        |error: &str| REFUSALS.iter().find(|refusal| refusal.signs.iter().any(|sign| error.contains(sign)));
    let failed: Vec<(&DumpFacts, &String)> =
        facts.dumps.iter().filter_map(|dump| Some((dump, dump.error.as_ref()?))).collect();
    let mut kinds: Vec<&str> = Vec::new();
    for (_, error) in &failed {
        let kind = refusal(error).map_or("dump_failed", |refusal| refusal.kind);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        let of_kind = |error: &str| refusal(error).map_or("dump_failed", |refusal| refusal.kind) == kind;
        let of_kind: Vec<_> = failed.iter().filter(|(_, error)| of_kind(error)).collect();
        let Some((first, error)) = of_kind.first() else { continue };
        let known = REFUSALS.iter().find(|refusal| refusal.kind == kind);
        let what = known.map_or("", |refusal| refusal.what);
        let limit = match kind {
            "file_size_limit" => facts.file_size_max.map(|bytes| format!(" (its limit: {bytes} bytes)")),
            "threads_limit" => facts.threads_max.map(|threads| format!(" (its limit: {threads})")),
            _ => None,
        };
        let cause = format!(
            "{} of {} dumps could not be written completely{}{what}{}; dump {}: {error}",
            of_kind.len(),
            facts.dumps_all(),
            if what.is_empty() { "" } else { ": " },
            limit.unwrap_or_default(),
            first.id
        );
        let remedies = known.map_or(
            &["Check the dump folder: does it exist, may the run's user write there, does its disk \
                work?"][..],
            |refusal| refusal.remedies,
        );
        let stage = known.map_or(Stage::DumpDisk, |refusal| refusal.stage);
        let mut finding = Finding::loss(kind, stage, Sureness::Certain, 0, cause, remedies);
        // Dumps may lack the same packets: the figure is that of the worst one, not the sum.
        finding.lost_min = of_kind.iter().map(|(dump, _)| dump.lost_min).max().unwrap_or(0);
        finding.lost_max = of_kind.iter().map(|(dump, _)| dump.lost_max).max().unwrap_or(0);
        found.push(finding);
    }
    let no_thread = |text: &&String| text.contains("no thread");
    if let Some(words) = facts.failures.iter().chain(&facts.warnings).find(no_thread)
        && !found.iter().any(|finding| finding.kind == "threads_limit")
    {
        let limit = facts.threads_max.map_or(String::new(), |threads| format!(" (its limit: {threads})"));
        let cause = format!("the system refused the process another thread{limit}: {words}");
        let finding =
            Finding::loss("threads_limit", Stage::Run, Sureness::Certain, 0, cause, REFUSALS[4].remedies);
        let loses = facts.failures.iter().any(|text| text.contains("no thread"));
        found.push(Finding { loses, ..finding });
    }
}

/// Dumps that were written and lack packets, by the reasons that they state.
fn incomplete(facts: &Facts, found: &mut Vec<Finding>) {
    let short: Vec<&DumpFacts> =
        facts.dumps.iter().filter(|dump| !dump.complete && dump.error.is_none()).collect();
    let of = |reason: &dyn Fn(GapReason) -> bool| -> Vec<&DumpFacts> {
        let has = |dump: &&&DumpFacts| dump.gaps.keys().any(|name| by_name(name).is_some_and(reason));
        short.iter().filter(has).copied().collect()
    };
    let all = facts.dumps_all();
    overwritten(facts, &short, found);
    // A loss in capture is counted once, there: what dumps lack of it follows from that.
    for (reason, kinds) in CAUSES {
        let lacking = of(&|other| other == reason);
        let causes: Vec<&'static str> =
            kinds.iter().copied().filter(|kind| found.iter().any(|finding| finding.kind == *kind)).collect();
        if lacking.is_empty() {
            continue;
        }
        if causes.is_empty() && reason.is_loss() {
            let (lost_min, lost_max) = worst(&lacking, &|other| other == reason);
            let cause = format!(
                "{} of {all} dumps lack packets ({}), the worst one that many; the log does not say why",
                lacking.len(),
                reason.name()
            );
            let remedies = ["Read the dump's own statement, the comment of its file: capinfos FILE"];
            let finding = Finding::loss(
                "dumps_incomplete",
                Stage::Dumps,
                Sureness::Possible,
                lost_min,
                cause,
                &remedies,
            );
            found.push(Finding { lost_max, ..finding });
        } else if !causes.is_empty() {
            let cause =
                format!("{} of {all} dumps lack some of these packets ({})", lacking.len(), reason.name());
            let finding = Finding::loss("dumps_lack", Stage::Dumps, Sureness::Certain, 0, cause, &[]);
            found.push(Finding { follows: causes, ..finding });
        }
    }
    for (kind, reason, words, remedies) in OF_STORE {
        let lacking = of(&|other| other == reason);
        if !lacking.is_empty() {
            let (lost_min, lost_max) = worst(&lacking, &|other| other == reason);
            let cause = format!(
                "{} of {all} dumps lack packets that the ring no longer had and {words}, the worst one that many",
                lacking.len()
            );
            let finding = Finding::loss(kind, Stage::Dumps, Sureness::Certain, lost_min, cause, &remedies);
            found.push(Finding { lost_max, ..finding });
        }
    }
    let unsettled = of(&|reason| reason == GapReason::Unsettled);
    if !unsettled.is_empty() {
        let (lost_min, lost_max) = worst(&unsettled, &|reason| reason == GapReason::Unsettled);
        let cause = format!(
            "{} of {all} dumps were finished before the workers had handed over all packets of their \
             window: the run got too little processor time",
            unsettled.len()
        );
        let remedies = [
            "Give the run more processor time: end or move what else runs here, or start it with nice -n \
             -10.",
            "Use one worker for each free processor, not more: workers= in the source.",
        ];
        let finding =
            Finding::loss("dumps_unsettled", Stage::Worker, Sureness::Likely, lost_min, cause, &remedies);
        found.push(Finding { lost_max, ..finding });
    }
    let ends = |reason| {
        matches!(
            reason,
            GapReason::NotStarted
                | GapReason::Stopped
                | GapReason::CaptureBegin
                | GapReason::CaptureEnd
                | GapReason::NotRecorded
        )
    };
    let cut = of(&ends);
    if !cut.is_empty() {
        let cause = format!(
            "{} of {all} dumps cover less time than --before and --after ask for: the run or the capture \
             file began later or ended earlier",
            cut.len()
        );
        found.push(Finding::note("dumps_shorter", Stage::Dumps, Sureness::Certain, cause, &[]));
    }
    let down = of(&|reason| matches!(reason, GapReason::InterfaceDown | GapReason::InterfaceGone));
    if !down.is_empty() {
        let cause =
            format!("during the window of {} of {all} dumps an interface was down or missing", down.len());
        let remedies =
            ["Check cable, switch port and peer; the kernel's log has the history: journalctl -k | grep -i \
             'link is'"];
        found.push(Finding::note("dumps_without_interface", Stage::Nic, Sureness::Certain, cause, &remedies));
    }
}

/// Dumps for which the ring overwrote packets before they were read. Logs of older versions state no reasons:
/// there this is the most likely one.
fn overwritten(facts: &Facts, short: &[&DumpFacts], found: &mut Vec<Finding>) {
    let is_evicted = |reason| reason == GapReason::Evicted;
    let silent = |dump: &&&DumpFacts| dump.gaps.is_empty() && dump.lost_max > 0;
    let stated = |dump: &&&DumpFacts| dump.gaps.keys().any(|name| by_name(name).is_some_and(is_evicted));
    let lacking: Vec<&DumpFacts> =
        short.iter().filter(|dump| silent(dump) || stated(dump)).copied().collect();
    if lacking.is_empty() {
        return;
    }
    let unstated = lacking.iter().any(|dump| dump.gaps.is_empty());
    let dropped = unstated && facts.dropped.values().any(|&packets| packets > 0);
    let larger = format!("Give the ring more memory: --ring {}.", twice(facts.ring_bytes));
    // Where a dump doesn't say what it waited for, the run's warnings may.
    let was_slow =
        |dump: &&DumpFacts| dump.waited.map_or(facts.long_holds > 0, |waited| waited.explains_loss());
    let (slow, others): (Vec<&DumpFacts>, Vec<&DumpFacts>) = lacking.into_iter().partition(was_slow);
    let (to_pipe, to_disk): (Vec<&DumpFacts>, Vec<&DumpFacts>) =
        slow.into_iter().partition(|dump| dump.piped);
    slow_writes(facts, &to_disk, &larger, found);
    slow_writes(facts, &to_pipe, &larger, found);
    if others.is_empty() {
        return;
    }
    let (lost_min, lost_max) = worst(&others, &is_evicted);
    let cause = format!(
        "{} of {} dumps lack packets, the worst one that many: {}",
        others.len(),
        facts.dumps_all(),
        match dropped {
            false => "the ring overwrote them before the dump read them",
            true => "they were dropped in capture, or the ring overwrote them before the dump read them",
        }
    );
    let remedies = [
        larger.as_str(),
        "Cover less of the past: a shorter --before.",
        "Keep less in each dump, so that it is written faster: a narrower --dump.",
    ];
    let sureness = match (dropped, unstated) {
        (false, false) => Sureness::Certain,
        (true, _) => Sureness::Possible,
        _ => Sureness::Likely,
    };
    let loss = Finding::loss("dumps_incomplete", Stage::Ring, sureness, lost_min, cause, &remedies);
    found.push(Finding { lost_max, ..loss });
}

/// Dumps whose packets the ring overwrote while they waited: all for their disk, or all for the reader of a
/// pipe.
fn slow_writes(facts: &Facts, slow: &[&DumpFacts], larger: &str, found: &mut Vec<Finding>) {
    let Some(first) = slow.first() else { return };
    let (lost_min, lost_max) = worst(slow, &|reason| reason == GapReason::Evicted);
    let longest = slow.iter().filter_map(|dump| dump.waited).max_by(|a, b| a.total_s.total_cmp(&b.total_s));
    let (who, verb) = if first.piped { ("the reader of the pipe", "read") } else { ("the disk", "wrote") };
    let what = match longest {
        Some(waited) if waited.is_standstill() => {
            format!("{who} {verb} nothing for {:.1} s", waited.longest_s)
        }
        Some(waited) => format!("{who} was too slow: writing took {:.1} s", waited.total_s),
        None => format!("{who} was too slow"),
    };
    let cause = format!(
        "{what}, and the ring overwrote packets of {} of {} dumps meanwhile, of the worst one that many",
        slow.len(),
        facts.dumps_all()
    );
    let (kind, stage, remedies): (_, _, [&str; 3]) = match first.piped {
        true => (
            "dump_reader_slow",
            Stage::Dumps,
            [
                "Put a buffer behind the pipe: wirescope run ... -w - | mbuffer -m 1G | ...",
                larger,
                "Write less into the pipe: a narrower --dump.",
            ],
        ),
        false => (
            "dump_disk_slow",
            Stage::DumpDisk,
            [
                "Write dumps to a faster disk: --out FOLDER.",
                larger,
                "Keep less in each dump, so that it is written faster: a narrower --dump.",
            ],
        ),
    };
    if let Some(known) = found.iter_mut().find(|finding| finding.kind == kind) {
        // The same disk made dumps hold the whole ring: packets dropped by that are counted there already.
        known.lost_min = known.lost_min.saturating_add(lost_min);
        known.lost_max = known.lost_max.saturating_add(lost_max);
        known.cause = format!("{}; {cause}", known.cause);
        return;
    }
    let loss = Finding::loss(kind, stage, Sureness::Likely, lost_min, cause, &remedies);
    found.push(Finding { lost_max, ..loss });
}

/// What the worst dump lacks for a reason; of one that states none, all that it lacks.
fn worst(dumps: &[&DumpFacts], reason: &dyn Fn(GapReason) -> bool) -> (u64, u64) {
    let lost = |dump: &&DumpFacts| {
        if dump.gaps.is_empty() {
            return (dump.lost_min, dump.lost_max);
        }
        let of_reason = dump.gaps.iter().filter(|(name, _)| by_name(name).is_some_and(reason));
        of_reason
            .fold((0u64, 0u64), |sum, (_, lost)| (sum.0.saturating_add(lost.0), sum.1.saturating_add(lost.1)))
    };
    dumps.iter().map(lost).fold((0, 0), |worst, lost| (worst.0.max(lost.0), worst.1.max(lost.1)))
}

fn by_name(name: &str) -> Option<GapReason> {
    GapReason::ALL.into_iter().find(|reason| reason.name() == name)
}

/// Twice as many bytes, as a value of `--ring`.
fn twice(ring_bytes: u64) -> String {
    match ring_bytes.saturating_mul(2) {
        0 => "4GiB".to_string(),
        bytes if bytes >= 1 << 30 => format!("{}GiB", bytes >> 30),
        bytes => format!("{}MiB", (bytes >> 20).max(1)),
    }
}

/// Hits that got no dump.
fn refused(facts: &Facts, found: &mut Vec<Finding>) {
    let refused = facts.hits("no_space");
    if refused > 0 {
        let cause = format!(
            "{} got no dump: the dump folder has reached --dump-budget or --dump-min-free",
            counted(refused, "hit")
        );
        let remedies = [
            "Move finished dumps away.",
            "Allow dumps more space: a larger --dump-budget, or a smaller --dump-min-free.",
            "Let new dumps replace the oldest ones: --dump-rotate.",
        ];
        found.push(Finding::loss("dumps_refused", Stage::DumpDisk, Sureness::Certain, 0, cause, &remedies));
    }
    let too_many = facts.hits("too_many");
    if too_many > 0 {
        let places = facts.dumps_max.map_or(String::new(), |places| format!(" ({places})"));
        let cause = format!(
            "{} got no dump of their own: as many dumps were open as --dumps-max allows{places}",
            counted(too_many, "hit")
        );
        let now = facts.dumps_max.unwrap_or(8);
        let more = now.saturating_mul(4).min(DUMPS_MAX);
        // Where dumps hold the ring already, more of them hold it up sooner.
        let ring = if facts.dropped("ring_pinned") > 0 {
            ", and give the ring as much more memory: --ring"
        } else {
            ""
        };
        let allow = (more > now).then(|| format!("Allow more dumps at once: --dumps-max {more}{ring}."));
        let fewer = [
            "Close dumps sooner: a shorter --after.",
            "Make fewer dumps: a longer --holdoff, or one for each host: --holdoff-key '$srcIP'.",
        ];
        let remedies: Vec<&str> = allow.as_deref().into_iter().chain(fewer).collect();
        found.push(Finding::note("too_many", Stage::Dumps, Sureness::Certain, cause, &remedies));
    }
    if facts.hits_rationed > 0 {
        let cause = format!(
            "{} hits got no dump, unexamined: too many packets in a second did not fit the template of \
             --dump; somebody may send them on purpose",
            facts.hits_rationed
        );
        let remedies =
            ["Add to the template, after '?:', what such hits keep: --dump 'host $srcIP ?:' keeps \
                everything."];
        found.push(Finding::note("hits_rationed", Stage::Dumps, Sureness::Certain, cause, &remedies));
    }
}
