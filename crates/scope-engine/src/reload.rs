//! A change of triggers and limits during a run: makes it, and reports it.

use crate::control::{Change, Refusal, Reload, TriggerChange};
use crate::few_pins;
use crate::filters::made_ready;
use crate::plan::Fixed;
use crate::statistics::no_flows;
use crate::watch::Watch;
use crate::wiring::Shared;
use scope_events::event::{self, Warning};
use scope_fault::{Fault, Subject};
use scope_flow::when::WHENS_MAX;
use scope_packet::LinkType;
use scope_trigger::TriggerConfig;

/// Triggers at most, as at the start.
const TRIGGERS_MAX: usize = 256;

/// Changes one trigger, from the run's main thread; the others go on. Returns warnings.
///
/// # Errors
/// There is none of the name, or one already, or there are too many.
pub(crate) fn change_one(
    change: TriggerChange,
    shared: &Shared,
    fixed: &Fixed,
    watch: &dyn Watch,
) -> Result<Vec<Warning>, Refusal> {
    let set = shared.triggers.current();
    let mut configs: Vec<TriggerConfig> =
        set.given().iter().map(|trigger| trigger.config().clone()).collect();
    let name = change.name().to_string();
    let at = configs.iter().position(|config| config.name == name);
    let mut warnings = Vec::new();
    let mut ready = |config: &TriggerConfig| {
        let links: Vec<LinkType> =
            (0..shared.ring.lanes()).map(|lane| shared.ring.lane_info(lane).link_type).collect();
        warnings.extend(made_ready(config, &links, fixed.filter_engine));
    };
    if let TriggerChange::Add(config) | TriggerChange::Change(config) = &change
        && config.when.is_some()
    {
        let asks = |config: &&TriggerConfig| config.when.is_some() && config.name != name;
        if shared.statistics.is_none() {
            return Err(Refusal::Faults(vec![no_flows(&name)]));
        }
        if configs.iter().filter(asks).count() >= WHENS_MAX {
            let fault = Fault::about(Subject::trigger(&name, Some("when")));
            let fault = fault.cause(format!("{WHENS_MAX} triggers have one already"));
            return Err(Refusal::Faults(vec![fault.remedy("remove one of them")]));
        }
    }
    let what = match (change, at) {
        (TriggerChange::Add(_), Some(_)) => return Err(Refusal::TriggerExists(name)),
        (TriggerChange::Change(_) | TriggerChange::Remove(_), None) => {
            return Err(Refusal::NoSuchTrigger(name));
        }
        (TriggerChange::Add(_), None) if configs.len() >= TRIGGERS_MAX => {
            let fault = Fault::whole(format!("there are {TRIGGERS_MAX} triggers already"));
            return Err(Refusal::Faults(vec![fault.remedy("remove one")]));
        }
        (TriggerChange::Add(config), None) => {
            fixed.expect_place().map_err(|fault| Refusal::Faults(vec![fault]))?;
            ready(&config);
            configs.push(*config);
            "added"
        }
        (TriggerChange::Change(config), Some(at)) => {
            ready(&config);
            configs[at] = *config;
            "changed"
        }
        (TriggerChange::Remove(_), Some(at)) => {
            configs.remove(at);
            "removed"
        }
    };
    shared.triggers.replace(&configs, set.hand().config().clone());
    let said = format!("trigger {name}: {what} by order");
    shared.events.log(event::Reload { ok: true, changed: vec![said.clone()], ..Default::default() });
    watch.note(&said);
    Ok(warnings)
}

/// Makes the change, from the run's main thread. Machine code is made before any worker sees the triggers.
/// Returns warnings: what is kept as it was, which filters have no machine code.
pub(crate) fn reload(
    order: Reload,
    shared: &Shared,
    fixed: &Fixed,
    is_live: bool,
    watch: &dyn Watch,
) -> Vec<Warning> {
    let Change { live, changed, kept } = match order {
        Reload::Take(change) => *change,
        Reload::Refuse(faults) => {
            let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
            shared.events.log(event::Reload { ok: false, faults: faults.clone(), ..Default::default() });
            // A fault may show a text with a mark below it.
            for fault in &faults {
                for line in format!("wirescope: {fault}").lines() {
                    watch.warning(line);
                }
            }
            return vec!["reload: refused; the old configuration stays in force".to_string().into()];
        }
    };
    let links: Vec<LinkType> =
        (0..shared.ring.lanes()).map(|lane| shared.ring.lane_info(lane).link_type).collect();
    let mut warnings: Vec<Warning> = kept.iter().map(|kept| format!("reload: {kept}").into()).collect();
    let ring = &shared.ring;
    let (pins, segment_bytes) = (ring.budget().segments(), ring.segment_bytes() as u64);
    if live.dumps_max != shared.dumps.places().max() {
        warnings
            .extend(few_pins::words(live.dumps_max as u64, pins, segment_bytes, is_live).map(Warning::from));
    }
    for trigger in &live.triggers {
        warnings.extend(made_ready(trigger, &links, fixed.filter_engine));
    }
    for trigger in shared.triggers.current().given() {
        trigger.forget_order();
    }
    shared.triggers.replace(&live.triggers, live.manual_trigger(fixed.vlan));
    shared.dumps.set_limits(live.dumps_max, live.exit_after);
    if let Some(stores) = &shared.stores {
        stores.set_bounds(&live.store_bounds);
    }
    shared.source_rules.replace(&live.source_rules);
    if let Some(attach) = &shared.attach {
        let waiting = attach.change(&live.attach_ring, &live.groups);
        warnings.extend(waiting.iter().map(|waiting| Warning::from(format!("reload: {waiting}"))));
    }
    let what = if changed.is_empty() { "nothing".to_string() } else { changed.join(", ") };
    shared.events.log(event::Reload { ok: true, faults: Vec::new(), changed, kept });
    watch.note(&format!("reload: done; changed: {what}"));
    warnings
}
