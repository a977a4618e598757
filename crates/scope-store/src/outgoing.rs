//! A segment on its way into a file: one of the ring's, as it lies there, or one that a volume composed,
//! whose foot says which of its lane's numbers it stands for.
//!
//! A composed segment lies in a small ring of its volume's, which counts only what was put into it. What is
//! stated replaces those counts wherever a foot is written.

use scope_packet::segment::{FOOT_BYTES, FileLosses, Foot, LeftOut};
use scope_packet::{Drops, SegmentId};
use scope_ring::{Blocks, Committed, Pinned, Summaries, Summary};
use std::ops::Range;

/// Added to the sequence of composed segments, so that no segment of the ring has it.
const COMPOSED: u64 = 1 << 63;

/// A segment, pinned.
pub struct Outgoing {
    pinned: Pinned,
    stated: Option<Box<Stated>>,
}

/// What a composed segment says of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Number in the lane of the first packet that it stands for.
    pub first_packet: u64,
    /// The lane's captured bytes before that.
    pub bytes_before: u64,
    /// The lane's drops before that, as far as they were known.
    pub drops_before: Drops,
    /// What was left out.
    pub left_out: LeftOut,
    /// What capture files say that the lane lacks, as far as that was known.
    pub file_losses: FileLosses,
    /// Smallest and largest time of all that it stands for, ns.
    pub span_ns: (i64, i64),
    /// Whether times step back among these.
    pub steps_back: bool,
    /// Interfaces that the run knows by now.
    pub interfaces: u32,
}

impl From<Pinned> for Outgoing {
    fn from(pinned: Pinned) -> Outgoing {
        Outgoing { pinned, stated: None }
    }
}

impl Outgoing {
    /// A composed segment.
    pub fn composed(pinned: Pinned, stated: Stated) -> Outgoing {
        Outgoing { pinned, stated: Some(Box::new(stated)) }
    }

    /// By what its own ring knows it.
    pub fn id(&self) -> SegmentId {
        self.pinned.id()
    }

    /// Number of its first packet among those of its own ring's lane.
    pub fn first_packet(&self) -> u64 {
        self.pinned.first_packet()
    }

    /// Its lane, which is the same in the run's ring and in a volume's own.
    pub fn lane(&self) -> u32 {
        self.pinned.lane()
    }

    /// Its bytes.
    pub fn segment_bytes(&self) -> usize {
        self.pinned.segment_bytes()
    }

    /// Interfaces that the run knows by now.
    pub fn interfaces(&self) -> u32 {
        self.stated.as_ref().map_or_else(|| self.pinned.interfaces(), |stated| stated.interfaces)
    }

    /// How far it is committed by now.
    pub fn committed(&self) -> Committed {
        self.pinned.committed()
    }

    /// Whether it says nothing: no packet, and none that was left out.
    pub fn is_empty(&self) -> bool {
        let committed = self.committed();
        let states = self.stated.as_ref().is_some_and(|stated| stated.left_out.packets > 0);
        committed.packets == 0 && !(committed.sealed && states)
    }

    /// Its foot as if it ended at `committed`; `None`: no packet yet.
    pub fn foot(&self, committed: Committed) -> Option<Foot> {
        self.pinned.foot(committed).map(|foot| self.state(foot))
    }

    /// Its foot, once it is sealed; `None`: it isn't, or it says nothing.
    pub fn sealed_foot(&self) -> Option<Foot> {
        let whole = self.whole().filter(|_| !self.is_empty())?;
        Foot::read(&whole[whole.len() - FOOT_BYTES..]).map(|foot| self.state(foot))
    }

    /// A foot of its own ring, as it is to be written.
    fn state(&self, foot: Foot) -> Foot {
        let Some(stated) = &self.stated else { return foot };
        let &Stated {
            first_packet,
            bytes_before,
            drops_before,
            left_out,
            file_losses,
            span_ns,
            steps_back,
            ..
        } = &**stated;
        let sequence = COMPOSED | first_packet;
        let left_out_ns = if left_out.packets > 0 { span_ns } else { (0, 0) };
        let left_out = LeftOut { span_ns: left_out_ns, ..left_out };
        let stated =
            Foot { sequence, first_packet, bytes_before, drops_before, left_out, file_losses, ..foot };
        match foot.packets {
            0 => Foot {
                first_ns: span_ns.0,
                last_ns: span_ns.1,
                min_ns: span_ns.0,
                max_ns: span_ns.1,
                unordered: steps_back,
                ..stated
            },
            _ => Foot { unordered: foot.unordered || steps_back, ..stated },
        }
    }

    /// Whether its foot is to be written otherwise than its own ring has it.
    pub fn is_composed(&self) -> bool {
        self.stated.is_some()
    }

    /// The packet blocks that lie in `from..to`, as [`Pinned::blocks`].
    pub fn blocks(&self, from: u32, to: u32) -> Blocks<'_> {
        self.pinned.blocks(from, to)
    }

    /// Bytes `range`, as [`Pinned::stretch`].
    pub fn stretch(&self, range: Range<usize>) -> &[u8] {
        self.pinned.stretch(range)
    }

    /// The whole segment as its own ring has it, once sealed.
    pub fn whole(&self) -> Option<&[u8]> {
        self.pinned.whole()
    }

    /// Its summary among those of the run's ring; `None`: it is composed, or not sealed.
    pub fn summary(&self, summaries: &Summaries) -> Option<Summary> {
        (!self.is_composed()).then(|| summaries.of(&self.pinned)).flatten()
    }

    /// One more hold on its bytes; `None` where there are as many as can be counted.
    pub fn hold(&self) -> Option<Pinned> {
        self.pinned.again()
    }
}
