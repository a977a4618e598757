//! The command line as written: every value is still text, so that all faults can be reported at once.

mod asking;
mod counting;
mod scripting;
mod sending;
mod sharing;
mod statistics;
mod storing;

use crate::help;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, Args, Command, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use scope_config::Settings;
use scope_source::spec;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

pub use asking::{
    AskArgs, DoorArgs, DumpsVerb, FireArgs, ServeArgs, TokenAddArgs, TokenVerb, TriggerArgs, TriggerWords,
    TriggersVerb,
};
pub use counting::StatsArgs;
pub use scripting::{ScriptBoundsArgs, ScriptCheckArgs, ScriptRunArgs, ScriptTexts, ScriptVerb};
pub use sending::SendArgs;
pub use sharing::{MemberArgs, TapArgs, WithArgs};
pub use statistics::{
    FlowsArgs, StatsCopyArgs, StatsExportArgs, StatsFilesArgs, StatsSqlArgs, StatsTopArgs, StatsVerb,
};
pub use storing::{
    ExportArgs, HoldAddArgs, HoldVerb, ImportArgs, QueryArgs, StoreListArgs, StoreVerb, VerifyArgs,
};

/// What `--version` says behind the program's name.
fn version() -> String {
    format!(
        "{} ({})\n{}",
        env!("CARGO_PKG_VERSION"),
        env!("WIRESCOPE_BUILD"),
        scope_filter::libpcap_version()
    )
}

/// A storage oscilloscope for networks: records every packet all the time, and dumps those around a trigger.
#[derive(Debug, Parser)]
#[command(name = "wirescope", version = version(), after_help = help::EXAMPLES, max_term_width = 80)]
#[command(disable_help_flag = true, args = help::help_flags())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Verb,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Record packets, watch for triggers, write dumps
    Run(Box<RunArgs>),
    /// Show the main job: traffic, one trigger packet, a dump from before and after it
    Demo(DemoArgs),
    /// Explain a filter: what it means, its program, what it matches in a file, what it costs
    Filter(FilterArgs),
    /// Measure what this machine can sustain at which packet size, and what limits it
    Bench(BenchArgs),
    /// Check a configuration file, or show the resulting settings
    #[command(after_help = help::CONFIG_EXAMPLES)]
    Config {
        /// What to do with it.
        #[command(subcommand)]
        what: ConfigVerb,
    },
    /// List the interfaces, their properties, and what is missing to capture on them
    Devices(DevicesArgs),
    /// Write packets of a store into files for other programs
    Export(ExportArgs),
    /// Find packets in stores and capture files: as a capture, a line each, a count, a top list or a timeline
    Query(Box<QueryArgs>),
    /// Put capture files into a store
    Import(ImportArgs),
    /// Show what a store has
    #[command(after_help = help::STORE_EXAMPLES)]
    Store {
        /// What to show.
        #[command(subcommand)]
        what: StoreVerb,
    },
    /// Ask the statistics of a run: the busiest, any SELECT, its files; copy or export them
    #[command(after_help = help::STATS_EXAMPLES, args_conflicts_with_subcommands = true)]
    Stats {
        /// What to ask.
        #[command(subcommand)]
        what: Option<StatsVerb>,
        /// In the place of a command flags of 'wirescope run', such as --source and --db: a run that only counts, with
        /// -s 256, the least ring, and without --out
        #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// Show the flows of the statistics of a run, by a filter, also as they come
    Flows(FlowsArgs),
    /// Find where a run loses packets, how certain that is, and what to change
    Doctor(DoctorArgs),
    /// Keep spans of time in a store, whatever its bounds
    #[command(after_help = help::HOLD_EXAMPLES)]
    Hold {
        /// What to do with them.
        #[command(subcommand)]
        what: HoldVerb,
    },
    /// Check captures: whether each byte is as it was written, what is missing, and why
    Verify(VerifyArgs),
    /// Show how a running instance stands
    #[command(after_help = help::ASK_EXAMPLES)]
    Status(AskArgs),
    /// Show the triggers of a running instance
    Triggers {
        /// What to do with them.
        #[command(subcommand)]
        what: TriggersVerb,
    },
    /// Dump now: the last seconds of everything or of a filter, or what a trigger would
    Fire(FireArgs),
    /// List, show, get or delete the dumps of a running instance
    Dumps {
        /// What to do with them.
        #[command(subcommand)]
        what: DumpsVerb,
    },
    /// Show what a running instance has lost, by source and reason
    #[command(after_help = help::ASK_EXAMPLES)]
    Losses(AskArgs),
    /// Follow what happens in a running instance, a line for each event
    #[command(after_help = help::ASK_EXAMPLES)]
    Watch(AskArgs),
    /// Write packets of a running instance as they come, for other programs
    Tap(TapArgs),
    /// Start programs that capture with libpcap, in which the device wirescope is a group of a running instance
    With(WithArgs),
    /// Show which programs read the ring of a running instance, and how far each of them is
    #[command(after_help = help::GROUPS_EXAMPLES)]
    Groups(AskArgs),
    /// Send packets of a capture file, or generated ones, out of an interface
    Send(SendArgs),
    /// Open running instances to the network: TLS, tokens, roles
    Serve(Box<ServeArgs>),
    /// Check Lua scripts, try them on a capture file, write examples
    #[command(after_help = help::SCRIPT_EXAMPLES)]
    Script {
        /// What to do with them.
        #[command(subcommand)]
        what: ScriptVerb,
    },
    /// Make, list or revoke the tokens of a door to the network
    #[command(after_help = help::TOKEN_EXAMPLES)]
    Token {
        /// What to do with them.
        #[command(subcommand)]
        what: TokenVerb,
    },
    /// Print a shell's completions
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Print a manual page, or write those of all commands into a folder
    #[command(after_help = help::MAN_EXAMPLES)]
    Man(ManArgs),
}

