//! `wirescope doctor` on runs of files and generated traffic: each finding is brought about, then looked for.

mod run;

use run::{Done, Place, Started, finish, skip, wait_until, wirescope};
use scope_testkit::oracle;
use scope_testkit::traffic::{Capture, Conversations};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const SECOND: i64 = 1_000_000_000;

fn doctor(arguments: &[&str]) -> Done {
    finish(wirescope(&[&["doctor"], arguments].concat()))
}

fn of(place: &Place) -> Done {
    doctor(&["--out", place.out().to_str().unwrap(), "--json"])
}

fn object(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}\n{}", done.stdout, done.stderr))
}

/// The finding of a kind, which has to be there.
fn finding(done: &Done, kind: &str) -> Value {
    let object = object(done);
    let found = object["findings"]
        .as_array()
        .expect("an array")
        .iter()
        .find(|finding| finding["kind"] == kind)
        .cloned();
    found.unwrap_or_else(|| panic!("no {kind}: {object:#}"))
}

fn remedies(finding: &Value) -> String {
    finding["remedies"].to_string()
}

#[test]
fn a_run_that_lost_nothing_is_told_so() {
    let place = Place::new();
    let source = place.source(&Conversations::default().capture());
    place.summary(&["--source", &source, "--trigger", "icmp", "--before", "1", "--after", "1"]);
    let done = doctor(&["--out", place.out().to_str().unwrap()]);
    assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("has ended") && done.stdout.contains("Nothing is lost."), "{}", done.stdout);
    let json = of(&place);
    assert_eq!((json.code(), object(&json)["loses"].as_bool()), (Some(0), Some(false)));
    let log = place.out().join("wirescope.jsonl");
    assert_eq!(doctor(&["--log", log.to_str().unwrap()]).stdout, done.stdout);
}

#[test]
fn what_can_not_be_looked_at_is_refused_with_the_reason() {
    let place = Place::new();
    std::fs::write(place.path("other.jsonl"), "{\"event\":\"else\"}\nno JSON\n").unwrap();
    let other = place.path("other.jsonl");
    let empty = place.out();
    let own = std::process::id().to_string();
    let nothing = place.path("nothing.jsonl");
    std::fs::write(&nothing, "\n").unwrap();
    let nowhere = place.path("nowhere");
    let cut = place.path("cut.jsonl");
    std::fs::write(&cut, "{\"event\":\"start\",\"sour").unwrap();
    let one = place.path("one.jsonl");
    std::fs::write(&one, "{\"event\":\"start\",\"logged\":\"2026-11-21T08:00:00Z\",\"run_id\":\"ab\"}\n")
        .unwrap();
    let pipe = place.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let rows: [(&[&str], &str); 13] = [
        (&["--log", pipe.to_str().unwrap()], "is not a file"),
        (&[], "which run?"),
        (&["--out", empty.to_str().unwrap()], "holds no wirescope.jsonl"),
        (&["--out", nowhere.to_str().unwrap()], "No such file"),
        (&["--out", other.to_str().unwrap()], "if it is a log, give it with --log"),
        (&["--log", empty.to_str().unwrap()], "is not a file"),
        (&["--log", other.to_str().unwrap()], "no run has written this log (1 of its 2 lines can't be read)"),
        (&["--log", nothing.to_str().unwrap()], "the log is empty"),
        (&["--log", cut.to_str().unwrap()], "1 of its 1 lines can't be read"),
        (&["--log", one.to_str().unwrap(), "--run", "cd"], "run cd is not among the 1 runs of this log"),
        (&["--pid", "many"], "is not a process number"),
        (&["--pid", "4194305"], "there is no process"),
        (&["--pid", &own], "is not a run of wirescope"),
    ];
    for (arguments, expected) in rows {
        let done = doctor(arguments);
        assert_eq!(done.code(), Some(2), "{arguments:?}");
        assert!(done.stderr.contains(expected) && done.stdout.is_empty(), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn a_run_is_found_by_its_process_and_its_death_is_a_finding() {
    let place = Place::new();
    let started = Started::new(place.command(&["--source", "synth:rate=1k"]));
    let log = place.out().join("wirescope.jsonl");
    wait_until("the log's status", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"status\""))
    });
    let pid = started.pid().to_string();
    let running = doctor(&["--pid", &pid, "--json"]);
    assert_eq!(
        (running.code(), &object(&running)["state"]),
        (Some(0), &"running".into()),
        "{}",
        running.stdout
    );
    started.stand_still();
    let stopped = doctor(&["--pid", &pid, "--json"]);
    let found = finding(&stopped, "stopped");
    assert!(remedies(&found).contains(&format!("kill -CONT {pid}")));
    assert!(
        !found["cause"].as_str().unwrap().contains("kernel"),
        "no kernel captures what is generated: {found}"
    );
    assert_eq!(stopped.code(), Some(0), "what isn't generated meanwhile is not lost");
    drop(started); // killed
    let dead = of(&place);
    assert_eq!((dead.code(), &object(&dead)["state"]), (Some(1), &"dead".into()));
    let died = finding(&dead, "died");
    assert_eq!(
        (&died["stage"], &died["sureness"]),
        (&"run".into(), &"likely".into()),
        "what killed it isn't seen: {died}"
    );
    let cause = died["cause"].as_str().unwrap();
    assert!(
        cause.contains("killed") && cause.contains("crashed") && cause.contains("hasn't started again"),
        "{cause}"
    );
}

