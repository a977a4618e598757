//! Rules: what becomes of packets that match, in the order in which the rules are written.
//!
//! ```text
//! name "noise"   when "udp port 1900"          do drop              gone, counted by the rule
//! name "voip"    when "udp portrange 10000-20000" do class voip, keep 128   goes on: the next rules may act as well
//! name "known"   host-in partners              do stop              no rule behind acts any more
//! ```
//! Each rule that holds acts, until one drops or stops. Of several marks, classes and ways to steer the last one counts, of
//! several lengths the least.

use crate::sets::Set;
use crate::steer::Steer;
use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterEngine, FilterInput, Predicate};
use scope_packet::{Headers, KeyEntry, Kind, LinkType};
use scope_ring::Steering;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::str::FromStr;
use std::sync::Arc;

/// Packets that rules look at together.
pub const TOGETHER: usize = FILTER_INPUTS_MAX;
/// Rules of one group at most.
pub const RULES_MAX: usize = 256;
/// Actions of a rule at most.
pub const ACTIONS_MAX: usize = 16;
/// Classes that rules give, and groups that they copy to, at most, each.
pub const NAMES_MAX: usize = 64;

/// Rules that aren't in force any more whose names are kept, for what they have taken.
const FORMER_MAX: usize = 1024;
/// What all of them are called together when there are more.
const FORMER: &str = "(former rules)";

/// What a rule does with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is gone.
    Drop,
    /// Of its bytes these are kept.
    Keep(u32),
    /// Of so many of them one stays.
    Sample(u64),
    /// Of so many flows one stays.
    SampleFlows(u64),
    /// No rule behind acts.
    Stop,
    /// It gets this mark.
    Mark(u32),
    /// It goes to members that have joined with this class.
    Class(String),
    /// It is shared out so.
    Steer(Steer),
    /// The members of this group get it, too.
    Copy(String),
}

/// Why a text is no action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is nothing that a rule can do")]
pub struct BadAction(pub String);

/// What a rule can do, as it is written.
pub const SPELLINGS: &str = "drop, keep N, sample 1/N, sample-flows 1/N, stop, and of groups mark N, class NAME, steer HOW, copy GROUP";

impl FromStr for Action {
    type Err = BadAction;

    fn from_str(text: &str) -> Result<Action, BadAction> {
        let bad = || BadAction(text.to_string());
        let (word, value) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let value = value.trim();
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let part = || {
            let parts = value.strip_prefix("1/").filter(|parts| digits(parts))?;
            parts.parse::<u64>().ok().filter(|parts| *parts > 0)
        };
        let number = || value.parse::<u32>().ok().filter(|_| digits(value));
        let action = match word {
            "drop" if value.is_empty() => Some(Action::Drop),
            "stop" if value.is_empty() => Some(Action::Stop),
            "keep" => number().map(Action::Keep),
            "sample" => part().map(Action::Sample),
            "sample-flows" => part().map(Action::SampleFlows),
            "mark" => number().map(Action::Mark),
            "class" => (!value.is_empty()).then(|| Action::Class(value.to_string())),
            "steer" => value.parse().ok().map(Action::Steer),
            "copy" => (!value.is_empty()).then(|| Action::Copy(value.to_string())),
            _ => None,
        };
        action.ok_or_else(bad)
    }
}

impl Action {
    /// Whether only groups can do it.
    pub fn is_of_groups(&self) -> bool {
        matches!(self, Action::Mark(_) | Action::Class(_) | Action::Steer(_) | Action::Copy(_))
    }
}

/// When a rule holds: all of it that is there.
#[derive(Clone, Debug, Default)]
pub struct Test {
    /// The packet matches.
    pub when: Option<Filter>,
    /// The packet does not.
    pub unless: Option<Filter>,
    /// Its source is in this set of hosts.
    pub source_in: Option<Arc<Set>>,
    /// Its destination is.
    pub destination_in: Option<Arc<Set>>,
    /// One of both is.
    pub host_in: Option<Arc<Set>>,
    /// One of its ports is in this set of ports.
    pub port_in: Option<Arc<Set>>,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// When it holds.
    pub test: Test,
    /// What it does, in this order.
    pub actions: Vec<Action>,
}

