//! One question to stores and capture files, and its answer: packets by time, and what is missing.
//!
//! ```text
//! stores   ─► names, heads, indexes ─► timeline ┐
//! captures ─► read once, sorted     ─► timeline ┴► joined ─► selection ─► [inside the spans?] ─► consumer
//!                                        around another filter: first the times of its packets, as spans ┘
//! ```
//! Everything here happens after rights were given up.

mod captures;
mod instance;
mod joined;
mod progress;

use crate::NoResult;
use crate::reading;
use crate::reading::Captured;
use crate::reading::means::Means;
use crate::reading::turn::Turn;
use crate::speech::{Level, say};
use crate::words::counted;
use instance::InstanceTimeline;
use joined::{Beside, Joined};
use scope_answer::around::words;
use scope_answer::{Around, Hits, Spans, Within};
use scope_dump::{Buffers, Consumer, Round, Selection, StoreSift};
use scope_events::now_ns;
use scope_fault::{Fault, Subject};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_folder::Folder;
use scope_packet::{Gap, GapReason, LinkType};
use scope_ring::Timeline;
use scope_spelling::printable::shell_word;
use scope_spelling::time::iso;
use scope_store::export::{Question, of_answer};
use scope_store::lanes::Partial;
use scope_store::listing::ListingWork;
use scope_store::timeline::{self, Counted, Damaged, KnownInterfaces, Losses, Span};
use scope_store::unread::unread;
use scope_store::volume::Store;
use scope_store::{Listing, Sift, StoreTimeline};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

