//! Stores that a command reads: which of them, which span of time, with which rights, and what stops it.

pub mod means;
pub mod turn;
pub mod window;

use crate::plan::faults::Faults;
use crate::speech::{Level, say};
use crate::words::{counted, size};
use jiff::tz::TimeZone;
use scope_answer::SpanWords;
use scope_events::now_ns;
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::moment::Here;
use scope_store::Listing;
use scope_store::listing::{self, Keys, ListingWork, Wanted};
use scope_store::timeline::{Span, Work};
use scope_store::unread::unread;
use scope_store::volume::{MARK, Store};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Indexes are read one after another by each thread, which waits for the disk meanwhile: so many go on for one thread
/// that reads packets.
const LISTERS_A_THREAD: usize = 4;

/// The span that is typed; what isn't given has no end there. Times without a zone are this system's, which is said.
pub fn span(words: &SpanWords<'_>, faults: &mut Faults<'_>) -> Span {
    // Also where no time is typed: an answer in words needs the zone when its files can't be read any more.
    let here = Here { now_ns: now_ns(), zone: TimeZone::system() };
    let mut found = Vec::new();
    let (span, is_local) = words.read(&here, &mut found);
    found.into_iter().for_each(|fault| faults.add(fault));
    if is_local && faults.is_empty() {
        let zone = here.zone_name();
        let words = format!("wirescope: times without a zone were taken in that of this system: {zone}");
        say(Level::Info, &words);
    }
    span
}

/// Opens the stores of these folders, each once.
pub fn stores(paths: &[PathBuf], faults: &mut Faults<'_>) -> Vec<(Store, PathBuf)> {
    let mut stores: Vec<(Store, PathBuf)> = Vec::new();
    for path in paths {
        match Store::look(path) {
            Ok(store) if stores.iter().any(|(known, _)| is_same(known, &store)) => {
                let fault = Fault::of("store").with_value(path.to_string_lossy());
                faults.add(fault.cause(format!("{} is given twice", path.display())).remedy("omit it once"));
            }
            Ok(store) => stores.push((store, path.clone())),
            Err(fault) => faults.add(fault),
        }
    }
    stores
}

/// Whether both are one folder. A copy has the same id, and its packets come once all the same.
fn is_same(one: &Store, other: &Store) -> bool {
    let place = |store: &Store| store.folder().path().metadata().map(|facts| (facts.dev(), facts.ino()));
    one.id() == other.id() && place(one).ok().zip(place(other).ok()).is_none_or(|(one, other)| one == other)
}

/// Refuses an output in one of the stores.
pub fn refuse_inside(folder: &Folder, write: &Path, stores: &[(Store, PathBuf)], faults: &mut Faults<'_>) {
    for (_, path) in stores.iter().filter(|(_, path)| is_inside(folder.path(), path)) {
        let cause = format!("the file would stand in the store {}", path.display());
        let fault = Fault::of("write").with_value(write.to_string_lossy()).cause(cause);
        faults.add(fault.remedy("choose another folder"));
    }
}

fn is_inside(folder: &Path, store: &Path) -> bool {
    let (folder, store) = (folder.canonicalize(), store.canonicalize());
    folder.ok().zip(store.ok()).is_some_and(|(folder, store)| folder.starts_with(store))
}

/// Before a byte of the stores is parsed: what stays is reading them, and making files in `output`; or, where it `listens`,
/// what comes at a socket that is connected already.
///
/// # Errors
/// The system refuses it.
pub fn give_up_rights(
    stores: &[(Store, PathBuf)],
    output: Option<&Folder>,
    listens: bool,
) -> Result<(), Fault> {
    let paths: Vec<&Path> = stores.iter().map(|(_, path)| path.as_path()).collect();
    let kept = match (listens, output) {
        (true, output) => scope_rights::keep_to_listening(output),
        (false, Some(folder)) => scope_rights::keep_to_reading_and_making(&paths, folder),
        (false, None) => scope_rights::keep_to_reading(&paths),
    };
    if let Some(lack) = kept.map_err(|error| error.fault())?.lack() {
        say(Level::Warning, &format!("wirescope: {lack}"));
    }
    Ok(())
}

/// Looks at the stores, for what is searched for in a span.
///
/// # Errors
/// A folder can't be listed.
pub fn look(
    stores: Vec<(Store, PathBuf)>,
    keys: Keys<'_>,
    span: Span,
    threads: usize,
) -> Result<(Vec<(Store, Listing)>, ListingWork), Fault> {
    let threads = threads * LISTERS_A_THREAD;
    let wanted = Wanted { keys, span_ns: Some((span.from_ns, span.to_ns)), threads };
    let open: Vec<&Store> = stores.iter().map(|(store, _)| store).collect();
    let listed = listing::list_for(&open, &wanted);
    let (listings, work) = listed.map_err(|(number, error)| match is_deleted(stores[number].0.folder()) {
        true => deleted(&stores[number].1),
        false => unread(&stores[number].1, &error),
    })?;
    let stores = stores.into_iter().map(|(store, _)| store);
    Ok((stores.zip(listings).collect(), work))
}

