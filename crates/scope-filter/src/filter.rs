//! One filter text for all link types, its programs for one, and the VLAN rule.
//!
//! ```text
//! E, transparent:   packet with 0 tags -> E     1 tag -> vlan and (E)     2 and more -> vlan and vlan and (E)
//! E says `vlan`, or VlanRule::Exact, or the link type has no VLANs:   every packet -> E
//! ```
//! Linux cooked captures have tags, and no `vlan` in libpcap's language: there E's own program is moved
//! behind the tags, see [`crate::cooked`].

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use scope_packet::{Headers, KeyEntry, LinkType};

use crate::assembly::Printed;
use crate::bpf::Program;
use crate::choice::{BYTE_ORDERS, Choice, PROGRAMS, TAGS_MAX};
use crate::error::{FilterError, TEMPLATE_HINT};
use crate::guess;
use crate::input::{FILTER_INPUTS_MAX, FilterInput, bits};
use crate::kernel;
use crate::listing;
use crate::native::{Native, NativeError};
use crate::screen::{KeyPattern, Screen};
use crate::template::text::first_name;
use crate::{place, reach, words};

/// Link types whose programs one filter keeps; beyond, the oldest is forgotten and compiled again when it is
/// needed.
const LINKS_MAX: usize = 64;
/// Patterns that an entry is held against before the interpreter runs; more cost as much as a short
/// program.
const PATTERNS_MAX: usize = 8;
/// What a filter means on packets with VLAN tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanRule {
    /// A filter that doesn't itself say `vlan` looks through up to two tags.
    #[default]
    Transparent,
    /// Follows libpcap literally: `host X` matches no tagged packet.
    Exact,
}

/// A filter text, compiled for any number of link types. Clones share the programs.
#[derive(Clone, Debug)]
pub struct Filter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    text: String,
    everything: bool,
    transparent: bool,
    /// Oldest first.
    links: RwLock<Vec<(LinkType, Predicate)>>,
    /// A packet has to match these two; then there is no text of its own to compile.
    both: Option<(Filter, Filter)>,
}

impl Filter {
    /// Compiles `text` for the link types that are known so far (none: Ethernet).
    ///
    /// # Errors
    /// Where no given link type compiles the text. Where only some don't, the filter never matches there.
    pub fn compile(text: &str, vlan: VlanRule, link_types: &[LinkType]) -> Result<Filter, FilterError> {
        let filter = Filter::unchecked(text, vlan)?;
        let links = if link_types.is_empty() { &[LinkType::ETHERNET] } else { link_types };
        let mut causes = Vec::new();
        for &link in links {
            match filter.build(link) {
                Ok(predicate) => filter.keep(link, predicate),
                Err(cause) => causes.push((link, cause)),
            }
        }
        if causes.len() < links.len() { Ok(filter) } else { Err(refusal(text, &causes)) }
    }

    /// Compiles a text that is known to be right, for one link type: a text that can match nothing there
    /// (`src host` of two different addresses) is a filter that matches nothing.
    ///
    /// # Errors
    /// Where `link` doesn't compile the text for any other reason.
    pub(crate) fn compile_filled(text: &str, vlan: VlanRule, link: LinkType) -> Result<Filter, FilterError> {
        let filter = Filter::unchecked(text, vlan)?;
        match filter.build_filled(link) {
            Ok(predicate) => filter.keep(link, predicate),
            Err(cause) => return Err(refusal(text, &[(link, cause)])),
        }
        Ok(filter)
    }

    /// As [`Filter::compile_filled`], for a worker: the place of a fault isn't looked for, which takes many
    /// times as long.
    ///
    /// # Errors
    /// Says why the link type can't have such a filter; `None` where the text is what is wrong.
    pub(crate) fn filled(text: &str, vlan: VlanRule, link: LinkType) -> Result<Filter, Option<FilterError>> {
        let filter = Filter::unchecked(text, vlan).map_err(|_| None)?;
        match filter.build_filled(link) {
            Ok(predicate) => filter.keep(link, predicate),
            Err(cause) if about_link(&cause) => return Err(Some(refusal(text, &[(link, cause)]))),
            Err(_) => return Err(None),
        }
        Ok(filter)
    }

    fn build_filled(&self, link: LinkType) -> Result<Predicate, String> {
        match self.build(link) {
            Err(cause) if place::rejects_all(&cause) => Ok(Predicate::never()),
            built => built,
        }
    }

