//! Filters that need more bytes of a packet than a source's snap length keeps: they never match there, which
//! is said at the start.

use crate::plan::{RunPlan, SourceEntry};
use scope_filter::Filter;
use scope_packet::LinkType;

/// A warning for each source and filter of the plan that don't go together on any of `link_types`.
pub fn warnings(plan: &RunPlan, link_types: &[LinkType]) -> Vec<String> {
    plan.fixed.sources.iter().flat_map(|entry| of_source(plan, entry, link_types)).collect()
}

fn of_source(plan: &RunPlan, entry: &SourceEntry, link_types: &[LinkType]) -> Vec<String> {
    let Some(snap_len) = entry.plan.snap_len() else { return Vec::new() };
    let prefilter =
        entry.prefilter.iter().map(|filter| ("prefilter".to_string(), needed(filter, link_types)));
    let rules = entry.rules.rules().iter().flat_map(|rule| {
        let own = rule.test.when.iter().chain(&rule.test.unless);
        own.map(|filter| (format!("filter of rule '{}'", rule.name), needed(filter, link_types)))
    });
    let triggers = plan.live.triggers.iter().flat_map(|trigger| {
        let name = &trigger.name;
        let dump = trigger.response.template.as_ref().filter(|template| !template.has_names());
        let dump =
            dump.and_then(|template| Filter::compile(template.text(), plan.fixed.vlan, link_types).ok());
        let dump =
            dump.map(|filter| (format!("dump filter of trigger '{name}'"), needed(&filter, link_types)));
        let own = trigger
            .condition
            .filter()
            .map(|filter| (format!("trigger '{name}'"), needed(filter, link_types)));
        own.into_iter().chain(dump)
    });
    let unmet = prefilter
        .chain(rules)
        .chain(triggers)
        .filter_map(|(what, bytes)| Some((what, bytes.filter(|&bytes| bytes > snap_len)?)));
    let say = |(what, bytes): (String, u32)| {
        format!(
            "source '{}': the {what} matches no packet: it needs {bytes} bytes of a packet, but the snap \
            length keeps {snap_len}; use a larger snaplen= or -s, or none",
            entry.spec
        )
    };
    unmet.map(say).collect()
}

/// The least that the filter needs on any link type for which it compiles; `None` where that can't be told of
/// one.
fn needed(filter: &Filter, link_types: &[LinkType]) -> Option<u32> {
    let needs: Option<Vec<u32>> = link_types
        .iter()
        .filter(|&&link| filter.compiles_for(link))
        .map(|&link| filter.bytes_needed(link))
        .collect();
    needs?.into_iter().min()
}
