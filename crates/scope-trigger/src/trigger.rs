//! One trigger: which filter makes a packet a hit, and what becomes of each hit.
//!
//! Each hit is counted once, by the first that applies: `disarmed`, `extended`, `held_off`, `template_unfilled`, `no_space`,
//! `too_many`, `fired`. The numbers add up to the trigger's hits.

use crate::holdoff::Holdoff;
use crate::places::{Full, Place, Places};
use crate::window::{Extended, Window};
use scope_filter::{Filter, Template, VlanRule, host_pair_default};
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
    /// What the holdoff is told apart by.
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
    /// The trigger doesn't fire any more (mode single).
    Disarmed,
    /// An open dump of the same trigger with the same filter took it in.
    Extended,
    /// Too soon after the last fire.
    HeldOff,
    /// The packet has no such field as the template names.
    TemplateUnfilled {
        /// The name.
        name: String,
    },
    /// The dumps' folder has no room for another.
    NoSpace,
    /// All places for dumps are taken, or the run has all the dumps that it was to make.
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
    /// The trigger was disarmed.
    pub disarmed: u64,
}

impl HitCounts {
    /// All hits.
    pub fn total(&self) -> u64 {
        self.fired + self.extended + self.held_off + self.no_space + self.too_many + self.template_unfilled + self.disarmed
    }

    /// Adds the hits of another trigger.
    pub fn add(&mut self, other: &HitCounts) {
        self.fired += other.fired;
        self.extended += other.extended;
        self.held_off += other.held_off;
        self.too_many += other.too_many;
        self.template_unfilled += other.template_unfilled;
        self.disarmed += other.disarmed;
    }

    fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Disarmed => &mut self.disarmed,
            Verdict::Extended => &mut self.extended,
            Verdict::HeldOff => &mut self.held_off,
            Verdict::TemplateUnfilled { .. } => &mut self.template_unfilled,
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

/// Makes the dump's filter of its text, or names the field whose value makes none.
type Compile<'a> = &'a dyn Fn(&str) -> Result<Filter, &'static str>;

/// One hit, or one fire by hand, as the verdict needs it.
struct Occurrence {
    hit: Moment,
    /// The dump filter, or the name that the packet has no field for.
    filter: Result<String, String>,
    /// What its holdoff is told apart by; `None`: no holdoff.
    key: Option<String>,
    wait_at: Option<Moment>,
}

#[derive(Debug)]
struct State {
    disarmed: bool,
    /// The latest era in which it was hit; its holdoff speaks of no other.
    era: u64,
    holdoff: Holdoff,
    /// Windows that may still take in hits, with their filters; at most twice as many as there are places.
    windows: Vec<(String, Arc<Window>)>,
    counts: HitCounts,
}

impl Trigger {
    /// Arms a trigger.
    pub fn new(config: TriggerConfig) -> Trigger {
        let holdoff = Holdoff::new(config.holdoff_ns);
        let state = State { disarmed: false, era: 0, holdoff, windows: Vec::new(), counts: HitCounts::default() };
        Trigger { config, state: Mutex::new(state) }
    }

    /// What it is made of.
    pub fn config(&self) -> &TriggerConfig {
        &self.config
    }

    /// Hits so far.
    pub fn counts(&self) -> HitCounts {
        self.state.lock().expect("no panic while held").counts
    }

    /// Whether it still fires.
    pub fn armed(&self) -> bool {
        !self.state.lock().expect("no panic while held").disarmed
    }

    /// Decides what becomes of a hit, and counts it.
    pub fn hit(&self, hit: &Hit<'_>, places: &Arc<Places>) -> Verdict {
        let filter = match &self.config.template {
            None => Ok(host_pair_default(hit.headers, hit.link_type, hit.data)),
            Some(template) => template.fill(hit.headers, hit.link_type, hit.data).map_err(|unfilled| unfilled.name.to_string()),
        };
        let key = self.config.holdoff_key.as_ref().and_then(|key| key.key(hit.headers, hit.link_type, hit.data));
        let compile = |text: &str| match &self.config.template {
            Some(template) => template.fill_filter(hit.headers, hit.link_type, hit.data, self.config.vlan).map_err(|u| u.name),
            None => Filter::compile(text, self.config.vlan, &[hit.link_type]).map_err(|_| ""),
        };
        self.decide(
            Occurrence { hit: hit.at, filter, key: Some(key.unwrap_or_default()), wait_at: hit.waits_at },
            &compile,
            places,
        )
    }

