//! The store: what a run keeps on disk beside its ring, within its bounds, and what is there after a kill.

mod run;

use run::{Done, Place, Started, finish, wait_until, wirescope};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, RAW};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

fn capture(packets: usize, link_types: &[u16]) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    Conversations { interfaces, packets, payload_max: 1200, ..Conversations::default() }.capture()
}

/// The files of a store with this ending, the oldest first.
fn files(store: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(store)
        .into_iter()
        .flatten()
        .filter_map(|entry| std::fs::read_dir(entry.ok()?.path()).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    found.sort();
    found
}

fn packets_in(files: &[PathBuf]) -> usize {
    files.iter().map(|file| oracle::read(file).expect("a capture").capture.packets.len()).sum()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// `published = stored + filtered + missed + behind`, over all volumes.
fn check_law(totals: &Value) {
    for unit in ["packets", "bytes"] {
        let sum: u64 = totals["stores"]
            .as_array()
            .expect("a list")
            .iter()
            .flat_map(|volume| ["stored", "filtered", "missed", "behind"].map(|key| &volume[key][unit]))
            .map(|count| count.as_u64().expect("a count"))
            .sum();
        assert_eq!(Some(sum), totals["stored"][unit].as_u64(), "{unit}: {totals}");
    }
}

/// The summary of a run that ends by itself, which has lost nothing.
fn totals(place: &Place, arguments: &[&str]) -> Value {
    let done = place.run(arguments);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    done.summary().assert_adds_up();
    let totals = serde_json::from_str(&done.stdout).expect("one JSON object");
    check_law(&totals);
    totals
}

/// All `status` and `end` lines of the log.
fn check_log(place: &Place) -> Vec<Value> {
    let log = std::fs::read_to_string(place.out().join("wirescope.jsonl")).expect("a log");
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for line in lines.iter().filter(|line| line["event"] == "status" || line["event"] == "end") {
        check_law(line);
    }
    lines
}

#[test]
fn everything_that_came_is_in_the_store_and_other_programs_read_it() {
    let input = capture(3000, &[ETHERNET, ETHERNET]);
    let place = Place::new();
    let store = place.path("store");
    let summary = totals(&place, &["--source", &place.source(&input), "--store", text(&store)]);
    let volume = &summary["stores"][0];
    assert_eq!(volume["stored"]["packets"], 3000);
    assert_eq!((&volume["missed"]["packets"], &volume["state"]), (&0.into(), &"writing".into()));
    let stored = files(&store, ".pcapng");
    assert_eq!((stored.len(), files(&store, ".part").len()), (1, 0), "{stored:?}");
    oracle::opens_cleanly(&stored[0]).unwrap();
    assert_eq!(difference(&input, &oracle::read(&stored[0]).unwrap().capture), None);
    let name = stored[0].file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.ends_with("_ETHERNET_000001.pcapng"), "{name}");
}

#[test]
fn at_the_end_a_volume_says_its_rate_of_the_whole_run_and_how_far_its_packets_reach() {
    let place = Place::new();
    let store = place.path("store");
    let source = "synth:rate=1k,time=3s"; // as fast as the clock goes
    let summary = totals(&place, &["--source", source, "--store", text(&store), "--store-budget", "40MiB"]);
    let lines = check_log(&place);
    let end = lines.iter().find(|line| line["event"] == "end").expect("an end");
    for volume in [&summary["stores"][0], &end["stores"][0]] {
        let (rate, stored) = (volume["bytes_per_s"].as_u64(), volume["stored"]["bytes"].as_u64());
        assert!(rate > Some(0) && rate < stored.map(|bytes| bytes / 2), "{volume}");
        let reach_s = volume["reaches_back_s"].as_u64();
        assert!(matches!(reach_s, Some(2..=3)), "{volume}");
    }
}

#[test]
fn two_link_types_are_two_files() {
    let place = Place::new();
    let store = place.path("store");
    let source = place.source(&capture(500, &[ETHERNET, RAW]));
    totals(&place, &["--source", &source, "--store", text(&store)]);
    let stored = files(&store, ".pcapng");
    assert_eq!((stored.len(), packets_in(&stored)), (2, 500), "{stored:?}");
    stored.iter().for_each(|file| oracle::opens_cleanly(file).unwrap());
}

#[test]
fn two_volumes_share_what_comes() {
    let place = Place::new();
    let stores = [place.path("a"), place.path("b")];
    let arguments =
        ["--ring", "64MiB", "--segment", "64KiB", "--store", text(&stores[0]), "--store", text(&stores[1])];
    let source = "synth:packets=60k,size=1000,pace=max,seed=3";
    let summary = totals(&place, &[&["--source", source], &arguments[..]].concat());
    let all: Vec<PathBuf> = stores.iter().flat_map(|store| files(store, ".pcapng")).collect();
    assert_eq!(packets_in(&all), 60_000);
    for volume in summary["stores"].as_array().unwrap() {
        assert!(volume["stored"]["packets"].as_u64() > Some(0), "{volume}");
    }
    check_log(&place);
    let verify = |stores: &[PathBuf]| {
        let arguments: Vec<&str> =
            ["verify"].into_iter().chain(stores.iter().map(|store| text(store))).collect();
        let done = finish(wirescope(&arguments));
        assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
        done.stdout
    };
    assert!(!verify(&stores).contains("volumes"), "nothing is missing from both");
    let said = verify(&stores[..1]);
    let expected = ": 1 of 2 volumes was given; packets may be in the other";
    assert!(
        said.lines().any(|line| line.ends_with(expected)) && said.contains("in another volume?"),
        "{said}"
    );
    assert!(said.lines().all(|line| line.contains("_ETHERNET_") || line.chars().count() <= 80), "{said}");
}

#[test]
fn a_list_or_an_export_of_one_volume_of_several_says_that_others_may_have_the_rest() {
    let place = Place::new();
    let stores = [place.path("a"), place.path("b")];
    let flags =
        ["--ring", "64MiB", "--segment", "64KiB", "--store", text(&stores[0]), "--store", text(&stores[1])];
    totals(&place, &[&["--source", "synth:packets=60k,size=1000,pace=max,seed=3"], &flags[..]].concat());
    let list = |stores: &[PathBuf]| {
        let stores: Vec<&str> = stores.iter().flat_map(|store| ["--store", text(store)]).collect();
        let done = finish(wirescope(&[&["store", "list"], &stores[..]].concat()));
        let json = finish(wirescope(&[&["store", "list", "--json"], &stores[..]].concat()));
        assert_eq!((done.code(), json.code()), (Some(0), Some(0)), "{}", done.stderr);
        let object: Value = serde_json::from_str(&json.stdout).unwrap();
        (done.stdout, object["stores"][0]["runs"][0].clone())
    };
    let (said, run) = list(&stores[..1]);
    assert!(said.contains(": 1 of 2 volumes was given; up to ") && said.contains("in the other"), "{said}");
    assert!(!said.contains("missing") && !said.contains("not_stored"), "{said}");
    let reasons = |run: &Value| {
        run["missing"].as_array().unwrap().iter().map(|gap| gap["reason"].clone()).collect::<Vec<_>>()
    };
    assert!(!reasons(&run).is_empty() && reasons(&run).iter().all(|reason| reason == "elsewhere"), "{run}");
    assert_eq!(run["volumes_not_given"], 1);
    let (said, run) = list(&stores);
    assert!(!said.contains("volumes") && !said.contains("missing"), "{said}");
    assert_eq!((reasons(&run).len(), &run["volumes_not_given"]), (0, &0.into()));
    let export = |out: &str, stores: &[PathBuf]| {
        let stores: Vec<&str> = stores.iter().flat_map(|store| ["--store", text(store)]).collect();
        let done = finish(wirescope(&[&["export", "-w", text(&place.path(out))], &stores[..]].concat()));
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done.stdout
    };
    let said = export("one.pcapng", &stores[..1]);
    assert!(said.contains(": 1 of 2 volumes was given; up to "), "{said}");
    assert!(said.contains("; nothing else is missing between them"), "{said}");
    let said = export("both.pcapng", &stores);
    assert!(said.contains("60,000 packets in 1 file; nothing is missing between them"), "{said}");
    let verified = finish(wirescope(&["verify", text(&place.path("one.pcapng"))]));
    assert!(verified.stdout.contains("one.pcapng: export, "), "{}", verified.stdout);
}

#[test]
fn a_budget_is_kept_the_oldest_file_goes_first_and_each_deletion_is_told() {
    let place = Place::new();
    let store = place.path("store");
    let bounds = ["--store-budget", "40MiB", "--store-file", "8MiB"];
    let source = "synth:packets=80k,size=1000,pace=max,seed=3";
    let store_flags = ["--ring", "64MiB", "--segment", "64KiB", "--store", text(&store)];
    let summary = totals(&place, &[&["--source", source], &store_flags[..], &bounds].concat());
    let volume = &summary["stores"][0];
    assert_eq!(volume["stored"]["packets"], 80_000);
    assert!(volume["deleted"]["packets"].as_u64() > Some(0), "{volume}");
    let stored = files(&store, ".pcapng");
    let bytes: u64 = stored.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= 40 * MIB && bytes > 20 * MIB, "{bytes}");
    let lines = check_log(&place);
    let deleted: Vec<&Value> = lines.iter().filter(|line| line["event"] == "store_deleted").collect();
    let packets: u64 = deleted.iter().map(|line| line["packets"].as_u64().unwrap()).sum();
    assert_eq!(packets_in(&stored) as u64 + packets, 80_000, "what isn't there was deleted");
    assert!(
        deleted
            .iter()
            .all(|line| line["why"] == "--store-budget" && line["hash"].as_str().unwrap().len() == 32)
    );
    let names: Vec<&str> = deleted.iter().map(|line| line["file"].as_str().unwrap()).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn a_bound_holds_at_the_start_for_what_earlier_runs_left() {
    let place = Place::new();
    let store = place.path("store");
    let source = "synth:packets=60k,size=1000,pace=max,seed=3";
    let flags = ["--ring", "64MiB", "--segment", "64KiB", "--store", text(&store), "--store-file", "8MiB"];
    totals(&place, &[&["--source", source], &flags[..]].concat());
    let before: u64 = files(&store, ".pcapng").iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(before > 50 * MIB);
    let again =
        [&["--source", "synth:packets=10,pace=max"], &flags[..], &["--store-budget", "40MiB"]].concat();
    totals(&place, &again);
    let after: u64 = files(&store, ".pcapng").iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(after <= 40 * MIB, "{after}");
}

/// A run that stores until it is stopped.
fn endless(place: &Place, store: &Path, more: &[&str]) -> Started {
    let mut arguments =
        vec!["--source", "synth:rate=20k,size=500,seed=7", "--ring", "64MiB", "--segment", "64KiB"];
    arguments.extend(["--store", text(store), "--store-flush", "100ms", "--store-file", "8MiB"]);
    arguments.extend(more);
    Started::new(place.command(&arguments))
}

#[test]
fn after_a_kill_everything_that_was_flushed_is_there_again() {
    let place = Place::new();
    let store = place.path("store");
    let started = endless(&place, &store, &["--status-every", "1s"]);
    let log = place.out().join("wirescope.jsonl");
    let acknowledged = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let stored = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            line["stores"][0]["stored"]["packets"].as_u64()
        };
        log.lines().filter_map(stored).max().unwrap_or(0)
    };
    wait_until("packets on the disk", || acknowledged() > 40_000);
    started.signal(libc::SIGKILL);
    let _ = started.finish(run::LIMIT);
    let promised = acknowledged();
    let growing = files(&store, ".part");
    assert_eq!(growing.len(), 1, "{growing:?}");
    // A write that the kill cut may have left half a block at the end; what was reported stands in front of it.
    if oracle::have("tshark") {
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-T", "fields", "-e", "frame.number", "-r"]).arg(&growing[0]);
        let shown = tshark.output().unwrap();
        let shown =
            String::from_utf8_lossy(&shown.stdout).lines().count() + packets_in(&files(&store, ".pcapng"));
        let shown = shown as u64;
        assert!(shown >= promised, "{shown} of {promised}");
    }
    let next = place.run(&["--source", "synth:packets=10,pace=max", "--store", text(&store)]);
    assert_eq!(next.code(), Some(0), "{}", next.stderr);
    assert_eq!(files(&store, ".part"), Vec::<PathBuf>::new());
    let recovered: Value = serde_json::from_str(&next.stdout).expect("a summary");
    let recovered = recovered["stores"][0]["recovery"].clone();
    let stored = files(&store, ".pcapng");
    stored.iter().for_each(|file| oracle::opens_cleanly(file).unwrap());
    let there = packets_in(&stored) as u64;
    assert!(there >= promised + 10, "{there} of {promised}");
    let lines = check_log(&place);
    let closed: Vec<&Value> =
        lines.iter().filter(|line| line["event"] == "store_file" && !line["cut_off"].is_null()).collect();
    assert_eq!(closed.len(), 1);
    // What became of the file is told once, at the end, to people, in the log and in the summary.
    let ends: Vec<&Value> = lines.iter().filter(|line| line["event"] == "store_recovery").collect();
    assert_eq!((ends.len(), &ends[0]["over"]), (1, &true.into()), "{ends:?}");
    for end in [ends[0], &recovered] {
        for key in ["files", "files_done", "closed"] {
            assert_eq!(end[key], 1, "{key}: {end}");
        }
        assert_eq!((&end["removed"], &end["bytes_done"]), (&0.into(), &end["bytes"]), "{end}");
        assert_eq!(end["packets"], closed[0]["packets"], "{end}");
        assert!(end["segments"].as_u64() > Some(0) && end["took_s"].as_f64() > Some(0.0), "{end}");
    }
    assert!(next.stderr.contains(": closed 1 file left growing: kept "), "{}", next.stderr);
}