/// An action with places in the lists of its rules instead of names.
#[derive(Clone, Copy, Debug)]
enum Act {
    Drop,
    Keep(u32),
    Sample(u64),
    SampleFlows(u64),
    Stop,
    Mark(u32),
    Class(u8),
    Steer(Steer),
    Copy(u8),
}

/// Rules in their order.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// What each does.
    acts: Vec<Vec<Act>>,
    /// Classes that they give.
    classes: Vec<String>,
    /// Groups that get copies.
    targets: Vec<String>,
    /// How it is made out whether two of them are the same.
    text: String,
}

impl RuleSet {
    /// These rules; `text` says as much as they do.
    ///
    /// # Panics
    /// Where there are more than [`RULES_MAX`], or a rule has more than [`ACTIONS_MAX`] actions.
    pub fn new(rules: Vec<Rule>, text: String) -> RuleSet {
        assert!(rules.len() <= RULES_MAX && rules.iter().all(|rule| rule.actions.len() <= ACTIONS_MAX));
        let (mut classes, mut targets) = (Vec::new(), Vec::new());
        let mut act = |action: &Action| match action {
            Action::Drop => Act::Drop,
            Action::Keep(bytes) => Act::Keep(*bytes),
            Action::Sample(parts) => Act::Sample(*parts),
            Action::SampleFlows(parts) => Act::SampleFlows(*parts),
            Action::Stop => Act::Stop,
            Action::Mark(mark) => Act::Mark(*mark),
            Action::Class(class) => Act::Class(place(&mut classes, class)),
            Action::Steer(steer) => Act::Steer(*steer),
            Action::Copy(group) => Act::Copy(place(&mut targets, group)),
        };
        let acts = rules.iter().map(|rule| rule.actions.iter().map(&mut act).collect()).collect();
        RuleSet { rules, acts, classes, targets, text }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Classes that they give.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The filters that they ask.
    pub fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.rules.iter().flat_map(|rule| rule.test.when.iter().chain(&rule.test.unless))
    }

    /// What they were made of.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Groups that get copies.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Whether they look at more of packets than their key entries.
    pub fn asks_packets(&self) -> bool {
        self.rules.iter().any(|Rule { test, .. }| {
            let sets = [&test.source_in, &test.destination_in, &test.host_in];
            test.when.is_some() || test.unless.is_some() || sets.iter().any(|set| set.is_some())
        })
    }

    /// Makes machine code of their filters.
    pub fn prepare(&self, engine: FilterEngine) {
        self.filters().for_each(|filter| drop(filter.prepare(engine))); // where there is none the interpreter answers the same
    }
}

/// Has no more than [`FORMER_MAX`] rules that aren't in force any more have a name of their own: others count as [`FORMER`].
pub fn fold_former<T: AddAssign + Default>(by_name: &mut BTreeMap<String, T>, in_force: &RuleSet) {
    let is_former = |name: &&String| !in_force.rules.iter().any(|rule| rule.name == **name);
    let former: Vec<String> = by_name.keys().filter(is_former).cloned().collect();
    if former.len() > FORMER_MAX {
        for name in former {
            let of = by_name.remove(&name).unwrap_or_default();
            *by_name.entry(FORMER.to_string()).or_default() += of;
        }
    }
}

/// The place of a name in a list that has each once.
fn place(names: &mut Vec<String>, name: &str) -> u8 {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    }) as u8
}

/// Packets as rules see them.
pub struct Packets<'a> {
    /// Of all of them.
    pub link_type: LinkType,
    /// Their key entries.
    pub keys: &'a [KeyEntry],
    /// The same as inputs of filters; may be empty where [`RuleSet::asks_packets`] says no.
    pub inputs: &'a [FilterInput<'a>],
}

