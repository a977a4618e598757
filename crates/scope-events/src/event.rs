//! Every event of a run's log: one variant for each, its facts, its name.

use crate::counts::{
    Amount, ByWord, Clock, Dump, Group, Nic, Recovery, Script, Softnet, SourceCounts, SourceRule, Span,
    Stats, Totals, Volume,
};
use crate::fact::{Fact, Flat, Key, Rare};
use crate::facts;
use serde_json::Value;
use std::collections::BTreeMap;

facts! {
    /// A run begins.
    Start {
        /// version of the program
        version: String,
        /// the host's name
        host: String,
        /// its kernel
        kernel: String,
        /// its clock; null: unknown
        clock: Option<Clock>,
        /// sources, as typed
        sources: Vec<String>,
        /// bytes of the ring
        ring_bytes: u64,
        /// bytes of a segment
        segment_bytes: u64,
        /// which memory the ring has, in plain words
        memory: String,
        /// its pages: `hugetlb`, `transparent` or `normal`; logs of older versions lack it
        pages: String,
        /// rights that are left; null: none were given up
        rights: Option<String>,
        /// triggers that are armed
        triggers: Vec<Armed>,
        /// the settings, as TOML
        config: String,
        /// how interfaces are captured, a line each
        capture: Vec<String>,
        /// notes of the start
        notes: Vec<String>,
        /// true where this file goes on from one that was moved
        continues: Rare<bool>,
        /// there: when the run's first line was written
        began: Rare<String>,
    }

    /// A trigger that is armed.
    Armed {
        /// its name
        name: String,
        /// its filter; empty: every packet; null: its condition is no filter
        filter: Option<String>,
        /// its condition, if it is another one; of a script its file
        condition: Rare<String>,
        /// there: what has to hold for a packet's flow as well, for the first time
        when: Rare<String>,
        /// its template of a dump's filter; null: none
        dump: Option<String>,
        /// there: the script that says instead what a dump keeps
        dump_script: Rare<String>,
        /// what is kept from before a hit, ns
        before_ns: i64,
        /// what is kept from after it, ns
        after_ns: i64,
        /// how long nothing fires after a fire, ns
        holdoff_ns: i64,
        /// whether it fires once only
        single: bool,
    }

    /// The machine and the process; once, behind `start`.
    Machine {
        /// the process
        pid: Option<u64>,
        /// when it began, in ticks of the machine
        pid_began: Option<u64>,
        /// where it lives
        home: Home,
        /// whether it captures live
        live: bool,
        /// its live sources
        captures: Vec<Capture>,
        /// dumps that may be open at once
        dumps_max: Option<u64>,
        /// whether filters run in the interpreter because the settings say so
        interpreter: bool,
        /// seconds between two `status`
        status_every_s: f64,
        /// processors that it may use
        processors: u64,
        /// its limits
        limits: Limits,
        /// network cards, by interface
        nic: BTreeMap<String, Nic>,
    }

    /// Where a process lives.
    Home {
        /// the machine's name
        host: Option<String>,
        /// one start of one machine
        boot: Option<String>,
        /// the space of process numbers
        processes: Option<String>,
    }

    /// A live source, as configured.
    Capture {
        /// as typed
        source: String,
        /// its interface
        interface: String,
        /// its workers
        workers: u64,
        /// bytes kept of each packet; null: all
        snap_len: Option<u64>,
        /// whether packets for other hosts are captured
        promiscuous: Option<bool>,
        /// processors that its workers are pinned to; null: any
        cpus: Option<Vec<u64>>,
    }

    /// Limits of the process.
    Limits {
        /// bytes to which a file may grow; null: any number
        file_size: Option<u64>,
        /// threads that its control groups allow; null: any number
        threads: Option<u64>,
    }

    /// What went on in the last second.
    Meanwhile {
        /// its length, seconds
        seconds: f64,
        /// parts of it that each worker used or waited for; null: unknown
        workers: Vec<Option<WorkerTime>>,
        /// seconds that control groups kept the process waiting; null: unknown
        throttled_s: Option<f64>,
        /// whether the process went on after a stop
        resumed: bool,
        /// segments that are held for dumps
        pinned: u64,
        /// segments of the ring
        segments: u64,
        /// dumps that are open
        dumps_open: u64,
        /// longest that one of them has waited for its disk, seconds
        disk_wait_s: f64,
    }

    /// A worker's time.
    WorkerTime {
        /// part of the second that it ran
        busy: f64,
        /// part of the second that it waited for a processor
        starved: f64,
    }

    /// What control groups took since the run began.
    Cgroup {
        /// periods in which their time was used up
        throttled_periods: u64,
        /// seconds that threads waited for that
        throttled_s: f64,
    }

    /// How the run goes; after 1 s (files: 10 s), then each 10 s, or `--status-every`.
    Status {
        /// since its begin, seconds
        elapsed_s: f64,
        /// packets of the last second
        packets_per_s: f64,
        /// what workers received
        received: Amount,
        /// what went into the ring
        stored: Amount,
        /// the signals over the last second that is over, by name; null: it has no value; logs of older versions lack it
        signals: BTreeMap<String, Option<f64>>,
        /// what prefilters and rules of sources refused
        filtered: Amount,
        /// packets dropped, by reason
        dropped: ByWord,
        /// packets truncated although no snap length asked for it
        cut: u64,
        /// of these, longer than a segment keeps; logs of older versions have `cut` alone
        cut_by_segment: Option<u64>,
        /// packets older than their worker's clock less its grace
        late: u64,
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
        /// figures of each source and worker
        sources: Vec<SourceCounts>,
        /// hits by trigger and verdict
        hits: BTreeMap<String, ByWord>,
        /// hits that were not evaluated one by one
        hits_rationed: u64,
        /// how far each worker's clock is behind; null: its times are not of now
        lag_ns: Vec<Option<i64>>,
        /// capture time in the ring, ns
        depth_ns: i64,
        /// dumps that are finished
        dumps_done: u64,
        /// control groups; null: unknown
        cgroup: Option<Cgroup>,
        /// the kernel's queue between cards and sockets; null: unknown
        softnet: Option<Softnet>,
        /// network cards, by interface
        nic: BTreeMap<String, Nic>,
        /// the hash of the newest line of `audit.jsonl`; omitted: none was written
        audit: Rare<String>,
        /// the last second
        meanwhile: Flat<Meanwhile>,
    }

    /// Packets were dropped; at most one a second.
    Loss {
        /// packets since the last such line, by reason
        packets: ByWord,
        /// that second
        meanwhile: Flat<Meanwhile>,
    }

    /// The process goes on after a signal had stopped it.
    Resumed {
        /// how long it stood still, at most
        seconds: f64,
    }

    /// A script printed a line.
    Printed {
        /// its trigger
        trigger: String,
        /// its file
        file: String,
        /// the line
        line: String,
    }

    /// Advice on a network card.
    CardNote {
        /// a word for it
        kind: String,
        /// what is lost or changed
        text: String,
        /// the command that fixes it
        remedy: String,
    }

    /// A hit that started no dump; at most 100 a second.
    Hit {
        /// the trigger
        trigger: String,
        /// the packet's time
        time: String,
        /// what became of it
        verdict: String,
        /// more, where there is more to say
        detail: Rare<String>,
    }

    /// Hits beyond those.
    Hits {
        /// the trigger
        trigger: String,
        /// how many, by verdict
        not_listed: ByWord,
    }

    /// A command has ended, or was not started.
    Exec {
        /// the dump that it followed
        dump: u64,
        /// whether it was not started: too many were waiting, or the run was over
        skipped: bool,
        /// its exit code
        code: Option<i64>,
        /// the signal that ended it
        signal: Option<i64>,
        /// why it could not be started
        error: Option<String>,
        /// whether it was ended for taking too long
        timed_out: bool,
        /// how long it took, seconds
        took_s: Option<f64>,
        /// what it wrote, at most 4 KiB
        output: Option<String>,
    }

    /// Something is wrong until it is cleared.
    Alarm {
        /// `dump_space` or `dump_folder`
        alarm: String,
        /// `raised` or `cleared`
        state: String,
        /// why, or which folder
        why: Option<String>,
        /// of `dump_space`: bytes that dumps take
        used: Rare<u64>,
        /// of `dump_space`: bytes free on the file system
        free: Rare<u64>,
    }

    /// Dumps were deleted to make room.
    Deleted {
        /// names of their files
        files: Vec<String>,
        /// bytes that they took
        bytes: u64,
        /// the flag that allowed it
        why: String,
    }

    /// A file of the store is complete, or was closed after a run that died.
    StoreFile {
        /// the volume's folder
        volume: String,
        /// its name
        file: String,
        /// the span of its packets
        span: Flat<Span>,
        /// packets in it
        packets: u64,
        /// its bytes
        bytes: u64,
        /// its run had died: packets known to be cut off
        cut_off: Rare<u64>,
        /// with --store-chain: its hash, which is the head of the chain
        hash: Rare<String>,
    }

    /// A file of the store was deleted to keep a bound.
    StoreDeleted {
        /// the volume's folder
        volume: String,
        /// its name
        file: String,
        /// the span of its packets
        span: Flat<Span>,
        /// packets in it
        packets: u64,
        /// bytes that it took
        bytes: u64,
        /// a hash of what it held: of the chain, or of its segments' hashes
        hash: String,
        /// the bound that it stood against
        why: String,
    }

    /// A volume's state has changed.
    StoreState {
        /// the volume's folder
        volume: String,
        /// `writing`, `failing`, `stalled` (the disk does not answer), `held` (holds leave no room) or `full`
        state: String,
        /// the same, in plain words
        text: String,
    }

    /// Files of a volume that were left growing are being closed.
    StoreRecovery {
        /// the volume's folder
        volume: String,
        /// whether all of them are done
        over: bool,
        /// how far it is
        recovery: Flat<Recovery>,
    }

    /// Packets were recycled before the store could write them.
    StoreMissed {
        /// the volume's folder
        volume: String,
        /// packets
        packets: u64,
        /// their captured bytes
        bytes: u64,
        /// their span; null: unknown
        span: Option<Span>,
    }

    /// A captured interface has changed.
    Interface {
        /// the name that it is captured under
        interface: String,
        /// what became of it: a word of a closed list
        state: String,
        /// the same, in plain words
        text: String,
        /// of `mtu`: bytes
        mtu: Rare<u64>,
        /// of `spare`: sockets that are left
        sockets: Rare<u64>,
        /// of `renamed`: its name before
        from: Rare<String>,
        /// of `renamed`: its name now
        to: Rare<String>,
    }

    /// The system's clock, or a card's, was set.
    ClockStep {
        /// the time since
        to: String,
        /// by how much, ns
        by_ns: i64,
        /// `system` or `card`
        of: String,
    }

    /// A dump makes no progress.
    LongHold {
        /// its number
        dump: u64,
        /// how long it has waited for its disk or its pipe, seconds
        waiting_s: Rare<f64>,
        /// segments that it holds without getting on
        segments: Rare<u64>,
    }

    /// A warning.
    Warning {
        /// in plain words
        text: String,
        /// `interpreter`: no machine code could be made of a filter; `swapped`: the system took memory of the
        /// ring; other warnings, and logs of older versions, lack it
        kind: Rare<String>,
    }

    /// The door to the network that the run has begun ended before it.
    DoorEnded {
        /// in plain words
        text: String,
    }

    /// The settings were read again.
    Reload {
        /// whether they are in force
        ok: bool,
        /// why not
        faults: Vec<String>,
        /// settings that have changed, and scripts and sets whose files have: `script FILE`, `set NAME`
        changed: Vec<String>,
        /// what can't change while the run goes
        kept: Vec<String>,
    }

    /// The run has ended: its last line.
    End {
        /// everything that it counted
        totals: Flat<Totals>,
        /// work that dumps shared
        scans: ScanCounts,
        /// what dumps held back in memory
        write_buffers: WriteBuffers,
        /// orders that the run was given
        orders: OrderCounts,
        /// segments for dumps
        pins: Pins,
        /// the hash of the last line of `audit.jsonl`; omitted: none was written
        audit: Rare<String>,
        /// time of the first packet; null: none came
        first: Option<String>,
        /// time of the last packet; null: none came
        last: Option<String>,
    }

    /// Work that dumps shared.
    ScanCounts {
        /// packets scanned once for several dumps
        shared_packets: u64,
        /// segments passed over by their summary
        skipped_segments: u64,
        /// packets written early for lack of room
        early_packets: u64,
    }

    /// What the files of all dumps together held back.
    WriteBuffers {
        /// most bytes
        bytes_most: u64,
        /// writes that were made early for lack of room
        early_writes: u64,
    }

    /// Orders that the run was given.
    OrderCounts {
        /// orders that it accepted
        taken: u64,
        /// orders that it refused because too many were waiting
        busy: u64,
    }

    /// Segments for dumps.
    Pins {
        /// segments that may be held
        segments: u64,
        /// how often a dump found none free
        dumps_without: u64,
    }

    /// A second signal ended the run: its last line.
    EndedAtOnce {
        /// the signal
        why: String,
        /// dumps that were open, which are lost; null: unknown
        dumps_open: Option<u64>,
    }
}

