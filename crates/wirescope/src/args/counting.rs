//! The flags of a run's statistics.

use super::RunArgs;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// What is counted, and where it goes.
#[derive(Clone, Debug, Default, Args)]
pub struct StatsArgs {
    /// Write traffic statistics into this SQLite database; 'DIR/', a folder that exists: a file by day
    #[arg(long, value_name = "PATH", help_heading = "Traffic statistics", value_hint = ValueHint::AnyPath)]
    pub db: Option<PathBuf>,
    /// Length of an interval of the statistics: it divides a day, and is at least 100ms
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        help_heading = "Traffic statistics",
        allow_hyphen_values = true
    )]
    pub db_interval: String,
    /// How much capture time a file of --db DIR/ has, in UTC: month, day or hour [default: day]
    #[arg(long, value_name = "SPAN", help_heading = "Traffic statistics", value_parser = super::Words(&["month", "day", "hour"]))]
    pub db_every: Option<String>,
    /// Keep so many files of --db DIR/; the oldest closed ones are deleted
    #[arg(long, value_name = "N", help_heading = "Traffic statistics", allow_hyphen_values = true)]
    pub db_keep: Option<String>,
    /// Most bytes that the files of --db DIR/ may take; the oldest closed ones are deleted
    #[arg(long, value_name = "SIZE", help_heading = "Traffic statistics", allow_hyphen_values = true)]
    pub db_budget: Option<String>,
    /// Free space that they leave on their file system, such as 5GiB or 10%; the oldest closed ones are deleted
    #[arg(
        long,
        value_name = "SIZE|PERCENT",
        help_heading = "Traffic statistics",
        allow_hyphen_values = true
    )]
    pub db_min_free: Option<String>,
    /// Write no row for each flow: intervals and traffic only
    #[arg(long, help_heading = "Traffic statistics")]
    pub no_flow_rows: bool,
    /// Rows of traffic in an interval at most; the lightest beyond are folded into sums
    #[arg(
        long,
        value_name = "N",
        default_value = "10000",
        help_heading = "Traffic statistics",
        allow_hyphen_values = true
    )]
    pub traffic_rows: String,
    /// Which addresses have rows of their own: any, or networks such as 10.0.0.0/8,2001:db8::/32 [default: an
    /// interface's own; of files, and where it has none, any]
    #[arg(long, value_name = "NETS", help_heading = "Traffic statistics", allow_hyphen_values = true)]
    pub local: Option<String>,
    /// Flows followed at once; beyond, one that was unseen for long is written and evicted
    #[arg(
        long,
        value_name = "N",
        default_value = "131072",
        help_heading = "Traffic statistics",
        allow_hyphen_values = true
    )]
    pub flows_max: String,
    /// Silence that ends the record of a flow, at most a day
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        help_heading = "Traffic statistics",
        allow_hyphen_values = true
    )]
    pub flow_idle: String,
    /// Longest record of a flow, at most a day; what goes on longer has several
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5min",
        help_heading = "Traffic statistics",
        allow_hyphen_values = true
    )]
    pub flow_active: String,
    /// Send the records of flows to this collector as IPFIX, over UDP
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Traffic statistics", allow_hyphen_values = true)]
    pub ipfix: Option<String>,
}

/// Bytes of a packet that statistics need.
const SNAP_LEN: &str = "256";

impl RunArgs {
    /// The same for 'wirescope stats': what isn't given is as statistics alone need it.
    pub fn of_stats(self) -> RunArgs {
        // Generated packets are never truncated.
        let are_generated = self.source.iter().any(|source| source.starts_with("synth"));
        let default = (!are_generated).then(|| SNAP_LEN.to_string());
        let snap_len = self.snap_len.clone().or(default);
        RunArgs { is_stats: true, snap_len, ..self }
    }
}

impl StatsArgs {
    /// Something is counted.
    pub fn are_wanted(&self) -> bool {
        self.db.is_some() || self.ipfix.is_some()
    }
}
