//! What a store has, looked at cheaply: names, heads, indexes; segments only where a file isn't closed.
//!
//! ```text
//! folders of days ─► names of the store ─► head (whose file) ─► index: facts of each segment
//!                           │                              no index: feet, and open slots as far as flushed
//!                           └─ of a span: the index's card: outside of it? passed over, but for neighbours
//! ```
//! Nothing is changed and no lock is taken. A file that can't be read is listed with the reason. The list is that
//! of one moment: files of a live run grow and change their names behind it.
//!
//! What is passed over changes nothing in what is missing in the span: see `neighbours`. Of a run with a file that
//! can't be read whole none is passed over, since nobody knows what that file had. Damage in a file that is
//! passed over isn't looked for.

use crate::checks::Hash;
use crate::fetch::read_what_can_be;
use crate::head::{Head, HeadInterface};
use crate::index::{self, Card, IndexError, LanePart, lane_parts};
use crate::name::{FileName, begin_of_run, is_day};
use crate::neighbours::{self, Known, touches};
use crate::salvage::{self, Proof};
pub use crate::stored::Keys;
use crate::stored::{self, HeadDamage, State, StoredError, StoredFile};
use crate::volume::{Foreign, Store, VolumeId, is_foreign};
use scope_folder::Folder;
use scope_folder::folder::EntryKind;
use scope_packet::LinkType;
use scope_packet::segment::Foot;
use scope_ring::KeyTest;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Files whose cards a thread reads one behind the other.
const CARDS_AT_ONCE: usize = 32;
/// A slot of a file that grows is looked at again so often, where a write may have been under way.
const LOOKS_MAX: u32 = 5;

/// What a store has.
#[derive(Debug)]
pub struct Listing {
    /// Whose it is.
    pub volume: VolumeId,
    /// Whether a run writes it now.
    pub is_written: bool,
    /// Its files that were looked into, by name: all, or those that a span needs.
    pub files: Vec<Listed>,
    /// The others, by name.
    pub passed: Vec<Passed>,
    /// Of each run whose files were all passed over, what a head of it says.
    pub heads: Vec<PassedRun>,
    /// What else stands there.
    pub foreign: Foreign,
    /// Folders of days that can't be read, below the store's folder.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// One file.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: FileName,
    /// Its length.
    pub bytes: u64,
    /// How it stands.
    pub standing: Standing,
    /// What it holds, or why that can't be read.
    pub contents: Result<Contents, StoredError>,
}

/// A closed file that was passed over: it has nothing in the span, and says nothing of what is missing there.
#[derive(Debug)]
pub struct Passed {
    /// Its name.
    pub name: FileName,
    /// Its length.
    pub bytes: u64,
    /// The run that wrote it.
    pub run_id: [u8; 16],
    /// Smallest and largest time of its packets, ns; `None`: it has none.
    pub span_ns: Option<(i64, i64)>,
    /// Smallest and largest of the times in its feet, ns.
    pub reach_ns: (i64, i64),
    /// What it has of each lane.
    pub lanes: Box<[LanePart]>,
}

/// What the head of a file says that holds for all of its run and volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedRun {
    /// The run.
    pub run_id: [u8; 16],
    /// All its volumes; empty: the head doesn't say them.
    pub volumes: Vec<[u8; 16]>,
    /// The filter that its packets passed on their way into the volume; empty: none.
    pub filter: String,
    /// Longer packets were truncated to so many bytes on that way; 0: none.
    pub snap: u32,
}

/// What is asked of stores.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Keys that are searched for.
    pub keys: Keys<'a>,
    /// First and last time, ns, of what is asked for; `None`: every file is looked into.
    pub span_ns: Option<(i64, i64)>,
    /// Threads that read at most.
    pub threads: usize,
}

