//! `wirescope query`: the packets of stores that a filter matches: as a capture, as a line each, or counted.
//!
//! 1. The command line is understood, the filter compiled for the link types that the stores' files name.
//! 2. All rights are given up but reading the stores and writing the output.
//! 3. What goes into a file or a pipe goes the way of an export. Lines and counts come from the same selection.

mod line;

use crate::args::QueryArgs;
use crate::export::{self, Asked};
use crate::plan::faults::Faults;
use crate::reading::{self, SpanWords, Stop};
use crate::speech;
use crate::words::{counted, size};
use crate::{DONE, NoResult, UNDONE, told};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use line::Line;
use scope_config::Settings;
use scope_dump::merge::Position;
use scope_dump::{Buffers, Consumer, Round, Selection, StoreSift};
use scope_fault::{Fault, Setting, sentence};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Gap, LinkType};
use scope_ring::Timeline;
use scope_spelling::printable::json_line;
use scope_spelling::time::iso;
use scope_store::{Sift, StoreTimeline};
use scope_store::export::{Format, of_answer, reason};
use scope_store::listing;
use scope_store::timeline::{Counted, Means, Span, StoreInterfaces};
use scope_store::unread::unread;
use scope_store::volume::Store;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Lines of a table, unless another number is given.
const LIMIT: u64 = 50;

/// What is asked for, understood.
enum Question {
    Capture(Asked),
    Text(Text),
}

/// An answer in words, or in JSON.
struct Text {
    stores: Vec<(Store, PathBuf)>,
    span: Span,
    filter: Filter,
    form: Form,
    limit: u64,
    explain: bool,
    means: Means,
}

/// What of each packet is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A line.
    Table,
    /// An object.
    Json,
    /// Nothing: only what all come to.
    Count,
    /// The same, as an object.
    CountJson,
}

/// Answers. Exit codes: 0 all that is stored of it was given, 1 something couldn't be read or written, 2
/// refused.
pub fn query(args: &QueryArgs) -> u8 {
    match understand(args) {
        Ok(Question::Capture(asked)) => export::answer(asked),
        Ok(Question::Text(text)) => answer(text),
        Err(faults) => told(Err(NoResult::Refused(faults))),
    }
}

fn understand(args: &QueryArgs) -> Result<Question, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let words = SpanWords {
        from: args.from.as_deref(),
        to: args.to.as_deref(),
        at: args.at.as_deref(),
        within: args.within.as_deref(),
    };
    let span = words.read(&mut faults);
    let stores = reading::stores(&args.store, &mut faults);
    let text = args.expression.join(" ");
    let link_types = link_types(&stores).map_err(|fault| faults.add(fault)).unwrap_or_default();
    let filter = Filter::compile(&text, VlanRule::default(), &link_types);
    let filter = filter.map_err(|error| faults.add(error.fault())).ok();
    let capture = match args.format.as_deref() {
        Some("pcap") => Some(Format::Pcap),
        Some("json") => None,
        _ => Some(Format::Pcapng),
    };
    let is_json = args.format.as_deref() == Some("json");
    let form = match (args.count, args.json, is_json) {
        (true, true, _) => Some(Form::CountJson),
        (true, false, _) => Some(Form::Count),
        (false, _, true) => Some(Form::Json),
        _ if args.write.is_none() && args.format.is_none() && io::stdout().is_terminal() => Some(Form::Table),
        _ => None,
    };
    if args.json && !args.count {
        let fault = Fault::of("json").cause("is the form of a count");
        faults.add(fault.remedy(sentence!["give ", Setting::of("format").example("json"), " for packets"]));
    }
    if let (Some(_), Some(write)) = (form, &args.write) {
        let fault = Fault::of("write").with_value(write.to_string_lossy());
        let fault = fault.cause("a count and JSON go to standard output");
        faults.add(fault.remedy("redirect it, e.g. > FILE, and omit this"));
    }
    let write = args.write.clone().unwrap_or_else(|| "-".into());
    let output = match form {
        None => export::output(&write, None, &stores, &mut faults),
        Some(_) => None,
    };
    let Some(filter) = filter.filter(|_| faults.is_empty()) else { return Err(faults.into_vec()) };
    let explain = args.explain;
    let counts_only = matches!(form, Some(Form::Count | Form::CountJson));
    let means = Means { counts_only, ..reading::means() }; // before rights are given up
    let limit = args.limit.unwrap_or(if form == Some(Form::Table) { LIMIT } else { u64::MAX });
    match (form, output) {
        (Some(form), _) => Ok(Question::Text(Text { stores, span, filter, form, limit, explain, means })),
        (None, Some(output)) => {
            let format = match args.format {
                None if crate::plan::places::has_ending(&write, &["pcap"]) => Format::Pcap,
                _ => capture.unwrap_or(Format::Pcapng),
            };
            Ok(Question::Capture(Asked { stores, span, filter, format, split: None, output, explain, means }))
        }
        (None, None) => Err(faults.into_vec()),
    }
}

/// The link types that the stores' files name.
fn link_types(stores: &[(Store, PathBuf)]) -> Result<Vec<LinkType>, Fault> {
    let mut types = BTreeSet::new();
    for (store, path) in stores {
        types.extend(listing::link_types(store).map_err(|error| unread(path, &error))?);
    }
    Ok(types.into_iter().collect())
}

