//! The store of a run: its volumes, opened before rights are given up, their threads, and what they tell.

use crate::error::EngineError;
use crate::failure::Failure;
use crate::folder_watch::Notice;
use crate::plan::{StorePlan, VolumePlan};
use crate::recovery_told::{self, RecoveryTold};
use crate::store_sieve::StoreSieve;
use scope_dump::Past;
use scope_events::Events;
use scope_events::counts::Span;
use scope_events::event::{StoreDeleted, StoreFile, StoreMissed, StoreState};
use scope_events::fact::{Flat, Rare};
use scope_filter::{Filter, FilterEngine};
use scope_folder::Folder;
use scope_packet::Clock;
use scope_rights::{Decision, FolderUse, Writable};
use scope_ring::budget::PinBudget;
use scope_ring::{Ring, SegmentReader, Summaries};
use scope_spelling::figures::counted;
use scope_spelling::time::iso;
use scope_store::compose::{self, Keeping, Sieve};
use scope_store::disk::Disk;
use scope_store::io::{Want, Way};
use scope_store::report::{Amount, News, VolumeReport, VolumeState, share_out_behind};
use scope_store::retain::Bounds;
use scope_store::volume::{MARK, Place, Volume, VolumeId};
use scope_store::volume_writer::{Turn, VolumeWriter, WriterPlan};
use scope_store::volumes::Shared;
use scope_store::{Dealer, io};
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A flush that has begun is on the disk after so long; a dump waits no longer for it.
const WRITTEN_AFTER: Duration = Duration::from_secs(2);

/// The volumes of a run, opened, and nothing begun.
pub struct OpenStores {
    volumes: Vec<OpenVolume>,
    plan: StorePlan,
}

struct OpenVolume {
    volume: Volume,
    folder: Arc<Folder>,
    disk: Box<dyn Disk + Send>,
    /// For what dead runs left.
    recovery: Box<dyn Disk + Send>,
    way: Way,
    plan: WriterPlan,
}

impl OpenStores {
    /// Opens the volumes of `plan`, whose bounds are `bounds`, for a run with this ring; what is made belongs to
    /// the user that the run becomes.
    pub fn open(
        plan: &StorePlan,
        bounds: &[Bounds],
        engine: FilterEngine,
        ring: &Arc<Ring>,
        decision: Option<&Decision>,
    ) -> Result<OpenStores, EngineError> {
        let owner = decision.and_then(Decision::user).map(|user| (user.uid, user.gid));
        let chains = plan.chain;
        let mut volumes = Vec::new();
        for (index, volume) in plan.volumes.iter().enumerate() {
            let fault = |cause: std::io::Error| EngineError::System {
                place: volume.folder.display().to_string(),
                cause,
            };
            let place = Place::find(&volume.folder).map_err(EngineError::Store)?;
            let opened = Volume::open(&place, new_id(ring, index), owner).map_err(EngineError::Store)?;
            let folder = Arc::new(Folder::open(place.path()).map_err(fault)?);
            let keeping = keeping(volume, engine, ring)?;
            let memory = keeping.as_ref().map_or(ring, |keeping| &keeping.memory);
            let (disk, way) = io::open(&folder, Some(memory), Want::Best);
            let (recovery, _) = io::open(&folder, None, Want::Pwrite);
            let plan = WriterPlan {
                file_bytes: volume.file_bytes,
                flush: plan.flush,
                bounds: bounds.get(index).copied().unwrap_or_default(),
                chain: chains,
                keeping,
            };
            volumes.push(OpenVolume { volume: opened, folder, disk, recovery, way, plan });
        }
        Ok(OpenStores { volumes, plan: plan.clone() })
    }