#[test]
fn that_a_bound_deletes_what_a_run_stores_since_its_times_are_old_is_told_once_with_what_to_do() {
    let place = Place::new();
    let store = place.path("store");
    let old = "synth:packets=40k,size=1000,pace=max,seed=3,start=2020-01-01T00:00:00Z";
    let flags = ["--ring", "64MiB", "--segment", "64KiB", "--store", text(&store), "--store-file", "8MiB"];
    let run = |source: &str, more: &[&str]| {
        let done = place.run(&[&["--source", source], &flags[..], more].concat());
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let told =
            |line: &&str| line.starts_with("the store in ") && line.contains("deletes what this run stores");
        let told: Vec<String> = done.stderr.lines().filter(told).map(str::to_string).collect();
        (told, serde_json::from_str::<Value>(&done.stdout).expect("a summary"))
    };
    let (told, summary) = run(old, &["--store-age", "1d"]);
    assert_eq!(summary["stores"][0]["files"], 0, "{summary}");
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [
        " went for --store-age, because its packets are older ",
        "with packets up to 2020-01-01T",
        "omit --store-age",
    ] {
        assert!(told[0].contains(part), "no '{part}' in {told:?}");
    }
    // What is of now stays, and what is old goes before it.
    let (told, _) = run("synth:packets=20k,size=1000,pace=max,seed=3", &["--store-budget", "48MiB"]);
    assert_eq!(told, [""; 0]);
    let (told, _) = run(old, &["--store-budget", "48MiB"]);
    assert!(told.len() == 1 && told[0].contains(" went for --store-budget, "), "{told:?}");
    assert!(
        told[0].contains("older than those of earlier runs") && told[0].contains("raise --store-budget"),
        "{told:?}"
    );
}

