//! Commands after dumps: their facts, their bounds in number and time, and that they change nothing of the
//! run.

mod run;

use run::{Done, Place, Started, wait_until, with_enough_time};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Record};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const MS: i64 = 1_000_000;

/// A path in the folder where commands may write.
fn work(place: &Place, name: &str) -> std::path::PathBuf {
    place.path("jobs").join(name)
}

/// Traffic with `hits` packets to port 60000, 100 ms apart.
fn capture(hits: i64) -> Capture {
    let mut capture = Conversations::default().capture();
    let start_ns = capture.packets[0].time_ns;
    for number in 0..hits {
        let ip =
            frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), &[number as u8]);
        capture.insert(Record::new(start_ns + 100 * number * MS, frame::on_link(ETHERNET, &[], &ip)));
    }
    capture
}

/// The arguments of a run with a dump for each hit.
fn arguments<'a>(source: &'a str, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec![
        "--source",
        source,
        "--trigger",
        "hit=udp port 60000",
        "--dump",
        "host $srcIP",
        "--holdoff",
        "0",
    ];
    all.extend(["--before", "10ms", "--after", "10ms", "--exec", command]);
    all.extend(more);
    all
}

fn run(place: &Place, hits: i64, command: &str, more: &[&str]) -> Done {
    let source = place.source(&capture(hits));
    let work = place.path("jobs");
    place.run(&arguments(&source, command, &[&["--exec-write", work.to_str().unwrap()], more].concat()))
}

fn events(place: &Place, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event["event"] == kind)
        .collect()
}

fn counts(done: &Done) -> Value {
    serde_json::from_str::<Value>(&done.stdout).unwrap()["exec"].clone()
}

/// Whether a process of the number that stands in `path` is there and no zombie.
fn runs(path: &Path) -> bool {
    let pid = std::fs::read_to_string(path).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// Whether a command got as far as to write this file.
fn has_begun(pid: &Path) -> bool {
    pid.metadata().is_ok_and(|file| file.len() > 0)
}

#[test]
fn a_command_finds_the_facts_of_its_dump_in_its_environment() {
    let place = Place::with_commands();
    let command = format!(
        "env | grep ^WIRESCOPE_ > {}/$WIRESCOPE_ID.env; cat; echo said; echo so >&2",
        place.path("jobs").display()
    );
    let done = run(&place, 2, &command, &[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    assert_eq!(summary.dumps.len(), 2);
    for dump in &summary.dumps {
        let text = std::fs::read_to_string(work(&place, &format!("{}.env", dump.id))).unwrap();
        let fact = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("WIRESCOPE_{name}=")));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).to_string()
        };
        assert_eq!(fact("FILE"), dump.path.to_string_lossy());
        assert_eq!(fact("FILES"), dump.path.to_string_lossy());
        assert_eq!((fact("TRIGGER"), fact("COMPLETE")), ("hit".into(), u8::from(dump.complete).to_string()));
        assert_eq!(fact("ID"), dump.id.to_string());
        assert_eq!((fact("PACKETS"), fact("BYTES")), (dump.packets.to_string(), dump.bytes.to_string()));
        assert_eq!((fact("LOST_MIN"), fact("LOST_MAX")), ("0".into(), "0".into()));
        assert_eq!(fact("FILTER"), "host 10.0.0.1");
        assert!(fact("WHY").starts_with("by a packet of "), "{text}");
        assert_eq!(run::summary::file_time(dump.from_ns).len(), fact("FROM").len());
        assert!(fact("FROM") < fact("TO"));
    }
    let events = events(&place, "exec");
    assert_eq!(events.len(), 2, "{events:#?}");
    assert!(events.iter().all(|event| event["code"] == 0 && event["output"] == "said\nso\n"), "{events:#?}");
    assert_eq!(
        counts(&done),
        serde_json::json!({"started": 2, "failed": 0, "timed_out": 0, "exec_skipped": 0})
    );
}

