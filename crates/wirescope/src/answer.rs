//! One question to stores and capture files, and its answer: packets by time, and what is missing.
//!
//! ```text
//! stores   ─► names, heads, indexes ─► timeline ┐
//! captures ─► read once, sorted     ─► timeline ┴► joined ─► selection ─► [inside the spans?] ─► consumer
//!                                        around another filter: first the times of its packets, as spans ┘
//! ```
//! Everything here happens after rights were given up.

mod captures;
mod joined;
mod progress;
mod spans;

use crate::NoResult;
use crate::reading;
use crate::reading::Captured;
use crate::reading::means::Means;
use crate::reading::turn::Turn;
use crate::speech::{Level, say};
use crate::words::{counted, number};
use joined::Joined;
use scope_dump::merge::Position;
use scope_dump::{Buffers, Consumer, Round, Selection, StoreSift};
use scope_events::now_ns;
use scope_fault::{Fault, Setting, Subject, sentence};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_folder::Folder;
use scope_packet::{Gap, GapReason, LinkType};
use scope_ring::Timeline;
use scope_spelling::printable::shell_word;
use scope_spelling::time::iso;
use scope_store::export::{Question, of_answer};
use scope_store::lanes::Partial;
use scope_store::listing::ListingWork;
use scope_store::timeline::{self, Counted, Damaged, Losses, Span, StoreInterfaces};
use scope_store::unread::unread;
use scope_store::volume::Store;
use scope_store::{Listing, Sift, StoreTimeline};
use spans::{SPAN_BYTES, Spans};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

pub use captures::Captures;

/// Damaged places that are told one by one.
const DAMAGES_TOLD: usize = 10;
/// Of the memory for packets the part that capture files take until they are sorted, and the spans of another filter.
const PART_OF_CAPTURES: u64 = 4;
const PART_OF_SPANS: u64 = 4;

/// What is asked for, understood.
pub struct Wanted {
    /// Stores, each with the folder that it was given by.
    pub stores: Vec<(Store, PathBuf)>,
    /// Capture files.
    pub captures: Option<Captures>,
    /// The span.
    pub span: Span,
    /// Which packets of it.
    pub filter: Filter,
    /// Only those near to others.
    pub around: Option<Around>,
    /// What may be taken for it.
    pub means: Means,
    /// What was read for it is said.
    pub explain: bool,
    /// Of whole segments of a store without a filter, and of capture files, only [`Answer::counted`] is needed.
    pub counts_only: bool,
}

impl Wanted {
    /// Waits for its turn among other questions; `None`: it was stopped.
    pub fn turn(&self, stop: &AtomicBool) -> Option<Turn> {
        let of_pipe = |captures: &Captures| captures.progress().bytes_max.is_none();
        if self.captures.as_ref().is_some_and(of_pipe) { Some(Turn::none()) } else { Turn::wait(stop) }
    }
}

/// Packets that others are wanted around.
pub struct Around {
    /// Which, of the span.
    pub filter: Filter,
    /// How long before each of them.
    pub before_ns: i64,
    /// And behind it.
    pub after_ns: i64,
}

/// An answer, ready to be read.
pub struct Answer {
    timeline: Joined,
    filter: Filter,
    /// The question in words; empty: all packets.
    words: String,
    span: Span,
    /// Where packets are wanted; `None`: in all of the span.
    spans: Option<Spans>,
    of: String,
    filters: Vec<String>,
    interfaces: Arc<StoreInterfaces>,
    link_types: Vec<LinkType>,
    faults: Vec<Fault>,
    /// Of the stores, as they were given.
    folders: Vec<(Folder, PathBuf)>,
    explain: bool,
    begun: Instant,
    at_ns: Arc<AtomicI64>,
    captured: Option<Captured>,
    /// Packets that were counted without keeping them.
    counted: Counted,
    listed: ListingWork,
    /// What couldn't be read of the packets that others are wanted around.
    lacks: Lacks,
}

/// What the first of two readings lacks.
#[derive(Default)]
struct Lacks {
    damages: Vec<Damaged>,
    gaps: Vec<Gap>,
}

