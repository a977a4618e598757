//! Findings about packets that were lost on their way into the ring, stage by stage.

use super::facts::{Facts, NicFacts};
use super::finding::{Finding, Stage, Sureness};
use scope_spelling::printable::shell_word;

/// More triggers than this are many for one worker.
const TRIGGERS_MANY: u64 = 8;
/// A worker's part of a second from which its processor is the limit for certain.
const BUSY_CERTAIN: f64 = 0.95;

pub(super) fn add(facts: &Facts, found: &mut Vec<Finding>) {
    for nic in &facts.nics {
        card(facts, nic, found);
    }
    kernel_queue(facts, found);
    kernel_ring(facts, found);
    ring(facts, found);
}

/// What the card reports as lost. Drivers count one loss in several counters, so the largest counts, not the
/// sum.
fn card(facts: &Facts, nic: &NicFacts, found: &mut Vec<Finding>) {
    let name = &nic.interface;
    let no_room = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"]
        .map(|counter| nic.count(counter))
        .into_iter()
        .max();
    let no_room = no_room.unwrap_or(0);
    let larger = match nic.remedy("nic_ring") {
        Some(line) => format!("Give the card a larger receive ring: {line}"),
        None => {
            format!("Check whether the card allows a larger receive ring: ethtool -g {}", shell_word(name))
        }
    };
    let remedies = [
        larger.as_str(),
        "Keep the workers off the processors that serve the card's interrupts (/proc/interrupts): cpus= in \
         the source.",
        "Give the kernel more time per round to fetch packets: sysctl -w net.core.netdev_budget=600",
    ];
    if no_room > 0 {
        let cause = format!("{name} ran out of receive buffers: the kernel did not fetch packets in time");
        found.push(Finding::loss("nic_no_room", Stage::Nic, Sureness::Certain, no_room, cause, &remedies));
    }
    let damaged = nic.count("rx_crc_errors").max(nic.count("rx_length_errors"));
    if damaged > 0 {
        let cause = format!("packets arrived damaged at {name}, and the card discarded them");
        let remedies = ["Check cable, optics and the peer's settings."];
        found.push(Finding::loss("damaged", Stage::Nic, Sureness::Certain, damaged, cause, &remedies));
    }
    let of_driver = nic.driver.iter().max_by_key(|(_, count)| **count).filter(|(_, count)| **count > 0);
    // The kernel adds what its own queue dropped to the same counter; that is reported with the queue.
    let of_queue = facts.softnet.map_or(0, |softnet| softnet.dropped);
    let dropped = nic.count("rx_dropped").saturating_sub(no_room).saturating_sub(of_queue);
    match of_driver {
        Some((counter, &packets)) if no_room == 0 => {
            let cause = format!("the driver of {name} counts lost packets ({counter})");
            found.push(Finding::loss(
                "driver_drops",
                Stage::Nic,
                Sureness::Likely,
                packets.max(dropped),
                cause,
                &remedies,
            ));
        }
        _ if dropped > 0 => found.push(dropped_behind_the_card(facts, nic, dropped, &larger)),
        _ => {}
    }
}

/// `rx_dropped` counts packets that a driver had no memory for, and also packets that capture got and no
/// other program on this host wanted. Where capture got every packet that the card received, it counts the
/// latter.
fn dropped_behind_the_card(facts: &Facts, nic: &NicFacts, dropped: u64, larger: &str) -> Finding {
    let name = &nic.interface;
    let of_nic = facts.captures.iter().filter(|capture| capture.interface == *name);
    let offered: u64 = of_nic
        .filter_map(|capture| facts.sources.get(&capture.source))
        .map(|source| source.offered)
        .fold(0, u64::saturating_add);
    let may_join = nic.altered.joined > 0 || nic.remedy("joined").is_some();
    let all_seen = offered >= nic.count("rx_packets");
    let cause = format!(
        "{name} counts {dropped} dropped packets (rx_dropped): {}",
        match (all_seen, may_join) {
            (true, _) =>
                "capture got every packet that the card received, so most likely no other program \
                wanted them",
            (false, true) =>
                "the kernel had no memory for them, or no program wanted them; joined packets \
                hide which",
            (false, false) => "the kernel had no memory for them, or no program wanted them",
        }
    );
    let memory = "Keep more memory free for the kernel's packet buffers: sysctl -w vm.min_free_kbytes=131072";
    let finding = Finding::note("rx_dropped", Stage::Nic, Sureness::Possible, cause, &[larger, memory]);
    let loses = !all_seen && !may_join;
    Finding { loses, lost_max: if loses { dropped } else { 0 }, ..finding }
}

