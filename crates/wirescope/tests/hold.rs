//! `wirescope hold` on a store: what is added is listed, what is removed is gone, and what can't be meant is
//! refused.

mod run;

use run::{Done, NOBODY, Place, finish, wirescope};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const MARK: &str = "{\"version\":1,\"volume\":\"00112233445566778899aabbccddeeff\"}\n";

/// A place with an empty store in it.
fn store() -> (Place, PathBuf) {
    let place = Place::new();
    let store = place.path("store");
    std::fs::create_dir(&store).unwrap();
    std::fs::write(store.join("wirescope.store"), MARK).unwrap();
    (place, store)
}

fn command(store: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = wirescope(&[&["hold"], arguments].concat());
    command.arg("--store").arg(store).env("TZ", "UTC");
    command
}

fn hold(store: &std::path::Path, arguments: &[&str]) -> Done {
    finish(command(store, arguments))
}

fn done(store: &std::path::Path, arguments: &[&str]) -> String {
    let done = hold(store, arguments);
    assert_eq!(done.code(), Some(0), "{arguments:?}: {}", done.stderr);
    done.stdout
}

const FROM: &str = "2026-11-20T14:00:00Z";
const TO: &str = "2026-11-20T15:00:00.5Z";

#[test]
fn a_hold_is_added_listed_and_removed_and_its_number_is_not_given_again() {
    let (_place, store) = store();
    assert_eq!(done(&store, &["list"]), "nothing is held\n");
    let add = |note| done(&store, &["add", "--from", FROM, "--to", TO, "--note", note]);
    let line = |id: u32, note: &str| format!("hold {id}: 2026-11-20T14:00:00Z to 15:00:00.5Z, {note}\n");
    assert_eq!(add("incident 4711"), line(1, "incident 4711"));
    assert_eq!(add("second"), line(2, "second"));
    assert_eq!(done(&store, &["list"]), line(1, "incident 4711") + &line(2, "second"));
    assert_eq!(done(&store, &["remove", "2"]), format!("removed {}", line(2, "second")));
    assert_eq!(add("third"), line(3, "third"));
    let json: Value = serde_json::from_str(&done(&store, &["list", "--json"])).unwrap();
    assert_eq!(json["volume"], "00112233445566778899aabbccddeeff");
    let holds = json["holds"].as_array().unwrap();
    assert_eq!(holds.len(), 2);
    assert_eq!(
        (&holds[0]["id"], &holds[0]["from"], &holds[0]["to"], &holds[0]["note"]),
        (
            &1.into(),
            &"2026-11-20T14:00:00.000000000Z".into(),
            &"2026-11-20T15:00:00.500000000Z".into(),
            &"incident 4711".into()
        )
    );
    assert_eq!(run::names(&store), ["holds.json", "wirescope.store"], "nothing is left behind");
}

#[test]
fn a_time_without_a_zone_is_local_and_the_command_says_which_zone_it_took() {
    let (_place, store) = store();
    let mut berlin = command(&store, &["add", "--from", "2026-11-20 14:00", "--to", TO, "--note", ""]);
    berlin.env("TZ", "CET-1CEST,M3.5.0,M10.5.0/3");
    let berlin = finish(berlin);
    assert_eq!(berlin.stdout, "hold 1: 2026-11-20T13:00:00Z to 15:00:00.5Z\n", "{}", berlin.stderr);
    assert!(berlin.stderr.contains("taken in that of this system: +01"), "{}", berlin.stderr);
    let zoned = hold(&store, &["add", "--from", FROM, "--to", TO, "--note", "x"]);
    assert_eq!((zoned.code(), zoned.stderr.as_str()), (Some(0), ""));
    let recent = done(&store, &["add", "--from", "-15m", "--to", "now", "--note", "x"]);
    assert!(recent.starts_with("hold 3: "), "{recent}");
    let json: Value = serde_json::from_str(&done(&store, &["list", "--json"])).unwrap();
    assert_eq!(json["holds"][2]["to"], json["holds"][2]["made"], "now is the time of the command");
}

