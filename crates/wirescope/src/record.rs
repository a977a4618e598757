//! A planned run from its first word to its summary: signals in, words out.

use crate::beside::BesideHandle;
use crate::config::reload::{Reloader, trigger_reader};
use crate::devices;
use crate::plan::Planned;
use crate::plan::faults::of_engine;
use crate::speech::{Level, say};
use crate::watch::{Teller, send};
use crate::words;
use scope_door::{Gathered, Settings};
use scope_engine::{Control, Order, RunPlan, Summary, Watch, Which};
use scope_fault::Fault;
use scope_rights::User;
use scope_source::afpacket::settings::link_speed;
use scope_source::spec::SourcePlan;
use scope_source::synth::{Size, SynthOptions};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Rate that is assumed where none is known, bits/s.
const RATE_ASSUMED: f64 = 10e9;
/// Mean length of an IMIX frame, bytes.
const IMIX_MEAN: f64 = 362.0;
/// What a stored packet takes besides its bytes: block head and tail, padding, key.
const STORED_EXTRA: f64 = 50.0;

/// Signals to stop that come so close together are one.
const ONE_STOP: Duration = Duration::from_millis(200);

/// How a run ended.
pub enum Ended {
    /// With a summary; something promised may still be undone.
    Done(Box<Summary>),
    /// Refused before it began: exit code 2.
    Refused(Fault),
    /// Broken off: exit code 1.
    Failed(Fault),
}

/// Runs to the end and tells how it goes on standard error. `control` stops it from elsewhere.
pub fn record(mut planned: Planned, control: &Arc<Control>, beside: &BesideHandle) -> Ended {
    let mut reload = Reloader::of(&planned);
    if let Some(Err(error)) = reload.as_mut().map(Reloader::prepare) {
        let fault = Fault::of("config").error(&error);
        return Ended::Refused(fault.cause(format!("no process that reads it again: {error}")));
    }
    let reload = match listen(control, reload, beside) {
        Ok(reload) => reload,
        Err(error) => {
            let fault = Fault::of_thing("signals").error(&error);
            return Ended::Refused(fault.cause(format!("can't be handled: {error}")));
        }
    };
    let beside_words = beside_words(&mut planned);
    let door = Settings {
        group: planned.run.fixed.control.as_ref().and_then(|control| control.group),
        role: planned.control_role,
        serve_user: planned.door.user.as_ref().map(|user| user.uid),
        serve_role: planned.door.role,
        reload,
        read_trigger: trigger_reader(&planned.settings, &planned.run.fixed.link_types),
        version: env!("CARGO_PKG_VERSION").to_string(),
        config: planned.run.fixed.config.clone(),
        vlan: planned.run.fixed.vlan,
        rate: planned.control_rate,
        hooks: planned.hooks.clone(),
        gathered: planned.run.fixed.control.as_ref().map_or_else(Gathered::default, |_| devices::gather()),
    };
    let teller = Teller::new(planned.verbose, words::ready(&planned.run)).with_door(control, door);
    let teller = teller.with_beside(beside_words, beside, control);
    if planned.verbose {
        teller.note("configuration of this run:");
        for line in planned.run.fixed.config.lines() {
            teller.note(line);
        }
    }
    for line in words::everything_fires(&planned.run) {
        teller.note(&line);
    }
    teller.note(&ring_words(&planned));
    if planned.verbose {
        for line in scope_engine::live_settings(&planned.run.fixed) {
            teller.note(&line);
        }
    }
    let ended = scope_engine::run(planned.run, control, &teller);
    teller.clear();
    teller.close_door();
    // Its log says so already: the thread of the signals ends the process, and nobody tells another end.
    while control.ends_at_once() {
        std::thread::park();
    }
    match ended {
        Ok(summary) => Ended::Done(Box::new(summary)),
        Err(error) if teller.has_started() => Ended::Failed(of_engine(error)),
        Err(error) => Ended::Refused(of_engine(error)),
    }
}

