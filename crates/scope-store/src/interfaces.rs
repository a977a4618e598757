//! The interfaces of the packets of an answer: those of all runs that have some, by lane.

use crate::head::HeadInterface;
use scope_packet::LinkType;
use scope_packet::segment::Foot;
use std::collections::BTreeMap;
use std::io;

/// A run, and its own number of an interface.
pub type InterfaceKey = ([u8; 16], u32);

/// What knows the interfaces of packets by the lanes of their timeline: stores, and a run that goes, where others may come
/// at any time.
pub trait KnownInterfaces: Send + Sync {
    /// The interface that a block of lane `lane` calls `number`, with what is known of it.
    fn of(&self, lane: u32, number: u32) -> Option<(InterfaceKey, HeadInterface)>;

    /// All that may have packets of this link type by now.
    fn all(&self, link_type: LinkType) -> Vec<(InterfaceKey, HeadInterface)>;
}

/// The interfaces of all runs, by lane of the timeline.
#[derive(Clone, Debug, Default)]
pub struct StoreInterfaces {
    /// By run, link type and the run's number.
    known: BTreeMap<([u8; 16], LinkType, u32), HeadInterface>,
    lanes: Vec<Lane>,
}

/// A lane of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub run: [u8; 16],
    /// The run's own number of it.
    pub lane: u32,
    /// Numbers don't say which packets of it its segments have.
    pub inexact: bool,
    pub link_type: LinkType,
}

impl StoreInterfaces {
    pub(crate) fn new(
        known: BTreeMap<([u8; 16], LinkType, u32), HeadInterface>,
        lanes: Vec<Lane>,
    ) -> StoreInterfaces {
        StoreInterfaces { known, lanes }
    }

    pub(crate) fn all_lanes(&self) -> &[Lane] {
        &self.lanes
    }

    fn known_of(&self, lane: u32, number: u32) -> Option<(InterfaceKey, &HeadInterface)> {
        let Lane { run, link_type, .. } = *self.lanes.get(lane as usize)?;
        Some(((run, number), self.known.get(&(run, link_type, number))?))
    }

    /// Whether an interface that a packet of this segment names is known.
    pub(crate) fn check(&self, foot: &Foot, number: u32) -> io::Result<()> {
        match self.known.contains_key(&(foot.run_id, foot.link_type, number)) {
            true => Ok(()),
            false => {
                Err(io::Error::other(format!("a packet has interface {number}, which no head describes")))
            }
        }
    }

    /// The same with those of another source of packets, whose lanes follow behind its own: a link type each, and
    /// its interfaces by number.
    pub fn with(
        &self,
        run: [u8; 16],
        link_types: &[LinkType],
        interfaces: impl IntoIterator<Item = HeadInterface>,
    ) -> StoreInterfaces {
        let mut all = self.clone();
        all.lanes.extend((0..).zip(link_types).map(|(lane, &link_type)| Lane {
            run,
            lane,
            inexact: false,
            link_type,
        }));
        let numbered = (0..).zip(interfaces);
        all.known.extend(numbered.map(|(number, known)| ((run, known.link_type, number), known)));
        all
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// All that may have packets of this link type, as (run, number).
    pub fn of_type(&self, link_type: LinkType) -> impl Iterator<Item = (InterfaceKey, &HeadInterface)> {
        let of_type = self.known.iter().filter(move |((_, of, _), _)| *of == link_type);
        of_type
            .filter(|(_, interface)| interface.has_packets())
            .map(|((run, _, number), known)| ((*run, *number), known))
    }
}

impl KnownInterfaces for StoreInterfaces {
    fn of(&self, lane: u32, number: u32) -> Option<(InterfaceKey, HeadInterface)> {
        self.known_of(lane, number).map(|(key, known)| (key, known.clone()))
    }

    fn all(&self, link_type: LinkType) -> Vec<(InterfaceKey, HeadInterface)> {
        self.of_type(link_type).map(|(key, known)| (key, known.clone())).collect()
    }
}
