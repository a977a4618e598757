//! Runs that keep one budget together, against a naive sum of what stands in the folder and what is being
//! made: each run an opening of the table, a kill the end of that opening.

use super::*;
use crate::budget::others::CLAIM_BYTES;
use proptest::prelude::*;
use rustix::fs::FallocateFlags;
use scope_folder::locks;

const KIB: u64 = 1 << 10;
const RUNS: usize = 4;

/// One of the runs.
struct Run {
    budget: Arc<Budget>,
    limits: Limits,
    /// Files without a name, and what was charged for each.
    open: Vec<(Charged, u64)>,
}

impl Run {
    fn new(folder: &Path, bytes_max: u64, rotate: bool) -> Run {
        let limits = Limits { bytes_max: Some(bytes_max), rotate, ..Limits::default() };
        let budget = open(folder, limits);
        budget.join().unwrap();
        budget.lock().patience = Duration::ZERO;
        Run { budget, limits, open: Vec::new() }
    }

    fn charged(&self) -> u64 {
        self.open.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Time has passed: the folder may be read.
    fn is_due(&self) {
        self.budget.lock().next_read = None;
    }

    /// As kill -9: nothing more is told.
    fn kill(self) {
        self.budget.lock().others = Others::default();
    }

    fn charge(&mut self, file: usize, bytes: u64) -> bool {
        let (charged, sum) = &mut self.open[file];
        let done = charged.charge(bytes).is_ok();
        *sum += if done { bytes } else { 0 };
        done
    }

    /// Gives a file its name; what was charged is what it has.
    fn name(&mut self, folder: &Path, file: usize, number: u64) {
        let (mut charged, bytes) = self.open.remove(file);
        charged.name(bytes, || Ok(write(folder, number, bytes))).unwrap();
    }
}

/// A dump that has so many bytes of blocks.
fn write(folder: &Path, number: u64, bytes: u64) -> std::path::PathBuf {
    let file_name = format!("{}.pcapng", name(number));
    dump(folder, &file_name, number, 16 * KIB);
    let file = OpenOptions::new().write(true).open(folder.join(&file_name)).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(16 * KIB)).unwrap();
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + number);
    file.set_times(FileTimes::new().set_modified(changed)).unwrap();
    file_name.into()
}

/// Bytes of the blocks of all dumps.
fn named(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let dumps = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let dumps = dumps.filter(|entry| entry.file_name() != TABLE_FILE);
    dumps.map(|entry| entry.metadata().unwrap().blocks() * 512).sum()
}