/// `wirescope config`.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Report every fault of a file; create nothing, open no source
    Check {
        /// The configuration file.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print the resulting settings and the origin of each: default, file or flag
    #[command(override_usage = help::SHOW_USAGE, after_help = help::SHOW_FIRST, after_long_help = help::SHOW_ALL)]
    Show(Box<RunArgs>),
}

/// `wirescope run`.
#[derive(Debug, Args)]
#[command(override_usage = help::RUN_USAGE, after_help = help::RUN_FIRST, after_long_help = help::RUN_ALL)]
#[command(mut_args(can_say_no), args = help::help_flags_of_many(), mut_args(help::first_flags_first))]
pub struct RunArgs {
    /// Capture on an interface, or on all that match 'eth*'
    ///
    /// The same as --source afpacket:IFACE. May be given several times.
    #[arg(short = 'i', value_name = "IFACE", help_heading = "Record")]
    pub interface: Vec<String>,
    /// Read a capture file; '-' is standard input
    ///
    /// The same as --source file:FILE. May be given several times.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Record", value_hint = ValueHint::FilePath)]
    pub read: Vec<String>,
    /// Any source, such as synth:rate=10k,time=5s (generated traffic)
    ///
    /// May be given several times.
    #[arg(long, value_name = "SRC", help_heading = "Record")]
    pub source: Vec<String>,
    /// Keep at most this many bytes of each packet, unless a source has its own snaplen=; 0: all
    #[arg(short = 's', long, value_name = "BYTES", help_heading = "Record", allow_hyphen_values = true)]
    pub snap_len: Option<String>,
    /// Record only packets that match this filter, unless a source has its own prefilter=; the kernel
    /// evaluates it where it can
    #[arg(long, value_name = "EXPR", help_heading = "Record")]
    pub prefilter: Option<String>,
    /// Do not capture the ssh session that started this run; means exclude-self=on for every interface
    #[arg(long, help_heading = "Record")]
    pub exclude_self: bool,