/// Declares the enum, its names, its writer and its reader, in the order of the page.
macro_rules! events {
    ($($(#[doc = $what:literal])+ $name:literal => $variant:ident($facts:ident),)+) => {
        /// One event.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant)] // each is made, written and dropped, or read and dropped: none are kept
        pub enum Event {
            $($(#[doc = $what])+ $variant($facts),)+
        }

        impl Event {
            /// Names of all events, in the order of the page.
            pub const NAMES: &[&str] = &[$($name),+];

            /// Its name in the log.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Event::$variant(_) => $name,)+
                }
            }

            /// Its facts, without what every line has.
            pub(crate) fn write(&self) -> Value {
                match self {
                    $(Event::$variant(facts) => facts.write(),)+
                }
            }

            /// The event called `name` with the facts that are in `line`; `None` where this version knows
            /// none of that name.
            pub(crate) fn read(name: &str, line: &Value) -> Option<Event> {
                match name {
                    $($name => $facts::read(line).map(Event::$variant),)+
                    _ => None,
                }
            }

            /// What the page says of each: its name, its sentence, its keys.
            pub(crate) fn rows() -> Vec<(&'static str, &'static str, Vec<Key>)> {
                vec![$(($name, concat!($($what),+), $facts::keys()),)+]
            }
        }

        $(impl From<$facts> for Event {
            fn from(facts: $facts) -> Event {
                Event::$variant(facts)
            }
        })+
    };
}

/// Facts of the one file of all windows: those of a dump.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Together(pub Dump);

impl Fact for Together {
    fn write(&self) -> Value {
        self.0.write()
    }

    fn read(value: &Value) -> Option<Self> {
        Dump::read(value).map(Together)
    }

    fn schema() -> Value {
        Dump::schema()
    }

    fn keys() -> Vec<Key> {
        Dump::keys()
    }
}

/// `pages` of a ring that has none larger than the least.
pub const NORMAL_PAGES: &str = "normal";

/// Warnings that `doctor` weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningKind {
    /// A filter runs in the interpreter, because no machine code could be made of it.
    Interpreter,
    /// The system has taken memory of the ring.
    Swapped,
}

impl WarningKind {
    fn name(self) -> &'static str {
        match self {
            WarningKind::Interpreter => "interpreter",
            WarningKind::Swapped => "swapped",
        }
    }
}

