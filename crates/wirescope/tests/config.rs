//! Configuration files from outside: checked, shown, taken by a run, and read again while it goes.

mod live_lab;
mod run;

use live_lab::{Live, assert_nothing_lost, assert_offered, hit_frame, mixed_frames, stop};
use run::{Done, Place, Started, finish, names, wait_until, wirescope};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// Reloads in the test under load.
const RELOADS: usize = 100;

/// Writes the configuration of a test as a new file of the same name: a run never reads half of it.
fn write(place: &Place, text: &str) -> String {
    let (path, new) = (place.path("wirescope.toml"), place.path("new.toml"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path.to_str().unwrap().to_string()
}

/// Events of one kind in the log.
fn events(place: &Place, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap_or_default();
    // The last line may be half written.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|event| event["event"] == kind).collect()
}

/// Starts a run with the file and waits until it goes.
fn started(place: &Place, text: &str, flags: &[&str]) -> Started {
    let path = write(place, text);
    let started = Started::new(place.command(&[&["--config", &path], flags].concat()));
    wait_until("the start", || !events(place, "start").is_empty());
    started
}

/// Has a run read `text` and returns what it says of it.
fn reload(place: &Place, started: &Started, text: &str) -> Value {
    let before = events(place, "reload").len();
    write(place, text);
    started.signal(libc::SIGHUP);
    wait_until("the reload", || events(place, "reload").len() > before);
    events(place, "reload").remove(before)
}

fn check_refused(done: &Done, words: &[&str]) {
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert_eq!(done.stdout, "");
    words.iter().for_each(|word| assert!(done.stderr.contains(word), "no '{word}' in {}", done.stderr));
}

#[test]
fn a_file_that_can_t_be_taken_is_refused_with_place_cause_and_remedy() {
    let place = Place::new();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        std::fs::write(place.path(name), bytes).unwrap();
        place.path(name)
    };
    let long = vec![b'#'; (1 << 20) + 1];
    let cases: [(PathBuf, &[&str]); 7] = [
        (place.path("missing.toml"), &["missing.toml: no such file; "]),
        (place.out(), &["out: is a folder; give a file"]),
        (PathBuf::from("/dev/null"), &["/dev/null: is not a regular file"]),
        (file("long.toml", &long), &["long.toml: is longer than 1 MiB"]),
        (file("bytes.toml", b"ring = \"\xff\""), &["bytes.toml: is not UTF-8 text (at byte 8)"]),
        (file("bad.toml", b"ring = \"1GiB\"\nout\n"), &["bad.toml:2: no TOML: "]),
        (
            file("many.toml", b"rng = 1\nring = true\nbefore = \"soon\"\ntrigger = \"udp prt 5\"\n"),
            &[
                "many.toml:1: rng: ",
                "did you mean 'ring'?",
                "many.toml:2: ring: is true",
                "many.toml:3: before: 'soon'",
                "many.toml:4: trigger 'trigger1'",
            ],
        ),
    ];
    let before = names(place.root());
    for (path, words) in cases {
        check_refused(
            &finish({
                let mut command = wirescope(&["config", "check"]);
                command.arg(&path);
                command
            }),
            words,
        );
        check_refused(&place.run(&["--config", path.to_str().unwrap()]), words);
    }
    assert_eq!((names(place.root()), place.out_names()), (before, Vec::new()), "something was created");
}

#[test]
fn folders_of_a_store_are_checked_where_they_are_here_and_nothing_is_made() {
    let place = Place::new();
    let check = |text: &str| {
        let path =
            write(&place, &format!("source = \"synth:\"\n{text}\nout = \"{}\"\n", place.out().display()));
        finish(wirescope(&["config", "check", &path]))
    };
    let store = |folder: &std::path::Path| format!("store = \"{}\"", folder.display());
    let (outer, file) = (place.path("outer"), place.path("a-file"));
    std::fs::create_dir_all(outer.join("inner")).unwrap();
    std::fs::write(outer.join("wirescope.store"), "{}").unwrap();
    std::fs::write(&file, "x").unwrap();
    let before = names(place.root());
    check_refused(&check(&store(&file)), &["wirescope.toml:2: store: ", "not a folder"]);
    check_refused(&check(&store(&outer.join("inner"))), &[":2: store: ", "it lies inside the store"]);
    check_refused(&check(&store(&outer)), &[":2: store: ", "wirescope.store"]);
    check_refused(&check(&store(&place.out())), &[":2: store: ", "it is the dump folder"]);
    for fine in [place.path("new"), "/nosuch/on/this/machine".into()] {
        let done = check(&store(&fine));
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
    let now = names(place.root()).into_iter().filter(|name| name != "wirescope.toml").collect::<Vec<_>>();
    assert_eq!(now, before.into_iter().filter(|name| name != "wirescope.toml").collect::<Vec<_>>());
}

#[test]
fn an_unreadable_file_is_refused() {
    if !run::is_root() {
        return;
    }
    let place = Place::new();
    let path = write(&place, "ring = \"1GiB\"");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let mut command = std::process::Command::new(place.binary_for_all());
    command.args(["config", "check", &path]);
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    check_refused(&finish(command), &["wirescope.toml: can't be read: ", "change its mode"]);
}

#[test]
fn a_fault_of_the_machine_names_the_line_that_the_value_came_from() {
    let place = Place::new();
    let text = "source = [\n\"afpacket:nosuch0\",\n\"file:/nosuch.pcap\"]\nring = \"900GiB\"\nnuma = \
        99\nring-out = \"/nosuch/x\"\n";
    let path = write(&place, text);
    let mut command = wirescope(&["run", "--config", &path, "--out"]);
    command.arg(place.out());
    let lines = [
        ":2: source 'afpacket:nosuch0': ",
        ":3: source 'file:/nosuch.pcap': ",
        ":5: numa: ",
        ":6: ring-out: ",
    ];
    check_refused(&finish(command), &lines);
    let path = write(&place, "source = \"synth:\"\nring = \"9000GiB\"\n");
    let mut command = wirescope(&["run", "--config", &path, "--out"]);
    command.arg(place.out());
    check_refused(&finish(command), &["wirescope.toml:2: ring: "]);
}

#[test]
fn what_is_shown_can_be_given_again_and_shows_the_same() {
    let place = Place::new();
    let text = "source = [\"synth:rate=5k\", { spec = \"synth:\" }]\nout = \"x\"\nbefore = 3\n\
                [[trigger]]\nname = \"a\"\nexpr = \"udp\"\nafter = 2.5\nsingle = true\n";
    let path = write(&place, text);
    let show = |path: &str, flags: &[&str]| {
        let done = finish(wirescope(&[&["config", "show", "--config", path], flags].concat()));
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done.stdout
    };
    let first = show(&path, &["--ring", "32MiB", "--mlock"]);
    for line in [
        "ring = \"32MiB\" # flag",
        "mlock = true # flag",
        "after = \"10s\" # default",
        &format!("before = \"3\" # {path}:3"),
    ] {
        assert!(first.lines().any(|shown| shown == line), "no '{line}' in {first}");
    }
    let shown = place.path("shown.toml");
    std::fs::write(&shown, &first).unwrap();
    assert_eq!(finish(wirescope(&["config", "check", shown.to_str().unwrap()])).code(), Some(0));
    let plain = |text: &str| {
        text.lines().map(|line| line.split(" # ").next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(plain(&show(shown.to_str().unwrap(), &[])), plain(&first));
    let replaced = show(&path, &["-i", "eth9", "--trigger", "b=tcp"]);
    assert!(
        replaced.contains("afpacket:eth9") && !replaced.contains("synth:"),
        "a list is replaced: {replaced}"
    );
    assert!(replaced.contains("\"b=tcp\", # flag") && !replaced.contains("udp"), "{replaced}");
}

#[test]
fn the_configuration_in_the_log_reproduces_the_run() {
    let place = Place::new();
    let path = write(
        &place,
        "source = \"synth:rate=10k,packets=5000,pace=max,trigger-at=100ms,seed=5\"\nbefore = \"1s\"\n",
    );
    let trigger = ["--trigger", "hit=udp port 60000", "--dump", "host $srcIP", "-v"];
    let first = place.run(&[&["--config", &path], &trigger[..]].concat());
    assert_eq!(first.code(), Some(0), "{}", first.stderr);
    let config = events(&place, "start")[0]["config"].as_str().expect("a text").to_string();
    assert!(first.stderr.contains(&config), "-v prints it, too: {}", first.stderr);
    let again = Place::new();
    let path = write(&again, &config);
    let mut command = wirescope(&["run", "--config", &path, "--out"]);
    command.arg(again.out());
    let second = finish(command).summary();
    assert_eq!(second.received, first.summary().received);
    assert_eq!(second.only_dump().packets, first.summary().only_dump().packets);
}

/// A run on endless traffic, three triggers.
const ENDLESS: &str =
    "source = \"synth:rate=5k,flows=50,trigger-at=200ms\"\nbefore = \"500ms\"\nafter = \"300ms\"\n";

#[test]
fn a_broken_file_changes_nothing_and_the_run_goes_on() {
    let place = Place::new();
    let text = format!("{ENDLESS}trigger = \"hit=udp port 60000\"\nring = \"65536KiB\"\n");
    let started = started(&place, &text, &[]);
    for (broken, word) in [
        (format!("{text}dumps-max = 0\nexit-after = 1\n"), ":6: dumps-max: 0 is too few"),
        (format!("{ENDLESS}trigger = \"udp prt 5\"\nsingle = true\n"), ":4: trigger 'trigger1': "),
        ("exit-after = [".to_string(), ":1: no TOML: "),
        (format!("{ENDLESS}rng = 5\n"), "did you mean 'ring'?"),
    ] {
        let event = reload(&place, &started, &broken);
        assert_eq!(
            (&event["ok"], &event["changed"]),
            (&Value::from(false), &Value::from(Vec::<Value>::new()))
        );
        assert!(event["faults"][0].as_str().expect("a text").contains(word), "no '{word}' in {event}");
    }
    let event = reload(&place, &started, &text.replace("65536KiB", "64MiB").replace("5k", "5000"));
    assert_eq!(
        (&event["ok"], event["changed"].as_array().map(Vec::len)),
        (&Value::from(true), Some(0)),
        "{event}"
    );
    assert_eq!(event["kept"].as_array().map(Vec::len), Some(0), "other spellings are no change: {event}");
    std::fs::remove_file(place.path("wirescope.toml")).unwrap();
    started.signal(libc::SIGHUP);
    wait_until("the sixth reload", || events(&place, "reload").len() == 6);
    assert!(events(&place, "reload")[5]["faults"][0].as_str().unwrap().contains("no such file"));
    let event = reload(&place, &started, &text);
    assert_eq!(
        (&event["ok"], event["changed"].as_array().map(Vec::len)),
        (&Value::from(true), Some(0)),
        "{event}"
    );
    wait_until("the dump", || events(&place, "dump").len() == 1);
    let done = stop(started);
    let summary = done.summary();
    assert!(done.stderr.contains("the old configuration stays in force"), "{}", done.stderr);
    let mark = |line: &str| line.trim_start_matches([' ', '|']) == "^";
    assert!(
        done.stderr.lines().any(mark) && !done.stderr.contains("\\n"),
        "a mark below the place: {}",
        done.stderr
    );
    assert_eq!((summary.hits.len(), summary.hits["hit"].fired), (1, 1), "{summary:?}");
}

#[test]
fn what_can_t_change_is_named_and_the_rest_changes() {
    let place = Place::new();
    let text = format!("{ENDLESS}trigger = [\"hit=udp port 60000\", \"gone=udp port 9\"]\n");
    let started = started(&place, &text, &[]);
    wait_until("the dump", || events(&place, "dump").len() == 1);
    let new = "source = \"synth:rate=1\"\nvlan = \"exact\"\nnuma = 0\nbefore = \"400ms\"\nafter = \"300ms\"\n\
               trigger = [\"hit=udp port 60000\", { name = \"any\", expr = \"udp\", single = true, after = \"100ms\", dump = \"udp\" }]\n";
    let event = reload(&place, &started, new);
    assert_eq!(event["ok"], true, "{event}");
    assert_eq!(event["changed"], serde_json::json!(["trigger", "before"]));
    let kept = event["kept"].to_string();
    for word in
        ["source: can't change", "vlan: can't change", "numa: can't change", "rate=5k", "for the next start"]
    {
        assert!(kept.contains(word), "no '{word}' in {kept}");
    }
    wait_until("the second trigger's dump", || events(&place, "dump").len() == 2);
    // Flags go on overriding the file: the ring of this run came from one.
    assert!(!kept.contains("ring"), "{kept}");
    let event = reload(&place, &started, &format!("{new}exit-after = 2\n"));
    assert_eq!(event["changed"], serde_json::json!(["exit-after"]), "{event}");
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "both dumps were made, so it ends: {}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    assert_eq!((summary.hits["hit"].fired, summary.hits["any"].fired), (1, 1), "{summary:?}");
    assert!(summary.hits["any"].disarmed > 0, "a trigger that is the same goes on disarmed: {summary:?}");
    assert!(
        summary.warnings.iter().any(|warning| warning.contains("vlan: can't change")),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn a_trigger_that_is_taken_away_finishes_its_dump_and_keeps_its_counts() {
    // On a busy machine its window may be over before its trigger is taken away.
    run::with_enough_time(Duration::from_secs(5), |after| taken_away(after.as_secs()));
}

fn taken_away(after_s: u64) -> Option<()> {
    let place = Place::new();
    let words = format!("name = \"hit\"\nexpr = \"udp port 60000\"\nafter = \"{after_s}s\"\ndump = \"ip\"\n");
    let text = format!("{ENDLESS}[[trigger]]\n{words}");
    let started = started(&place, &text, &["--status-every", "1s"]);
    wait_until("the hit", || {
        events(&place, "status").iter().any(|status| status["hits"]["hit"]["fired"] == 1)
    }); // its dump has no name yet
    assert_eq!(reload(&place, &started, ENDLESS)["ok"], true);
    let in_time = events(&place, "dump").is_empty(); // its window is open
    wait_until("the dump", || events(&place, "dump").len() == 1);
    let summary = stop(started).summary();
    let dump = summary.only_dump();
    assert!(dump.lost_nothing() && dump.to_ns - dump.time_ns == after_s as i64 * 1_000_000_000, "{dump:?}");
    assert_eq!(summary.hits["hit"].fired, 1, "{summary:?}");
    in_time.then_some(())
}

#[test]
fn no_packet_is_lost_over_many_reloads_under_load() {
    let Some(live) = Live::or_skip() else { return };
    let stays =
        "{ name = \"stays\", expr = \"udp port 60000\", dump = \"host $srcIP\", before = 1, single = true }";
    let text = |round: usize| {
        let other = format!("\"other{}=tcp port {}\"", round % 3, 1 + round);
        format!("source = \"afpacket:vb\"\nbefore = \"{}ms\"\ntrigger = [{stays}, {other}]\n", 100 + round)
    };
    let path = write(&live.place, &text(0));
    let started = live.start(&["--config", &path, "--ring", "160MiB"]);
    let mut frames = mixed_frames(1, 100_000);
    frames.iter_mut().step_by(1000).for_each(|frame| *frame = hit_frame(&[]));
    let reloads = std::thread::scope(|scope| {
        let sender = scope.spawn(|| live.sender().send_paced(&frames, 20_000).unwrap());
        let mut reloads = 0;
        while reloads < RELOADS || !sender.is_finished() {
            reloads += 1;
            let event = reload(&live.place, &started, &text(reloads));
            assert_eq!(
                (&event["ok"], &event["kept"]),
                (&Value::from(true), &Value::from(Vec::<Value>::new())),
                "{event}"
            );
            assert_eq!(event["changed"], serde_json::json!(["trigger", "before"]));
        }
        assert_eq!(sender.join().unwrap(), frames.len() as u64);
        reloads
    });
    assert!(reloads >= RELOADS);
    let done = stop(started);
    assert_offered(&done, frames.len());
    let summary = done.summary();
    assert_nothing_lost(&summary, frames.len());
    // It has all its words of its own, so it stays the same: disarmed, and each of its hits is counted.
    assert_eq!((summary.hits["stays"].fired, summary.hits["stays"].disarmed), (1, 99), "{summary:?}");
    let dump = summary.only_dump();
    assert!(dump.lost_nothing(), "{dump:?}");
}

#[test]
fn show_refuses_what_run_would_refuse_but_not_what_is_still_to_be_said() {
    let show = |arguments: &[&str]| finish(wirescope(&[&["config", "show"], arguments].concat()));
    assert_eq!(show(&[]).code(), Some(0), "defaults");
    for (arguments, word) in [
        (["--ring", "abc"], "--ring: 'abc'"),
        (["--vlan", "q"], "--vlan: 'q'"),
        (["--trigger", "udp prt 5"], "byte 4"),
    ] {
        let done = show(&arguments);
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.stdout);
        assert!(done.stderr.contains(word) && done.stdout.is_empty(), "{arguments:?}: {}", done.stderr);
    }
}