/// The kernel's queue counts for the whole machine, so other interfaces may be behind it.
fn kernel_queue(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(softnet) = facts.softnet.filter(|softnet| softnet.dropped > 0) else { return };
    let alone = facts.nics.len() == 1;
    let cause =
        "the kernel's queue between cards and sockets was full (softnet_stat; all interfaces together)"
            .to_string();
    let remedies = [
        "Allow a longer queue: sysctl -w net.core.netdev_max_backlog=10000",
        "Spread the card's packets over more processors: more queues (ethtool -L), or RPS (rps_cpus).",
    ];
    let sureness = if alone { Sureness::Likely } else { Sureness::Possible };
    found.push(Finding::loss("backlog", Stage::KernelQueue, sureness, softnet.dropped, cause, &remedies));
}

/// Packets that the kernel's capture ring had no room for. The count is exact; the reason is inferred from
/// what went on at that time.
fn kernel_ring(facts: &Facts, found: &mut Vec<Finding>) {
    let all = facts.dropped("kernel");
    let kernel = &facts.kernel;
    let interpreted = facts.interpreter_asked || facts.interpreted > 0;
    if kernel.busy > 0 {
        let sureness = if facts.busy_max >= BUSY_CERTAIN { Sureness::Certain } else { Sureness::Likely };
        let cause = format!(
            "a worker ran {:.0} % of the time and could not keep up: the kernel's capture ring filled up",
            facts.busy_max * 100.0
        );
        let remedies = relieve(facts, interpreted);
        let remedies: Vec<&str> = remedies.iter().map(String::as_str).collect();
        found.push(Finding::loss("worker_busy", Stage::Worker, sureness, kernel.busy, cause, &remedies));
    }
    if kernel.throttled > 0 {
        let (periods, seconds) = facts.throttled;
        let figures =
            if periods > 0 { format!(" ({periods} times in all, {seconds:.1} s)") } else { String::new() };
        let cause = format!(
            "the run's control group had used up its processor time, and threads had to wait{figures}"
        );
        let remedies = [
            "Allow it more processor time: CPUQuota= in a service (systemctl set-property UNIT \
             CPUQuota=200%), --cpus of a container.",
            "Use fewer threads: workers= in the source, --dumps-max.",
            "Let the kernel hold more packets meanwhile: a larger capture ring, blocks= in the source.",
        ];
        found.push(Finding::loss(
            "worker_throttled",
            Stage::Worker,
            Sureness::Certain,
            kernel.throttled,
            cause,
            &remedies,
        ));
    }
    if kernel.starved > 0 {
        let (cause, remedies) = starved(facts);
        let remedies: Vec<&str> = remedies.iter().map(String::as_str).collect();
        found.push(Finding::loss(
            "worker_starved",
            Stage::Worker,
            Sureness::Likely,
            kernel.starved,
            cause,
            &remedies,
        ));
    }
    if kernel.stalled > 0 {
        let (sureness, what) = match facts.resumed {
            0 => (Sureness::Likely, "it was stopped by a signal or swapped out, or its machine was paused"),
            _ => (Sureness::Certain, "a signal had stopped it (SIGSTOP, or Ctrl-Z in a shell)"),
        };
        let cause = format!("the whole process stood still for {:.1} s: {what}", facts.stalled_s);
        let find = match facts.resumed {
            0 => "Find out what stops it: a debugger, the freezer of a control group, a hypervisor.",
            _ => {
                "Find out what sends SIGSTOP: a debugger, a script or a shell. SIGCONT continues the process."
            }
        };
        let mut remedies = vec![find];
        if facts.resumed == 0 {
            remedies.push("Lock the ring in memory, so that it can't be swapped out: --mlock.");
        }
        remedies.push(
            "Let the kernel hold more packets meanwhile: a larger capture ring, blocks= in the \
            source.",
        );
        found.push(Finding::loss(
            "process_stalled",
            Stage::KernelRing,
            sureness,
            kernel.stalled,
            cause,
            &remedies,
        ));
    }
    let explained = [kernel.busy, kernel.throttled, kernel.starved, kernel.stalled]
        .into_iter()
        .fold(0, u64::saturating_add);
    let rest = all.saturating_sub(explained);
    if rest > 0 {
        let cause = "the kernel's capture ring was full: packets came in a burst, or a worker was held up \
            for a moment"
            .to_string();
        let mut remedies = vec![
            "Let the kernel hold more packets: a larger capture ring, blocks= in the \
            source.",
        ];
        if facts.captures.iter().all(|capture| capture.cpus.is_empty()) {
            remedies.push("Give each worker a processor of its own: cpus= in the source.");
        }
        remedies.push("Share the packets among more workers: workers= in the source.");
        remedies.push(
            "If packets are few, let the kernel fill its blocks for longer: a longer timeout= in the source.",
        );
        found.push(Finding::loss(
            "kernel_ring",
            Stage::KernelRing,
            Sureness::Possible,
            rest,
            cause,
            &remedies,
        ));
    }
}