/// What rules say of packets that were looked at together.
#[derive(Debug)]
pub struct Verdicts {
    /// Those that weren't dropped.
    pub alive: u64,
    /// Those of which something is said below.
    pub touched: u64,
    /// Bytes of each that are kept.
    pub keep: [u32; TOGETHER],
    /// The place of the rule that says so, among all; of packets that are kept whole it means nothing.
    pub keepers: [u16; TOGETHER],
    /// Marks.
    pub marks: [u32; TOGETHER],
    /// Classes, by their place in [`RuleSet::classes`].
    pub classes: [Option<u8>; TOGETHER],
    /// How each is shared out, where a rule says so.
    pub steers: [Option<Steer>; TOGETHER],
    /// Groups that get copies, by their place in [`RuleSet::targets`], and of which.
    pub copies: Vec<(u8, u64)>,
}

impl Default for Verdicts {
    fn default() -> Verdicts {
        Verdicts {
            alive: 0,
            touched: 0,
            keep: [u32::MAX; TOGETHER],
            keepers: [0; TOGETHER],
            marks: [0; TOGETHER],
            classes: [None; TOGETHER],
            steers: [None; TOGETHER],
            copies: Vec::new(),
        }
    }
}

impl Verdicts {
    /// Of packets that nobody has said anything of.
    fn begin(&mut self, which: u64) {
        for at in bits(std::mem::take(&mut self.touched)) {
            let at = usize::from(at);
            (self.keep[at], self.marks[at], self.classes[at], self.steers[at]) = (u32::MAX, 0, None, None);
        }
        self.copies.clear();
        self.alive = which;
    }
}

/// Packets that rules have dropped.
#[derive(Debug, Default)]
pub struct Dropped {
    rules: Arc<RuleSet>,
    /// By each of them.
    counts: Vec<u64>,
    /// By rules that aren't in force any more.
    former: BTreeMap<String, u64>,
}

impl Dropped {
    /// The same by the name of each rule.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let mut all = self.former.clone();
        for (rule, count) in self.rules.rules.iter().zip(&self.counts) {
            *all.entry(rule.name.clone()).or_default() += count;
        }
        all
    }

    /// The same by the place of each rule that is in force.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Takes over what another one has; without new memory, as long as the rules are the same.
    pub fn follow(&mut self, other: &Dropped) {
        self.counts.clone_from(&other.counts);
        if !Arc::ptr_eq(&self.rules, &other.rules) {
            (self.rules, self.former) = (other.rules.clone(), other.former.clone());
        }
    }
}

/// Rules at work: what they have counted.
#[derive(Debug, Default)]
pub struct Working {
    /// `None`: others make machine code of filters.
    engine: Option<FilterEngine>,
    /// Of each link type that has come, the filters of each rule.
    predicates: Vec<(LinkType, Vec<[Option<Predicate>; 2]>)>,
    /// What they have dropped, and the rules themselves.
    dropped: Dropped,
    /// Packets that each has sampled.
    sampled: Vec<u64>,
    /// What they said last.
    pub verdicts: Verdicts,
}

impl Working {
    /// Puts these in force; what was dropped so far stays counted. Without an engine no machine code is made here.
    pub fn set(&mut self, rules: &Arc<RuleSet>, engine: Option<FilterEngine>) {
        if let Some(engine) = engine {
            rules.prepare(engine);
        }
        let mut former = self.dropped.by_name().into_iter().filter(|(_, count)| *count > 0).collect();
        fold_former(&mut former, rules);
        self.dropped = Dropped { rules: rules.clone(), counts: vec![0; rules.rules.len()], former };
        self.sampled = vec![0; rules.rules.len()];
        self.engine = engine;
        self.predicates.clear();
    }

    /// What they have dropped.
    pub fn dropped(&self) -> &Dropped {
        &self.dropped
    }

    /// Applies them to the packets that are set in `which`.
    pub fn apply(&mut self, packets: &Packets<'_>, which: u64) -> &Verdicts {
        self.verdicts.begin(which);
        let at = self.predicates_at(packets.link_type);
        let (rules, mut going) = (self.dropped.rules.clone(), which);
        for (index, rule) in rules.rules.iter().enumerate() {
            if going == 0 {
                break;
            }
            let holds = holds(&rule.test, &self.predicates[at].1[index], packets, going);
            if holds == 0 {
                continue;
            }
            let counters = (&mut self.dropped.counts[index], &mut self.sampled[index]);
            let acts = (index as u16, &rules.acts[index][..]);
            going = act(acts, packets, (holds, going), &mut self.verdicts, counters);
        }
        &self.verdicts
    }

