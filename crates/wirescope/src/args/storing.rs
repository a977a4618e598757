//! The flags of the commands on stores and captures: what is in them, out of them, into them.

use super::{DoorArgs, Words};
use crate::help;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `wirescope store`.
#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// List runs, files, what is missing in them, and holds
    List(StoreListArgs),
}

/// `wirescope store list`.
#[derive(Debug, Args)]
#[command(after_help = help::STORE_EXAMPLES)]
pub struct StoreListArgs {
    /// The folder that a run was given as --store; may be given several times
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required = true)]
    pub store: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wirescope export`.
#[derive(Debug, Args)]
#[command(after_help = help::EXPORT_EXAMPLES)]
pub struct ExportArgs {
    /// The folder that a run was given as --store; may be given several times
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required = true)]
    pub store: Vec<PathBuf>,
    /// From this time on, such as 2026-11-20T20:31:05Z, '2026-11-20 20:31', 20:31, -5m or @1795206665.5
    /// [default: the first packet]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Up to this time, which belongs to the span [default: the last packet]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// The new file; '-' is standard output. It holds one link type: others go into FILE_LINKTYPE
    #[arg(short = 'w', long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub write: PathBuf,
    /// Begin a new file at this size, such as 1GiB, or after this time, such as 60s: FILE_00001 and so on
    #[arg(long, value_name = "SIZE|TIME")]
    pub split: Option<String>,
    /// The form of the files: pcapng, pcap or hpcap [default: pcapng, or pcap for FILE.pcap]
    #[arg(long, value_name = "FORM", value_parser = Words(&["pcapng", "pcap", "hpcap"]))]
    pub format: Option<String>,
}

/// `wirescope query`.
#[derive(Debug, Args)]
#[command(after_help = help::QUERY_EXAMPLES)]
pub struct QueryArgs {
    /// Which packets, in the language of tcpdump; several words are one filter [default: all]
    #[arg(value_name = "EXPR")]
    pub expression: Vec<String>,
    /// The folder that a run was given as --store; may be given several times
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Where to look")]
    #[arg(conflicts_with = "url")]
    pub store: Vec<PathBuf>,
    /// A capture file, also compressed with gzip, zstd or lz4; '-' is standard input; may be given several times
    #[arg(short = 'r', long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Where to look")]
    #[arg(conflicts_with = "url")]
    pub read: Vec<String>,
    /// Ask the run that goes with this control socket: out of its ring and its stores
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = "Where to look")]
    #[arg(conflicts_with_all = ["store", "read", "explain"])]
    pub control: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Where to look")]
    pub door: DoorArgs,
    /// From this time on, such as 2026-11-20T20:31:05Z, '2026-11-20 20:31', 20:31, -5m or @1795206665.5
    /// [default: the first packet]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "When")]
    pub from: Option<String>,
    /// Up to this time, which belongs to the span [default: the last packet]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "When")]
    pub to: Option<String>,
    /// Around this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    #[arg(help_heading = "When")]
    pub at: Option<String>,
    /// So long before and after the time of --at, such as 30s
    #[arg(long, value_name = "TIME", requires = "at", allow_hyphen_values = true, help_heading = "When")]
    pub within: Option<String>,
    /// Only packets near to one of the span that matches this filter; EXPR says which of them
    #[arg(long, value_name = "EXPR", help_heading = "When")]
    pub around: Option<String>,
    /// In the window of this dump, a pcapng file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "When")]
    #[arg(conflicts_with_all = ["from", "to", "at", "around"])]
    pub around_dump: Option<PathBuf>,
    /// How long before each packet of --around [default: 30s], or before the window of --around-dump [default: 0]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "When")]
    pub before: Option<String>,
    /// How long behind each packet of --around [default: 10s], or behind the window of --around-dump [default: 0]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "When")]
    pub after: Option<String>,
    /// Write the packets into this new file; '-' is standard output, the default unless that is a terminal
    #[arg(short = 'w', long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Answer")]
    pub write: Option<PathBuf>,
    /// The form of packets: pcapng, pcap, or json, an object a line
    /// [default: pcapng, pcap for FILE.pcap; on a terminal a line each]
    #[arg(long, value_name = "FORM", value_parser = Words(&["pcapng", "pcap", "json"]), help_heading = "Answer")]
    pub format: Option<String>,
    /// Count the packets, and write none
    #[arg(long, conflicts_with_all = ["write", "format", "limit"], help_heading = "Answer")]
    pub count: bool,
    /// The hosts, ports, pairs of hosts or protocols with the most packets
    #[arg(long, value_name = "WHAT", value_parser = Words(&["host", "port", "pair", "proto"]))]
    #[arg(conflicts_with_all = ["write", "format", "count"], help_heading = "Answer")]
    pub top: Option<String>,
    /// Packets and bytes by steps of time, with what is missing in each
    #[arg(long, conflicts_with_all = ["write", "format", "count", "top", "limit"], help_heading = "Answer")]
    pub timeline: bool,
    /// The length of a step, such as 1s [default: about 20 steps]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Answer")]
    pub step: Option<String>,
    /// Write a count, a top list or a timeline as JSON
    #[arg(long, help_heading = "Answer")]
    pub json: bool,
    /// At most so many lines; all packets are counted [default: 50 on a terminal, 20 with --top]
    #[arg(long, value_name = "N", help_heading = "Answer")]
    pub limit: Option<u64>,
    /// Say what was read for the answer, and what was skipped
    #[arg(long, help_heading = "Answer", conflicts_with = "url")]
    pub explain: bool,
    /// Threads that read, 1 to 64 [default: as many as there are processors]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Means")]
    pub threads: Option<String>,
    /// Memory for packets on their way, at least 64MiB [default: 256MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, help_heading = "Means")]
    pub memory: Option<String>,
    /// Folder for temporary files, which have no name [default: TMPDIR, else /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Means")]
    pub tmp: Option<PathBuf>,
}

/// `wirescope import`.
#[derive(Debug, Args)]
#[command(after_help = help::IMPORT_EXAMPLES)]
pub struct ImportArgs {
    /// Capture files, also compressed with gzip, zstd or lz4; '-' is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "source")]
    pub files: Vec<String>,
    /// A file of another form, such as file:x.raw,format=hpcap,link=ethernet; may be given several times
    #[arg(long, value_name = "SRC")]
    pub source: Vec<String>,
    /// The folder of the store, made if it is missing; may be given several times: they share the load
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required = true)]
    pub store: Vec<PathBuf>,
    /// Import a file although its bytes were imported before
    #[arg(long)]
    pub again: bool,
    /// As with 'wirescope run': what the store may take; beyond that its oldest files are deleted
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub store_budget: Vec<String>,
    /// As with 'wirescope run': how far back the store reaches; older files are deleted
    #[arg(long, value_name = "TIME")]
    pub store_age: Vec<String>,
    /// As with 'wirescope run': what stays free on the file system
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub store_min_free: Vec<String>,
    /// As with 'wirescope run': the longest file of the store
    #[arg(long, value_name = "SIZE")]
    pub store_file: Vec<String>,
    /// As with 'wirescope run': chain the hashes of the store's files
    #[arg(long)]
    pub store_chain: bool,
    /// Memory for packets on their way to the disk [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub ring: Option<String>,
    /// Folder for the log wirescope.jsonl, which has each deletion; it must exist [default: no log]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wirescope hold`.