    /// Memory for packets
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1GiB",
        help_heading = "Keep in memory",
        allow_hyphen_values = true
    )]
    pub ring: String,
    /// Segment size, 64KiB to 2MiB [default: chosen to fit the ring and its lanes]
    #[arg(long, value_name = "SIZE", help_heading = "Keep in memory", allow_hyphen_values = true)]
    pub segment: Option<String>,
    /// Lock the ring's memory, so that it is never swapped out
    #[arg(long, help_heading = "Keep in memory")]
    pub mlock: bool,
    /// Allocate the ring on this NUMA node only
    #[arg(long, value_name = "NODE", help_heading = "Keep in memory")]
    pub numa: Option<String>,

    /// Start a dump for each packet that matches this filter, at a level of traffic, or at a number of packets
    ///
    /// A level: 'flood=signal(pps) > 4x mean(10min) for 200ms'. A number of packets by key, or their order, as in
    /// 'scan=count(tcp[tcpflags] == tcp-syn by $srcIP) > 20 in 10s' or 'icmp then tcp port 22 within 2s by $srcIP'
    ///
    /// May be given several times; unnamed triggers are trigger1, trigger2 ...; =EXPR forces an expression.
    #[arg(long, value_name = "[NAME=]EXPR", alias = "trigger-expr", help_heading = "Watch for triggers")]
    pub trigger: Vec<String>,
    /// Start a dump for each packet that this Lua script says yes to
    ///
    /// The file returns a function of a packet: 'return function(pkt) ... end'. Counted with --trigger, in the order of the
    /// command line. Try it first: wirescope script run FILE -r trace.pcapng.
    #[arg(
        long,
        value_name = "[NAME=]FILE",
        alias = "trigger-code",
        help_heading = "Watch for triggers",
        value_hint = ValueHint::FilePath
    )]
    pub trigger_script: Vec<String>,
    /// Let this Lua script say which packets a dump keeps, in the place of --dump
    ///
    /// The file returns a function of the packet that fired, which returns one of a packet: 'return function(trigger_pkt)
    /// return function(pkt) ... end end'. Counted with --dump, in the order of the command line.
    #[arg(
        long,
        value_name = "FILE",
        alias = "dumper-code",
        help_heading = "Watch for triggers",
        value_hint = ValueHint::FilePath
    )]
    pub dump_script: Vec<String>,
    /// Threads of each script, which share its packets by flow; each has a Lua state of its own
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        help_heading = "Watch for triggers",
        allow_hyphen_values = true
    )]
    pub script_threads: String,
    /// Lua's own memory of each script's thread; beyond, the script is disabled
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256MiB",
        help_heading = "Watch for triggers",
        allow_hyphen_values = true
    )]
    pub script_memory: String,
    /// How long one call into a script may last (256 packets at most); then it is disabled, and left behind
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        help_heading = "Watch for triggers",
        allow_hyphen_values = true
    )]
    pub script_timeout: String,
    /// Measure these packets as a named signal, which levels of triggers compare: 'syn=tcp[tcpflags] == tcp-syn'
    ///
    /// MEASURE is pps (default), bps, size, share, hosts, flows, gap, drops or burst. pps, bps and drops of the
    /// whole run are there without a flag.
    #[arg(long, value_name = "NAME[:MEASURE]=EXPR", help_heading = "Watch for triggers")]
    pub signal: Vec<String>,
    /// Fire at those of a filter's packets with which this first holds for their flow, such as 'rtt > 200ms'
    ///
    /// new, or packets, bytes, duration, resent, zero_windows or rtt with >, joined by and. The n-th belongs to the
    /// n-th trigger.
    #[arg(long, value_name = "COND", help_heading = "Watch for triggers", allow_hyphen_values = true)]
    pub when: Vec<String>,
    /// Memory of each count or sequence among the triggers; more keys are counted by a sketch
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64MiB",
        help_heading = "Watch for triggers",
        allow_hyphen_values = true
    )]
    pub count_memory: String,
    /// What a dump keeps, such as 'host $srcIP' or '$flow'; '' is everything [default: what the hit's two
    /// hosts sent each other]
    ///
    /// The n-th belongs to the n-th trigger, a single one to all.
    #[arg(long, value_name = "TEMPLATE", alias = "dumper-expr", help_heading = "Watch for triggers")]
    pub dump: Vec<String>,
    /// How much time before the hit a dump covers; a plain number is seconds
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        alias = "dump-past",
        help_heading = "Watch for triggers",
        allow_hyphen_values = true
    )]
    pub before: String,
    /// How much time after the last hit a dump covers
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        alias = "dump-future",
        help_heading = "Watch for triggers",
        allow_hyphen_values = true
    )]
    pub after: String,
    /// How long after a fire hits with the same values start no new dump [default: 1s; for capture files 0]
    #[arg(long, value_name = "TIME", help_heading = "Watch for triggers", allow_hyphen_values = true)]
    pub holdoff: Option<String>,
    /// Hold off by these values instead, such as '$srcIP'; '' for the whole trigger [default: those that the
    /// template uses]
    #[arg(long, value_name = "TEMPLATE", help_heading = "Watch for triggers")]
    pub holdoff_key: Option<String>,
    /// Disarm each trigger after its first fire
    #[arg(long, help_heading = "Watch for triggers")]
    pub single: bool,
    /// Fire each trigger by itself where nothing has fired it for this long, as in 1h; off: not
    #[arg(long, value_name = "TIME", help_heading = "Watch for triggers", allow_hyphen_values = true)]
    pub auto: Option<String>,
    /// End the run after this many dumps
    #[arg(long, value_name = "N", help_heading = "Watch for triggers", allow_hyphen_values = true)]
    pub exit_after: Option<String>,
    /// Most dumps open at once; together they can hold half of the ring [default: 8; for capture files 1024]
    #[arg(long, value_name = "N", help_heading = "Watch for triggers", allow_hyphen_values = true)]
    pub dumps_max: Option<String>,
    /// How filters treat VLAN tags: look through them, or do exactly what libpcap does
    #[arg(long, value_name = "RULE", default_value = "transparent", help_heading = "Watch for triggers", value_parser = Words(&["transparent", "exact"]))]
    pub vlan: String,
    /// What evaluates filters: machine code or the interpreter, with the same results
    #[arg(long, value_name = "ENGINE", default_value = "native", help_heading = "Watch for triggers", value_parser = Words(&["native", "interpreter"]))]
    pub filter_engine: String,

    /// Folder for dumps and the log wirescope.jsonl; it must exist
    #[arg(long, value_name = "DIR", help_heading = "Write dumps", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Write a single dump into this new file and end; '-' is standard output
    ///
    /// A name in .pcap gets a pcap file, any other pcapng.
    #[arg(short = 'w', long, value_name = "FILE", help_heading = "Write dumps", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
    /// With -w: write every window of the run into that one file
    ///
    /// Each packet is in it once, in order. The file is written when the run ends.
    #[arg(long, help_heading = "Write dumps")]
    pub all: bool,
    /// Format of dumps: pcapng, or pcap with the facts in a text file beside it [default: pcap for -w
    /// FILE.pcap, else pcapng]
    #[arg(long, value_name = "FORM", help_heading = "Write dumps", value_parser = Words(&["pcapng", "pcap"]))]
    pub dump_format: Option<String>,
    /// Most bytes that all dumps in the folder may take, those of other runs included; beyond that new dumps
    /// are refused
    #[arg(long, value_name = "SIZE", help_heading = "Write dumps", allow_hyphen_values = true)]
    pub dump_budget: Option<String>,
    /// Free space that dumps leave on the folder's file system, such as 5GiB or 10%; below that new dumps are
    /// refused
    #[arg(long, value_name = "SIZE|PERCENT", help_heading = "Write dumps", allow_hyphen_values = true)]
    pub dump_min_free: Option<String>,
    /// Delete the oldest dumps in the folder instead of refusing new ones
    #[arg(long, help_heading = "Write dumps")]
    pub dump_rotate: bool,
    /// Write the whole ring into this new file at the end
    #[arg(long, value_name = "FILE", help_heading = "Write dumps", value_hint = ValueHint::FilePath)]
    pub ring_out: Option<PathBuf>,

    /// Store everything in this folder, too, as files that Wireshark opens; may be given several times: each
    /// is a volume, and they share the load
    #[arg(long, value_name = "DIR", help_heading = "Store on disk", value_hint = ValueHint::DirPath)]
    pub store: Vec<PathBuf>,
    /// Most bytes that a volume may take; beyond that its oldest files are deleted [default: none, but 5% of
    /// the file system stays free where no bound is given]
    ///
    /// The n-th belongs to the n-th --store, a single one to all; so with --store-age, --store-min-free,
    /// --store-file, --store-filter and --store-snap.
    #[arg(long, value_name = "SIZE|PERCENT", help_heading = "Store on disk", allow_hyphen_values = true)]
    pub store_budget: Vec<String>,
    /// How far back a volume reaches at most; older files are deleted
    #[arg(long, value_name = "TIME", help_heading = "Store on disk", allow_hyphen_values = true)]
    pub store_age: Vec<String>,
    /// Free space that a volume leaves on its file system, such as 50GiB or 10%
    #[arg(long, value_name = "SIZE|PERCENT", help_heading = "Store on disk", allow_hyphen_values = true)]
    pub store_min_free: Vec<String>,
    /// Longest file of a volume [default: 1GiB, or an eighth of the budget if that is less]
    #[arg(long, value_name = "SIZE", help_heading = "Store on disk", allow_hyphen_values = true)]
    pub store_file: Vec<String>,
    /// Store only packets that match, in libpcap's language; dumps and triggers see all. '' stores everything
    #[arg(long, value_name = "EXPR", help_heading = "Store on disk", allow_hyphen_values = true)]
    pub store_filter: Vec<String>,
    /// Store at most this many bytes of each packet; dumps and triggers see whole packets
    #[arg(long, value_name = "BYTES", help_heading = "Store on disk", allow_hyphen_values = true)]
    pub store_snap: Vec<String>,
    /// How often what is new goes to the disk for good: at most this much is lost if the power fails
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        help_heading = "Store on disk",
        allow_hyphen_values = true
    )]
    pub store_flush: String,
    /// How much of the ring the store may hold back while the disk is slow
    #[arg(
        long,
        value_name = "SIZE|PERCENT",
        default_value = "25%",
        help_heading = "Store on disk",
        allow_hyphen_values = true
    )]
    pub store_behind: String,
    /// Chain the hashes of stored files in chain.jsonl, so that a changed or missing file is noticed
    #[arg(long, help_heading = "Store on disk")]
    pub store_chain: bool,
    #[command(flatten)]
    pub stats: StatsArgs,

    /// Run this command after each dump, by /bin/sh -c, with the dump's facts in its environment:
    /// WIRESCOPE_FILE and others
    #[arg(long, value_name = "CMD", help_heading = "Run a command after each dump", value_hint = ValueHint::CommandString)]
    pub exec: Option<String>,
    /// Most commands at once; further ones wait
    #[arg(
        long,
        value_name = "N",
        default_value = "4",
        help_heading = "Run a command after each dump",
        allow_hyphen_values = true
    )]
    pub exec_max: String,
    /// How long a command may run before it is ended
    #[arg(
        long,
        value_name = "TIME",
        default_value = "60s",
        help_heading = "Run a command after each dump",
        allow_hyphen_values = true
    )]
    pub exec_timeout: String,
    /// Folder that commands may write to, besides their temporary one; may be given several times
    #[arg(long, value_name = "DIR", help_heading = "Run a command after each dump", value_hint = ValueHint::DirPath)]
    pub exec_write: Vec<PathBuf>,
    /// Environment variable that commands get, besides PATH, LANG, HOME and TZ; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Run a command after each dump")]
    pub exec_env: Vec<String>,

    /// Print the summary as one JSON object, and nothing else on standard output
    #[arg(long, value_name = "FORM", help_heading = "Report", value_parser = Words(&["json"]))]
    pub summary: Option<String>,
    /// Format of standard error: lines of text, or one JSON object per line
    #[arg(long, value_name = "FORM", default_value = "text", help_heading = "Report", value_parser = Words(&["text", "json"]))]
    pub log_format: String,
    /// How often the log gets a status line, at least 1s
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        help_heading = "Report",
        allow_hyphen_values = true
    )]
    pub status_every: String,
    /// Print only warnings and failures, and no summary in text
    #[arg(short = 'q', long, help_heading = "Report")]
    pub quiet: bool,
    /// Also print a line for each worker, interface and open dump
    #[arg(short = 'v', long, action = ArgAction::Count, help_heading = "Report")]
    pub verbose: u8,

    /// User to become when started as root, once sockets and files are open: NAME, UID or UID:GID; root: stay
    /// root, without capabilities [default: the first who can write to the dump folder: wirescope, its owner,
    /// nobody, root]
    #[arg(long, value_name = "NAME", help_heading = "Rights", allow_hyphen_values = true)]
    pub user: Option<String>,
    /// Try in every thread what must not be possible any more; one JSON object on standard output
    #[arg(long, hide = true, help_heading = "Rights")]
    pub rights_selftest: bool,

    /// The socket at which others ask and order this instance; off: none [default: wirescope.sock in the folder of --out]
    #[arg(long, value_name = "PATH", help_heading = "Control", allow_hyphen_values = true)]
    pub control: Option<String>,
    /// The group whose members may connect, too: NAME or GID [default: only root and the run's own user]
    #[arg(long, value_name = "NAME", help_heading = "Control", allow_hyphen_values = true)]
    pub control_group: Option<String>,
    /// What the members of --control-group may do
    #[arg(
        long,
        value_name = "ROLE",
        default_value = "viewer",
        help_heading = "Control",
        allow_hyphen_values = true
    )]
    #[arg(value_parser = Words(&["viewer", "analyst", "operator", "admin"]))]
    pub control_role: String,
    /// Requests that one client may send in a second; further ones get the answer 429
    #[arg(
        long,
        value_name = "N",
        default_value = "500",
        help_heading = "Control",
        allow_hyphen_values = true
    )]
    pub control_rate: String,
    /// What of a hook fills NAME of a trigger's template, as in srcIP=instance: a label of an alert, a key of a JSON
    /// object, or a JSON pointer such as /event/src_ip [default: for each name the label that is called so]
    ///
    /// May be given several times; then no other label is looked at.
    #[arg(long, value_name = "NAME=LABEL", help_heading = "Control", allow_hyphen_values = true)]
    pub hook_label: Vec<String>,
    /// The label of an alert that names the trigger which it fires
    #[arg(
        long,
        value_name = "LABEL",
        default_value = "alertname",
        help_heading = "Control",
        allow_hyphen_values = true
    )]
    pub hook_trigger: String,
    /// The user that a door to the network is, which may ask for others: NAME, UID or UID:GID [default: wirescope-serve
    /// where there is such a user, else the run's own]
    #[arg(long, value_name = "NAME", help_heading = "Control", allow_hyphen_values = true)]
    pub serve_user: Option<String>,
    /// What others may do through that door at most, whatever their tokens say
    #[arg(
        long,
        value_name = "ROLE",
        default_value = "operator",
        help_heading = "Control",
        allow_hyphen_values = true
    )]
    #[arg(value_parser = Words(&["viewer", "analyst", "operator", "admin"]))]
    pub serve_role: String,
    /// Begin a door to the network as well, which ends with the run; see wirescope serve
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Control", allow_hyphen_values = true)]
    pub listen: Option<String>,
    /// The file of tokens for --listen
    #[arg(long, value_name = "FILE", help_heading = "Control", value_hint = ValueHint::FilePath)]
    pub tokens: Option<PathBuf>,
    /// The certificate for --listen, and those above it, as PEM
    #[arg(long, value_name = "FILE", help_heading = "Control", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", help_heading = "Control", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Make a certificate for --listen at the start, for a first try
    #[arg(long, help_heading = "Control")]
    pub tls_self_signed: bool,
    /// The certificates, as PEM, that may have signed those of clients of --listen
    #[arg(long, value_name = "FILE", help_heading = "Control", value_hint = ValueHint::FilePath)]
    pub tls_client_ca: Option<PathBuf>,
    /// The lists (CRLs), as PEM, of clients' certificates that were revoked
    #[arg(long, value_name = "FILE", help_heading = "Control", value_hint = ValueHint::FilePath)]
    pub tls_client_crl: Option<PathBuf>,
    /// A name by which --listen may be asked, besides localhost and its address
    ///
    /// May be given several times.
    #[arg(long, value_name = "NAME", help_heading = "Control", allow_hyphen_values = true)]
    pub host: Vec<String>,

    /// The socket at which other programs attach and read the ring in place, such as wirescope tap
    #[arg(
        long,
        value_name = "SOCKET",
        help_heading = "Share with other programs",
        allow_hyphen_values = true
    )]
    pub attach: Option<String>,
    /// Who may read all of the ring there: names or numbers of users, and of groups behind @ [default: nobody]
    #[arg(
        long,
        value_name = "USER:@GROUP",
        help_heading = "Share with other programs",
        allow_hyphen_values = true
    )]
    pub attach_ring: Option<String>,
    /// Share packets among the programs that join: 'dns,filter=udp port 53,steer=flow'
    ///
    /// Options: filter=EXPR (all), interface=IFACE that packets came by (any), steer=flow, ip, hosts, local:NET, mac, vlan, field:OFF/LEN, field:OFF+OFF/LEN,
    /// round-robin or all (flow), memory=SIZE of each member (16MiB), members-max=N (8), members=N that a run of files
    /// waits for (0), stuck=TIME after which others get the flows of one that stands still (off), allow=USER:@GROUP
    /// (root and the run's user). May be given several times.
    #[arg(
        long,
        value_name = "NAME[,KEY=VALUE]...",
        help_heading = "Share with other programs",
        allow_hyphen_values = true
    )]
    pub group: Vec<String>,
    /// Send what a group takes out of an interface, as a member of it: 'web=eth1'
    ///
    /// A source on that interface needs direction=in. May be given several times: two of them are a bridge.
    #[arg(
        long,
        value_name = "GROUP=IFACE",
        help_heading = "Share with other programs",
        allow_hyphen_values = true
    )]
    pub forward: Vec<String>,
    /// A set of hosts or ports that rules of groups ask: 'partners,kind=hosts,file=partners.txt'
    ///
    /// KIND is hosts (a file of addresses, prefixes and ranges) or ports (of ports and ranges). Rules stand in a
    /// configuration file, as [[group.rule]]. May be given several times.
    #[arg(
        long,
        value_name = "NAME,kind=KIND,file=FILE",
        help_heading = "Share with other programs",
        allow_hyphen_values = true
    )]
    pub set: Vec<String>,
    /// Threads that serve the groups
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        help_heading = "Share with other programs",
        allow_hyphen_values = true
    )]
    pub attach_threads: String,
    /// CPUs that these are pinned to, one each in turn [default: any]
    #[arg(long, value_name = "LIST", help_heading = "Share with other programs", allow_hyphen_values = true)]
    pub attach_cpus: Option<String>,

    /// Read settings from this file; flags override it
    #[arg(long, value_name = "FILE", help_heading = "Configuration and help", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// The same as above, each with where it came from
    #[arg(skip)]
    pub settings: Settings,
    /// It is 'wirescope stats': what isn't given is as statistics alone need it.
    #[arg(skip)]
    pub is_stats: bool,
    /// Texts of scripts that were read already, by file; others are read where files are looked at.
    #[arg(skip)]
    pub scripts: ScriptTexts,
    /// The same of files of sets.
    #[arg(skip)]
    pub sets: ScriptTexts,
}

