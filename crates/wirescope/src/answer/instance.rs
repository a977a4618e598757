//! A run that goes, asked at its control socket: its answer as a timeline, block by block as it comes.
//!
//! ```text
//! socket ─► pcapng: sections, interfaces, packets by time ─► pieces          trailers ─► what is missing
//! ```
//! The run has selected the packets, and they stand by time: each is wanted. What it says of gaps at the end is told with
//! those of stores.

use crate::NoResult;
use crate::ask::no;
use crate::speech::{Level, say};
use http::{HeaderMap, Method};
use jiff::tz::TimeZone;
use scope_answer::Around;
use scope_api::client::{self, AskError, Client, encoded};
use scope_fault::Fault;
use scope_filter::Filter;
use scope_packet::pcapng::{self, PacketBlock, le32};
use scope_packet::{Gap, GapReason, KeyEntry, LinkType, Moment, SegmentId};
use scope_ring::{KeyTest, Matches, Packets, Piece, Place, Settled, Timeline};
use scope_spelling::moment::Here;
use scope_spelling::time::iso;
use scope_store::head::HeadInterface;
use scope_store::timeline::{Counted, InterfaceKey, KnownInterfaces, Losses, Span};
use serde_json::Value;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Under which run its interfaces are known: no run has this number.
const RUN: [u8; 16] = [0xfe; 16];
/// So long a read is waited for before it is looked whether the question was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longer than any block that an instance writes, bytes.
const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Options of an interface.
const NAME: u16 = 2;
const DESCRIPTION: u16 = 3;

/// A question to an instance.
pub struct Instance {
    client: Client,
    question: String,
}

/// What came first of its answer.
pub struct Asked {
    path: String,
    kind: Kind,
}

enum Kind {
    /// Packets.
    Answer(Box<client::Answer>),
    /// What they come to.
    Count(Value),
}

impl Instance {
    /// To this instance: the packets of `span` that `filter` matches, or those near to others.
    pub fn new(client: Client, span: Span, filter: &Filter, around: Option<&Around>) -> Instance {
        let mut question = String::new();
        let mut add = |key: &str, value: &str| {
            let between = if question.is_empty() { '?' } else { '&' };
            let _ = write!(question, "{between}{key}={}", encoded(value));
        };
        if !filter.is_everything() {
            add("filter", filter.text());
        }
        if span.from_ns > 0 {
            add("from", &iso(span.from_ns));
        }
        if span.to_ns < i64::MAX {
            add("to", &iso(span.to_ns));
        }
        if let Some(Around { filter, before_ns, after_ns }) = around {
            add("around", filter.text());
            add("before", &format!("{before_ns}ns"));
            add("after", &format!("{after_ns}ns"));
        }
        Instance { client, question }
    }

    /// Asks, while sockets can still be made. `is_count`: only what the packets come to.
    ///
    /// # Errors
    /// Nobody answers, or the instance refuses.
    pub fn ask(&self, is_count: bool) -> Result<Asked, NoResult> {
        let path = self.client.place();
        let more = if is_count { "count=true" } else { "link_type=all" };
        let between = if self.question.is_empty() { '?' } else { '&' };
        let what = format!("packets{}{between}{more}", self.question);
        let kind = match is_count {
            true => self.client.json(Method::GET, &what, None).map(Kind::Count),
            false => self.client.ask(Method::GET, &what, None).map(|answer| Kind::Answer(Box::new(answer))),
        };
        Ok(Asked { path, kind: kind.map_err(|error| no(&self.client, error))? })
    }
}

impl Asked {
    /// Who was asked.
    pub fn of(&self) -> String {
        format!("the instance at {}", self.path)
    }
}

/// The interfaces that were described by now.
#[derive(Default)]
pub struct Described(Mutex<Vec<HeadInterface>>);

