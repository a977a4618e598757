//! Words to the service manager that started this process, as systemd's `sd_notify(3)` defines them.
//!
//! The socket is opened before rights are given up and kept: no other can be opened later. Nothing here ever
//! waits for the manager; what it doesn't take is lost.
//!
//! | when | what is said |
//! |---|---|
//! | the ring is resident, the sources are open, rights are given up | `READY=1` |
//! | each status of the run | `STATUS=` in words, and `WATCHDOG=1` if every worker comes round |
//! | around a reload | `RELOADING=1`, then `READY=1` |
//! | the sources are told to stop, or have ended | `STOPPING=1` |

use crate::status::Status;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where the manager listens: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// How long the manager waits for `WATCHDOG=1`, us; there only if it does.
const WATCHDOG_US: &str = "WATCHDOG_USEC";
/// Of which process; missing: of this one.
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// A connection to the service manager.
#[derive(Debug)]
pub struct Service {
    socket: UnixDatagram,
    watched: bool,
}

impl Service {
    /// Connects to whom the environment names; `None` where that is nobody.
    pub fn from_environment() -> io::Result<Option<Service>> {
        let Some(name) = std::env::var_os(SOCKET).filter(|name| !name.is_empty()) else { return Ok(None) };
        let of_this = |pid: OsString| pid.to_str().is_some_and(|pid| pid == std::process::id().to_string());
        let watched =
            std::env::var_os(WATCHDOG_US).is_some() && std::env::var_os(WATCHDOG_PID).is_none_or(of_this);
        Service::connect(name.as_bytes(), watched).map(Some)
    }

    fn connect(name: &[u8], watched: bool) -> io::Result<Service> {
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(Service { socket, watched })
    }

    /// Capture begins, or a reload is over.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// The run at one moment: `words` for whoever asks, and that it lives, if its workers do.
    pub fn status(&self, status: &Status, words: &str) {
        let alive = self.watched && status.workers.iter().all(|worker| worker.moves);
        let line = words.replace(char::is_control, " ");
        self.say(&format!("STATUS={line}{}", if alive { "\nWATCHDOG=1" } else { "" }));
    }

    /// A reload begins; it is over with [`Service::ready`].
    pub fn reloading(&self) {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` outlives the call; this clock is there on every system.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// The sources stop.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// A manager that is gone or busy is no reason to do anything else.
    fn say(&self, words: &str) {
        let _ = self.socket.send(words.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::WorkerStatus;

    fn heard(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 500];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    fn status(moves: &[bool]) -> Status {
        let workers = moves.iter().map(|&moves| WorkerStatus { moves, ..WorkerStatus::default() }).collect();
        Status { workers, ..Status::default() }
    }

    #[test]
    fn the_watchdog_hears_of_the_run_only_while_every_worker_comes_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let manager = UnixDatagram::bind(&path).unwrap();
        let check = |watched, moves: &[bool], expected: &str| {
            let service = Service::connect(path.as_os_str().as_bytes(), watched).unwrap();
            service.status(&status(moves), "two\nlines");
            assert_eq!(heard(&manager), expected);
        };
        check(true, &[true, true], "STATUS=two lines\nWATCHDOG=1");
        check(true, &[true, false], "STATUS=two lines");
        check(false, &[true, true], "STATUS=two lines");
    }

    #[test]
    fn a_reload_is_told_with_its_time_and_a_manager_that_is_gone_disturbs_nothing() {
        let name = format!("wirescope-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let service = Service::connect(format!("@{name}").as_bytes(), false).unwrap();
        service.reloading();
        let said = heard(&manager);
        let us = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("as it is written");
        assert!(us.parse::<u64>().unwrap() > 0);
        drop(manager);
        service.ready();
        assert!(Service::connect(b"/nonexistent/socket", false).is_err());
    }
}
