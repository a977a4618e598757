//! A dump's own thread for its dump script: it makes the script's function from the packet that fired, and asks it which
//! packets the dump keeps.
//!
//! The dump's thread copies packets to it and waits for the answer, no longer than the script may take. A script that
//! doesn't come back is left behind with its copies, and the dump keeps everything from there on. So no dump hangs, and
//! none loses a packet to a script that is broken.

use super::left_behind::{begin_thread, didn_t_come_back, put_last};
use super::tally::Tally;
use crate::dumps::Fired;
use scope_dump::Keep;
use scope_packet::LinkType;
use scope_ring::Candidate;
use scope_script::{Keepers, Lent, Options};
use scope_trigger::ScriptFile;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// A packet that was copied.
#[derive(Clone, Debug)]
struct Copied {
    /// Where its bytes are.
    bytes: Range<usize>,
    original_len: u32,
    time_ns: i64,
    interface: u32,
    flags: u32,
}

/// Packets that were copied, all of one link type.
#[derive(Clone, Debug)]
struct Copies {
    link_type: LinkType,
    bytes: Vec<u8>,
    packets: Vec<Copied>,
}

/// A dump script with its bounds, for the dumps of one trigger.
#[derive(Clone)]
pub(crate) struct DumpScript {
    pub(super) tally: Arc<Tally>,
    pub(super) script: ScriptFile,
    pub(super) options: Options,
    pub(super) timeout: Duration,
}

/// One dump's side.
struct Keeper {
    name: String,
    tally: Arc<Tally>,
    timeout: Duration,
    asks: Option<SyncSender<Copies>>,
    answers: Receiver<Result<u64, String>>,
    thread: Arc<AtomicI32>,
    gave_up: Option<String>,
}

impl Copies {
    /// Of the packet that fired.
    fn of_fired(fired: Fired) -> Copies {
        let Fired { link_type, data, original_len, time_ns } = fired;
        let packet = Copied { bytes: 0..data.len(), original_len, time_ns, interface: 0, flags: 0 };
        Copies { link_type, bytes: data, packets: vec![packet] }
    }

    fn of(link_type: LinkType, candidates: &[Candidate<'_>]) -> Copies {
        let mut copies = Copies { link_type, bytes: Vec::new(), packets: Vec::new() };
        for candidate in candidates {
            let (head, from) = (candidate.block.head(), copies.bytes.len());
            copies.bytes.extend_from_slice(candidate.block.data());
            copies.packets.push(Copied {
                bytes: from..copies.bytes.len(),
                original_len: head.original_len,
                time_ns: head.time_ns,
                interface: head.interface,
                flags: head.flags,
            });
        }
        copies
    }

    fn lent(&self) -> Vec<Lent<'_>> {
        let lent = |packet: &Copied| Lent {
            data: &self.bytes[packet.bytes.clone()],
            original_len: packet.original_len,
            time_ns: packet.time_ns,
            interface: packet.interface,
            flags: packet.flags,
            link_type: self.link_type,
        };
        self.packets.iter().map(lent).collect()
    }
}

impl DumpScript {
    /// A dump begins, of the packet that fired, if one did. Waits until the script has made its function.
    pub fn begin(&self, fired: Option<Fired>) -> Box<dyn Keep> {
        let fired = fired.map(Copies::of_fired);
        let (asks, asked) = sync_channel(1);
        let (answered, answers) = sync_channel(1);
        let thread = Arc::new(AtomicI32::new(0));
        let mut keeper = Keeper {
            name: self.script.file().to_string(),
            tally: self.tally.clone(),
            timeout: self.timeout,
            asks: Some(asks),
            answers,
            thread: thread.clone(),
            gave_up: self.tally.disabled(),
        };
        if keeper.gave_up.is_some() {
            return Box::new(keeper);
        }
        let this = self.clone();
        let work = move || this.work(fired, &asked, &answered, &thread);
        match std::thread::Builder::new().name("dump-script".to_string()).spawn(work) {
            Ok(_) => drop(keeper.answer()),
            Err(error) => keeper.give_up(format!("no thread for it: {error}")),
        }
        Box::new(keeper)
    }

