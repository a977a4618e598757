//! How an interface is opened for a run: what is left out, where its ring's memory comes from, and what is
//! said of all that.

use crate::plan::{Fixed, SourceEntry};
use crate::wiring::Part;
use crate::worker::Feed;
use scope_machine::cpus::pin_this_thread;
use scope_source::SourceError;
use scope_source::afpacket::{self, AfPacketOptions, AfPacketSource};
use scope_source::own_traffic::{self, Connection};
use scope_source::spec::{AfPacketPlan, SourcePlan};

/// The connections that sources with `exclude-self` leave out; looked for only where one has it.
pub(crate) fn own_traffic(fixed: &Fixed) -> Vec<Connection> {
    if fixed.sources.iter().any(|entry| entry.plan.excludes_self()) {
        own_traffic::ssh_sessions()
    } else {
        Vec::new()
    }
}

/// Opens capture on an interface, or on all that match.
pub(crate) fn open(
    plan: &AfPacketPlan,
    entry: &SourceEntry,
    own: &[Connection],
) -> Result<Vec<AfPacketSource>, SourceError> {
    let options = options(plan, entry, own);
    on_cpus(entry, || afpacket::open(&options, &entry.spec))
}

/// Opens capture for the one worker that all sources with `workers=0` share; they have the same pinning.
pub(crate) fn open_shared(
    wanted: &[(&AfPacketPlan, &SourceEntry)],
    own: &[Connection],
) -> Result<Feed, SourceError> {
    let wishes: Vec<_> =
        wanted.iter().map(|(plan, entry)| (options(plan, entry, own), entry.spec.clone())).collect();
    let (_, first) = wanted[0];
    let source = Box::new(on_cpus(first, || afpacket::open_shared(&wishes))?);
    let parts = wanted.iter().map(|(_, entry)| Part::of(entry)).collect();
    Ok(Feed { source, parts, cpus: first.pinning.of_worker(0).to_vec() })
}

fn options(plan: &AfPacketPlan, entry: &SourceEntry, own: &[Connection]) -> AfPacketOptions {
    AfPacketOptions {
        prefilter: entry.prefilter.clone(),
        excluded: if plan.exclude_self { own.to_vec() } else { Vec::new() },
        ..AfPacketOptions::of(plan)
    }
}

/// Where workers are bound to CPUs, their rings are made by a thread on these CPUs: the kernel takes a ring's
/// memory from the node of the thread that asks for it, as long as that node has some. What comes later is
/// made by the workers themselves.
fn on_cpus<T: Send>(
    entry: &SourceEntry,
    open: impl FnOnce() -> Result<T, SourceError> + Send,
) -> Result<T, SourceError> {
    let cpus = entry.pinning.all();
    if cpus.is_empty() {
        return open();
    }
    let on_its_cpus = || {
        let doing = |cause| SourceError::System {
            place: format!("going to the CPUs of source '{}'", entry.spec),
            cause,
        };
        pin_this_thread(cpus).map_err(doing)?;
        open()
    };
    std::thread::scope(|scope| scope.spawn(on_its_cpus).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What is worth a line at the start: where prefilters run, what is left out.
pub(crate) fn notes(fixed: &Fixed, own: &[Connection], sources: &[Feed]) -> Vec<String> {
    let told = |source: &str, note: &str| format!("source '{source}': {note}");
    let excluding = fixed.sources.iter().filter(|entry| entry.plan.excludes_self());
    let mut notes: Vec<String> = excluding.map(|entry| told(&entry.spec, &left_out(own))).collect();
    for feed in sources {
        for note in feed.source.notes() {
            let note = told(feed.source.name(), &note);
            // The workers of a source say the same.
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

fn left_out(own: &[Connection]) -> String {
    if own.is_empty() {
        return "exclude-self: neither this process nor one above it names an ssh session (SSH_CONNECTION): \
            nothing is excluded"
            .to_string();
    }
    let named: Vec<String> = own.iter().map(Connection::to_string).collect();
    format!("exclude-self: not captured, and not counted as loss: {}", named.join(", "))
}

/// Each live source's settings as they would be typed, and where its workers run.
pub fn settings(fixed: &Fixed) -> Vec<String> {
    let of_entry = |entry: &SourceEntry| {
        let capture = match &entry.plan {
            SourcePlan::AfPacket(live) => Some(afpacket::settings::words(live)),
            SourcePlan::Pcap(live) => {
                Some(format!("buffer={}KiB,timeout={}ms", live.buffer_bytes >> 10, live.timeout_ms))
            }
            SourcePlan::File(_) | SourcePlan::Synth(_) => None,
        };
        let told: Vec<String> = [capture, entry.pinning.words()].into_iter().flatten().collect();
        (!told.is_empty()).then(|| format!("source '{}': {}", entry.spec, told.join("; ")))
    };
    fixed.sources.iter().filter_map(of_entry).collect()
}