impl Answer {
    /// Looks at the stores, reads the captures, and finds what is wanted around; the packets themselves come by
    /// [`Answer::read`].
    ///
    /// # Errors
    /// A folder can't be listed, a file is no capture, or the question can't be meant.
    pub fn begin(wanted: Wanted, stop: &Arc<AtomicBool>) -> Result<Answer, NoResult> {
        let Wanted { stores, captures, span, filter, around, mut means, explain, counts_only } = wanted;
        let begun = Instant::now();
        let is_count = counts_only && around.is_none();
        let wide = match &around {
            Some(around) => Span {
                from_ns: span.from_ns.saturating_sub(around.before_ns).max(0),
                to_ns: span.to_ns.saturating_add(around.after_ns),
            },
            None => span,
        };
        let mut of: Vec<String> = stores.iter().map(|(store, _)| format!("store {}", store.id())).collect();
        of.dedup(); // copies have the same id
        of.extend(captures.as_ref().map(Captures::names));
        let folders = folders(&stores)?;
        let hits_of = match &around {
            Some(_) => again(&stores)?,
            None => Vec::new(),
        };
        let filters: Vec<&Filter> =
            std::iter::once(&filter).chain(around.iter().map(|around| &around.filter)).collect();
        let read = captures.map(|captures| {
            let progress = captures.progress();
            let memory = (!is_count).then_some((means.memory_bytes / PART_OF_CAPTURES) as usize);
            let part = || Some(progress.bytes() as f64 / progress.bytes_max? as f64);
            progress::during(progress::is_seen(), "capture files", &part, || {
                captures.read(&filters, wide, memory, stop)
            })
        });
        let mut read = read.transpose()?;
        let sift = StoreSift::new(filter.clone(), FilterEngine::Native);
        let threads = means.threads;
        let looked = reading::look(stores, &|link_type| sift.keys(link_type), wide, threads);
        let (looked, listed) = looked.map_err(refused)?;
        let mut link_types = link_types(&looked);
        link_types.extend(read.iter().flat_map(|read| read.link_types.iter().copied()));
        if read.is_some() {
            for (filter, key) in filters.iter().zip(["", "around"]) {
                fits(filter, key, &link_types)?;
            }
        }
        let at_ns = Arc::new(AtomicI64::new(wide.from_ns));
        let reads = |filter: &Filter, span: Span| {
            let timeline = read.as_ref().map(|read| read.timeline(filter, span, stop.clone()));
            timeline.transpose().map_err(NoResult::Failed)
        };
        let mut lacks = Lacks::default();
        let spans = match &around {
            None => None,
            Some(around) => {
                let sift = StoreSift::new(around.filter.clone(), FilterEngine::Native);
                let looked = reading::look(hits_of, &|link_type| sift.keys(link_type), span, threads);
                let (looked, _) = looked.map_err(refused)?;
                let own = means.readings.pop().unwrap_or_default();
                let stores = StoreTimeline::new(looked, span, sift, own, stop.clone());
                let captures = reads(&around.filter, span)?;
                let mut timeline = Joined::new(stores, captures, at_ns.clone());
                let spans_max = (means.memory_bytes / PART_OF_SPANS) as usize / SPAN_BYTES;
                let spans = hits(&mut timeline, around, span, (&at_ns, spans_max), stop)?;
                if spans.len() == 0 && !stop.load(Ordering::Relaxed) {
                    let text = around.filter.text();
                    say(Level::Info, &format!("wirescope: around: no packet in the span matches: {text}"));
                }
                let missing = timeline.missing(span.to_ns).into_iter();
                lacks.gaps = missing.filter(|gap| gap.reason == GapReason::Unreadable).collect();
                lacks.damages = timeline.stores.damages().to_vec();
                Some(spans)
            }
        };
        let filters = reading::filters(&looked);
        let within = spans.as_ref().map(|spans: &Spans| spans.all().to_vec());
        let own =
            timeline::Means { within, counts_only: is_count, ..means.readings.pop().unwrap_or_default() };
        let stores = StoreTimeline::new(looked, wide, sift, own, stop.clone());
        let captures = reads(&filter, wide)?;
        let timeline = Joined::new(stores, captures, at_ns.clone());
        let mut interfaces = timeline.stores.interfaces();
        let (mut faults, mut captured, mut counted) = (Vec::new(), None, timeline.stores.counted());
        if let Some(read) = &mut read {
            let of_captures = std::mem::take(&mut read.interfaces);
            interfaces = Arc::new(interfaces.with(captures::RUN, &read.link_types, of_captures));
            timeline.stores.losses().add(std::mem::take(&mut read.gaps));
            faults.append(&mut read.faults);
            let (packets, taken, spilled_bytes) = (read.packets, read.taken, read.spilled_bytes());
            captured = Some(Captured { packets, taken: taken.packets, spilled_bytes });
            if is_count {
                counted = counted.with(&taken);
            }
        }
        let heard = timeline.heard();
        refuse_future(span, heard)?;
        let words = words(&filter, around.as_ref());
        let of = of.join(", ");
        Ok(Answer {
            timeline,
            filter,
            words,
            span: wide,
            spans,
            of,
            filters,
            interfaces,
            link_types: BTreeSet::from_iter(link_types).into_iter().collect(),
            faults,
            folders,
            explain,
            begun,
            at_ns,
            captured,
            counted,
            listed,
            lacks,
        })
    }

