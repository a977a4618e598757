//! Every source is opened, in the order given: one feed per worker. What stands in files is read later.

use crate::live;
use crate::plan::{Fixed, SourceEntry};
use crate::wiring::Part;
use crate::worker::Feed;
use scope_fault::Fault;
use scope_source::file::{FileOptions, FileSource};
use scope_source::own_traffic::Connection;
use scope_source::spec::SourcePlan;
use scope_source::{Source, SourceError, pcap, synth};

/// Opens every source: one entry per worker. All files together are one source, shared out where several
/// workers are asked for; so are all interfaces with `workers=0`, by one worker.
pub(crate) fn open_sources(fixed: &Fixed, own: &[Connection]) -> Result<Vec<Feed>, Fault> {
    let mut sources: Vec<Feed> = Vec::new();
    let mut files = FileOptions::default();
    let (mut file_parts, mut follows) = (Vec::new(), Vec::new());
    let mut file_workers = 1;
    let mut shared = Vec::new();
    for entry in &fixed.sources {
        match &entry.plan {
            SourcePlan::File(file) => {
                files.paths.push(file.path.clone());
                files.forms.push(file.form);
                follows.push(entry.follow.clone());
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
                sources.extend(feeds(live::open(live, entry, own).map_err(of(entry))?, entry));
            }
            SourcePlan::Pcap(live) => {
                let own = if live.exclude_self { own } else { &[] };
                let source = pcap::open(live, own, &entry.spec).map_err(of(entry))?;
                sources.extend(feeds([source.with_prefilter(entry.prefilter.is_some())], entry));
            }
            SourcePlan::Synth(options) => {
                sources.extend(feeds(synth::open(options, &entry.spec).map_err(of(entry))?, entry));
            }
        }
    }
    let first_file = fixed.sources.iter().find(|entry| entry.plan.file().is_some());
    if let Some(first_file) = first_file {
        for index in 0..file_workers {
            let share = (file_workers > 1).then_some((index, file_workers));
            let opened = FileSource::unread(FileOptions { share, ..files.clone() }, &follows);
            let source = Box::new(opened.map_err(|error| of_files(fixed, first_file, error))?);
            let cpus = first_file.pinning.of_worker(index as usize).to_vec();
            sources.push(Feed { source, parts: file_parts.clone(), cpus });
        }
    }
    if let Some((_, first)) = shared.first() {
        sources.push(live::open_shared(&shared, own).map_err(of(first))?);
    }
    Ok(sources)
}

/// The processors of each worker of a run that only captures from interfaces, in the order of [`open_sources`]; of other
/// runs none.
pub(crate) fn live_workers(fixed: &Fixed) -> Vec<&[u32]> {
    let (mut workers, mut shared) = (Vec::new(), None);
    for entry in &fixed.sources {
        let count = match &entry.plan {
            SourcePlan::AfPacket(live) => live.workers,
            SourcePlan::Pcap(_) => 1,
            SourcePlan::File(_) | SourcePlan::Synth(_) => return Vec::new(),
        };
        if count == 0 {
            shared.get_or_insert(entry.pinning.of_worker(0));
        }
        workers.extend((0..count).map(|index| entry.pinning.of_worker(index as usize)));
    }
    workers.extend(shared);
    workers
}

/// Lets them read what stands before their packets: behind the line where rights are given up.
pub(crate) fn begin(fixed: &Fixed, feeds: &mut [Feed]) -> Result<(), Fault> {
    let of = |error: SourceError| match fixed.sources.iter().find(|entry| entry.plan.file().is_some()) {
        Some(first_file) => of_files(fixed, first_file, error),
        None => error.reason(),
    };
    feeds.iter_mut().try_for_each(|feed| feed.source.begin()).map_err(of)
}

/// An error as the fault of an entry.
fn of(entry: &SourceEntry) -> impl Fn(SourceError) -> Fault {
    |error| error.into_fault(&entry.spec)
}

/// An error of the files, which are opened as one, as the fault of the one that it names; else of the first.
fn of_files(fixed: &Fixed, first: &SourceEntry, error: SourceError) -> Fault {
    let is_named = |entry: &&SourceEntry| match (&entry.plan, &error) {
        (SourcePlan::File(file), SourceError::File { path, .. }) => file.path == *path,
        _ => false,
    };
    let entry = fixed.sources.iter().find(is_named).unwrap_or(first);
    error.into_fault(&entry.spec)
}

/// The workers' sources of one entry, each of which has only one part.
fn feeds<S: Source + 'static>(
    sources: impl IntoIterator<Item = S>,
    entry: &SourceEntry,
) -> impl Iterator<Item = Feed> {
    sources.into_iter().enumerate().map(|(index, source)| Feed {
        source: Box::new(source),
        parts: vec![Part::of(entry)],
        cpus: entry.pinning.of_worker(index).to_vec(),
    })
}
