//! Answers to questions for packets: as a capture, an object a line, or one object, streamed as it is read.
//!
//! ```text
//! request ─► a place, or 429 ─► thread "question", at the lowest priority ─► ring, stores ─► pieces ─► client
//!                                                                            what is missing ─► trailers
//! ```
//! Pieces that a client doesn't take are few, and between two of them nothing of the ring is held. A client that goes away
//! ends the reading.

use crate::body::Body;
use crate::firing::Whose;
use crate::given::{CLIENT_GONE, COMPLETE as WHOLE, Ending, Given, INCOMPLETE, Later};
use crate::question::{Question, Shape};
use crate::questions;
use crate::state::State;
use crate::stream::{Objects, PIECES_MAX, Pipe, Sent, Stream, Taken};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::Frame;
use jiff::tz::TimeZone;
use scope_answer::around::words;
use scope_answer::words::step_ns;
use scope_answer::{Each, Form, Hits, LIMIT_OF_TOP, Lines, Spans, Steps, Sum, Top, Within, steps};
use scope_api::Problem;
use scope_dump::merge::Position;
use scope_dump::{Consumer, RunAnswer};
use scope_events::now_ns;
use scope_fault::Fault;
use scope_filter::Filter;
use scope_http::body::Count;
use scope_packet::{Gap, GapReason, LinkType};
use scope_spelling::printable::json_line;
use scope_spelling::time::iso;
use scope_store::export::{self, Export, Format, Target};
use scope_store::head::HeadInterface;
use scope_store::timeline::{InterfaceKey, KnownInterfaces, Losses, Span};
use scope_store::{listing, volume::Store};
use serde_json::{Map, Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;

/// Memory for the spans around packets, and for the keys of a top list, bytes.
const SPANS_BYTES: u64 = 8 << 20;
const TOP_BYTES: u64 = 16 << 20;
/// Damages that are told.
const FAULTS_MAX: usize = 10;
const HEARD_FROM: HeaderName = HeaderName::from_static("wirescope-heard-from");
const HEARD_TO: HeaderName = HeaderName::from_static("wirescope-heard-to");
const PACKETS_MOST: HeaderName = HeaderName::from_static("wirescope-packets-most");
const BYTES_MOST: HeaderName = HeaderName::from_static("wirescope-bytes-most");
/// What stands in the trailers.
const PACKETS: HeaderName = HeaderName::from_static("wirescope-packets");
const OTHER_TYPES: HeaderName = HeaderName::from_static("wirescope-other-link-types");
const LOST_LEAST: HeaderName = HeaderName::from_static("wirescope-lost-least");
const LOST_MOST: HeaderName = HeaderName::from_static("wirescope-lost-most");
const COMPLETE: HeaderName = HeaderName::from_static("wirescope-complete");
const MISSING: HeaderName = HeaderName::from_static("wirescope-missing");
const FAULTS: HeaderName = HeaderName::from_static("wirescope-faults");

/// What comes before the first piece.
struct Head {
    heard: Option<(i64, i64)>,
    /// Packets and bytes at most, where only that is asked.
    most: Option<(u64, u64)>,
}

/// One question on its way.
struct Asking {
    state: Arc<State>,
    question: Question,
    /// Who asks sees only packets of a filter.
    is_bound: bool,
    /// Set: nobody takes the answer any more, or it has its end.
    stop: Arc<AtomicBool>,
    head: Option<oneshot::Sender<Result<Head, Problem>>>,
    pipe: Pipe,
}

/// The answer; `is_head`: only how much there may be. Who asks may be bound to the filter of `owner`. `stop` is set when
/// nobody waits for it any more.
///
/// # Errors
/// The question can't be meant, or others are being answered.
pub(crate) async fn answer(
    state: &Arc<State>,
    query: &[(String, String)],
    Whose { identity, is_bounded, owner }: Whose<'_>,
    (is_head, stop): (bool, Arc<AtomicBool>),
) -> Result<Response<Body>, Problem> {
    let link_types = link_types(state).await;
    let bound = owner.map(|owner| Filter::compile(&owner.filter, state.vlan, &link_types)).transpose();
    let bound = bound.map_err(|error| {
        let cause = format!("the filter that bounds who asks: {error}");
        let remedy = "ask with a token of another filter";
        Problem::new(StatusCode::FORBIDDEN, "wirescope-filter", cause, remedy)
    })?;
    let question = Question::read(query, &link_types, state.vlan, bound)?;
    let place = state.questions.place(is_bounded.then_some(identity))?;
    let shape = question.shape;
    let (head, begun) = oneshot::channel();
    let (pieces, taken) = channel(PIECES_MAX);
    let (tell, made) = oneshot::channel();
    let (sent, (counted, count)) = (Arc::new(Sent::default()), Count::new());
    let over = state.questions.over();
    let pipe = Pipe::new(pieces, sent.clone(), over.clone(), count.is_broken().clone());
    state.questions.register(&stop);
    let is_bound = owner.is_some();
    let asking = Asking { state: state.clone(), question, is_bound, stop, head: Some(head), pipe };
    let of_run = state.clone();
    questions::begin(move || {
        let since = Instant::now();
        let given = if is_head { asking.estimate() } else { asking.answer() };
        if !is_head {
            of_run.measures.query(since.elapsed(), given.bytes);
        }
        let _ = tell.send(given); // nobody notes it where the run ends
        drop(place);
    })?;
    let gone = || Problem::internal("run", "the question failed");
    let head = begun.await.map_err(|_| gone())??;
    let mut answer = Response::new(Body::Frames(taken, counted));
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(shape)));
    let mut insert = |name: HeaderName, value: String| {
        headers.extend(HeaderValue::from_str(&value).map(|value| (name, value)));
    };
    if let Some((from_ns, to_ns)) = head.heard {
        insert(HEARD_FROM, iso(from_ns));
        insert(HEARD_TO, iso(to_ns));
    }
    match head.most {
        Some((packets, bytes)) => {
            insert(PACKETS_MOST, packets.to_string());
            insert(BYTES_MOST, bytes.to_string());
        }
        None => {
            let names = [PACKETS, OTHER_TYPES, LOST_LEAST, LOST_MOST, COMPLETE, MISSING, FAULTS];
            insert(TRAILER, names.map(|name| name.to_string()).join(", "));
        }
    }
    answer.extensions_mut().insert(Later::new(Ending { made, sent, count, over }));
    Ok(answer)
}