impl RunArgs {
    /// All sources as `--source` would have them, in the order of the flags `--source`, `-i`, `-r`.
    pub fn specs(&self) -> Vec<String> {
        let given = self.source.iter().cloned();
        let interfaces = self.interface.iter().map(|name| format!("afpacket:{}", spec::escape(name)));
        let files = self.read.iter().map(|path| format!("file:{}", spec::escape(path)));
        given.chain(interfaces).chain(files).collect()
    }
}

/// `wirescope demo`.
#[derive(Debug, Args)]
#[command(after_help = help::DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Real packets between two network namespaces instead of generated ones; needs root and iproute2
    #[arg(long)]
    pub live: bool,
    /// Folder for the dump [default: a new one, target/demo or wirescope-demo]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// `wirescope filter`.
#[derive(Debug, Args)]
#[command(after_help = help::FILTER_EXAMPLES)]
pub struct FilterArgs {
    /// The filter, in the language of tcpdump; several words are one filter
    #[arg(value_name = "EXPR", required = true)]
    pub expression: Vec<String>,
    /// Count the packets that it matches in a capture file; '-' is standard input
    #[arg(short = 'r', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub read: Option<String>,
    /// How it treats VLAN tags: look through them, or do exactly what libpcap does
    #[arg(long, value_name = "RULE", default_value = "transparent", value_parser = Words(&["transparent", "exact"]))]
    pub vlan: String,
    /// Explain it for this link type, by name or number [default: those of the file, or ETHERNET]
    #[arg(long, value_name = "NAME", conflicts_with = "read")]
    pub link_type: Option<String>,
}

