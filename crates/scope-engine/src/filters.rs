//! Filters made ready by the run's main thread, so that no worker waits for machine code.

use crate::plan::{SourceEntry, StorePlan};
use scope_events::event::{Warning, WarningKind};
use scope_filter::{Filter, FilterEngine};
use scope_packet::LinkType;
use scope_trigger::TriggerConfig;
use scope_trigger::signal::SignalSet;

/// Makes machine code of the sources', the signals' and the triggers' filters: before the workers begin, and while they run
/// for link types that one has met. Until it is made the interpreter answers; a worker never waits for it.
/// Says where none can be made, once.
pub(crate) fn prepare_filters<'a>(
    engine: FilterEngine,
    sources: &[SourceEntry],
    store: Option<&StorePlan>,
    signals: &SignalSet,
    triggers: impl Iterator<Item = &'a TriggerConfig>,
) -> Vec<Warning> {
    let prefilter = |entry: &SourceEntry| {
        let error = entry.prefilter.as_ref()?.prepare(engine).err()?;
        let text = format!("source '{}': prefilter: {error}: the interpreter evaluates it", entry.spec);
        Some(Warning::of(WarningKind::Interpreter, text))
    };
    let stored = |filter: &Filter| {
        let text = format!("store-filter: {}: the interpreter evaluates it", filter.prepare(engine).err()?);
        Some(Warning::of(WarningKind::Interpreter, text))
    };
    let measured = |filter: &Filter| {
        let text = format!("signal: {}: the interpreter evaluates it", filter.prepare(engine).err()?);
        Some(Warning::of(WarningKind::Interpreter, text))
    };
    let volumes = store.into_iter().flat_map(|store| &store.volumes);
    sources
        .iter()
        .filter_map(prefilter)
        .chain(volumes.filter_map(|volume| volume.filter.as_ref()).filter_map(stored))
        .chain(signals.tallies.iter().filter_map(|tally| tally.filter.as_ref()).filter_map(measured))
        .chain(triggers.filter_map(|trigger| unready(trigger, engine)))
        .collect()
}

/// Makes a trigger's programs and machine code for every link type that has come. Says why there is no
/// machine code, if so.
pub(crate) fn made_ready(
    trigger: &TriggerConfig,
    links: &[LinkType],
    engine: FilterEngine,
) -> Option<Warning> {
    let filter = trigger.condition.filter()?;
    for &link in links {
        drop(filter.for_link(link));
    }
    unready(trigger, engine)
}

/// Makes a trigger's filter ready for the link types that are known; in words why there is no machine code,
/// once.
fn unready(trigger: &TriggerConfig, engine: FilterEngine) -> Option<Warning> {
    let error = trigger.condition.filter()?.prepare(engine).err()?;
    let text = format!("trigger {}: {error}: the interpreter evaluates its filter", trigger.name);
    Some(Warning::of(WarningKind::Interpreter, text))
}