const fn media_type(shape: Shape) -> &'static str {
    match shape {
        Shape::Capture(Format::Pcap) => "application/vnd.tcpdump.pcap",
        Shape::Capture(_) => "application/x-pcapng",
        Shape::Objects => "application/jsonl",
        Shape::One(_) => "application/json",
    }
}

/// The link types of the run, and of what its stores have.
async fn link_types(state: &Arc<State>) -> Vec<LinkType> {
    let (volumes, known) = (state.volumes.clone(), state.link_types());
    let stored = tokio::task::spawn_blocking(move || {
        let stores = volumes.iter().filter_map(|folder| Store::of(folder.again().ok()?).ok());
        stores.filter_map(|store| listing::link_types(&store).ok()).flatten().collect::<Vec<LinkType>>()
    });
    known.into_iter().chain(stored.await.unwrap_or_default()).collect()
}

impl Asking {
    /// How much there may be.
    fn estimate(mut self) -> Given {
        let estimate = self.state.answerer.estimate(self.question.span);
        // What all packets come to is nothing that one may know who sees only some of them.
        let (most, heard) = match self.is_bound {
            true => (None, None),
            false => (Some((estimate.packets, estimate.bytes)), self.state.answerer.ring.heard()),
        };
        self.begin(Ok(Head { heard, most }));
        Given::of(self.question.span, "estimated")
    }

    /// What knows the interfaces of packets.
    fn interfaces(&self) -> Arc<dyn KnownInterfaces> {
        let all = self.state.answerer.interfaces();
        if self.is_bound { Arc::new(Met(all)) } else { all }
    }

    fn begin(&mut self, head: Result<Head, Problem>) {
        if let Some(begun) = self.head.take() {
            let _ = begun.send(head); // a client that is gone takes nothing
        }
    }

