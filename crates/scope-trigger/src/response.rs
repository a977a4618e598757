//! The response of a trigger: which window an occurrence opens, and which packets of it the dump keeps.

use crate::occurrence::Occurrence;
use crate::script::ScriptFile;
use scope_filter::{
    Filter, NoFilter, Shape, Template, Values, VlanRule, host_pair_filter, host_pair_shape, host_pair_values,
};

/// Longest window, in front of an occurrence or behind it, and longest holdoff: one year.
pub const DURATION_NS_MAX: i64 = 366 * 86_400 * 1_000_000_000;

/// What is dumped.
#[derive(Clone, Debug)]
pub struct Response {
    /// What dumps keep; `None`: what went between the packet's two hosts. Without a packet a template with
    /// names, and `None`, keep everything.
    pub template: Option<Template>,
    /// What says instead of a template which packets a dump keeps. Hits of the same two hosts share a dump, as without
    /// a template.
    pub script: Option<ScriptFile>,
    /// Window in front of an occurrence, ns.
    pub before_ns: i64,
    /// Window behind it, ns.
    pub after_ns: i64,
    /// How dump filters see VLAN tags.
    pub vlan: VlanRule,
}

impl Response {
    /// Whether both dump the same.
    pub fn same_as(&self, other: &Response) -> bool {
        let template = |of: &Response| of.template.as_ref().map(|template| template.text().to_string());
        let rest = |of: &Response| (of.before_ns, of.after_ns, of.vlan);
        template(self) == template(other) && self.script == other.script && rest(self) == rest(other)
    }

    /// The window of an occurrence, ns: begin and end.
    pub(crate) fn span(&self, occurrence: &Occurrence<'_>) -> (i64, i64) {
        let hit_ns = occurrence.at.time_ns;
        let before_ns = occurrence.own.before_ns.unwrap_or(self.before_ns);
        let after_ns = occurrence.own.after_ns.unwrap_or(self.after_ns);
        let to_ns = hit_ns.max(occurrence.clock_ns).saturating_add(after_ns);
        (hit_ns.saturating_sub(before_ns).max(0), to_ns)
    }

    /// What the dump filter is made of, or the first name that the packet has no field for.
    pub(crate) fn values(&self, occurrence: &Occurrence<'_>) -> Result<Values, &'static str> {
        if let Some(own) = occurrence.own.filter {
            return Ok(Values::of_text(own));
        }
        match (&occurrence.packet, &self.template) {
            (None, _) => Ok(occurrence.given.map_or_else(Values::everything, Values::of_text)),
            (Some(packet), None) => Ok(host_pair_values(packet.headers, packet.link_type, packet.data)),
            (Some(packet), Some(template)) => template
                .values(packet.headers, packet.link_type, packet.data)
                .map_err(|unfilled| unfilled.name),
        }
    }

    /// What decides whether the values make a filter; `None`: nothing of a packet does.
    pub(crate) fn shape(&self, occurrence: &Occurrence<'_>) -> Option<Shape> {
        let packet = occurrence.packet.as_ref().filter(|_| occurrence.own.filter.is_none())?;
        match &self.template {
            None if self.script.is_some() => None,
            None => Some(host_pair_shape(packet.headers, packet.link_type, packet.data)),
            Some(template) => template.shape(packet.headers, packet.link_type, packet.data).ok(),
        }
    }

    /// The dump filter.
    pub(crate) fn filter(&self, occurrence: &Occurrence<'_>) -> Result<Filter, NoFilter> {
        let of_all = |text: &str| {
            let own_type = occurrence.packet.as_ref().map(|packet| [packet.link_type]);
            let link_types = own_type.as_ref().map_or(occurrence.link_types, |own| own);
            Filter::compile(text, self.vlan, link_types).map_err(NoFilter::Uncompiled)
        };
        if let Some(own) = occurrence.own.filter {
            return of_all(own);
        }
        match (&occurrence.packet, &self.template) {
            (Some(_), None) if self.script.is_some() => of_all(""),
            (Some(packet), None) => {
                host_pair_filter(packet.headers, packet.link_type, packet.data, self.vlan)
            }
            (Some(packet), Some(template)) => {
                template.fill_filter(packet.headers, packet.link_type, packet.data, self.vlan)
            }
            (None, template) => {
                let own = template.as_ref().filter(|template| !template.has_names());
                let text = occurrence.given.unwrap_or_else(|| own.map_or("", Template::text));
                of_all(text)
            }
        }
    }
}
