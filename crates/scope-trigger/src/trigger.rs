//! One trigger: which filter makes a packet a hit, and what becomes of each hit.
//!
//! Each hit is counted once, by the first that applies: `disarmed`, `extended`, `held_off`, `template_unfilled`, `no_space`,
//! `too_many`, `filter_uncompiled`, `fired`. The numbers add up to the trigger's hits.
//!
//! Up to the last two nothing is made for a hit but the values that the template takes from it: no text, no filter.

use crate::fits::{Answer, Fits, Next};
use crate::holdoff::Holdoff;
use crate::places::{Asker, Full, Place, Places};
use crate::window::{Extended, Window};
use crate::windows::Windows;
use scope_filter::{Filter, NoFilter, Shape, Template, Values, VlanRule, host_pair_filter, host_pair_shape, host_pair_values};
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

/// A dump to be made.
#[derive(Debug)]
pub struct Fire {
    /// What the dump keeps packets by.
    pub filter: Filter,
    /// Its window.
    pub window: Arc<Window>,
    /// Its place among the dumps at once.
    pub place: Place,
}

/// What became of a hit.
#[derive(Debug)]
pub enum Verdict {
    /// The trigger doesn't fire any more (mode single), or the run has all the dumps that it was to make.
    Disarmed,
    /// An open dump of the same trigger with the same filter took it in.
    Extended,
    /// Too soon after the last fire.
    HeldOff,
    /// The packet has no such field as the template names, or its values make no filter.
    TemplateUnfilled {
        /// The name.
        name: &'static str,
    },
    /// The template makes a filter, but the packet's link type has none such.
    FilterUncompiled {
        /// The compiler's words.
        cause: String,
    },
    /// The dumps' folder has no room for another.
    NoSpace,
    /// All places for dumps are taken.
    TooMany,
    /// A dump begins.
    Fired(Fire),
}

impl Verdict {
    /// The word under which summaries and logs count it.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Disarmed => "disarmed",
            Verdict::Extended => "extended",
            Verdict::HeldOff => "held_off",
            Verdict::TemplateUnfilled { .. } => "template_unfilled",
            Verdict::FilterUncompiled { .. } => "filter_uncompiled",
            Verdict::NoSpace => "no_space",
            Verdict::TooMany => "too_many",
            Verdict::Fired(_) => "fired",
        }
    }
}

/// Hits by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// A dump began.
    pub fired: u64,
    /// Taken in by an open dump.
    pub extended: u64,
    /// Too soon after a fire.
    pub held_off: u64,
    /// No room for the dump.
    pub no_space: u64,
    /// All places taken.
    pub too_many: u64,
    /// The template's fields weren't there.
    pub template_unfilled: u64,
    /// The link type has no such filter.
    pub filter_uncompiled: u64,
    /// The trigger was disarmed.
    pub disarmed: u64,
    /// Of `template_unfilled`: hits that were refused without a look, see [`crate::fits`].
    pub rationed: u64,
}

impl HitCounts {
    /// All hits.
    pub fn total(&self) -> u64 {
        self.each().iter().map(|(_, hits)| hits).sum()
    }