    /// Reads and answers; what was given.
    fn answer(mut self) -> Given {
        let state = self.state.clone();
        let (span, stop) = (self.question.span, self.stop.clone());
        let refuse = |asking: &mut Asking, fault: Fault| {
            asking.begin(Err(Problem::of_faults(StatusCode::BAD_REQUEST, &[fault])));
            Given::of(span, "refused")
        };
        let (mut spans, mut lacks, mut wide) = (None, Vec::new(), span);
        if let Some(around) = &self.question.around {
            wide = around.wide(span);
            let mut first = state.answerer.begin(self.question.of(&around.filter, span), &stop);
            let mut hits = Hits::new(around, SPANS_BYTES, &stop);
            first.read(&mut Attended { consumer: &mut hits, pipe: &self.pipe, stop: &stop });
            let unreadable = |gap: &Gap| gap.reason == GapReason::Unreadable;
            lacks = first.gaps().into_iter().filter(unreadable).collect();
            match hits.done() {
                Ok(found) => spans = Some(found),
                Err(fault) => return refuse(&mut self, fault),
            }
        }
        let mut answer = state.answerer.begin(self.question.of(&self.question.filter, wide), &stop);
        let heard = answer.heard();
        if let Some(fault) = of_future(span, heard) {
            return refuse(&mut self, fault);
        }
        let reading = Reading { answer: &mut answer, spans: spans.as_ref(), lacks };
        match self.question.shape {
            Shape::Capture(format) => self.capture(reading, format),
            Shape::Objects => self.objects(reading),
            Shape::One(form) => match self.one(reading, form) {
                Ok(given) => given,
                Err(fault) => refuse(&mut self, fault),
            },
        }
    }

    /// As a capture.
    fn capture(&mut self, mut reading: Reading<'_, '_>, format: Format) -> Given {
        let heard = reading.answer.heard();
        self.begin(Ok(Head { heard, most: None }));
        let Question { filter, around, limit, all_types, .. } = &self.question;
        let stores = if self.state.volumes.is_empty() { "" } else { " and its stores" };
        let question = export::Question {
            of: format!("run {}{stores}", self.state.run),
            span: reading.answer.span(),
            heard,
            filter: words(filter, around.as_ref()),
            filters: Vec::new(),
            snaps: Vec::new(),
            partial: Vec::new(),
        };
        let losses = Losses::default();
        let pipe = Target::Pipe(Box::new(self.pipe.clone()));
        let interfaces = self.interfaces();
        let export = Export::new(pipe, format, None, question, interfaces, losses.clone());
        let export = if *all_types { export.of_all_types() } else { export };
        let mut stream = Stream::new(export, &self.pipe, *limit, self.stop.clone());
        reading.read(&mut stream);
        let Stream { export, taken, .. } = stream;
        if !self.goes_on(&taken) {
            return self.broken(&reading, &taken);
        }
        let gaps = reading.gaps(&taken);
        losses.add(gaps.iter().copied());
        let written = export.finish(reading.answer.first_type());
        self.pipe.mark(written.packets, written.bytes);
        if written.unfinished.is_some() {
            return self.broken(&reading, &taken);
        }
        let left_out = written.other_types + written.left_out;
        let given = Taken { packets: written.packets, bytes: written.bytes, ..taken };
        self.end(&reading, &given, &gaps, left_out)
    }

    /// As an object for each packet.
    fn objects(&mut self, mut reading: Reading<'_, '_>) -> Given {
        self.begin(Ok(Head { heard: reading.answer.heard(), most: None }));
        let what = (Each::Object, u64::MAX);
        let interfaces = self.state.answerer.interfaces();
        let lines = Lines::new(Vec::new(), what, TimeZone::UTC, interfaces, self.stop.clone());
        let mut objects = Objects::new(lines, self.pipe.clone(), self.question.limit, self.stop.clone());
        reading.read(&mut objects);
        let taken = objects.end();
        if !self.goes_on(&taken) {
            return self.broken(&reading, &taken);
        }
        let gaps = reading.gaps(&taken);
        self.end(&reading, &taken, &gaps, 0)
    }