#[test]
fn what_can_not_be_held_is_refused_with_all_reasons_and_nothing_is_changed() {
    let (place, store) = store();
    done(&store, &["add", "--from", FROM, "--to", TO, "--note", "kept"]);
    let before = std::fs::read_to_string(store.join("holds.json")).unwrap();
    let check = |arguments: &[&str], expected: &[&str]| {
        let done = hold(&store, arguments);
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}{}", done.stdout, done.stderr);
        for expected in expected {
            assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
        }
        assert_eq!(std::fs::read_to_string(store.join("holds.json")).unwrap(), before);
    };
    check(
        &["add", "--from", "soon", "--to", "24:00", "--note", "x"],
        &["--from: 'soon' is no time; write it like 2026-", "--to: '24:00' is no time; write it like"],
    );
    check(
        &["add", "--from", TO, "--to", FROM, "--note", "x"],
        &["--to: ", "is before", "exchange it with --from"],
    );
    check(
        &["add", "--from", FROM, "--to", TO, "--note", "a\nb"],
        &["--note: it has characters that can't be shown"],
    );
    check(&["add", "--from", FROM, "--to", TO, "--note", &"x".repeat(201)], &["--note: it has 201 letters"]);
    check(&["add", "--from", FROM, "--to", TO], &["--note <TEXT>"]);
    check(&["remove", "7"], &["the store has no hold 7; its holds: wirescope hold list"]);
    check(&["remove", "one"], &["'one' is no number of a hold; its holds: wirescope hold list --store "]);
    let refused = |folder: &str, expected: &str| {
        for arguments in
            [&["list"][..], &["remove", "1"], &["add", "--from", FROM, "--to", TO, "--note", "x"]]
        {
            let done = hold(&place.path(folder), arguments);
            assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.stderr);
            assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
        }
    };
    refused("out", "it is no store: it lacks wirescope.store");
    refused("nowhere", "can't be opened: No such file or directory");
    assert!(place.out_names().is_empty());
}

#[test]
fn holds_that_are_damaged_are_named_with_their_place_and_left_as_they_are() {
    let (_place, store) = store();
    let path = store.join("holds.json");
    std::fs::write(&path, "{\"version\":1,\n\"next\":2,\"holds\":[\n{\"id\":1,").unwrap();
    for arguments in [&["list"][..], &["remove", "1"], &["add", "--from", FROM, "--to", TO, "--note", "x"]] {
        let done = hold(&store, arguments);
        assert_eq!(done.code(), Some(2), "{}", done.stderr);
        assert!(done.stderr.contains("holds.json:3: "), "{}", done.stderr);
        assert!(done.stderr.contains("so nothing in this store is deleted; repair it"), "{}", done.stderr);
    }
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("{\"id\":1,"));
}

#[test]
fn a_note_that_somebody_wrote_into_the_file_reaches_no_terminal_as_it_is() {
    let (_place, store) = store();
    let hold = "{\"id\":1,\"from\":\"1970-01-01T00:00:00Z\",\"to\":\"1970-01-01T00:00:01Z\",\"note\":\"\\u001b[2J\\nx\"}";
    let text = format!("{{\"version\":1,\"next\":2,\"holds\":[{hold}]}}");
    std::fs::write(store.join("holds.json"), text).unwrap();
    let listed = done(&store, &["list"]);
    assert_eq!(listed, "hold 1: 1970-01-01T00:00:00Z to 00:00:01Z, \\u{1b}[2J\\nx\n");
    assert!(!done(&store, &["list", "--json"]).contains('\u{1b}'));
}

#[test]
fn commands_at_the_same_time_lose_no_hold() {
    let (_place, store) = store();
    let add = ["add", "--from", FROM, "--to", TO, "--note", "x"];
    let started: Vec<run::Started> = (0..8).map(|_| run::Started::new(command(&store, &add))).collect();
    for started in started {
        let done = started.finish(run::LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
    assert_eq!(done(&store, &["list"]).lines().count(), 8);
}

#[test]
fn what_root_adds_belongs_to_the_stores_owner_and_others_are_refused() {
    use std::os::unix::fs::{MetadataExt, chown};
    // SAFETY: geteuid takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return; // only root gives files away
    }
    let (place, store) = store();
    let binary = place.binary_for_all();
    for path in [store.clone(), store.join("wirescope.store")] {
        chown(path, Some(12_345), Some(12_345)).unwrap();
    }
    done(&store, &["add", "--from", FROM, "--to", TO, "--note", "by root"]);
    let facts = store.join("holds.json").metadata().unwrap();
    assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o7777), (12_345, 12_345, 0o640));
    let as_user = |user: u32, arguments: &[&str]| {
        let mut command = Command::new(&binary);
        command.arg("hold").args(arguments).arg("--store").arg(&store).uid(user).gid(user);
        finish(command)
    };
    let own = as_user(12_345, &["remove", "1"]);
    assert_eq!(own.code(), Some(0), "{}", own.stderr);
    for file in ["wirescope.store", "holds.json"] {
        std::fs::set_permissions(store.join(file), std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
    }
    std::fs::set_permissions(&store, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(as_user(NOBODY, &["list"]).stdout, "nothing is held\n");
    let other = as_user(NOBODY, &["add", "--from", FROM, "--to", TO, "--note", "x"]);
    assert_eq!(other.code(), Some(2));
    assert!(
        other.stderr.contains("Permission denied") && other.stderr.contains("use the rights of user 12345"),
        "{}",
        other.stderr
    );
}
