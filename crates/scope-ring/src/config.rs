//! What a ring is made of: its sizes, checked before any memory is mapped, and the shares of it.

use crate::control::PINS;
use crate::region::{Layout, Machine, MemoryOptions};
use crate::{LINK_TYPES_MAX, RingError, SEGMENTS_PER_LANE_MIN};
use scope_packet::segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, is_segment_size};

/// Segments per lane that a segment size of the ring's own choice aims at.
const SEGMENTS_PER_LANE_AIM: u64 = 64;

/// A part of the ring that only its own lanes evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Percent of the ring's segments.
    pub percent: u32,
    /// Lanes known at the start that have it together, at least 1.
    pub lanes: u32,
}

/// What a ring is made of.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Bytes of all segments together; rounded down to whole segments.
    pub ring_bytes: u64,
    /// Bytes of one segment; `None`: picked to fit the ring and its lanes.
    pub segment_bytes: Option<u64>,
    /// Workers that will write.
    pub workers: u32,
    /// Lanes known at the start, at least 1.
    pub lanes: u32,
    /// The run's 128 random bits.
    pub run_id: [u8; 16],
}

impl RingConfig {
    /// Checks the sizes: the segment's bytes and the number of segments, or why not.
    pub fn plan(&self) -> Result<(usize, usize), RingError> {
        let lanes = self.lanes.max(1) as u64;
        let segment_bytes = match self.segment_bytes {
            Some(bytes) => bytes,
            None => {
                let aim = (self.ring_bytes / (lanes * SEGMENTS_PER_LANE_AIM)).max(1);
                (1u64 << aim.ilog2()).clamp(SEGMENT_BYTES_MIN as u64, SEGMENT_BYTES_MAX as u64)
            }
        };
        if !usize::try_from(segment_bytes).is_ok_and(is_segment_size) {
            return Err(RingError::SegmentSize { bytes: segment_bytes });
        }
        let segments = self.ring_bytes / segment_bytes;
        if segments < lanes * SEGMENTS_PER_LANE_MIN {
            return Err(RingError::TooSmall {
                ring_bytes: self.ring_bytes,
                needed: lanes * SEGMENTS_PER_LANE_MIN * segment_bytes,
                lanes,
                per_lane: SEGMENTS_PER_LANE_MIN,
                segment_bytes,
            });
        }
        MemoryOptions::default().check(self.ring_bytes, &Machine::this())?;
        if segments > PINS {
            let limit = "the most that segments of this size can make".to_string();
            return Err(RingError::NoMemory {
                ring_bytes: self.ring_bytes,
                available: PINS * segment_bytes,
                limit,
            });
        }
        Ok((segment_bytes as usize, segments as usize))
    }

    /// Where everything will lie, or why it can't.
    pub(crate) fn layout(&self) -> Result<Layout, RingError> {
        let (segment_bytes, segments) = self.plan()?;
        let workers = self.workers.max(1) as usize;
        Ok(Layout::new(segment_bytes, segments, workers, workers * LINK_TYPES_MAX as usize))
    }

    /// Segments of each group, the common one first.
    ///
    /// # Errors
    /// Every reason why the sizes or the shares can't be had.
    pub fn plan_shares(&self, shares: &[Share]) -> Result<Vec<usize>, Vec<RingError>> {
        let (_, segments) = self.plan().map_err(|error| vec![error])?;
        let needed = |lanes: u32| lanes as u64 * SEGMENTS_PER_LANE_MIN;
        let own = |share: &Share| (segments as u64 * share.percent as u64 / 100) as usize;
        let mut faults = Vec::new();
        for (index, share) in shares.iter().enumerate() {
            let (own, needed) = (own(share) as u64, needed(share.lanes.max(1)));
            if own < needed {
                faults.push(RingError::ShareTooSmall {
                    index,
                    percent: share.percent,
                    segments: own,
                    needed,
                });
            }
        }
        let common = segments.saturating_sub(shares.iter().map(own).sum());
        let lanes: u32 = shares.iter().map(|share| share.lanes.max(1)).sum();
        let needed = needed(self.lanes.saturating_sub(lanes).max(1)); // at least one may still appear
        if (common as u64) < needed {
            let percent = shares.iter().map(|share| share.percent as u64).sum();
            faults.push(RingError::SharesTooLarge { percent, segments: common as u64, needed });
        }
        if faults.is_empty() {
            Ok(std::iter::once(common).chain(shares.iter().map(own)).collect())
        } else {
            Err(faults)
        }
    }

    /// The same ring where the size of its segments is its own choice: the largest size, up to the one that
    /// it would choose without shares, at which every share has the segments that it needs. As it is where
    /// none will do.
    pub fn sized_for(&self, shares: &[Share]) -> RingConfig {
        let Ok((largest, _)) = self.plan() else { return *self };
        let sizes = std::iter::successors(Some(largest as u64), |bytes| Some(bytes / 2));
        let sizes = sizes.take_while(|&bytes| bytes >= SEGMENT_BYTES_MIN as u64);
        let mut configs = sizes.map(|bytes| RingConfig { segment_bytes: Some(bytes), ..*self });
        let fitting = configs.find(|config| config.plan_shares(shares).is_ok());
        if self.segment_bytes.is_some() { *self } else { fitting.unwrap_or(*self) }
    }
}