    /// As one object.
    fn one(&mut self, mut reading: Reading<'_, '_>, form: Form) -> Result<Given, Fault> {
        let heard = reading.answer.heard();
        let asked_ns = if let Form::Timeline(asked_ns) = form { asked_ns } else { None };
        let extent = reading.extent(self.question.span, asked_ns);
        let step = match form {
            Form::Timeline(_) => step_ns(asked_ns, extent)?,
            Form::Count | Form::Top(_) => 0,
        };
        self.begin(Ok(Head { heard, most: None }));
        let mut read = |consumer: &mut dyn Consumer| {
            reading.read(&mut Attended { consumer, pipe: &self.pipe, stop: &self.stop });
            reading.gaps(&Taken::default())
        };
        let (sum, mut object, gaps): (Sum, Map<String, Value>, Vec<Gap>);
        match form {
            Form::Count => {
                let what = (Each::Nothing, 0);
                let interfaces = self.state.answerer.interfaces();
                let mut lines = Lines::new(io::sink(), what, TimeZone::UTC, interfaces, self.stop.clone());
                gaps = read(&mut lines);
                (sum, object) = (lines.sum, Map::new());
            }
            Form::Top(by) => {
                let limit =
                    usize::try_from(self.question.limit.unwrap_or(LIMIT_OF_TOP)).unwrap_or(usize::MAX);
                let mut top = Top::new(by, TOP_BYTES);
                gaps = read(&mut top);
                (sum, object) = (top.sum, top.json(limit));
            }
            Form::Timeline(_) => {
                let mut steps = Steps::new(step, extent, TimeZone::UTC);
                gaps = read(&mut steps);
                steps.finish(&gaps);
                (sum, object) = (steps.sum, steps.json());
            }
        }
        let taken = Taken { packets: sum.packets, bytes: sum.bytes, ..Taken::default() };
        if self.stop.load(Ordering::Relaxed) {
            return Ok(self.broken(&reading, &taken));
        }
        object.extend(sum.json(&[], &gaps));
        let text = format!("{}\n", json_line(&Value::Object(object).to_string()));
        if self.pipe.send(Frame::data(text.into())).is_err() {
            return Ok(self.broken(&reading, &taken));
        }
        Ok(self.end(&reading, &taken, &gaps, 0))
    }

    /// Whether the answer has its end, whole or as long as was asked for.
    fn goes_on(&self, taken: &Taken) -> bool {
        !taken.is_gone && (taken.is_full || !self.stop.load(Ordering::Relaxed))
    }

    /// The answer breaks off: whoever gets it must not take it for a whole one.
    fn broken(&self, reading: &Reading<'_, '_>, taken: &Taken) -> Given {
        let why = why_broken(&self.state);
        self.pipe.break_off();
        Given { count: taken.packets, bytes: taken.bytes, ..Given::of(reading.answer.span(), why) }
    }

    /// The trailers; and what was given.
    fn end(&self, reading: &Reading<'_, '_>, taken: &Taken, gaps: &[Gap], left_out: u64) -> Given {
        let unread = reading.answer.unread();
        let (least, most) = export::lost(gaps);
        let is_complete = (least, most) == (0, Some(0)) && unread.is_empty() && left_out == 0;
        let missing: Vec<Value> = gaps.iter().map(scope_answer::sum::gap).collect();
        let faults: Vec<&String> = unread.iter().take(FAULTS_MAX).collect();
        let mut trailers = HeaderMap::new();
        for (name, value) in [
            (PACKETS, taken.packets.to_string()),
            (OTHER_TYPES, left_out.to_string()),
            (LOST_LEAST, least.to_string()),
            (LOST_MOST, most.map_or("unknown".to_string(), |most| most.to_string())),
            (COMPLETE, is_complete.to_string()),
            (MISSING, json!(missing).to_string()),
            (FAULTS, ascii(&json!(faults).to_string())),
        ] {
            trailers.extend(HeaderValue::from_str(&value).map(|value| (name, value)));
        }
        let is_gone = self.pipe.send(Frame::trailers(trailers)).is_err();
        let result = match (is_gone, is_complete) {
            (true, _) => why_broken(&self.state),
            (false, true) => WHOLE,
            (false, false) => INCOMPLETE,
        };
        Given { count: taken.packets, bytes: taken.bytes, ..Given::of(reading.answer.span(), result) }
    }
}

/// Interfaces of which one who sees only some packets hears when the first of these comes.
struct Met(Arc<dyn KnownInterfaces>);