    /// Fires by hand at `now`: no packet, no holdoff; a template with names takes everything.
    pub fn fire_by_hand(&self, now: Moment, link_types: &[LinkType], places: &Arc<Places>) -> Verdict {
        let filter = match &self.config.template {
            Some(template) if !template.has_names() => template.text().to_string(),
            _ => String::new(),
        };
        let compile = |text: &str| Filter::compile(text, self.config.vlan, link_types).map_err(|_| "");
        let by_hand = Occurrence { hit: now, filter: Ok(filter), key: None, wait_at: None };
        self.decide(by_hand, &compile, places)
    }

    fn decide(&self, occurrence: Occurrence, compile: Compile<'_>, places: &Arc<Places>) -> Verdict {
        loop {
            let mut state = self.state.lock().expect("no panic while held");
            if let Some(verdict) = self.verdict(&mut state, &occurrence, compile, places) {
                state.counts.count(&verdict);
                return verdict;
            }
            drop(state); // nobody waits while others need the lock
            places.wait();
        }
    }

    /// `None`: a place will become free, and waiting for it is right.
    fn verdict(&self, state: &mut State, occurrence: &Occurrence, compile: Compile<'_>, places: &Arc<Places>) -> Option<Verdict> {
        let Occurrence { hit, ref filter, ref key, wait_at } = *occurrence;
        let hit_ns = hit.time_ns;
        if state.disarmed {
            return Some(Verdict::Disarmed);
        }
        let mut from_ns = hit_ns.saturating_sub(self.config.before_ns).max(0);
        let to_ns = hit_ns.saturating_add(self.config.after_ns);
        if let Ok(filter) = filter {
            for (_, window) in state.windows.iter().filter(|(text, _)| text == filter) {
                match window.extend(hit, to_ns) {
                    Extended::Yes => return Some(Verdict::Extended),
                    // A window that had to stop growing: the new one begins where it ended.
                    Extended::No { full_to_ns: Some(end_ns) } if end_ns < hit_ns => from_ns = from_ns.max(end_ns + 1),
                    Extended::No { .. } => {}
                }
            }
        }
        if hit.era > state.era {
            // Times before it don't compare with those behind it.
            (state.era, state.holdoff) = (hit.era, Holdoff::new(self.config.holdoff_ns));
        }
        if key.as_ref().is_some_and(|key| state.holdoff.holds(key, hit_ns)) {
            return Some(Verdict::HeldOff);
        }
        let text = match filter {
            Ok(text) => text,
            Err(name) => return Some(Verdict::TemplateUnfilled { name: name.clone() }),
        };
        if places.no_space() {
            return Some(Verdict::NoSpace);
        }
        if wait_at.is_none() && places.open() >= places.max() {
            return Some(Verdict::TooMany); // before the filter is compiled: a storm of hits costs little
        }
        let filter = match compile(text) {
            Ok(filter) => filter,
            Err(name) => return Some(Verdict::TemplateUnfilled { name: name.to_string() }),
        };
        let window = Arc::new(Window::in_era(hit.era, from_ns, to_ns, hit_ns));
        let place = match places.take(&window, wait_at) {
            Ok(place) => place,
            Err(Full::ForNow) => return None,
            Err(Full::ForGood) => return Some(Verdict::TooMany),
        };
        if let Some(key) = key {
            state.holdoff.fired(key, hit_ns);
        }
        state.disarmed = self.config.single;
        state.windows.retain(|(_, window)| !window.is_over());
        if state.windows.len() >= 2 * places.max() {
            state.windows.remove(0); // closed full ones, kept to begin where they ended
        }
        state.windows.push((text.clone(), window.clone()));
        Some(Verdict::Fired(Fire { filter, window, place }))
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
            let hit =
                Hit { at: Moment::new(self.era, at_ns), link_type: LinkType::ETHERNET, headers: &headers, data, waits_at: None };
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
        assert_eq!(bench.hit(101 * S - 1, &frame(3)), "held_off", "another filter");
        assert_eq!(bench.hit(101 * S, &frame(3)), "fired");
        assert_eq!(bench.hit(102 * S, &frame(4)), "too_many");
        let arp = [[0u8; 12].as_slice(), &[8, 6], &[0; 10]].concat();
        assert_eq!(bench.hit(102 * S, &arp), "template_unfilled");
        let counts = bench.trigger.counts();
        let expected =
            HitCounts { fired: 2, extended: 1, held_off: 1, too_many: 1, template_unfilled: 1, ..HitCounts::default() };
        assert_eq!((counts, counts.total()), (expected, 6));
        assert_eq!((bench.held[0].window.from_ns(), bench.held[0].window.to_ns()), (90 * S, 106 * S - 1));
        assert_eq!(bench.held[1].filter.text(), "host 10.0.0.3");
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
