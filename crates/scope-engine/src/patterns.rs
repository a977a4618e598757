//! Counts and sequences of a run: what workers matched, put in one order, and with which packets the conditions
//! hold.
//!
//! One of these belongs to the thread "signals". A packet that made a condition hold is read from the ring again,
//! for what the trigger's templates take from it; where it is gone from there, the hit has no packet.

use scope_packet::{Headers, LinkType, Moment};
use scope_ring::{Pinned, Ring};
use scope_trigger::{Held, Hit, Match, Merger, PatternState, Trigger};
use std::sync::Arc;

/// Matches of one condition that wait at most for what lies before them.
const WAITING_MAX: usize = 1 << 20;

/// Matches of one worker, by the trigger whose condition they belong to.
pub(crate) type Matches = Vec<(Arc<Trigger>, Vec<Match>)>;

/// A condition on several packets, and how it stands.
struct Watched {
    trigger: Arc<Trigger>,
    merger: Merger,
    state: PatternState,
    /// Its bounds were reached, and that was told.
    told: bool,
}

/// That a condition held with this match.
pub(crate) struct Fired {
    pub trigger: Arc<Trigger>,
    pub at: Moment,
    pub packet: Match,
    /// The condition and how it held, in words.
    pub what: String,
}

/// All of them.
pub(crate) struct Patterns {
    workers: usize,
    bytes: usize,
    seed: [u64; 2],
    watched: Vec<Watched>,
    released: Vec<Match>,
    hits: Vec<Hit>,
}

impl Patterns {
    /// For so many workers; each condition may take so many bytes.
    pub fn new(workers: usize, bytes: usize, seed: [u64; 2]) -> Patterns {
        let (watched, released, hits) = (Vec::new(), Vec::new(), Vec::new());
        Patterns { workers, bytes, seed, watched, released, hits }
    }

    /// Watches these from here on; one that was watched goes on.
    pub fn watch(&mut self, triggers: &[Arc<Trigger>]) {
        let mut before = std::mem::take(&mut self.watched);
        for trigger in triggers {
            let Some(pattern) = trigger.config().condition.pattern() else { continue };
            let known = before.iter().position(|watched| Arc::ptr_eq(&watched.trigger, trigger));
            self.watched.push(match known {
                Some(known) => before.swap_remove(known),
                None => Watched {
                    trigger: trigger.clone(),
                    merger: Merger::new(self.workers, WAITING_MAX),
                    state: PatternState::new(pattern, self.bytes, self.seed),
                    told: false,
                },
            });
        }
    }

    /// What `worker` has matched, which has settled everything before `until`.
    pub fn take(&mut self, worker: usize, matches: &[(Arc<Trigger>, Vec<Match>)], until: Moment) {
        for (trigger, matches) in matches {
            let watched = self.watched.iter_mut().find(|watched| Arc::ptr_eq(&watched.trigger, trigger));
            if let Some(watched) = watched {
                watched.merger.push(worker, matches, Moment::BEGIN);
            }
        }
        for watched in &mut self.watched {
            watched.merger.push(worker, &[], until);
        }
    }

    /// With which matches conditions hold, of those that are settled.
    pub fn settle(&mut self, fired: &mut Vec<Fired>) {
        for Watched { trigger, merger, state, .. } in &mut self.watched {
            self.released.clear();
            self.hits.clear();
            let settled = merger.release(&mut self.released);
            state.feed(&self.released, &mut self.hits);
            state.advance(settled);
            fired.extend(self.hits.iter().map(|hit| Fired {
                trigger: trigger.clone(),
                at: hit.at,
                packet: self.released[hit.index],
                what: words(trigger, hit),
            }));
        }
    }

    /// What bounds kept conditions from, once for each, in words.
    pub fn bounds(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for Watched { trigger, merger, state, told: is_told } in self.watched.iter_mut() {
            if *is_told {
                continue;
            }
            let (report, name) = (state.report(), &trigger.config().name);
            let reached = [
                (
                    report.degraded_since.is_some(),
                    "has more keys than fit into its memory: a sketch counts the rest, which may fire too early",
                ),
                (report.evicted > 0, "has more keys than fit into its memory: the oldest are forgotten"),
                (
                    merger.dropped() > 0,
                    "has more matches at once than are put in order: the rest is not counted",
                ),
            ];
            for (_, what) in reached.iter().filter(|(reached, _)| *reached) {
                told.push(format!("trigger {name}: its condition {what}; give it more by --count-memory"));
                *is_told = true;
            }
        }
        told
    }
}

fn words(trigger: &Trigger, hit: &Hit) -> String {
    let text = trigger.config().condition.text().unwrap_or_default();
    match hit.held {
        Held::Count { exact: true } => text.to_string(),
        Held::Count { exact: false } => format!("{text} (counted by a sketch)"),
        Held::Sequence { first_ns } => {
            let after_ns = hit.at.time_ns.saturating_sub(first_ns);
            format!("{text} ({} behind its first packet)", scope_spelling::figures::span(after_ns))
        }
    }
}

/// A packet that is still in the ring.
pub(crate) struct Kept {
    pinned: Pinned,
    index: u32,
    /// Its link type.
    pub link_type: LinkType,
}

impl Kept {
    /// The packet of this number in its lane; `None`: it was never stored, or is gone.
    pub fn find(ring: &Arc<Ring>, lane: u32, packet: u64) -> Option<Kept> {
        for sequence in (0..ring.lane_next(lane)).rev() {
            let pinned = ring.pin(ring.segment_id(lane, sequence))?;
            if let Some(index) = packet.checked_sub(pinned.first_packet()) {
                let index = u32::try_from(index).ok().filter(|index| *index < pinned.committed().packets)?;
                return Some(Kept { pinned, index, link_type: ring.lane_info(lane).link_type });
            }
        }
        None
    }

    /// Its headers and its bytes.
    pub fn parsed(&self) -> Option<(Headers, &[u8])> {
        let (_, block) = self.pinned.indexed(self.index, self.index + 1).next()?;
        let data = block.data();
        Some((Headers::parse(self.link_type, data), data))
    }
}