/// Gives up rights, reads, and says what there is; the exit code.
fn answer(text: Text) -> u8 {
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let Text { stores, span, filter, form, limit, explain, means } = text;
    if let Err(fault) = reading::give_up_rights(&stores, None) {
        return told(Err(NoResult::Refused(vec![fault])));
    }
    let begun = Instant::now();
    let sift = StoreSift::new(filter.clone(), FilterEngine::Native);
    let looked = reading::look(stores, &|link_type| sift.keys(link_type), span);
    let (looked, listed) = match looked {
        Ok(looked) => looked,
        Err(fault) => return told(Err(NoResult::Refused(vec![fault]))),
    };
    let filters = reading::filters(&looked);
    let mut timeline = StoreTimeline::new(looked, span, sift, means, stop.flag.clone());
    let is_restricted = !filters.is_empty() || !timeline.partial().is_empty();
    let mut lines = Lines {
        out: BufWriter::new(io::stdout().lock()),
        zone: TimeZone::system(),
        interfaces: timeline.interfaces(),
        form,
        limit,
        sum: timeline.counted(),
        error: None,
        stop: stop.flag.clone(),
    };
    let buffers: Arc<Buffers> = Arc::default();
    let mut selection = Selection::new(filter.clone(), FilterEngine::Native, span.from_ns, None, &buffers);
    let round = Round { to_ns: span.to_ns, settled_ns: i64::MAX, last: true };
    selection.round(&mut timeline, round, &mut lines);
    timeline.end();
    let gaps = of_answer(timeline.missing(span.to_ns), !filter.is_everything());
    if explain {
        reading::explained(&listed, &timeline.work(), begun);
    }
    let faults = export::of_damages(timeline.damages());
    faults.iter().for_each(speech::say_fault);
    let said = stop.code().is_some() || lines.close(&gaps, is_restricted, &filters);
    match (stop.code(), said) {
        (Some(code), _) => code,
        (None, true) if faults.is_empty() => DONE,
        _ => UNDONE,
    }
}

/// Packets as they come, said.
struct Lines {
    out: BufWriter<StdoutLock<'static>>,
    zone: TimeZone,
    interfaces: Arc<StoreInterfaces>,
    form: Form,
    limit: u64,
    /// What all packets of the answer come to.
    sum: Counted,
    /// What standard output answered.
    error: Option<io::Error>,
    stop: Arc<AtomicBool>,
}

impl Consumer for Lines {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        let Some(block) = PacketBlock::first(block) else { return };
        let time_ns = block.time_ns();
        self.sum.packets += 1;
        self.sum.bytes += block.data().len() as u64;
        let (min_ns, max_ns) = self.sum.span_ns.unwrap_or((time_ns, time_ns));
        self.sum.span_ns = Some((min_ns.min(time_ns), max_ns.max(time_ns)));
        if self.sum.packets > self.limit {
            return;
        }
        let line = match self.form {
            Form::Table => {
                let line = Line::of(link_type, block.data(), block.original_len());
                format!("{} {}\n", self.local(time_ns), line.text())
            }
            Form::Json => self.object(position.lane, link_type, &block),
            Form::Count | Form::CountJson => return,
        };
        if let Err(error) = self.out.write_all(line.as_bytes()) {
            self.error.get_or_insert(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Lines {
    /// A time in the zone of this system.
    fn local(&self, time_ns: i64) -> String {
        match Timestamp::from_nanosecond(time_ns.into()) {
            Ok(time) => time.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.6f").to_string(),
            Err(_) => iso(time_ns),
        }
    }

    fn object(&self, lane: u32, link_type: LinkType, block: &PacketBlock<'_>) -> String {
        let mut object = Map::new();
        object.insert("time".into(), json!(iso(block.time_ns())));
        let known = self.interfaces.of(lane, block.interface());
        object.extend(known.map(|(_, interface)| ("interface".into(), json!(interface.name))));
        object.insert("link_type".into(), json!(link_type.name()));
        object.insert("captured".into(), json!(block.data().len()));
        object.insert("length".into(), json!(block.original_len()));
        object.extend(Line::of(link_type, block.data(), block.original_len()).json());
        format!("{}\n", json_line(&Value::Object(object).to_string()))
    }

    /// The last line. Whether standard output took all; a reader that has gone wants no more.
    fn close(&mut self, gaps: &[Gap], is_restricted: bool, filters: &[String]) -> bool {
        let Counted { packets, bytes, span_ns } = self.sum;
        let mut last = String::new();
        match self.form {
            Form::Json => {}
            Form::CountJson => {
                let (first, end) = span_ns.unzip();
                let count = json!({
                    "packets": packets, "bytes": bytes, "first": first.map(iso), "last": end.map(iso),
                    "filters": filters, "missing": gaps.iter().map(gap).collect::<Vec<_>>(),
                });
                last = format!("{}\n", json_line(&count.to_string()));
            }
            Form::Table | Form::Count => {
                let more = packets.saturating_sub(self.limit);
                if self.form == Form::Table && more > 0 {
                    last.push_str(&format!("and {} (see: --limit)\n", counted(more, "more packet")));
                }
                last.push_str(&format!("{}, {}", counted(packets, "packet"), size(bytes)));
                if let Some((from_ns, to_ns)) = span_ns {
                    last.push_str(&format!(", {} to {}", self.local(from_ns), self.local(to_ns)));
                    let zone = self.zone.iana_name().unwrap_or("local time");
                    last.push_str(&format!(" ({zone})"));
                }
                last.push_str(&format!("\n{}\n", export::missing_words(gaps, is_restricted)));
            }
        }
        let written = self.out.write_all(last.as_bytes()).and_then(|()| self.out.flush());
        match self.error.take().or(written.err()) {
            None => true,
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => true,
            Some(error) => {
                speech::say_fault(&Fault::of_thing("standard output").error(&error));
                false
            }
        }
    }
}

fn gap(gap: &Gap) -> Value {
    let to = (gap.to_ns != i64::MAX).then(|| iso(gap.to_ns));
    json!({
        "from": iso(gap.from_ns), "to": to, "reason": reason(gap.reason),
        "lost_min": gap.lost_min, "lost_max": gap.lost_max,
    })
}