#[test]
fn what_found_no_place_in_a_store_is_told_with_all_of_its_span() {
    let place = Place::new();
    let store = place.path("store");
    let flags = ["--ring", "64MiB", "--segment", "64KiB", "--store", text(&store), "--store-file", "8MiB"];
    totals(&place, &[&["--source", "synth:packets=45k,size=1000,pace=max"], &flags[..]].concat());
    let hold = ["--from", "2000-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z", "--note", "x"];
    let added = finish(wirescope(&[&["hold", "add", "--store", text(&store)], &hold[..]].concat()));
    assert_eq!(added.code(), Some(0), "{}", added.stderr);
    // Most of it is still in the ring when the run ends.
    let bounds = ["--store-budget", "40MiB", "--store-behind", "256KiB"];
    let source = ["--source", "synth:rate=10k,size=500,packets=15k"];
    let done = place.run(&[&source, &flags[..], &bounds].concat());
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let seconds = |text: &Value| {
        let text = text.as_str().expect("a time").trim_end_matches('Z');
        let clock = text.split('T').nth(1).expect("date and time").split(':');
        clock.fold(0.0, |sum: f64, part| sum * 60.0 + part.parse::<f64>().expect("a number"))
    };
    let summary: Value = serde_json::from_str(&done.stdout).expect("a summary");
    let volume = &summary["stores"][0];
    assert_eq!(volume["missed"]["packets"], 15_000, "{volume}");
    let span = &volume["missed_span"];
    let length = (seconds(&span["to"]) - seconds(&span["from"])).rem_euclid(86_400.0);
    assert!((length - 1.5).abs() < 0.1, "{span}: 15,000 packets, one each 100 us");
}