    fn unchecked(text: &str, vlan: VlanRule) -> Result<Filter, FilterError> {
        if let Some(at) = first_name(text) {
            let (cause, hint) = ("a template's name in a plain filter".into(), TEMPLATE_HINT.into());
            return Err(FilterError::Syntax { text: text.into(), at, cause, hint });
        }
        words::check(text).map_err(|refusal| FilterError::refused(text, refusal))?;
        Ok(Filter(Arc::new(Shared {
            text: text.into(),
            everything: words::tokens(text).is_empty(),
            transparent: vlan == VlanRule::Transparent && !words::says_vlan(text),
            links: RwLock::new(Vec::new()),
            both: None,
        })))
    }

    /// What both this filter and `other` match: two compiled filters, each with its own programs, whose texts are never
    /// joined. So nothing that stands in one text can change what the other means.
    pub fn and(&self, other: &Filter) -> Filter {
        Filter(Arc::new(Shared {
            text: format!("{}; of what matches: {}", self.text(), other.text()),
            everything: self.is_everything() && other.is_everything(),
            transparent: self.looks_through_tags() && other.looks_through_tags(),
            links: RwLock::new(Vec::new()),
            both: Some((self.clone(), other.clone())),
        }))
    }

    /// Whether it was made by [`Filter::and`].
    pub fn is_of_two(&self) -> bool {
        self.0.both.is_some()
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether the text is empty: every packet matches.
    pub fn is_everything(&self) -> bool {
        self.0.everything
    }

    /// The predicate for packets of link type `link`. It is compiled when a link type is first needed,
    /// which takes from some µs to milliseconds, and looked up afterwards. Where the text doesn't compile it
    /// never matches.
    pub fn for_link(&self, link: LinkType) -> Predicate {
        let known = self.0.links.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, predicate)) = known.iter().find(|(other, _)| *other == link) {
            return predicate.clone();
        }
        drop(known);
        let predicate = self.build(link).unwrap_or_else(|_| Predicate::never());
        self.keep(link, predicate.clone());
        predicate
    }

    /// The condition that the key entries of all packets of link type `link` fulfil which the filter matches.
    /// Derived anew from the compiled programs by each call, in some 10 µs to two seconds, where it is given
    /// up and everything passes. Where the text doesn't compile, only partial entries pass.
    pub fn screen(&self, link: LinkType) -> Screen {
        self.for_link(link).screen(link)
    }

    /// The programs for `link` in words, compiled anew; none where the text is empty or doesn't compile.
    pub fn printed(&self, link: LinkType) -> Vec<Printed> {
        if let Some((one, other)) = &self.0.both {
            return one.printed(link).into_iter().chain(other.printed(link)).collect();
        }
        if self.0.everything {
            return Vec::new();
        }
        let listed = listing::compile(&self.0.text, link, self.0.transparent);
        listed.map_or(Vec::new(), |(choice, listings)| listing::printed(choice, &listings))
    }

    /// The program with which the kernel may refuse packets of link type `link` before they are captured,
    /// truncated to `snap_len` bytes: see [`crate::kernel`].
    ///
    /// # Errors
    /// Why it isn't proven to mean the same: the filter has to be evaluated behind the capture only.
    pub fn in_kernel(&self, link: LinkType, snap_len: u32) -> Result<Vec<libc::sock_filter>, String> {
        if self.is_of_two() {
            return Err("it is two filters".to_string());
        }
        kernel::program(&self.0.text, link, self.0.transparent, snap_len)
    }

    /// Bytes that every packet of link type `link` has, at least, that the filter matches: on fewer it never
    /// does. `None` where that isn't known, or where it matches no packet at all.
    pub fn bytes_needed(&self, link: LinkType) -> Option<u32> {
        if let Some((one, other)) = &self.0.both {
            return one.bytes_needed(link).max(other.bytes_needed(link));
        }
        if self.0.everything {
            return Some(0);
        }
        let (_, listings) = listing::compile(&self.0.text, link, self.0.transparent).ok()?;
        reach::bytes_needed(listings.iter().map(listing::Listing::instructions))
    }

    /// Whether the text is looked for behind one and two VLAN tags; see
    /// [`VlanRule::Transparent`].
    pub fn looks_through_tags(&self) -> bool {
        self.0.transparent
    }

    /// Makes machine code for the link types that have been needed so far, where there is none yet: see
    /// [`Predicate::make_native`].
    ///
    /// # Errors
    /// Says, once for each link type, why there is no machine code: the interpreter goes on answering.
    pub fn make_native(&self) -> Result<(), NativeError> {
        let known: Vec<Predicate> = self
            .0
            .links
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(_, predicate)| predicate.clone())
            .collect();
        known.iter().map(Predicate::make_native).fold(Ok(()), Result::and)
    }

    /// Makes ready what `engine` answers with, for the link types that have been needed so far: machine code,
    /// or, where that isn't wanted or can't be made, the test of the keys before the interpreter. What is
    /// ready already costs next to nothing.
    ///
    /// # Errors
    /// As [`Filter::make_native`].
    pub fn prepare(&self, engine: FilterEngine) -> Result<(), NativeError> {
        let made = match engine {
            FilterEngine::Native => self.make_native(),
            FilterEngine::Interpreter => Ok(()),
        };
        let known = self.0.links.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (link, predicate) in &known {
            predicate.make_screen(*link);
        }
        made
    }

    /// Whether the text compiles for `link`.
    pub fn compiles_for(&self, link: LinkType) -> bool {
        match self.for_link(link).0 {
            Engine::Both(both) => both.iter().all(|one| !matches!(one.0, Engine::Never)),
            engine => !matches!(engine, Engine::Never),
        }
    }

    fn keep(&self, link: LinkType, predicate: Predicate) {
        let mut known = self.0.links.write().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|(other, _)| *other == link) {
            return;
        }
        if known.len() == LINKS_MAX {
            known.remove(0);
        }
        known.push((link, predicate));
    }

    /// The predicate for `link`, or libpcap's words for why there is none.
    fn build(&self, link: LinkType) -> Result<Predicate, String> {
        if let Some((one, other)) = &self.0.both {
            let both = [one.for_link(link), other.for_link(link)];
            return Ok(Predicate(Engine::Both(Arc::new(both))));
        }
        let text = &self.0.text;
        if self.0.everything {
            return Ok(Predicate(Engine::Everything));
        }
        let (choice, listings) = listing::compile(text, link, self.0.transparent)?;
        let programs = listings.map(|listing| listing.program);
        Ok(Predicate(Engine::Programs(Arc::new(Programs {
            choice,
            programs,
            native: Native::new(),
            keys: OnceLock::new(),
        }))))
    }
}

