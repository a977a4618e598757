//! What a run is told to do, as meant: every text is parsed and checked, every default is filled in.

use crate::exec::ExecPlan;
use scope_dump::{DumpFormat, Limits};
use scope_fault::Fault;
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_flow::local::Rule;
use scope_group::GroupPlan;
use scope_group::rules::RuleSet;
use scope_machine::cpus::Pinning;
use scope_packet::LinkType;
use scope_rights::{RightsPlan, User};
use scope_ring::{ClaimGroup, MemoryOptions, RingConfig, Share};
use scope_source::file::Follow;
use scope_source::spec::SourcePlan;
use scope_store::retain::Bounds;
use scope_trigger::signal::SignalSet;
use scope_trigger::{Condition, Response, TriggerConfig};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One source of the run.
#[derive(Clone, Debug)]
pub struct SourceEntry {
    /// As typed, for messages.
    pub spec: String,
    /// As meant. Several `file:` sources become one source that feeds them in order of capture time.
    pub plan: SourcePlan,
    /// Whose segments its lanes claim: those of its share, or the common ones.
    pub group: ClaimGroup,
    /// Only packets that it matches are recorded; all files of a run have the same.
    pub prefilter: Option<Filter>,
    /// What its rules take from what the prefilter leaves.
    pub rules: Arc<RuleSet>,
    /// Its place among all sources of the run, from 0.
    pub number: usize,
    /// Where its workers run; all files of a run have the same.
    pub pinning: Pinning,
    /// Who follows the reading of its file, if it is one.
    pub follow: Option<Arc<dyn Follow>>,
}

/// The place of a run's only file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SingleDump {
    /// This file, absolute; it doesn't exist.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// How dumps are written, and what follows them.
#[derive(Clone, Debug, Default)]
pub struct DumpPlan {
    /// Their form.
    pub format: DumpFormat,
    /// What those in the run's folder may take.
    pub limits: Limits,
    /// The run makes one file, and this is its place instead of the folder.
    pub single: Option<SingleDump>,
    /// That file has every window of the run, and not one dump alone.
    pub all: bool,
    /// What is run after each.
    pub exec: Option<ExecPlan>,
}

/// The store: what goes into it, and where.
#[derive(Clone, Debug)]
pub struct StorePlan {
    /// Its volumes.
    pub volumes: Vec<VolumePlan>,
    /// How often what is new goes to the disk for good.
    pub flush: Duration,
    /// Bytes of the ring that it may hold while disks are slow.
    pub behind: u64,
    /// Each file's hash joins a chain.
    pub chain: bool,
}

/// One volume of the store.
#[derive(Clone, Debug)]
pub struct VolumePlan {
    /// Its folder, absolute.
    pub folder: PathBuf,
    /// Its longest file, bytes.
    pub file_bytes: u64,
    /// Only packets that it matches are stored; `None`: all.
    pub filter: Option<Filter>,
    /// Bytes of a packet that are stored at most; `None`: all that the ring has.
    pub snap: Option<u32>,
}

/// Bounds of scripts, and what is opened for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptPlan {
    /// Libraries that they name: no other is opened while the run goes.
    pub libraries: Vec<String>,
    /// Lua's memory of one, bytes.
    pub memory_bytes: usize,
    /// How long one call into it may last.
    pub timeout: Duration,
    /// Threads of one, which share its packets by flow.
    pub threads: u32,
}

/// Statistics: what is counted, and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct StatsPlan {
    /// Where rows are written.
    pub db: Option<scope_stats::Options>,
    /// Length of an interval, ns: it divides a day.
    pub length_ns: i64,
    /// Flows at once.
    pub flows_max: usize,
    /// Silence that ends a record, ns.
    pub idle_ns: i64,
    /// A record is at most so long, ns.
    pub active_ns: i64,
    /// Rows of traffic in an interval at most.
    pub rows_max: usize,
    /// Which addresses are local.
    pub local: Rule,
    /// The same as typed; empty: nothing was.
    pub local_text: String,
    /// Where records are sent as IPFIX.
    pub ipfix: Option<SocketAddr>,
}

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlan {
    /// Where, absolute.
    pub path: PathBuf,
    /// It was asked for: a run that can't have it doesn't begin.
    pub is_given: bool,
    /// The number of the group that may connect, if one may.
    pub group: Option<u32>,
    /// The group of the user that a door to the network is, whose socket it is where no other group was named.
    pub serve_group: Option<u32>,
}