/// What looking at stores came to, beside what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingWork {
    /// Files of the stores.
    pub files: u64,
    /// Those passed over, since they have nothing to do with the span.
    pub passed: u64,
    /// Indexes that were read.
    pub indexes: u64,
    /// Their bytes.
    pub index_bytes: u64,
    /// What reading names took, ns.
    pub names_ns: u64,
    /// What reading cards took, ns.
    pub cards_ns: u64,
    /// What reading heads and indexes took, ns.
    pub indexes_ns: u64,
}

/// How a file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is whole and never changes.
    Closed,
    /// A run writes it.
    Growing,
    /// Its run died: the next run that writes this store recovers it.
    Left,
}

impl Standing {
    /// The word for people and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Standing::Closed => "closed",
            Standing::Growing => "growing",
            Standing::Left => "to be recovered",
        }
    }
}

/// What a file holds.
#[derive(Debug)]
pub struct Contents {
    /// The run that wrote it.
    pub run_id: [u8; 16],
    /// The volume that it was written into.
    pub volume: [u8; 16],
    /// All volumes of the run; empty: the head doesn't say them.
    pub volumes: Vec<[u8; 16]>,
    /// Number of the file in its run and volume.
    pub number: u32,
    /// Link type of its packets.
    pub link_type: LinkType,
    /// The store filter that its packets passed; empty: none.
    pub filter: String,
    /// Bytes of a packet that it keeps at most; 0: as many as the ring.
    pub snap: u32,
    /// Its interfaces, in the order of their numbers.
    pub interfaces: Vec<HeadInterface>,
    /// Its segments, in the order of the file.
    pub segments: Vec<SegmentFacts>,
    /// What is wrong with its head, though its segments are listed.
    pub head: Option<HeadDamage>,
    /// Bytes of its index that were read, where it could be.
    pub index_bytes: u64,
    /// What is wrong with its index, if that can't be read though the file is closed.
    pub index: Option<IndexError>,
    /// Slots with bytes in them that prove nothing.
    pub unread: u64,
}

/// What is known of a segment before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Its size, bytes.
    pub bytes: usize,
    /// It is open: as many packets as its foot says are proven, and more may be by now.
    pub is_open: bool,
    /// Its foot; of an open one, as if it ended with what is proven.
    pub foot: Foot,
    /// Its hash; [`Hash::NONE`] of an open one, and of one from before there were any.
    pub hash: Hash,
    /// Whether a packet that is searched for may be in it.
    pub may_match: bool,
}

impl Listing {
    /// When the files of the store begin by their names, ns, rising.
    pub fn begins_ns(&self) -> Vec<i64> {
        let names = self.files.iter().map(|file| &file.name).chain(self.passed.iter().map(|file| &file.name));
        let mut begins_ns: Vec<i64> = names.map(FileName::first_ns).collect();
        begins_ns.sort_unstable();
        begins_ns
    }
}