impl KnownInterfaces for Met {
    fn of(&self, lane: u32, number: u32) -> Option<(InterfaceKey, HeadInterface)> {
        self.0.of(lane, number)
    }

    fn all(&self, _: LinkType) -> Vec<(InterfaceKey, HeadInterface)> {
        Vec::new()
    }
}

/// Ends the reading when nobody waits for the answer any more.
struct Attended<'a> {
    consumer: &'a mut dyn Consumer,
    pipe: &'a Pipe,
    stop: &'a AtomicBool,
}

impl Consumer for Attended<'_> {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        self.consumer.packet(position, link_type, block);
    }

    fn between(&mut self) {
        self.consumer.between();
        if self.pipe.is_closed() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// An answer that is read, near to others or not.
struct Reading<'a, 'b> {
    answer: &'a mut RunAnswer<'b>,
    spans: Option<&'a Spans>,
    /// What couldn't be read of those others.
    lacks: Vec<Gap>,
}

impl Reading<'_, '_> {
    fn read(&mut self, consumer: &mut dyn Consumer) {
        match self.spans {
            Some(spans) if spans.is_empty() => {}
            Some(spans) => self.answer.read(&mut Within { spans, consumer }),
            None => self.answer.read(consumer),
        }
    }

    /// What is missing of it.
    fn gaps(&self, taken: &Taken) -> Vec<Gap> {
        let mut gaps = self.answer.gaps();
        let is_known = |gap: &Gap| {
            gaps.iter().any(|other| {
                other.reason == gap.reason && other.from_ns <= gap.from_ns && other.to_ns >= gap.to_ns
            })
        };
        let more: Vec<Gap> = self.lacks.iter().filter(|gap| !is_known(gap)).copied().collect();
        gaps.extend(more);
        if taken.is_full {
            let (from_ns, to_ns) = (taken.last_ns, self.answer.span().to_ns.max(taken.last_ns));
            gaps.push(Gap { from_ns, to_ns, reason: GapReason::Limit, lost_min: 0, lost_max: None });
        }
        gaps
    }

    /// What a timeline shows.
    fn extent(&self, asked: Span, step_ns: Option<i64>) -> Option<(i64, i64)> {
        let Span { from_ns, to_ns } = self.answer.span();
        let (heard_from, heard_to) = self.answer.heard()?;
        let (hull_from, hull_to) = match self.spans {
            Some(spans) => spans.hull()?,
            None => (i64::MIN, i64::MAX),
        };
        let known = (heard_from.max(from_ns).max(hull_from), heard_to.min(to_ns).min(hull_to));
        if known.0 > known.1 {
            return None;
        }
        let begin_ns = if asked.from_ns > 0 { asked.from_ns } else { known.0 };
        let end_ns = if asked.to_ns < i64::MAX { asked.to_ns.min(known.1.max(now_ns())) } else { known.1 };
        let asked = if self.spans.is_some() { known } else { (begin_ns, end_ns) };
        Some(steps::shown(known, asked, step_ns))
    }
}

/// Why an answer broke off.
pub(crate) fn why_broken(state: &State) -> &'static str {
    if state.is_over() || state.is_closing() { "the run ended" } else { CLIENT_GONE }
}

/// A span that begins behind now is meant otherwise, unless something has such times.
fn of_future(span: Span, heard: Option<(i64, i64)>) -> Option<Fault> {
    let now_ns = now_ns();
    if span.from_ns <= now_ns || heard.is_some_and(|(_, to_ns)| to_ns >= span.from_ns) {
        return None;
    }
    let (from, now) = (iso(span.from_ns), iso(now_ns));
    let fault =
        Fault::of("from").cause(format!("the span begins at {from}, which is in the future: now is {now}"));
    Some(match heard {
        Some((from_ns, to_ns)) => {
            fault.remedy(format!("there are packets from {} to {}", iso(from_ns), iso(to_ns)))
        }
        None => fault.remedy("there are no packets at all"),
    })
}

/// JSON with everything but ASCII escaped: headers hold nothing else.
fn ascii(json: &str) -> String {
    let mut text = String::new();
    for letter in json.chars() {
        match letter.is_ascii() && !letter.is_control() {
            true => text.push(letter),
            false => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text
}