#[test]
fn the_log_of_a_run_that_hides_its_files_is_found_by_its_command_line() {
    if !run::is_root() {
        return;
    }
    let place = Place::with_commands();
    let binary = place.binary_for_all();
    let config = place.path("t.toml");
    std::fs::write(
        &config,
        format!("source = [\"synth:rate=1k\"]\nring = \"64MiB\"\nout = \"{}\"\n", place.out().display()),
    )
    .unwrap();
    std::fs::set_permissions(&config, PermissionsExt::from_mode(0o644)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(arguments).uid(run::NOBODY).gid(run::NOBODY).current_dir("/");
        command
    };
    let (out, config) = (place.out(), config.display().to_string());
    let has_begun =
        || std::fs::read_to_string(out.join("wirescope.jsonl")).is_ok_and(|text| text.contains("\"status\""));
    let started = Started::new(as_nobody(&["run", "--config", &config, "--out", out.to_str().unwrap()]));
    wait_until("the status", has_begun);
    let done = finish(as_nobody(&["doctor", "--pid", &started.pid().to_string(), "--json"]));
    assert_eq!(object(&done)["state"], "running", "{}", done.stderr);
    drop(started);
    std::fs::remove_file(out.join("wirescope.jsonl")).unwrap();
    let started = Started::new(as_nobody(&["run", "--config", &config]));
    wait_until("the status", has_begun);
    let pid = started.pid().to_string();
    let done = finish(as_nobody(&["doctor", "--pid", &pid]));
    assert_eq!(done.code(), Some(2));
    assert!(done.stderr.contains("give its folder with --out, or run doctor as root"), "{}", done.stderr);
    assert_eq!(object(&doctor(&["--pid", &pid, "--json"]))["state"], "running", "root finds it");
}

#[test]
fn what_a_log_says_reaches_no_terminal_as_it_is() {
    let place = Place::new();
    place.summary(&["--source", "synth:rate=1k,time=2s"]);
    let log = place.out().join("wirescope.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let hostile = text.replace("synth:rate=1k,time=2s", "afpacket:\\u001b]0;x\\u0007\u{9b}2J\u{202e}$(x)");
    assert!(hostile != text);
    std::fs::write(&log, hostile).unwrap();
    let odd = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
    for form in [&[][..], &["--json"]] {
        let done = doctor(&[&["--log", log.to_str().unwrap()], form].concat());
        assert!(done.stdout.contains("$(x)") && !done.stdout.contains(odd), "{:?}", done.stdout);
    }
}