impl Contents {
    /// Packets.
    pub fn packets(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.foot.packets)).sum()
    }

    /// Whether its head says all that a head says.
    fn knows_head(&self) -> bool {
        self.head.as_ref().is_none_or(|damage| damage.mended_at.is_some())
    }

    /// Packets of its lanes that the store's filter left out.
    pub fn left_out(&self) -> u64 {
        self.segments.iter().map(|segment| segment.foot.left_out.packets).sum()
    }

    /// Smallest and largest time of its packets, ns; `None`: it has none.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let with_packets = self.segments.iter().map(|segment| &segment.foot).filter(|foot| foot.packets > 0);
        let spans = with_packets.map(|foot| (foot.min_ns, foot.max_ns));
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Smallest and largest time of what its segments stand for, also of what was left out of them, ns; `None`: it has
    /// no segment.
    pub fn reach_ns(&self) -> Option<(i64, i64)> {
        let reaches = self.segments.iter().map(|segment| segment.foot.reach_ns());
        reaches.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

/// Looks at all files of a store.
///
/// # Errors
/// The system's: the store's folder can't be listed.
pub fn list(store: &Store) -> io::Result<Listing> {
    let wanted = Wanted { keys: &|_| KeyTest::all(), span_ns: None, threads: 1 };
    let (listings, _) = list_for(&[store], &wanted).map_err(|(_, error)| error)?;
    listings.into_iter().next().ok_or_else(|| io::Error::other("no listing"))
}

/// The link types that the names of a store's files tell, without a look into them.
///
/// # Errors
/// As [`list`]. A day's folder that can't be read tells none.
pub fn link_types(store: &Store) -> io::Result<BTreeSet<LinkType>> {
    let mut types = BTreeSet::new();
    for entry in store.folder().entries()? {
        let day = Path::new(&entry.name);
        if entry.kind == EntryKind::Folder && entry.name.to_str().is_some_and(is_day) {
            let names = store.folder().below(day.as_os_str()).and_then(|folder| folder.entries());
            let read = |name| FileName::read(&day.join(name)).and_then(|name| name.link_type());
            types.extend(names.into_iter().flatten().filter_map(|entry| read(entry.name)));
        }
    }
    Ok(types)
}

/// Looks at the files of stores that are asked together, as far as the span needs them, and says of each segment
/// whether it may have what is searched for. Together, since a run's lanes may lie in several of them.
///
/// # Errors
/// As [`list`], with the store's number.
pub fn list_for(
    stores: &[&Store],
    wanted: &Wanted<'_>,
) -> Result<(Vec<Listing>, ListingWork), (usize, io::Error)> {
    let mut work = ListingWork::default();
    let begun = Instant::now();
    let (mut listings, mut named) = (Vec::new(), Vec::new());
    for (number, store) in stores.iter().enumerate() {
        listings.push(names(number, store, &mut named).map_err(|error| (number, error))?);
    }
    work.files = named.len() as u64;
    work.names_ns = begun.elapsed().as_nanos() as u64;
    let begun = Instant::now();
    // What keys a link type has is worked out once, not for each file.
    let types: BTreeSet<LinkType> = named.iter().filter_map(|named| named.name.link_type()).collect();
    let known: BTreeMap<LinkType, KeyTest> =
        types.into_iter().map(|link_type| (link_type, (wanted.keys)(link_type))).collect();
    let keys = |link_type| known.get(&link_type).cloned().unwrap_or_else(|| (wanted.keys)(link_type));
    let wanted = &Wanted { keys: &keys, ..*wanted };
    let mut look = Look { stores, wanted, named, found: Vec::new() };
    look.read_cards();
    work.cards_ns = begun.elapsed().as_nanos() as u64;
    let begun = Instant::now();
    look.read_needed();
    let heads = look.read_heads();
    work.indexes_ns = begun.elapsed().as_nanos() as u64;
    for (store, head) in heads {
        listings[store].heads.push(head);
    }
    for (Named { store, name, bytes }, found) in look.named.into_iter().zip(look.found) {
        let listing = &mut listings[store];
        match found {
            Found::Unseen | Found::Gone => work.files -= 1,
            Found::Foreign => listing.foreign.add(&name.path()),
            Found::Passed(Card { totals, run_id, reach_ns, lanes }) => {
                work.passed += 1;
                let reach_ns = reach_ns.unwrap_or((i64::MAX, i64::MIN)); // none is passed over without one
                let lanes = lanes.unwrap_or_default().into_boxed_slice();
                listing.passed.push(Passed { name, bytes, run_id, span_ns: totals.span_ns, reach_ns, lanes });
            }
            Found::Read(contents) => {
                if let Ok(contents) = &*contents {
                    work.indexes += u64::from(contents.index_bytes > 0);
                    work.index_bytes += contents.index_bytes;
                }
                let standing = if name.is_growing() { Standing::Left } else { Standing::Closed };
                listing.files.push(Listed { name, bytes, standing, contents: *contents });
            }
        }
    }
    for listing in &mut listings {
        find_growing(listing);
    }
    Ok((listings, work))
}

/// Who writes is the run that began last: the growing files of all others were left.
fn find_growing(listing: &mut Listing) {
    let growing = listing.files.iter().filter(|file| file.name.is_growing());
    let newest = growing.max_by_key(|file| file.name.first_ns()).filter(|_| listing.is_written);
    let live = newest.and_then(|file| file.contents.as_ref().ok()).map(|file| file.run_id);
    for file in listing.files.iter_mut().filter(|file| file.standing == Standing::Left) {
        let run = file.contents.as_ref().ok().map(|contents| contents.run_id);
        if run.is_some() && run == live {
            file.standing = Standing::Growing;
        }
    }
}

/// A file of one of the stores, by its name.
struct Named {
    store: usize,
    name: FileName,
    bytes: u64,
}

/// What is known of it.
enum Found {
    /// Nothing yet.
    Unseen,
    /// It was deleted meanwhile.
    Gone,
    /// It is none of the store.
    Foreign,
    /// Only its card.
    Passed(Card),
    /// What it has, or why that can't be read.
    Read(Box<Result<Contents, StoredError>>),
}

/// The names of a store, sorted, behind those of others; what else stands there is in the listing.
fn names(number: usize, store: &Store, named: &mut Vec<Named>) -> io::Result<Listing> {
    let mut listing = Listing {
        volume: store.id(),
        is_written: store.is_written()?,
        files: Vec::new(),
        passed: Vec::new(),
        heads: Vec::new(),
        foreign: Foreign::default(),
        unread: Vec::new(),
    };
    let from = named.len();
    for entry in store.folder().entries()? {
        let day = Path::new(&entry.name);
        match entry.kind {
            EntryKind::Folder if entry.name.to_str().is_some_and(is_day) => {
                if let Err(error) = names_of_day(number, store.folder(), day, &mut listing, named) {
                    listing.unread.push((day.to_path_buf(), error));
                }
            }
            EntryKind::File if !is_foreign(day) => {}
            _ => listing.foreign.add(day),
        }
    }
    named[from..].sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listing)
}

