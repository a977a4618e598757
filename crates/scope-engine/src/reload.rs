//! A change of triggers and limits during a run: makes it, and reports it.

use crate::control::{Change, Reload};
use crate::few_pins;
use crate::filters::made_ready;
use crate::plan::Fixed;
use crate::watch::Watch;
use crate::wiring::Shared;
use scope_events::event::{self, Warning};
use scope_fault::Fault;
use scope_packet::LinkType;

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
                    watch.note(line);
                }
            }
            watch.note("reload: refused; the old configuration stays in force");
            return Vec::new();
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
    let what = if changed.is_empty() { "nothing".to_string() } else { changed.join(", ") };
    shared.events.log(event::Reload { ok: true, faults: Vec::new(), changed, kept });
    watch.note(&format!("reload: done; changed: {what}"));
    warnings
}