/// Whether a store is gone, or on its way: its folder or its mark.
pub fn is_deleted(folder: &Folder) -> bool {
    folder.is_removed() || matches!(folder.existing(OsStr::new(MARK), false), Ok(None))
}

/// A store that is gone.
pub fn deleted(path: &Path) -> Fault {
    let cause = "the store was deleted meanwhile: only files that were open already are read to their ends";
    Fault::of_thing(path.to_string_lossy()).cause(cause).remedy("use a copy of it, if there is one")
}

/// The filters that packets passed on their way into the stores, each once.
pub fn filters(stores: &[(Store, Listing)]) -> Vec<String> {
    let listings = || stores.iter().map(|(_, listing)| listing);
    let contents = listings().flat_map(|listing| &listing.files).flat_map(|file| &file.contents);
    let runs = listings().flat_map(|listing| &listing.heads);
    let mut filters: Vec<String> = contents.map(|contents| contents.filter.clone()).collect();
    filters.extend(runs.map(|run| run.filter.clone()));
    filters.sort();
    filters.dedup();
    filters.retain(|filter| !filter.is_empty());
    filters
}

/// Bytes to which longer packets were truncated on their way into the stores, each once.
pub fn snaps(stores: &[(Store, Listing)]) -> Vec<u32> {
    let listings = || stores.iter().map(|(_, listing)| listing);
    let contents = listings().flat_map(|listing| &listing.files).flat_map(|file| &file.contents);
    let runs = listings().flat_map(|listing| &listing.heads).map(|run| run.snap);
    let snaps: BTreeSet<u32> = contents.map(|contents| contents.snap).chain(runs).collect();
    snaps.into_iter().filter(|&snap| snap > 0).collect()
}

/// What ends a reading: Ctrl-C and SIGTERM, the second one at once, also where something holds it up.
#[derive(Clone, Debug)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
    /// Set: nothing more is read.
    pub flag: Arc<AtomicBool>,
}

impl Stop {
    /// Follows the signals from now on.
    ///
    /// # Errors
    /// The system's.
    pub fn follow() -> io::Result<Stop> {
        let stop = Stop { signal: Arc::new(AtomicUsize::new(0)), flag: Arc::new(AtomicBool::new(false)) };
        for number in [libc::SIGINT, libc::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(number, 128 + number, stop.flag.clone())?;
            signal_hook::flag::register_usize(number, stop.signal.clone(), number as usize)?;
            signal_hook::flag::register(number, stop.flag.clone())?;
        }
        Ok(stop)
    }

    /// The exit code after a signal; `None`: there was none.
    pub fn code(&self) -> Option<u8> {
        let signal = self.signal.load(Ordering::Relaxed);
        (signal != 0).then_some(128 + signal as u8)
    }
}

/// What was read of capture files.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// Their packets.
    pub packets: u64,
    /// Those that may belong to the answer.
    pub taken: u64,
    /// Bytes of them that waited in a file.
    pub spilled_bytes: u64,
}

/// Says what was read for an answer, and how long that took.
pub fn explained(listed: &ListingWork, work: &Work, captured: Option<Captured>, begun: Instant) {
    let ListingWork { files, passed, indexes, index_bytes, names_ns, cards_ns, indexes_ns } = listed;
    let ms = |ns: &u64| format!("{:.1} ms", *ns as f64 / 1e6);
    let words = [
        format!("{} ({})", counted(*files, "file"), ms(names_ns)),
        format!("{passed} passed over ({})", ms(cards_ns)),
        format!("{indexes} indexes read, {} ({})", size(*index_bytes), ms(indexes_ns)),
    ];
    say(Level::Info, &format!("wirescope: {}", words.join(", ")));
    let Work { segments, skipped, unmatched, by_foot, in_part, whole, bytes, .. } = work;
    let Work { waiting, evaluating, .. } = work;
    let spilled_bytes = work.spilled_bytes + captured.map_or(0, |captured| captured.spilled_bytes);
    let mut words = vec![
        format!("{} in the span", counted(*segments, "segment")),
        format!("{skipped} skipped by their summary"),
        format!("{by_foot} counted by their foot"),
        format!("{in_part} read in part ({unmatched} without a match)"),
        format!("{whole} read whole"),
        format!("{} read", size(*bytes)),
        format!("{} waited in a file", size(spilled_bytes)),
        format!("{:.3} s for reads", waiting.as_secs_f64()),
        format!("{:.3} s for filters in all threads", evaluating.as_secs_f64()),
    ];
    if let Some(Captured { packets, taken, .. }) = captured {
        words.push(format!("{} of capture files read, {taken} kept", counted(packets, "packet")));
    }
    words.push(format!("{:.6} s", begun.elapsed().as_secs_f64()));
    say(Level::Info, &format!("wirescope: {}", words.join(", ")));
}