fn names_of_day(
    store: usize,
    volume: &Folder,
    day: &Path,
    listing: &mut Listing,
    named: &mut Vec<Named>,
) -> io::Result<()> {
    let folder = match volume.below(day.as_os_str()) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
        folder => folder?,
    };
    for entry in folder.entries()? {
        let path = day.join(&entry.name);
        match FileName::read(&path).filter(|_| entry.kind == EntryKind::File) {
            Some(name) => named.push(Named { store, name, bytes: entry.len }),
            None => listing.foreign.add(&path),
        }
    }
    Ok(())
}

/// What a thread keeps from file to file.
#[derive(Default)]
struct Hands {
    /// For blocks of indexes.
    buffer: Vec<u8>,
    /// The day's folder that was opened last, of this store.
    day: Option<(usize, PathBuf, Folder)>,
}

impl Hands {
    fn open(&mut self, stores: &[&Store], named: &Named) -> io::Result<File> {
        let day = named.name.day();
        if self.day.as_ref().is_none_or(|(store, open, _)| (*store, open) != (named.store, &day)) {
            let folder = stores[named.store].folder().below(day.as_os_str())?;
            self.day = Some((named.store, day, folder));
        }
        match &self.day {
            Some((_, _, folder)) => open_in(folder, &named.name),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Stores that are being looked at.
struct Look<'a> {
    stores: &'a [&'a Store],
    wanted: &'a Wanted<'a>,
    named: Vec<Named>,
    /// Of each of the named files.
    found: Vec<Found>,
}

impl Look<'_> {
    /// Passes closed files over that have nothing in the span, by their cards and by their names.
    fn read_cards(&mut self) {
        let count = self.named.len();
        let Some(span_ns) = self.wanted.span_ns else {
            self.found.resize_with(count, || Found::Unseen);
            return;
        };
        let untils = self.untils_ns();
        self.found = each(count, CARDS_AT_ONCE, self.wanted.threads, |file, hands| {
            let named = &self.named[file];
            // Where it can't be read, or is another one than its name says, what is said of it lies here.
            if named.name.is_growing() || touches((named.name.first_ns(), untils[file]), span_ns) {
                return Found::Unseen;
            }
            let opened = hands.open(self.stores, named);
            let card = opened.and_then(|file| {
                let len = file.metadata()?.len();
                index::read_card(len, |at, into: &mut [u8]| read_what_can_be(&file, at, into))
            });
            // An error is stated when the file is looked into.
            let passed = card.ok().flatten().filter(|card| {
                card.lanes.is_some()
                    && card.run_id.starts_with(&named.name.run())
                    && card.reach_ns.is_some_and(|reach_ns| !touches(reach_ns, span_ns))
            });
            passed.map_or(Found::Unseen, Found::Passed)
        });
    }

