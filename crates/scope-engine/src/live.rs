//! How an interface is opened for a run: what is left out, where its ring's memory comes from, and what is said of all that.

use crate::cpus::pin_this_thread;
use crate::plan::{RunPlan, SourceEntry};
use crate::worker::Feed;
use scope_source::SourceError;
use scope_source::afpacket::{self, AfPacketOptions, AfPacketSource};
use scope_source::own_traffic::{self, Connection};
use scope_source::spec::{AfPacketPlan, SourcePlan};
use std::collections::BTreeSet;

/// Whether the source leaves out this program's own traffic.
fn excludes_self(plan: &SourcePlan) -> bool {
    match plan {
        SourcePlan::AfPacket(live) => live.exclude_self,
        SourcePlan::Pcap(live) => live.exclude_self,
        SourcePlan::File(_) | SourcePlan::Synth(_) => false,
    }
}

/// The connections that sources with `exclude-self` leave out; looked for only where one has it.
pub(crate) fn own_traffic(plan: &RunPlan) -> Vec<Connection> {
    if plan.sources.iter().any(|entry| excludes_self(&entry.plan)) { own_traffic::ssh_sessions() } else { Vec::new() }
}

/// Opens capture on an interface. Where its workers are bound to CPUs, this is done by a thread on these CPUs: the kernel takes a
/// ring's memory from the node of the thread that asks for it, as long as that node has some.
pub(crate) fn open(plan: &AfPacketPlan, entry: &SourceEntry, own: &[Connection]) -> Result<Vec<AfPacketSource>, SourceError> {
    let options = AfPacketOptions {
        prefilter: entry.prefilter.clone(),
        excluded: if plan.exclude_self { own.to_vec() } else { Vec::new() },
        ..AfPacketOptions::of(plan)
    };
    let cpus = entry.pinning.all();
    if cpus.is_empty() {
        return afpacket::open(&options, &entry.spec);
    }
    let on_its_cpus = || {
        let doing = |cause| SourceError::System { place: format!("going to the CPUs of source '{}'", entry.spec), cause };
        pin_this_thread(cpus).map_err(doing)?;
        afpacket::open(&options, &entry.spec)
    };
    std::thread::scope(|scope| scope.spawn(on_its_cpus).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What is worth a line at the start: where prefilters run, what is left out.
pub(crate) fn notes(plan: &RunPlan, sources: &[Feed]) -> Vec<String> {
    let own = own_traffic(plan);
    let mut notes = Vec::new();
    for entry in &plan.sources {
        let told = |note: String| format!("source '{}': {note}", entry.spec);
        if excludes_self(&entry.plan) {
            notes.push(told(left_out(&own)));
        }
        let of_entry = sources.iter().filter(|feed| feed.source.name() == entry.spec);
        let said: BTreeSet<String> = of_entry.flat_map(|feed| feed.source.notes()).collect();
        notes.extend(said.into_iter().map(told));
    }
    notes
}

fn left_out(own: &[Connection]) -> String {
    if own.is_empty() {
        return "exclude-self: neither this process nor one above it names an ssh session (SSH_CONNECTION): nothing is left out"
            .to_string();
    }
    let named: Vec<String> = own.iter().map(Connection::to_string).collect();
    format!("exclude-self: not captured, and not counted as loss: {}", named.join(", "))
}

/// Each live source's settings as they would be typed, and where its workers run.
pub fn settings(plan: &RunPlan) -> Vec<String> {
    let of_entry = |entry: &SourceEntry| {
        let capture = match &entry.plan {
            SourcePlan::AfPacket(live) => Some(afpacket::settings::words(live)),
            SourcePlan::Pcap(live) => Some(format!("buffer={}KiB,timeout={}ms", live.buffer_bytes >> 10, live.timeout_ms)),
            SourcePlan::File(_) | SourcePlan::Synth(_) => None,
        };
        let told: Vec<String> = [capture, entry.pinning.words()].into_iter().flatten().collect();
        (!told.is_empty()).then(|| format!("source '{}': {}", entry.spec, told.join("; ")))
    };
    plan.sources.iter().filter_map(of_entry).collect()
}
