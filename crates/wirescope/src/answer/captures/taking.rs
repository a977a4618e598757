//! What capture files give to an answer: packets inside of its span that one of its filters matches, sorted.
//!
//! ```text
//! batch ─► heard ─► inside the span? ─► parsed, by link type ─► one of the filters? ─► order ─► sorter
//! ```
//! A lane for each link type, interfaces numbered through over all sources. Where packets come in order and have no
//! room, they may be left where they are: only their order is followed then.

use scope_filter::{Filter, FilterInput, Predicate};
use scope_packet::pcapng::{self, PacketHead};
use scope_packet::{BATCH_PACKETS_MAX, Gap, Interface, LinkType, Packet, Parsed, Sink};
use scope_ring::InterfaceEntry;
use scope_store::head::HeadInterface;
use scope_store::sorter::{Sorted, Sorter};
use scope_store::timeline::Span;
use std::io;

/// Packets of one link type.
struct Lane {
    link_type: LinkType,
    /// One for each filter.
    predicates: Vec<Predicate>,
}

/// The sink that keeps what may belong to the answer.
pub struct Taking {
    filters: Vec<Filter>,
    span: Span,
    lanes: Vec<Lane>,
    /// By number.
    pub interfaces: Vec<HeadInterface>,
    /// By the number of an interface.
    lane_of: Vec<u32>,
    /// The number of the source's first interface.
    base: u32,
    /// Of the next batch.
    comments: Vec<(usize, String)>,
    parsed: Box<Parsed>,
    /// `None`: packets are left where they are.
    sorter: Option<Sorter>,
    may_leave: bool,
    /// Time and lane of the packet that was taken last, and whether none stood before the one in front of it.
    last: Option<(i64, u32)>,
    is_ordered: bool,
    /// What the files say that they lack.
    pub gaps: Vec<Gap>,
    /// Smallest and largest time of all packets.
    pub heard: Option<(i64, i64)>,
    /// Packets that came.
    pub packets: u64,
    /// Those that were taken.
    pub taken: u64,
    /// Why nothing more is taken.
    pub error: Option<io::Error>,
}

impl Taking {
    /// Of what comes, the packets in `span` that one of `filters` matches go into `sorter`. `may_leave`: if they have
    /// no room there and come in order, they are left where they are.
    pub fn new(filters: Vec<Filter>, span: Span, sorter: Sorter, may_leave: bool) -> Taking {
        Taking {
            filters,
            span,
            lanes: Vec::new(),
            interfaces: Vec::new(),
            lane_of: Vec::new(),
            base: 0,
            comments: Vec::new(),
            parsed: Box::default(),
            sorter: Some(sorter),
            may_leave,
            last: None,
            is_ordered: true,
            gaps: Vec::new(),
            heard: None,
            packets: 0,
            taken: 0,
            error: None,
        }
    }

    /// Another source begins.
    pub fn begin_source(&mut self) {
        self.base = self.interfaces.len() as u32;
    }

    /// Bytes of packets in memory.
    pub fn bytes(&self) -> usize {
        self.sorter.as_ref().map_or(0, Sorter::bytes)
    }

    /// Whether no packet that was taken stood before the one in front of it.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// The link types of the lanes.
    pub fn link_types(&self) -> Vec<LinkType> {
        self.lanes.iter().map(|lane| lane.link_type).collect()
    }

    /// What came by now, sorted; `None`: it was left where it is, or there is an error.
    pub fn sorted(&mut self) -> Option<Sorted> {
        let sorter = self.sorter.as_mut().filter(|_| self.error.is_none())?;
        match sorter.take() {
            Ok(sorted) => Some(sorted),
            Err(error) => {
                self.no_room(error);
                None
            }
        }
    }

    fn no_room(&mut self, error: io::Error) {
        match self.may_leave && self.is_ordered {
            true => self.sorter = None,
            false => self.error = Some(error),
        }
    }

    fn lane(&mut self, link_type: LinkType) -> u32 {
        if let Some(known) = self.lanes.iter().position(|lane| lane.link_type == link_type) {
            return known as u32;
        }
        let predicates: Vec<Predicate> =
            self.filters.iter().map(|filter| filter.for_link(link_type)).collect();
        for predicate in &predicates {
            // Where no machine code can be made it is interpreted, which is slower and says the same.
            let _ = predicate.make_native();
        }
        self.lanes.push(Lane { link_type, predicates });
        self.lanes.len() as u32 - 1
    }

