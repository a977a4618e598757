//! Which files go, so that a volume stays within its bounds: decided here from what stands there, carried out
//! by others.
//!
//! ```text
//! files by the end of their span, oldest first, of all runs
//!   grows            stays; it counts with all that it may grow to
//!   ends             stays until its last writes are done; nothing newer goes in its place
//!   has no line yet  stays until it is in the chain; nothing newer goes in its place
//!   is held          stays
//!   older than age   goes
//!   else             goes while budget or free space isn't met; the first one that need not go ends it
//! ```
//! Space is accounted before it is taken: a file is begun only where the verdict for its whole length lacks
//! nothing. If nothing that may go makes room for it, nothing goes for it: then storing stops, and what is
//! there already is still kept within the budget as far as can be. If the free space isn't met even without any
//! file that may go, others fill the disk, or the bound is a typing error: nothing goes for it.
//!
//! A pure decision: no file is looked at here. Some file systems give space back only a while after a file
//! was removed, or when its last reader has closed it: whoever removes files looks at the room again in
//! between, and gives it time.

use crate::disk::Room;
use crate::name::FileName;
use scope_fault::{Fault, Setting, sentence};
use scope_packet::segment::SEGMENT_BYTES_MAX;
use scope_spelling::figures::size;
use scope_spelling::values::{PPM, SizeOrShare};
use std::path::{Path, PathBuf};

/// Set aside for what isn't a file's: the mark, holds, the chain, folders.
pub const ASIDE_BYTES: u64 = 1 << 20;
/// A budget has room for so many files at least: one grows, others can go one at a time.
pub const FILES_MIN: u64 = 4;
/// What stays free where no bound on space is given.
pub const FREE_DEFAULT: SizeOrShare = SizeOrShare::Ppm(PPM / 20);
/// Length of files where none is given: this, or an eighth of the space if that is less.
const FILE_BYTES_DEFAULT: u64 = 1 << 30;
const FILES_DEFAULT: u64 = 8;
/// Lengths of files are whole pages.
const FILE_ALIGN: u64 = 4096;
/// A file has room for so many of the largest segments at least.
const SEGMENTS_MIN: u64 = 4;
/// Shortest length of files that may be asked for.
pub const FILE_BYTES_MIN: u64 = SEGMENTS_MIN * SEGMENT_BYTES_MAX as u64;
const MIB: u64 = 1 << 20;

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name; that says whether it grows.
    pub name: FileName,
    /// Smallest time of its packets, ns. Of a file without packets: that of its name, and so is the largest.
    pub min_ns: i64,
    /// Largest time of its packets, ns.
    pub max_ns: i64,
    /// What it takes of the disk now, bytes.
    pub taken: u64,
    /// What it may take in the end, bytes; only looked at while it grows.
    pub reserve: u64,
    /// It must not go yet, and may soon: it waits for its line in the chain, or, growing, for its last writes.
    pub stays: bool,
}

/// What the writer knows of a file that grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growing {
    /// The name that it gets, below the volume's folder.
    pub name: PathBuf,
    /// Its link type.
    pub link: u16,
    /// Smallest and largest time of the closed segments that it was given, ns.
    pub span_ns: Option<(i64, i64)>,
    /// It takes no further segment.
    pub ends: bool,
    /// Nothing but the disk keeps it from its end, or a lane has done so for a short while only.
    pub can_end: bool,
}

/// The bounds of a volume, as meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// What the volume may take; shares are of the file system.
    pub budget: Option<SizeOrShare>,
    /// A file goes when its last packet is older than this, ns.
    pub age_ns: Option<i64>,
    /// What stays free on the file system; shares are of it.
    pub min_free: Option<SizeOrShare>,
}