    /// Reads its packets.
    pub fn read(&mut self, consumer: &mut dyn Consumer, is_shown: bool) {
        let is_nothing = self.spans.as_ref().is_some_and(|spans| spans.len() == 0);
        if !is_nothing {
            let (from_ns, to_ns) = self.extent().unwrap_or_default();
            let at_ns = self.at_ns.clone();
            at_ns.store(from_ns, Ordering::Relaxed);
            let part =
                || Some((at_ns.load(Ordering::Relaxed) - from_ns) as f64 / (to_ns - from_ns).max(1) as f64);
            progress::during(is_shown && progress::is_seen(), "reading", &part, || match &self.spans {
                Some(spans) => {
                    let mut within = Within { spans, consumer };
                    select(&mut self.timeline, &self.filter, self.span, &mut within);
                }
                None => select(&mut self.timeline, &self.filter, self.span, consumer),
            });
        }
        self.timeline.end();
        self.faults.extend(self.timeline.captures.as_mut().and_then(|captures| captures.take_fault()));
        self.add_lacks();
        let gone = self.folders.iter().filter(|(folder, _)| reading::is_deleted(folder));
        self.faults.extend(gone.map(|(_, path)| reading::deleted(path)));
        if self.explain {
            reading::explained(&self.listed, &self.timeline.stores.work(), self.captured, self.begun);
        }
    }

    /// Adds what only the first reading met.
    fn add_lacks(&mut self) {
        let Lacks { mut damages, mut gaps } = std::mem::take(&mut self.lacks);
        let known = self.timeline.missing(self.span.to_ns);
        gaps.retain(|gap| {
            let has = |other: &Gap| {
                other.reason == gap.reason && other.from_ns <= gap.from_ns && other.to_ns >= gap.to_ns
            };
            !known.iter().any(has)
        });
        self.timeline.stores.losses().add(gaps);
        damages.retain(|damage| !self.timeline.stores.damages().contains(damage));
        self.faults.extend(of_damages(&damages));
    }

    /// From when to when there may be packets of it, as far as that is known.
    pub fn extent(&self) -> Option<(i64, i64)> {
        let (from_ns, to_ns) = self.timeline.heard()?;
        let hull = self.spans.as_ref().and_then(Spans::hull).unwrap_or((i64::MIN, i64::MAX));
        let from_ns = from_ns.max(self.span.from_ns).max(hull.0);
        let to_ns = to_ns.min(self.span.to_ns).min(hull.1);
        (from_ns <= to_ns).then_some((from_ns, to_ns))
    }

    /// The span that was asked for, up to now at most; an end that it doesn't have is that of `known`, and so are both
    /// where packets are wanted around others.
    pub fn asked(&self, known: (i64, i64)) -> (i64, i64) {
        let Span { from_ns, to_ns } = self.span;
        if self.spans.is_some() {
            return known;
        }
        let to_ns = if to_ns == i64::MAX { known.1 } else { to_ns.min(known.1.max(now_ns())) };
        (if from_ns > 0 { from_ns } else { known.0 }, to_ns)
    }

    /// What was counted of it without reading it, and doesn't come as packets.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// What it lacks by now.
    pub fn gaps(&self) -> Vec<Gap> {
        of_answer(self.timeline.missing(self.span.to_ns), !self.words.is_empty())
    }

    /// What couldn't be read by now.
    pub fn faults(&self) -> Vec<Fault> {
        [&self.faults[..], &of_damages(self.timeline.stores.damages())].concat()
    }

    /// The question, as the header of a capture states it.
    pub fn question(&self) -> Question {
        Question {
            of: self.of.clone(),
            span: self.span,
            heard: self.timeline.heard(),
            filter: self.words.clone(),
            filters: self.filters.clone(),
            partial: self.partial(),
        }
    }

