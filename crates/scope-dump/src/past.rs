//! What the stores of a run have of the past, for its dumps: the run's own packets that the ring has recycled, and
//! those of earlier runs.
//!
//! ```text
//! question: numbers of this run's lanes | times before this run
//!    listing ─► segments with such numbers ─► StoreTimeline ─► Own:     what the ring lacks, by numbers
//!            ─► segments of other runs     ─► StoreTimeline ─► Earlier: by time, up to the run's begin
//! ```
//! Lanes and interfaces of earlier runs get numbers behind those of the run, the same in all its dumps. An interface
//! that is described as one that is known is that one.

mod earlier;
mod own;
mod part;

use crate::numbers::Numbers;
use crate::sieve::StoreSift;
pub(crate) use own::Seam;
use scope_filter::Filter;
use scope_folder::Folder;
use scope_packet::{Clock, GapReason, LinkType, SegmentId, TimestampSource};
use scope_ring::{Candidate, InterfaceEntry, Interfaces, KeyTest, Ring, Timeline};
use scope_store::fetch::Fetch;
use scope_store::head::HeadInterface;
use scope_store::listing::{self, Listed, Wanted};
use scope_store::spill::SpillFile;
use scope_store::timeline::{Means, Span, StoreInterfaces};
use scope_store::volume::Store;
use scope_store::{Listing, Sift, StoreTimeline};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Dumps that read stores at once; others wait for them. Each holds some segments in memory.
const READERS_MAX: usize = 2;
/// Memory for what a dump reads of stores, bytes.
const MEMORY_BYTES: usize = 128 << 20;
/// Numbers of interfaces that only earlier runs had begin here.
const INTERFACES_FROM: u32 = 1 << 24;
/// A listing that lacks something is made again: a segment may have moved to the next file meanwhile.
const LISTINGS_MIN: u32 = 2;
/// So long after the one before it.
const LIST_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The stores that a run writes, as its dumps read them.
pub struct Past {
    ring: Arc<Ring>,
    volumes: Vec<Arc<Folder>>,
    patience: Duration,
    clock: Arc<dyn Clock>,
    /// The latest time that earlier runs have, ns: nobody but this run writes its volumes. `i64::MAX`: not known yet, or
    /// something can't be read.
    earlier_until_ns: AtomicI64,
    table: Mutex<Table>,
    reading: Mutex<usize>,
    read: Condvar,
}

/// Lanes and interfaces beside those of the ring.
#[derive(Default)]
struct Table {
    lanes: Vec<(LaneKey, LinkType)>,
    interfaces: Vec<InterfaceEntry>,
    /// By run, link type, and the run's number.
    numbers: BTreeMap<([u8; 16], LinkType, u32), u32>,
}

/// A lane that isn't one of the ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneKey {
    /// Of the run itself, packets without exact numbers.
    Inexact(u32),
    Earlier([u8; 16], u32),
}

/// How much there may be of an answer, without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Packets of the segments that touch the span.
    pub packets: u64,
    /// Bytes of their blocks.
    pub bytes: u64,
}

/// On which terms the stores are read.
#[derive(Clone)]
pub(crate) struct Terms {
    /// Nothing behind this is needed, ns. A dump's window may grow.
    pub to_ns: i64,
    /// Threads that read.
    pub threads: usize,
    /// Memory for what is read, bytes.
    pub memory_bytes: usize,
    /// Packets of earlier runs belong by their times alone, also where they were stamped later than this run began.
    pub by_time: bool,
    /// Evaluates the question's filter where the stores are read. `None`: whoever asks does that himself.
    pub sift: Option<Arc<StoreSift>>,
    /// Set: nothing more is read.
    pub stop: Arc<AtomicBool>,
}

impl Default for Terms {
    /// Those of a dump.
    fn default() -> Terms {
        Terms {
            to_ns: i64::MAX,
            threads: 1,
            memory_bytes: MEMORY_BYTES,
            by_time: false,
            sift: None,
            stop: Arc::default(),
        }
    }
}

/// What a dump asks.
pub(crate) struct Question<'a> {
    /// On which terms.
    pub terms: &'a Terms,
    /// Its window begins here, ns.
    pub from_ns: i64,
    /// Numbers that the ring lacks, by lane.
    pub numbers: &'a [Numbers],
    /// Where the ring begins in each lane, so that a segment without exact numbers can be cut there. `None`: no such
    /// segment is taken; of a lane: none that has to be cut.
    pub seams: Option<Vec<Option<Seam>>>,
    /// This run began here, ns: what earlier runs have up to there is asked for, too.
    pub earlier_before_ns: Option<i64>,
    /// What the dump keeps.
    pub filter: &'a Filter,
    /// Whether keys may exclude packets: not where one may be among them that belongs to the dump whatever its key.
    pub by_keys: bool,
}

