//! Live runs that are refused: an interface that isn't there, a user who may not capture; and the remedy that
//! is told works.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, inside, mixed_frames, stop_complete};
use run::{Done, Started};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user who may nothing.
const NOBODY: u32 = 65534;

fn assert_refused(done: &Done, words: &[&str]) {
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stdout.is_empty(), "{}", done.stdout);
    for word in words {
        assert!(
            done.stderr.to_lowercase().contains(&word.to_lowercase()),
            "'{word}' is missing in: {}",
            done.stderr
        );
    }
}

#[test]
fn an_unknown_interface_is_refused_with_the_known_ones() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.another_link().unwrap();
    let command = live.place.command(&["-i", "vb", "-i", "nosuch0", "--trigger", "udp prot 7"]);
    let done = Started::new(inside(live.lab.b(), &command)).finish(run::LIMIT);
    // All faults at once.
    assert_refused(&done, &["nosuch0", "vb", "vb1", "lo", "udp prot 7"]);
    assert!(live.place.out_names().is_empty(), "{:?}", live.place.out_names());
}

/// A copy of the binary that every user can run, and a folder for dumps that every user can write to.
fn binary_for_all(live: &Live) -> PathBuf {
    std::fs::set_permissions(live.place.out(), PermissionsExt::from_mode(0o777)).unwrap();
    live.place.binary_for_all()
}

/// Starts `binary` as nobody in namespace b.
fn start_as_nobody(live: &Live, binary: &Path, arguments: &[&str]) -> Started {
    let mut command = Command::new(binary);
    command.args(live.place.command(arguments).get_args()).uid(NOBODY).gid(NOBODY).current_dir("/");
    live.lab.b().enter(|| Started::new(command))
}

#[test]
fn without_the_right_to_capture_it_is_told_and_what_is_told_helps() {
    let Some(live) = Live::or_skip() else { return };
    let binary = binary_for_all(&live);
    let done = start_as_nobody(&live, &binary, &["-i", "vb", "--trigger", "udp"]).finish(run::LIMIT);
    assert_refused(&done, &["vb", "CAP_NET_RAW", "setcap"]);
    assert!(live.place.out_names().is_empty(), "{:?}", live.place.out_names());

    let line = done
        .stderr
        .split("setcap ")
        .nth(1)
        .and_then(|rest| rest.split(|c: char| "'`;\n".contains(c)).next())
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().take(2).collect();
    assert!(
        words[0].contains("cap_net_raw") && Path::new(words[1]) == binary,
        "not to be copied and run: setcap {line}"
    );
    match Command::new("setcap").args(&words).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return eprintln!("skipped: setcap: {}", String::from_utf8_lossy(&output.stderr)),
        Err(cause) => return eprintln!("skipped: setcap: {cause}"),
    }
    let started = start_as_nobody(&live, &binary, &["-i", "vb"]);
    live.place.wait_for_start();
    let frames = mixed_frames(1, 100);
    live.sender().send(&frames).unwrap();
    stop_complete(started, frames.len());
}