    fn predicates_at(&mut self, link_type: LinkType) -> usize {
        self.predicates.iter().position(|(known, _)| *known == link_type).unwrap_or_else(|| {
            let rules = &self.dropped.rules;
            let of = |filter: &Option<Filter>| filter.as_ref().map(|filter| filter.for_link(link_type));
            let each = rules.rules.iter().map(|rule| [of(&rule.test.when), of(&rule.test.unless)]);
            let each = each.collect();
            if let Some(engine) = self.engine {
                rules.prepare(engine);
            }
            self.predicates.push((link_type, each));
            self.predicates.len() - 1
        })
    }
}

/// For which of the packets a test holds.
fn holds(test: &Test, [when, unless]: &[Option<Predicate>; 2], packets: &Packets<'_>, mut which: u64) -> u64 {
    if let Some(when) = when {
        which = when.matches_batch(packets.inputs, which);
    }
    if let Some(unless) = unless {
        which &= !unless.matches_batch(packets.inputs, which);
    }
    if let Some(set) = &test.port_in {
        which = filter(which, |at| has_port(set, &packets.keys[at]));
    }
    for (set, of) in [
        (&test.source_in, (|(source, _)| source) as fn((bool, bool)) -> bool),
        (&test.destination_in, |(_, destination)| destination),
        (&test.host_in, |(source, destination)| source || destination),
    ] {
        if let Some(Set::Hosts(hosts)) = set.as_deref() {
            which = filter(which, |at| {
                let data = packets.inputs.get(at).map_or(&[][..], FilterInput::data);
                of(hosts.has_ends(&packets.keys[at], || Headers::parse(packets.link_type, data), data))
            });
        }
    }
    which
}

fn has_port(set: &Set, key: &KeyEntry) -> bool {
    let Set::Ports(ports) = set else { return false };
    let is_ip = matches!(key.kind(), Kind::Ipv4 | Kind::Ipv6);
    let is_later_fragment = key.source_port == 0 && key.destination_port == 0;
    is_ip && !is_later_fragment && (ports.has(key.source_port) || ports.has(key.destination_port))
}

/// Does what a rule does with packets for which it `holds`; those for which rules go on.
fn act(
    (rule, acts): (u16, &[Act]),
    packets: &Packets<'_>,
    (mut holds, mut going): (u64, u64),
    verdicts: &mut Verdicts,
    (dropped, sampled): (&mut u64, &mut u64),
) -> u64 {
    for act in acts {
        let gone = match *act {
            Act::Drop => holds,
            Act::Sample(parts) => filter(holds, |_| {
                *sampled += 1;
                !(*sampled - 1).is_multiple_of(parts)
            }),
            Act::SampleFlows(parts) => {
                filter(holds, |at| !Steering::flow_hash(&packets.keys[at]).is_multiple_of(parts))
            }
            Act::Stop => return going & !holds,
            Act::Copy(target) => {
                verdicts.copies.push((target, holds));
                0
            }
            Act::Keep(bytes) => each(holds, verdicts, |verdicts, at| {
                if bytes < verdicts.keep[at] {
                    (verdicts.keep[at], verdicts.keepers[at]) = (bytes, rule);
                }
            }),
            Act::Mark(mark) => each(holds, verdicts, |verdicts, at| verdicts.marks[at] = mark),
            Act::Class(class) => each(holds, verdicts, |verdicts, at| verdicts.classes[at] = Some(class)),
            Act::Steer(steer) => each(holds, verdicts, |verdicts, at| verdicts.steers[at] = Some(steer)),
        };
        *dropped += u64::from(gone.count_ones());
        (holds, going, verdicts.alive) = (holds & !gone, going & !gone, verdicts.alive & !gone);
        if holds == 0 {
            break;
        }
    }
    going
}