/// What the stores say.
#[derive(Default)]
pub(crate) struct Answer<'a> {
    pub parts: Vec<Box<dyn Part + 'a>>,
    /// Numbers of lanes that are in no segment, and why.
    pub lacking: Vec<(u32, Range<u64>, GapReason)>,
    /// Numbers of which at most so many packets were left out by a filter of the store.
    pub left_out: Vec<(u32, Range<u64>, u64)>,
}

/// Packets of stores: a timeline, all of which is settled.
pub(crate) trait Part: Timeline {
    /// What couldn't be read by now, in words.
    fn unread(&self) -> Vec<String>;
}

/// What answers for packets that the ring lacks: [`Past`], and in tests a model.
pub(crate) trait Elsewhere {
    /// Waits until fewer dumps than may read do so.
    fn permit(&self) -> Option<Permit<'_>>;

    /// Looks at what is there. Numbers that have no answer are lacking.
    fn ask(&self, question: &Question<'_>) -> Answer<'_>;

    /// Link type of a lane's packets; `None`: there is no such lane yet.
    fn link_type(&self, lane: u32) -> Option<LinkType>;

    /// Whether earlier runs may have packets from this time on, ns.
    fn may_have_earlier(&self, from_ns: i64) -> bool;
}

/// One of at most [`READERS_MAX`].
pub(crate) struct Permit<'a>(&'a Past);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.reading.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.read.notify_one();
    }
}

/// Packets whose keys a dump's filter may match; the filter itself is evaluated by the dump, or by `sift`.
struct Keyed {
    filter: Filter,
    by_keys: bool,
    sift: Option<Arc<StoreSift>>,
}

impl Keyed {
    fn of(question: &Question<'_>) -> Keyed {
        let (filter, by_keys) = (question.filter.clone(), question.by_keys);
        Keyed { filter, by_keys, sift: question.terms.sift.clone() }
    }
}

impl Sift for Keyed {
    fn keys(&self, link_type: LinkType) -> KeyTest {
        match self.by_keys {
            true => crate::sieve::keys(&self.filter, link_type),
            false => KeyTest::all(),
        }
    }

