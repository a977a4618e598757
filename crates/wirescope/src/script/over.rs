//! A script over captures, in its own thread: packets as the source lends them, batch by batch, timed.

use crate::script::file::Script;
use crate::script::thread::{Guard, LeftBehind};
use scope_fault::{Fault, Subject};
use scope_packet::{Interface, LinkType, Packet, Sink};
use scope_script::{Ended, Hit, KeeperId, Keepers, Lent, Script as TriggerScript, ScriptError};
use scope_source::file::FileSource;
use scope_source::{Polled, Source, SourceError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What a trigger script hits; so many hits are listed.
    Hits { listed_max: usize },
    /// What a dump script keeps when this packet fires, from 1; 0: when it is fired by hand.
    Kept { fire: u64 },
}

/// What the script was called for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    #[default]
    Loading,
    /// To make the function of the dump.
    Keeper,
    /// For the batch that begins with this packet, from 1.
    Batch(u64),
    /// For its counts, and its finalizers.
    End,
}

/// A hit of a packet (from 1), or of a tick.
#[derive(Clone, Debug)]
pub struct Listed {
    pub packet: Option<u64>,
    pub hit: Hit,
}

/// The time that a script took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Of all batches.
    pub total: Duration,
    pub batches: u64,
    /// Of the slowest batch: its time, its packets, and the first of them, from 1.
    pub slowest: Option<(Duration, u64, u64)>,
}

