//! What statistics say, as rows: intervals, traffic of local addresses, flows, losses.
//!
//! Rows carry values, not texts: how an address or a state is spelled is a matter of whoever writes them.

pub use crate::community::CommunityId;
use std::net::IpAddr;
use std::sync::Arc;

/// All packets of one interface and VLAN in one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalRow {
    /// Its begin, ns since the epoch: a multiple of `length_ns`.
    pub ts_ns: i64,
    /// Its length, ns.
    pub length_ns: i64,
    /// The interface's name.
    pub interface: Arc<str>,
    /// The outermost tag's identifier; 0: none.
    pub vlan: u16,
    /// Packets that were received, less what a prefilter refused; also those that the ring dropped.
    pub packets: u64,
    /// Their original frame lengths.
    pub bytes: u64,
    /// Those with an IP header whose addresses were captured.
    pub ip_packets: u64,
    /// Lengths of these by their IP headers.
    pub ip_bytes: u64,
    /// Of the IP packets: frames and frame lengths by protocol. They add up to `ip_packets`.
    pub tcp: Sum,
    /// See `tcp`.
    pub udp: Sum,
    /// ICMP and ICMPv6.
    pub icmp: Sum,
    /// All others.
    pub other: Sum,
    /// Packets that left by the interface.
    pub sent: Sum,
    /// Flows whose first packet lies here.
    pub new_flows: u64,
    /// Packets that are known to be lost in spans that touch it, at most.
    pub lost_max: u64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What one direction of a row of traffic has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Original frame lengths.
    pub bytes: u64,
    /// Lengths by the IP headers.
    pub ip_bytes: u64,
}

/// Whose traffic a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A local address.
    Address(IpAddr),
    /// All addresses that aren't local.
    Others,
    /// Rows that had no place of their own.
    Folded,
}

/// The protocol of a row of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Proto {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// Anything else.
    Other,
}

/// Whether the port of a row of traffic is its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It is the owner's, or both ports are the same.
    Server,
    /// It is the peer's.
    Client,
}

/// What one owner sent and received in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficRow {
    /// The interval's begin, ns since the epoch.
    pub ts_ns: i64,
    /// The interface's name.
    pub interface: Arc<str>,
    /// The outermost tag's identifier; 0: none.
    pub vlan: u16,
    /// The owner.
    pub ip: Owner,
    /// The protocol.
    pub proto: Proto,
    /// The smaller of both ports; 0 from 32768 on, and where there are none.
    pub port: u16,
    /// Whether the port is the owner's.
    pub role: Role,
    /// Received by the owner.
    pub received: Amount,
    /// Sent by the owner.
    pub sent: Amount,
}

/// What one direction of a flow has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Packets.
    pub packets: u64,
    /// Original frame lengths.
    pub bytes: u64,
    /// Lengths by the IP headers.
    pub ip_bytes: u64,
    /// All TCP flags that were seen.
    pub tcp_flags: u8,
    /// The shortest and the longest frame; 0 where there is none.
    pub len_min: u32,
    /// See `len_min`.
    pub len_max: u32,
    /// TCP segments that announce a window of 0, but for resets and SYNs.
    pub zero_windows: u64,
    /// TCP segments with data, SYN or FIN that end at or below the highest sequence number seen.
    pub resent: u64,
}

/// What is known of a TCP connection at the end of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A SYN was seen, and no handshake.
    Opening,
    /// The handshake was seen.
    Open,
    /// One side has ended its half.
    Closing,
    /// Both have.
    Closed,
    /// One side reset it.
    Reset,
    /// Its begin wasn't seen.
    Midstream,
}

/// Why a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing came for so long as `--flow-idle` says.
    Idle,
    /// It lasted longer than `--flow-active`: the flow goes on in the next record.
    Active,
    /// The connection was closed or reset.
    End,
    /// Its place was needed.
    Evicted,
    /// The run ended.
    Stop,
    /// It stands for records that couldn't be written.
    Unwritten,
}

/// A record of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow {
    /// Time of its earliest packet.
    pub start_ns: i64,
    /// Time of its latest packet.
    pub end_ns: i64,
    /// The interface's name.
    pub interface: Arc<str>,
    /// The interface that its other direction came through, if another one.
    pub interface_rev: Option<Arc<str>>,
    /// The outermost tag's identifier; 0: none.
    pub vlan: u16,
    /// The IP protocol's number.
    pub proto: u8,
    /// Whoever sent the SYN, else the first packet. `None`: of a record that stands for others.
    pub source: Option<(IpAddr, u16)>,
    /// The other end.
    pub destination: Option<(IpAddr, u16)>,
    /// From source to destination, and back.
    pub forward: Side,
    /// See `forward`.
    pub reverse: Side,
    /// From SYN to SYN+ACK, and from there to ACK; `None`: not seen, or one of them was resent.
    pub rtt_server_ns: Option<i64>,
    /// See `rtt_server_ns`.
    pub rtt_client_ns: Option<i64>,
    /// Of TCP.
    pub state: Option<State>,
    /// Version 1, seed 0; empty: of a record that stands for others.
    pub community_id: CommunityId,
    /// Why it was written.
    pub reason: Reason,
}

/// Packets that are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossRow {
    /// Begin of the span in which they were lost.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// `None`: of the whole run.
    pub interface: Option<Arc<str>>,
    /// The word for why.
    pub reason: &'static str,
    /// Packets.
    pub packets: u64,
    /// Intervals that begin before this time were written when it became known: their `lost_max` lacks it. 0: none.
    pub late_until_ns: i64,
    /// Files of a folder whose time is before this one have it already; 0: none.
    pub filed_until_ns: i64,
}

/// Everything that is settled and not written yet. Rows of an interval that was written before are added to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Intervals.
    pub intervals: Vec<IntervalRow>,
    /// Traffic of these and other intervals.
    pub traffic: Vec<TrafficRow>,
    /// Records of flows.
    pub flows: Vec<FlowRow>,
    /// What is lost.
    pub losses: Vec<LossRow>,
}

impl Settled {
    /// There is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
            && self.traffic.is_empty()
            && self.flows.is_empty()
            && self.losses.is_empty()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.intervals.len() + self.traffic.len() + self.flows.len() + self.losses.len()
    }
}

impl Proto {
    /// Of an IP protocol's number.
    #[inline]
    pub fn of(number: u8) -> Proto {
        // Looked up, since nobody can guess the next packet's.
        const OF: [Proto; 256] = {
            let mut of = [Proto::Other; 256];
            (of[6], of[17], of[1], of[58]) = (Proto::Tcp, Proto::Udp, Proto::Icmp, Proto::Icmp);
            of
        };
        OF[number as usize]
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Proto::Tcp => "tcp",
            Proto::Udp => "udp",
            Proto::Icmp => "icmp",
            Proto::Other => "other",
        }
    }
}

impl Role {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
        }
    }
}

impl State {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            State::Opening => "opening",
            State::Open => "open",
            State::Closing => "closing",
            State::Closed => "closed",
            State::Reset => "reset",
            State::Midstream => "midstream",
        }
    }
}

impl Reason {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Idle => "idle",
            Reason::Active => "active",
            Reason::End => "end",
            Reason::Evicted => "evicted",
            Reason::Stop => "stop",
            Reason::Unwritten => "unwritten",
        }
    }
}