/// What a verdict depends on besides files and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Now, ns since the epoch.
    pub now_ns: i64,
    /// The file system.
    pub room: Room,
    /// What the volume takes besides its files, bytes.
    pub beside: u64,
    /// What files take that count and never go, since nobody can tell what they are, bytes.
    pub damaged: u64,
    /// Length of the file that is to be begun, bytes; 0: none.
    pub wanted: u64,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Places in the list of the files that go now, in this order.
    pub go: Vec<usize>,
    /// What is still lacking then: the wanted file may not be begun.
    pub lack: Option<Lack>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Which bound isn't met.
    pub bound: Bound,
    /// By how many bytes.
    pub bytes: u64,
    /// What files take that only holds keep, bytes. 0: not holds are the reason.
    pub held_bytes: u64,
    /// How many these are.
    pub held_files: usize,
}

/// A bound on space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Bounds::budget`].
    Budget,
    /// [`Bounds::min_free`], or that there is any room at all.
    Free,
}

impl Kept {
    /// What it counts for, bytes.
    fn counted(&self) -> u64 {
        if self.name.is_growing() { self.taken.max(self.reserve) } else { self.taken }
    }

    /// What it may still take that the file system doesn't know of, bytes.
    fn to_come(&self) -> u64 {
        self.counted() - self.taken
    }
}

/// What a volume takes, bytes: growing files with all that they may grow to, and what is set aside.
pub fn used(files: &[Kept], beside: u64) -> u64 {
    let files = files.iter().map(Kept::counted).fold(0, u64::saturating_add);
    files.saturating_add(beside.max(ASIDE_BYTES))
}

impl Bounds {
    /// What the volume may take of a file system of `total` bytes, by its budget.
    pub fn budget_bytes(&self, total: u64) -> u64 {
        self.budget.map_or(u64::MAX, |budget| budget.bytes_of(total))
    }

    /// What stays free of `total` bytes. Where nothing bounds space, [`FREE_DEFAULT`].
    pub fn free_bytes(&self, total: u64) -> u64 {
        let default = if self.budget.is_none() { FREE_DEFAULT } else { SizeOrShare::Bytes(0) };
        self.min_free.unwrap_or(default).bytes_of(total)
    }

    /// The space of the volume on a file system of `total` bytes, if nobody else wrote there.
    fn space(&self, total: u64) -> u64 {
        self.budget_bytes(total).min(total.saturating_sub(self.free_bytes(total)))
    }

    /// Length of files where none is given: 1 GiB, or an eighth of the space if that is less; whole pages.
    pub fn file_bytes(&self, total: u64) -> u64 {
        let bytes = FILE_BYTES_DEFAULT.min(self.space(total) / FILES_DEFAULT);
        bytes - bytes % FILE_ALIGN
    }

    /// What can't be meant, for files of `file_bytes` in `folder`, on a file system of `total` bytes.
    pub fn faults(&self, folder: &Path, file_bytes: u64, total: u64) -> Vec<Fault> {
        if total == 0 {
            let cause = format!("the file system of {} has no room at all: none of a disk", folder.display());
            return vec![Fault::of("store").cause(cause).remedy("choose a folder on a disk")];
        }
        let mut faults = Vec::new();
        let least = file_bytes.saturating_mul(FILES_MIN).saturating_add(ASIDE_BYTES);
        let files =
            format!("{FILES_MIN} files of {} and {} beside them", size(file_bytes), size(ASIDE_BYTES));
        let budget = self.budget_bytes(total);
        if budget < least {
            let cause = format!("{} is less than {files}", size(budget));
            let more = format!("write at least {}MiB", least.div_ceil(MIB));
            let remedy = match files_within(budget) {
                Some(file) => sentence![more, ", or ", file],
                None if file_bytes <= FILE_BYTES_MIN => {
                    sentence![format!("{more}: no file is shorter than {}", size(FILE_BYTES_MIN))]
                }
                None => {
                    let least = (FILE_BYTES_MIN * FILES_MIN + ASIDE_BYTES).div_ceil(MIB);
                    let shortest = Setting::of("store-file").example(format!("{}MiB", FILE_BYTES_MIN / MIB));
                    sentence![format!("{more}, or {least}MiB with "), shortest]
                }
            };
            faults.push(Fault::of("store-budget").cause(cause).remedy(remedy));
        }
        let free = self.free_bytes(total);
        let left = total.saturating_sub(free);
        if left < least {
            let cause = format!(
                "with {} free, {} of the {} of the file system of {} are left: less than {files}",
                size(free),
                size(left),
                size(total),
                folder.display()
            );
            let (key, other) = match self.min_free {
                Some(_) => ("store-min-free", "leave less free"),
                None => ("store", "choose a larger file system"),
            };
            let remedy = match files_within(left) {
                Some(file) => sentence![other, ", or write ", file],
                None => sentence![other],
            };
            faults.push(Fault::of(key).cause(cause).remedy(remedy));
        }
        if self.age_ns.is_some_and(|age_ns| age_ns <= 0) {
            let fault = Fault::of("store-age").cause("no packet is that young");
            faults.push(fault.remedy(sentence!["write e.g. ", Setting::of("store-age").example("7d")]));
        }
        faults
    }