    fn select(&self, segment: SegmentId, link_type: LinkType, candidates: &[Candidate<'_>]) -> u64 {
        self.sift.as_ref().map_or(u64::MAX, |sift| sift.select(segment, link_type, candidates))
    }

    fn is_everything(&self) -> bool {
        self.sift.as_ref().is_none_or(|sift| sift.is_everything())
    }
}

/// The volumes, listed.
type Listings = Vec<(Store, Listing)>;

impl Past {
    /// Of the run with this ring, in the folders of its volumes. What these have given back to the ring is on their disk
    /// after `patience` at most.
    pub fn new(
        ring: &Arc<Ring>,
        volumes: Vec<Arc<Folder>>,
        patience: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Past {
        Past {
            ring: ring.clone(),
            volumes,
            patience,
            clock: clock.clone(),
            earlier_until_ns: AtomicI64::new(i64::MAX),
            table: Mutex::default(),
            reading: Mutex::new(0),
            read: Condvar::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the volumes have of this run, and of earlier ones: all of it, or what a span needs.
    fn list(&self, question: &Question<'_>, span_ns: Option<(i64, i64)>) -> (Listings, Listings) {
        let run = self.ring.run_id();
        let begin_of_run = scope_store::name::begin_of_run(&run);
        let is_own = |file: &Listed| match &file.contents {
            Ok(contents) => contents.run_id == run,
            Err(_) => file.name.run() == begin_of_run,
        };
        let (mut own, mut earlier) = (Vec::new(), Vec::new());
        let keyed = Keyed::of(question);
        let keys = |link_type| keyed.keys(link_type);
        for folder in &self.volumes {
            // A volume that is gone has nothing: its numbers are lacking.
            let open = || Store::of(folder.again().ok()?).ok();
            let (Some(store), Some(other)) = (open(), open()) else { continue };
            let wanted = Wanted { keys: &keys, span_ns, threads: question.terms.threads };
            let Ok((listings, _)) = listing::list_for(&[&store], &wanted) else { continue };
            let Some(mut listing) = listings.into_iter().next() else { continue };
            let (of_run, others) = std::mem::take(&mut listing.files).into_iter().partition(is_own);
            let (passed_of_run, passed) =
                std::mem::take(&mut listing.passed).into_iter().partition(|passed| passed.run_id == run);
            let (heads_of_run, heads) =
                std::mem::take(&mut listing.heads).into_iter().partition(|head| head.run_id == run);
            let of_run = Listing {
                volume: listing.volume,
                is_written: listing.is_written,
                files: of_run,
                passed: passed_of_run,
                heads: heads_of_run,
                foreign: Default::default(),
                unread: Vec::new(),
            };
            own.push((store, of_run));
            earlier.push((other, Listing { files: others, passed, heads, ..listing }));
        }
        (own, earlier)
    }

    /// How much the volumes have of a span, of this run before these packets of each lane.
    pub(crate) fn estimate(&self, span: Span, before: &[u64]) -> Estimate {
        let run = self.ring.run_id();
        let (mut estimate, mut known) = (Estimate::default(), HashSet::new());
        let stores = self.volumes.iter().filter_map(|folder| Store::of(folder.again().ok()?).ok());
        for store in stores {
            let wanted =
                Wanted { keys: &|_| KeyTest::all(), span_ns: Some((span.from_ns, span.to_ns)), threads: 1 };
            let Ok((listings, _)) = listing::list_for(&[&store], &wanted) else { continue };
            let files = listings.into_iter().flat_map(|listing| listing.files);
            for foot in files.filter_map(|file| file.contents.ok()).flat_map(|contents| contents.segments) {
                let foot = foot.foot;
                let is_of_ring = foot.run_id == run
                    && before.get(foot.lane as usize).is_some_and(|first| foot.first_packet >= *first);
                let touches = foot.min_ns <= span.to_ns && foot.max_ns >= span.from_ns;
                if touches && !is_of_ring && known.insert(foot.id()) {
                    estimate.packets += u64::from(foot.packets);
                    estimate.bytes += u64::from(foot.block_bytes);
                }
            }
        }
        estimate
    }

    /// Whether packets of the run with these numbers, all of them recycled, may belong to the window.
    fn concern(&self, question: &Question<'_>, lane: u32, span: &Range<u64>) -> bool {
        let window = (question.from_ns, question.terms.to_ns);
        !span.is_empty() && self.ring.lost(lane, std::slice::from_ref(span), window)[0].packets_max > 0
    }

    /// Whether a file of the run that was passed over stands for numbers of which the ring doesn't know that none belongs
    /// to the window.
    fn passed_concern(&self, question: &Question<'_>, own: &Listings) -> bool {
        let passed = own.iter().flat_map(|(_, listing)| &listing.passed);
        passed.flat_map(|passed| &passed.lanes).any(|part| {
            let asked = question.numbers.get(part.lane as usize).map_or(&[][..], Numbers::spans);
            let inside = |span: &Range<u64>| span.start.max(part.first)..span.end.min(part.end);
            asked.iter().any(|span| self.concern(question, part.lane, &inside(span)))
        })
    }

    /// Why numbers are lacking that may belong to the window.
    fn lacking(&self, question: &Question<'_>, answer: &Answer<'_>) -> impl Iterator<Item = GapReason> {
        let lacking = answer.lacking.iter().filter(|(lane, span, _)| self.concern(question, *lane, span));
        lacking.map(|(_, _, reason)| *reason)
    }

    /// What the stores have of the run, and where earlier runs are: of all files, or of those that a span needs. `None`:
    /// all may say more. What is lacking, and why, is told by what stands around it; where nothing of the window is
    /// lacking the files of the window say the same as all.
    fn looked(&self, question: &Question<'_>, span_ns: Option<(i64, i64)>) -> Option<(Answer<'_>, Listings)> {
        let (own, earlier) = self.list(question, span_ns);
        if span_ns.is_some() && self.passed_concern(question, &own) {
            return None;
        }
        let answer = self.own(question, own);
        let lacks = span_ns.is_some() && self.lacking(question, &answer).next().is_some();
        (!lacks).then_some((answer, earlier))
    }

    /// What reading the stores may use: no io_uring, since that could not be made any more. What has no room in memory
    /// goes into a file without a name on a volume.
    fn means(&self, terms: &Terms) -> Means {
        let volume = self.volumes.first().cloned();
        let make = move || volume.ok_or(io::ErrorKind::NotFound)?.unnamed();
        Means {
            fetches: (0..terms.threads).map(|_| Fetch::plain()).collect(),
            memory_bytes: terms.memory_bytes,
            spill: SpillFile::Made(Box::new(make)),
            no_room: ("store", "free some space there, or let windows begin later (--before)"),
            inexact_apart: true,
            ..Means::default()
        }
    }

    /// The lane that stands for one that isn't of the ring.
    fn lane(&self, key: LaneKey, link_type: LinkType) -> u32 {
        let mut table = self.table();
        let at = table.lanes.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            table.lanes.push((key, link_type));
            table.lanes.len() - 1
        });
        self.ring.lanes_max() + at as u32
    }

    /// Gives the interfaces of other runs their numbers.
    fn describe(&self, interfaces: &StoreInterfaces, link_types: impl Iterator<Item = LinkType>) {
        let known = self.ring.interfaces_from(0);
        let mut table = self.table();
        for link_type in link_types {
            for ((run, number), interface) in interfaces.of_type(link_type) {
                if run == self.ring.run_id() || table.numbers.contains_key(&(run, link_type, number)) {
                    continue;
                }
                let entry = entry_of(interface, link_type);
                let is_it = |other: &InterfaceEntry| {
                    (other.link_type, &other.name, &other.description)
                        == (link_type, &entry.name, &entry.description)
                };
                let of_ring = known.iter().position(is_it).map(|at| at as u32);
                let earlier =
                    || table.interfaces.iter().position(is_it).map(|at| INTERFACES_FROM + at as u32);
                let here = of_ring.or_else(earlier).unwrap_or_else(|| {
                    table.interfaces.push(entry.clone());
                    INTERFACES_FROM + table.interfaces.len() as u32 - 1
                });
                table.numbers.insert((run, link_type, number), here);
            }
        }
    }
}

impl Elsewhere for Past {
    fn may_have_earlier(&self, from_ns: i64) -> bool {
        self.earlier_until_ns.load(Ordering::Relaxed) >= from_ns
    }