impl Described {
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<HeadInterface>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownInterfaces for Described {
    fn of(&self, _: u32, number: u32) -> Option<(InterfaceKey, HeadInterface)> {
        Some(((RUN, number), self.list().get(number as usize)?.clone()))
    }

    fn all(&self, link_type: LinkType) -> Vec<(InterfaceKey, HeadInterface)> {
        let list = self.list();
        let of_type = (0..).zip(list.iter()).filter(|(_, one)| one.link_type == link_type);
        of_type.map(|(number, one)| ((RUN, number), one.clone())).collect()
    }
}

/// Its packets as a timeline.
pub struct InstanceTimeline {
    path: String,
    answer: Option<Box<client::Answer>>,
    /// What came, and how far it is read.
    bytes: Vec<u8>,
    at: usize,
    /// The packets that are lent, and their blocks.
    places: Vec<Place>,
    blocks: Vec<u8>,
    /// Link types by lane.
    lanes: Vec<LinkType>,
    described: Arc<Described>,
    packets: u64,
    /// Time of the last packet, ns.
    last_ns: i64,
    heard: Option<(i64, i64)>,
    losses: Losses,
    stop: Arc<AtomicBool>,
    fault: Option<Fault>,
    faults: Vec<Fault>,
    counted: Counted,
}

impl InstanceTimeline {
    /// Of an answer that has begun; what it lacks goes into `losses`.
    ///
    /// # Errors
    /// What came is none.
    pub fn new(asked: Asked, losses: Losses, stop: Arc<AtomicBool>) -> Result<InstanceTimeline, NoResult> {
        let Asked { path, kind } = asked;
        let mut timeline = InstanceTimeline {
            path,
            answer: None,
            bytes: Vec::new(),
            at: 0,
            places: Vec::new(),
            blocks: Vec::new(),
            lanes: Vec::new(),
            described: Arc::default(),
            packets: 0,
            last_ns: i64::MIN,
            heard: None,
            losses,
            stop,
            fault: None,
            faults: Vec::new(),
            counted: Counted::default(),
        };
        match kind {
            Kind::Count(count) => {
                let number = |key: &str| count[key].as_u64().unwrap_or(0);
                let (first, last) = (time(&count["first"]), time(&count["last"]));
                let (packets, bytes) = (number("packets"), number("bytes"));
                timeline.counted = Counted { packets, bytes, span_ns: first.zip(last) };
                timeline.losses.add(gaps(&count["missing"]));
            }
            Kind::Answer(answer) => {
                let heard = |name: &str| {
                    let text = answer.headers.get(name)?.to_str().ok()?.to_string();
                    time(&Value::String(text))
                };
                timeline.heard = heard("wirescope-heard-from").zip(heard("wirescope-heard-to"));
                timeline.answer = Some(answer);
                // The interfaces stand in front of the first packet.
                timeline.gather();
                if let Some(fault) = timeline.fault.take() {
                    return Err(NoResult::Failed(fault));
                }
            }
        }
        Ok(timeline)
    }

    /// The interfaces of its packets.
    pub fn described(&self) -> Arc<Described> {
        self.described.clone()
    }

    /// The link types by now.
    pub fn link_types(&self) -> Vec<LinkType> {
        self.described.list().iter().map(|one| one.link_type).collect()
    }

    /// What the run counted.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// What the run couldn't read.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        let mut faults = std::mem::take(&mut self.faults);
        faults.extend(self.fault.take());
        faults
    }

    /// The next packets of one lane, as they stand behind each other; none: that was all.
    fn gather(&mut self) {
        self.places.clear();
        self.blocks.clear();
        let mut lane = None;
        while self.fault.is_none() && !self.stop.load(Ordering::Relaxed) {
            let Some(len) = self.block_len() else {
                // What is there is handed on before more is waited for.
                if !self.places.is_empty() || !self.read() {
                    return;
                }
                continue;
            };
            let at = self.at;
            let block = &self.bytes[at..at + len];
            match le32(block, 0) {
                pcapng::INTERFACE => {
                    let interface = interface(block);
                    let link_type = interface.link_type;
                    self.described.list().push(interface);
                    if !self.lanes.contains(&link_type) {
                        self.lanes.push(link_type);
                    }
                }
                pcapng::PACKET => {
                    let Some(packet) = PacketBlock::first(block) else {
                        return self.broken("a packet is none");
                    };
                    let number = packet.interface() as usize;
                    let link_type = self.described.list().get(number).map(|known| known.link_type);
                    let own =
                        link_type.and_then(|link_type| self.lanes.iter().position(|one| *one == link_type));
                    let Some(own) = own else { return self.broken("a packet names no interface") };
                    if lane.is_some_and(|lane| lane != own) {
                        return;
                    }
                    lane = Some(own);
                    let (time_ns, place) = (packet.time_ns(), self.blocks.len() as u32);
                    self.places.push(Place {
                        time_ns,
                        packet: self.packets,
                        key: KeyEntry::default(),
                        at: place,
                    });
                    self.blocks.extend_from_slice(block);
                    (self.packets, self.last_ns) = (self.packets + 1, time_ns);
                }
                _ => {}
            }
            self.at += len;
        }
    }

    /// Bytes of the block that is next; `None`: not all of it is there.
    fn block_len(&mut self) -> Option<usize> {
        let rest = &self.bytes[self.at..];
        if rest.len() < 8 {
            return None;
        }
        let len = le32(rest, 4) as usize;
        if !(pcapng::BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&len) || !len.is_multiple_of(4) {
            self.broken("what comes is no pcapng");
            return None;
        }
        (rest.len() >= len).then_some(len)
    }

    fn broken(&mut self, cause: &str) {
        self.answer = None;
        self.fault =
            Some(Fault::of_thing(&self.path).cause(format!("the instance's answer can't be read: {cause}")));
    }