    /// Until when each file's packets may reach that isn't what it should be: the begin of the store's next one.
    fn untils_ns(&self) -> Vec<i64> {
        let (mut next, mut untils) = (None, vec![i64::MAX; self.named.len()]);
        for (file, named) in self.named.iter().enumerate().rev() {
            let own = (named.store, named.name.first_ns());
            // Of files that begin at once the last one's counts for all.
            let (begin, behind) = match next {
                Some((begin, behind)) if begin == own => (begin, behind),
                Some(((store, begin_ns), _)) if store == own.0 => (own, begin_ns - 1),
                _ => (own, i64::MAX),
            };
            untils[file] = behind;
            next = Some((begin, behind));
        }
        untils
    }

    /// Looks into all files that aren't passed over; of these, then, into those that say what is missing in the span, and
    /// those of runs that have a damaged file.
    fn read_needed(&mut self) {
        let unseen = |found: &Found| matches!(found, Found::Unseen);
        self.read((0..self.named.len()).filter(|&file| unseen(&self.found[file])).collect());
        let Some(span_ns) = self.wanted.span_ns else { return };
        let neighbours = self.neighbours(span_ns);
        self.read(neighbours.into_iter().filter(|&file| self.is_passed(file)).collect());
        self.read_damaged_runs();
    }

    /// Looks into all files of runs that have a damaged one.
    fn read_damaged_runs(&mut self) {
        loop {
            let all = 0..self.named.len();
            let damaged: BTreeSet<[u8; 4]> = all
                .clone()
                .filter(|&file| self.is_damaged(file))
                .map(|file| self.named[file].name.run())
                .collect();
            let of_damaged = |&file: &usize| damaged.contains(&self.named[file].name.run());
            let more: Vec<usize> = all.filter(|&file| self.is_passed(file)).filter(of_damaged).collect();
            if more.is_empty() {
                return;
            }
            self.read(more);
        }
    }

    fn is_passed(&self, file: usize) -> bool {
        matches!(self.found[file], Found::Passed(_))
    }

    fn is_damaged(&self, file: usize) -> bool {
        match &self.found[file] {
            Found::Read(contents) => {
                contents.as_ref().as_ref().map_or(true, |contents| contents.index.is_some())
            }
            _ => false,
        }
    }

    fn neighbours(&self, span_ns: (i64, i64)) -> BTreeSet<usize> {
        let read: BTreeMap<usize, Vec<LanePart>> = (0..self.named.len())
            .filter_map(|file| match &self.found[file] {
                Found::Read(contents) => Some((
                    file,
                    lane_parts(contents.as_ref().as_ref().ok()?.segments.iter().map(|facts| &facts.foot)),
                )),
                _ => None,
            })
            .collect();
        let known = (0..self.named.len()).filter_map(|file| match &self.found[file] {
            Found::Passed(card) => {
                let lanes = card.lanes.as_deref()?;
                Some((file, Known { run_id: card.run_id, reach_ns: card.reach_ns?, lanes }))
            }
            Found::Read(contents) => {
                let contents = contents.as_ref().as_ref().ok()?;
                let (run_id, reach_ns) = (contents.run_id, contents.reach_ns()?);
                Some((file, Known { run_id, reach_ns, lanes: read.get(&file)? }))
            }
            _ => None,
        });
        neighbours::of_span(known, span_ns)
    }

