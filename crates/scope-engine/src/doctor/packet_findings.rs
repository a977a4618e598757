//! Findings about packets that were lost on their way into the ring, stage by stage.

use super::facts::{Facts, NicFacts};
use super::findings::{Finding, Stage, Sureness};
use scope_source::printable::shell_word;

/// More triggers than this are many for one worker.
const TRIGGERS_MANY: u64 = 8;
/// A worker's part of a second from which its processor is the limit for certain.
const BUSY_CERTAIN: f64 = 0.95;

pub(super) fn add(facts: &Facts, found: &mut Vec<Finding>) {
    facts.nics.iter().for_each(|nic| card(facts, nic, found));
    kernel_queue(facts, found);
    kernel_ring(facts, found);
    ring(facts, found);
}

/// What the card says that it lost. Drivers fold the same loss into several counters, so the largest is taken, not the sum.
fn card(facts: &Facts, nic: &NicFacts, found: &mut Vec<Finding>) {
    let name = &nic.interface;
    let no_room = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"].map(|counter| nic.count(counter)).into_iter().max();
    let no_room = no_room.unwrap_or(0);
    let larger = nic
        .remedy("nic_ring")
        .map_or(format!("a larger receive ring, if it can have one: ethtool -g {}", shell_word(name)), String::from);
    let remedies = [
        larger.as_str(),
        "keep capture's workers off the processors that serve the card's interrupts (cpus=)",
        "more time per round for the kernel: sysctl -w net.core.netdev_budget=600",
    ];
    if no_room > 0 {
        let cause = format!("{name} had no room for packets: the kernel didn't fetch them in time");
        found.push(Finding::loss("nic_no_room", Stage::Nic, Sureness::Certain, no_room, cause, &remedies));
    }
    let damaged = nic.count("rx_crc_errors").max(nic.count("rx_length_errors"));
    if damaged > 0 {
        let cause = format!("packets came damaged to {name}: the card threw them away");
        let remedies = ["look at cable, optics and the peer's settings"];
        found.push(Finding::loss("damaged", Stage::Nic, Sureness::Certain, damaged, cause, &remedies));
    }
    let of_driver = nic.driver.iter().max_by_key(|(_, count)| **count).filter(|(_, count)| **count > 0);
    let dropped = nic.count("rx_dropped").saturating_sub(no_room);
    match of_driver {
        Some((counter, &packets)) if no_room == 0 => {
            let cause = format!("the driver of {name} counts lost packets ({counter})");
            found.push(Finding::loss("driver_drops", Stage::Nic, Sureness::Likely, packets.max(dropped), cause, &remedies));
        }
        _ if dropped > 0 => found.push(dropped_behind_the_card(facts, nic, dropped, &larger)),
        _ => {}
    }
}

/// `rx_dropped` counts what a driver had no memory for, and also what capture got and nobody else on this host wanted. Where capture
/// got every packet that the card received, it is taken for the latter.
fn dropped_behind_the_card(facts: &Facts, nic: &NicFacts, dropped: u64, larger: &str) -> Finding {
    let name = &nic.interface;
    let of_nic = facts.captures.iter().filter(|capture| capture.interface == *name);
    let offered: u64 =
        of_nic.filter_map(|capture| facts.sources.get(&capture.source)).map(|source| source.offered).fold(0, u64::saturating_add);
    let may_join = nic.altered.joined > 0 || nic.remedy("joined").is_some();
    let all_seen = offered >= nic.count("rx_packets");
    let cause = format!(
        "{name} counts {dropped} dropped packets (rx_dropped): {}",
        match (all_seen, may_join) {
            (true, _) => "capture got all that it received, so most likely nobody else wanted them",
            (false, true) => "no memory, or nobody who wanted them; joined packets hide which",
            (false, false) => "no memory, or nobody who wanted them",
        }
    );
    let memory = "more memory for the kernel to take packets in: sysctl -w vm.min_free_kbytes=131072";
    let finding = Finding::note("rx_dropped", Stage::Nic, Sureness::Possible, cause, &[larger, memory]);
    let loses = !all_seen && !may_join;
    Finding { loses, lost_max: if loses { dropped } else { 0 }, ..finding }
}

/// The kernel's queue counts for the whole machine, so other interfaces may be behind it.
fn kernel_queue(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(softnet) = facts.softnet.filter(|softnet| softnet.dropped > 0) else { return };
    let alone = facts.nics.len() == 1;
    let cause = "the kernel's queue between cards and sockets was full (softnet_stat; all interfaces together)".to_string();
    let remedies = [
        "a longer queue: sysctl -w net.core.netdev_max_backlog=10000",
        "spread the card over more processors: more queues (ethtool -L), or RPS (rps_cpus)",
    ];
    let sureness = if alone { Sureness::Likely } else { Sureness::Possible };
    found.push(Finding::loss("backlog", Stage::KernelQueue, sureness, softnet.dropped, cause, &remedies));
}

