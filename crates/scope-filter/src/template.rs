//! Dump templates and holdoff keys: filter texts with names that the packet that fired fills.
//!
//! | name | filled with |
//! |---|---|
//! | `$srcIP` `$dstIP` | IPv4 or IPv6 address, IPv6 in its canonical form; of ARP the protocol addresses |
//! | `$srcPort` `$dstPort` | port of TCP, UDP or SCTP, decimal |
//! | `$proto` | IP protocol number, decimal: `ip proto $proto` |
//! | `$srcMAC` `$dstMAC` | Ethernet address |
//! | `$vlan` | identifier of the outermost VLAN tag, decimal |
//! | `$flow` | a filter in parentheses for the packet's flow, the same for both directions |
//!
//! Behind MPLS labels, up to three, addresses, ports and protocol are those of the packet that they carry;
//! the text is then one that is evaluated behind so many labels and fewer, too, unless it says `mpls` itself.
//! Only on Ethernet and PPP: libpcap's language has no `mpls` elsewhere.
//!
//! Names are known in any case; `{srcIP}` and `${srcIP}` mean the same as `$srcIP`. `$` with one or two
//! hexadecimal digits stays what it is to libpcap, an ARCNET address.
//!
//! `TEMPLATE ?: FALLBACK` states a fallback: a filter without names that is taken where the packet lacks a
//! field that the template needs (`host $srcIP and port $srcPort ?: arp`). Nothing behind `?:` means
//! everything. Without a fallback such a packet leaves the template unfilled, and whoever fired counts it.

pub(crate) mod fields;
mod shape;
mod subject;
mod values;

use scope_fault::Fault;
use scope_packet::{Headers, LinkType};
use std::fmt;

use crate::error::{FilterError, excerpt};
use crate::filter::{Filter, VlanRule};
use crate::words::tokens;
use fields::{Field, SAMPLES};
pub use shape::Shape;
use subject::Subject;
pub use values::Values;
use values::{Gatherer, Part};

/// Between a template and its fallback.
const FALLBACK: &str = "?:";
/// Most names in one template: filled texts stay within what is compiled.
const NAMES_MAX: usize = 32;

/// Why a text is no template. Offsets are bytes from the start of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// A name that isn't known.
    UnknownName {
        /// The whole text.
        text: String,
        /// Where the name stands.
        at: usize,
        /// As written.
        name: String,
        /// The known name most like it, with its `$`, if one is like it.
        nearest: Option<String>,
    },
    /// A `$` or a brace without a name.
    NoName {
        /// The whole text.
        text: String,
        /// Where it stands.
        at: usize,
        /// The character.
        found: char,
    },
    /// A name behind `?:`.
    NameInFallback {
        /// The whole text.
        text: String,
        /// Where the name stands.
        at: usize,
    },
    /// More names than are filled.
    TooManyNames {
        /// The bound.
        names_max: usize,
    },
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault().fmt(f)
    }
}

impl std::error::Error for TemplateError {}

impl TemplateError {
    /// What is wrong, the place with a mark below it, and what helps; of which setting says who has it.
    pub fn fault(&self) -> Fault {
        let there_are = || format!("there are {}", fields::known());
        match self {
            TemplateError::UnknownName { text, at, name, nearest } => {
                let nearest =
                    nearest.as_ref().map_or(String::new(), |nearest| format!("did you mean '{nearest}'? "));
                let fault = Fault::whole(format!("template: unknown name '{name}' at byte {at}"));
                fault.with_value(text).remedy(nearest + &there_are()).showing(excerpt(text, *at))
            }
            TemplateError::NoName { text, at, found } => {
                let fault = Fault::whole(format!("template: '{found}' at byte {at} without a name"));
                fault.with_value(text).remedy(there_are()).showing(excerpt(text, *at))
            }
            TemplateError::NameInFallback { text, at } => {
                let cause = format!(
                    "template: a name at byte {at} in the fallback, which is taken when names can't be filled"
                );
                Fault::whole(cause)
                    .with_value(text)
                    .remedy("write it without names")
                    .showing(excerpt(text, *at))
            }
            TemplateError::TooManyNames { names_max } => {
                Fault::whole(format!("template: more than {names_max} names"))
            }
        }
    }
}

/// A packet that lacks a field which the template needs, or for which the filled text is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet that fired has no {name}")]
pub struct Unfilled {
    /// The name, with its `$`.
    pub name: &'static str,
}

