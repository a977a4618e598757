//! The flags of the command that sends packets.

use super::Words;
use crate::help;
use clap::Args;

/// `wirescope send`.
#[derive(Debug, Args)]
#[command(after_help = help::SEND_EXAMPLES)]
pub struct SendArgs {
    /// A capture file or generated traffic, as for run: file:PATH, file:PATH,pace=1 or synth:rate=10k,time=5s
    #[arg(long, value_name = "SRC", required = true)]
    pub source: String,
    /// The interface that packets are sent out of
    #[arg(long, value_name = "IFACE", required = true)]
    pub to: String,
    /// Threads that send, each with a socket and a processor of its own; a flow goes through one of them
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub queues: String,
    /// Send so many packets/s, evenly [default: the source's pace=]
    #[arg(long, value_name = "PPS", allow_hyphen_values = true)]
    pub rate: Option<String>,
    /// Read the source so many times
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub loops: String,
    /// What stands for bytes that were not captured: zero, up to the packet's length on the wire, or none
    #[arg(long, value_name = "WITH", default_value = "zero", value_parser = Words(&["zero", "none"]))]
    pub pad: String,
    /// Print the summary as one JSON object
    #[arg(long, value_name = "FORM", value_parser = Words(&["json"]))]
    pub summary: Option<String>,
}