/// Who reads the ring and shares packets: the socket at which other programs attach, groups, and forwards.
#[derive(Clone, Debug)]
pub struct AttachPlan {
    /// Where, absolute; `None`: only forwards are members.
    pub path: Option<PathBuf>,
    /// Who may read the ring itself.
    pub ring: Allowed,
    /// Groups besides it.
    pub groups: Vec<GroupEntry>,
    /// Members within the run, which send.
    pub forwards: Vec<ForwardPlan>,
    /// Threads that serve these, at most.
    pub threads: u32,
    /// Where they run.
    pub pinning: Pinning,
}

/// A member of a group within the run, which sends what it is given out of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardPlan {
    /// The group.
    pub group: String,
    /// The interface.
    pub interface: String,
}

impl ForwardPlan {
    /// Its name as a member.
    pub fn name(&self) -> String {
        format!("forward-{}", self.interface)
    }
}

impl fmt::Display for ForwardPlan {
    /// As it is typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.group, self.interface)
    }
}

/// A group, and who may be a member.
#[derive(Clone, Debug)]
pub struct GroupEntry {
    /// The group.
    pub plan: GroupPlan,
    /// Who may be a member; `None`: root and the user that the run is.
    pub allowed: Option<Allowed>,
}

impl AttachPlan {
    /// A socket for those who may read the ring, without groups.
    pub fn of_ring(path: PathBuf, ring: Allowed) -> AttachPlan {
        let (path, groups, forwards) = (Some(path), Vec::new(), Vec::new());
        AttachPlan { path, ring, groups, forwards, threads: 1, pinning: Pinning::Anywhere }
    }

    /// What is worth a warning at the start.
    pub(crate) fn warning(&self) -> Option<String> {
        let path = self.path.as_ref()?.display();
        let text = format!(
            "nobody may attach at {path}: name who may, root included: --attach-ring USER:@GROUP, or make a --group"
        );
        (self.ring.is_nobody() && self.groups.is_empty()).then_some(text)
    }
}

/// Users and groups who may do something; others may not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowed {
    /// Users.
    pub users: Vec<User>,
    /// Numbers of groups.
    pub groups: Vec<u32>,
}

impl Allowed {
    /// Whether a user in these groups may.
    pub fn has(&self, uid: u32, groups: &[u32]) -> bool {
        self.users.iter().any(|user| user.uid == uid)
            || self.groups.iter().any(|group| groups.contains(group))
    }

    /// Whether nobody may.
    pub fn is_nobody(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

/// One run: what stays as it is while it goes, and what a reload may change.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// What stays.
    pub fixed: Fixed,
    /// What holds at the start, and may change.
    pub live: Live,
}

/// What of a run stays as it is while it goes: a reload names what differs, and leaves it.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// Sources: all live (interfaces, paced generators), or all of those that can wait (files, unpaced
    /// generators).
    pub sources: Vec<SourceEntry>,
    /// Sizes of the ring; `workers` and `lanes` as [`Fixed::workers`] and the known link types say.
    pub ring: RingConfig,
    /// What is asked of the ring's memory besides its size.
    pub memory: MemoryOptions,
    /// Parts of the ring that belong to single sources: of each entry with a group of its own.
    pub shares: Vec<Share>,
    /// Link types that are known before the run.
    pub link_types: Vec<LinkType>,
    /// How filters see VLAN tags.
    pub vlan: VlanRule,
    /// Signals that are measured.
    pub signals: Arc<SignalSet>,
    /// Memory of one count or sequence, bytes.
    pub count_bytes: usize,
    /// Bounds of scripts.
    pub scripts: ScriptPlan,
    /// What evaluates filters.
    pub filter_engine: FilterEngine,
    /// How often the log has a status line; at least a second.
    pub status_every: Duration,
    /// Folder for dumps and `wirescope.jsonl`; a run with a single dump elsewhere may do without.
    pub folder: Option<PathBuf>,
    /// How dumps are written.
    pub dump: DumpPlan,
    /// The store, if there is one.
    pub store: Option<StorePlan>,
    /// Statistics, if there are any.
    pub stats: Option<StatsPlan>,
    /// Where the whole ring goes at the end.
    pub ring_out: Option<PathBuf>,
    /// The configuration that reproduces this run; goes into the log as it is.
    pub config: String,
    /// Its control socket; `None`: it has none.
    pub control: Option<ControlPlan>,
    /// Where other programs attach; `None`: nowhere.
    pub attach: Option<AttachPlan>,
    /// What the process gives up once everything is open; `None`: nothing, because it does other things as
    /// well.
    pub rights: Option<RightsPlan>,
}