impl Warning {
    /// One of a kind, in words.
    pub fn of(kind: WarningKind, text: String) -> Warning {
        Warning { text, kind: Rare(Some(kind.name().to_string())) }
    }

    /// Whether it is of that kind.
    pub fn is(&self, kind: WarningKind) -> bool {
        self.kind.0.as_deref() == Some(kind.name())
    }
}

impl From<String> for Warning {
    fn from(text: String) -> Warning {
        Warning { text, kind: Rare(None) }
    }
}

events! {
    /// A run begins.
    "start" => Start(Start),
    /// The machine and the process; once, behind `start`.
    "machine" => Machine(Machine),
    /// How the run goes; after 1 s (files: 10 s), then each 10 s, or `--status-every`.
    "status" => Status(Status),
    /// Packets were dropped; at most one a second.
    "loss" => Loss(Loss),
    /// A hit that started no dump; at most 100 a second.
    "hit" => Hit(Hit),
    /// Hits beyond those.
    "hits" => Hits(Hits),
    /// A dump is finished.
    "dump" => Dump(Dump),
    /// With `--all`: the one file of all windows is finished.
    "together" => Together(Together),
    /// A command has ended, or was not started.
    "exec" => Exec(Exec),
    /// Something is wrong until it is cleared.
    "alarm" => Alarm(Alarm),
    /// Dumps were deleted to make room.
    "deleted" => Deleted(Deleted),
    /// A file of the store is complete.
    "store_file" => StoreFile(StoreFile),
    /// A file of the store was deleted to keep a bound.
    "store_deleted" => StoreDeleted(StoreDeleted),
    /// A volume of the store works, fails, or has no room.
    "store_state" => StoreState(StoreState),
    /// Files that were left growing, by runs that died or by a disk that failed, are being closed; at most one line
    /// each `--status-every`, and one at the end.
    "store_recovery" => StoreRecovery(StoreRecovery),
    /// The store was too slow for some packets.
    "store_missed" => StoreMissed(StoreMissed),
    /// A captured interface has changed.
    "interface" => Interface(Interface),
    /// The system's clock, or a card's, was set.
    "clock_step" => ClockStep(ClockStep),
    /// A dump makes no progress.
    "long_hold" => LongHold(LongHold),
    /// Advice on a network card.
    "note" => Note(CardNote),
    /// A script printed a line.
    "script" => Script(Printed),
    /// A warning.
    "warning" => Warning(Warning),
    /// The process goes on after a signal had stopped it.
    "resumed" => Resumed(Resumed),
    /// The door to the network that the run has begun (`--listen`) ended before it; the run goes on without it.
    "door_ended" => DoorEnded(DoorEnded),
    /// The settings were read again.
    "reload" => Reload(Reload),
    /// The run has ended: its last line.
    "end" => End(End),
    /// A second signal ended the run: its last line.
    "ended_at_once" => EndedAtOnce(EndedAtOnce),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_as_it_was_written_and_out_of_nothing() {
        for name in Event::NAMES {
            let event = Event::read(name, &serde_json::json!({})).expect("each reads out of nothing");
            assert_eq!(event.name(), *name);
            assert_eq!(Event::read(name, &event.write()), Some(event));
        }
    }
}
