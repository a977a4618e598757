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
//! `TEMPLATE ?: FALLBACK` states a fallback: a filter without names that is used where the packet lacks a
//! field that the template needs (`host $srcIP and port $srcPort ?: arp`). Nothing behind `?:` means
//! everything. Without a fallback such a packet leaves the template unfilled, and its trigger counts it.

pub(crate) mod fields;
mod given;
mod shape;
mod subject;
pub(crate) mod text;
mod values;

use scope_packet::{Headers, Kind, LinkType};

use crate::error::FilterError;
use crate::filter::{Filter, VlanRule};
use crate::words::tokens;
use fields::{Field, SAMPLES};
pub use given::{BadGiven, Given, GivenName, NameKind};
pub use shape::Shape;
use subject::Subject;
use text::Parts;
pub use text::TemplateError;
pub use values::Values;
use values::{Gatherer, Part};

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

/// A filter text with names in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Parts,
    /// What of a packet decides whether its values make a filter.
    decides: Vec<shape::Decides>,
}

impl Template {
    /// Splits a text. Whether it is a filter is [`Template::check`]'s question.
    ///
    /// # Errors
    /// For unknown names, with the nearest known one, and for names in the fallback.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        let parts = Parts::of(text)?;
        let decides = shape::decides(&parts.pieces);
        Ok(Template { text: text.into(), parts, decides })
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the template has names: only then does a packet change it. A manual fire, which has no packet,
    /// then selects everything.
    pub fn has_names(&self) -> bool {
        self.parts.have_names()
    }

    /// The fallback, if the template states one.
    pub fn fallback(&self) -> Option<&str> {
        self.parts.fallback.as_deref()
    }

    /// Fills the template with samples (IPv4, then IPv6) and compiles it, so that its faults are found before
    /// it is needed.
    ///
    /// # Errors
    /// Where no sample compiles for any of `link_types` (none: Ethernet); places are those in the template's
    /// text.
    pub fn check(&self, vlan: VlanRule, link_types: &[LinkType]) -> Result<(), FilterError> {
        let links = if link_types.is_empty() { &[LinkType::ETHERNET] } else { link_types };
        if let Some(fallback) = &self.parts.fallback {
            let behind = &self.text[self.parts.fallback_at..];
            let at = self.parts.fallback_at + (behind.len() - behind.trim_start().len());
            Filter::compile(fallback, vlan, links)
                .map_err(|error| error.moved(&self.text, |place| at + place))?;
        }
        if !self.has_names() {
            return Filter::compile(&self.parts.plain().text, vlan, links)
                .map(drop)
                .map_err(|error| error.moved(&self.text, |at| at));
        }
        let mut first = None;
        for sample in SAMPLES {
            let filled = self
                .parts
                .fill_with(|field| Ok::<_, Unfilled>(field.sample(sample)))
                .unwrap_or_else(|_| self.parts.plain());
            for &link in links {
                match Filter::compile_filled(&filled.text, vlan, link) {
                    Ok(_) => return Ok(()),
                    Err(error) if first.is_none() => {
                        first = Some(error.moved(&self.text, |at| filled.to_template(at)));
                    }
                    Err(_) => {}
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
    #[inline] // two words that stay in registers: read again as one behind their stores they are waited for
    pub fn values(&self, headers: &Headers, link: LinkType, data: &[u8]) -> Result<Values, Unfilled> {
        if let Some(values) = self.values_of_address(headers, data) {
            return Ok(values);
        }
        self.values_of_any(headers, link, data)
    }

    /// The short way for a template with one name, of an address, and a packet of IPv4. The other way gives the same.
    #[inline]
    fn values_of_address(&self, headers: &Headers, data: &[u8]) -> Option<Values> {
        let [shape::Decides { field, .. }] = self.decides[..] else { return None };
        if headers.kind() != Kind::Ipv4 {
            return None;
        }
        let (source, destination) = headers.address_bytes(data)?;
        let address = match field {
            Field::SrcIp => source,
            Field::DstIp => destination,
            _ => return None,
        };
        Some(Values::of_ipv4(*address.first_chunk()?))
    }

    #[inline(never)]
    fn values_of_any(&self, headers: &Headers, link: LinkType, data: &[u8]) -> Result<Values, Unfilled> {
        if !self.has_names() {
            return Ok(Values::everything());
        }
        let packet = Subject::new(headers, link, data);
        let mut values = Gatherer::default().part(Part::Labels, &[packet.labels as u8]);
        for shape::Decides { field, .. } in &self.decides {
            if field.gather(&packet, &mut values).is_none() {
                let fallback = self
                    .parts
                    .fallback
                    .as_ref()
                    .map(|_| Gatherer::default().part(Part::Fallback, &[]).values());
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
        let filled =
            self.parts.fill_with(|field| field.value(&packet).ok_or(Unfilled { name: field.name() }));
        match (filled, &self.parts.fallback) {
            (Ok(filled), _) if self.has_names() => Ok(behind_labels(filled.text.trim(), packet.labels)),
            (Ok(filled), _) => Ok(filled.text.trim().into()),
            (Err(_), Some(fallback)) => Ok(fallback.clone()),
            (Err(unfilled), None) => Err(unfilled),
        }
    }

    /// The compiled filter for the packet: as [`Template::fill`], and a packet whose values make no filter
    /// (an IPv6 address behind `ip host`) gets the fallback too.
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
        let made = match (Filter::filled(&text, vlan, link), &self.parts.fallback) {
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
                None if self.parts.fallback.is_some() => return Ok(Shape::of_fallback(link)),
                None => return Err(Unfilled { name: decides.field.name() }),
            }
        }
        Ok(Shape::of(&shape))
    }

    /// The name to report for a shape: the first one; empty where there is none.
    pub fn first_name(&self) -> &'static str {
        self.decides.first().map_or("", |decides| decides.field.name())
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
            break; // without addresses everything is selected
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_of_an_address_gives_what_the_other_way_gives() {
        let mut ethernet = vec![2; 12];
        ethernet.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 2, 3, 192, 0, 2, 9]);
        ethernet.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]);
        let mut tagged = ethernet.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        let mut labelled = ethernet.clone();
        labelled.splice(12..14, [0x88, 0x47, 0, 0, 0x11, 64]);
        let packets = [ethernet.clone(), tagged, labelled, ethernet[..20].to_vec(), ethernet[14..].to_vec()];
        let mut short = 0;
        for text in ["$srcIP", "host $dstIP", "$srcPort", "$srcIP $dstIP", "$srcIP ? udp", "udp"] {
            let Ok(template) = Template::parse(text) else { continue };
            for packet in &packets {
                for link in [LinkType::ETHERNET, LinkType::RAW] {
                    let headers = Headers::parse(link, packet);
                    let any = template.values_of_any(&headers, link, packet);
                    short += usize::from(template.values_of_address(&headers, packet).is_some());
                    assert_eq!(template.values(&headers, link, packet).ok(), any.ok(), "{text} {packet:?}");
                }
            }
        }
        assert!(short >= 6, "{short}");
    }
}
