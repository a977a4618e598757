//! Every source is opened, in the order given: one feed per worker.

use crate::live;
use crate::plan::{RunPlan, SourceEntry};
use crate::worker::{Feed, Part};
use scope_source::file::{FileOptions, FileSource};
use scope_source::own_traffic::Connection;
use scope_source::spec::SourcePlan;
use scope_source::{Source, SourceError, pcap, synth};

/// Opens every source: one entry per worker. All files together are one source, shared out where several workers are asked for;
/// so are all interfaces with `workers=0`, by one worker.
pub(crate) fn open_sources(plan: &RunPlan, own: &[Connection]) -> Result<Vec<Feed>, SourceError> {
    let mut sources: Vec<Feed> = Vec::new();
    let mut files = FileOptions::default();
    let mut file_parts = Vec::new();
    let mut file_workers = 1;
    let mut shared = Vec::new();
    for entry in &plan.sources {
        match &entry.plan {
            SourcePlan::File(file) => {
                files.paths.push(file.path.clone());
                file_parts.push(Part::of(entry));
                files.pace = file.pace.or(files.pace);
                files.snap_len = file.snap_len.or(files.snap_len);
                file_workers = file_workers.max(file.workers);
            }
            SourcePlan::AfPacket(live) => {
                if live.workers == 0 {
                    shared.push((live, entry));
                    continue;
                }
                sources.extend(feeds(live::open(live, entry, own)?, entry));
            }
            SourcePlan::Pcap(live) => {
                let own = if live.exclude_self { own } else { &[] };
                sources.extend(feeds([pcap::open(live, own, &entry.spec)?.with_prefilter(entry.prefilter.is_some())], entry));
            }
            SourcePlan::Synth(options) => {
                sources.extend(feeds(synth::open(options, &entry.spec)?, entry));
            }
        }
    }
    let first_file = plan.sources.iter().find(|entry| matches!(entry.plan, SourcePlan::File(_)));
    if !files.paths.is_empty() {
        for index in 0..file_workers {
            let share = (file_workers > 1).then_some((index, file_workers));
            let source = Box::new(FileSource::open(FileOptions { share, ..files.clone() })?);
            let cpus = first_file.map_or_else(Vec::new, |entry| entry.pinning.of_worker(index as usize).to_vec());
            sources.push(Feed { source, parts: file_parts.clone(), cpus });
        }
    }
    if !shared.is_empty() {
        sources.push(live::open_shared(&shared, own)?);
    }
    Ok(sources)
}

/// The workers' sources of one entry, each of which has only one part.
fn feeds<S: Source + 'static>(sources: impl IntoIterator<Item = S>, entry: &SourceEntry) -> impl Iterator<Item = Feed> {
    sources.into_iter().enumerate().map(|(index, source)| Feed {
        source: Box::new(source),
        parts: vec![Part::of(entry)],
        cpus: entry.pinning.of_worker(index).to_vec(),
    })
}
