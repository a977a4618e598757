//! A run as a service: what it tells the manager that started it, heard at a socket that stands in for
//! systemd's.

mod run;

use run::{Place, Started, is_root};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Instant;

/// The user who may nothing.
const NOBODY: u32 = 65534;
/// What a service is told for its watchdog, us.
const WATCHDOG_US: &str = "5000000";
/// Half of that, s.
const HALF_S: f64 = 2.5;

/// The next message; the test fails if none comes for minutes.
fn next(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(run::LIMIT)).unwrap();
    let mut bytes = [0; 4096];
    let len = manager.recv(&mut bytes).expect("a message in time");
    String::from_utf8(bytes[..len].to_vec()).expect("text")
}

/// A run of generated traffic that is watched.
fn watched(place: &Place, socket: &str, arguments: &[&str]) -> Command {
    let source = ["--source", "synth:rate=1k", "--trigger", "hit=udp port 60000", "--status-every", "1s"];
    let mut command = place.command(&[&source, arguments].concat());
    command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", WATCHDOG_US);
    command
}

/// When the log has a status, with each of which the manager is told, s from the run's start.
fn told_at(place: &Place) -> Vec<f64> {
    let of_status = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["elapsed_s"].as_f64().filter(|_| line["event"] == "status")
    };
    place.log().lines().filter_map(of_status).collect()
}

/// From the first message to the last.
fn check(place: &Place, manager: &UnixDatagram, command: Command) {
    let started = Started::new(command);
    assert_eq!(next(manager), "READY=1");
    place.wait_for_start();
    assert!(started.shared_resident_bytes() >= 64 << 20, "the ring isn't resident");
    // A busy machine may keep a worker, or the run, from a sign now and then. When they were due the log
    // says: in half of the watchdog's time at least one, as it is meant to be.
    let begun = Instant::now();
    let (mut signs, mut in_time) = (0, false);
    while signs < 3 || !in_time {
        assert!(begun.elapsed() < run::LIMIT, "{signs} signs of life; told at {:?} s", told_at(place));
        let said = next(manager);
        let (status, watchdog) = said.split_once('\n').unwrap_or((&said, ""));
        assert!(status.starts_with("STATUS=") && status.contains("packets"), "{said}");
        assert!(["WATCHDOG=1", ""].contains(&watchdog), "{said}");
        signs += u32::from(!watchdog.is_empty());
        in_time = told_at(place)
            .windows(3)
            .any(|three| three[2] - three[1] <= HALF_S && three[1] - three[0] <= HALF_S);
    }
    started.signal(libc::SIGINT);
    let stopping = std::iter::repeat_with(|| next(manager)).take(20).any(|said| said == "STOPPING=1");
    assert!(stopping);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    done.summary().assert_adds_up();
}

#[test]
fn a_service_says_when_it_is_ready_how_it_goes_that_it_lives_and_that_it_stops() {
    let place = Place::new();
    let path = place.path("socket");
    let manager = UnixDatagram::bind(&path).unwrap();
    check(&place, &manager, watched(&place, path.to_str().unwrap(), &[]));
}

#[test]
fn a_service_that_gave_up_its_rights_still_reaches_the_manager() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.open_to_all();
    chown(place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
    let path = place.path("socket");
    let manager = UnixDatagram::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    check(&place, &manager, watched(&place, path.to_str().unwrap(), &["--user", "nobody"]));
    // The same by a name that is no path.
    let name = format!("wirescope-service-{}", std::process::id());
    let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    std::fs::remove_file(place.out().join("wirescope.jsonl")).unwrap();
    check(&place, &manager, watched(&place, &format!("@{name}"), &["--user", "nobody"]));
}

/// One thread of another process that stands still, and goes on when this is dropped. Both by the same thread
/// of this process.
struct Frozen(i32);

impl Frozen {
    fn freeze(thread: i32) -> Frozen {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: numbers and null pointers, which these requests don't look at.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, nothing, nothing) == 0 };
        assert!(seized, "{}", std::io::Error::last_os_error());
        let frozen = Frozen(thread);
        // SAFETY: as above; nobody asks for the status.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, thread, nothing, nothing), 0);
            assert_eq!(libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL), thread);
        }
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: numbers and null pointers; the thread is this one's to let go.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, nothing, nothing) };
    }
}

#[test]
fn the_watchdog_hears_nothing_while_a_worker_is_stuck_and_again_when_it_goes_on() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let path = place.path("socket");
    let manager = UnixDatagram::bind(&path).unwrap();
    let started = Started::new(watched(&place, path.to_str().unwrap(), &[]));
    assert_eq!(next(&manager), "READY=1");
    let alive =
        || std::iter::repeat_with(|| next(&manager)).take(20).any(|said| said.ends_with("\nWATCHDOG=1"));
    assert!(alive());
    let frozen = Frozen::freeze(started.thread("worker-0").expect("a worker"));
    // What was said before, and of a clock that had moved before.
    let silent = std::iter::repeat_with(|| next(&manager)).take(20).any(|said| !said.contains("WATCHDOG"));
    assert!(silent);
    for _ in 0..2 {
        let said = next(&manager);
        assert!(said.starts_with("STATUS=") && !said.contains("WATCHDOG"), "{said}");
    }
    drop(frozen);
    assert!(alive());
    started.signal(libc::SIGINT);
    assert_eq!(started.finish(run::LIMIT).code(), Some(0));
}

#[test]
fn a_run_that_is_refused_is_never_ready_and_a_manager_that_is_gone_stops_nothing() {
    let place = Place::new();
    let path = place.path("socket");
    let manager = UnixDatagram::bind(&path).unwrap();
    let done = run::finish(watched(&place, path.to_str().unwrap(), &["-i", "nosuch0"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0; 100]).is_err());
    drop(manager);
    let mut command = place.command(&["--source", "synth:rate=1k,time=2s"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", WATCHDOG_US);
    let done = run::finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("NOTIFY_SOCKET: "), "{}", done.stderr);
}