/// `wirescope bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Memory to measure in [default: a quarter of what is free, at most 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub ring: Option<String>,
}

/// `wirescope devices`.
#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Print one JSON object; null is what a driver doesn't report
    #[arg(long)]
    pub json: bool,
}

/// `wirescope doctor`.
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// The dump folder of a run
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["log", "pid"])]
    pub out: Option<PathBuf>,
    /// The log of a run: wirescope.jsonl, under any name
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "pid")]
    pub log: Option<PathBuf>,
    /// The process number of a run that is still running
    #[arg(long, value_name = "N")]
    pub pid: Option<String>,
    /// Which run, if the log holds several: the first letters of its run_id [default: the run that began
    /// last]
    #[arg(long, value_name = "ID", conflicts_with = "pid")]
    pub run: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wirescope man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command, such as 'run' or 'config check' [default: the program itself]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this folder, which must exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "command")]
    pub out: Option<PathBuf>,
}

/// Gives a switch an optional value, so that a flag can undo what a file says: `--single`, `--single=true`,
/// `--single=false`. The last one holds.
fn can_say_no(arg: Arg) -> Arg {
    let (parser, off, on) = match arg.get_action() {
        ArgAction::SetTrue => (ValueParser::bool(), "false", "true"),
        ArgAction::Count => (ValueParser::new(how_often), "0", "1"),
        _ => return arg,
    };
    let id = arg.get_id().clone();
    let arg = arg
        .action(ArgAction::Set)
        .value_parser(parser)
        .value_name("true|false")
        .num_args(0..=1)
        .require_equals(true);
    arg.default_missing_value(on)
        .default_value(off)
        .overrides_with(id)
        .hide_default_value(true)
        .hide_possible_values(true)
}

