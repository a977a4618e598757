//! One trigger: a condition and a response, and between them what becomes of each occurrence.
//!
//! Each occurrence is counted once, by the first that applies: `disarmed`, `extended`, `held_off`,
//! `template_unfilled`, `no_space`, `too_many`, `filter_uncompiled`, `fired`. The numbers add up to the
//! trigger's hits, whatever its condition.
//!
//! Up to the last two nothing is made for an occurrence but the values that the response takes from it: no
//! text, no filter.

use crate::compile_cache::{CompileCache, Next, Outcome};
use crate::condition::Condition;
use crate::holdoff::Holdoff;
use crate::occurrence::{Key, Occurrence};
use crate::places::{Full, Places, Requester};
use crate::response::Response;
use crate::verdict::{Fire, HitCounts, Misses, Verdict};
use crate::window::{Extended, Window};
use crate::windows::Windows;
use scope_filter::{Filter, NoFilter, Shape, Template, Values};
use scope_flow::when::When;
use scope_packet::Moment;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Fires that are remembered for who fires it where nothing has; of more the latest.
const FIRES_MAX: usize = 1024;

/// What a trigger is made of.
#[derive(Clone, Debug)]
pub struct TriggerConfig {
    /// Its name.
    pub name: String,
    /// What makes occurrences.
    pub condition: Condition,
    /// Of packets that a filter matches: what has to hold for their flow, for the first time. `None`: nothing.
    pub when: Option<When>,
    /// What one starts.
    pub response: Response,
    /// Holdoff, ns; 0: none.
    pub holdoff_ns: i64,
    /// The holdoff's key; `None`: the values that the response reads from the packet.
    pub holdoff_key: Option<Template>,
    /// Disarmed after its first fire.
    pub single: bool,
    /// It fires by itself where nothing has for so long, ns.
    pub auto_ns: Option<i64>,
}

impl TriggerConfig {
    /// Whether both say the same in every point, so that one may go on in the place of the other.
    pub fn same_as(&self, other: &TriggerConfig) -> bool {
        let key =
            |config: &TriggerConfig| config.holdoff_key.as_ref().map(|template| template.text().to_string());
        let rest = |of: &TriggerConfig| {
            (of.name.clone(), of.when.clone(), key(of), of.holdoff_ns, of.single, of.auto_ns)
        };
        self.condition.same_as(&other.condition)
            && self.response.same_as(&other.response)
            && rest(self) == rest(other)
    }
}

/// A trigger, armed.
#[derive(Debug)]
pub struct Trigger {
    config: TriggerConfig,
    /// Protected by the lock, which is taken once per hit.
    state: Mutex<State>,
}

/// Makes the dump's filter.
type Compile<'a> = &'a dyn Fn() -> Result<Filter, NoFilter>;

/// What the verdict needs of an occurrence, made once before the lock is taken.
struct Terms {
    /// What the dump filter is made of, or the name that the packet has no field for.
    values: Result<Values, &'static str>,
    /// What decides whether that is a filter; `None`: nothing of a packet does.
    shape: Option<Shape>,
    /// Its key for the holdoff; `None`: no holdoff.
    key: Option<Values>,
}

#[derive(Debug)]
struct State {
    disarmed: bool,
    /// Somebody ordered that it doesn't fire.
    off: bool,
    /// The latest era in which it was hit; its holdoff speaks of no other.
    era: u64,
    holdoff: Holdoff,
    /// Which hits make a filter, as far as it is known.
    cache: CompileCache,
    /// Windows that may still be extended; at most twice as many as there are places.
    windows: Windows,
    counts: HitCounts,
    misses: Misses,
    /// Where it fires by itself: when it has fired, and nobody has taken that; at most [`FIRES_MAX`].
    fires: VecDeque<Moment>,
}

