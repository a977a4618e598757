//! `wirescope send`: packets of a capture file or of the generator, out of an interface.
//!
//! 1. The command line is understood, the file and a packet socket for each queue are opened, or all faults said.
//! 2. All rights are given up but reading and sending through what is open.
//! 3. The source is read by the same code as in a run, and its packets are dealt to the threads that send them.
//!
//! Ctrl-C ends it with its summary: what was read and not sent is refused as `ended`. A second one ends it at once.

mod asked;
mod told;

use crate::args::SendArgs;
use crate::reading::Stop;
use crate::speech::{Level, say, say_fault};
use crate::stdio::warn_of_closed_stdout;
use crate::{DONE, NoResult, UNDONE, print_text, told as print_result};
use asked::{Asked, Origin};
use scope_fault::Fault;
use scope_machine::cpus::allowed;
use scope_source::sending::{
    Begin, Counts, Dealer, Judge, Pace, Schedule, SendSocket, Sender, SystemClock, queues, sharpen_timers,
};
use scope_source::{Polled, Source, SourceError};
use std::io;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// What became of it.
struct Done {
    counts: Counts,
    seconds: f64,
    /// Packets that stand in the file and can't be read.
    unreadable: u64,
    /// The source was read to its end, as often as was asked for.
    is_whole: bool,
    faults: Vec<Fault>,
}

/// Sends the packets. Exit codes: 0 all were sent, 1 some were refused, couldn't be read, or it was stopped, 2 refused.
pub fn send(args: &SendArgs) -> u8 {
    let refused = |faults| print_result(Err(NoResult::Refused(faults)));
    let mut asked = match asked::understand(args) {
        Ok(asked) => asked,
        Err(faults) => return refused(faults),
    };
    if asked.json {
        warn_of_closed_stdout();
    }
    let failed = |what: &str, error: &io::Error| {
        print_result(Err(NoResult::Failed(Fault::of_thing(what).error(error))))
    };
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return failed("signals", &error),
    };
    match scope_rights::keep_to_sending() {
        Ok(kept) => {
            if let Some(lack) = kept.lack() {
                say(Level::Warning, &format!("wirescope: {lack}"));
            }
        }
        Err(error) => return refused(vec![error.fault()]),
    }
    sharpen_timers();
    let sockets = std::mem::take(&mut asked.sockets);
    let done = match begin(&asked, sockets, &stop) {
        Ok((dealer, threads)) => go(&mut asked, dealer, threads, &stop),
        Err(error) => return failed("threads", &error),
    };
    let text = if asked.json { told::json(&asked, &done) } else { told::words(&asked, &done) };
    done.faults.iter().for_each(say_fault);
    let is_stopped = stop.flag.load(Ordering::Relaxed);
    match print_text(&text) {
        DONE if !told::kept_promises(&asked, &done, is_stopped) => UNDONE,
        code => code,
    }
}

/// What a queue's thread ends with: its counts, when its last packet went, and an error that has no word of its own.
type Ended = (Counts, u64, Option<io::Error>);

/// The threads that send, and when the first packet could go.
struct Threads {
    handles: Vec<JoinHandle<Ended>>,
    begin: Begin,
}

/// Begins a thread for each queue.
fn begin(asked: &Asked, sockets: Vec<SendSocket>, stop: &Stop) -> io::Result<(Dealer, Threads)> {
    let (dealers, senders) = queues(asked.queues);
    let (clock, begin) = (SystemClock::begin(), Begin::default());
    // Processor 0 has more to do than others: it comes last.
    let mut cpus = if asked.queues > 1 || asked.outlet.queues > 1 { allowed()? } else { Vec::new() };
    cpus.reverse();
    let mut handles = Vec::new();
    for (number, (socket, dealt)) in sockets.into_iter().zip(senders).enumerate() {
        let own = match asked.queues {
            1 => cpus.clone(),
            _ => cpus.iter().cycle().nth(number).copied().into_iter().collect(),
        };
        let sender = Sender::new(socket, clock, begin.clone(), stop.flag.clone()).on_cpus(own);
        let sender = if matches!(asked.pace, Pace::Recorded(_)) { sender.keeping_gaps() } else { sender };
        let thread = std::thread::Builder::new().name(format!("send{number}"));
        handles.push(thread.spawn(move || sender.run(&dealt))?);
    }
    let judge = Judge::new(asked.outlet.clone(), asked.padding);
    let dealer = Dealer::new(judge, Schedule::new(asked.pace), dealers);
    Ok((dealer, Threads { handles, begin }))
}

/// Reads the source, as often as was asked for, and waits for all that send.
fn go(asked: &mut Asked, mut dealer: Dealer, threads: Threads, stop: &Stop) -> Done {
    let (mut unreadable, mut faults) = (0, Vec::new());
    let mut is_whole = true;
    for turn in 0..asked.loops {
        if turn > 0 {
            dealer.begin_again();
        }
        let is_last = turn + 1 == asked.loops;
        let read = asked.origin.source(is_last, &asked.spec).and_then(|mut source| {
            let read = read(source.as_mut(), &mut dealer, stop);
            unreadable += source.counters().unreadable;
            read
        });
        match read {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => faults.push(error.into_fault(&asked.spec)),
        }
        is_whole = false;
        break;
    }
    let mut counts = dealer.end();
    let mut ended_ns = 0;
    for thread in threads.handles {
        let (of_queue, last_ns, error) =
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counts.add(&of_queue);
        ended_ns = ended_ns.max(last_ns);
        faults.extend(error.map(|error| Fault::of("to").with_value(&asked.outlet.name).error(&error)));
    }
    let begin_ns = threads.begin.get().copied().unwrap_or(ended_ns);
    let seconds = ended_ns.saturating_sub(begin_ns) as f64 / 1e9;
    Done { counts, seconds, unreadable, is_whole, faults }
}

/// Deals what a source has; whether that was all of it.
fn read(source: &mut dyn Source, dealer: &mut Dealer, stop: &Stop) -> Result<bool, SourceError> {
    let tell = |source: &mut dyn Source| {
        for warning in source.warnings() {
            say(Level::Warning, &format!("wirescope: {warning}"));
        }
    };
    source.begin()?;
    while !stop.flag.load(Ordering::Relaxed) {
        let polled = source.poll(dealer);
        dealer.hand_on();
        tell(source);
        if polled? == Polled::Ended {
            return Ok(true);
        }
    }
    source.stop();
    Ok(false)
}

impl Origin {
    /// The source from its beginning. Those that can be read only once are read in the last turn alone.
    fn source(&mut self, is_last: bool, spec: &str) -> Result<Box<dyn Source>, SourceError> {
        let gone = |spec: &str| {
            let fault = Fault::of_source(spec).cause("it can't be read again");
            SourceError::Spec(fault)
        };
        match self {
            Origin::File(file) if is_last => {
                file.take().map(|file| file as Box<dyn Source>).ok_or_else(|| gone(spec))
            }
            Origin::File(file) => {
                let again = file.as_ref().and_then(|file| file.again());
                again.map(|file| Box::new(file) as Box<dyn Source>).ok_or_else(|| gone(spec))
            }
            Origin::Synth(options) => {
                let mut sources = scope_source::synth::open(options, spec)?;
                sources.pop().map(|source| Box::new(source) as Box<dyn Source>).ok_or_else(|| gone(spec))
            }
        }
    }
}