/// A count in words or as a number.
fn how_often(text: &str) -> Result<u8, String> {
    match text {
        "true" => Ok(1),
        "false" => Ok(0),
        number => number.parse().map_err(|_| "write true, false or a number".to_string()),
    }
}

/// Words that help and completions propose. Others pass here and are refused together with all other faults.
#[derive(Clone, Copy)]
struct Words(&'static [&'static str]);

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(arguments: &[&str]) -> RunArgs {
        match Cli::parse_from([&["wirescope", "run"], arguments].concat()).command {
            Verb::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_table_of_flags_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn aliases_are_the_same_flags() {
        let args =
            run(&["--trigger-expr", "udp", "--dumper-expr", "ip", "--dump-past", "5", "--dump-future", "6"]);
        assert_eq!((args.trigger, args.dump), (vec!["udp".to_string()], vec!["ip".to_string()]));
        assert_eq!((args.before.as_str(), args.after.as_str()), ("5", "6"));
    }

    #[test]
    fn every_switch_can_be_given_alone_and_with_yes_or_no_and_the_last_one_holds() {
        let (mut cli, mut switches) = (Cli::command(), 0);
        cli.build();
        for arg in cli.find_subcommand("run").unwrap().get_arguments() {
            let Some(flag) =
                arg.get_long().filter(|_| arg.get_value_parser().type_id() == ValueParser::bool().type_id())
            else {
                assert!(!matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count), "{arg:?}");
                continue;
            };
            let on = |arguments: &[&str]| {
                let line = [&["wirescope", "run"], arguments].concat();
                Cli::command()
                    .get_matches_from(line)
                    .subcommand_matches("run")
                    .unwrap()
                    .get_flag(arg.get_id().as_str())
            };
            let (plain, yes, no) = (format!("--{flag}"), format!("--{flag}=true"), format!("--{flag}=false"));
            assert!(on(&[&plain]) && on(&[&yes]) && !on(&[&no]) && !on(&[]), "{flag}");
            assert!(!on(&[&plain, &no]) && on(&[&no, &plain]), "{flag}");
            switches += 1;
        }
        assert!(switches >= 4, "{switches}");
        assert_eq!(
            [run(&["-v"]).verbose, run(&["-vv", "--verbose=false"]).verbose, run(&["-v", "-i", "a"]).verbose],
            [1, 0, 1]
        );
    }

    #[test]
    fn an_empty_template_is_a_value() {
        assert_eq!(run(&["--dump", ""]).dump, [""]);
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let args = run(&[]);
        assert_eq!((args.ring.as_str(), args.before.as_str(), args.after.as_str()), ("1GiB", "30s", "10s"));
        assert_eq!(
            (args.holdoff, args.dumps_max, args.vlan.as_str()),
            (None, None, "transparent"),
            "what depends on the source"
        );
    }
}