fn dumps(folder: &Path) -> Vec<String> {
    names(folder).into_iter().filter(|name| name != TABLE_FILE).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Begin { mib: u64, rotate: bool },
    Kill(usize),
    KillWhileNaming(usize),
    End(usize),
    Open(usize),
    Charge(usize, usize, u64),
    Name(usize, usize),
    GiveUp(usize, usize),
    Remove(usize),
    Look(usize),
    Due(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let run = || 0..RUNS;
    let act = prop_oneof![
        2 => (1u64..4, any::<bool>()).prop_map(|(mib, rotate)| Act::Begin { mib, rotate }),
        1 => run().prop_map(Act::Kill),
        1 => run().prop_map(Act::KillWhileNaming),
        1 => run().prop_map(Act::End),
        4 => run().prop_map(Act::Open),
        12 => (run(), 0usize..4, 4u64..100).prop_map(|(run, file, units)| Act::Charge(run, file, units * 8 * KIB)),
        6 => (run(), 0usize..4).prop_map(|(run, file)| Act::Name(run, file)),
        1 => (run(), 0usize..4).prop_map(|(run, file)| Act::GiveUp(run, file)),
        1 => (0usize..20).prop_map(Act::Remove),
        2 => run().prop_map(Act::Look),
        3 => run().prop_map(Act::Due),
    ];
    proptest::collection::vec(act, 20..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn runs_together_never_take_more_than_the_smallest_budget_and_no_claim_outlives_its_run(acts in acts()) {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        let mut runs: Vec<Run> = Vec::new();
        let mut number = 0;
        // What runs had claimed when one with a smaller budget began: they may still use it.
        let mut claimed_before = 0;
        for act in acts {
            let count = runs.len();
            let at = |run: usize| run.checked_rem(count);
            let file_of = |runs: &[Run], run: usize, file: usize| {
                let run = run.checked_rem(runs.len())?;
                Some((run, file.checked_rem(runs[run].open.len())?))
            };
            let before = dumps(folder);
            let mut may_delete = false;
            match act {
                Act::Begin { mib, rotate } if count < RUNS => {
                    if runs.iter().any(|run| run.limits.bytes_max > Some(mib << 20)) {
                        let taken = named(folder) + runs.iter().map(Run::charged).sum::<u64>();
                        claimed_before = taken + count as u64 * CLAIM_BYTES;
                    }
                    runs.push(Run::new(folder, mib << 20, rotate));
                }
                Act::Begin { .. } => {}
                Act::Kill(run) => {
                    if let Some(run) = at(run) {
                        runs.remove(run).kill();
                    }
                }
                Act::KillWhileNaming(run) => {
                    if let Some(mut run) = at(run).map(|run| runs.remove(run)) {
                        // A file has 16 KiB at least: they were charged.
                        if let Some((mut charged, bytes)) = run.open.pop_if(|open| open.1 >= 16 * KIB) {
                            number += 1;
                            // The file has its name, and nobody was told.
                            let _ = charged.name(bytes, || {
                                write(folder, number, bytes);
                                Err(io::Error::other("killed"))
                            });
                            run.budget.lock().others = Others::default();
                        }
                        run.kill();
                    }
                }
                Act::End(run) => drop(at(run).map(|run| runs.remove(run))),
                Act::Open(run) => {
                    if let Some(run) = at(run) {
                        let charged = Charged::to(&Some(runs[run].budget.clone()));
                        runs[run].open.push((charged, 0));
                    }
                }
                Act::Charge(run, file, bytes) => {
                    let Some((run, file)) = file_of(&runs, run, file) else { continue };
                    may_delete = runs[run].limits.rotate;
                    let done = runs[run].charge(file, bytes);
                    let taken = named(folder) + runs.iter().map(Run::charged).sum::<u64>();
                    let budget = runs.iter().filter_map(|run| run.limits.bytes_max).min().unwrap();
                    prop_assert!(!done || taken <= budget.max(claimed_before), "{taken} of {budget}");
                    if !done {
                        // Who has looked into the folder is refused for want of room alone, but for what
                        // others claim in blocks.
                        runs[run].is_due();
                        let unused = (runs.len() as u64 - 1) * CLAIM_BYTES;
                        let done = runs[run].charge(file, bytes);
                        prop_assert!(done || taken + bytes + unused > budget, "{taken} + {bytes} + {unused} \
                            fit into {budget}");
                        let taken = named(folder) + runs.iter().map(Run::charged).sum::<u64>();
                        prop_assert!(!done || taken <= budget.max(claimed_before), "{taken} of {budget}");
                    }
                }
                Act::Name(run, file) => {
                    let Some((run, file)) = file_of(&runs, run, file) else { continue };
                    if runs[run].open[file].1 >= 16 * KIB {
                        number += 1;
                        runs[run].name(folder, file, number);
                    }
                }
                Act::GiveUp(run, file) => {
                    let Some((run, file)) = file_of(&runs, run, file) else { continue };
                    runs[run].open.remove(file);
                }
                Act::Remove(file) => {
                    if let Some(file) = file.checked_rem(before.len()) {
                        std::fs::remove_file(folder.join(&before[file])).unwrap();
                        may_delete = true;
                    }
                }
                Act::Look(run) => {
                    if let Some(run) = at(run) {
                        let _ = runs[run].budget.look();
                    }
                }
                Act::Due(run) => {
                    if let Some(run) = at(run) {
                        runs[run].is_due();
                    }
                }
            }
            let after = dumps(folder);
            prop_assert!(may_delete || before.iter().all(|name| after.contains(name)), "deleted without \
                being asked");
        }
    }
}

#[test]
fn what_one_run_is_making_counts_for_the_others_and_the_smaller_budget_holds() {
    let place = tempfile::tempdir().unwrap();
    let (mut large, mut small) =
        (Run::new(place.path(), 8 * MIB, false), Run::new(place.path(), 4 * MIB, false));
    let new = |run: &mut Run, bytes| {
        run.open.push((Charged::to(&Some(run.budget.clone())), 0));
        let last = run.open.len() - 1;
        run.charge(last, bytes)
    };
    assert!(new(&mut large, 3 * MIB));
    assert!(!new(&mut small, 2 * MIB) && new(&mut small, MIB));
    small.budget.look();
    assert!(small.budget.is_full());
    let error = large.open[0].0.charge(MIB).unwrap_err().to_string();
    assert!(
        error.contains("4.0 MiB of the 4.0 MiB of --dump-budget, the smaller budget of another run"),
        "{error}"
    );
    assert_eq!(large.budget.usage().used, 4 * MIB);
    assert!(large.budget.is_bounded_by_another() && !small.budget.is_bounded_by_another());
    small.kill();
    assert!(large.charge(0, MIB) && large.charge(0, 4 * MIB), "its claim and its budget ended with it");
    assert!(!large.charge(0, 1));
}

#[test]
fn a_claim_is_asked_for_in_blocks_and_nobody_waits_long_for_a_run_that_was_stopped() {
    let place = tempfile::tempdir().unwrap();
    let mut run = Run::new(place.path(), 8 * MIB, false);
    run.open.push((Charged::to(&Some(run.budget.clone())), 0));
    assert!(run.charge(0, 1));
    // Another run was stopped while it looked.
    let table = OpenOptions::new().read(true).write(true).open(place.path().join(TABLE_FILE)).unwrap();
    assert!(locks::try_lock(&table, 0..64).unwrap());
    run.budget.lock().others.wait_no_more();
    for _ in 0..1000 {
        assert!(run.charge(0, 100), "within the block nobody is asked");
    }
    run.budget.lock().others.wait_no_more();
    let error = run.open[0].0.charge(CLAIM_BYTES).unwrap_err().to_string();
    assert!(error.contains("another run holds the lock of wirescope.budget"), "{error}");
    drop(table);
    assert!(run.charge(0, CLAIM_BYTES));
}

#[test]
fn what_one_run_deletes_is_room_for_the_others_and_none_deletes_more_than_is_needed() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    let (mut first, mut second) =
        (Run::new(place.path(), 7 * MIB, true), Run::new(place.path(), 7 * MIB, true));
    for run in [&mut first, &mut second] {
        run.open.push((Charged::to(&Some(run.budget.clone())), 0));
        // Both know all seven, and read the folder no more by themselves.
        let mut state = run.budget.lock();
        while state.look_into_next(&run.budget.folder) {}
        state.next_read = Some(Instant::now() + Duration::from_secs(3600));
    }
    assert!(first.charge(0, MIB));
    assert_eq!(dumps(place.path()), all[1..]);
    assert!(second.charge(0, MIB));
    assert_eq!(dumps(place.path()), all[2..], "the one that was gone already is neither missed nor counted");
    assert_eq!(second.budget.usage().used, 7 * MIB);
    let deleted = |run: &Run| run.budget.usage().deleted;
    assert_eq!((deleted(&first), deleted(&second)), (1, 1));
    // Without having been told: it finds that out when it deletes.
    std::fs::remove_file(place.path().join(&all[2])).unwrap();
    assert!(second.charge(0, MIB));
    assert_eq!(dumps(place.path()), all[3..]);
    assert_eq!((deleted(&second), second.budget.usage().used), (1, 7 * MIB));
}

#[test]
fn a_file_that_got_its_name_by_a_run_that_was_killed_before_it_could_say_so_counts_at_once() {
    let place = tempfile::tempdir().unwrap();
    let (mut first, mut second) =
        (Run::new(place.path(), 4 * MIB, false), Run::new(place.path(), 4 * MIB, false));
    for run in [&mut first, &mut second] {
        run.open.push((Charged::to(&Some(run.budget.clone())), 0));
        run.budget.lock().next_read = Some(Instant::now() + Duration::from_secs(3600));
    }
    assert!(first.charge(0, 3 * MIB));
    let (mut charged, bytes) = first.open.remove(0);
    let _ = charged.name(bytes, || {
        write(place.path(), 1, bytes);
        Err(io::Error::other("killed"))
    });
    first.budget.lock().others = Others::default();
    drop(charged);
    first.kill();
    assert!(!second.charge(0, 2 * MIB), "3 of 4 MiB are taken");
    assert!(second.charge(0, MIB));
}

#[test]
fn what_others_claim_while_a_run_deletes_is_not_taken_for_deleting_in_vain() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    let (mut first, mut second) =
        (Run::new(place.path(), 8 * MIB, true), Run::new(place.path(), 8 * MIB, true));
    for run in [&mut first, &mut second] {
        run.open.push((Charged::to(&Some(run.budget.clone())), 0));
    }
    // It knows of all of this only once it looks again.
    let budget = first.budget.clone();
    let mut state = budget.lock();
    assert!(second.charge(0, MIB));
    budget.make_room(&mut state, 2 * MIB);
    assert!(!state.no_gain());
    drop(state);
    assert!(first.charge(0, 2 * MIB) && first.charge(0, MIB));
    assert_eq!(dumps(place.path()), all[3..]);
}