#[derive(Debug, Subcommand)]
pub enum HoldVerb {
    /// Hold a span: files that overlap it are not deleted, whoever runs
    #[command(after_help = help::HOLD_ADD_EXAMPLES)]
    Add(HoldAddArgs),
    /// List the holds of a store
    List {
        /// The folder of the store
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        store: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove a hold: the bounds of the store apply to its files again
    Remove {
        /// Its number, as 'hold list' shows it
        #[arg(value_name = "ID")]
        id: String,
        /// The folder of the store
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        store: PathBuf,
    },
}

/// `wirescope hold add`.
#[derive(Debug, Args)]
pub struct HoldAddArgs {
    /// The folder of the store
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store: PathBuf,
    /// The begin of the span
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub from: String,
    /// The end of the span, which belongs to it
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub to: String,
    /// What it is for, at most 200 letters
    #[arg(long, value_name = "TEXT")]
    pub note: String,
}

/// `wirescope verify`.
#[derive(Debug, Args)]
#[command(after_help = help::VERIFY_EXAMPLES)]
pub struct VerifyArgs {
    /// Stores (folders), captures (dumps, files of a store, any pcap or pcapng file), or audits: audit.jsonl, of
    /// several the oldest first
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// A head of a store's chain, or a hash of an audit, that was noted earlier: every line up to it must be
    /// there, unchanged; may be given several times
    #[arg(long, value_name = "HEAD")]
    pub expect: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
