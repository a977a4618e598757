//! One filter text for all link types, its programs for one, and the VLAN rule.
//!
//! ```text
//! E, transparent:   packet with 0 tags -> E     1 tag -> vlan and (E)     2 and more -> vlan and vlan and (E)
//! E says `vlan`, or VlanRule::Exact, or the link type has no VLANs:   every packet -> E
//! ```

use std::sync::{Arc, PoisonError, RwLock};

use scope_packet::{Headers, LinkType};

use crate::assembly::Printed;
use crate::bpf::Program;
use crate::error::{FilterError, TEMPLATE_HINT};
use crate::listing::{Listing, TAGS_MAX};
use crate::screen::Screen;
use crate::{place, template, words};

/// Link types whose programs one filter keeps; beyond, the oldest is forgotten and compiled again when it is asked for.
const LINKS_MAX: usize = 64;

/// What a filter means on packets with VLAN tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanRule {
    /// A filter that doesn't itself say `vlan` looks through up to two tags.
    #[default]
    Transparent,
    /// libpcap's letter: `host X` matches no tagged packet.
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
    links: RwLock<Vec<Compiled>>,
}

/// A filter for one link type.
#[derive(Clone, Debug)]
struct Compiled {
    link: LinkType,
    predicate: Predicate,
    /// `None` where the text doesn't compile.
    listing: Option<Listing>,
}

impl Compiled {
    fn never(link: LinkType) -> Compiled {
        Compiled { link, predicate: Predicate(Engine::Never), listing: None }
    }
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
                Ok(compiled) => filter.keep(compiled),
                Err(cause) => causes.push((link, cause)),
            }
        }
        if causes.len() < links.len() { Ok(filter) } else { Err(refusal(text, &causes)) }
    }

    /// Compiles a text that is known to be right, for one link type: a text that can match nothing there (`src host` of two
    /// different addresses) is a filter that matches nothing.
    ///
    /// # Errors
    /// Where `link` doesn't compile the text for any other reason.
    pub(crate) fn compile_filled(text: &str, vlan: VlanRule, link: LinkType) -> Result<Filter, FilterError> {
        let filter = Filter::unchecked(text, vlan)?;
        match filter.build(link) {
            Ok(compiled) => filter.keep(compiled),
            Err(cause) if place::rejects_all(&cause) => filter.keep(Compiled::never(link)),
            Err(cause) => return Err(refusal(text, &[(link, cause)])),
        }
        Ok(filter)
    }

    fn unchecked(text: &str, vlan: VlanRule) -> Result<Filter, FilterError> {
        if let Some(at) = template::first_name(text) {
            let (cause, hint) = ("a template's name in a plain filter".into(), TEMPLATE_HINT.into());
            return Err(FilterError::Syntax { text: text.into(), at, cause, hint });
        }
        words::check(text)?;
        Ok(Filter(Arc::new(Shared {
            text: text.into(),
            everything: words::tokens(text).is_empty(),
            transparent: vlan == VlanRule::Transparent && !words::says_vlan(text),
            links: RwLock::new(Vec::new()),
        })))
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether the text is empty: every packet matches.
    pub fn is_everything(&self) -> bool {
        self.0.everything
    }

    /// The predicate for packets of link type `link`. It is compiled when a link type is first asked for, which takes from
    /// some µs to milliseconds, and looked up afterwards. Where the text doesn't compile it never matches.
    pub fn for_link(&self, link: LinkType) -> Predicate {
        self.compiled(link).predicate
    }

    /// The condition that the key entries of all packets of link type `link` fulfil which the filter takes. Derived anew from the
    /// compiled programs by each call, in some 10 µs to milliseconds. Where the text doesn't compile, only partial entries pass.
    pub fn screen(&self, link: LinkType) -> Screen {
        self.compiled(link).listing.map_or(Screen::nothing(), |listing| Screen::of(&listing, link))
    }

    /// The programs for `link` in words; none where the text is empty or doesn't compile.
    pub fn printed(&self, link: LinkType) -> Vec<Printed> {
        self.compiled(link).listing.map_or(Vec::new(), |listing| listing.printed())
    }

    /// Whether packets with one and two VLAN tags are asked the text behind their tags; see [`VlanRule::Transparent`].
    pub fn looks_through_tags(&self) -> bool {
        self.0.transparent
    }

    fn compiled(&self, link: LinkType) -> Compiled {
        let known = self.0.links.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = known.iter().find(|compiled| compiled.link == link) {
            return compiled.clone();
        }
        drop(known);
        let compiled = self.build(link).unwrap_or_else(|_| Compiled::never(link));
        self.keep(compiled.clone());
        compiled
    }

    /// Whether the text compiles for `link`.
    pub fn compiles_for(&self, link: LinkType) -> bool {
        !matches!(self.for_link(link).0, Engine::Never)
    }

    fn keep(&self, compiled: Compiled) {
        let mut known = self.0.links.write().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|other| other.link == compiled.link) {
            return;
        }
        if known.len() == LINKS_MAX {
            known.remove(0);
        }
        known.push(compiled);
    }

    /// The filter for `link`, or libpcap's words for why there is none.
    fn build(&self, link: LinkType) -> Result<Compiled, String> {
        let listing = match self.0.everything {
            true => Listing::Everything,
            false => Listing::compile(&self.0.text, link, self.0.transparent)?,
        };
        let predicate = Predicate::new(&listing)?;
        Ok(Compiled { link, predicate, listing: Some(listing) })
    }
}

