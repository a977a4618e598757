//! The demo on real packets: a veth pair between two network namespaces, one sends, the other is recorded.
//!
//! 1. The thread that will record and the thread that will send each enter a network namespace of their own.
//!    These have no
//!    names: when the threads end, however they end, the kernel removes the namespaces and the veth pair with them.
//! 2. The sender switches IPv6 off, makes the veth pair with iproute2 and puts one end into the recorder's
//!    namespace.
//! 3. The recorder runs what `wirescope run -i scope1 ...` would; the sender waits for that, sends, and stops
//!    the run.

use super::{arguments, planned, tell, tell_command, told};
use crate::beside::BesideHandle;
use crate::record::{self, Ended};
use crate::refused;
use scope_engine::{Control, Order};
use scope_fault::Fault;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// What faults of it are named by.
const NAME: &str = "demo --live";
const SENDER_ADDRESS: &str = "10.77.0.1";
const RECORDER_ADDRESS: &str = "10.77.0.2";
/// UDP flows in the background.
const FLOWS: u16 = 50;
/// Pause between two rounds, each a packet of every flow: 2500 packets/s.
const ROUND: Duration = Duration::from_millis(20);
/// Rounds before the trigger packet: 4 s.
const ROUNDS_BEFORE: u32 = 200;
/// Rounds behind it: 3 s.
const ROUNDS_AFTER: u32 = 150;
/// Longest wait for the recorder.
const START_MAX: Duration = Duration::from_secs(60);

/// Whether this machine and this user can do it.
///
/// # Errors
/// What is missing, and how to get it.
pub fn check() -> Result<(), Fault> {
    let fault = |cause: &str| Fault::of_thing(NAME).cause(cause);
    // SAFETY: takes nothing, touches nothing, never fails.
    if unsafe { libc::geteuid() } != 0 {
        let fault = fault("makes network namespaces, which needs root");
        return Err(fault.remedy("run it with sudo, or omit --live"));
    }
    match Command::new("ip").arg("-V").output() {
        Ok(_) => Ok(()),
        Err(_) => Err(fault("the command 'ip' is missing").remedy("install iproute2, or omit --live")),
    }
}

/// Runs the demo and returns the exit code.
pub fn demo(folder: &Path) -> u8 {
    let arguments = arguments("afpacket:scope1", "host $srcIP", folder);
    tell(
        "Wirescope demo, live: two network namespaces on a veth pair. One sends 2500 UDP packets a second in 50 flows for 7 s,\n\
         and after 4 s one to port 60000. That is the trigger: 2 s before it and 1 s after it become a dump.",
    );
    tell_command(&arguments);
    let control = Arc::new(Control::default());
    let (recorder_is, told_recorder) = mpsc::channel();
    let (wired, is_wired) = mpsc::channel();
    let (recording, until_recorded) = mpsc::channel();
    let log = folder.join("wirescope.jsonl");
    let done = std::thread::scope(|scope| {
        let (stopper, log, arguments) = (&control, &log, &arguments);
        let sender = scope.spawn(move || {
            let sent = send(told_recorder, wired, log, stopper);
            // The veth pair lives as long as both threads: nothing is ever sent here, so this waits for the
            // recorder's end.
            let _: Result<(), _> = until_recorded.recv();
            sent
        });
        let recorder = scope.spawn(move || {
            let _recording: Sender<()> = recording;
            capture(recorder_is, is_wired, arguments, stopper)
        });
        (sender.join(), recorder.join())
    });
    match done {
        (Ok(Ok(())), Ok(Ok(ended))) => told(ended),
        (_, Ok(Err(faults))) => refused(&faults),
        (Ok(Err(cause)), _) => refused(&[Fault::of_thing(NAME).cause(cause)]),
        _ => refused(&[Fault::of_thing(NAME).cause("a thread has panicked; the lines above say where")]),
    }
}

/// The recorder's thread.
fn capture(
    recorder_is: Sender<i32>,
    is_wired: Receiver<()>,
    arguments: &[String],
    control: &Arc<Control>,
) -> Result<Ended, Vec<Fault>> {
    wire(&recorder_is, &is_wired).map_err(|cause| vec![Fault::of_thing(NAME).cause(cause)])?;
    Ok(record::record(planned(arguments)?, control, &BesideHandle::default()))
}

/// The recorder's end of the veth pair.
fn wire(recorder_is: &Sender<i32>, is_wired: &Receiver<()>) -> Result<(), String> {
    enter_new_namespace()?;
    // SAFETY: takes nothing and never fails.
    let thread = unsafe { libc::gettid() };
    recorder_is.send(thread).map_err(|_| "the sender's thread has ended".to_string())?;
    is_wired.recv().map_err(|_| "there is no veth pair".to_string())?;
    ip(&["address", "add", &format!("{RECORDER_ADDRESS}/24"), "dev", "scope1"])?;
    ip(&["link", "set", "scope1", "up"])
}

/// The sender's thread.
fn send(
    told_recorder: Receiver<i32>,
    wired: Sender<()>,
    log: &Path,
    control: &Control,
) -> Result<(), String> {
    enter_new_namespace()?;
    let recorder = told_recorder.recv().map_err(|_| "the recorder's thread has ended".to_string())?;
    let peer = recorder.to_string();
    ip(&["link", "add", "scope0", "type", "veth", "peer", "name", "scope1", "netns", &peer])?;
    ip(&["address", "add", &format!("{SENDER_ADDRESS}/24"), "dev", "scope0"])?;
    ip(&["link", "set", "scope0", "up"])?;
    wired.send(()).map_err(|_| "the recorder's thread has ended".to_string())?;
    drop(wired);
    let begin = Instant::now();
    while !std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        if begin.elapsed() > START_MAX || control.stops() > 0 {
            return Ok(());
        }
        std::thread::sleep(ROUND);
    }
    let sent = traffic(control).map_err(|error| format!("sending UDP packets: {error}"));
    let _ = control.send(Order::Stop); // a run that has ended has stopped
    sent
}

fn traffic(control: &Control) -> io::Result<()> {
    let sockets: Vec<UdpSocket> =
        (0..FLOWS).map(|flow| UdpSocket::bind((SENDER_ADDRESS, 20_000 + flow))).collect::<io::Result<_>>()?;
    let begin = Instant::now();
    for round in 0..ROUNDS_BEFORE + ROUNDS_AFTER {
        if control.stops() > 0 {
            return Ok(());
        }
        if round == ROUNDS_BEFORE {
            sockets[0].send_to(b"wirescope trigger packet", (RECORDER_ADDRESS, 60_000))?;
        }
        for (flow, socket) in (0..FLOWS).zip(&sockets) {
            let payload = vec![b'a' + (flow % 26) as u8; 20 + usize::from(flow) * 25];
            socket.send_to(&payload, (RECORDER_ADDRESS, 1000 + flow))?;
        }
        std::thread::sleep((ROUND * (round + 1)).saturating_sub(begin.elapsed()));
    }
    Ok(())
}

/// Puts this thread into a network namespace of its own, without IPv6: it would send packets by itself.
fn enter_new_namespace() -> Result<(), String> {
    // SAFETY: takes only flags and changes nothing but this thread's network namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        let error = io::Error::last_os_error();
        return Err(format!("no network namespace can be made: {error}; it needs root with CAP_SYS_ADMIN"));
    }
    for which in ["all", "default"] {
        // A kernel without IPv6 has no such file, and no need of it.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
    }
    Ok(())
}

/// Runs iproute2 in this thread's namespace.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let command = format!("ip {}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| format!("{command}: {error}; install iproute2"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
