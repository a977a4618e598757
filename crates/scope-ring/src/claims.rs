//! The order in which segments are recycled, for each claim group, of which each share of the ring has one.
//!
//! ```text
//! common group   slots 0..c          every lane that has no share
//! group of a share   slots c..d      only its own lanes; what floods elsewhere evicts nothing here
//!
//! claim    up to 16 of the held queue ─► front of the sealing queue, pinned ones go to the held queue ─► all of the held queue
//! ```
//! A slot belongs to one group for ever: its writer gives it back to the queue it came from.

use std::collections::VecDeque;

/// Held segments that one claim looks at (rule 3).
const HELD_PROBES: usize = 16;

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

impl Claims {
    /// Takes the segment of `group` that was sealed last of those that `recycle` can take: slot and generation.
    pub(crate) fn claim_newest(
        &mut self,
        group: ClaimGroup,
        recycle: impl Fn(u32) -> Option<u64>,
    ) -> Option<(u32, u64)> {
        let sealing = &mut self.queues[group.index()].sealing;
        let (at, generation) = (0..sealing.len()).rev().find_map(|at| Some((at, recycle(sealing[at])?)))?;
        sealing.remove(at).map(|slot| (slot, generation))
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