/// What of a run may change while it goes: all that a reload takes, and nothing else.
#[derive(Clone, Debug)]
pub struct Live {
    /// Triggers, in the order given.
    pub triggers: Vec<TriggerConfig>,
    /// What a fire by hand takes, ns.
    pub before_ns: i64,
    /// Dumps at once.
    pub dumps_max: usize,
    /// The run ends after so many dumps, those from before a reload included.
    pub exit_after: Option<u64>,
    /// What each volume of the store may take, in their order.
    pub store_bounds: Vec<Bounds>,
    /// Who may read the ring itself.
    pub attach_ring: Allowed,
    /// Groups: their filters, steering, and who may be a member.
    pub groups: Vec<GroupEntry>,
    /// Rules of each source.
    pub source_rules: Vec<Arc<RuleSet>>,
}

/// Name that dumps by hand have in the place of a trigger's.
pub const MANUAL: &str = "manual";

impl Live {
    /// The trigger of dumps by hand: everything of the last `before`, at once. It has no holdoff.
    pub(crate) fn manual_trigger(&self, vlan: VlanRule) -> TriggerConfig {
        TriggerConfig {
            name: MANUAL.to_string(),
            condition: Condition::Hand,
            response: Response { template: None, script: None, before_ns: self.before_ns, after_ns: 0, vlan },
            when: None,
            holdoff_ns: 0,
            holdoff_key: None,
            single: false,
            auto_ns: None,
        }
    }
}

impl Live {
    /// The settings that it is made of.
    pub const KEYS: [&'static str; 18] = [
        "trigger",
        "when",
        "dump",
        "dump-script",
        "before",
        "after",
        "holdoff",
        "holdoff-key",
        "single",
        "auto",
        "exit-after",
        "dumps-max",
        "store-budget",
        "store-age",
        "store-min-free",
        "attach-ring",
        "group",
        "set",
    ];
}

impl Fixed {
    /// That dumps have a place.
    ///
    /// # Errors
    /// They have none: nothing can fire in this run.
    pub fn expect_place(&self) -> Result<(), Fault> {
        if self.folder.is_some() || self.dump.single.is_some() {
            return Ok(());
        }
        Err(Fault::of("out").cause("this run has no folder for dumps").remedy("start it with --out DIR"))
    }

    /// Worker threads: files share theirs, interfaces with `workers=0` share one, every other source has its
    /// own.
    pub fn workers(sources: &[SourceEntry]) -> u32 {
        let files = sources.iter().filter(|source| source.plan.file().is_some());
        let of_files = files.map(|source| source.plan.workers()).max().unwrap_or(0);
        let others = sources.iter().filter(|source| source.plan.file().is_none());
        let shares = |source: &SourceEntry| source.plan.file().is_none() && source.plan.workers() == 0;
        let shared = u32::from(sources.iter().any(shares));
        of_files + shared + others.map(|source| source.plan.workers()).sum::<u32>()
    }
}
