//! Facts that several events, and the summary, have in common: amounts, sources, cards, dumps, all totals of
//! a run.

use crate::fact::{Counters, Flat, Rare};
use crate::facts;
use std::collections::BTreeMap;

/// Packets by a word for each: a reason of drops, a verdict.
pub type ByWord = BTreeMap<String, u64>;

facts! {
    /// Packets and their bytes.
    Amount {
        /// packets
        packets: u64,
        /// captured bytes
        bytes: u64,
    }

    /// One source's side of packet accounting, of one worker.
    SourceCounts {
        /// the source, as typed
        source: String,
        /// its worker's number
        worker: u64,
        /// its figures
        counts: Flat<Offered>,
    }

    /// The same of one live interface, all its workers and lives together.
    InterfaceCounts {
        /// the name that it is captured under
        interface: String,
        /// its present name
        called: String,
        /// the source, as typed
        source: String,
        /// its figures
        counts: Flat<Offered>,
    }

    /// What was offered to a source, and what became of it: offered is the sum of the others.
    Offered {
        /// packets that it was offered
        offered: u64,
        /// packets that its workers received
        received: u64,
        /// packets that the kernel dropped
        kernel_dropped: u64,
        /// packets in damaged records of a file
        unreadable: u64,
        /// packets that wait in the kernel's capture ring
        waiting: u64,
    }

    /// One network card, since the run began.
    Nic {
        /// the kernel's counters of the interface, by their names
        counters: Counters,
        /// the driver's own counters that show losses
        driver: ByWord,
        /// packets that aren't as they are on the wire
        altered: Altered,
        /// the interface; null: it is not there
        link: Option<Link>,
        /// what was noted of it
        notes: Vec<Note>,
    }

    /// Packets that aren't as they are on the wire, by why.
    Altered {
        /// joined by card or kernel (GRO, LRO)
        joined: u64,
        /// still to be split by the card (TSO, GSO)
        split: u64,
        /// joined or still to be split: the direction is unknown
        long: u64,
        /// checksum still to be filled in
        unchecked: u64,
        /// of these, sent by this host
        unchecked_sent: u64,
        /// truncated to the snap length
        sliced: u64,
        /// truncated by the kernel: too long for a block of its ring
        cut_by_block: u64,
        /// truncated to the most bytes of a packet that are kept
        cut_by_bound: u64,
    }

    /// The state of an interface.
    Link {
        /// switched on
        up: Option<bool>,
        /// something is at the other end
        running: Option<bool>,
        /// its MTU, bytes
        mtu: Option<u64>,
    }

    /// A card's setting that makes capture lose or change packets.
    Note {
        /// a word for it
        kind: String,
        /// what is lost or changed
        what: String,
        /// the command that fixes it
        remedy: String,
    }

    /// The kernel's queue between cards and sockets, of the whole machine.
    Softnet {
        /// packets dropped because it was full
        dropped: u64,
        /// times that the kernel left it for lack of time
        squeezed: u64,
    }

    /// The state of the host's clock.
    Clock {
        /// whether a time service synchronises it
        synchronised: bool,
        /// the estimated error, microseconds
        estimated_error_us: Rare<u64>,
        /// the largest error that is possible, microseconds
        error_max_us: Rare<u64>,
    }

    /// A span of time.
    Span {
        /// its begin
        from: String,
        /// its end
        to: String,
    }

    /// What a dump lacks for one reason.
    Gap {
        /// its span
        span: Flat<Span>,
        /// why: a word of a closed list
        reason: String,
        /// packets that are missing, at least
        lost_min: u64,
        /// packets that are missing, at most; null: nobody can know
        lost_max: Option<u64>,
    }

    /// What an interface had counted at both ends of a dump's window.
    CounterSpan {
        /// the interface
        interface: String,
        /// at the window's begin
        begin: CounterReading,
        /// at its end
        end: CounterReading,
    }

    /// Counters at one moment.
    CounterReading {
        /// when they were read
        at: String,
        /// the counters, by the kernel's names
        counts: Counters,
    }

    /// How long a dump waited, seconds.
    Waited {
        /// once at most, for its disk or the reader of its pipe
        longest_s: f64,
        /// in all, for the same
        total_s: f64,
        /// while it held all that it may of the ring
        pins_full_s: f64,
        /// to close its files
        closing_s: f64,
    }

    /// One finished dump.
    Dump {
        /// its number in the run
        id: u64,
        /// the trigger that fired
        trigger: String,
        /// when it fired
        time: String,
        /// the template as it was filled; empty: everything
        filter: String,
        /// there: the script that selected beyond it
        script: Rare<String>,
        /// there: why that script said nothing more, so that from there on everything was kept
        gave_up: Rare<String>,
        /// the window that was asked for
        asked: Span,
        /// the part of it in which the run listened
        window: Flat<Span>,
        /// what it lacks, oldest first, at most 64
        gaps: Vec<Gap>,
        /// gaps beyond that, joined with others
        gaps_folded: u64,
        /// packets in it
        packets: u64,
        /// bytes of its files
        bytes: u64,
        /// its packets that are truncated although no snap length asked for it
        cut: u64,
        /// packets that are missing, at least
        lost_min: u64,
        /// packets that are missing, at most; null: nobody can know
        lost_max: Option<u64>,
        /// from the first gap's begin to the last one's end; null: no gap
        missing: Option<Span>,
        /// whether every source listened for all of the window, and nothing was lost
        complete: bool,
        /// its first file
        path: Option<String>,
        /// its files
        paths: Vec<String>,
        /// the host's clock when it was finished; null: unknown
        clock: Option<Clock>,
        /// where the packets' times come from
        times: Vec<String>,
        /// what interfaces had counted
        counters: Vec<CounterSpan>,
        /// its hits
        hits: u64,
        /// how long it waited; logs of older versions lack it
        waited: Option<Waited>,
        /// why writing failed; null: it did not
        error: Option<String>,
    }

    /// Sums over all dumps of a run.
    DumpTotals {
        /// dumps
        dumps: u64,
        /// of these, incomplete
        incomplete: u64,
        /// of these, for a loss
        failed: u64,
        /// packets in them
        packets: u64,
        /// bytes of their files
        bytes: u64,
        /// packets that are missing, at least
        lost_min: u64,
        /// packets that are missing, at most; null: nobody can know
        lost_max: Option<u64>,
    }

    /// What dumps take of their disk.
    DumpSpace {
        /// bytes that they take
        used: u64,
        /// bytes that they may take; null: any number
        budget: Option<u64>,
        /// bytes free on the file system
        free: u64,
        /// bytes that must stay free; null: no bound
        min_free: Option<u64>,
        /// the same, percent; null: no bound
        min_free_percent: Option<f64>,
        /// whether new dumps are refused
        full: bool,
        /// dumps that were deleted to make room
        deleted: u64,
    }

    /// Commands after dumps.
    ExecCounts {
        /// started
        started: u64,
        /// of these, failed
        failed: u64,
        /// of these, ended for taking too long
        timed_out: u64,
        /// not started: too many were waiting, or the run was over
        exec_skipped: u64,
    }

    /// One script of one trigger, all its threads together. published = packets + missed + behind for its threads, where
    /// it has one.
    Script {
        /// the trigger's name
        name: String,
        /// its file, as written
        file: String,
        /// `trigger`: it fires; `dump`: it says what dumps keep
        kind: String,
        /// packets that it was run for
        packets: u64,
        /// the same of the last second
        packets_per_s: f64,
        /// packets that were recycled before it came to them
        missed: u64,
        /// packets that it still has to come to
        behind: u64,
        /// how often it fired; of a dump script, packets that it kept
        hits: u64,
        /// calls that failed
        errors: u64,
        /// ticks
        ticks: u64,
        /// bytes of its own memory in use
        memory_bytes: u64,
        /// flows that its tracker keeps
        flows: u64,
        /// flows that this gave up for others
        flows_evicted: u64,
        /// time of a processor that it took, ns
        cpu_ns: u64,
        /// the same of the last second, parts of one processor
        cpu: f64,
        /// why it is run no more; null: it is run
        disabled: Option<String>,
        /// the traceback of its first error; null: none failed
        report: Option<String>,
    }

    /// A program that reads packets of a group. given = read + missed + behind.
    Member {
        /// its number in the group, which another one gets when it is gone
        number: u64,
        /// as it calls itself
        name: String,
        /// its process, when it connected; 0: of another name space
        pid: i64,
        /// its user
        uid: u64,
        /// the name of its user where the run knows it, else the number
        user: String,
        /// the class of packets that it wants; empty: those without one
        class: String,
        /// its share against that of others, 1 to 100
        weight: u64,
        /// packets that fell to it; of the ring itself, published since it began
        given: u64,
        /// packets that it has read
        read: u64,
        /// packets that found no room in its memory; of the ring itself, recycled before it had read them
        missed: u64,
        /// packets that it has still to read
        behind: u64,
        /// whether it waits for packets, as far as it says
        waits: bool,
        /// whether it stands still, so that others have its flows
        stuck: bool,
        /// so much of the ring may be held for it, bytes
        hold_bytes: u64,
        /// so much of the ring is held for it, bytes
        held_bytes: u64,
    }

    /// Members of a group that are gone, as one.
    Gone {
        /// how many
        members: u64,
        /// packets that fell to them
        given: u64,
        /// packets that they had read
        read: u64,
        /// packets that found no room
        missed: u64,
        /// packets that they had still to read
        behind: u64,
    }

    /// A forward: a member that sends. given = read + missed + behind, read = sent + all refused.
    Forward {
        /// its name as a member
        name: String,
        /// the interface that it sends out of
        interface: String,
        /// packets that fell to it
        given: u64,
        /// packets that it has sent, or that were refused
        read: u64,
        /// packets that found no room in its memory
        missed: u64,
        /// packets that it has still to send
        behind: u64,
        /// packets that the system took
        sent: u64,
        /// bytes of these, link headers and padding included
        bytes: u64,
        /// packets sent with zeros in the place of bytes that were not captured
        padded: u64,
        /// packets that were not sent, by reason
        refused: ByWord,
    }

    /// A group of programs. published = idle + seen + missed + behind, seen = filtered + all dropped + unclaimed + taken,
    /// taken + doubled + copied_in = all that its members were given. Of the ring itself there is but the first figure.
    Group {
        /// its name: `ring` is the ring itself
        name: String,
        /// the filter that says what it takes; empty: all
        filter: Rare<String>,
        /// the interface whose packets it takes; empty: any
        interface: Rare<String>,
        /// how that is shared out
        steer: Rare<String>,
        /// packets that were recorded since the run began
        published: u64,
        /// of these, those that came while it had no member
        idle: Rare<u64>,
        /// packets that were looked at for it
        seen: Rare<u64>,
        /// packets that were recycled before they were
        missed: Rare<u64>,
        /// packets that are still to be looked at
        behind: Rare<u64>,
        /// packets that its filter does not match, or that came by another interface
        filtered: Rare<u64>,
        /// packets that a rule took away, by rule
        dropped: Rare<ByWord>,
        /// packets of a class that no member wants
        unclaimed: Rare<u64>,
        /// packets that were given to a member
        taken: Rare<u64>,
        /// packets that were given to further ones
        doubled: Rare<u64>,
        /// packets that rules of other groups gave to it
        copied_in: Rare<u64>,
        /// members at once at most
        members_max: u64,
        /// memory of each, bytes; 0: they read the ring
        memory_bytes: u64,
        /// who reads
        members: Vec<Member>,
        /// of these, those of the run itself, which send; also when they have ended. Logs of older versions lack it
        forwards: Vec<Forward>,
        /// who did
        gone: Gone,
    }

    /// A rule of a source, which acts in front of the ring.
    SourceRule {
        /// the source, as it was given
        source: String,
        /// its name
        rule: String,
        /// packets that it dropped: they are among `filtered`
        dropped: u64,
        /// packets that it truncated: they are among `cut`
        cut: u64,
    }

    /// Traffic statistics of a run.
    Stats {
        /// the database, or the folder of databases, as it was given; null: there is none
        db: Option<String>,
        /// the collector of records; null: there is none
        ipfix: Option<String>,
        /// the length of its intervals, in ns
        interval_ns: i64,
        /// rows that are in the database
        rows: u64,
        /// rows that wait to be written
        waiting: u64,
        /// the end of the last interval that is written, in ns since the epoch; 0: none is
        written_ns: i64,
        /// how far that is behind the clock of capture, in ns
        lag_ns: i64,
        /// flows that are going on
        flows: u64,
        /// flows that may be going on at once
        flows_max: u64,
        /// flows whose place was needed while they were going on
        evicted: u64,
        /// rows of traffic that were folded into sums
        folded_rows: u64,
        /// records of flows that were folded into sums
        folded_flows: u64,
        /// rows that couldn't be written in time: they are folded into sums, or, where statistics ended, lost
        unwritten: u64,
        /// packets that came when their interval was written: they were added to its rows
        late: u64,
        /// damaged files that were renamed, so that new ones could be begun
        moved_aside: u64,
        /// what all its files take, in bytes
        bytes: u64,
        /// of these, the logs of transactions
        wal_bytes: u64,
        /// what is free on its disk, in bytes; null: unknown
        disk_free: Option<u64>,
        /// what that disk has, in bytes; null: unknown
        disk_bytes: Option<u64>,
        /// records that were sent to the collector
        sent: u64,
        /// records that were refused there, or couldn't be sent
        unsent: u64,
        /// why nothing is written just now; null: it is
        failing: Option<String>,
        /// why nothing is written any more; null: it is
        ended: Option<String>,
    }

    /// One volume of the store. Over all volumes: published = stored + filtered + missed + behind.
    Volume {
        /// its folder
        path: String,
        /// what is on its disk for good, of this run
        stored: Amount,
        /// what `--store-filter` and `--store-snap` left out: packets, and their bytes with those cut off
        /// others
        filtered: Amount,
        /// what the ring recycled before it was written
        missed: Amount,
        /// what is still to be written
        behind: Amount,
        /// what was deleted to keep its bounds, in this run, whichever run had stored it
        deleted: Amount,
        /// how long ago the oldest packet that is still to be written was captured, ms
        behind_ms: u64,
        /// captured bytes that it stored per second since the last look; in `end` those of the whole run
        bytes_per_s: u64,
        /// how far it reaches back: at this rate, if it has a budget and is written, else (so in `end`) with what it
        /// has, s; null: it is empty
        reaches_back_s: Option<u64>,
        /// bytes that it may take; null: no bound but free space
        budget: Option<u64>,
        /// bytes that it takes, reserves included
        used: u64,
        /// time of the oldest packet in it, of any run; null: there is none
        oldest: Option<String>,
        /// files in it
        files: u64,
        /// `writing`, `failing`, `stalled` (the disk does not answer), `held` (holds leave no room) or `full`
        state: String,
        /// how it writes, and if it is not the fastest way, why
        way: String,
        /// why it fails; null: it does not
        error: Option<String>,
        /// with --store-chain: the head of the chain; null: no file is in it yet
        chain: Option<String>,
        /// first and last time of what it missed; null: nothing, or unknown
        missed_span: Option<Span>,
        /// files that were left growing, by runs that died or by a disk that failed; null: none was
        recovery: Option<Recovery>,
    }

    /// What became of files of a volume that were left growing.
    Recovery {
        /// files in all
        files: u64,
        /// files that are done, whatever became of them
        files_done: u64,
        /// bytes of all of them
        bytes: u64,
        /// bytes that were looked at
        bytes_done: u64,
        /// files that are complete now
        closed: u64,
        /// files of which nothing was flushed: they were removed
        removed: u64,
        /// segments that are kept
        segments: u64,
        /// packets that are kept
        packets: u64,
        /// bytes of their blocks
        block_bytes: u64,
        /// packets known to be cut off
        cut_off: u64,
        /// segments cut off that do not say how many packets they had
        cut_off_unknown: u64,
        /// how long it took, seconds
        took_s: f64,
    }

    /// Everything that a run counted, but its dumps one by one.
    Totals {
        /// what workers received
        received: Amount,
        /// what went into the ring
        stored: Amount,
        /// what prefilters and rules of sources refused
        filtered: Amount,
        /// packets dropped, by reason
        dropped: ByWord,
        /// hits by trigger and verdict
        hits: BTreeMap<String, ByWord>,
        /// hits that were not evaluated one by one
        hits_rationed: u64,
        /// dumps that the list of the summary omits
        dumps_left_out: u64,
        /// sums over all dumps
        dump_totals: Option<DumpTotals>,
        /// files of `--ring-out`
        ring_out: Vec<String>,
        /// which memory the ring had
        memory: String,
        /// packets in damaged records of files
        unreadable: u64,
        /// packets older than one before them in their source
        stepped_back: u64,
        /// packets whose time no other bears out
        strays: u64,
        /// how often capture time was set back
        set_back: u64,
        /// packets older than their worker's clock less its grace
        late: u64,
        /// figures of each source and worker
        sources: Vec<SourceCounts>,
        /// figures of each live interface
        interfaces: Vec<InterfaceCounts>,
        /// network cards, by interface
        nic: BTreeMap<String, Nic>,
        /// received = stored + filtered + dropped in every worker
        adds_up: bool,
        /// packets with a time that cannot be stored
        time_clamped: u64,
        /// comments, names and secrets of capture files that dumps omit
        annexes_left_out: u64,
        /// packets truncated although no snap length asked for it
        cut: u64,
        /// of these, longer than a segment keeps; logs of older versions have `cut` alone
        cut_by_segment: Option<u64>,
        /// the volumes of the store, if there are any
        stores: Vec<Volume>,
        /// the scripts, if there are any; logs of older versions lack it
        scripts: Vec<Script>,
        /// groups of programs that share packets, if there are any; logs of older versions lack it
        groups: Vec<Group>,
        /// rules of sources, if there are any; logs of older versions lack it
        source_rules: Vec<SourceRule>,
        /// traffic statistics, else null; logs of older versions lack it
        stats: Option<Stats>,
        /// what dumps take, where that is bounded, else null
        dump_space: Option<DumpSpace>,
        /// commands after dumps, else null
        exec: Option<ExecCounts>,
        /// warnings, in plain words
        warnings: Vec<String>,
        /// failures, in plain words
        failures: Vec<String>,
    }

    /// A finished run: the object of `--summary json`.
    Summary {
        /// everything that it counted
        totals: Flat<Totals>,
        /// its dumps, the newest 1000
        dumps: Vec<Dump>,
    }
}
