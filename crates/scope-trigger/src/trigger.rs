//! One trigger: which filter makes a packet a hit, and what becomes of each hit.
//!
//! Each hit is counted once, by the first that applies: `disarmed`, `extended`, `held_off`, `template_unfilled`, `no_space`,
//! `too_many`, `filter_uncompiled`, `fired`. The numbers add up to the trigger's hits.
//!
//! Up to the last two nothing is made for a hit but the values that the template takes from it: no text, no filter.

use crate::fits::{Answer, Fits, Next};
use crate::holdoff::Holdoff;
use crate::places::{Asker, Full, Places};
use crate::verdict::{Fire, HitCounts, Misses, Verdict};
use crate::window::{Extended, Window};
use crate::windows::Windows;
use scope_filter::{
    Filter, FilterError, NoFilter, Shape, Template, Values, VlanRule, host_pair_filter, host_pair_shape, host_pair_values,
};
use scope_packet::{Headers, LinkType, Moment};
use std::sync::{Arc, Mutex};

/// What a trigger is made of.
#[derive(Clone, Debug)]
pub struct TriggerConfig {
    /// Its name.
    pub name: String,
    /// A packet that this takes is a hit.
    pub filter: Filter,
    /// What its dumps keep; `None`: what went between the hit's two hosts.
    pub template: Option<Template>,
    /// Window in front of a hit, ns.
    pub before_ns: i64,
    /// Window behind a hit, ns.
    pub after_ns: i64,
    /// Holdoff, ns.
    pub holdoff_ns: i64,
    /// What the holdoff is told apart by; `None`: by the values that the template takes from the hit.
    pub holdoff_key: Option<Template>,
    /// How filters see VLAN tags.
    pub vlan: VlanRule,
    /// Disarmed after its first fire.
    pub single: bool,
}

impl TriggerConfig {
    /// Whether both say the same in every point, so that one may go on in the place of the other.
    pub fn same_as(&self, other: &TriggerConfig) -> bool {
        let texts = |config: &TriggerConfig| {
            let text = |template: &Option<Template>| template.as_ref().map(|template| template.text().to_string());
            (config.name.clone(), config.filter.text().to_string(), text(&config.template), text(&config.holdoff_key))
        };
        let rest = |config: &TriggerConfig| (config.before_ns, config.after_ns, config.holdoff_ns, config.vlan, config.single);
        texts(self) == texts(other) && rest(self) == rest(other)
    }
}

/// The packet that hit, lent.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// When it counts as having come: at its capture time or, where that isn't believed, at that of the clock.
    pub at: Moment,
    /// What its window's end counts from, ns: its time, or the clock's where that is far ahead of it. Up to there everything may be
    /// settled already.
    pub clock_ns: i64,
    /// Link type.
    pub link_type: LinkType,
    /// Its headers.
    pub headers: &'a Headers,
    /// Its bytes.
    pub data: &'a [u8],
    /// For a worker that can wait: the moment up to which all that it has is committed.
    pub waits_at: Option<Moment>,
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

/// One hit, or one fire by hand, as the verdict needs it.
struct Occurrence {
    hit: Moment,
    /// See [`Hit::clock_ns`].
    clock_ns: i64,
    /// What the dump filter is made of, or the name that the packet has no field for.
    values: Result<Values, &'static str>,
    /// What decides whether that is a filter; `None`: nothing of a packet does.
    shape: Option<Shape>,
    /// What its holdoff is told apart by; `None`: no holdoff.
    key: Option<Values>,
    asker: Asker,
}

#[derive(Debug)]
struct State {
    disarmed: bool,
    /// The latest era in which it was hit; its holdoff speaks of no other.
    era: u64,
    holdoff: Holdoff,
    /// Which hits make a filter, as far as it is known.
    fits: Fits,
    /// Windows that may still take in hits; at most twice as many as there are places.
    windows: Windows,
    counts: HitCounts,
    misses: Misses,
}