#[test]
fn a_run_that_goes_on_is_told_with_the_age_of_its_counts_and_one_whose_log_is_stuck_as_that() {
    let place = Place::new();
    let started =
        Started::new(place.command(&["--source", "synth:rate=1k,time=300s", "--status-every", "1s"]));
    let log = place.out().join("wirescope.jsonl");
    wait_until("the log's status", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"status\""))
    });
    let running = of(&place);
    let age_s = object(&running)["counts_age_s"].as_f64().expect("a number");
    assert!((0.0..60.0).contains(&age_s), "{age_s}");
    let words = doctor(&["--out", place.out().to_str().unwrap()]).stdout;
    assert!(
        words.contains("its other counts are ")
            && words.contains(" s old.")
            && words.contains("no loss so far"),
        "{words}"
    );
    // A log of the same process that doesn't go on.
    let text = std::fs::read_to_string(&log).unwrap();
    let early = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let logged: jiff::Timestamp = line["logged"].as_str().unwrap().parse().unwrap();
        line["logged"] = (logged - jiff::SignedDuration::from_secs(120)).to_string().into();
        format!("{line}\n")
    });
    std::fs::write(place.path("stuck"), early.collect::<String>()).unwrap();
    let stuck = doctor(&["--log", place.path("stuck").to_str().unwrap(), "--json"]);
    let found = finding(&stuck, "log_silent");
    assert_eq!((stuck.code(), &found["loses"]), (Some(0), &false.into()));
    assert!(found["cause"].as_str().unwrap().starts_with("its log has had no line for 2 min"), "{found}");
    drop(started);
}

#[test]
fn a_limit_of_file_sizes_is_found() {
    let place = Place::new();
    let source = "synth:rate=20k,size=1000,time=4s";
    let small = ["--source", source, "--ring", "16MiB", "--segment", "64KiB"];
    let orders = ["--trigger", "ip", "--single", "--dump", "", "--before", "0", "--after", "600"];
    let command = place.command(&[&small[..], &orders].concat());
    // Enough for the ring and its tables, which are files to the kernel, and for the log, not for the dump.
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=33554432").arg(command.get_program()).args(command.get_args());
    let run = finish(limited);
    assert_eq!(run.code(), Some(1), "{}", run.stderr);
    let done = of(&place);
    let found = finding(&done, "file_size_limit");
    assert_eq!(
        (done.code(), &found["stage"], &found["sureness"]),
        (Some(1), &"dump disk".into(), &"certain".into())
    );
    assert!(found["cause"].as_str().unwrap().contains("its limit: 33554432 bytes"), "{found}");
    assert!(remedies(&found).contains("LimitFSIZE=infinity"), "{found}");
}

#[test]
fn a_dump_that_a_stop_cut_short_is_no_loss() {
    let place = Place::new();
    let orders = [
        "--source",
        "synth:rate=1k",
        "--trigger",
        "hit=udp",
        "--single",
        "--before",
        "100ms",
        "--after",
        "300s",
    ];
    let started = Started::new(place.command(&orders));
    let log = place.out().join("wirescope.jsonl");
    wait_until("the hit", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"event\":\"hit\""))
    });
    started.signal(libc::SIGINT);
    started.finish(run::LIMIT);
    let done = of(&place);
    assert_eq!((done.code(), &object(&done)["loses"]), (Some(0), &false.into()), "{}", done.stdout);
    assert_eq!(finding(&done, "dumps_shorter")["loses"], false);
}

#[test]
fn a_run_that_is_stopped_twice_says_so_in_its_log_and_is_told_as_that() {
    let place = Place::with_commands();
    let orders = [
        "--source",
        "synth:rate=1k",
        "--before",
        "100ms",
        "--trigger",
        "hit=udp",
        "--single",
        "--exec",
        "sleep 300",
    ];
    let started = Started::new(place.command(&orders));
    let log = place.out().join("wirescope.jsonl");
    let has = |words: &str| std::fs::read_to_string(&log).is_ok_and(|text| text.contains(words));
    wait_until("the dump", || has("\"event\":\"dump\""));
    started.signal(libc::SIGTERM);
    let ended = started.signal_until_it_ends(libc::SIGINT); // it waits for its command
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(1), ""), "no summary: {}", ended.stderr);
    let last = std::fs::read_to_string(&log).unwrap().lines().last().unwrap_or_default().to_string();
    assert!(last.contains("\"event\":\"ended_at_once\"") && !has("\"event\":\"end\""), "{last}");
    let done = of(&place);
    assert_eq!((done.code(), &object(&done)["state"]), (Some(0), &"ended_at_once".into()), "{}", done.stdout);
    let found = finding(&done, "ended_at_once");
    assert_eq!(
        (&found["sureness"], &found["loses"]),
        (&"certain".into(), &false.into()),
        "its dump was finished: {found}"
    );
    assert!(found["cause"].as_str().unwrap().starts_with("stopped by a second signal"), "{found}");
    assert!(!done.stdout.contains("killed"), "{}", done.stdout);
}