    /// Takes what may belong to the answer.
    fn take(&mut self, packets: &[Packet<'_>]) -> io::Result<()> {
        self.packets += packets.len() as u64;
        let mut asked = [FilterInput::default(); BATCH_PACKETS_MAX];
        let mut taken = 0;
        let mut rest = self.inside(packets);
        while rest != 0 {
            let lane = self.lane_of[self.number(&packets[rest.trailing_zeros() as usize])];
            let is_of_lane = |at: &usize| self.lane_of[self.number(&packets[*at])] == lane;
            let which = bits(rest).filter(is_of_lane).fold(0, |which, at| which | 1 << at);
            rest &= !which;
            let Lane { link_type, predicates } = &self.lanes[lane as usize];
            self.parsed.parse(*link_type, which, |at| packets[at].data);
            for at in bits(which) {
                let Packet { data, original_len, .. } = packets[at];
                let (tags, key) = (self.parsed.vlan_tags(at), *self.parsed.key(at));
                asked[at] = FilterInput::tagged(tags, key, data, original_len);
            }
            let asked = &asked[..packets.len()];
            taken |=
                predicates.iter().fold(0, |hits, predicate| hits | predicate.matches_batch(asked, which));
        }
        self.taken += u64::from(taken.count_ones());
        bits(taken).try_for_each(|at| self.keep(at, &packets[at]))
    }

    fn number(&self, packet: &Packet<'_>) -> usize {
        (self.base + packet.interface) as usize
    }

    /// Which packets lie in the span, a bit each.
    fn inside(&mut self, packets: &[Packet<'_>]) -> u64 {
        let (mut min_ns, mut max_ns) = self.heard.unwrap_or((i64::MAX, i64::MIN));
        let mut inside = 0;
        for (at, packet) in packets.iter().enumerate() {
            let time_ns = packet.time_ns;
            (min_ns, max_ns) = (min_ns.min(time_ns), max_ns.max(time_ns));
            inside |= u64::from((self.span.from_ns..=self.span.to_ns).contains(&time_ns)) << at;
        }
        self.heard = Some((min_ns, max_ns));
        inside
    }

    /// Keeps a packet of the batch that was parsed.
    fn keep(&mut self, at: usize, packet: &Packet<'_>) -> io::Result<()> {
        let number = self.number(packet);
        let lane = self.lane_of[number];
        let place = (packet.time_ns, lane);
        self.is_ordered &= self.last.is_none_or(|last| last <= place);
        self.last = Some(place);
        let Some(sorter) = &mut self.sorter else {
            return if self.is_ordered { Ok(()) } else { Err(io::Error::other("packets aren't in order")) };
        };
        let head = PacketHead {
            interface: number as u32,
            time_ns: packet.time_ns,
            captured_len: packet.data.len() as u32,
            original_len: packet.original_len,
            flags: packet.flags,
            lost_before: packet.lost_before,
        };
        let write = |out: &mut Vec<u8>| {
            let begin = out.len();
            out.resize(begin + head.block_bytes(), 0);
            head.write(&mut out[begin..], packet.data);
        };
        let comments = self.comments.iter().filter(|(of, _)| *of == at).map(|(_, text)| text.as_str());
        let has_comments = comments.clone().next().is_some();
        sorter.push(lane, packet.time_ns, *self.parsed.key(at), |out| {
            if !has_comments {
                return write(out);
            }
            let mut block = Vec::new();
            write(&mut block);
            pcapng::commented(out, &block, comments);
        })
    }
}

/// The numbers of the bits.
fn bits(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        at
    })
}

impl Sink for Taking {
    fn interface(&mut self, interface: &Interface) {
        let lane = self.lane(interface.link_type);
        let InterfaceEntry { name, description, link_type, .. } = InterfaceEntry::of(lane, interface);
        self.interfaces.push(HeadInterface { name, description, link_type });
        self.lane_of.push(lane);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        if self.error.is_none()
            && let Err(error) = self.take(packets)
        {
            self.no_room(error);
        }
        self.comments.clear();
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {} // live sources

    fn gap(&mut self, _: u32, gap: Gap) {
        self.gaps.push(gap);
    }

    fn comments(&mut self, comments: &[(usize, &str)]) {
        self.comments = comments.iter().map(|(at, text)| (*at, text.to_string())).collect();
    }

    fn idle(&mut self, _: i64) {}
}