impl Trigger {
    /// Arms a trigger.
    pub fn new(config: TriggerConfig) -> Trigger {
        let (holdoff, counts) = (Holdoff::new(config.holdoff_ns), HitCounts::default());
        let state = State {
            disarmed: false,
            era: 0,
            holdoff,
            fits: Fits::default(),
            windows: Windows::default(),
            counts,
            misses: Misses::default(),
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
        HitCounts { rationed: state.fits.rationed(), ..state.counts }
    }

    /// The first packets that made no filter.
    pub fn misses(&self) -> Misses {
        self.state.lock().expect("no panic while held").misses.clone()
    }

    /// Whether it still fires.
    pub fn armed(&self) -> bool {
        !self.state.lock().expect("no panic while held").disarmed
    }

    /// Decides what becomes of a hit, and counts it.
    pub fn hit(&self, hit: &Hit<'_>, places: &Arc<Places>) -> Verdict {
        let &Hit { headers, link_type, data, .. } = hit;
        let values = match &self.config.template {
            None => Ok(host_pair_values(headers, link_type, data)),
            Some(template) => template.values(headers, link_type, data).map_err(|unfilled| unfilled.name),
        };
        let key = match &self.config.holdoff_key {
            None => values.ok(),
            // Packets without what the key names have one key together.
            Some(key) => Some(key.values(headers, link_type, data).unwrap_or_else(|_| Values::everything())),
        };
        let compile = || match &self.config.template {
            Some(template) => template.fill_filter(headers, link_type, data, self.config.vlan),
            None => host_pair_filter(headers, link_type, data, self.config.vlan),
        };
        let shape = match &self.config.template {
            None => Some(host_pair_shape(headers, link_type, data)),
            Some(template) => template.shape(headers, link_type, data).ok(),
        };
        let asker = hit.waits_at.map_or(Asker::Live, Asker::Waiting);
        self.decide(Occurrence { hit: hit.at, clock_ns: hit.clock_ns, values, shape, key, asker }, &compile, places)
    }

    /// Fires by hand at `now`: no packet, no holdoff; a template with names takes everything.
    pub fn fire_by_hand(&self, now: Moment, link_types: &[LinkType], places: &Arc<Places>) -> Verdict {
        let text = match &self.config.template {
            Some(template) if !template.has_names() => template.text(),
            _ => "",
        };
        let compile = || Filter::compile(text, self.config.vlan, link_types).map_err(NoFilter::Uncompiled);
        let values = Ok(Values::everything());
        let clock_ns = now.time_ns;
        self.decide(Occurrence { hit: now, clock_ns, values, shape: None, key: None, asker: Asker::Person }, &compile, places)
    }

    fn decide(&self, occurrence: Occurrence, compile: Compile<'_>, places: &Arc<Places>) -> Verdict {
        loop {
            let mut state = self.state.lock().expect("no panic while held");
            if let Some(verdict) = self.verdict(&mut state, &occurrence, compile, places) {
                state.counts.count(&verdict);
                state.misses.note(&verdict);
                return verdict;
            }
            drop(state); // nobody waits while others need the lock
            places.wait();
        }
    }

    /// `None`: a place will become free, and waiting for it is right.
    fn verdict(&self, state: &mut State, occurrence: &Occurrence, compile: Compile<'_>, places: &Arc<Places>) -> Option<Verdict> {
        let Occurrence { hit, clock_ns, values, shape, key, asker } = *occurrence;
        let hit_ns = hit.time_ns;
        if state.disarmed {
            return Some(Verdict::Disarmed);
        }
        let mut from_ns = hit_ns.saturating_sub(self.config.before_ns).max(0);
        let to_ns = hit_ns.max(clock_ns).saturating_add(self.config.after_ns);
        for window in values.iter().flat_map(|values| state.windows.of(*values)) {
            match window.extend(hit, to_ns) {
                Extended::Yes => return Some(Verdict::Extended),
                // A window that had to stop growing: the new one begins where it ended.
                Extended::No { full_to_ns: Some(end_ns) } if end_ns < hit_ns => from_ns = from_ns.max(end_ns + 1),
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
        match shape.and_then(|shape| state.fits.known(&shape)) {
            Some(Answer::Unfilled(name)) => return Some(Verdict::TemplateUnfilled { name }),
            Some(Answer::Uncompiled(cause)) => return Some(Verdict::FilterUncompiled { cause: cause.clone() }),
            Some(Answer::Fits) | None => {}
        }
        if places.no_space() {
            return Some(Verdict::NoSpace);
        }
        // Before the filter is made: a storm of hits costs little.
        match places.refusal(asker) {
            Some(Full::Enough) => return Some(Verdict::Disarmed),
            Some(Full::ForGood) => return Some(Verdict::TooMany),
            Some(Full::ForNow) => return None,
            None => {}
        }
        if let Some(shape) = shape
            && state.fits.ask(&shape, hit_ns, matches!(asker, Asker::Waiting(_))) == Next::Rationed
        {
            let name = self.config.template.as_ref().map_or("", Template::first_name);
            return Some(Verdict::TemplateUnfilled { name });
        }
        let compiled = compile();
        if let Some(shape) = shape {
            state.fits.learn(
                &shape,
                match &compiled {
                    Ok(_) => Answer::Fits,
                    Err(NoFilter::Unfilled(unfilled)) => Answer::Unfilled(unfilled.name),
                    Err(NoFilter::Uncompiled(error)) => Answer::Uncompiled(cause(error)),
                },
            );
        }
        let filter = match compiled {
            Ok(filter) => filter,
            Err(NoFilter::Unfilled(unfilled)) => return Some(Verdict::TemplateUnfilled { name: unfilled.name }),
            Err(NoFilter::Uncompiled(error)) => return Some(Verdict::FilterUncompiled { cause: cause(&error) }),
        };
        let window = Arc::new(Window::in_era(hit.era, from_ns, to_ns, hit_ns));
        let place = match places.take(&window, asker) {
            Ok(place) => place,
            Err(Full::ForNow) => return None,
            Err(Full::ForGood) => return Some(Verdict::TooMany),
            Err(Full::Enough) => return Some(Verdict::Disarmed),
        };
        if let Some(key) = key {
            state.holdoff.fired(key, hit_ns);
        }
        state.disarmed = self.config.single;
        state.windows.add(values, &window, 2 * places.max());
        Some(Verdict::Fired(Fire { filter, window, place }))
    }
}

/// Why a link type has no such filter, in one line.
fn cause(error: &FilterError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests;
