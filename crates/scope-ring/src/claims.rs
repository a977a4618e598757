//! The order in which segments are recycled, for each claim group, and the shares that make the groups.
//!
//! ```text
//! common group   slots 0..c          every lane that has no share
//! group of a share   slots c..d      only its own lanes; what floods elsewhere evicts nothing here
//!
//! claim    up to 16 of the held queue ─► front of the sealing queue, pinned ones go to the held queue ─► all of the held queue
//! ```
//! A slot belongs to one group for ever: whoever seals it gives it back to the queue it came from.

use crate::ring::RingConfig;
use crate::{RingError, SEGMENTS_PER_LANE_MIN};
use scope_packet::segment::SEGMENT_BYTES_MIN;
use std::collections::VecDeque;

/// Held segments that one claim looks at (rule 3).
const HELD_PROBES: usize = 16;

/// A part of the ring that only its own lanes evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Percent of the ring's segments.
    pub percent: u32,
    /// Lanes known at the start that have it together, at least 1.
    pub lanes: u32,
}

/// Whose segments a lane claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClaimGroup(pub(crate) u32);

impl ClaimGroup {
    /// Everything that no share has.
    pub const COMMON: ClaimGroup = ClaimGroup(0);

    /// The group of share `index`, as they were given to [`crate::Ring::create_shared`].
    pub fn of_share(index: usize) -> ClaimGroup {
        ClaimGroup(index as u32 + 1)
    }

    /// Index of its share; `None`: it is the common one.
    pub fn share(self) -> Option<usize> {
        self.index().checked_sub(1)
    }

    /// Place among all groups: where [`crate::Ring::group_segments`] has its segments.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl RingConfig {
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

/// The queues of all groups. Protected by the claim lock, which readers never take.
pub(crate) struct Claims {
    queues: Vec<Queue>,
    /// First slot of each group.
    first: Vec<u32>,
}

/// One group's segments.
#[derive(Default)]
struct Queue {
    /// Free or sealed segments, oldest first.
    sealing: VecDeque<u32>,
    /// Segments that were pinned when their turn came, oldest first.
    held: VecDeque<u32>,
    /// Where in `held` the next look begins.
    probe: usize,
}

impl Claims {
    /// Queues for groups of so many segments each, all of them free.
    pub(crate) fn new(groups: &[usize]) -> Claims {
        let mut claims = Claims { queues: Vec::new(), first: Vec::new() };
        let mut first = 0;
        for &segments in groups {
            let end = first + segments as u32;
            claims.first.push(first);
            claims.queues.push(Queue { sealing: (first..end).collect(), ..Queue::default() });
            first = end;
        }
        claims
    }

    /// Puts a sealed segment at the end of its group's order of sealing.
    pub(crate) fn give_back(&mut self, slot: u32) {
        let group = self.first.partition_point(|&first| first <= slot) - 1;
        self.queues[group].sealing.push_back(slot);
    }

    /// Takes the oldest segment of `group`, by order of sealing, that `recycle` can take: slot and
    /// generation.
    pub(crate) fn claim(
        &mut self,
        group: ClaimGroup,
        recycle: impl Fn(u32) -> Option<u64>,
    ) -> Option<(u32, u64)> {
        let queue = &mut self.queues[group.0 as usize];
        if let Some(claimed) = queue.claim_held(HELD_PROBES, &recycle) {
            return Some(claimed);
        }
        while let Some(slot) = queue.sealing.pop_front() {
            match recycle(slot) {
                Some(generation) => return Some((slot, generation)),
                None => queue.held.push_back(slot),
            }
        }
        let all = queue.held.len(); // a last resort: packets are dropped only if every segment is pinned
        queue.claim_held(all, &recycle)
    }
}

impl Queue {
    /// Looks at up to `probes` held segments. Where there are more, it goes on where the last look ended, so
    /// that a few that stay pinned hide no other; else the oldest comes first.
    fn claim_held(&mut self, probes: usize, recycle: &impl Fn(u32) -> Option<u64>) -> Option<(u32, u64)> {
        let held = self.held.len();
        if held <= probes {
            self.probe = 0;
        }
        for _ in 0..held.min(probes) {
            let at = self.probe % held;
            let slot = self.held[at];
            if let Some(generation) = recycle(slot) {
                self.held.remove(at);
                self.probe = at;
                return Some((slot, generation));
            }
            self.probe = at + 1;
        }
        None
    }
}