    /// Decides which files go. `held` says whether a span, both ends included, is held.
    pub fn verdict(&self, files: &[Kept], state: &State, held: impl Fn(i64, i64) -> bool) -> Verdict {
        let wanted = self.all_that_helps(files, state, &held);
        let lack = wanted.over.lack(wanted.held_bytes, wanted.held_files);
        if lack.is_none() {
            return Verdict { go: wanted.go, lack };
        }
        // Nothing goes in vain: neither for a file that has no room even so, nor for room that only others take.
        let standing = self.all_that_helps(files, &State { wanted: 0, ..*state }, &held);
        let room = Room { free: u64::MAX, ..state.room };
        let go = match standing.over.free {
            0 => standing.go,
            _ => self.all_that_helps(files, &State { wanted: 0, room, ..*state }, &held).go,
        };
        Verdict { go, lack }
    }

    fn all_that_helps(&self, files: &[Kept], state: &State, held: impl Fn(i64, i64) -> bool) -> Try {
        let has_its_turn = |&at: &usize| !files[at].name.is_growing() || files[at].stays;
        let mut order: Vec<usize> = (0..files.len()).filter(has_its_turn).collect();
        order.sort_unstable_by_key(|&at| (files[at].max_ns, files[at].min_ns, &files[at].name));
        let mut tried = Try { go: Vec::new(), over: self.over(files, state), held_bytes: 0, held_files: 0 };
        let young_ns = self.age_ns.map(|age_ns| state.now_ns.saturating_sub(age_ns));
        let mut waits = false;
        for at in order {
            let file = &files[at];
            let too_old = young_ns.is_some_and(|young_ns| file.max_ns < young_ns);
            if !too_old && (waits || tried.over.is_met()) {
                break;
            }
            if held(file.min_ns, file.max_ns) {
                tried.held_bytes = tried.held_bytes.saturating_add(file.taken);
                tried.held_files += 1;
                continue;
            }
            if file.stays {
                waits |= !tried.over.is_met(); // its turn comes, before what is newer
                continue;
            }
            tried.over.give_back(file.taken);
            tried.go.push(at);
        }
        tried
    }

    /// By how much the bounds would be exceeded if nothing went.
    fn over(&self, files: &[Kept], state: &State) -> Over {
        let Room { total, free } = state.room;
        let used = used(files, state.beside).saturating_add(state.damaged).saturating_add(state.wanted);
        let to_come = files.iter().map(Kept::to_come).fold(0, u64::saturating_add);
        let aside = ASIDE_BYTES.saturating_sub(state.beside);
        let needed = [to_come, aside, state.wanted, self.free_bytes(total)];
        Over {
            budget: used.saturating_sub(self.budget_bytes(total)),
            free: needed.into_iter().fold(0, u64::saturating_add).saturating_sub(free),
        }
    }
}

/// The longest files of which there is room for enough in `space` bytes, whole MiB; `None`: they would be too
/// short.
fn files_within(space: u64) -> Option<Setting> {
    let bytes = space.saturating_sub(ASIDE_BYTES) / FILES_MIN;
    let file = Setting::of("store-file");
    (bytes >= FILE_BYTES_MIN).then(|| file.example(format!("{}MiB", bytes / MIB)))
}