/// Packets that the kernel's capture ring had no room for. The count is exact; the reason is what went on meanwhile.
fn kernel_ring(facts: &Facts, found: &mut Vec<Finding>) {
    let all = facts.dropped("kernel");
    let kernel = &facts.kernel;
    let interpreted = facts.interpreter_asked || facts.interpreted() > 0;
    let few_workers = facts.captures.iter().map(|capture| capture.workers).max().unwrap_or(1) < 2;
    if kernel.busy > 0 {
        let many = format!("fewer or simpler triggers: {} are armed, and each is asked for every packet", facts.triggers);
        let mut remedies = Vec::new();
        if interpreted {
            remedies.push("filters as machine code: they run in the interpreter now");
        }
        if facts.triggers > TRIGGERS_MANY {
            remedies.push(&many);
        }
        remedies.push(if few_workers {
            "more workers: workers=2 in the source"
        } else {
            "more workers, each on a processor of its own (cpus=)"
        });
        if facts.triggers > 0 && facts.triggers <= TRIGGERS_MANY {
            remedies.push("simpler triggers");
        }
        remedies.push("keep less of each packet: snaplen=");
        let sureness = if facts.busy_max >= BUSY_CERTAIN { Sureness::Certain } else { Sureness::Likely };
        let cause = format!(
            "a worker ran {:.0} % of the time and could not keep up: the kernel's capture ring filled up",
            facts.busy_max * 100.0
        );
        found.push(Finding::loss("worker_busy", Stage::Worker, sureness, kernel.busy, cause, &remedies));
    }
    if kernel.starved > 0 {
        let cause = "a worker was ready to run while others had its processor".to_string();
        let remedies =
            ["a processor of its own for each worker: cpus= in the source", "end or move what else runs here", "nice -n -10"];
        found.push(Finding::loss("worker_starved", Stage::Worker, Sureness::Likely, kernel.starved, cause, &remedies));
    }
    if kernel.stalled > 0 {
        let cause = format!(
            "the whole process stood still for {:.1} s: stopped by a signal, swapped out, or its machine was held",
            facts.stalled_s
        );
        let remedies = ["find who stops it (a debugger, a freezer, a hypervisor)", "--mlock", "a larger capture ring: blocks="];
        found.push(Finding::loss("process_stalled", Stage::KernelRing, Sureness::Likely, kernel.stalled, cause, &remedies));
    }
    let explained = kernel.busy.saturating_add(kernel.starved).saturating_add(kernel.stalled);
    let rest = all.saturating_sub(explained);
    if rest > 0 {
        let cause = "the kernel's capture ring was full: a burst, or a worker that was held up for a moment".to_string();
        let remedies = [
            "a larger capture ring: blocks= in the source",
            "a processor of its own for each worker: cpus=",
            "more workers: workers=",
            "where packets are few, a longer timeout=: a block is handed over when its time is up, however empty it is",
        ];
        found.push(Finding::loss("kernel_ring", Stage::KernelRing, Sureness::Possible, rest, cause, &remedies));
    }
}

/// Packets that a worker had and couldn't store.
fn ring(facts: &Facts, found: &mut Vec<Finding>) {
    let pinned = facts.dropped("ring_pinned");
    if pinned > 0 && facts.long_holds > 0 {
        let cause = "dumps held the ring and didn't get on: the disk didn't take what they wrote".to_string();
        let remedies = [
            "a faster disk for dumps: --out",
            "narrower --dump templates",
            "fewer dumps at once: --dumps-max",
            "a larger --ring",
        ];
        found.push(Finding::loss("dump_disk_slow", Stage::DumpDisk, Sureness::Likely, pinned, cause, &remedies));
    } else if pinned > 0 {
        let cause = "everything in the ring was held by dumps: there was no segment to write into".to_string();
        let remedies = [
            "a larger --ring",
            "a shorter --before and --after",
            "fewer dumps at once: --dumps-max",
            "narrower --dump templates",
        ];
        found.push(Finding::loss("ring_pinned", Stage::Ring, Sureness::Certain, pinned, cause, &remedies));
    }
    for (reason, what, remedy) in [
        ("link_types", "one worker met more link types than it has lanes for", "fewer kinds of interfaces per run"),
        ("interfaces", "the run met more interfaces than it can number", "restart the run, or capture fewer interfaces"),
    ] {
        let packets = facts.dropped(reason);
        if packets > 0 {
            found.push(Finding::loss(reason, Stage::Ring, Sureness::Certain, packets, what.to_string(), &[remedy]));
        }
    }
}
