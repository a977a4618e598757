//! Whole runs on a stage: the engine's workers, ring, triggers and dumps with a simulated source, clock and
//! disk, so that the truth is known: every packet that was sent, and what became of it.
//!
//! | module | what it holds |
//! |---|---|
//! | `dice` | the random numbers of a seed |
//! | `stage` | threads of which one runs at a time, in simulated time |
//! | `scene` | what happens in a run, drawn before it begins |
//! | `packets` | the packets that are sent |
//! | `source` | the kernel's blocks and drops; files |
//! | `disk` | slow, frozen, full, read-only |
//! | `run` | the engine's parts, wired as a run wires them |
//! | `truth` | what each dump says, held against what was sent |
//!
//! A run depends on its seed alone. Absent on purpose: sockets, real time, and any knowledge of how a dump is
//! cut.

mod dice;
mod disk;
mod packets;
mod run;
mod scene;
mod source;
mod stage;
mod truth;

pub use truth::Tally;

use std::path::Path;

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What was met.
    pub tally: Tally,
    /// Statements that aren't true, in words; empty: all of them are.
    pub faults: Vec<String>,
}

/// Plays the run of `seed` and checks all that its dumps say. Its files are made in `folder` and removed.
///
/// # Panics
/// Where no folder can be made, or no thread.
pub fn trial(seed: u64, folder: &Path) -> Outcome {
    let folder =
        tempfile::Builder::new().prefix("sim-").tempdir_in(folder).expect("a folder for the dumps of a run");
    let ran = run::play(seed, folder.path());
    let (tally, faults) = truth::check(&ran);
    Outcome { seed, tally, faults }
}

/// The scene of `seed` in words, to read what led to a fault.
pub fn scene(seed: u64) -> String {
    let scene = scene::Scene::draw(&mut dice::Dice::new(seed));
    let packets = scene.packets.len();
    format!("{packets} packets; {:#?}", scene::Scene { packets: Vec::new(), ..scene })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_depends_on_its_seed_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let played = |seed: u64, name: &str| {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            let ran = run::play(seed, &folder);
            let said = |report: &scope_dump::DumpReport| {
                (report.packets, report.gaps.clone(), report.complete, report.hits)
            };
            ran.reports.iter().map(said).collect::<Vec<_>>()
        };
        for seed in 0..6 {
            assert_eq!(played(seed, &format!("{seed}a")), played(seed, &format!("{seed}b")), "seed {seed}");
        }
    }

    /// The faults of a run after its dumps' statements were changed, for the first seed of which a dump fits.
    fn faults(
        fits: impl Fn(&scope_dump::DumpReport) -> bool,
        change: impl Fn(&mut scope_dump::DumpReport),
    ) -> Vec<String> {
        for seed in 0.. {
            let folder = tempfile::tempdir().expect("a folder");
            let mut ran = run::play(seed, folder.path());
            if let Some(report) = ran.reports.iter_mut().find(|report| report.error.is_none() && fits(report))
            {
                change(report);
                let id = format!("dump {}: ", report.id);
                return truth::check(&ran).1.into_iter().filter(|fault| fault.starts_with(&id)).collect();
            }
        }
        Vec::new()
    }

    #[test]
    fn statements_that_are_not_true_are_found() {
        let check = |faults: Vec<String>, words: &str| {
            assert!(faults.iter().any(|fault| fault.contains(words)), "{words}: {faults:?}");
        };
        let lacking = |report: &scope_dump::DumpReport| report.lost_min > 1 && report.filter.is_empty();
        check(faults(lacking, |report| report.complete = true), "says complete and lacks");
        check(faults(lacking, |report| report.lost_max = report.lost_min - 1), "lacks");
        check(faults(lacking, |report| report.gaps.clear()), "outside of all gaps");
        let whole =
            |report: &scope_dump::DumpReport| report.complete && report.packets > 3 && !report.to_stream;
        check(faults(whole, |report| report.lost_min = 1), "lacks 0 packets and says");
        check(faults(whole, |report| report.packets += 1), "and says");
        check(faults(whole, |report| report.filter = "tcp".to_string()), "doesn't belong");
        check(faults(whole, |report| report.asked.1 += 1), "it was asked for");
        check(faults(whole, |report| report.paths.clear()), "lacks");
        let cut = |report: &scope_dump::DumpReport| {
            report.gaps.iter().any(|gap| gap.reason.name() == "interface_down")
        };
        check(faults(cut, |report| report.complete = true), "nobody listened");
    }

    /// The faults of the first run that fits, after it was changed.
    fn faults_of_run(fits: impl Fn(&run::Ran) -> bool, change: impl Fn(&mut run::Ran)) -> Vec<String> {
        for seed in 0.. {
            let folder = tempfile::tempdir().expect("a folder");
            let mut ran = run::play(seed, folder.path());
            if fits(&ran) {
                assert_eq!(truth::check(&ran).1, [""; 0], "seed {seed}");
                change(&mut ran);
                return truth::check(&ran).1;
            }
        }
        Vec::new()
    }

    #[test]
    fn a_file_that_is_not_there_and_one_that_is_cut_are_found() {
        let without_all = faults_of_run(|ran| ran.all.is_some(), |ran| ran.all = None);
        assert!(without_all.iter().any(|fault| fault.contains("the file of all windows")), "{without_all:?}");
        let file = |ran: &run::Ran| ran.reports.iter().find_map(|report| report.paths.first().cloned());
        let fits = |ran: &run::Ran| ran.scene.format == scope_dump::DumpFormat::Pcap && file(ran).is_some();
        let cut = |ran: &mut run::Ran| {
            let written = file(ran).map(|path| std::fs::OpenOptions::new().write(true).open(path));
            written.expect("it fits").expect("a file").set_len(10).expect("a shorter file");
        };
        let cut = faults_of_run(fits, cut);
        assert!(cut.iter().any(|fault| fault.contains("the head is truncated at 10")), "{cut:?}");
    }
}