pub use captures::Captures;
pub use instance::{Asked, Instance};

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
    /// A run that goes, in the place of both.
    pub instance: Option<Instance>,
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
    /// Asks the run that goes, if one is asked: before rights are given up.
    ///
    /// # Errors
    /// Nobody answers, or it refuses.
    pub fn ask(&self) -> Result<Option<Asked>, NoResult> {
        self.instance.as_ref().map(|instance| instance.ask(self.counts_only)).transpose()
    }

    /// Before a byte of an answer is parsed: what stays is reading stores, or what a run answers, and making files in
    /// `output`.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn give_up_rights(&self, output: Option<&Folder>) -> Result<(), Fault> {
        reading::give_up_rights(&self.stores, output, self.instance.is_some())
    }

    /// Waits for its turn among other questions; `None`: it was stopped.
    pub fn turn(&self, stop: &AtomicBool) -> Option<Turn> {
        let of_pipe = |captures: &Captures| captures.progress().bytes_max.is_none();
        if self.instance.is_some() || self.captures.as_ref().is_some_and(of_pipe) {
            Some(Turn::none())
        } else {
            Turn::wait(stop)
        }
    }
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
    snaps: Vec<u32>,
    interfaces: Arc<dyn KnownInterfaces>,
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
    /// Of a run that was asked, else of stores and captures.
    ///
    /// # Errors
    /// Those of [`Answer::begin`].
    pub fn of(wanted: Wanted, asked: Option<Asked>, stop: &Arc<AtomicBool>) -> Result<Answer, NoResult> {
        match asked {
            Some(asked) => Answer::of_instance(wanted, asked, stop),
            None => Answer::begin(wanted, stop),
        }
    }

    /// Looks at the stores, reads the captures, and finds what is wanted around; the packets themselves come by
    /// [`Answer::read`].
    ///
    /// # Errors
    /// A folder can't be listed, a file is no capture, or the question can't be meant.
    pub fn begin(wanted: Wanted, stop: &Arc<AtomicBool>) -> Result<Answer, NoResult> {
        let Wanted { stores, captures, instance, span, filter, around, mut means, explain, counts_only } =
            wanted;
        debug_assert!(instance.is_none(), "it is asked otherwise");
        let begun = Instant::now();
        let is_count = counts_only && around.is_none();
        let wide = match &around {
            Some(around) => around.wide(span),
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
        let sift = Arc::new(StoreSift::new(filter.clone(), FilterEngine::Native));
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
            let timeline = timeline.transpose().map_err(NoResult::Failed)?;
            Ok(timeline.map(|timeline| Beside::Captures(Box::new(timeline))))
        };
        let mut lacks = Lacks::default();
        let spans = match &around {
            None => None,
            Some(around) => {
                let sift = Arc::new(StoreSift::new(around.filter.clone(), FilterEngine::Native));
                let looked = reading::look(hits_of, &|link_type| sift.keys(link_type), span, threads);
                let (looked, _) = looked.map_err(refused)?;
                let own = means.readings.pop().unwrap_or_default();
                let stores = StoreTimeline::new(looked, span, sift, own, stop.clone());
                let captures = reads(&around.filter, span)?;
                let mut timeline = Joined::new(stores, captures, at_ns.clone());
                let room_bytes = means.memory_bytes / PART_OF_SPANS;
                let spans = hits(&mut timeline, around, span, (&at_ns, room_bytes), stop)?;
                if spans.is_empty() && !stop.load(Ordering::Relaxed) {
                    let text = around.filter.text();
                    say(Level::Info, &format!("wirescope: around: no packet in the span matches: {text}"));
                }
                let missing = timeline.missing(span.to_ns).into_iter();
                lacks.gaps = missing.filter(|gap| gap.reason == GapReason::Unreadable).collect();
                lacks.damages = timeline.stores.damages().to_vec();
                Some(spans)
            }
        };
        let (filters, snaps) = (reading::filters(&looked), reading::snaps(&looked));
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
            snaps,
            interfaces: interfaces as Arc<dyn KnownInterfaces>,
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

    /// Of a run that goes, which was asked: it has selected the packets itself.
    ///
    /// # Errors
    /// What comes is no answer.
    pub fn of_instance(wanted: Wanted, asked: Asked, stop: &Arc<AtomicBool>) -> Result<Answer, NoResult> {
        let Wanted { span, filter, around, means, explain, .. } = wanted;
        let begun = Instant::now();
        let all = Filter::compile("", VlanRule::default(), &[]).map_err(|error| refused(error.fault()))?;
        let wide = around.as_ref().map_or(span, |around| around.wide(span));
        let sift = Arc::new(StoreSift::new(all.clone(), FilterEngine::Interpreter));
        let own = means.readings.into_iter().next().unwrap_or_default();
        let stores = StoreTimeline::new(Vec::new(), wide, sift, own, stop.clone());
        let of = asked.of();
        let instance = InstanceTimeline::new(asked, stores.losses(), stop.clone())?;
        let (interfaces, counted) = (instance.described(), instance.counted());
        let link_types = BTreeSet::from_iter(instance.link_types()).into_iter().collect();
        let at_ns = Arc::new(AtomicI64::new(wide.from_ns));
        let timeline = Joined::new(stores, Some(Beside::Instance(Box::new(instance))), at_ns.clone());
        Ok(Answer {
            timeline,
            filter: all,
            words: words(&filter, around.as_ref()),
            span: wide,
            spans: None,
            of,
            filters: Vec::new(),
            snaps: Vec::new(),
            interfaces,
            link_types,
            faults: Vec::new(),
            folders: Vec::new(),
            explain,
            begun,
            at_ns,
            captured: None,
            counted,
            listed: ListingWork::default(),
            lacks: Lacks::default(),
        })
    }

    /// Reads its packets.
    pub fn read(&mut self, consumer: &mut dyn Consumer, is_shown: bool) {
        let is_nothing = self.spans.as_ref().is_some_and(|spans| spans.is_empty());
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
        self.faults.extend(self.timeline.captures.iter_mut().flat_map(Beside::take_faults));
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

    /// The span that was asked for, up to now at most, where it has both ends.
    pub fn asked_alone(&self) -> Option<(i64, i64)> {
        let Span { from_ns, to_ns } = self.span;
        let has_ends = from_ns > 0 && to_ns < i64::MAX && self.spans.is_none();
        let to_ns = to_ns.min(now_ns());
        (has_ends && from_ns <= to_ns).then_some((from_ns, to_ns))
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
            snaps: self.snaps.clone(),
            partial: self.partial(),
        }
    }

    /// The interfaces of its packets.
    pub fn interfaces(&self) -> Arc<dyn KnownInterfaces> {
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

    /// Bytes to which longer packets were truncated on their way into the stores.
    pub fn snaps(&self) -> &[u32] {
        &self.snaps
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
    (at_ns, room_bytes): (&AtomicI64, u64),
    stop: &Arc<AtomicBool>,
) -> Result<Spans, NoResult> {
    let (from_ns, to_ns) = timeline.heard().unwrap_or_default();
    let (from_ns, to_ns) = (from_ns.max(span.from_ns), to_ns.min(span.to_ns));
    let part = || Some((at_ns.load(Ordering::Relaxed) - from_ns) as f64 / (to_ns - from_ns).max(1) as f64);
    let mut hits = Hits::new(around, room_bytes, stop);
    progress::during(progress::is_seen(), "looking for what is wanted around", &part, || {
        select(timeline, &around.filter, span, &mut hits);
    });
    timeline.end();
    if let Some(fault) = timeline.captures.iter_mut().flat_map(Beside::take_faults).next() {
        return Err(NoResult::Failed(fault));
    }
    hits.done().map_err(NoResult::Failed)
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