/// The error for a text that no link type compiles. If it compiles for Ethernet, the text is right and the
/// link types are what doesn't fit.
fn refusal(text: &str, causes: &[(LinkType, String)]) -> FilterError {
    let links = || causes.iter().map(|(link, cause)| (link.name(), cause.clone())).collect();
    match causes.iter().find(|(_, cause)| !about_link(cause)) {
        Some((link, cause)) => {
            let place::Fault { at, hint } = place::find(text, *link);
            let hint = guess::meant(text).unwrap_or(hint);
            FilterError::Syntax { text: text.into(), at, cause: cause.clone(), hint }
        }
        None => FilterError::Link { text: text.into(), links: links() },
    }
}

/// Whether libpcap's refusal is about the link type (or the filter as a whole) and has no place in the text.
/// Names out of the text, which it puts in quotes, say nothing of that.
fn about_link(cause: &str) -> bool {
    let own_words: String = cause.split('\'').step_by(2).collect();
    [
        "upport",
        "data link type",
        "link-layer",
        "link layer",
        "rejects all",
        "not valid",
        "only",
        "not in its bytes",
        "raw 802.11",
        "memory",
    ]
    .iter()
    .any(|word| own_words.contains(word))
}

/// What answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterEngine {
    /// Machine code, and the interpreter where there is none (yet).
    #[default]
    Native,
    /// The interpreter.
    Interpreter,
}

/// A filter for one link type. Clones share its programs, and the machine code once it is made.
#[derive(Clone, Debug)]
pub struct Predicate(Engine);

#[derive(Clone, Debug)]
enum Engine {
    Everything,
    Never,
    Programs(Arc<Programs>),
    Both(Arc<[Predicate; 2]>),
}

#[derive(Debug)]
struct Programs {
    choice: Choice,
    programs: [Arc<Program>; PROGRAMS],
    /// Made where there is time for it: see [`Predicate::make_native`].
    native: Native,
    /// What entries of packets that the programs match have, one of these or the partial bit: see
    /// [`Predicate::make_screen`].
    keys: OnceLock<Vec<KeyPattern>>,
}