/// What helps a worker that has no time left. A processor of its own does not: it has one.
fn relieve(facts: &Facts, interpreted: bool) -> Vec<String> {
    let mut remedies = Vec::new();
    if interpreted {
        remedies.push(
            "Run filters as machine code: they run in the interpreter now, several times slower.".to_string(),
        );
    }
    let triggers = match facts.triggers {
        0 => None,
        many if many > TRIGGERS_MANY => Some(format!(
            "Arm fewer or simpler triggers: {many} are armed, and each of them is evaluated for every packet."
        )),
        few => Some(format!("Write simpler triggers: each of the {few} is evaluated for every packet.")),
    };
    let workers = facts.captures.iter().map(|capture| capture.workers).max().unwrap_or(1).max(1);
    let busiest = facts.captures.iter().find(|capture| capture.workers == workers);
    let pinned = busiest.map_or(0, |capture| capture.cpus.len() as u64);
    let more = if facts.processors > 0 && workers >= facts.processors {
        format!(
            "More workers don't help here: there are {workers}, and {} processors. Use a machine with more.",
            facts.processors
        )
    } else if pinned > 0 && workers >= pinned {
        format!(
            "Share the packets among more workers, each on a processor of its own: workers={0} and cpus= \
             with {0} processors in the \
             source.",
            workers + 1
        )
    } else {
        format!("Share the packets among more workers: workers={} in the source.", workers + 1)
    };
    let many = facts.triggers > TRIGGERS_MANY;
    match many {
        true => remedies.extend(triggers.into_iter().chain([more])),
        false => remedies.extend([more].into_iter().chain(triggers)),
    }
    remedies.push("Keep less of each packet: snaplen= in the source.".to_string());
    remedies
}

/// A worker that others kept from its processor: whether it was pinned there decides what helps.
fn starved(facts: &Facts) -> (String, Vec<String>) {
    let mut cpus: Vec<u64> = facts.captures.iter().flat_map(|capture| capture.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let priority = "Give the run priority: nice -n -10, or Nice=-10 in a service.".to_string();
    if cpus.is_empty() {
        let remedies = vec![
            "Give each worker a processor of its own: cpus= in the source.".to_string(),
            "End or move what else runs on this machine.".to_string(),
            priority,
        ];
        return ("a worker was ready to run while others had its processor".to_string(), remedies);
    }
    let list = cpus.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let cause = format!(
        "a worker was ready to run while others had its processor: it is pinned to {list}, and others run \
         there too"
    );
    let remedies = vec![
        format!(
            "Keep everything else off processor {list}: isolcpus={list} on the kernel's command line, \
             CPUAffinity= of other services."
        ),
        format!("Move interrupts away from it: /proc/irq/*/smp_affinity_list without {list}."),
        "Let the kernel move the worker to a free processor: omit cpus=.".to_string(),
        priority,
    ];
    (cause, remedies)
}

/// Packets that a worker received and could not store.
fn ring(facts: &Facts, found: &mut Vec<Finding>) {
    let pinned = facts.dropped("ring_pinned");
    if pinned > 0 && facts.disk_was_slow() {
        let cause = "dumps held the whole ring while they waited for their disk: a worker found no segment \
            to write into"
            .to_string();
        let remedies = [
            "Write dumps to a faster disk: --out FOLDER.",
            "Keep less in each dump: a narrower --dump.",
            "Allow fewer dumps at once: --dumps-max. Hits beyond that start none.",
            "Give the ring more memory: --ring.",
        ];
        found.push(Finding::loss(
            "dump_disk_slow",
            Stage::DumpDisk,
            Sureness::Likely,
            pinned,
            cause,
            &remedies,
        ));
    } else if pinned > 0 {
        let cause = "dumps held the whole ring: a worker found no segment to write into".to_string();
        let remedies = [
            "Give the ring more memory: --ring.",
            "Cover less time in each dump: a shorter --before and --after.",
            "Allow fewer dumps at once: --dumps-max. Hits beyond that start none.",
            "Keep less in each dump: a narrower --dump.",
        ];
        found.push(Finding::loss("ring_pinned", Stage::Ring, Sureness::Certain, pinned, cause, &remedies));
    }
    for (reason, what, remedy) in [
        (
            "link_types",
            "a worker received packets of more link types than it has lanes for",
            "Capture fewer kinds of interfaces in one run.",
        ),
        (
            "interfaces",
            "the run saw more interfaces than it can number",
            "Restart the run, or capture fewer interfaces: a run uses each number once.",
        ),
    ] {
        let packets = facts.dropped(reason);
        if packets > 0 {
            found.push(Finding::loss(
                reason,
                Stage::Ring,
                Sureness::Certain,
                packets,
                what.to_string(),
                &[remedy],
            ));
        }
    }
}