#[test]
fn no_run_deletes_for_the_smaller_budget_of_one_that_does_not_delete_itself() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    let mut large = Run::new(place.path(), 9 * MIB, true);
    large.open.push((Charged::to(&Some(large.budget.clone())), 0));
    let small = Run::new(place.path(), 4 * MIB, false);
    assert!(!large.charge(0, MIB));
    large.budget.look();
    // Told when a second reading says so, too.
    for _ in 0..1000 {
        large.budget.look();
        if large.budget.is_full() {
            break;
        }
        std::thread::sleep(READ_PAUSE_MIN);
    }
    assert!(large.budget.is_full());
    assert_eq!(dumps(place.path()), all);
    drop(small);
    assert!(large.charge(0, 2 * MIB) && dumps(place.path()) == all);
    let _small = Run::new(place.path(), 4 * MIB, true);
    assert!(large.charge(0, MIB), "both delete");
    assert_eq!(dumps(place.path()), all[6..]);
}

#[test]
fn a_dump_whose_files_get_their_names_in_another_run_is_not_deleted() {
    let place = tempfile::tempdir().unwrap();
    let all = seven(place.path());
    // The other one has a lock on each until all of them have their names.
    let making = OpenOptions::new().write(true).open(place.path().join(&all[0])).unwrap();
    assert!(locks::try_lock(&making, locks::WHOLE).unwrap());
    let mut run = Run::new(place.path(), 7 * MIB, true);
    run.open.push((Charged::to(&Some(run.budget.clone())), 0));
    assert!(run.charge(0, MIB));
    assert_eq!(dumps(place.path()), [&all[..1], &all[2..]].concat());
    drop(making);
    run.is_due();
    assert!(run.charge(0, MIB));
    assert_eq!(dumps(place.path()), all[2..]);
}