    /// What stays writable.
    pub fn writable(&self) -> impl Iterator<Item = Writable<'_>> {
        self.volumes.iter().flat_map(|volume| writable(std::slice::from_ref(&*volume.folder)))
    }

    /// The folder of each volume.
    pub fn folders(&self) -> Vec<Arc<Folder>> {
        self.volumes.iter().map(|volume| volume.folder.clone()).collect()
    }

    /// A line for each volume: where it stores, and how.
    pub fn notes(&self) -> Vec<String> {
        let note = |(volume, plan): (&OpenVolume, &VolumePlan)| {
            let filter = plan.filter.as_ref().map(|filter| format!(" what matches '{}'", filter.text()));
            let snap = plan.snap.map(|snap| format!(" at most {snap} bytes of each packet"));
            let what = [filter, snap].into_iter().flatten().collect::<Vec<_>>().join(",");
            format!("stores{what} into {} by {}", volume.folder.path().display(), volume.way)
        };
        self.volumes.iter().zip(&self.plan.volumes).map(note).collect()
    }

    /// What they have of the past, for dumps.
    pub fn past(&self, ring: &Arc<Ring>, clock: &Arc<dyn Clock>) -> Past {
        let volumes = self.volumes.iter().map(|volume| volume.folder.clone()).collect();
        // A volume that composes segments gives those of the ring back before it has written.
        let composes = self.volumes.iter().any(|volume| volume.plan.keeping.is_some());
        let patience = if composes { self.plan.flush + WRITTEN_AFTER } else { Duration::ZERO };
        Past::new(ring, volumes, patience, clock)
    }

    /// Begins to store. Progress of recovery is logged each `status_every` at most; `summaries` are those of
    /// `ring` that dumps use.
    ///
    /// # Errors
    /// A folder can't be read, or there is no thread.
    pub fn start(
        self,
        ring: &Arc<Ring>,
        summaries: Option<&Arc<Summaries>>,
        status_every: Duration,
    ) -> Result<Stores, EngineError> {
        let segments = (self.plan.behind / ring.segment_bytes() as u64).max(1);
        let budget = Arc::new(PinBudget::new(segments));
        let reader = SegmentReader::new(ring, budget.take(segments, 1));
        let ids: Vec<VolumeId> = self.volumes.iter().map(|volume| volume.volume.id()).collect();
        let shared = Shared::new(ring, summaries, Dealer::new(reader, ids.len()), ids);
        let recovery = RecoveryTold::new(self.volumes.len(), status_every, Instant::now());
        let mut threads = Vec::new();
        for (index, volume) in self.volumes.into_iter().enumerate() {
            let place = volume.folder.path().display().to_string();
            let fault = |cause| EngineError::System { place: place.clone(), cause };
            let OpenVolume { volume, disk, recovery, way, plan, .. } = volume;
            let writer =
                VolumeWriter::new(&shared, index, volume, (disk, &way), recovery, plan).map_err(fault)?;
            let thread = std::thread::Builder::new().name(format!("store-{index}"));
            threads.push(thread.spawn(move || work(writer)).map_err(fault)?);
        }
        Ok(Stores { shared, threads: Mutex::new(threads), recovery: Mutex::new(recovery) })
    }
}

/// What a volume keeps where that is less than the ring has, and the memory for it.
fn keeping(plan: &VolumePlan, engine: FilterEngine, ring: &Ring) -> Result<Option<Keeping>, EngineError> {
    let filter = plan.filter.as_ref().filter(|filter| !filter.is_everything());
    if filter.is_none() && plan.snap.is_none() {
        return Ok(None);
    }
    let sieve = |filter: &Filter| Box::new(StoreSieve::new(filter, engine)) as Box<dyn Sieve>;
    Ok(Some(Keeping {
        sieve: filter.map(sieve),
        snap: plan.snap,
        filter: filter.map_or(String::new(), |filter| filter.text().to_string()),
        memory: compose::memory(ring)?,
    }))
}

/// Folders of volumes, as a run writes to them.
pub fn writable(folders: &[Folder]) -> impl Iterator<Item = Writable<'_>> {
    let file = OsStr::new(MARK);
    folders.iter().map(move |folder| Writable { folder, file, folder_use: FolderUse::OwnWithFolders })
}

/// A name for a volume that has none yet.
fn new_id(ring: &Ring, index: usize) -> VolumeId {
    let mut id = ring.run_id();
    id[15] = id[15].wrapping_add(index as u8).wrapping_add(1); // its run's is random
    VolumeId(id)
}

fn work(mut writer: VolumeWriter) {
    loop {
        match writer.turn() {
            Turn::Busy => {}
            Turn::Idle => std::thread::sleep(writer.rest()),
            Turn::Over => return,
        }
    }
}

/// The store of a run that goes.
pub struct Stores {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    recovery: Mutex<RecoveryTold>,
}

impl Stores {
    /// Where the volumes stand, read before what was published.
    pub fn reports(&self) -> Vec<VolumeReport> {
        self.shared.reports()
    }

    /// Other bounds from now on, by the volumes' places.
    pub fn set_bounds(&self, bounds: &[Bounds]) {
        for (index, bounds) in bounds.iter().enumerate() {
            self.shared.set_bounds(index, *bounds);
        }
    }

    /// Nothing more comes: they write what there is, and end.
    pub fn end(&self) {
        self.shared.end();
    }

    /// A run that is stopped doesn't wait for disks that don't write.
    pub fn let_workers_go(&self) {
        self.shared.let_workers_go();
    }

    /// Whether all are done, or nobody waits for them any more.
    pub fn is_over(&self) -> bool {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.is_over() || threads.iter().all(JoinHandle::is_finished)
    }