impl Trigger {
    /// Arms a trigger.
    pub fn new(config: TriggerConfig) -> Trigger {
        let (holdoff, counts) = (Holdoff::new(config.holdoff_ns), HitCounts::default());
        let state = State {
            disarmed: false,
            off: false,
            era: 0,
            holdoff,
            cache: CompileCache::default(),
            windows: Windows::default(),
            counts,
            misses: Misses::default(),
            fires: VecDeque::new(),
        };
        Trigger { config, state: Mutex::new(state) }
    }

    /// What it is made of.
    pub fn config(&self) -> &TriggerConfig {
        &self.config
    }

    /// Hits so far.
    pub fn counts(&self) -> HitCounts {
        let state = self.state.lock().expect("no panic while held");
        HitCounts { rationed: state.cache.rationed(), ..state.counts }
    }

    /// Counts what became of hits of another one that stood in for this one.
    pub fn add_counts(&self, other: &HitCounts) {
        self.state.lock().expect("no panic while held").counts.add(other);
    }

    /// The first packets that made no filter.
    pub fn misses(&self) -> Misses {
        self.state.lock().expect("no panic while held").misses.clone()
    }

    /// When it has fired since the last call, up to `to`; kept only where it fires by itself.
    pub fn take_fires(&self, to: Moment) -> Vec<Moment> {
        let mut state = self.state.lock().expect("no panic while held");
        state.fires.make_contiguous().sort_unstable();
        let count = state.fires.partition_point(|fired| *fired <= to);
        state.fires.drain(..count).collect()
    }

    /// Whether it still fires.
    pub fn armed(&self) -> bool {
        let state = self.state.lock().expect("no panic while held");
        !state.disarmed && !state.off
    }

    /// Somebody orders that it fires, also if it had fired once and was to fire no more; or that it doesn't.
    pub fn order(&self, armed: bool) {
        let mut state = self.state.lock().expect("no panic while held");
        state.off = !armed;
        state.disarmed &= !armed;
    }

    /// Whether somebody ordered that it doesn't fire.
    pub fn is_off(&self) -> bool {
        self.state.lock().expect("no panic while held").off
    }

    /// That it isn't to fire holds no longer, if it was ordered.
    pub fn forget_order(&self) {
        self.state.lock().expect("no panic while held").off = false;
    }

    /// Decides what becomes of an occurrence, and counts it.
    pub fn occurred(&self, occurrence: &Occurrence<'_>, places: &Arc<Places>) -> Verdict {
        let compile = || self.config.response.filter(occurrence);
        self.decide(occurrence, &self.terms(occurrence), &compile, places)
    }

    fn terms(&self, occurrence: &Occurrence<'_>) -> Terms {
        let packet = occurrence.packet.as_ref();
        let values = self.config.response.values(occurrence);
        let key = match (occurrence.key, packet, &self.config.holdoff_key) {
            (Key::Exempt, ..) => None,
            (Key::OfPacket, None, _) if occurrence.given.is_some() => values.ok(),
            (Key::Whole, ..) | (Key::OfPacket, None, _) => Some(Values::everything()),
            (Key::OfPacket, Some(_), None) => values.ok(),
            // Packets without what the key names have one key together.
            (Key::OfPacket, Some(packet), Some(key)) => {
                let own = key.values(packet.headers, packet.link_type, packet.data);
                Some(own.unwrap_or_else(|_| Values::everything()))
            }
        };
        Terms { values, shape: self.config.response.shape(occurrence), key }
    }

    fn decide(
        &self,
        occurrence: &Occurrence<'_>,
        terms: &Terms,
        compile: Compile<'_>,
        places: &Arc<Places>,
    ) -> Verdict {
        loop {
            let mut state = self.state.lock().expect("no panic while held");
            if let Some(verdict) = self.verdict(&mut state, occurrence, terms, compile, places) {
                state.counts.count(&verdict);
                state.misses.note(&verdict);
                return verdict;
            }
            drop(state); // nobody waits while others need the lock
            places.wait();
        }
    }