#[test]
fn one_run_writes_a_store_and_foreign_files_stay() {
    let place = Place::new();
    let store = place.path("store");
    std::fs::create_dir(&store).unwrap();
    std::fs::write(store.join("notes.txt"), "mine").unwrap();
    let first = endless(&place, &store, &[]);
    wait_until("the first file", || !files(&store, ".part").is_empty());
    let second = place.run(&["--source", "synth:packets=10", "--store", text(&store)]);
    assert_eq!(second.code(), Some(2), "{}", second.stderr);
    assert!(second.stderr.contains("another run writes this store"), "{}", second.stderr);
    first.signal(libc::SIGINT);
    let done = first.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("notes.txt"), "it is named: {}", done.stderr);
    assert_eq!(std::fs::read_to_string(store.join("notes.txt")).unwrap(), "mine");
    assert_eq!(files(&store, ".part"), Vec::<PathBuf>::new());
    check_log(&place);
}

#[test]
fn what_can_t_be_a_store_is_refused_before_anything_starts() {
    let place = Place::new();
    let store = place.path("store");
    let refused = |arguments: &[&str], parts: &[&str]| {
        let done: Done = place.run(&[&["--source", "synth:packets=10"], arguments].concat());
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.stderr);
        for part in parts {
            assert!(done.stderr.contains(part), "{arguments:?}: no '{part}' in {}", done.stderr);
        }
    };
    let out = place.out();
    refused(&["--store", text(&out)], &["--store", "dump folder"]);
    refused(&["--store", text(&store), "--store", text(&store)], &["the same folder"]);
    refused(&["--store", "/no/such/folder"], &["/no/such"]);
    refused(&["--store-budget", "1GiB"], &["--store-budget: there is no store", "--store DIR"]);
    refused(
        &["--store", text(&store), "--store-budget", "3MiB"],
        &["--store-budget", "write at least 33MiB:"],
    );
    refused(
        &["--store", text(&store), "--store-budget", "100MiB", "--store-file", "1GiB"],
        &["--store-budget: 100 MiB is less than 4 files", "write at least 4097MiB, or --store-file 24MiB"],
    );
    refused(&["--store", text(&store), "--store-budget", "1x"], &["--store-budget", "1x"]);
    refused(&["--store", text(&store), "--store-file", "1MiB"], &["--store-file", "8MiB"]);
    refused(&["--store", text(&store), "--store-flush", "1ms"], &["--store-flush"]);
    refused(&["--store", text(&store), "--store-behind", "90%"], &["--store-behind", "half"]);
    refused(&["--store", text(&store), "--store-age", "1d", "--store-age", "2d"], &["2 values for 1 volume"]);
    assert!(!store.exists(), "nothing was made");
    let file = place.path("file");
    std::fs::write(&file, "x").unwrap();
    refused(&["--store", text(&file)], &["not a folder"]);
}

