//! The flags of the commands that read the packets of a running instance.

use super::Words;
use crate::help;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Which run, and as whom.
#[derive(Debug, Args)]
pub struct MemberArgs {
    /// The socket that the run was given as --attach [default: /run/wirescope/attach, the service's]
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub attach: Option<PathBuf>,
    /// Begin with what came in this time before, as far as the ring reaches back; of ring only [default: with what comes from now on]
    #[arg(long, value_name = "TIME")]
    pub past: Option<String>,
    /// Take the packets of this class, which rules of the group give, and none of the others
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Its share of the group's packets, against that of other members: 1 to 100 [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub weight: Option<String>,
    /// How the run calls this reader [default: tap, or what the program is called]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `wirescope tap`.
#[derive(Debug, Args)]
#[command(after_help = help::TAP_EXAMPLES)]
pub struct TapArgs {
    /// The group to read; ring is all that the instance records, in place
    #[arg(value_name = "GROUP")]
    pub group: String,
    /// Write only packets that match, in the language of tcpdump
    #[arg(short = 'f', long, value_name = "EXPR")]
    pub filter: Option<String>,
    #[command(flatten)]
    pub member: MemberArgs,
    /// End after so many packets
    #[arg(short = 'c', long, value_name = "N")]
    pub count: Option<String>,
    /// The new file, or a pipe that is there; '-' is standard output [default: '-']
    #[arg(short = 'w', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
    /// The form: pcapng, or pcap, which can't say what is missing [default: pcapng, or pcap for FILE.pcap]
    #[arg(long, value_name = "FORM", value_parser = Words(&["pcapng", "pcap"]))]
    pub format: Option<String>,
}

/// `wirescope with`.
#[derive(Debug, Args)]
#[command(after_help = help::WITH_EXAMPLES)]
pub struct WithArgs {
    /// The group to read, and how many copies of the program are to share it; ring is all that the instance records
    #[arg(value_name = "GROUP[*N]")]
    pub group: String,
    #[command(flatten)]
    pub member: MemberArgs,
    /// The program and its arguments; %m in them becomes the number of the copy, from 0
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}