    fn permit(&self) -> Option<Permit<'_>> {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.read.wait_while(reading, |reading| *reading >= READERS_MAX);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Some(Permit(self))
    }

    fn ask(&self, question: &Question<'_>) -> Answer<'_> {
        let until = self.clock.monotonic() + self.patience;
        let (mut listings, mut span_ns) = (0, Some((question.from_ns, question.terms.to_ns)));
        loop {
            let Some((mut answer, earlier)) = self.looked(question, span_ns) else {
                span_ns = None;
                continue;
            };
            listings += 1;
            let may_come = self.lacking(question, &answer).any(|reason| reason == GapReason::NotStored);
            if may_come && (listings < LISTINGS_MIN || self.clock.monotonic() < until) {
                self.clock.wait(LIST_AGAIN_AFTER, &std::thread::sleep);
                continue;
            }
            if let Some(begin_ns) = question.earlier_before_ns {
                let part = self.earlier(question, begin_ns, earlier);
                answer.parts.extend(part.map(|part| Box::new(part) as Box<dyn Part>));
            }
            return answer;
        }
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        match lane.checked_sub(self.ring.lanes_max()) {
            None => (lane < self.ring.lanes()).then(|| self.ring.lane_info(lane).link_type),
            Some(at) => self.table().lanes.get(at as usize).map(|(_, link_type)| *link_type),
        }
    }
}

/// An interface of an earlier run as this run would have registered it, as far as its description tells.
fn entry_of(interface: &HeadInterface, link_type: LinkType) -> InterfaceEntry {
    let said = |key: &str| interface.description.split("; ").find_map(|part| part.strip_prefix(key));
    let sources = [
        TimestampSource::Hardware,
        TimestampSource::Kernel,
        TimestampSource::File,
        TimestampSource::Generator,
    ];
    let timestamps =
        said("timestamps ").and_then(|name| sources.into_iter().find(|known| known.name() == name));
    InterfaceEntry {
        lane: said("lane ").and_then(|lane| lane.parse().ok()).unwrap_or(0),
        link_type,
        name: interface.name.clone(),
        snap_len: said("snap length ").and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
        timestamps: timestamps.unwrap_or(TimestampSource::File),
        description: interface.description.clone(),
    }
}

/// The run's own, and those of earlier runs whose packets dumps have met.
impl Interfaces for Past {
    fn interface(&self, number: u32) -> Option<InterfaceEntry> {
        match number.checked_sub(INTERFACES_FROM) {
            None => self.ring.interface(number),
            Some(at) => self.table().interfaces.get(at as usize).cloned(),
        }
    }

    fn interfaces_from(&self, from: u32) -> Vec<InterfaceEntry> {
        self.ring.interfaces_from(from)
    }

    fn of_type(&self, link_type: LinkType) -> Vec<(u32, InterfaceEntry)> {
        let table = self.table();
        let earlier = (INTERFACES_FROM..).zip(table.interfaces.iter().cloned());
        let earlier = earlier.filter(|(_, entry)| entry.link_type == link_type);
        self.ring.of_type(link_type).into_iter().chain(earlier).collect()
    }

    fn number_of(&self, lane: u32, number: u32) -> u32 {
        let Some(at) = lane.checked_sub(self.ring.lanes_max()) else { return number };
        let table = self.table();
        match table.lanes.get(at as usize) {
            Some((LaneKey::Earlier(run, _), link_type)) => {
                table.numbers.get(&(*run, *link_type, number)).copied().unwrap_or(u32::MAX)
            }
            _ => number,
        }
    }
}

/// What couldn't be read of a store, in words, from a place in its list on.
fn unread(timeline: &StoreTimeline, from: usize) -> Vec<String> {
    let damages = timeline.damages().get(from..).unwrap_or_default();
    damages.iter().map(|damaged| damaged.fault.to_string()).collect()
}

#[cfg(test)]
mod tests;