/// The error for a text that no link type compiles. If it compiles for Ethernet, the text is right and the link types are
/// what doesn't fit.
fn refusal(text: &str, causes: &[(LinkType, String)]) -> FilterError {
    let told = || causes.iter().map(|(link, cause)| (link.name(), cause.clone())).collect();
    match causes.iter().find(|(_, cause)| !about_link(cause)) {
        Some((link, cause)) => {
            let place::Fault { at, hint } = place::find(text, *link);
            FilterError::Syntax { text: text.into(), at, cause: cause.clone(), hint }
        }
        None => FilterError::Link { text: text.into(), links: told() },
    }
}

/// Whether libpcap's refusal is about the link type (or the filter as a whole) and has no place in the text.
fn about_link(cause: &str) -> bool {
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
    .any(|word| cause.contains(word))
}

/// A filter's programs for one link type: for 0, 1, and 2 or more VLAN tags. Clones share them.
#[derive(Clone, Debug)]
pub struct Predicate(Engine);

/// What answers. A further engine is a further variant.
#[derive(Clone, Debug)]
enum Engine {
    Everything,
    Never,
    /// By number of VLAN tags.
    Interpreted(Arc<[Arc<Program>; TAGS_MAX + 1]>),
    /// BSD loopback writes the address family in the byte order of the host that captured. libpcap learns it from the file's
    /// own order; here the packet shows it: families are small numbers.
    Loopback {
        plain: Arc<Program>,
        swapped: Arc<Program>,
    },
}

impl Predicate {
    fn new(listing: &Listing) -> Result<Predicate, String> {
        let program = |instructions| Program::new(instructions).map(Arc::new).map_err(|error| error.to_string());
        Ok(Predicate(match listing {
            Listing::Everything => Engine::Everything,
            Listing::Loopback { plain, swapped } => Engine::Loopback { plain: program(plain)?, swapped: program(swapped)? },
            Listing::ByTags([none, one, two]) => Engine::Interpreted(Arc::new([program(none)?, program(one)?, program(two)?])),
        }))
    }

    /// Whether the packet with captured bytes `data` and `original_len` bytes on the wire matches. `headers` is the parse of
    /// `data` under the predicate's link type.
    #[inline]
    pub fn matches(&self, headers: &Headers, data: &[u8], original_len: u32) -> bool {
        match &self.0 {
            Engine::Everything => true,
            Engine::Never => false,
            Engine::Interpreted(by_tags) => by_tags[(headers.vlan_tags() as usize).min(TAGS_MAX)].accepts(data, original_len),
            Engine::Loopback { plain, swapped } => {
                let family = data.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
                let is_swapped = family & 0xffff == 0 && family != 0;
                if is_swapped { swapped } else { plain }.accepts(data, original_len)
            }
        }
    }
}