    /// Looks into these files.
    fn read(&mut self, files: Vec<usize>) {
        let read = each(files.len(), 1, self.wanted.threads, |at, hands| self.look_into(files[at], hands));
        for (file, found) in files.into_iter().zip(read) {
            self.found[file] = found;
        }
    }

    fn look_into(&self, file: usize, hands: &mut Hands) -> Found {
        let named @ Named { store, name, .. } = &self.named[file];
        let opened = match hands.open(self.stores, named) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Found::Gone,
            opened => opened,
        };
        let volume = self.stores[*store].id();
        let read = opened
            .map_err(StoredError::from)
            .and_then(|file| contents(file, name, volume, self.wanted.keys, &mut hands.buffer));
        match read {
            Ok(read) if !name.agrees(&read.run_id, read.link_type, read.number) => {
                match read.volume == [0; 16] {
                    true => Found::Foreign,
                    // Its packets may be those that seem to be missing.
                    false => Found::Read(Box::new(Err(StoredError::Misnamed))),
                }
            }
            read => Found::Read(Box::new(read)),
        }
    }

    /// Of each store's runs of which no head was read, what one says.
    fn read_heads(&mut self) -> Vec<(usize, PassedRun)> {
        let mut heads = Vec::new();
        loop {
            let files = self.without_head(&heads);
            let read = each(files.len(), CARDS_AT_ONCE, self.wanted.threads, |at, hands| {
                let named = &self.named[files[at]];
                let head = stored::head_of(&hands.open(self.stores, named).ok()?).ok()?;
                let Head { run_id, volumes, filter, snap, .. } = head;
                let run = PassedRun { run_id, volumes, filter, snap };
                Some((named.store, run))
            });
            let unread = read.iter().zip(files).filter(|(head, _)| head.is_none()).map(|(_, file)| file);
            let unread: Vec<usize> = unread.collect();
            heads.extend(read.into_iter().flatten());
            if unread.is_empty() {
                return heads;
            }
            self.read(unread);
            self.read_damaged_runs();
        }
    }

    /// One file that was passed over of each store's runs of which no head is known.
    fn without_head(&self, heads: &[(usize, PassedRun)]) -> Vec<usize> {
        let mut runs: BTreeMap<(usize, [u8; 4]), (Option<usize>, bool)> = BTreeMap::new();
        for (store, head) in heads {
            runs.insert((*store, begin_of_run(&head.run_id)), (None, true));
        }
        for (file, named) in self.named.iter().enumerate() {
            let (passed, is_known) = runs.entry((named.store, named.name.run())).or_default();
            match &self.found[file] {
                Found::Passed(_) => *passed = Some(file),
                Found::Read(contents) => {
                    *is_known |= contents.as_ref().as_ref().is_ok_and(Contents::knows_head)
                }
                _ => {}
            }
        }
        runs.into_values().filter(|(_, is_known)| !is_known).filter_map(|(passed, _)| passed).collect()
    }
}

/// Makes something of each number below `count`, by so many threads at most, which take `at_once` numbers each time.
/// Where no thread can be had this one does it all.
fn each<T: Send>(
    count: usize,
    at_once: usize,
    threads: usize,
    make: impl Fn(usize, &mut Hands) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || {
        let (mut hands, mut made) = (Hands::default(), Vec::new());
        loop {
            let from = next.fetch_add(at_once, Ordering::Relaxed);
            if from >= count {
                return made;
            }
            made.extend((from..count.min(from + at_once)).map(|number| (number, make(number, &mut hands))));
        }
    };
    let helpers = threads.min(count.div_ceil(at_once)).saturating_sub(1);
    let mut made = std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, take).ok();
        let started: Vec<_> = (0..helpers).map_while(start).collect();
        let mut made = take();
        for thread in started {
            match thread.join() {
                Ok(more) => made.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        made
    });
    made.sort_unstable_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, made)| made).collect()
}