impl Predicate {
    fn never() -> Predicate {
        Predicate(Engine::Never)
    }

    /// The programs that may be evaluated for a packet with `tags` VLAN tags; `None` where it matches without
    /// one.
    fn programs(&self, tags: usize) -> Option<&[Arc<Program>]> {
        match &self.0 {
            Engine::Everything => None,
            Engine::Never => Some(&[]),
            Engine::Programs(all) => Some(match all.choice {
                Choice::Tags => &all.programs[tags.min(TAGS_MAX)..][..1],
                Choice::ByteOrder => &all.programs[..BYTE_ORDERS],
            }),
            // What one of them refuses needn't be looked at.
            Engine::Both(both) => both.iter().find_map(|one| one.programs(tags)),
        }
    }

    /// Makes machine code, if that wasn't tried before; all clones use it from then on, and answer the same
    /// as before. It takes some 0.1 to 5 ms, for the longest texts seconds: not on the packet path.
    ///
    /// # Errors
    /// Says, once, why there is no machine code: the interpreter goes on answering.
    pub fn make_native(&self) -> Result<(), NativeError> {
        match &self.0 {
            Engine::Programs(programs) => programs.native.make(&programs.programs, programs.choice),
            Engine::Both(both) => both.iter().map(Predicate::make_native).fold(Ok(()), Result::and),
            Engine::Everything | Engine::Never => Ok(()),
        }
    }

    /// Whether machine code answers, or none is needed.
    pub fn is_native(&self) -> bool {
        match &self.0 {
            Engine::Programs(programs) => programs.native.is_made(),
            Engine::Both(both) => both.iter().all(Predicate::is_native),
            Engine::Everything | Engine::Never => true,
        }
    }

    /// What all packets of link type `link` that match have in common: see [`Filter::screen`].
    fn screen(&self, link: LinkType) -> Screen {
        Screen::of(|tags| self.programs(tags), link)
    }

    /// Derives what the interpreter tests of a packet's key before it runs a program, if there is no machine
    /// code: with that a program is as quick as such a test.
    fn make_screen(&self, link: LinkType) {
        match &self.0 {
            Engine::Programs(programs) if !programs.native.is_made() => {
                programs.keys.get_or_init(|| self.screen(link).patterns(PATTERNS_MAX));
            }
            Engine::Both(both) => both.iter().for_each(|one| one.make_screen(link)),
            _ => {}
        }
    }

    /// Whether the packet with captured bytes `data` and `original_len` bytes on the wire matches. `headers`
    /// is the parse of `data` under the predicate's link type.
    #[inline]
    pub fn matches(&self, headers: &Headers, data: &[u8], original_len: u32) -> bool {
        self.matches_batch(&[FilterInput::new(headers, KeyEntry::new(headers), data, original_len)], 1) != 0
    }

    /// Which of at most [`FILTER_INPUTS_MAX`] packets match: bit n is the answer for packet n. Only packets
    /// with a bit in `which` are evaluated, the others' bits are 0. The interpreter tests a packet's key
    /// first, where [`Filter::prepare`] was called.
    #[inline]
    pub fn matches_batch(&self, packets: &[FilterInput<'_>], which: u64) -> u64 {
        match &self.0 {
            Engine::Everything => which & bits(packets),
            Engine::Never => 0,
            Engine::Programs(programs) => {
                programs.native.accepts(packets, which).unwrap_or_else(|| programs.interpret(packets, which))
            }
            Engine::Both(both) => match both[0].matches_batch(packets, which) {
                0 => 0,
                which => both[1].matches_batch(packets, which),
            },
        }
    }
}

impl Programs {
    fn interpret(&self, packets: &[FilterInput<'_>], which: u64) -> u64 {
        let keys = self.keys.get().map(Vec::as_slice);
        let may = |entry: &KeyEntry| {
            keys.is_none_or(|keys| entry.partial() || keys.iter().any(|key| key.matches(entry)))
        };
        let open = packets
            .iter()
            .enumerate()
            .take(FILTER_INPUTS_MAX)
            .filter(|(at, packet)| which >> at & 1 != 0 && may(packet.key()));
        let accepts = |packet: &FilterInput<'_>| {
            self.programs[self.choice.of(packet)].accepts(packet.data(), packet.original_len())
        };
        open.fold(0, |hits, (at, packet)| hits | u64::from(accepts(packet)) << at)
    }
}