    /// Waits for more bytes; `false`: no more come.
    fn read(&mut self) -> bool {
        self.bytes.drain(..self.at);
        self.at = 0;
        while let Some(answer) = &mut self.answer {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            match answer.piece_within(LOOK_EVERY) {
                Ok(None) => {}
                Ok(Some(Some(bytes))) => {
                    self.bytes.extend_from_slice(&bytes);
                    return true;
                }
                Ok(Some(None)) => {
                    let trailers = std::mem::take(&mut answer.trailers);
                    self.end(&trailers);
                }
                Err(error) => self.broken(&told(&error)),
            }
        }
        false
    }

    /// The answer has its end.
    fn end(&mut self, trailers: &HeaderMap) {
        self.answer = None;
        let json = |name: &str| {
            let text = trailers.get(name).and_then(|text| text.to_str().ok());
            text.and_then(|text| serde_json::from_str::<Value>(text).ok())
        };
        let Some(missing) = json("wirescope-missing") else {
            return self.broken("it has no end");
        };
        self.losses.add(gaps(&missing));
        let faults = json("wirescope-faults").unwrap_or_default();
        for fault in faults.as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.faults.push(Fault::of_thing(&self.path).cause(fault));
        }
    }
}

fn told(error: &AskError) -> String {
    match error {
        AskError::Broken(_) => "it broke off; the run has ended, or ended it".to_string(),
        other => other.to_string(),
    }
}

/// A time as answers write it.
fn time(value: &Value) -> Option<i64> {
    let here = Here { now_ns: 0, zone: TimeZone::UTC };
    here.read(value.as_str()?).ok().map(|moment| moment.time_ns)
}

/// Gaps as answers write them.
fn gaps(value: &Value) -> Vec<Gap> {
    let gap = |gap: &Value| {
        let word = gap["reason"].as_str()?;
        let reason = GapReason::ALL.into_iter().find(|known| known.name() == word)?;
        let to_ns = if gap["to"].is_null() { i64::MAX } else { time(&gap["to"])? };
        let (lost_min, lost_max) = (gap["lost_min"].as_u64()?, gap["lost_max"].as_u64());
        Some(Gap { from_ns: time(&gap["from"])?, to_ns, reason, lost_min, lost_max })
    };
    let list = value.as_array().map_or(&[][..], Vec::as_slice);
    let known: Vec<Gap> = list.iter().filter_map(gap).collect();
    if known.len() < list.len() {
        say(Level::Warning, "wirescope: the instance states gaps of a kind that this program doesn't know");
    }
    known
}

/// What an interface description block says.
fn interface(block: &[u8]) -> HeadInterface {
    let number = block.get(8..10).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let (mut name, mut description) = (String::new(), String::new());
    let end = block.len().saturating_sub(4).max(16);
    pcapng::options(block.get(16..end).unwrap_or_default(), false, |code, value| match code {
        NAME => name = String::from_utf8_lossy(value).into_owned(),
        DESCRIPTION => description = String::from_utf8_lossy(value).into_owned(),
        _ => {}
    });
    HeadInterface { name, description, link_type: LinkType(number).canonical() }
}

impl Timeline for InstanceTimeline {
    fn settle(&mut self, _: i64) -> Settled {
        Settled { up_to: Moment::END, goes_on: false }
    }

    fn look(&mut self, _: i64, _: bool) {}

    fn next(&mut self) -> Option<Piece> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        if self.places.is_empty() {
            self.gather();
        }
        let first = self.places.first()?;
        let link_type = PacketBlock::first(&self.blocks).and_then(|packet| {
            self.described.list().get(packet.interface() as usize).map(|one| one.link_type)
        })?;
        let lane = self.lanes.iter().position(|one| *one == link_type)? as u32;
        let segment = SegmentId { run: RUN, lane, sequence: first.packet };
        let (first_packet, packets, min_ns) = (first.packet, self.places.len() as u32, first.time_ns);
        Some(Piece { segment, lane, first_packet, packets, min_ns, ordered: true })
    }

    /// What isn't read yet stands behind what is.
    fn next_place(&self) -> Option<(i64, u32)> {
        let goes_on = self.answer.is_some() || self.bytes.len() > self.at || !self.places.is_empty();
        goes_on.then_some((self.last_ns, 0))
    }

    /// All of it is [`Timeline::selected`].
    fn screen(&mut self, _: &KeyTest, _: Option<u64>) -> Option<Matches> {
        None
    }

    fn packets(&mut self, _: Matches) -> Packets<'_> {
        Packets::default()
    }

    fn selected(&mut self) -> Option<Packets<'_>> {
        Some(Packets::listed(&self.places, &self.blocks))
    }

    fn done(&mut self) {
        self.places.clear();
    }

    fn wait(&mut self, _: i64) {}

    fn end(&mut self) {
        self.answer = None;
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        self.lanes.get(lane as usize).copied()
    }

    fn heard(&self) -> Option<(i64, i64)> {
        self.heard
    }

    fn missing(&self, _: i64) -> Vec<Gap> {
        Vec::new() // told with those of the stores
    }
}