/// Opens a file of the volume whose folder this is; one that grew also under the name that it has got.
pub(crate) fn open(volume: &Folder, name: &FileName) -> io::Result<File> {
    open_in(&volume.below(name.day().as_os_str())?, name)
}

fn open_in(day: &Folder, name: &FileName) -> io::Result<File> {
    let last = |path: PathBuf| path.file_name().map(OsStr::to_os_string).unwrap_or_default();
    let file = match day.reading(&last(name.path())) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound && name.is_growing() => {
            day.reading(&last(name.closed().path()))
        }
        opened => opened,
    }?;
    // What is needed is asked for: the kernel would read megabytes ahead of a page.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    Ok(file)
}

/// What an opened file of this name and volume has: where its head is damaged, these say whose it is.
fn contents(
    file: File,
    name: &FileName,
    volume: VolumeId,
    keys: Keys<'_>,
    buffer: &mut Vec<u8>,
) -> Result<Contents, StoredError> {
    let stored = StoredFile::open_for(file, keys, buffer)?;
    let bytes = stored.segment_bytes();
    let closed = stored.segments().iter();
    let mut segments: Vec<SegmentFacts> = closed
        .map(|facts| SegmentFacts {
            offset: facts.offset,
            bytes,
            is_open: false,
            foot: facts.foot,
            hash: facts.hash,
            may_match: facts.may_match,
        })
        .collect();
    let (mut unread, mut slot) = (0, Vec::new());
    for &offset in stored.unread() {
        match proven(|into| stored.read_slot(offset, into), &mut slot)? {
            Some(foot) => {
                let hash = Hash::NONE;
                segments.push(SegmentFacts { offset, bytes, is_open: true, foot, hash, may_match: true })
            }
            None => unread += u64::from(slot.iter().any(|&byte| byte != 0)),
        }
    }
    segments.retain(|segment| index::has_numbers(&segment.foot));
    segments.sort_by_key(|segment| segment.offset);
    let index = match stored.state() {
        State::Unclosed(cause) if !name.is_growing() => Some(cause),
        _ => None,
    };
    let head = stored.head();
    let (volume, number) = match stored.knows_head() {
        true => (head.volume, head.number),
        false => (volume.0, name.number()),
    };
    Ok(Contents {
        run_id: head.run_id,
        volume,
        volumes: head.volumes.clone(),
        number,
        link_type: head.link_type,
        filter: head.filter.clone(),
        snap: head.snap,
        interfaces: head.interfaces.clone(),
        segments,
        head: stored.head_damage().cloned(),
        index_bytes: stored.index_read_bytes(),
        index,
        unread,
    })
}

/// Reads a slot that isn't closed, and makes the segment that it proves of it; `None`: it proves nothing, also
/// not when it is looked at again.
pub(crate) fn proven(
    mut read: impl FnMut(&mut Vec<u8>) -> io::Result<()>,
    slot: &mut Vec<u8>,
) -> io::Result<Option<Foot>> {
    for _ in 0..LOOKS_MAX {
        read(slot)?;
        match salvage::look(slot).proof {
            Proof::Whole { foot, .. } => return Ok(Some(foot)),
            Proof::Beginning { foot, record } => {
                salvage::close(slot, &foot, record);
                return Ok(Some(foot));
            }
            Proof::Nothing if slot.iter().all(|&byte| byte == 0) => return Ok(None),
            Proof::Nothing => {}
        }
    }
    Ok(None)
}