    /// The interfaces of its packets.
    pub fn interfaces(&self) -> Arc<StoreInterfaces> {
        self.interfaces.clone()
    }

    /// What is missing, as far as that is known by now: also while it is read.
    pub fn losses(&self) -> Losses {
        self.timeline.stores.losses()
    }

    /// The link types that its packets may have, each once.
    pub fn link_types(&self) -> &[LinkType] {
        &self.link_types
    }

    /// The link type of the first lane.
    pub fn first_type(&self) -> Option<LinkType> {
        self.timeline.link_type(0)
    }

    /// The filters that packets passed on their way into the stores.
    pub fn filters(&self) -> &[String] {
        &self.filters
    }

    /// Volumes of its runs that weren't given, in words, a line for each run.
    pub fn partial(&self) -> Vec<String> {
        self.timeline.stores.partial().iter().map(|(partial, packets)| elsewhere(partial, *packets)).collect()
    }
}

fn refused(fault: Fault) -> NoResult {
    NoResult::Refused(vec![fault])
}

/// The stores' folders, opened once more.
fn folders(stores: &[(Store, PathBuf)]) -> Result<Vec<(Folder, PathBuf)>, NoResult> {
    let open = |(store, path): &(Store, PathBuf)| match store.folder().again() {
        Ok(folder) => Ok((folder, path.clone())),
        Err(error) => Err(refused(unread(path, &error))),
    };
    stores.iter().map(open).collect()
}

/// The same stores, opened once more.
fn again(stores: &[(Store, PathBuf)]) -> Result<Vec<(Store, PathBuf)>, NoResult> {
    let store = |(folder, path): (Folder, PathBuf)| match Store::of(folder) {
        Ok(store) => Ok((store, path)),
        Err(fault) => Err(refused(fault)),
    };
    folders(stores)?.into_iter().map(store).collect()
}

/// The packets of a span that a filter matches, by time.
fn select(timeline: &mut dyn Timeline, filter: &Filter, span: Span, consumer: &mut dyn Consumer) {
    let buffers: Arc<Buffers> = Arc::default();
    let mut selection = Selection::new(filter.clone(), FilterEngine::Native, span.from_ns, None, &buffers);
    let round = Round { to_ns: span.to_ns, settled_ns: i64::MAX, last: true };
    selection.round(timeline, round, consumer);
}

/// Where packets are wanted: around each that the other filter matches.
fn hits(
    timeline: &mut Joined,
    around: &Around,
    span: Span,
    (at_ns, spans_max): (&AtomicI64, usize),
    stop: &Arc<AtomicBool>,
) -> Result<Spans, NoResult> {
    let (from_ns, to_ns) = timeline.heard().unwrap_or_default();
    let (from_ns, to_ns) = (from_ns.max(span.from_ns), to_ns.min(span.to_ns));
    let part = || Some((at_ns.load(Ordering::Relaxed) - from_ns) as f64 / (to_ns - from_ns).max(1) as f64);
    let mut hits = Hits { around, spans: Spans::default(), spans_max, is_full: false, stop };
    progress::during(progress::is_seen(), "looking for what is wanted around", &part, || {
        select(timeline, &around.filter, span, &mut hits);
    });
    timeline.end();
    if let Some(fault) = timeline.captures.as_mut().and_then(|captures| captures.take_fault()) {
        return Err(NoResult::Failed(fault));
    }
    if hits.is_full {
        let cause = format!("it matches packets in more than {} separate spans", number(spans_max as u64));
        let memory = Setting::of("memory");
        let remedy = sentence!["lengthen ", Setting::of("before"), ", so that spans join, or raise ", memory];
        return Err(NoResult::Failed(Fault::of("around").cause(cause).remedy(remedy)));
    }
    Ok(hits.spans)
}

/// Notes where packets are wanted.
struct Hits<'a> {
    around: &'a Around,
    spans: Spans,
    spans_max: usize,
    is_full: bool,
    stop: &'a AtomicBool,
}