/// The command line of the door to the network that the run begins, if it begins one.
fn beside_words(planned: &mut Planned) -> Option<Vec<OsString>> {
    let mut words = planned.door.beside.take()?;
    if let Some(user) = planned.door.user.as_ref().filter(|_| User::current().uid == 0) {
        words.extend(["--user".into(), user.name.clone().into()]);
    }
    Some(words)
}

/// Whether everything promised was done: exit code 0.
pub fn kept_promises(summary: &Summary) -> bool {
    summary.failures.is_empty() && summary.dump_totals.failed == 0
}

/// From here on SIGINT and SIGTERM stop the run, the second time at once; SIGUSR1 fires by hand; SIGHUP goes
/// on in a new log where that was moved, and reads the configuration file again, where there is one; SIGCONT
/// is noted in the log.
/// What comes back wakes whoever reads that file.
fn listen(
    control: &Arc<Control>,
    reload: Option<Reloader>,
    beside: &BesideHandle,
) -> std::io::Result<Option<SyncSender<()>>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCONT])?;
    let reload = reload.map(|reload| reload.listen(control.clone())).transpose()?;
    let (control, wake, beside) = (control.clone(), reload.clone(), beside.clone());
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        let mut stopped: Option<Instant> = None;
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => send(&control, Order::Fire(Which::Hand), "SIGUSR1: no dump by hand"),
                SIGCONT => send(&control, Order::NoteResumed, "SIGCONT: not noted in the log"),
                SIGHUP => {
                    send(&control, Order::ReopenLog, "SIGHUP: the log isn't reopened");
                    beside.reread();
                    // One that waits already is as good as two.
                    let _ = reload.as_ref().map(|wake| wake.try_send(()));
                }
                _ if stopped.is_none() => {
                    stopped = Some(Instant::now());
                    let _ = control.send(Order::Stop); // refused by a run that has ended
                }
                // Who signals a process and then its group means one stop.
                _ if stopped.is_some_and(|at| at.elapsed() < ONE_STOP) => {}
                _ => {
                    // Files in the making have no name yet: they vanish with the process.
                    control.end_at_once("stopped by a second signal");
                    say(Level::Error, "wirescope: second signal: ended at once, without a summary");
                    std::process::exit(1);
                }
            }
        }
    })?;
    Ok(wake)
}

fn ring_words(planned: &Planned) -> String {
    let (segment_bytes, segments) = planned.segments;
    let (bits_per_s, rate) = rate(&planned.run);
    let shares = planned.run.fixed.sources.iter().filter_map(|entry| {
        let share = planned.run.fixed.shares[entry.group.share()?];
        Some(format!("; {}% of it reserved for '{}'", share.percent, entry.spec))
    });
    words::ring(segment_bytes as u64, segments as u64, bits_per_s, &rate) + &shares.collect::<String>()
}

/// The rate that the sources come at as far as it is known: bits/s into the ring, and its words.
fn rate(plan: &RunPlan) -> (f64, String) {
    let mut wire_bits = 0.0;
    let mut ring_bits = 0.0;
    for entry in &plan.fixed.sources {
        match &entry.plan {
            SourcePlan::Synth(options) if !options.pace_max => {
                let packets = options.rate_or_default() as f64;
                wire_bits += packets * mean_bytes(options) * 8.0;
                ring_bits += packets * (mean_bytes(options) + STORED_EXTRA) * 8.0;
            }
            plan => {
                if let Some(interface) = plan.interface() {
                    let bits = link_speed(interface).map_or(RATE_ASSUMED, |bits| bits as f64);
                    wire_bits += bits;
                    ring_bits += bits;
                }
            }
        }
    }
    if wire_bits > 0.0 {
        (ring_bits, words::bit_rate(wire_bits))
    } else {
        (RATE_ASSUMED, words::bit_rate(RATE_ASSUMED))
    }
}

fn mean_bytes(options: &SynthOptions) -> f64 {
    match options.size {
        Size::Fixed(bytes) => f64::from(bytes),
        Size::Imix => IMIX_MEAN,
    }
}