#[test]
fn a_failing_command_is_a_warning_and_the_run_is_what_it_was() {
    let place = Place::with_commands();
    let done = run(&place, 1, r"printf 'no \033[2Jdisk'; exit 3", &[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!((&counts(&done)["failed"], &events(&place, "exec")[0]["code"]), (&1.into(), &3.into()));
    assert!(done.stderr.contains("failed with exit code 3"), "{}", done.stderr);
    assert!(!done.stderr.contains('\u{1b}'), "control characters are spelled out: {:?}", done.stderr);
    assert!(done.summary().warnings[0].contains("exit code 3"));
}

#[test]
fn a_command_has_the_home_of_the_user_that_it_is() {
    let place = Place::with_commands();
    let source = place.source(&capture(1));
    let check = |given: &str, expected: &str| {
        let mut command = place.command(&arguments(&source, "printf %s \"$HOME\"", &[]));
        command.env("HOME", given);
        let done = Started::new(command).finish(run::LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert_eq!(events(&place, "exec").last().unwrap()["output"], expected);
    };
    let own = place.out().display().to_string();
    if run::is_root() {
        // The folder belongs to nobody, who the run becomes: so is this home, and root's isn't.
        check("/root", "/");
    }
    check(&own, &own);
}

#[test]
fn a_command_can_t_speak_for_the_service_that_the_run_is() {
    let place = Place::with_commands();
    let source = place.source(&capture(1));
    let mut command = place.command(&arguments(&source, "env | grep -e NOTIFY -e WATCHDOG; true", &[]));
    command.env("WATCHDOG_PID", "1");
    let done = Started::new(command).finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(events(&place, "exec")[0]["output"], "");
}

#[test]
fn only_so_many_commands_run_at_once() {
    let place = Place::with_commands();
    let log = work(&place, "log");
    // Each goes on when another one has begun beside it or before it, so that two meet however late they
    // begin.
    let met = "[ $(grep -c begin {0}) -ge 2 ]";
    let command =
        format!("echo begin >> {{0}}; until {met}; do sleep 0.05; done; sleep 0.2; echo end >> {{0}}")
            .replace("{0}", &log.display().to_string());
    let done = run(&place, 6, &command, &["--exec-max", "2"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let (mut now, mut most, mut begun) = (0, 0, 0);
    for line in std::fs::read_to_string(log).unwrap().lines() {
        now += if line == "begin" { 1 } else { -1 };
        begun += i32::from(line == "begin");
        most = most.max(now);
    }
    assert_eq!((begun, now), (6, 0), "the run waited for all of them");
    assert_eq!(most, 2);
}

#[test]
fn commands_beyond_those_that_may_wait_are_skipped_and_counted() {
    let place = Place::with_commands();
    let source = place.source(&capture(75));
    let go = place.path("go");
    let command = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let started = Started::new(place.command(&arguments(
        &source,
        &command,
        &["--exec-max", "1", "--exec-timeout", "1h"],
    )));
    let skipped = || events(&place, "exec").iter().filter(|event| event["skipped"] == true).count();
    wait_until("all dumps", || events(&place, "dump").len() == 75 && skipped() == 10);
    std::fs::write(go, "").unwrap();
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let counts = counts(&done);
    assert_eq!(
        (&counts["started"], &counts["exec_skipped"]),
        (&65.into(), &10.into()),
        "one runs and 64 wait: {counts}"
    );
    assert_eq!(skipped(), 10);
    assert!(done.stderr.contains("was skipped"), "{}", done.stderr);
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
    with_enough_time(Duration::from_millis(500), |timeout| {
        let place = Place::with_commands();
        let pid = work(&place, "pid");
        let command =
            format!("trap '' TERM; sleep 300 & echo $! > {}; while true; do sleep 0.1; done", pid.display());
        let done = run(&place, 1, &command, &["--exec-timeout", &format!("{}ms", timeout.as_millis())]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let event = &events(&place, "exec")[0];
        assert_eq!((&event["timed_out"], &counts(&done)["timed_out"]), (&true.into(), &1.into()), "{event}");
        has_begun(&pid).then(|| {
            assert_eq!(event["signal"], libc::SIGKILL, "{event}");
            assert!(!runs(&pid), "its child is gone, too");
        })
    });
}

#[test]
fn a_command_that_ends_when_it_is_told_to_gives_its_place_back_at_once() {
    let place = Place::with_commands();
    let bounds = ["--exec-timeout", "300ms", "--exec-max", "1"];
    let traffic = ["--source", "synth:rate=1k", "--before", "100ms", "--exec", "sleep 300 & sleep 300"];
    let started = Started::new(place.command(&[&traffic[..], &bounds].concat()));
    wait_until("the start", || !events(&place, "start").is_empty());
    for number in 1..=6 {
        started.signal(libc::SIGUSR1);
        wait_until("the dump", || events(&place, "dump").len() == number);
    }
    wait_until("all commands", || events(&place, "exec").len() == 6);
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(
        counts(&done),
        serde_json::json!({"started": 6, "failed": 6, "timed_out": 6, "exec_skipped": 0})
    );
    let ended = events(&place, "exec");
    assert!(ended.iter().all(|event| event["signal"] == libc::SIGTERM), "{ended:?}");
    // A busy machine may keep some of them waiting; the 2 s of grace would keep all.
    let took_s: Vec<f64> = ended.iter().map(|event| event["took_s"].as_f64().unwrap()).collect();
    assert!(took_s.iter().any(|took_s| *took_s < 2.2), "{took_s:?}");
}

#[test]
fn what_a_command_started_has_its_grace_though_the_command_itself_is_gone() {
    with_enough_time(Duration::from_millis(500), |timeout| {
        let place = Place::with_commands();
        let pid = work(&place, "pid");
        // What the subshell waits for ends when all are told to end; it itself goes on, and says so.
        let began = format!("sh -c 'echo $PPID' > {}", pid.display());
        let command = format!(
            "(exec 2>/dev/null; trap 'trap \"\" TERM; echo tidied; sleep 300' TERM; {began}; while true; do \
             sleep 0.1; done) & sleep 300"
        );
        let done = run(&place, 1, &command, &["--exec-timeout", &format!("{}ms", timeout.as_millis())]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let event = &events(&place, "exec")[0];
        assert_eq!(event["timed_out"], true, "{event}");
        if !has_begun(&pid) {
            return None;
        }
        // Both times are the helper's: no busy machine makes them shorter.
        let took_s = event["took_s"].as_f64().unwrap();
        // The clocks of its waits are coarse: the grace itself is two seconds.
        assert!(took_s >= timeout.as_secs_f64() + 1.9, "2 s of grace: {event}");
        assert!(!runs(&pid), "then it is killed");
        // Nothing but that: on a busy machine it may not have run at all in its grace.
        assert!(["tidied\n", ""].iter().any(|said| event["output"] == *said), "{event}");
        (event["output"] == "tidied\n").then_some(())
    });
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let place = Place::with_commands();
    let pid = work(&place, "pid");
    let done = run(&place, 1, &format!("sleep 300 & echo $! > {}", pid.display()), &[]);
    assert_eq!((done.code(), &counts(&done)["failed"]), (Some(0), &0.into()), "{}", done.stderr);
    wait_until("its end", || !runs(&pid));
}

#[test]
fn only_the_beginning_of_what_a_command_says_is_kept() {
    let place = Place::with_commands();
    let done = run(&place, 1, "head -c 3000000 /dev/zero | tr '\\0' x", &[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let event = &events(&place, "exec")[0];
    assert_eq!((&event["code"], event["output"].as_str().unwrap()), (&0.into(), "x".repeat(4096).as_str()));
}

#[test]
fn a_second_signal_ends_the_commands_with_the_run() {
    let place = Place::with_commands();
    let pid = work(&place, "pid");
    let command = format!("trap '' TERM INT; sleep 300 & echo $! > {}; wait", pid.display());
    let folder = place.path("jobs");
    let traffic = ["--source", "synth:rate=1k", "--before", "100ms", "--exec", &command];
    let arguments = [&traffic[..], &["--exec-write", folder.to_str().unwrap()]].concat();
    let started = Started::new(place.command(&arguments));
    wait_until("the start", || !events(&place, "start").is_empty());
    started.signal(libc::SIGUSR1);
    wait_until("the command", || has_begun(&pid));
    started.signal(libc::SIGINT);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(runs(&pid), "the run waits for it");
    let done = started.signal_until_it_ends(libc::SIGINT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    wait_until("its end", || !runs(&pid));
}

#[test]
fn what_can_t_be_run_is_refused() {
    let place = Place::with_commands();
    let check = |more: &[&str], words: &str| {
        let done = place.run(&[&["--source", "synth:time=1s"], more].concat());
        assert_eq!(done.code(), Some(2), "{more:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{more:?}: {}", done.stderr);
    };
    check(&["--exec", " "], "--exec: there is no command");
    check(&["--exec", "true", "--exec-max", "0"], "--exec-max: 0 is too few");
    check(&["--exec", "true", "--exec-timeout", "soon"], "--exec-timeout: 'soon'");
    check(&["--exec", "true", "--exec-timeout", "0"], "--exec-timeout: a command needs some time");
    check(&["--exec", "true", "--exec-write", "/no/such"], "--exec-write: /no/such: no such folder");
    check(&["--exec", "true", "--exec-env", "A=B"], "--exec-env: 'A=B' is not a variable name");
    check(
        &["--exec", "true", "--exec-env", "NOTIFY_SOCKET"],
        "--exec-env: 'NOTIFY_SOCKET' belongs to the run alone",
    );
    check(
        &["--exec", "true", "--exec-env", "WIRESCOPE_FILE"],
        "--exec-env: 'WIRESCOPE_FILE' is always set for commands",
    );
}