    /// Logs what the volumes have to tell; returns what people should read at once.
    pub(crate) fn log_news(&self, events: &Events) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.shared.watch();
        let reports = self.reports();
        let paths: Vec<String> = reports.iter().map(|report| report.path.display().to_string()).collect();
        let mut told = self.recovery.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, (report, path)) in reports.iter().zip(&paths).enumerate() {
            if let Some(recovery) = &report.recovery {
                told.look(events, index, path, recovery);
            }
        }
        for (index, news) in self.shared.take_news() {
            for news in news {
                log(events, &paths[index], news, &mut notices);
            }
        }
        notices
    }

    /// Why the run did not do all that its store promised.
    pub fn failures(&self, reports: &[VolumeReport]) -> Vec<Failure> {
        let mut failures: Vec<Failure> = reports.iter().flat_map(failures_of).map(Failure::from).collect();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.is_finished() && thread.join().is_err() {
                failures
                    .push("a thread of the store failed: this is a defect of wirescope".to_string().into());
            }
        }
        failures
    }
}

/// What a volume didn't do, in words.
fn failures_of(report: &VolumeReport) -> Vec<String> {
    let mut failures = Vec::new();
    let path = report.path.display();
    if report.behind.packets > 0 {
        let packets = counted(report.behind.packets, "packet");
        failures.push(format!("the store in {path} did not write its last {packets}"));
    }
    if report.missed.packets > 0 {
        let packets = counted(report.missed.packets, "packet");
        let why = if report.was_held { "; for a time holds left it no room" } else { "" };
        failures.push(format!("the store in {path} missed {packets}{why}"));
    }
    let stored = report.stored.packets;
    if report.crowded_out && stored > 0 && report.deleted_own.packets >= stored {
        let packets = counted(stored, "packet");
        failures
            .push(format!("the store in {path} has deleted all {packets} that it wrote: there was no room"));
    }
    if let Some(error) = report.error.as_ref().filter(|_| report.state != VolumeState::Writing) {
        failures.push(format!("the store in {path} could not write: {error}"));
    }
    failures
}

/// What is behind, made exact: `published` is what the workers stored by now.
pub fn settle(mut reports: Vec<VolumeReport>, published: Amount) -> Vec<VolumeReport> {
    share_out_behind(&mut reports, published);
    reports
}

fn span(span_ns: (i64, i64)) -> Span {
    Span { from: iso(span_ns.0), to: iso(span_ns.1) }
}

fn log(events: &Events, volume: &str, news: News, notices: &mut Vec<Notice>) {
    let volume = volume.to_string();
    match news {
        News::File { name, span_ns, packets, bytes, cut_off, head } => events.log(StoreFile {
            volume,
            file: name.display().to_string(),
            span: Flat(span(span_ns.unwrap_or((0, 0)))),
            packets,
            bytes,
            cut_off: Rare(cut_off),
            hash: Rare(head.map(|head| head.to_string())),
        }),
        News::Deleted(deleted) => {
            let totals = deleted.totals.unwrap_or_default();
            events.log(StoreDeleted {
                volume,
                file: deleted.name.display().to_string(),
                span: Flat(span(totals.span_ns.unwrap_or((0, 0)))),
                packets: totals.packets,
                bytes: deleted.bytes,
                hash: totals.hash.to_string(),
                why: deleted.why.to_string(),
            });
        }
        News::State(state, text) => {
            if state != VolumeState::Writing {
                notices.push(Notice::Warning(format!("the store in {volume}: {text}")));
            }
            events.log(StoreState { volume, state: state.word().to_string(), text });
        }
        News::Missed(amount, span_ns) => events.log(StoreMissed {
            volume,
            packets: amount.packets,
            bytes: amount.bytes,
            span: span_ns.map(span),
        }),
        News::Recovered(report) => {
            recovery_told::log(events, &volume, &report);
            notices.push(Notice::Note(recovery_told::words(&volume, &report)));
        }
        News::Warning(text) => notices.push(Notice::Warning(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_volume_missed_because_of_holds_is_a_failure_that_names_them() {
        let failure = |missed, was_held| {
            let missed = Amount::new(missed, 0);
            failures_of(&VolumeReport { path: "/s".into(), missed, was_held, ..VolumeReport::default() })
        };
        assert_eq!(failure(0, true), [""; 0]);
        assert_eq!(failure(2000, false), ["the store in /s missed 2,000 packets"]);
        let held = "the store in /s missed 2,000 packets; for a time holds left it no room";
        assert_eq!(failure(2000, true), [held]);
    }

    #[test]
    fn a_volume_that_deleted_all_that_the_run_stored_for_lack_of_room_is_a_failure() {
        let report = |stored, deleted, crowded_out| VolumeReport {
            stored: Amount::new(stored, 0),
            deleted_own: Amount::new(deleted, 0),
            crowded_out,
            ..VolumeReport::default()
        };
        let all = failures_of(&report(17_829, 17_829, true));
        assert!(all.len() == 1 && all[0].contains("has deleted all 17,829 packets"), "{all:?}");
        for fine in [report(17_829, 17_828, true), report(17_829, 17_829, false), report(0, 0, true)] {
            assert_eq!(failures_of(&fine), [""; 0], "{fine:?}");
        }
    }
}