#[test]
fn runs_find_each_other_again_when_the_table_was_moved_away() {
    let place = tempfile::tempdir().unwrap();
    let (mut first, mut second) =
        (Run::new(place.path(), 4 * MIB, false), Run::new(place.path(), 4 * MIB, false));
    for run in [&mut first, &mut second] {
        run.open.push((Charged::to(&Some(run.budget.clone())), 0));
    }
    assert!(first.charge(0, 3 * MIB));
    std::fs::remove_file(place.path().join(TABLE_FILE)).unwrap();
    let began = Instant::now();
    while second.budget.usage().used > 0 || !place.path().join(TABLE_FILE).exists() {
        assert!(began.elapsed() < Duration::from_secs(120));
        second.budget.look();
    }
    while second.budget.usage().used < 3 * MIB {
        assert!(began.elapsed() < Duration::from_secs(120));
        first.budget.look();
        second.budget.look();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!second.charge(0, 2 * MIB) && second.charge(0, MIB));
}

#[test]
fn what_is_no_table_is_refused_and_where_there_can_be_none_that_is_said() {
    let check = |make: &dyn Fn(&Path), expected: &str| {
        let place = tempfile::tempdir().unwrap();
        make(&place.path().join(TABLE_FILE));
        let budget = open(place.path(), Limits { bytes_max: Some(4 * MIB), ..Limits::default() });
        let error = budget.join().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&|path| std::os::unix::fs::symlink("/etc/hostname", path).unwrap(), "symbolic link");
    check(&|path| std::fs::create_dir(path).unwrap(), "it is a folder");
    check(
        &|path| std::fs::write(path, "somebody's accounts").unwrap(),
        "it is not a budget table of wirescope: move it away",
    );
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("gone");
    std::fs::create_dir(&folder).unwrap();
    let budget = open(&folder, Limits { bytes_max: Some(4 * MIB), ..Limits::default() });
    std::fs::remove_dir(&folder).unwrap();
    budget.join().unwrap();
    assert!(matches!(&budget.look()[..], [Change::Alone(why)] if why.starts_with(TABLE_FILE)));
    assert!(budget.look().is_empty(), "once");
    Charged::to(&Some(budget)).charge(MIB).unwrap();
    let runs: Vec<Run> = (0..table::RUNS_MAX).map(|_| Run::new(place.path(), 4 * MIB, false)).collect();
    let budget = open(place.path(), Limits { bytes_max: Some(4 * MIB), ..Limits::default() });
    let error = budget.join().unwrap_err().to_string();
    assert!(error.contains("63 runs share the budget of this folder already"), "{error}");
    drop(runs);
    budget.join().unwrap();
}