impl Consumer for Hits<'_> {
    fn packet(&mut self, position: Position, _: LinkType, _: &[u8]) {
        if self.is_full {
            return;
        }
        let Around { before_ns, after_ns, .. } = self.around;
        let time_ns = position.time_ns;
        self.spans.add(time_ns.saturating_sub(*before_ns).max(0), time_ns.saturating_add(*after_ns));
        if self.spans.len() > self.spans_max {
            self.is_full = true;
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Hands on what lies in the spans.
struct Within<'a> {
    spans: &'a Spans,
    consumer: &'a mut dyn Consumer,
}

impl Consumer for Within<'_> {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        if self.spans.contains(position.time_ns) {
            self.consumer.packet(position, link_type, block);
        }
    }

    fn between(&mut self) {
        self.consumer.between();
    }
}

/// The question in words; empty: all packets.
fn words(filter: &Filter, around: Option<&Around>) -> String {
    let own = if filter.is_everything() { "" } else { filter.text() };
    let Some(Around { filter, before_ns, after_ns }) = around else { return own.to_string() };
    let own = if own.is_empty() { "all packets" } else { own };
    let (before, after) = (span_words(*before_ns), span_words(*after_ns));
    let of = if filter.is_everything() { "any packet" } else { filter.text() };
    format!("{own}; from {before} before to {after} behind each of: {of}")
}

fn span_words(ns: i64) -> String {
    if ns == 0 { "0 s".to_string() } else { scope_spelling::figures::span(ns) }
}

/// A filter must be one for some link type that there is; of capture files these are known only now.
fn fits(filter: &Filter, key: &'static str, link_types: &[LinkType]) -> Result<(), NoResult> {
    if link_types.is_empty() || link_types.iter().any(|&link_type| filter.compiles_for(link_type)) {
        return Ok(());
    }
    match Filter::compile(filter.text(), VlanRule::default(), link_types) {
        Ok(_) => Ok(()),
        Err(error) if key.is_empty() => Err(refused(error.fault())),
        Err(error) => Err(refused(error.fault().of_subject(Subject::setting(key)))),
    }
}

/// A span that begins behind now is meant otherwise, unless something has such times.
fn refuse_future(span: Span, heard: Option<(i64, i64)>) -> Result<(), NoResult> {
    let now_ns = now_ns();
    if span.from_ns <= now_ns || heard.is_some_and(|(_, to_ns)| to_ns >= span.from_ns) {
        return Ok(());
    }
    let cause =
        format!("the span begins at {}, which is in the future: now is {}", iso(span.from_ns), iso(now_ns));
    let remedy = match heard {
        Some((from_ns, to_ns)) => format!("there are packets from {} to {}", iso(from_ns), iso(to_ns)),
        None => "there are no packets at all".to_string(),
    };
    Err(refused(Fault::of("from").cause(cause).remedy(remedy)))
}

/// The link types of what the stores have.
fn link_types(stores: &[(Store, Listing)]) -> Vec<LinkType> {
    let contents = stores.iter().flat_map(|(_, listing)| &listing.files).flat_map(|file| &file.contents);
    contents.map(|contents| contents.link_type).collect()
}

/// What may be in volumes of a run that weren't given.
pub fn elsewhere(partial: &Partial, packets: u64) -> String {
    let others = if partial.volumes - partial.given == 1 { "other" } else { "others" };
    match packets {
        0 => format!("{partial}; packets may be in the {others}"),
        most => format!("{partial}; up to {} may be in the {others}", counted(most, "packet")),
    }
}

/// What of stores can't be read.
fn of_damages(damages: &[Damaged]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for damaged in damages.iter().take(DAMAGES_TOLD) {
        let missing = match damaged.packets {
            Some(packets) => format!("; {} of it missing", counted(packets, "packet")),
            None if damaged.is_cut => {
                "; its whole segments are read, packets behind them may be missing".to_string()
            }
            None => "; its packets are missing".to_string(),
        };
        let fault = damaged.fault.clone().cause(format!("{}{missing}", damaged.fault.why()));
        faults.push(match damaged.fault.remedy {
            Some(_) => fault,
            None => fault.remedy(format!("what else is wrong: {}", verify(&damaged.store))),
        });
    }
    if damages.len() > DAMAGES_TOLD {
        let more = counted((damages.len() - DAMAGES_TOLD) as u64, "more damaged place");
        let store = &damages[DAMAGES_TOLD].store;
        faults.push(Fault::whole(more).remedy(format!("see: {}", verify(store))));
    }
    faults
}

/// The command that says all that is wrong with a store.
fn verify(store: &Path) -> String {
    format!("wirescope verify {}", shell_word(store))
}