    /// `None`: a place will become free, and waiting for it is right.
    fn verdict(
        &self,
        state: &mut State,
        occurrence: &Occurrence<'_>,
        terms: &Terms,
        compile: Compile<'_>,
        places: &Arc<Places>,
    ) -> Option<Verdict> {
        let Occurrence { at: hit, requester, .. } = *occurrence;
        let Terms { values, shape, key } = *terms;
        let hit_ns = hit.time_ns;
        if state.disarmed || state.off {
            return Some(Verdict::Disarmed);
        }
        let (mut from_ns, to_ns) = self.config.response.span(occurrence);
        for window in values.iter().flat_map(|values| state.windows.of(*values)) {
            match window.extend(hit, occurrence.certain_ns(), to_ns) {
                Extended::Yes => return Some(Verdict::Extended { dump: window.dump() }),
                // A window that had to stop growing: the new one begins where it ended.
                Extended::No { full_to_ns: Some(end_ns) } if end_ns < hit_ns => {
                    from_ns = from_ns.max(end_ns + 1)
                }
                Extended::No { .. } => {}
            }
        }
        if hit.era > state.era {
            // Times before it don't compare with those behind it.
            (state.era, state.holdoff) = (hit.era, Holdoff::new(self.config.holdoff_ns));
        }
        if key.is_some_and(|key| state.holdoff.holds(key, hit_ns)) {
            return Some(Verdict::HeldOff);
        }
        let values = match values {
            Ok(values) => values,
            Err(name) => return Some(Verdict::TemplateUnfilled { name }),
        };
        match shape.and_then(|shape| state.cache.known(&shape)) {
            Some(Outcome::Unfilled(name)) => return Some(Verdict::TemplateUnfilled { name }),
            Some(Outcome::Uncompiled(cause)) => {
                return Some(Verdict::FilterUncompiled { cause: cause.clone() });
            }
            Some(Outcome::Fits) | None => {}
        }
        if places.no_space() {
            return Some(Verdict::NoSpace);
        }
        // Before the filter is made: a storm of hits costs little.
        match places.refusal(requester) {
            Some(Full::Enough) => return Some(Verdict::Disarmed),
            Some(Full::ForGood) => return Some(Verdict::TooMany),
            Some(Full::ForNow) => return None,
            None => {}
        }
        if let Some(shape) = shape
            && state.cache.admit(&shape, hit_ns, matches!(requester, Requester::Waiting(_))) == Next::Rationed
        {
            let name = self.config.response.template.as_ref().map_or("", Template::first_name);
            return Some(Verdict::TemplateUnfilled { name });
        }
        let compiled = compile();
        if let Some(shape) = shape {
            state.cache.record(
                &shape,
                match &compiled {
                    Ok(_) => Outcome::Fits,
                    Err(NoFilter::Unfilled(unfilled)) => Outcome::Unfilled(unfilled.name),
                    Err(NoFilter::Uncompiled(error)) => Outcome::Uncompiled(error.cause()),
                },
            );
        }
        let filter = match compiled {
            Ok(filter) => filter,
            Err(NoFilter::Unfilled(unfilled)) => {
                return Some(Verdict::TemplateUnfilled { name: unfilled.name });
            }
            Err(NoFilter::Uncompiled(error)) => {
                return Some(Verdict::FilterUncompiled { cause: error.cause() });
            }
        };
        let window = Arc::new(Window::in_era(hit.era, from_ns, to_ns, hit_ns));
        let place = match places.take(&window, requester) {
            Ok(place) => place,
            Err(Full::ForNow) => return None,
            Err(Full::ForGood) => return Some(Verdict::TooMany),
            Err(Full::Enough) => return Some(Verdict::Disarmed),
        };
        if let Some(key) = key {
            state.holdoff.fired(key, hit_ns);
        }
        state.disarmed = self.config.single;
        if self.config.auto_ns.is_some() {
            if state.fires.len() == FIRES_MAX {
                state.fires.pop_front();
            }
            state.fires.push_back(hit);
        }
        state.windows.add(values, &window, 2 * places.max());
        Some(Verdict::Fired(Fire { filter, window, place }))
    }
}

#[cfg(test)]
mod tests;