    /// The thread's own: says first whether there is a function, then which packets it keeps.
    fn work(
        &self,
        fired: Option<Copies>,
        asked: &Receiver<Copies>,
        answered: &SyncSender<Result<u64, String>>,
        thread: &AtomicI32,
    ) {
        thread.store(begin_thread(), Ordering::Relaxed);
        let options = Options { name: self.script.file().to_string(), ..self.options.clone() };
        let mut keepers = match Keepers::load(self.script.text(), &options) {
            Ok(keepers) => keepers,
            Err(error) => {
                let why = error.to_string();
                self.tally.disable(&why);
                let _ = answered.send(Err(why));
                return;
            }
        };
        let lent = fired.as_ref().map(Copies::lent);
        let begun = keepers.begin(lent.as_ref().and_then(|lent| lent.first()));
        self.note(&mut keepers, 0);
        let id = match begun {
            Ok(id) => id,
            Err(_) => {
                let why = keepers.disabled().map(ToString::to_string).or_else(|| keepers.report());
                let _ = answered
                    .send(Err(why.unwrap_or_else(|| "it made no function for this dump".to_string())));
                return;
            }
        };
        if answered.send(Ok(0)).is_err() {
            return;
        }
        let (mut errors, mut cpu_ns) = (keepers.errors(), self.tally.add_cpu(0));
        while let Ok(copies) = asked.recv() {
            let lent = copies.lent();
            let kept = keepers.keep(id, &lent).map(|kept| kept.iter().fold(0, |kept, at| kept | 1 << at));
            self.note(&mut keepers, errors);
            (errors, cpu_ns) = (keepers.errors(), self.tally.add_cpu(cpu_ns));
            let answer = match (kept, keepers.disabled()) {
                (Ok(kept), None) => {
                    self.tally.packets.fetch_add(lent.len() as u64, Ordering::Relaxed);
                    self.tally.hits.fetch_add(u64::from(u64::count_ones(kept)), Ordering::Relaxed);
                    Ok(kept)
                }
                (_, Some(disabled)) => {
                    let why = disabled.to_string();
                    self.tally.disable(&why);
                    Err(why)
                }
                (Err(_), None) => Err("it was left behind".to_string()),
            };
            let is_over = answer.is_err();
            if answered.send(answer).is_err() || is_over {
                return;
            }
        }
        keepers.end(id);
    }

    /// What went wrong, and what it printed.
    fn note(&self, keepers: &mut Keepers, errors_before: u64) {
        self.tally.errors.fetch_add(keepers.errors() - errors_before, Ordering::Relaxed);
        self.tally.report(keepers.report());
        self.tally.printed(keepers.take_notes());
    }
}

impl Keeper {
    /// Waits for the thread's answer as long as it may take; `None`: it said nothing, and says nothing more.
    fn answer(&mut self) -> Option<u64> {
        let why = match self.answers.recv_timeout(self.timeout) {
            Ok(Ok(kept)) => return Some(kept),
            Ok(Err(why)) => why,
            Err(RecvTimeoutError::Disconnected) => {
                "its thread failed: this is a defect of wirescope".to_string()
            }
            Err(RecvTimeoutError::Timeout) => {
                let why = didn_t_come_back(self.timeout);
                self.tally.disable(&why);
                put_last(self.thread.load(Ordering::Relaxed));
                why
            }
        };
        self.give_up(why);
        None
    }

    fn give_up(&mut self, why: String) {
        self.asks = None;
        self.gave_up = Some(why);
    }
}

impl Keep for Keeper {
    fn keep(&mut self, link_type: LinkType, packets: &[Candidate<'_>]) -> u64 {
        let Some(asks) = &self.asks else { return u64::MAX };
        if asks.send(Copies::of(link_type, packets)).is_err() {
            self.give_up("its thread has ended".to_string());
            return u64::MAX;
        }
        self.answer().unwrap_or(u64::MAX)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn gave_up(&self) -> Option<&str> {
        self.gave_up.as_deref()
    }
}
