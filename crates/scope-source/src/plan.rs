//! Sources as they are meant: what [`spec`](crate::spec) reads from a text, and what opening one needs.

use crate::synth::SynthOptions;
use scope_machine::cpus::Placement;
use scope_packet::LinkType;

/// Percent of the ring that the shares of all sources together may have.
pub const SHARES_MAX: u32 = 90;

/// Live capture as meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketPlan {
    /// Name of the interface, or a pattern: each `*` stands for any letters.
    pub interface: String,
    /// How many workers share it; 0: one that all sources with 0 share.
    pub workers: u32,
    /// Spare sockets of each worker; `None`: as many as are needed.
    pub spares: Option<u32>,
    /// Bytes kept of each packet; `None`: all.
    pub snap_len: Option<u32>,
    /// Also capture packets for other hosts.
    pub promiscuous: bool,
    /// Bytes of a block of the kernel's ring; `None`: chosen from the link's speed.
    pub block_bytes: Option<u32>,
    /// Blocks of each worker's ring; `None`: chosen.
    pub blocks: Option<u32>,
    /// Longest that the kernel keeps a block with packets, ms; `None`: chosen.
    pub timeout_ms: Option<u32>,
    /// Omit the ssh session that this program was started from.
    pub exclude_self: bool,
    /// Only packets that arrive, none that leave by it.
    pub only_in: bool,
}

impl AfPacketPlan {
    /// The defaults for `interface`.
    pub fn new(interface: &str) -> AfPacketPlan {
        AfPacketPlan {
            interface: interface.to_string(),
            workers: 1,
            spares: None,
            snap_len: None,
            promiscuous: true,
            block_bytes: None,
            blocks: None,
            timeout_ms: None,
            exclude_self: false,
            only_in: false,
        }
    }
}

/// Live capture through libpcap as meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapPlan {
    /// Name of the interface, as libpcap knows it.
    pub interface: String,
    /// Bytes kept of each packet; `None`: all.
    pub snap_len: Option<u32>,
    /// Also capture packets for other hosts.
    pub promiscuous: bool,
    /// Longest that the system holds packets back, ms.
    pub timeout_ms: u32,
    /// The system's memory for packets that wait, bytes.
    pub buffer_bytes: u32,
    /// Omit the ssh session that this program was started from.
    pub exclude_self: bool,
    /// Only packets that arrive, none that leave by it.
    pub only_in: bool,
}

/// Of which form a capture file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileForm {
    /// pcap or pcapng, known by its first bytes.
    #[default]
    Detected,
    /// HPCAP's raw records, all of this link type.
    Hpcap(LinkType),
}

/// A capture file as meant.
#[derive(Clone, Debug, PartialEq)]
pub struct FilePlan {
    /// Path; `-` is standard input.
    pub path: String,
    /// Of which form it is.
    pub form: FileForm,
    /// Multiple of the recorded pace, finite and above 0; `None`: as fast as it goes.
    pub pace: Option<f64>,
    /// How many workers share it.
    pub workers: u32,
    /// Bytes kept of each packet; `None`: all.
    pub snap_len: Option<u32>,
}

/// A source as meant, and what it is given of the ring.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    /// The source.
    pub plan: SourcePlan,
    /// Percent of the ring that no other source evicts, 1 to [`SHARES_MAX`]; `None`: it shares the rest with
    /// all others.
    pub share: Option<u32>,
    /// Only packets that match this filter are recorded; `None`: all.
    pub prefilter: Option<String>,
    /// Where its workers run.
    pub placement: Placement,
}

/// A source as meant.
#[derive(Clone, Debug, PartialEq)]
pub enum SourcePlan {
    /// Live capture.
    AfPacket(AfPacketPlan),
    /// Live capture through libpcap.
    Pcap(PcapPlan),
    /// A capture file.
    File(FilePlan),
    /// Generated traffic.
    Synth(SynthOptions),
}

impl SourcePlan {
    /// The interface, or the pattern of interfaces, that it captures; `None`: it captures none.
    pub fn interface(&self) -> Option<&str> {
        match self {
            SourcePlan::AfPacket(plan) => Some(&plan.interface),
            SourcePlan::Pcap(plan) => Some(&plan.interface),
            SourcePlan::File(_) | SourcePlan::Synth(_) => None,
        }
    }

    /// The capture file that it reads.
    pub fn file(&self) -> Option<&FilePlan> {
        match self {
            SourcePlan::File(plan) => Some(plan),
            SourcePlan::AfPacket(_) | SourcePlan::Pcap(_) | SourcePlan::Synth(_) => None,
        }
    }

    /// Whether its packets come when they come, or can wait.
    pub fn is_live(&self) -> bool {
        match self {
            SourcePlan::AfPacket(_) | SourcePlan::Pcap(_) => true,
            SourcePlan::File(_) => false,
            SourcePlan::Synth(options) => !options.pace_max,
        }
    }

    /// Bytes that it is to keep of a packet; `None`: all.
    pub fn snap_len(&self) -> Option<u32> {
        let snap_len = match self {
            SourcePlan::AfPacket(plan) => plan.snap_len,
            SourcePlan::Pcap(plan) => plan.snap_len,
            SourcePlan::File(plan) => plan.snap_len,
            SourcePlan::Synth(_) => None,
        };
        snap_len.filter(|&bytes| bytes > 0)
    }

    /// The same, to be set; `None`: it makes whole packets.
    pub fn snap_len_mut(&mut self) -> Option<&mut Option<u32>> {
        match self {
            SourcePlan::AfPacket(plan) => Some(&mut plan.snap_len),
            SourcePlan::Pcap(plan) => Some(&mut plan.snap_len),
            SourcePlan::File(plan) => Some(&mut plan.snap_len),
            SourcePlan::Synth(_) => None,
        }
    }

    /// Whether it also captures packets for other hosts; `None`: it captures none.
    pub fn promiscuous(&self) -> Option<bool> {
        match self {
            SourcePlan::AfPacket(plan) => Some(plan.promiscuous),
            SourcePlan::Pcap(plan) => Some(plan.promiscuous),
            SourcePlan::File(_) | SourcePlan::Synth(_) => None,
        }
    }

    /// Whether it captures only packets that arrive at its interface; false where it captures none.
    pub fn is_only_in(&self) -> bool {
        match self {
            SourcePlan::AfPacket(plan) => plan.only_in,
            SourcePlan::Pcap(plan) => plan.only_in,
            SourcePlan::File(_) | SourcePlan::Synth(_) => false,
        }
    }

    /// Whether it omits this program's own traffic.
    pub fn excludes_self(&self) -> bool {
        match self {
            SourcePlan::AfPacket(plan) => plan.exclude_self,
            SourcePlan::Pcap(plan) => plan.exclude_self,
            SourcePlan::File(_) | SourcePlan::Synth(_) => false,
        }
    }

    /// Makes it omit that; false where it captures no interface, and so can't.
    pub fn exclude_self(&mut self) -> bool {
        match self {
            SourcePlan::AfPacket(plan) => plan.exclude_self = true,
            SourcePlan::Pcap(plan) => plan.exclude_self = true,
            SourcePlan::File(_) | SourcePlan::Synth(_) => return false,
        }
        true
    }

    /// How many workers of its own poll it; 0: one that it shares.
    pub fn workers(&self) -> u32 {
        match self {
            SourcePlan::AfPacket(plan) => plan.workers,
            SourcePlan::Pcap(_) => 1,
            SourcePlan::File(plan) => plan.workers,
            SourcePlan::Synth(options) => options.workers,
        }
    }
}
