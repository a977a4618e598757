//! One dump from order to report: its packets are selected in rounds, until what answers for them says that
//! it is over, and written.

use crate::edge::{Edge, Wanted};
use crate::order::{Dump, DumpOrder};
use crate::past::Terms;
use crate::report::DumpReport;
use crate::select::{Round, Selection};
use crate::walk::{Request, RingTimeline};
use crate::writing::Writing;
use scope_ring::{Interfaces, Ring, Timeline};
use scope_trigger::Window;
use std::sync::Arc;

/// Cuts one dump out of the ring, and of the stores of its run what that lacks. Returns when its files have their names.
pub fn cut(ring: &Arc<Ring>, order: DumpOrder) -> DumpReport {
    let request = Request {
        era: Some(order.window.era()),
        from_ns: order.window.from_ns(),
        hit_ns: order.time_ns,
        reader: order.scans.join(&order.filter),
        patience: order.patience,
        clock: order.clock.clone(),
        progress: order.progress.clone(),
    };
    let wanted = Wanted {
        era: request.era,
        from_ns: request.from_ns,
        hit_ns: request.hit_ns,
        filter: order.filter.clone(),
        inexact: order.output.spool.is_none(),
        terms: Terms::default(),
    };
    let mut timeline = RingTimeline::new(ring, &order.pins, request);
    let dump = Dump {
        id: order.id,
        trigger: order.trigger,
        why: order.why,
        hit: order.hit,
        time_ns: order.time_ns,
        filter: order.filter,
        filter_engine: order.filter_engine,
        keep: order.keep,
        window: order.window,
        output: order.output,
        progress: order.progress,
        buffers: order.scans.buffers().clone(),
        clock: order.clock,
        evidence: order.evidence,
    };
    let Some(past) = order.past else {
        let mut report = cut_from(&mut timeline, &**ring, dump);
        report.waited.pins_full = timeline.full();
        return report;
    };
    let mut edge = Edge::new(ring, timeline, &*past, wanted);
    let mut report = cut_from(&mut edge, &*past, dump);
    report.waited.pins_full = edge.ring_timeline().full();
    report.unread = edge.unread();
    report
}

/// Cuts one dump out of any timeline: its packets are selected, round by round, and written. `interfaces` are
/// those that its packets name.
pub fn cut_from(timeline: &mut dyn Timeline, interfaces: &dyn Interfaces, mut dump: Dump) -> DumpReport {
    let mut report = DumpReport {
        id: dump.id,
        trigger: dump.trigger.clone(),
        why: dump.why.clone(),
        time_ns: dump.time_ns,
        filter: dump.filter.text().to_string(),
        script: dump.keep.as_ref().map(|keep| keep.name().to_string()),
        to_stream: dump.output.is_stream(),
        circumstances: dump.evidence.now(),
        ..DumpReport::default()
    };
    let mut writing = Writing::new(&dump, interfaces, &report);
    let keep = dump.keep.take();
    let hit = dump.hit.map(|hit| (hit.lane, hit.packet));
    let from_ns = dump.window.from_ns();
    let mut selection = Selection::new(dump.filter, dump.filter_engine, from_ns, hit, &dump.buffers);
    selection = selection.kept_by(keep);
    follow(timeline, &dump.window, &mut selection, &mut writing);
    timeline.end();

    report.waited.reading = dump.progress.waits();
    let closing = dump.clock.monotonic();
    report.asked = (from_ns, dump.window.to_ns());
    (report.hits, report.hits_ns) = dump.window.hits();
    let main_type = writing.end_packets(timeline.link_type(0));
    // Without anybody's word for it: from the first packet to the latest moment of any worker's clock.
    let heard = timeline.heard().unwrap_or((report.time_ns, report.time_ns));
    report.from_ns = report.asked.0.max(heard.0).min(report.time_ns);
    report.to_ns = report.asked.1.min(heard.1).max(report.from_ns);
    let lacks = selection.missing(timeline, report.asked.1);
    report.interpreted = selection.interpreted();
    report.gave_up = selection.gave_up();
    drop(selection); // what waited for its turn
    writing.finish(main_type, &lacks, &mut report);
    report.waited.closing = dump.clock.monotonic().saturating_sub(closing);
    report
}

/// Rounds until the window is over: its end is settled, or the timeline waits no longer.
fn follow(
    timeline: &mut dyn Timeline,
    window: &Window,
    selection: &mut Selection,
    writing: &mut Writing<'_>,
) {
    loop {
        // Before the look: what is committed afterwards is younger than this, or late.
        let settled = timeline.settle(window.to_ns());
        let mut last = window.close_if_settled(settled.up_to);
        if !last && !settled.goes_on {
            window.close();
            last = true;
        }
        let round = Round { to_ns: window.to_ns(), settled_ns: settled.up_to.within(window.era()), last };
        let any = selection.round(timeline, round, writing);
        writing.end_round(any || last);
        if last {
            return;
        }
        timeline.wait(round.to_ns.saturating_sub(round.settled_ns));
    }
}