impl Pace {
    fn add(&mut self, took: Duration, packets: u64, first: u64) {
        self.total += took;
        self.batches += 1;
        if self.slowest.is_none_or(|(slowest, ..)| took > slowest) {
            self.slowest = Some((took, packets, first));
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    pub at: At,
    /// The script can't be loaded.
    pub refused: Option<ScriptError>,
    /// The captures can't be begun with, or lack the packet that fires.
    pub not_begun: Option<Fault>,
    /// The captures could not be read to their ends.
    pub broken: Option<Fault>,
    /// What else is odd about the captures.
    pub warnings: Vec<String>,
    pub forms: Vec<&'static str>,
    /// Packets that the script was called for, its hits, or what its dump keeps.
    pub packets: u64,
    pub hits: u64,
    pub listed: Vec<Listed>,
    /// The first and the last packet that the dump keeps, from 1.
    pub kept_span: Option<(u64, u64)>,
    pub pace: Pace,
    /// What the script says at its end; `None`: it was left behind before.
    pub ending: Option<Ending>,
}

/// What a script says at its end.
#[derive(Debug, Default)]
pub struct Ending {
    pub errors: u64,
    pub report: Option<String>,
    pub disabled: Option<String>,
    pub ticks: u64,
    /// Lua's memory in use, bytes; of a dump script nobody counts it.
    pub memory_bytes: Option<usize>,
    pub flows: u64,
    pub flows_evicted: u64,
    /// What it printed, and how many lines more.
    pub notes: (Vec<String>, u64),
}

/// The script at work.
enum Tried {
    Trigger(Box<TriggerScript>),
    Dump(Box<Keepers>, KeeperId),
}

impl Tried {
    fn is_disabled(&self) -> bool {
        match self {
            Tried::Trigger(script) => script.disabled().is_some(),
            Tried::Dump(keepers, _) => keepers.disabled().is_some(),
        }
    }

    /// Calls the script for a batch, and says how long that took.
    fn feed(&mut self, lent: &[Lent<'_>]) -> (Result<Answers, Ended>, Duration) {
        let begun = Instant::now();
        match self {
            Tried::Trigger(script) => {
                let hits = script.run(lent);
                let took = begun.elapsed();
                (hits.map(|hits| Answers::Hits(hits.to_vec())), took)
            }
            Tried::Dump(keepers, id) => {
                let kept = keepers.keep(*id, lent);
                let took = begun.elapsed();
                (kept.map(|kept| Answers::Kept(kept.to_vec())), took)
            }
        }
    }

    fn ending(&mut self) -> Ending {
        match self {
            Tried::Trigger(script) => {
                let counts = script.counts();
                Ending {
                    errors: counts.errors,
                    report: script.report(),
                    disabled: script.disabled().map(ToString::to_string),
                    ticks: counts.ticks,
                    memory_bytes: Some(counts.memory_bytes),
                    flows: counts.flows,
                    flows_evicted: counts.flows_evicted,
                    notes: script.take_notes(),
                }
            }
            Tried::Dump(keepers, id) => {
                keepers.end(*id);
                ending_of(keepers)
            }
        }
    }
}

fn ending_of(keepers: &mut Keepers) -> Ending {
    Ending {
        errors: keepers.errors(),
        report: keepers.report(),
        disabled: keepers.disabled().map(ToString::to_string),
        notes: keepers.take_notes(),
        ..Ending::default()
    }
}

/// What a script answers for a batch.
enum Answers {
    Hits(Vec<Hit>),
    /// Indices of the packets.
    Kept(Vec<usize>),
}

/// Loads the script, and runs it over what the source brings, until `stop` is set.
pub fn run_over(
    script: &Script,
    asked: Asked,
    mut source: FileSource,
    stop: &AtomicBool,
    guard: &Guard<Found>,
) -> Result<(), LeftBehind> {
    let tried = match asked {
        Asked::Hits { .. } => {
            match guard
                .call(|| TriggerScript::load(&script.text, &script.options).map(|one| (one.forms(), one)))?
            {
                Ok((forms, tried)) => {
                    guard.found().forms = forms;
                    Tried::Trigger(Box::new(tried))
                }
                Err(error) => {
                    guard.found().refused = Some(error);
                    return Ok(());
                }
            }
        }
        Asked::Kept { fire } => match begun_dump(script, fire, &source, stop, guard)? {
            Some((keepers, id)) => Tried::Dump(Box::new(keepers), id),
            None => return Ok(()),
        },
    };
    let listed_max = match asked {
        Asked::Hits { listed_max } => listed_max,
        Asked::Kept { .. } => 0,
    };
    let mut feeding = Feeding { guard, tried, links: Vec::new(), listed_max, packets: 0, is_over: false };
    if let Err(error) = source.begin() {
        guard.found().not_begun = Some(of_captures(error));
        return guard.call(|| drop(feeding));
    }
    while !feeding.is_over && !stop.load(Ordering::Relaxed) {
        match source.poll(&mut feeding) {
            Ok(Polled::Ended) => break,
            Ok(Polled::Packets | Polled::Nothing) => {}
            Err(error) => {
                guard.found().broken = Some(of_captures(error));
                break;
            }
        }
    }
    guard.found().warnings.append(&mut source.warnings());
    guard.found().at = At::End;
    let ending = guard.call(|| feeding.tried.ending())?;
    guard.found().ending = Some(ending);
    guard.call(|| drop(feeding))
}

fn of_captures(error: SourceError) -> Fault {
    error.reason().of_subject(Subject::setting("read"))
}

/// The dump script with the function of its dump; `None`: what was found says why there is none.
fn begun_dump(
    script: &Script,
    fire: u64,
    source: &FileSource,
    stop: &AtomicBool,
    guard: &Guard<Found>,
) -> Result<Option<(Keepers, KeeperId)>, LeftBehind> {
    let mut keepers = match guard.call(|| Keepers::load(&script.text, &script.options))? {
        Ok(keepers) => keepers,
        Err(error) => {
            guard.found().refused = Some(error);
            return Ok(None);
        }
    };
    let fired = match fire {
        0 => None,
        number => match found_packet(number, source, stop) {
            Ok(packet) => Some(packet),
            Err(fault) => {
                guard.found().not_begun = Some(fault);
                return guard.call(|| drop(keepers)).map(|()| None);
            }
        },
    };
    guard.found().at = At::Keeper;
    let trigger = fired.as_ref().map(Fired::lend);
    let (id, ending) = guard.call(|| match keepers.begin(trigger.as_ref()) {
        Ok(id) => (Some(id), None),
        Err(_) => (None, Some(ending_of(&mut keepers))), // which says why
    })?;
    guard.found().ending = ending;
    match id {
        Some(id) => Ok(Some((keepers, id))),
        None => guard.call(|| drop(keepers)).map(|()| None),
    }
}

/// A copy of the packet that fires a dump.
struct Fired {
    data: Vec<u8>,
    original_len: u32,
    time_ns: i64,
    interface: u32,
    flags: u32,
    link_type: LinkType,
}

impl Fired {
    fn lend(&self) -> Lent<'_> {
        let Fired { data, original_len, time_ns, interface, flags, link_type } = self;
        Lent {
            data,
            original_len: *original_len,
            time_ns: *time_ns,
            interface: *interface,
            flags: *flags,
            link_type: *link_type,
        }
    }
}

/// Looks for the sink for one packet.
struct Finding {
    number: u64,
    seen: u64,
    links: Vec<LinkType>,
    packet: Option<Fired>,
}

impl Sink for Finding {
    fn interface(&mut self, interface: &Interface) {
        self.links.push(interface.link_type);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        let at = self.number.checked_sub(self.seen + 1).and_then(|at| usize::try_from(at).ok());
        if let Some(packet) = at.and_then(|at| packets.get(at)) {
            let Packet { data, original_len, time_ns, interface, flags, .. } = *packet;
            let link_type = self.links[interface as usize];
            self.packet =
                Some(Fired { data: data.to_vec(), original_len, time_ns, interface, flags, link_type });
        }
        self.seen += packets.len() as u64;
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}

    fn idle(&mut self, _: i64) {}
}

/// The packet of this number, from 1. The captures are read for it once more.
fn found_packet(number: u64, source: &FileSource, stop: &AtomicBool) -> Result<Fired, Fault> {
    let fault = || Fault::of("fire").with_value(number.to_string());
    let mut again = source.again().ok_or_else(|| {
        let cause = "the capture is no regular file, and would have to be read twice";
        fault().cause(cause).remedy("save it in a file first, or write --fire 0: fired by hand")
    })?;
    again.begin().map_err(of_captures)?;
    let mut finding = Finding { number, seen: 0, links: Vec::new(), packet: None };
    while finding.packet.is_none() && !stop.load(Ordering::Relaxed) {
        match again.poll(&mut finding) {
            Ok(Polled::Ended) => break,
            Ok(Polled::Packets | Polled::Nothing) => {}
            Err(error) => return Err(of_captures(error)),
        }
    }
    let seen = finding.seen;
    finding.packet.ok_or_else(|| {
        let packets = scope_spelling::figures::counted(seen, "packet");
        fault()
            .cause(format!("there is no packet {number}: the capture has {packets}"))
            .remedy("write a smaller number")
    })
}

/// The sink that calls the script.
struct Feeding<'a> {
    guard: &'a Guard<Found>,
    tried: Tried,
    /// Link type of each interface.
    links: Vec<LinkType>,
    listed_max: usize,
    /// Packets so far.
    packets: u64,
    /// The script runs no more.
    is_over: bool,
}

impl Feeding<'_> {
    fn note(&self, answers: Answers, packets: u64, took: Duration) {
        let found = &mut *self.guard.found();
        let before = self.packets;
        let number = |at: usize| before + at as u64 + 1;
        found.packets += packets;
        found.pace.add(took, packets, number(0));
        match answers {
            Answers::Hits(hits) => {
                found.hits += hits.len() as u64;
                let room = self.listed_max.saturating_sub(found.listed.len());
                let listed =
                    hits.into_iter().take(room).map(|hit| Listed { packet: hit.packet.map(number), hit });
                found.listed.extend(listed);
            }
            Answers::Kept(kept) => {
                found.hits += kept.len() as u64;
                if let (Some(first), Some(last)) = (kept.first(), kept.last()) {
                    let begin = found.kept_span.map_or(number(*first), |(begin, _)| begin);
                    found.kept_span = Some((begin, number(*last)));
                }
            }
        }
    }
}

impl Sink for Feeding<'_> {
    fn interface(&mut self, interface: &Interface) {
        self.links.push(interface.link_type);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        if self.is_over {
            return;
        }
        let link_type = |packet: &Packet<'_>| self.links[packet.interface as usize];
        let lent: Vec<Lent<'_>> = packets.iter().map(|packet| lent(packet, link_type(packet))).collect();
        self.guard.found().at = At::Batch(self.packets + 1);
        let tried = &mut self.tried;
        match self.guard.call(|| tried.feed(&lent)) {
            Ok((Ok(answers), took)) => {
                self.note(answers, packets.len() as u64, took);
                self.is_over = self.tried.is_disabled();
            }
            Ok((Err(_), _)) | Err(LeftBehind) => self.is_over = true,
        }
        self.packets += packets.len() as u64;
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}

    fn idle(&mut self, _: i64) {}
}

/// A packet as a script is lent it.
fn lent<'a>(packet: &Packet<'a>, link_type: LinkType) -> Lent<'a> {
    let Packet { data, original_len, time_ns, interface, flags, .. } = *packet;
    Lent { data, original_len, time_ns, interface, flags, link_type }
}
