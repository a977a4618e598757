//! `wirescope.jsonl` in long service: moved and gone on with by SIGHUP, cut, or no plain file; and closed
//! standard descriptors.

mod run;

use run::{Done, Place, Started, finish, is_root, wait_until, wirescope};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY: u32 = 65534;
const LOG: &str = "wirescope.jsonl";
const TRAFFIC: [&str; 6] =
    ["--source", "synth:rate=1k,size=100", "--before", "100ms", "--status-every", "1s"];

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn lines(path: &Path) -> Vec<Value> {
    text(path).lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect()
}

fn count(path: &Path, event: &str) -> usize {
    lines(path).iter().filter(|line| line["event"] == event).count()
}

fn doctor(arguments: &[&str]) -> Done {
    finish(wirescope(&[&["doctor"], arguments].concat()))
}

/// A place whose folder for dumps belongs to nobody, and a run there.
fn started(more: &[&str]) -> (Place, PathBuf, Started) {
    let place = Place::new();
    if is_root() {
        place.open_to_all();
        chown(place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let started = Started::new(place.command(&[&TRAFFIC, more].concat()));
    let log = place.out().join(LOG);
    wait_until("the first status", || text(&log).contains("\"status\""));
    (place, log, started)
}

#[test]
fn a_log_that_was_moved_goes_on_in_a_new_file_after_sighup_and_no_line_is_lost() {
    let (place, log, started) = started(&[]);
    let (first, second) = (place.out().join("wirescope.jsonl.1"), place.out().join("wirescope.jsonl.2"));
    let dump = |path: &Path| {
        let before = count(path, "dump");
        started.signal(libc::SIGUSR1);
        wait_until("the dump", || count(path, "dump") > before);
    };
    started.signal(libc::SIGHUP); // it is where it was: nothing changes
    dump(&log); // signals are taken in their order
    let looks = count(&log, "status");
    wait_until("a look at what they ordered", || count(&log, "status") > looks + 1);
    std::fs::rename(&log, &first).unwrap();
    dump(&first);
    started.signal(libc::SIGHUP);
    wait_until("the new log", || count(&log, "status") > 0);
    let facts = log.metadata().unwrap();
    let mode = if facts.uid() == NOBODY { 0o600 } else { 0o640 }; // who is nobody isn't alone
    assert_eq!(facts.permissions().mode() & 0o7777, mode);
    dump(&log);
    let pid = started.pid().to_string();
    for arguments in [["--out", place.out().to_str().unwrap()], ["--pid", &pid]] {
        let said = doctor(&arguments);
        assert_eq!(said.code(), Some(0), "{}{}", said.stdout, said.stderr);
        assert!(
            said.stdout.contains("is running") && said.stdout.contains("Its log was moved"),
            "{}",
            said.stdout
        );
    }
    std::fs::rename(&log, &second).unwrap();
    std::fs::write(&log, "").unwrap(); // as who rotates may do, too
    std::fs::set_permissions(&log, PermissionsExt::from_mode(0o666)).unwrap();
    if is_root() {
        chown(&log, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    started.signal(libc::SIGHUP);
    wait_until("the next log", || count(&log, "start") > 0);
    std::fs::remove_file(&log).unwrap();
    started.signal(libc::SIGHUP);
    wait_until("a log in place of one that was removed", || count(&log, "start") > 0);
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    done.summary().assert_adds_up();
    assert_eq!(done.stderr.matches("the log was moved").count(), 3, "{}", done.stderr);
    let start = |path: &Path| lines(path)[0].clone();
    let whose = |path: &Path| {
        (start(path)["event"].clone(), start(path)["run_id"].clone(), start(path)["continues"].clone())
    };
    assert_eq!(start(&first)["continues"], Value::Null);
    assert_eq!(whose(&second), ("start".into(), start(&first)["run_id"].clone(), true.into()));
    assert_eq!((whose(&log), &start(&log)["began"]), (whose(&second), &start(&first)["logged"]));
    let ids: Vec<Value> = [&first, &second, &log]
        .into_iter()
        .flat_map(|path| lines(path))
        .filter(|line| line["event"] == "dump")
        .map(|line| line["id"].clone())
        .collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!((count(&first, "dump"), count(&second, "dump"), count(&log, "end")), (2, 1, 1));
}

#[test]
fn a_log_that_was_cut_while_it_was_written_is_said_to_be() {
    let (place, log, started) = started(&[]);
    std::fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    wait_until("another line", || text(&log).contains("\"status\""));
    let said = doctor(&["--out", place.out().to_str().unwrap()]);
    started.signal(libc::SIGINT);
    assert_eq!(started.finish(run::LIMIT).code(), Some(0));
    assert_ne!(said.code(), Some(2), "{}", said.stderr);
    for words in ["the log lacks the run's first lines", "move it, then send SIGHUP"] {
        assert!(said.stdout.contains(words), "no '{words}' in {}", said.stdout);
    }
}

#[test]
fn a_log_that_is_no_plain_file_is_refused_for_what_it_is() {
    let users: &[&[&str]] =
        if is_root() { &[&["--user", "nobody"], &["--user", "root"], &[]] } else { &[&[]] };
    let make = |what: &str, place: &Place, log: &Path| match what {
        "a symbolic link" => std::os::unix::fs::symlink("/nowhere", log).unwrap(),
        "a pipe" => assert!(Command::new("mkfifo").args(["-m", "666"]).arg(log).status().unwrap().success()),
        "another name" => {
            std::fs::write(place.path("first"), "").unwrap();
            std::fs::hard_link(place.path("first"), log).unwrap();
        }
        _ => std::fs::create_dir(log).unwrap(),
    };
    for what in ["a symbolic link", "a pipe", "another name", "a folder"] {
        for user in users {
            let place = Place::new();
            place.open_to_all();
            if is_root() {
                chown(place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            let log = place.out().join(LOG);
            make(what, &place, &log);
            let done = place.run(&[&["--source", "synth:rate=1k,time=1s"], *user].concat());
            assert_eq!(done.code(), Some(2), "{what} {user:?}: {}", done.stderr);
            let said = done
                .stderr
                .lines()
                .find(|line| line.contains(what))
                .unwrap_or_else(|| panic!("{what}: {}", done.stderr));
            assert!(said.contains(LOG) && said.contains("remove it or move it away"), "{said}");
            assert!(!done.stderr.contains("chown"), "{}", done.stderr);
            assert!(
                log.symlink_metadata().is_ok() && place.out_names() == [LOG],
                "nothing is made or changed"
            );
        }
    }
}

#[test]
fn with_closed_standard_descriptors_no_file_of_a_run_gets_their_numbers() {
    if !is_root() {
        return; // who isn't can't look into a run
    }
    let place = Place::new();
    // What is said on standard error would stand in a file that had number 2.
    let script = "\"$@\" <&- >&- 2>&- & run=$!; until grep -q status \"$OUT/wirescope.jsonl\" && ls \
        \"$OUT\"/*.pcapng; do sleep 0.1; done >/dev/null 2>&1; for at in 0 1 2; do readlink /proc/$run/fd/$at; done; kill -INT $run; wait $run";
    let binary = env!("CARGO_BIN_EXE_wirescope");
    let out = place.out().display().to_string();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        script,
        "sh",
        binary,
        "run",
        "--ring",
        "64MiB",
        "--out",
        &out,
        "--trigger",
        "net 10.0.0.0/8",
        "--dump",
        "",
    ]);
    command.env("OUT", &out).args(TRAFFIC).args(["--after", "0s", "--holdoff", "200ms", "-v"]);
    let done = finish(command);
    assert_eq!(
        (done.code(), done.stdout.as_str()),
        (Some(0), "/dev/null\n/dev/null\n/dev/null\n"),
        "{}",
        done.stderr
    );
    assert!(place.out_names().iter().filter(|name| run::is_finished_dump(name)).count() >= 1);
    for line in lines(&place.out().join(LOG)) {
        assert!(line["event"].is_string(), "{line}");
    }
}

#[test]
fn a_standard_output_that_was_closed_is_warned_of_where_something_is_to_go_there() {
    let place = Place::new();
    let said = |redirection: &str, output: &str| {
        let source = "--source synth:rate=1k,time=2s,trigger-at=1s --ring 64MiB --before 200ms --after 100ms \
            --trigger 'udp port 60000'";
        let script = format!("{} run {source} {output} {redirection}", env!("CARGO_BIN_EXE_wirescope"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(place.root());
        finish(command).stderr.contains("standard output: it was closed")
    };
    assert!(said(">&-", "-w -") && said(">&-", "--out out --summary json"));
    assert!(!said(">/dev/null", "-w -") && !said(">&-", "--out out"));
}