/// Says something of each of these packets; none of them is gone.
fn each(which: u64, verdicts: &mut Verdicts, say: impl Fn(&mut Verdicts, usize)) -> u64 {
    verdicts.touched |= which;
    bits(which).for_each(|at| say(verdicts, usize::from(at)));
    0
}

/// Those of the bits for which `is` says so.
fn filter(which: u64, mut is: impl FnMut(usize) -> bool) -> u64 {
    bits(which).filter(|at| is(usize::from(*at))).fold(0, |kept, at| kept | 1 << at)
}

/// The numbers of the bits that are set, rising.
pub fn bits(mut which: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let at = (which != 0).then(|| which.trailing_zeros() as u8)?;
        which &= which - 1;
        Some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::SetKind;
    use scope_filter::VlanRule;

    fn rule(name: &str, test: Test, actions: &[&str]) -> Rule {
        let actions = actions.iter().map(|action| action.parse().unwrap()).collect();
        Rule { name: name.to_string(), test, actions }
    }

    fn when(text: &str) -> Test {
        let filter = Filter::compile(text, VlanRule::default(), &[]).unwrap();
        Test { when: Some(filter), ..Test::default() }
    }

    /// UDP from 10.0.0.`host` port 1000 to 192.0.2.1 of these ports.
    fn frames(hosts: &[(u8, u16)]) -> Vec<Vec<u8>> {
        let frame = |&(host, port): &(u8, u16)| {
            let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
            data.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, host, 192, 0, 2, 1]);
            data.extend([1000, port, 26, 0].iter().flat_map(|word: &u16| word.to_be_bytes()));
            data.resize(60, 0);
            data
        };
        hosts.iter().map(frame).collect()
    }

    fn apply(working: &mut Working, frames: &[Vec<u8>]) -> u64 {
        let headers: Vec<Headers> =
            frames.iter().map(|data| Headers::parse(LinkType::ETHERNET, data)).collect();
        let keys: Vec<KeyEntry> = headers.iter().map(KeyEntry::new).collect();
        let inputs: Vec<FilterInput<'_>> = (0..frames.len())
            .map(|at| FilterInput::new(&headers[at], keys[at], &frames[at], frames[at].len() as u32))
            .collect();
        let packets = Packets { link_type: LinkType::ETHERNET, keys: &keys, inputs: &inputs };
        working.apply(&packets, (1 << frames.len()) - 1).alive
    }

    fn working(rules: Vec<Rule>) -> Working {
        let mut working = Working::default();
        working.set(&Arc::new(RuleSet::new(rules, String::new())), Some(FilterEngine::default()));
        working
    }

    #[test]
    fn actions_are_read_and_what_is_none_refused() {
        let check = |text: &str, action: Action| assert_eq!(text.parse(), Ok(action), "{text}");
        check("drop", Action::Drop);
        check("keep 0", Action::Keep(0));
        check("sample 1/10", Action::Sample(10));
        check("sample-flows 1/4", Action::SampleFlows(4));
        check("stop", Action::Stop);
        check("mark 4294967295", Action::Mark(u32::MAX));
        check("class voip", Action::Class("voip".to_string()));
        check("steer local:10.0.0.0/8", Action::Steer("local:10.0.0.0/8".parse().unwrap()));
        check("copy all", Action::Copy("all".to_string()));
        for text in [
            "",
            "drop 1",
            "keep",
            "keep -1",
            "sample 2/3",
            "sample 1/0",
            "mark 1.5",
            "class",
            "steer up",
            "copy",
            "burn",
        ] {
            assert_eq!(text.parse::<Action>(), Err(BadAction(text.to_string())));
        }
    }

    #[test]
    fn each_rule_that_holds_acts_until_one_drops_or_stops() {
        let rules = vec![
            rule("first", when("udp"), &["mark 1", "keep 100", "class a"]),
            rule("ends", when("udp dst port 53"), &["keep 50", "stop"]),
            rule("gone", when("udp dst port 80"), &["copy other", "drop", "mark 9"]),
            rule("last", when("udp"), &["mark 2", "keep 200", "class b", "steer ip"]),
        ];
        let mut working = working(rules);
        assert_eq!(apply(&mut working, &frames(&[(1, 53), (2, 80), (3, 99)])), 0b101);
        let verdicts = &working.verdicts;
        assert_eq!((&verdicts.marks[..3], &verdicts.keep[..3]), (&[1, 1, 2][..], &[50, 100, 100][..]));
        assert_eq!(verdicts.classes[..3], [Some(0), Some(0), Some(1)]);
        assert_eq!((verdicts.steers[0], verdicts.steers[2]), (None, Some(Steer::Ip)));
        assert_eq!(verdicts.copies, [(0, 0b10)]);
        assert_eq!(working.dropped().by_name().get("gone"), Some(&1));
        // What was dropped stays counted when its rule goes.
        let others = Arc::new(RuleSet::new(vec![rule("other", when("udp"), &["drop"])], String::new()));
        working.set(&others, Some(FilterEngine::default()));
        assert_eq!(apply(&mut working, &frames(&[(1, 1), (2, 2)])), 0);
        let dropped = working.dropped().by_name();
        assert_eq!((dropped["gone"], dropped["other"], dropped.len()), (1, 2, 2));
        // Nothing of it is said of the next packets.
        working.set(&Arc::default(), Some(FilterEngine::default()));
        assert_eq!(apply(&mut working, &frames(&[(9, 53)])), 1);
        assert!(working.verdicts.copies.is_empty() && working.verdicts.marks[1] == 0);
    }

    #[test]
    fn rules_that_come_and_go_leave_no_more_names_than_there_may_be() {
        let mut working = working(Vec::new());
        for number in 0..2500 {
            let rules = vec![rule(&format!("r{number}"), when("udp"), &["drop"])];
            working.set(&Arc::new(RuleSet::new(rules, String::new())), None);
            assert_eq!(apply(&mut working, &frames(&[(1, 53)])), 0);
        }
        let dropped = working.dropped().by_name();
        assert!(dropped.len() <= FORMER_MAX + 2 && dropped["r2499"] == 1 && dropped[FORMER] > 1000);
        assert_eq!(dropped.values().sum::<u64>(), 2500);
    }

    #[test]
    fn sets_are_asked_and_unless_is_the_other_way_round() {
        let hosts = Arc::new(Set::read(SetKind::Hosts, "10.0.0.2\n10.0.0.4/31").unwrap());
        let ports = Arc::new(Set::read(SetKind::Ports, "53").unwrap());
        let all = frames(&[(1, 53), (2, 80), (3, 53), (4, 53), (5, 99)]);
        let check = |test: Test, alive: u64| {
            let mut working = working(vec![rule("x", test, &["drop"])]);
            assert_eq!(apply(&mut working, &all), alive);
        };
        check(Test { source_in: Some(hosts.clone()), ..Test::default() }, 0b00101);
        check(Test { destination_in: Some(hosts.clone()), ..Test::default() }, 0b11111);
        check(Test { host_in: Some(hosts.clone()), ..Test::default() }, 0b00101);
        check(Test { port_in: Some(ports.clone()), ..Test::default() }, 0b10010);
        check(
            Test { host_in: Some(hosts.clone()), port_in: Some(ports.clone()), ..Test::default() },
            0b10111,
        );
        check(Test { unless: when("udp dst port 53").when, ..Test::default() }, 0b01101);
        check(Test { host_in: Some(hosts), ..when("udp dst port 99") }, 0b01111);
    }

    #[test]
    fn samples_leave_one_of_so_many_packets_and_flows() {
        let mut packets = working(vec![rule("s", when("udp"), &["sample 1/3"])]);
        let all: Vec<(u8, u16)> = (0..60).map(|host| (host, 53)).collect();
        assert_eq!(apply(&mut packets, &frames(&all)).count_ones(), 20);
        assert_eq!(packets.dropped().by_name().get("s"), Some(&40));
        let mut flows = working(vec![rule("s", Test::default(), &["sample-flows 1/2"])]);
        let once = apply(&mut flows, &frames(&all));
        assert_eq!(apply(&mut flows, &frames(&all)), once, "the same flows");
        assert!((10..50).contains(&once.count_ones()));
    }
}
