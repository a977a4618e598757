//! What all workers of a run share, and what one part of a source may have of it.

use crate::attach::Attach;
use crate::dumps::Dumps;
use crate::lockstep::Lockstep;
use crate::measuring::Measuring;
use crate::plan::SourceEntry;
use crate::scripts::Scripts;
use crate::source_rules::SourceRules;
use crate::statistics::Statistics;
use crate::steps::Steps;
use crate::stores::Stores;
use crate::triggers::Triggers;
use scope_events::Events;
use scope_filter::Filter;
use scope_packet::{Clock, Moment};
use scope_ring::{ClaimGroup, Ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// What all workers of a run share.
pub struct Shared {
    /// The ring.
    pub ring: Arc<Ring>,
    /// Rules of sources.
    pub source_rules: Arc<SourceRules>,
    /// Triggers.
    pub triggers: Triggers,
    /// Signals.
    pub measuring: Arc<Measuring>,
    /// Statistics, if there are any.
    pub statistics: Option<Arc<Statistics>>,
    /// Dumps.
    pub dumps: Arc<Dumps>,
    /// Scripts.
    pub scripts: Arc<Scripts>,
    /// The store, if there is one.
    pub stores: Option<Stores>,
    /// Where other programs attach, if anywhere.
    pub attach: Option<Arc<Attach>>,
    /// Event log.
    pub events: Arc<Events>,
    /// Keeps workers that can wait together.
    pub lockstep: Lockstep,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Steps of the system's clock.
    pub steps: Steps,
    /// The sources are to stop.
    pub stop: AtomicBool,
    /// Workers that have ended, and who is to know it at once.
    pub ended: AtomicUsize,
    /// The run's main thread.
    pub main: std::thread::Thread,
}

impl Shared {
    /// The last that was heard, from which a fire by hand reaches back; before anything was, what the
    /// system's clock shows.
    pub fn last_heard(&self) -> Moment {
        let era = self.ring.era();
        match self.ring.heard_in(era) {
            Some((_, heard_ns)) => Moment::new(era, heard_ns),
            None => Moment::new(era.max(self.steps.era()), self.clock.wall_ns()),
        }
    }
}

/// What the packets of one part of a source may have of the ring.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Whose segments its lanes claim.
    pub group: ClaimGroup,
    /// Only packets that it matches are recorded, and shown to the triggers.
    pub prefilter: Option<Filter>,
    /// Of which source it is, by number.
    pub source: usize,
    /// That source has rules, which may take packets out, too.
    pub has_rules: bool,
}

impl Part {
    /// As the source's entry says.
    pub fn of(entry: &SourceEntry) -> Part {
        Part {
            group: entry.group,
            prefilter: entry.prefilter.clone(),
            source: entry.number,
            has_rules: !entry.rules.is_empty(),
        }
    }

    /// Whether a packet that came may not have been wanted.
    pub fn takes_out(&self) -> bool {
        self.prefilter.is_some() || self.has_rules
    }
}