    /// Every verdict's number with its word.
    pub fn each(&self) -> [(&'static str, u64); 8] {
        let HitCounts {
            fired,
            extended,
            held_off,
            no_space,
            too_many,
            template_unfilled,
            filter_uncompiled,
            disarmed,
            rationed: _,
        } = *self;
        [
            ("fired", fired),
            ("extended", extended),
            ("held_off", held_off),
            ("no_space", no_space),
            ("too_many", too_many),
            ("template_unfilled", template_unfilled),
            ("filter_uncompiled", filter_uncompiled),
            ("disarmed", disarmed),
        ]
    }

    /// Adds the hits of another trigger.
    pub fn add(&mut self, other: &HitCounts) {
        // All fields by name: what is added later can't be forgotten here.
        let HitCounts { fired, extended, held_off, no_space, too_many, template_unfilled, filter_uncompiled, disarmed, rationed } =
            *other;
        self.fired += fired;
        self.extended += extended;
        self.held_off += held_off;
        self.no_space += no_space;
        self.too_many += too_many;
        self.template_unfilled += template_unfilled;
        self.filter_uncompiled += filter_uncompiled;
        self.disarmed += disarmed;
        self.rationed += rationed;
    }

    fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Disarmed => &mut self.disarmed,
            Verdict::Extended => &mut self.extended,
            Verdict::HeldOff => &mut self.held_off,
            Verdict::TemplateUnfilled { .. } => &mut self.template_unfilled,
            Verdict::FilterUncompiled { .. } => &mut self.filter_uncompiled,
            Verdict::NoSpace => &mut self.no_space,
            Verdict::TooMany => &mut self.too_many,
            Verdict::Fired(_) => &mut self.fired,
        } += 1;
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

/// Why hits made no filter, for whoever looks for a remedy: the first of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// The name that a packet lacked.
    pub unfilled: Option<&'static str>,
    /// The compiler's words on a link type.
    pub uncompiled: Option<String>,
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
                    Err(NoFilter::Uncompiled(error)) => Answer::Uncompiled(error.cause()),
                },
            );
        }
        let filter = match compiled {
            Ok(filter) => filter,
            Err(NoFilter::Unfilled(unfilled)) => return Some(Verdict::TemplateUnfilled { name: unfilled.name }),
            Err(NoFilter::Uncompiled(error)) => return Some(Verdict::FilterUncompiled { cause: error.cause() }),
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

impl Misses {
    fn note(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::TemplateUnfilled { name } => drop(self.unfilled.get_or_insert(name)),
            Verdict::FilterUncompiled { cause } => drop(self.uncompiled.get_or_insert_with(|| cause.clone())),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_filter::VlanRule;

    const S: i64 = 1_000_000_000;

    fn frame(last: u8) -> Vec<u8> {
        let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1];
        frame.extend([10, 0, 0, last, 0x03, 0xe8, 0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
        frame
    }

    struct Bench {
        trigger: Trigger,
        places: Arc<Places>,
        held: Vec<Fire>,
        era: u64,
    }

    impl Bench {
        fn new(places: usize, change: impl FnOnce(&mut TriggerConfig)) -> Bench {
            let filter = Filter::compile("udp", VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
            let mut config = TriggerConfig {
                name: "t".into(),
                filter,
                template: Some(Template::parse("host $dstIP").unwrap()),
                before_ns: 10 * S,
                after_ns: 5 * S,
                holdoff_ns: S,
                holdoff_key: None,
                vlan: VlanRule::Transparent,
                single: false,
            };
            change(&mut config);
            Bench { trigger: Trigger::new(config), places: Places::new(places, S, None), held: Vec::new(), era: 0 }
        }

        fn hit(&mut self, at_ns: i64, data: &[u8]) -> &'static str {
            let headers = Headers::parse(LinkType::ETHERNET, data);
            let at = Moment::new(self.era, at_ns);
            let hit = Hit { at, clock_ns: at_ns, link_type: LinkType::ETHERNET, headers: &headers, data, waits_at: None };
            let verdict = self.trigger.hit(&hit, &self.places);
            let name = verdict.name();
            if let Verdict::Fired(fire) = verdict {
                self.held.push(fire);
            }
            name
        }
    }

    #[test]
    fn each_hit_is_counted_once_by_the_first_that_applies() {
        let mut bench = Bench::new(2, |_| {});
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        assert_eq!(bench.hit(101 * S - 1, &frame(2)), "extended", "the same filter, within the window: before holdoff");
        assert_eq!(bench.hit(101 * S - 1, &frame(3)), "fired", "another filter");
        bench.held.iter().for_each(|fire| fire.window.close());
        assert_eq!(bench.hit(101 * S, &frame(3)), "held_off", "the window is over, the holdoff isn't");
        assert_eq!(bench.hit(102 * S, &frame(4)), "too_many");
        let arp = [[0u8; 12].as_slice(), &[8, 6], &[0; 10]].concat();
        assert_eq!(bench.hit(102 * S, &arp), "template_unfilled");
        let counts = bench.trigger.counts();
        let expected =
            HitCounts { fired: 2, extended: 1, held_off: 1, too_many: 1, template_unfilled: 1, ..HitCounts::default() };
        assert_eq!((counts, counts.total()), (expected, 6));
        assert_eq!(bench.trigger.misses(), Misses { unfilled: Some("$dstIP"), uncompiled: None });
        assert_eq!((bench.held[0].window.from_ns(), bench.held[0].window.to_ns()), (90 * S, 106 * S - 1));
        assert_eq!(bench.held[1].filter.text(), "host 10.0.0.3");
    }

    /// 64 hosts, and more.
    fn long_template(more: &str) -> Template {
        let hosts: Vec<String> = (1..=64).map(|host| format!("host 192.0.2.{host}")).collect();
        Template::parse(&format!("({}) and {more}", hosts.join(" or "))).unwrap()
    }

    /// UDP over IPv6 from an address and a port.
    fn frame6(from: u64, port: u16) -> Vec<u8> {
        let mut frame = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64];
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]);
        frame.extend(from.to_be_bytes());
        frame.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
        frame.extend(port.to_be_bytes());
        frame.extend([0xea, 0x60, 0, 12, 0, 0, 1, 2, 3, 4]);
        frame
    }

    #[test]
    fn hits_whose_values_make_no_filter_are_found_once_and_not_compiled_again() {
        let mut bench = Bench::new(2, |config| {
            config.template = Some(long_template("ip host $srcIP"));
            config.holdoff_ns = 0;
        });
        for from in 0..20_000 {
            assert_eq!(bench.hit(100 * S, &frame6(from, 7)), "template_unfilled");
        }
        let left = bench.trigger.state.lock().unwrap().fits.failures_left();
        assert_eq!((left, bench.trigger.counts().rationed), (crate::fits::FAILURES_AT_ONCE - 1, 0));
        let expected = HitCounts { template_unfilled: 20_000, ..HitCounts::default() };
        assert_eq!((bench.trigger.counts(), bench.trigger.counts().total()), (expected, 20_000));
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired", "what fits still does");
    }

    #[test]
    fn a_link_type_that_has_no_such_filter_is_asked_once() {
        let bench = Bench::new(2, |config| {
            config.template = Some(long_template("ether host 02:02:02:02:02:02"));
            config.holdoff_ns = 0;
        });
        let (data, link_type) = (&frame(2)[14..], LinkType::RAW);
        let headers = Headers::parse(link_type, data);
        let hit = Hit { at: Moment::new(0, S), clock_ns: S, link_type, headers: &headers, data, waits_at: None };
        for _ in 0..20_000 {
            assert_eq!(bench.trigger.hit(&hit, &bench.places).name(), "filter_uncompiled");
        }
        let left = bench.trigger.state.lock().unwrap().fits.failures_left();
        assert_eq!((left, bench.trigger.counts().filter_uncompiled), (crate::fits::FAILURES_AT_ONCE - 1, 20_000));
    }

    #[test]
    fn ever_new_values_that_make_no_filter_are_rationed_and_counted() {
        let mut bench = Bench::new(2, |config| {
            config.template = Some(long_template("port {srcPort}0"));
            config.holdoff_ns = 0;
        });
        for port in 10_000..20_000 {
            assert_eq!(bench.hit(100 * S, &frame6(1, port)), "template_unfilled");
        }
        let rationed = 10_000 - u64::from(crate::fits::FAILURES_AT_ONCE);
        assert_eq!((bench.trigger.counts().template_unfilled, bench.trigger.counts().rationed), (10_000, rationed));
        assert_eq!(bench.hit(102 * S, &frame6(1, 8)), "fired", "after a while others are looked at again");
    }

    #[test]
    fn when_there_is_no_place_or_all_dumps_are_made_no_filter_is_compiled() {
        for (limits, expected) in [((1, None), "too_many"), ((8, Some(1)), "disarmed")] {
            let mut bench = Bench::new(8, |config| config.holdoff_ns = 0);
            bench.places.set_limits(limits.0, limits.1);
            assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
            let compile = || panic!("compiled");
            for asker in [Asker::Live, Asker::Waiting(Moment::new(0, 100 * S))] {
                let occurrence = Occurrence {
                    hit: Moment::new(0, 200 * S),
                    clock_ns: 200 * S,
                    values: Ok(Values::everything()),
                    shape: None,
                    key: None,
                    asker,
                };
                assert_eq!(bench.trigger.decide(occurrence, &compile, &bench.places).name(), expected);
            }
        }
    }

    #[test]
    fn without_room_no_dump_begins_and_nothing_is_held_off() {
        let mut bench = Bench::new(2, |config| config.single = true);
        let full = Arc::new(std::sync::atomic::AtomicBool::new(true));
        bench.places.heed(full.clone());
        assert_eq!(bench.hit(100 * S, &frame(2)), "no_space");
        full.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(bench.hit(100 * S + 1, &frame(2)), "fired", "neither held off nor disarmed by what was refused");
        let expected = HitCounts { fired: 1, no_space: 1, ..HitCounts::default() };
        assert_eq!((bench.trigger.counts(), bench.trigger.counts().total()), (expected, 2));
    }

    #[test]
    fn where_capture_time_was_set_back_nothing_is_held_off_or_extended_by_what_was_before() {
        let mut bench = Bench::new(8, |_| {});
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        bench.era = 1;
        assert_eq!(bench.hit(100 * S + 5, &frame(2)), "fired");
        assert_eq!(bench.hit(100 * S + 6, &frame(2)), "extended");
        assert_eq!(bench.held.iter().map(|fire| fire.window.era()).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn single_fires_once_and_never_extends() {
        let mut bench = Bench::new(2, |config| config.single = true);
        assert_eq!(bench.hit(S, &frame(2)), "fired");
        assert_eq!(bench.hit(S, &frame(2)), "disarmed");
        assert!(!bench.trigger.armed());
    }

    #[test]
    fn holdoff_is_told_apart_by_what_the_template_takes_from_the_hit() {
        let mut bench = Bench::new(8, |config| (config.template, config.after_ns) = (None, 0));
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        assert_eq!(bench.hit(100 * S + 5, &frame(3)), "fired", "another host isn't held off");
        let mut back = frame(2);
        back[26..34].rotate_left(4);
        assert_eq!(bench.hit(100 * S + 9, &back), "held_off", "the same two hosts, whoever sends");
        let mut whole = Bench::new(8, |config| {
            config.holdoff_key = Some(Template::parse("").unwrap());
            config.after_ns = 0;
        });
        assert_eq!((whole.hit(100 * S, &frame(2)), whole.hit(100 * S + 5, &frame(3))), ("fired", "held_off"));
    }

    #[test]
    fn both_directions_are_one_dump() {
        let mut back = frame(2);
        back[26..34].rotate_left(4);
        back[34..38].rotate_left(2);
        for template in [None, Some(Template::parse("$flow").unwrap())] {
            let mut bench = Bench::new(8, |config| config.template = template);
            assert_eq!((bench.hit(100 * S, &frame(2)), bench.hit(100 * S + 5, &back)), ("fired", "extended"));
        }
    }

    #[test]
    fn a_filter_that_the_link_type_can_t_have_is_counted_as_that() {
        let ip = frame(2)[14..].to_vec();
        let headers = Headers::parse(LinkType::RAW, &ip);
        let hit =
            Hit { at: Moment::new(0, S), clock_ns: S, link_type: LinkType::RAW, headers: &headers, data: &ip, waits_at: None };
        let verdict = |template: &str| {
            let bench = Bench::new(8, |config| config.template = Some(Template::parse(template).unwrap()));
            let verdict = bench.trigger.hit(&hit, &bench.places);
            assert_eq!(bench.trigger.counts().total(), 1, "{template}");
            verdict
        };
        let Verdict::FilterUncompiled { cause } = verdict("ether host 02:02:02:02:02:02 and host $srcIP") else {
            panic!("compiled")
        };
        assert!(cause.contains("ethernet addresses supported only on"), "{cause}");
        assert!(matches!(verdict("ip6 host $srcIP"), Verdict::TemplateUnfilled { name: "$srcIP" }));
        assert!(matches!(verdict("host $srcIP"), Verdict::Fired(_)));
    }

    #[test]
    fn a_run_that_has_its_dumps_is_disarmed_and_nothing_is_too_many() {
        let bench = Bench::new(1, |_| {});
        let enough = Places::new(1, S, Some(1));
        let headers = Headers::parse(LinkType::ETHERNET, &[]);
        let at = |time_ns| Hit {
            at: Moment::new(0, time_ns),
            clock_ns: time_ns,
            link_type: LinkType::ETHERNET,
            headers: &headers,
            data: &[],
            waits_at: None,
        };
        let trigger = Trigger::new(TriggerConfig { template: None, after_ns: 0, ..bench.trigger.config().clone() });
        let first = trigger.hit(&at(S), &enough);
        assert_eq!((first.name(), trigger.hit(&at(10 * S), &enough).name()), ("fired", "disarmed"));
    }

    #[test]
    fn counts_of_two_triggers_add_up_number_by_number() {
        let of = |n| HitCounts {
            fired: n,
            extended: 2 * n,
            held_off: 3 * n,
            no_space: 4 * n,
            too_many: 5 * n,
            template_unfilled: 6 * n,
            filter_uncompiled: 7 * n,
            disarmed: 8 * n,
            rationed: 9 * n,
        };
        let mut sum = of(1);
        sum.add(&of(10));
        assert_eq!((sum, sum.total()), (of(11), 36 * 11));
    }

    #[test]
    fn holdoff_is_per_key_where_one_is_given() {
        let mut bench = Bench::new(8, |config| {
            config.holdoff_key = Some(Template::parse("$dstIP").unwrap());
            config.after_ns = 0;
        });
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        assert_eq!(bench.hit(100 * S + 5, &frame(3)), "fired");
        assert_eq!(bench.hit(100 * S + 9, &frame(2)), "held_off");
    }

    #[test]
    fn a_second_fire_has_its_own_full_past() {
        let mut bench = Bench::new(8, |_| {});
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        assert_eq!(bench.hit(106 * S, &frame(2)), "fired");
        assert_eq!(bench.held[1].window.from_ns(), 96 * S, "overlaps the first window");
    }

    #[test]
    fn a_dump_that_stopped_growing_is_continued_where_it_ended() {
        let mut bench = Bench::new(8, |_| {});
        assert_eq!(bench.hit(100 * S, &frame(2)), "fired");
        let mut at = 100 * S;
        let verdict = loop {
            at += 4 * S;
            match bench.hit(at, &frame(2)) {
                "extended" => continue,
                other => break other,
            }
        };
        assert_eq!(verdict, "fired");
        let first_end = bench.held[0].window.to_ns();
        assert_eq!(first_end, 90 * S + crate::window::WINDOW_GROWTH_MAX_NS);
        assert_eq!(bench.held[1].window.from_ns(), first_end + 1);
    }

    #[test]
    fn a_fire_by_hand_takes_everything_where_the_template_has_names() {
        let bench = Bench::new(8, |_| {});
        let Verdict::Fired(fire) = bench.trigger.fire_by_hand(Moment::new(0, 50 * S), &[LinkType::ETHERNET], &bench.places)
        else {
            panic!("fires")
        };
        assert_eq!((fire.filter.text(), fire.window.from_ns(), fire.window.to_ns()), ("", 40 * S, 55 * S));
    }
}