#[test]
fn a_reload_changes_a_budget() {
    let place = Place::new();
    let store = place.path("store");
    let config = place.path("c.toml");
    let write = |budget: &str| std::fs::write(&config, format!("store-budget = \"{budget}\"\n")).unwrap();
    write("400MiB");
    let started = endless(&place, &store, &["--config", text(&config), "--status-every", "1s"]);
    let used = || -> u64 {
        let all = files(&store, ".pcapng").into_iter().chain(files(&store, ".part"));
        all.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    wait_until("more than the smaller budget", || used() > 48 * MIB);
    write("40MiB");
    started.signal(libc::SIGHUP);
    wait_until("less than the smaller budget", || used() <= 40 * MIB);
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    check_log(&place);
}

#[test]
fn a_chain_grows_with_the_files_and_verify_holds_it() {
    let place = Place::new();
    let store = place.path("store");
    let flags = ["--store", text(&store), "--store-file", "8MiB", "--store-chain"];
    let source = "synth:packets=40k,size=1000,pace=max,seed=3";
    let summary = totals(&place, &[&["--source", source], &flags[..]].concat());
    let head = summary["stores"][0]["chain"].as_str().expect("a head").to_string();
    let lines = check_log(&place);
    let closed: Vec<&Value> = lines.iter().filter(|line| line["event"] == "store_file").collect();
    assert_eq!(closed.last().unwrap()["hash"], head.as_str());
    assert_eq!(closed.len(), files(&store, ".pcapng").len());
    let verify = |more: &[&str]| finish(wirescope(&[&["verify", text(&store)], more].concat()));
    let whole = verify(&["--expect", &head]);
    assert_eq!(whole.code(), Some(0), "{}{}", whole.stdout, whole.stderr);
    let victim = &files(&store, ".pcapng")[1];
    let mut bytes = std::fs::read(victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(victim, bytes).unwrap();
    let changed = verify(&["--expect", &head]);
    assert_eq!(changed.code(), Some(1), "{}{}", changed.stdout, changed.stderr);
}

/// The lines of a store's chain.
fn chain(store: &Path) -> String {
    std::fs::read_to_string(store.join("chain.jsonl")).unwrap_or_default()
}

#[test]
fn files_that_a_killed_run_gave_no_line_get_theirs_by_the_next_run() {
    let place = Place::new();
    let store = place.path("store");
    let flags = ["--store", text(&store), "--store-file", "8MiB", "--store-budget", "400MiB"];
    let source = "synth:packets=100k,size=1000,pace=max,seed=3";
    totals(&place, &[&["--source", source, "--store-chain"], &flags[..]].concat());
    let verify = |code: i32| {
        let done = finish(wirescope(&["verify", text(&store)]));
        assert_eq!(done.code(), Some(code), "{}{}", done.stdout, done.stderr);
        assert_eq!(done.stdout.contains("isn't in it"), code == 1, "{}", done.stdout);
    };
    verify(0);
    // As after a kill between the names and the lines, one of which was cut.
    let whole = chain(&store);
    let lines: Vec<&str> = whole.lines().collect();
    assert!(lines.len() > 5);
    let left = lines.len() - 3;
    std::fs::write(store.join("chain.jsonl"), [&lines[..left].join("\n"), "\n", &lines[left][..40]].concat())
        .unwrap();
    verify(1);
    // Whether the next run keeps a chain or not.
    totals(&place, &[&["--source", "synth:packets=10,pace=max"], &flags[..]].concat());
    assert_eq!(chain(&store), whole, "the same lines: each stands for the same bytes");
    verify(0);
}

#[test]
fn after_kills_the_chain_has_all_files_of_the_runs_that_kept_it() {
    let place = Place::new();
    let store = place.path("store");
    let flags = ["--store", text(&store), "--store-file", "8MiB", "--store-budget", "4GiB"];
    for (round, chains) in [true, true, false, true].into_iter().enumerate() {
        let chain = if chains { &["--store-chain"][..] } else { &[] };
        let source = format!("synth:rate=30k,size=1000,seed={round}");
        let started = Started::new(
            place.command(&[&["--source", &source, "--ring", "64MiB"], &flags[..], chain].concat()),
        );
        let before = files(&store, ".pcapng").len();
        wait_until("some files", || files(&store, ".pcapng").len() > before + 8);
        started.signal(libc::SIGKILL);
        started.finish(run::LIMIT);
    }
    totals(&place, &[&["--source", "synth:packets=10,pace=max"], &flags[..]].concat());
    let done = finish(wirescope(&["verify", text(&store)]));
    assert!(!done.stdout.contains("isn't in it"), "{}", done.stdout);
    let runs: std::collections::BTreeSet<String> = chain(&store)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["run"].to_string())
        .collect();
    assert!(runs.len() >= 3, "{runs:?}");
}

/// Names of keys, by the list that they stand in.
type Keys = std::collections::BTreeMap<String, std::collections::BTreeSet<String>>;

/// The keys of the objects in a list, and of the lists in these.
fn keys(of: &str, list: &Value, keys_of: &mut Keys) {
    for object in list.as_array().into_iter().flatten().filter_map(Value::as_object) {
        for (key, value) in object {
            keys_of.entry(of.to_string()).or_default().insert(key.clone());
            keys(key, value, keys_of);
        }
    }
}

/// The keys in the tables of the page.
fn keys_of_the_page() -> Keys {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/store-list.md"));
    let (mut keys, mut of) = (Keys::new(), String::new());
    for line in page.unwrap().lines() {
        if let Some(heading) = line.strip_prefix("## Keys of ") {
            let lists = [("a store", "stores"), ("a run", "runs"), ("a file", "files"), ("a hold", "holds")];
            let list = lists.iter().find(|(what, _)| *what == heading);
            of = list.map_or("missing", |(_, list)| list).to_string();
        } else if let Some(row) = line.strip_prefix("| `") {
            let cell = row.split(" |").next().unwrap();
            keys.entry(of.clone())
                .or_default()
                .extend(cell.split("`, `").map(|key| key.trim_matches('`').to_string()));
        }
    }
    keys
}

#[test]
fn the_page_of_store_list_has_the_keys_of_its_object_and_no_others() {
    let place = Place::new();
    let store = place.path("store");
    let run = ["--ring", "64MiB", "--segment", "64KiB", "--store-budget", "40MiB", "--store-file", "8MiB"];
    totals(
        &place,
        &[&["--source", "synth:packets=20k,size=1000,pace=max", "--store", text(&store)], &run[..]].concat(),
    );
    let hold = ["hold", "add", "--from", "now", "--to", "now", "--note", "x", "--store", text(&store)];
    assert_eq!(finish(wirescope(&hold)).code(), Some(0));
    let stored = files(&store, ".pcapng");
    std::fs::remove_file(&stored[1]).unwrap(); // so that something is missing
    let done = finish(wirescope(&["store", "list", "--json", "--store", text(&store)]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let object: Value = serde_json::from_str(&done.stdout).unwrap();
    let mut found = Keys::new();
    keys("stores", &object["stores"], &mut found);
    assert_eq!(found, keys_of_the_page());
    assert!(object.as_object().unwrap().len() == 1);
}