/// What would go, and what that leaves.
struct Try {
    go: Vec<usize>,
    over: Over,
    held_bytes: u64,
    held_files: usize,
}

/// By how many bytes bounds are exceeded.
struct Over {
    budget: u64,
    free: u64,
}

impl Over {
    fn is_met(&self) -> bool {
        self.budget == 0 && self.free == 0
    }

    fn give_back(&mut self, bytes: u64) {
        self.budget = self.budget.saturating_sub(bytes);
        self.free = self.free.saturating_sub(bytes);
    }

    fn lack(&self, held_bytes: u64, held_files: usize) -> Option<Lack> {
        let (bound, bytes) = match self.budget >= self.free {
            true => (Bound::Budget, self.budget),
            false => (Bound::Free, self.free),
        };
        (bytes > 0).then_some(Lack { bound, bytes, held_bytes, held_files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scope_packet::LinkType;

    const TOTAL: u64 = 1000 * MIB;

    /// A file of `mib` MiB whose packets are from `min` to `max` s.
    fn file(number: u32, min: i64, max: i64, mib: u64, growing: bool) -> Kept {
        let name = FileName::growing(min * 1_000_000_000, &[1; 16], LinkType::ETHERNET, number);
        Kept {
            name: if growing { name } else { name.closed() },
            min_ns: min * 1_000_000_000,
            max_ns: max * 1_000_000_000,
            taken: mib * MIB,
            reserve: 0,
            stays: false,
        }
    }

    fn state(wanted_mib: u64) -> State {
        State {
            now_ns: 1000 * 1_000_000_000,
            room: Room { total: TOTAL, free: 500 * MIB },
            beside: 5000,
            damaged: 0,
            wanted: wanted_mib * MIB,
        }
    }

    fn budget(mib: u64) -> Bounds {
        Bounds { budget: Some(SizeOrShare::Bytes(mib * MIB)), ..Bounds::default() }
    }

    fn nothing_held(_: i64, _: i64) -> bool {
        false
    }

    #[test]
    fn the_oldest_by_its_end_goes_first_and_no_more_than_needed() {
        let files = [file(1, 0, 90, 10, false), file(2, 5, 20, 10, false), file(3, 30, 40, 10, false)];
        let go = |mib, wanted| budget(mib).verdict(&files, &state(wanted), nothing_held).go;
        assert_eq!(go(31, 0), [0; 0]);
        assert_eq!(go(31, 1), [1]);
        assert_eq!(go(31, 10), [1]);
        assert_eq!(go(31, 11), [1, 2]);
        assert_eq!(go(30, 0), [1]);
        assert_eq!(go(5, 0), [1, 2, 0]);
    }

    #[test]
    fn a_growing_file_stays_and_counts_with_its_reserve() {
        let mut files = vec![file(1, 0, 10, 1, true), file(2, 20, 30, 10, false)];
        files[0].reserve = 20 * MIB;
        assert_eq!(used(&files, 0), 31 * MIB);
        assert_eq!(used(&files, 3 * MIB), 33 * MIB, "the chain may get longer than what is set aside");
        assert_eq!(budget(31).verdict(&files, &state(0), nothing_held), Verdict::default());
        assert_eq!(budget(30).verdict(&files, &state(0), nothing_held).go, [1]);
        let lack = Lack { bound: Bound::Budget, bytes: MIB, held_bytes: 0, held_files: 0 };
        assert_eq!(
            budget(20).verdict(&files, &state(0), nothing_held),
            Verdict { go: vec![1], lack: Some(lack) }
        );
        // A file system without reserves doesn't know yet what it will take.
        let free = Bounds { min_free: Some(SizeOrShare::Bytes(480 * MIB)), ..Bounds::default() };
        assert_eq!(free.verdict(&files, &state(0), nothing_held), Verdict::default());
        files[0].reserve = 21 * MIB;
        assert_eq!(free.verdict(&files, &state(0), nothing_held).go, [1]);
    }

    #[test]
    fn what_is_held_stays_and_where_holds_leave_no_room_nothing_goes_in_vain() {
        let files = [file(1, 0, 9, 10, false), file(2, 10, 20, 10, false), file(3, 21, 30, 10, false)];
        let second = |min: i64, max: i64| min <= 15_000_000_000 && max >= 15_000_000_000;
        assert_eq!(budget(31).verdict(&files, &state(20), second), Verdict { go: vec![0, 2], lack: None });
        let lack = Lack { bound: Bound::Budget, bytes: MIB, held_bytes: 10 * MIB, held_files: 1 };
        assert_eq!(
            budget(31).verdict(&files, &state(21), second),
            Verdict { go: vec![], lack: Some(lack) },
            "the wanted file has no place even without the others"
        );
        let all = budget(11).verdict(&files, &state(0), |_, _| true);
        let lack = Lack { bound: Bound::Budget, bytes: 20 * MIB, held_bytes: 30 * MIB, held_files: 3 };
        assert_eq!(all, Verdict { go: vec![], lack: Some(lack) });
    }

    #[test]
    fn nothing_newer_goes_in_place_of_a_file_that_may_go_soon() {
        let mut files =
            vec![file(1, 0, 10, 10, false), file(2, 20, 30, 10, false), file(3, 40, 50, 10, false)];
        files[1].stays = true;
        assert_eq!(budget(31).verdict(&files, &state(10), nothing_held).go, [0]);
        let lack = Lack { bound: Bound::Budget, bytes: MIB, held_bytes: 0, held_files: 0 };
        let verdict = budget(31).verdict(&files, &state(11), nothing_held);
        assert_eq!(verdict, Verdict { go: vec![], lack: Some(lack) }, "the third one isn't the next");
        let old = Bounds { age_ns: Some(100 * 1_000_000_000), ..budget(31) };
        assert_eq!(old.verdict(&files, &state(10), nothing_held).go, [0, 2], "what is too old goes at once");
        files[1].stays = false;
        assert_eq!(budget(31).verdict(&files, &state(11), nothing_held).go, [0, 1]);
    }

    #[test]
    fn a_file_that_ends_has_its_turn_by_its_time_and_nothing_newer_goes_meanwhile() {
        let mut files = vec![file(1, 0, 10, 10, true), file(2, 20, 30, 10, false), file(3, 5, 8, 10, false)];
        let lack = |mib| Some(Lack { bound: Bound::Budget, bytes: mib * MIB, held_bytes: 0, held_files: 0 });
        let go = |files: &[Kept], wanted| budget(31).verdict(files, &state(wanted), nothing_held);
        assert_eq!(
            go(&files, 20),
            Verdict { go: vec![2, 1], lack: None },
            "one that grows on is passed over"
        );
        files[0].stays = true;
        assert_eq!(go(&files, 10), Verdict { go: vec![2], lack: None });
        assert_eq!(go(&files, 20), Verdict { go: vec![], lack: lack(10) }, "it goes before the second one");
        files[0] = file(1, 0, 10, 10, false);
        assert_eq!(go(&files, 20), Verdict { go: vec![2, 0], lack: None }, "it has its name");
        // One whose packets are the newest keeps nobody waiting.
        files[0] = Kept { stays: true, ..file(1, 0, 40, 10, true) };
        assert_eq!(go(&files, 20), Verdict { go: vec![2, 1], lack: None });
    }

    #[test]
    fn what_is_too_old_goes_whatever_room_there_is() {
        let files = [file(1, 0, 899, 10, false), file(2, 0, 900, 10, false), file(3, 1, 2, 10, true)];
        let bounds = Bounds { age_ns: Some(100 * 1_000_000_000), ..budget(900) };
        assert_eq!(bounds.verdict(&files, &state(0), nothing_held).go, [0]);
        assert_eq!(bounds.verdict(&files, &state(0), |_, _| true), Verdict::default());
    }

    #[test]
    fn without_a_bound_on_space_a_twentieth_of_the_file_system_stays_free() {
        let files = [file(1, 0, 1, 10, false), file(2, 2, 3, 10, false)];
        let free = |free: u64| State { room: Room { total: TOTAL, free: free * MIB }, beside: 0, ..state(0) };
        for bounds in [Bounds::default(), Bounds { age_ns: Some(i64::MAX), ..Bounds::default() }] {
            assert_eq!(bounds.verdict(&files, &free(51), nothing_held).go, [0; 0]);
            assert_eq!(bounds.verdict(&files, &free(50), nothing_held).go, [0]);
        }
        let lack = budget(900).verdict(&files, &State { wanted: 100 * MIB, ..free(50) }, nothing_held).lack;
        let expected = Lack { bound: Bound::Free, bytes: 31 * MIB, held_bytes: 0, held_files: 0 };
        assert_eq!(lack, Some(expected), "no budget makes room on a full file system");
    }

    #[test]
    fn nothing_goes_for_free_space_that_only_others_can_give_back() {
        let files = [file(1, 0, 1, 10, false), file(2, 2, 3, 10, false)];
        let free = |mib| Bounds { min_free: Some(SizeOrShare::Bytes(mib * MIB)), ..Bounds::default() };
        assert_eq!(free(518).verdict(&files, &state(0), nothing_held).go, [0, 1]);
        let lack = Lack { bound: Bound::Free, bytes: MIB, held_bytes: 0, held_files: 0 };
        let verdict = free(521).verdict(&files, &State { beside: MIB, ..state(0) }, nothing_held);
        assert_eq!(verdict, Verdict { go: vec![], lack: Some(lack) });
        let budget = Bounds { budget: Some(SizeOrShare::Bytes(11 * MIB)), ..free(900) };
        assert_eq!(budget.verdict(&files, &state(0), nothing_held).go, [0], "a budget is kept all the same");
    }

    #[test]
    fn shares_are_of_the_file_system_and_files_an_eighth_of_the_space_at_most() {
        let tenth = Bounds { budget: Some(SizeOrShare::Ppm(PPM / 10)), ..Bounds::default() };
        assert_eq!((tenth.budget_bytes(TOTAL), tenth.free_bytes(TOTAL)), (100 * MIB, 0));
        assert_eq!(tenth.file_bytes(TOTAL), 100 * MIB / 8);
        assert_eq!(budget(1).file_bytes(TOTAL), 128 << 10);
        assert_eq!(Bounds::default().file_bytes(TOTAL), 118 * MIB + 768 * 1024);
        assert_eq!(Bounds::default().file_bytes(1 << 40), 1 << 30);
    }

    #[test]
    fn bounds_without_room_for_four_files_are_refused_with_the_numbers() {
        let check = |bounds: Bounds, file_mib: u64, expected: &[&str]| {
            let faults: Vec<String> = bounds
                .faults(Path::new("/s"), file_mib * MIB, TOTAL)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(faults, expected);
        };
        check(budget(17), 4, &[]);
        check(
            budget(50),
            16,
            &["--store-budget: 50 MiB is less than 4 files of 16 MiB and 1 MiB beside them; \
               write at least 65MiB, or --store-file 12MiB"],
        );
        check(
            budget(1),
            16,
            &["--store-budget: 1 MiB is less than 4 files of 16 MiB and 1 MiB beside them; \
               write at least 65MiB, or 33MiB with --store-file 8MiB"],
        );
        check(
            budget(1),
            8,
            &["--store-budget: 1 MiB is less than 4 files of 8 MiB and 1 MiB beside them; \
               write at least 33MiB: no file is shorter than 8 MiB"],
        );
        let free = Bounds { min_free: Some(SizeOrShare::Ppm(990_000)), ..Bounds::default() };
        check(
            free,
            4,
            &[
                "--store-min-free: with 990 MiB free, 10 MiB of the 1000 MiB of the file system of /s are left: \
               less than 4 files of 4 MiB and 1 MiB beside them; leave less free",
            ],
        );
        check(
            Bounds { age_ns: Some(0), ..Bounds::default() },
            4,
            &["--store-age: no packet is that young; write e.g. --store-age 7d"],
        );
        check(
            Bounds::default(),
            300,
            &["--store: with 50 MiB free, 950 MiB of the 1000 MiB of the file system of /s are left: \
               less than 4 files of 300 MiB and 1 MiB beside them; choose a larger file system, or write --store-file 237MiB"],
        );
    }

    #[test]
    fn a_file_system_without_any_room_is_refused_as_one_of_no_disk() {
        let faults = Bounds::default().faults(Path::new("/proc/x"), FILE_BYTES_MIN, 0);
        let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let expected = "--store: the file system of /proc/x has no room at all: none of a disk; \
                        choose a folder on a disk";
        assert_eq!(text, [expected]);
    }

    /// The same decision, a file at a time, with sums made anew each time.
    fn naive(bounds: &Bounds, files: &[Kept], state: &State, held: &dyn Fn(i64, i64) -> bool) -> Vec<usize> {
        let mut gone: Vec<usize> = Vec::new();
        loop {
            let is_left = |at: &usize| !gone.contains(at);
            let left: Vec<&Kept> = (0..files.len()).filter(is_left).map(|at| &files[at]).collect();
            let sum = |of: &dyn Fn(&Kept) -> u64| left.iter().map(|file| of(file)).sum::<u64>();
            let grows = |file: &Kept| file.name.is_growing();
            let whole = |file: &Kept| if grows(file) { file.taken.max(file.reserve) } else { file.taken };
            let used = sum(&whole) + state.beside.max(MIB) + state.damaged + state.wanted;
            let freed: u64 = gone.iter().map(|&at| files[at].taken).sum();
            let free = (state.room.free + freed) as i128
                - i128::from(sum(&whole) - sum(&|file| file.taken))
                - i128::from(MIB.saturating_sub(state.beside))
                - i128::from(state.wanted);
            let free_min = bounds.free_bytes(state.room.total);
            let met = used <= bounds.budget_bytes(state.room.total) && free >= i128::from(free_min);
            let young = bounds.age_ns.map_or(i64::MIN, |age| state.now_ns - age);
            let may_go = |at: &usize| {
                let file = &files[*at];
                is_left(at) && (!grows(file) || file.stays) && !held(file.min_ns, file.max_ns)
            };
            let turn = |&at: &usize| (files[at].max_ns, files[at].min_ns, files[at].name.clone());
            let next = (0..files.len()).filter(may_go).min_by_key(turn);
            let waits = next.is_some_and(|at| files[at].stays);
            let oldest = (0..files.len()).filter(may_go).filter(|&at| !files[at].stays).min_by_key(turn);
            match oldest {
                Some(at) if !(met || waits) || files[at].max_ns < young => gone.push(at),
                _ if met => return gone,
                _ if state.wanted > 0 => return naive(bounds, files, &State { wanted: 0, ..*state }, held),
                _ if free < i128::from(free_min) => {
                    let room = Room { free: u64::MAX / 4, ..state.room };
                    return naive(bounds, files, &State { room, ..*state }, held);
                }
                _ => return gone,
            }
        }
    }

    fn some_file() -> impl Strategy<Value = Kept> {
        let rarely = || prop::bool::weighted(0.2);
        (1..9u32, 0..50i64, 0..30i64, 0..20u64, 0..20u64, rarely(), rarely()).prop_map(
            |(number, min, len, mib, reserve, growing, stays)| Kept {
                reserve: reserve * MIB,
                stays,
                ..file(number, min, min + len, mib, growing)
            },
        )
    }

    fn some_bounds() -> impl Strategy<Value = Bounds> {
        let amount = || {
            prop_oneof![
                (1..120u64).prop_map(|mib| SizeOrShare::Bytes(mib * MIB)),
                (1..PPM / 2).prop_map(SizeOrShare::Ppm)
            ]
        };
        (prop::option::of(amount()), prop::option::of(1..80i64), prop::option::of(amount())).prop_map(
            |(budget, age, min_free)| Bounds { budget, age_ns: age.map(|age| age * 1_000_000_000), min_free },
        )
    }

    proptest! {
        #[test]
        fn the_verdict_is_that_of_the_naive_model(
            files in prop::collection::vec(some_file(), 0..20), bounds in some_bounds(),
            free in 0..300u64, now in 0..120i64, beside in 0..2 * MIB, damaged in 0..9 * MIB, wanted in 0..40u64,
            holds in prop::collection::vec((0..80i64, 0..10i64), 0..3),
        ) {
            let room = Room { total: 300 * MIB, free: free * MIB };
            let state = State { now_ns: now * 1_000_000_000, room, beside, damaged, wanted: wanted * MIB };
            let held = |min: i64, max: i64| {
                holds.iter().any(|&(at, len)| min <= (at + len) * 1_000_000_000 && max >= at * 1_000_000_000)
            };
            let verdict = bounds.verdict(&files, &state, held);
            prop_assert_eq!(&verdict.go, &naive(&bounds, &files, &state, &held));
            let may_go = |at: &usize| !files[*at].name.is_growing() && !files[*at].stays && !held(files[*at].min_ns, files[*at].max_ns);
            prop_assert!(verdict.go.iter().all(may_go));
        }

        /// A volume's life on a simulated file system: files begin, grow, end and go; holds come and go.
        #[test]
        fn bounds_are_met_at_all_times_and_the_newest_budget_is_there(
            budget_mib in 9..60u64, reserves in prop::bool::ANY,
            steps in prop::collection::vec((1..3u64, 0..40i64, prop::bool::weighted(0.1)), 1..60),
        ) {
            const SIZE: u64 = 200 * MIB;
            let bounds = Bounds { min_free: Some(SizeOrShare::Bytes(150 * MIB)), ..budget(budget_mib) };
            let (mut files, mut held_from): (Vec<Kept>, Option<i64>) = (Vec::new(), None);
            let free = |files: &[Kept]| {
                let known = |file: &Kept| if reserves { file.counted() } else { file.taken };
                SIZE - files.iter().map(known).sum::<u64>()
            };
            for (number, (mib, hold, toggle)) in (1..).zip(steps) {
                if toggle {
                    held_from = held_from.map_or(Some(number - hold), |_| None);
                }
                let held = |_: i64, max: i64| held_from.is_some_and(|from| {
                    (from..from + 4).contains(&(max / 1_000_000_000))
                });
                let state = State {
                    room: Room { total: SIZE, free: free(&files) },
                    now_ns: number * 1_000_000_000, beside: 0, damaged: 0, wanted: 2 * MIB,
                };
                let verdict = bounds.verdict(&files, &state, held);
                let (before, mut left) = (used(&files, 0), files.clone());
                for &at in &verdict.go {
                    // Without need: the room that was there would have done.
                    let gone: u64 = verdict.go.iter().take_while(|&&other| other != at).map(|&at| files[at].taken).sum();
                    let did = before - gone + state.wanted <= budget_mib * MIB && free(&files) + gone
                        >= 150 * MIB + ASIDE_BYTES + state.wanted;
                    prop_assert!(!did);
                    prop_assert!(!held(files[at].min_ns, files[at].max_ns));
                    left.retain(|file| file.name != files[at].name);
                }
                files = left;
                if verdict.lack.is_none() {
                    let growing = Kept { reserve: 2 * MIB, ..file(number as u32, number, number, 0, true) };
                    files.push(growing);
                    prop_assert!(used(&files, 0) <= budget_mib * MIB && free(&files) >= 150 * MIB + ASIDE_BYTES);
                    let last = files.last_mut().unwrap();
                    *last = file(number as u32, number, number, mib.min(2), false);
                } else {
                    prop_assert!(verdict.lack.is_some_and(|lack| lack.held_files > 0), "only holds leave no room");
                }
                prop_assert!(used(&files, 0) <= budget_mib * MIB && free(&files) >= 150 * MIB);
            }
        }
    }
}
