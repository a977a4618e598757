//! The flags of the commands that ask statistics.

use super::Words;
use crate::help;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `wirescope stats`.
#[derive(Debug, Subcommand)]
pub enum StatsVerb {
    /// The addresses, ports, pairs of addresses or VLANs with the most traffic
    Top(StatsTopArgs),
    /// Answer one SELECT, for reading only
    Sql(StatsSqlArgs),
    /// List the files of a database, the oldest first
    Files(StatsFilesArgs),
    /// Copy one file, whole, also while a run writes it
    Copy(StatsCopyArgs),
    /// Write all tables as files for other programs, by date and hour
    Export(StatsExportArgs),
}

/// `wirescope stats top`.
#[derive(Debug, Args)]
#[command(after_help = help::STATS_EXAMPLES)]
pub struct StatsTopArgs {
    /// The file that a run was given as --db, or the folder of such files
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub db: PathBuf,
    /// What they have most of
    #[arg(long, value_name = "WHAT", default_value = "bytes", value_parser = Words(&["bytes", "packets", "flows"]))]
    pub by: String,
    /// What is compared; a port is the smaller one of both, 0 from 32768 on
    #[arg(long, value_name = "WHAT", default_value = "ip", value_parser = Words(&["ip", "port", "pair", "vlan"]))]
    pub dim: String,
    /// So far back from the end of the newest interval; an interval that is touched counts as a whole
    #[arg(long, value_name = "TIME", default_value = "180s", allow_hyphen_values = true)]
    pub last: String,
    /// Lines at most
    #[arg(short = 'n', long, value_name = "N", default_value = "10", allow_hyphen_values = true)]
    pub limit: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wirescope stats sql`.
#[derive(Debug, Args)]
#[command(after_help = help::STATS_SQL_EXAMPLES)]
pub struct StatsSqlArgs {
    /// One SELECT on the tables intervals, traffic, flows, losses and runs; over a folder on those of all files
    #[arg(value_name = "SQL")]
    pub sql: String,
    /// The file that a run was given as --db, or the folder of such files
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub db: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wirescope stats files`.
#[derive(Debug, Args)]
#[command(after_help = help::STATS_EXAMPLES)]
pub struct StatsFilesArgs {
    /// The file that a run was given as --db, or the folder of such files
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub db: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wirescope stats copy`.
#[derive(Debug, Args)]
#[command(after_help = help::STATS_EXAMPLES)]
pub struct StatsCopyArgs {
    /// Which file, as 'stats files' shows it
    #[arg(value_name = "ID")]
    pub id: String,
    /// The file that a run was given as --db, or the folder of such files
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub db: PathBuf,
    /// The new file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
}

/// `wirescope stats export`.
#[derive(Debug, Args)]
#[command(after_help = help::STATS_EXPORT_EXAMPLES)]
pub struct StatsExportArgs {
    /// The file that a run was given as --db, or the folder of such files
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub db: PathBuf,
    /// The folder for TABLE/date=D/hour=H/, which must exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// The form of the files
    #[arg(long, value_name = "FORM", default_value = "parquet", value_parser = Words(&["parquet", "csv", "jsonl"]))]
    pub format: String,
    /// From the hour of this time on, such as 2026-11-20T20:31:05Z, '2026-11-20 20:31', 20:31, -5m or @1795206665.5
    /// [default: the first row]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Up to the hour of this time, which belongs to it [default: the last row]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
}

/// `wirescope flows`.
#[derive(Debug, Args)]
#[command(after_help = help::FLOWS_EXAMPLES)]
pub struct FlowsArgs {
    /// Which flows, in the language of tcpdump: by hosts, nets, ports, protocols and VLAN; several words are one filter
    /// [default: all]
    #[arg(value_name = "EXPR")]
    pub expression: Vec<String>,
    /// The file that a run was given as --db, or the folder of such files
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub db: PathBuf,
    /// Those that were there at this time or later, such as 2026-11-20T20:31:05Z, '2026-11-20 20:31', 20:31, -5m or
    /// @1795206665.5 [default: the first one]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Those that had begun by this time [default: the last one]; --follow ends then
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Go on with those that are written from now on; without --from with these alone
    #[arg(long)]
    pub follow: bool,
    /// The form: a line each for people, a JSON object a line, or CSV
    #[arg(long, value_name = "FORM", default_value = "table", value_parser = Words(&["table", "jsonl", "csv"]))]
    pub format: String,
}