/// Why a packet gets no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFilter {
    /// It lacks a field, or its values make no filter.
    #[error(transparent)]
    Unfilled(#[from] Unfilled),
    /// The text is a filter, but not for its link type.
    #[error("no filter for its link type: {0}")]
    Uncompiled(FilterError),
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Text from `at`.
    Text { at: usize, text: String },
    /// A name that stands at `at`.
    Name { at: usize, field: Field },
}

/// A filter text with names in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
    fallback: Option<String>,
    /// Offset of the fallback in the text.
    fallback_at: usize,
    /// What of a packet decides whether its values make a filter.
    decides: Vec<shape::Decides>,
}

/// A filled text, and for each piece where it begins in it and in the template.
struct Filled {
    text: String,
    begins: Vec<(usize, usize, bool)>,
}

impl Filled {
    /// Maps an offset in the filled text to the template: inside a name, to its beginning.
    fn to_template(&self, at: usize) -> usize {
        match self.begins.iter().rev().find(|(filled, ..)| *filled <= at) {
            Some((_, source, true)) => *source,
            Some((filled, source, false)) => source + (at - filled),
            None => at,
        }
    }
}

impl Template {
    /// Takes a text apart. Whether it is a filter is [`Template::check`]'s question.
    ///
    /// # Errors
    /// For unknown names, with the nearest known one, and for names in the fallback.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        let (body, fallback) = match text.split_once(FALLBACK) {
            Some((body, fallback)) => (body, Some(fallback)),
            None => (text, None),
        };
        let pieces = cut(text, body)?;
        let names =
            |pieces: &[Piece]| pieces.iter().filter(|piece| matches!(piece, Piece::Name { .. })).count();
        if names(&pieces) > NAMES_MAX {
            return Err(TemplateError::TooManyNames { names_max: NAMES_MAX });
        }
        let fallback_at = body.len() + FALLBACK.len();
        if let Some(at) = fallback.and_then(|fallback| fallback.find(['$', '{'])) {
            return Err(TemplateError::NameInFallback { text: text.into(), at: fallback_at + at });
        }
        let (fallback, decides) = (fallback.map(|fallback| fallback.trim().into()), shape::decides(&pieces));
        Ok(Template { text: text.into(), pieces, fallback, fallback_at, decides })
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the template has names: only then does a packet change it. A manual fire, which has no packet,
    /// then takes everything.
    pub fn has_names(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Name { .. }))
    }

    /// The fallback, if the template states one.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Fills the template with samples (IPv4, then IPv6) and compiles it, so that its faults are found before
    /// it is needed.
    ///
    /// # Errors
    /// Where no sample compiles for any of `link_types` (none: Ethernet); places are those in the template's
    /// text.
    pub fn check(&self, vlan: VlanRule, link_types: &[LinkType]) -> Result<(), FilterError> {
        let links = if link_types.is_empty() { &[LinkType::ETHERNET] } else { link_types };
        if let Some(fallback) = &self.fallback {
            let at = self.fallback_at
                + (self.text[self.fallback_at..].len() - self.text[self.fallback_at..].trim_start().len());
            Filter::compile(fallback, vlan, links)
                .map_err(|error| error.moved(&self.text, |place| at + place))?;
        }
        if !self.has_names() {
            return Filter::compile(&self.plain().text, vlan, links)
                .map(drop)
                .map_err(|error| error.moved(&self.text, |at| at));
        }
        let mut first = None;
        for sample in SAMPLES {
            let filled = self
                .fill_with(|field| Ok::<_, Unfilled>(field.sample(sample)))
                .unwrap_or_else(|_| self.plain());
            for &link in links {
                match Filter::compile_filled(&filled.text, vlan, link) {
                    Ok(_) => return Ok(()),
                    Err(error) => drop(
                        first.get_or_insert_with(|| error.moved(&self.text, |at| filled.to_template(at))),
                    ),
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// What the template takes from the packet `data` of link type `link`, whose parse is `headers`: two
    /// packets with equal values fill it with the same text. No text is made.
    ///
    /// # Errors
    /// Names the first missing field where the template has no fallback.
    pub fn values(&self, headers: &Headers, link: LinkType, data: &[u8]) -> Result<Values, Unfilled> {
        if !self.has_names() {
            return Ok(Values::everything());
        }
        let packet = Subject::new(headers, link, data);
        let mut values = Gatherer::default().part(Part::Labels, &[packet.labels as u8]);
        for shape::Decides { field, .. } in &self.decides {
            if field.gather(&packet, &mut values).is_none() {
                let fallback =
                    self.fallback.as_ref().map(|_| Gatherer::default().part(Part::Fallback, &[]).values());
                return fallback.ok_or(Unfilled { name: field.name() });
            }
        }
        Ok(values.values())
    }

    /// The filter text for the packet `data` of link type `link`, whose parse is `headers`; the fallback
    /// where a field is missing.
    ///
    /// # Errors
    /// Names the first missing field where the template has no fallback.
    pub fn fill(&self, headers: &Headers, link: LinkType, data: &[u8]) -> Result<String, Unfilled> {
        let packet = Subject::new(headers, link, data);
        let filled = self.fill_with(|field| field.value(&packet).ok_or(Unfilled { name: field.name() }));
        match (filled, &self.fallback) {
            (Ok(filled), _) if self.has_names() => Ok(behind_labels(filled.text.trim(), packet.labels)),
            (Ok(filled), _) => Ok(filled.text.trim().into()),
            (Err(_), Some(fallback)) => Ok(fallback.clone()),
            (Err(unfilled), None) => Err(unfilled),
        }
    }

    /// The compiled filter for the packet: as [`Template::fill`], and a packet whose values make no filter
    /// (an IPv6 address behind `ip host`) takes the fallback too.
    ///
    /// # Errors
    /// Names the missing field, or the first name where the values don't fit; or says that the link type
    /// can't have such a filter.
    pub fn fill_filter(
        &self,
        headers: &Headers,
        link: LinkType,
        data: &[u8],
        vlan: VlanRule,
    ) -> Result<Filter, NoFilter> {
        let text = self.fill(headers, link, data)?;
        let made = match (Filter::filled(&text, vlan, link), &self.fallback) {
            (Err(_), Some(fallback)) => Filter::filled(fallback, vlan, link),
            (made, _) => made,
        };
        made.map_err(|error| {
            error.map_or(NoFilter::Unfilled(Unfilled { name: self.first_name() }), NoFilter::Uncompiled)
        })
    }

    /// What of the packet decides whether [`Template::fill_filter`] makes a filter: packets of one shape all
    /// have the same answer. No text is made and nothing compiled.
    ///
    /// # Errors
    /// As [`Template::fill`].
    pub fn shape(&self, headers: &Headers, link: LinkType, data: &[u8]) -> Result<Shape, Unfilled> {
        let packet = Subject::new(headers, link, data);
        let mut shape = Shape::gatherer(link, packet.labels);
        for decides in &self.decides {
            let gathered = match decides.by_value {
                true => decides.field.gather(&packet, &mut shape),
                false => decides.field.gather_kind(&packet, &mut shape),
            };
            match gathered {
                Some(()) => {}
                None if self.fallback.is_some() => return Ok(Shape::of_fallback(link)),
                None => return Err(Unfilled { name: decides.field.name() }),
            }
        }
        Ok(Shape::of(&shape))
    }

    /// The name that answers for a shape speak of: the first one; empty where there is none.
    pub fn first_name(&self) -> &'static str {
        self.decides.first().map_or("", |decides| decides.field.name())
    }

    /// The text without its names.
    fn plain(&self) -> Filled {
        let mut filled = Filled { text: String::new(), begins: Vec::new() };
        for piece in &self.pieces {
            if let Piece::Text { at, text } = piece {
                filled.begins.push((filled.text.len(), *at, false));
                filled.text.push_str(text);
            }
        }
        filled
    }

    fn fill_with<E>(&self, value: impl Fn(Field) -> Result<String, E>) -> Result<Filled, E> {
        let mut filled = Filled { text: String::new(), begins: Vec::new() };
        for piece in &self.pieces {
            match piece {
                Piece::Text { at, text } => {
                    filled.begins.push((filled.text.len(), *at, false));
                    filled.text.push_str(text);
                }
                Piece::Name { at, field } => {
                    filled.begins.push((filled.text.len(), *at, true));
                    filled.text.push_str(&value(*field)?);
                }
            }
        }
        Ok(filled)
    }
}

/// The filter text for what went between the two hosts of a packet, the same for both directions; empty,
/// which is everything, where it has no addresses.
pub fn host_pair_default(headers: &Headers, link: LinkType, data: &[u8]) -> String {
    let packet = Subject::new(headers, link, data);
    behind_labels(&fields::host_pair(&packet), packet.labels)
}

/// The compiled filter of that text.
///
/// # Errors
/// Says that the link type can't have such a filter.
pub fn host_pair_filter(
    headers: &Headers,
    link: LinkType,
    data: &[u8],
    vlan: VlanRule,
) -> Result<Filter, NoFilter> {
    let made = Filter::filled(&host_pair_default(headers, link, data), vlan, link);
    made.map_err(|error| error.map_or(NoFilter::Unfilled(Unfilled { name: "" }), NoFilter::Uncompiled))
}

/// What of a packet decides whether [`host_pair_filter`] makes a filter.
pub fn host_pair_shape(headers: &Headers, link: LinkType, data: &[u8]) -> Shape {
    let packet = Subject::new(headers, link, data);
    let mut shape = Shape::gatherer(link, packet.labels);
    for field in [Field::SrcIp, Field::DstIp] {
        if field.gather_kind(&packet, &mut shape).is_none() {
            break; // without addresses everything is taken
        }
    }
    Shape::of(&shape)
}

/// What [`host_pair_default`] takes from a packet.
pub fn host_pair_values(headers: &Headers, link: LinkType, data: &[u8]) -> Values {
    fields::host_pair_values(&Subject::new(headers, link, data))
}

/// The text for packets with up to `labels` MPLS labels, which libpcap counts: each `mpls` holds for all that
/// follows.
fn behind_labels(text: &str, labels: usize) -> String {
    if labels == 0 || text.is_empty() || tokens(text).iter().any(|token| token.text == "mpls") {
        return text.into();
    }
    let deepest = format!("({text})");
    (0..labels).fold(deepest, |inner, _| format!("(({text}) or (mpls and {inner}))"))
}

/// What a text is compiled to, where it is a template that has names: the text with samples in their place,
/// and its fallback.
pub(crate) fn sampled(text: &str) -> Option<Vec<String>> {
    let template = Template::parse(text).ok().filter(Template::has_names)?;
    let filled = template.fill_with(|field| Ok::<_, Unfilled>(field.sample(SAMPLES[0]))).ok()?;
    Some(std::iter::once(filled.text).chain(template.fallback).collect())
}

/// Where the first known name stands in a text, if there is one.
pub(crate) fn first_name(text: &str) -> Option<usize> {
    let known = |at: &usize| name_at(&text[*at..]).is_some_and(|(name, _)| Field::by_name(name).is_some());
    text.match_indices(['$', '{']).map(|(at, _)| at).find(known)
}

/// Cuts `body`, the beginning of `text`, into pieces.
fn cut(text: &str, body: &str) -> Result<Vec<Piece>, TemplateError> {
    let (mut pieces, mut at, mut text_from) = (Vec::new(), 0, 0);
    while let Some(found) = body[at..].find(['$', '{', '}']).map(|offset| at + offset) {
        let (name, len) = match name_at(&body[found..]) {
            Some(found) => found,
            None if is_arcnet(&body[found..]) => {
                at = found + 1;
                continue;
            }
            None => {
                return Err(TemplateError::NoName {
                    text: text.into(),
                    at: found,
                    found: char::from(body.as_bytes()[found]),
                });
            }
        };
        let Some(field) = Field::by_name(name) else {
            if is_arcnet(&body[found..]) {
                at = found + 1;
                continue;
            }
            let nearest = fields::nearest(name).map(|field| field.name().to_string());
            return Err(TemplateError::UnknownName {
                text: text.into(),
                at: found,
                name: body[found..found + len].into(),
                nearest,
            });
        };
        if found > text_from {
            pieces.push(Piece::Text { at: text_from, text: body[text_from..found].into() });
        }
        pieces.push(Piece::Name { at: found, field });
        at = found + len;
        text_from = at;
    }
    if body.len() > text_from || pieces.is_empty() {
        pieces.push(Piece::Text { at: text_from, text: body[text_from..].into() });
    }
    Ok(pieces)
}

/// The name at the start of `rest` and the length of all that spells it: `$name`, `{name}`, `${name}`.
fn name_at(rest: &str) -> Option<(&str, usize)> {
    let word_len = |text: &str| text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let dollar = usize::from(rest.starts_with('$'));
    let bare = &rest[dollar..];
    let (open, close) = if bare.starts_with('{') { (1, 1) } else { (0, 0) };
    let len = word_len(&bare[open..]);
    let closed = close == 0 || bare[open + len..].starts_with('}');
    (len > 0 && closed && dollar + open > 0).then(|| (&bare[open..open + len], dollar + open + len + close))
}

/// `$` with one or two hexadecimal digits and no more of a name.
fn is_arcnet(rest: &str) -> bool {
    let digits = rest.strip_prefix('$').map_or("", |rest| {
        &rest[..rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()]
    });
    matches!(digits.len(), 1 | 2) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}
