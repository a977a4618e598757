//! The flags of the commands that try scripts outside of a run.

use crate::help;
use clap::{Args, Subcommand, ValueHint};
use scope_fault::Fault;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Texts of scripts that were read, or why one couldn't be, by file.
pub type ScriptTexts = BTreeMap<String, Result<String, Fault>>;

/// `wirescope script`.
#[derive(Debug, Subcommand)]
pub enum ScriptVerb {
    /// Load scripts, and run them over built-in packets of every kind
    Check(ScriptCheckArgs),
    /// Run a script over a capture file: what it would have fired, and its time per packet
    Run(ScriptRunArgs),
    /// Write example scripts into a folder
    Examples {
        /// The folder, made if it is missing. A file that is there stays as it is
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// What a script may take.
#[derive(Debug, Args)]
pub struct ScriptBoundsArgs {
    /// How long the script may take to load, or for one batch of packets
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    pub script_timeout: String,
    /// Memory of its Lua state
    #[arg(long, value_name = "SIZE", default_value = "256MiB", allow_hyphen_values = true)]
    pub script_memory: String,
}

/// `wirescope script check`.
#[derive(Debug, Args)]
#[command(after_help = help::SCRIPT_CHECK_EXAMPLES)]
pub struct ScriptCheckArgs {
    /// The scripts
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// They have to be dump scripts [default: whichever each is]
    #[arg(long)]
    pub dump: bool,
    #[command(flatten)]
    pub bounds: ScriptBoundsArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wirescope script run`.
#[derive(Debug, Args)]
#[command(after_help = help::SCRIPT_RUN_EXAMPLES)]
pub struct ScriptRunArgs {
    /// The script
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// A capture file, also compressed with gzip, zstd or lz4; '-' is standard input; may be given several times
    #[arg(short = 'r', long, value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    pub read: Vec<String>,
    /// It is a dump script: count the packets that it keeps
    #[arg(long)]
    pub dump: bool,
    /// The packet that fires the dump, from 1; 0: it is fired by hand [default: 1]
    #[arg(long, value_name = "N", requires = "dump", allow_hyphen_values = true)]
    pub fire: Option<String>,
    /// List at most so many hits; all are counted
    #[arg(
        long,
        value_name = "N",
        default_value = "1000",
        conflicts_with = "dump",
        allow_hyphen_values = true
    )]
    pub hits_max: String,
    #[command(flatten)]
    pub bounds: ScriptBoundsArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