#[test]
fn of_a_log_with_several_runs_the_newest_is_told_and_the_others_are_named() {
    let place = Place::new();
    let source = place.source(&Conversations::default().capture());
    let first = place.summary(&["--source", &source]);
    // Two at once: what only one of them meets, lines of the other don't say.
    let begin = |source: &str| Started::new(place.command(&["--source", source]));
    let log = place.out().join("wirescope.jsonl");
    let starts = |count| move |text: String| text.matches("\"event\":\"machine\"").count() == count;
    let until = |count| wait_until("a start", || std::fs::read_to_string(&log).is_ok_and(starts(count)));
    let older = begin("synth:rate=1k,seed=1");
    until(2);
    let newer = begin("synth:rate=1k,seed=2");
    until(3);
    let pids = [older.pid(), newer.pid()].map(Value::from);
    older.signal(libc::SIGINT);
    assert_eq!(older.finish(run::LIMIT).code(), Some(0));
    let done = of(&place);
    let newest = object(&done);
    assert_eq!(
        (&newest["runs"], &newest["newest"], &newest["pid"]),
        (&3.into(), &true.into(), &pids[1]),
        "{newest:#}"
    );
    assert_eq!(
        (&newest["sources"][0], &newest["state"]),
        (&"synth:rate=1k,seed=2".into(), &"running".into()),
        "{newest:#}"
    );
    let others = newest["other_runs"].as_array().unwrap();
    let of = |at: usize, name: &str| others[at][name].as_bool().unwrap();
    assert_eq!(
        (of(0, "beside"), of(0, "last_words"), of(1, "beside"), of(1, "last_words")),
        (false, true, true, true),
        "{newest:#}"
    );
    let asked = doctor(&[
        "--out",
        place.out().to_str().unwrap(),
        "--json",
        "--run",
        others[1]["run_id"].as_str().unwrap(),
    ]);
    assert_eq!(
        (&object(&asked)["pid"], &object(&asked)["state"]),
        (&pids[0], &"ended".into()),
        "{}",
        asked.stdout
    );
    let words = doctor(&["--out", place.out().to_str().unwrap()]).stdout;
    for expected in [
        "The log holds 3 runs; this is the one that began last (",
        "     --run ",
        "at the same time as this one",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    assert_eq!(words.matches("--run").count(), 2, "{words}");
    assert!(first.received.packets > 0);
    drop(newer);
}

#[test]
fn a_log_that_says_little_is_told_of_in_whole_sentences() {
    let place = Place::new();
    let whole = place.source(&Conversations::default().capture());
    place.summary(&["--source", &whole]);
    let text = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap();
    let without = |words: [&str; 2]| {
        text.lines()
            .filter(|line| words.iter().all(|word| !line.contains(word)))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let later = text
        .replace("\"event\":\"end\"", "\"event\":\"farewell\"")
        .replace("\"version\":\"", "\"version\":\"99.");
    let elsewhere = without(["\"end\"", "\"status\""])
        .replace("\"boot\":\"", "\"boot\":\"0")
        .replace("\"host\":\"", "\"host\":\"far");
    let middle = text.find("\"machine\"").expect("a second line");
    let rows: [(&str, &[&str]); 7] = [
        (
            "{\"event\":\"start\"}\n",
            &["The run wrote no last line", "Its log doesn't say what it captured.", "(possible)"],
        ),
        ("{\"event\":\"start\",\"sources\":null,\"run_id\":7}\n", &["The run wrote no last line", "no loss"]),
        (
            &text[..text.len() - 20],
            &["has ended", "Its log shows no loss.", "the last line of the log is incomplete"],
        ),
        (
            &text[..middle],
            &[
                "no last line",
                "(possible)",
                "had no room for the line (the last line of its log is \
                incomplete",
            ],
        ),
        (
            &without(["\"start\"", "\"machine\""]),
            &["The run has ended", "the log lacks the run's first lines"],
        ),
        (&later, &["is gone without a last line", "does not know 1 of the log's lines; the doctor of 99."]),
        (
            &elsewhere,
            &[
                "whether it still runs is unknown",
                "it ran on far",
                "may still go on; or it was killed, crashed",
            ],
        ),
    ];
    for (log, expected) in rows {
        std::fs::write(place.path("log"), log).unwrap();
        let done = doctor(&["--log", place.path("log").to_str().unwrap()]);
        let said = &done.stdout;
        assert!(
            done.stderr.is_empty() && !said.contains(" on  ") && !said.contains("Nothing is lost."),
            "{log}: {said}"
        );
        expected.iter().for_each(|words| assert!(said.contains(words), "{words}: {log}\n{said}"));
    }
}

#[test]
fn a_window_that_the_ring_does_not_hold_is_found() {
    let place = Place::new();
    let orders = ["--trigger", "udp port 60000", "--dump", "", "--before", "2s", "--after", "10ms"];
    let small = [
        "--source",
        "synth:rate=20k,size=1000,time=3s,trigger-at=2500ms",
        "--ring",
        "1MiB",
        "--segment",
        "64KiB",
    ];
    let run = place.run(&[&small[..], &orders].concat());
    assert_eq!(run.code(), Some(1), "{}", run.stderr);
    let done = of(&place);
    let found = finding(&done, "dumps_incomplete");
    assert_eq!(
        (done.code(), &found["stage"], &found["sureness"]),
        (Some(1), &"ring".into(), &"certain".into())
    );
    assert!(found["lost_min"].as_u64().unwrap() > 20_000, "{found}");
    assert!(remedies(&found).contains("Give the ring more memory: --ring 2MiB."), "{found}");
    assert_eq!(finding(&done, "normal_pages")["loses"], false, "a ring of 1 MiB is never in huge pages");
}

#[test]
fn hits_without_a_place_for_a_dump_are_found() {
    let place = Place::new();
    let orders = ["--trigger", "udp", "--dump", "host $srcIP", "--holdoff", "0", "--dumps-max", "1"];
    place.run(
        &[&["--source", "synth:rate=2k,flows=100,time=2s"], &orders[..], &["--after", "500ms"]].concat(),
    );
    let found = finding(&of(&place), "too_many");
    assert_eq!((&found["stage"], &found["loses"]), (&"dumps".into(), &false.into()));
    assert!(
        found["cause"].as_str().unwrap().contains("allows (1)") && remedies(&found).contains("--dumps-max"),
        "{found}"
    );
}

#[test]
fn packets_that_come_too_late_are_found() {
    let place = Place::new();
    let mut capture: Capture = Conversations::default().capture();
    let middle = capture.packets.len() / 2;
    capture.packets[middle].time_ns -= 3 * SECOND;
    let source = place.source(&capture);
    place.summary(&["--source", &source]);
    let found = finding(&of(&place), "late");
    assert!(found["cause"].as_str().unwrap().starts_with("1 packets came so late"), "{found}");
    assert_eq!((&found["sureness"], &found["loses"]), (&"possible".into(), &false.into()));
}

#[test]
fn filters_in_the_interpreter_are_found() {
    let place = Place::new();
    let source = place.source(&Conversations::default().capture());
    place.summary(&[
        "--source",
        &source,
        "--trigger",
        "icmp",
        "--after",
        "1",
        "--filter-engine",
        "interpreter",
    ]);
    assert!(remedies(&finding(&of(&place), "interpreted")).contains("--filter-engine native"));
}

/// A shell script in a mount namespace of its own; `$0` is a folder, the rest is a command.
fn with_mounts(script: &str, folder: &Place, command: &Command) -> Command {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-m", "--propagation", "private", "sh", "-c", script])
        .arg(folder.out())
        .arg(command.get_program());
    unshare.args(command.get_args());
    unshare
}

#[test]
fn a_full_dump_disk_is_found() {
    if !run::is_root() || !oracle::have("unshare") {
        return;
    }
    let place = Place::new();
    let source = place.source(&Conversations::default().capture());
    let everything = ["--trigger", "ip", "--single", "--dump", "", "--after", "60"];
    // The log is on the full disk, too; it has its room beforehand, so that what it says isn't a matter of
    // chance.
    let script = "mount -t tmpfs -o size=320k none \"$0\" && : > \"$0/wirescope.jsonl\" && fallocate -n -l \
        65536 \"$0/wirescope.jsonl\" || exit 9; \"$@\" >&2; \"$1\" doctor --out \"$0\" --json";
    let done = finish(with_mounts(
        script,
        &place,
        &place.command(&[&["--source", &source], &everything[..]].concat()),
    ));
    let found = finding(&done, "dump_disk_full");
    assert_eq!(
        (done.code(), &found["stage"], &found["sureness"]),
        (Some(1), &"dump disk".into(), &"certain".into())
    );
    assert!(remedies(&found).contains("Free space there"), "{found}");
}

/// Runs generated traffic into a small ring while the dump disk takes nothing for some turns of it, then the
/// doctor.
fn while_the_disk_is_frozen() -> Option<Done> {
    if !run::is_root() || !oracle::have("unshare") {
        return None;
    }
    if !oracle::have("mkfs.ext4")
        || !oracle::have("fsfreeze")
        || !std::path::Path::new("/dev/loop-control").exists()
    {
        skip("needs mkfs.ext4, fsfreeze and loop devices");
        return None;
    }
    let place = Place::new();
    let script = "truncate -s 512M \"$0.img\" && mkfs.ext4 -q -F \"$0.img\" && mount -o loop \"$0.img\" \
        \"$0\" || exit 9
         trap 'fsfreeze -u \"$0\" 2>/dev/null' EXIT
         \"$@\" >&2 & until grep -q '\"hit\"' \"$0/wirescope.jsonl\" || ! kill -0 $!; do sleep 0.1; done 2>/dev/null
         fsfreeze -f \"$0\"; sleep 4; fsfreeze -u \"$0\"
         kill -INT $!; wait $!; \"$1\" doctor --out \"$0\" --json";
    let orders = ["--trigger", "udp", "--dump", "", "--single", "--before", "0", "--after", "300s"];
    let small = ["--source", "synth:rate=4k,size=500,flows=1000", "--ring", "1MiB", "--segment", "64KiB"];
    Some(finish(with_mounts(script, &place, &place.command(&[&small[..], &orders].concat()))))
}

#[test]
fn a_dump_disk_that_takes_nothing_is_found() {
    let Some(done) = while_the_disk_is_frozen() else { return };
    let found = finding(&done, "dump_disk_slow");
    assert_eq!((&found["stage"], &found["sureness"]), (&"dump disk".into(), &"likely".into()));
    assert_eq!((done.code(), &found["loses"]), (Some(1), &true.into()), "{found}");
    assert!(
        found["lost_min"].as_u64().unwrap() > 1000 && remedies(&found).contains("a faster disk"),
        "{found}"
    );
    assert!(found["cause"].as_str().unwrap().starts_with("the disk wrote nothing for "), "{found}");
    let object = object(&done);
    let losses = object["findings"].as_array().unwrap().iter().filter(|finding| finding["loses"] == true);
    assert_eq!(losses.count(), 1, "nothing else: {object:#}");
}

#[test]
fn findings_are_told_in_plain_words_too() {
    let place = Place::new();
    let orders = ["--trigger", "udp port 60000", "--dump", "", "--before", "2s", "--after", "10ms"];
    let small = [
        "--source",
        "synth:rate=20k,size=1000,time=3s,trigger-at=2500ms",
        "--ring",
        "1MiB",
        "--segment",
        "64KiB",
    ];
    place.run(&[&small[..], &orders].concat());
    let done = doctor(&["--out", place.out().to_str().unwrap()]);
    assert_eq!(done.code(), Some(1));
    for words in [
        "Losses, the largest first:",
        "1. ring (certain): ",
        " packets lost; ",
        "- Give the ring more memory: --ring 2MiB.",
        "Worth knowing:",
    ] {
        assert!(done.stdout.contains(words), "{words}\n{}", done.stdout);
    }
}
