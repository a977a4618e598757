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
use scope_store::timeline::{Counted, Span};
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
    keeping: Keeping,
    /// Time and lane of the packet that was taken last, and whether none stood before the one in front of it.
    last: Option<(i64, u32)>,
    is_ordered: bool,
    /// What the files say that they lack.
    pub gaps: Vec<Gap>,
    /// Smallest and largest time of all packets.
    pub heard: Option<(i64, i64)>,
    /// Packets that came.
    pub packets: u64,
    /// Those that were taken: how many, their bytes, from when to when.
    pub taken: Counted,
    /// Why nothing more is taken.
    pub error: Option<io::Error>,
}

/// What becomes of the packets that are taken.
pub enum Keeping {
    /// They are counted, no more.
    Count,
    /// They are sorted.
    Sort(Sorter),
    /// They are sorted. If they have no room, and come in order, they are left.
    SortOrLeave(Sorter),
    /// They are in order, and left where they are.
    Leave,
}

impl Taking {
    /// Takes the packets in `span` that one of `filters` matches.
    pub fn new(filters: Vec<Filter>, span: Span, keeping: Keeping) -> Taking {
        Taking {
            filters,
            span,
            lanes: Vec::new(),
            interfaces: Vec::new(),
            lane_of: Vec::new(),
            base: 0,
            comments: Vec::new(),
            parsed: Box::default(),
            keeping,
            last: None,
            is_ordered: true,
            gaps: Vec::new(),
            heard: None,
            packets: 0,
            taken: Counted::default(),
            error: None,
        }
    }

    /// Another source begins.
    pub fn begin_source(&mut self) {
        self.base = self.interfaces.len() as u32;
    }

    /// Bytes of packets in memory.
    pub fn bytes(&self) -> usize {
        match &self.keeping {
            Keeping::Sort(sorter) | Keeping::SortOrLeave(sorter) => sorter.bytes(),
            Keeping::Count | Keeping::Leave => 0,
        }
    }

    /// Whether no packet that was taken stood before the one in front of it.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// The link types of the lanes.
    pub fn link_types(&self) -> Vec<LinkType> {
        self.lanes.iter().map(|lane| lane.link_type).collect()
    }

    /// What came by now, sorted; `None`: it isn't kept, or there is an error.
    pub fn sorted(&mut self) -> Option<Sorted> {
        let (Keeping::Sort(sorter) | Keeping::SortOrLeave(sorter)) = &mut self.keeping else { return None };
        let sorted = sorter.take();
        self.leave(sorted).unwrap_or_else(|error| {
            self.error = Some(error);
            None
        })
    }

    /// What was kept; `None`: it had no room, and is left.
    fn leave<T>(&mut self, kept: io::Result<T>) -> io::Result<Option<T>> {
        if kept.is_err() && self.is_ordered && matches!(self.keeping, Keeping::SortOrLeave(_)) {
            self.keeping = Keeping::Leave;
            return Ok(None);
        }
        kept.map(Some)
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
        let Counted { packets, bytes, span_ns } = &mut self.taken;
        let (min_ns, max_ns) = span_ns.unwrap_or((packet.time_ns, packet.time_ns));
        *span_ns = Some((min_ns.min(packet.time_ns), max_ns.max(packet.time_ns)));
        (*packets, *bytes) = (*packets + 1, *bytes + packet.data.len() as u64);
        let sorter = match &mut self.keeping {
            Keeping::Count => return Ok(()),
            Keeping::Leave if self.is_ordered => return Ok(()),
            Keeping::Leave => return Err(io::Error::other("packets that were left aren't in order")),
            Keeping::Sort(sorter) | Keeping::SortOrLeave(sorter) => sorter,
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
        let pushed = sorter.push(lane, packet.time_ns, *self.parsed.key(at), |out| {
            if !has_comments {
                return write(out);
            }
            let mut block = Vec::new();
            write(&mut block);
            pcapng::commented(out, &block, comments);
        });
        self.leave(pushed).map(drop)
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
        if self.error.is_none() {
            self.error = self.take(packets).err();
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
