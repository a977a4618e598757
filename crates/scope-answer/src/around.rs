//! Packets that are wanted near to others: first the times of these, which become spans, then what lies in them.

use crate::spans::{SPAN_BYTES, Spans};
use scope_dump::Consumer;
use scope_dump::merge::Position;
use scope_fault::{Fault, Setting, sentence};
use scope_filter::Filter;
use scope_packet::LinkType;
use scope_spelling::figures::number;
use scope_store::timeline::Span;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long before and behind a packet others are wanted, unless something else is said, ns: as with a run's dumps.
pub const BEFORE_NS: i64 = 30_000_000_000;
/// As above.
pub const AFTER_NS: i64 = 10_000_000_000;

/// Packets that others are wanted around.
#[derive(Clone)]
pub struct Around {
    /// Which, of the span.
    pub filter: Filter,
    /// How long before each of them.
    pub before_ns: i64,
    /// And behind it.
    pub after_ns: i64,
}

impl Around {
    /// Where packets may be wanted, if those that they are wanted around lie in `span`.
    pub fn wide(&self, span: Span) -> Span {
        Span {
            from_ns: span.from_ns.saturating_sub(self.before_ns).max(0),
            to_ns: span.to_ns.saturating_add(self.after_ns),
        }
    }
}

/// Notes where packets are wanted.
pub struct Hits<'a> {
    around: &'a Around,
    /// Where, by now.
    pub spans: Spans,
    spans_max: usize,
    is_full: bool,
    stop: &'a AtomicBool,
}

impl<'a> Hits<'a> {
    /// In so much memory; where that is full, `stop` is set.
    pub fn new(around: &'a Around, memory_bytes: u64, stop: &'a AtomicBool) -> Hits<'a> {
        let spans_max = memory_bytes as usize / SPAN_BYTES;
        Hits { around, spans: Spans::default(), spans_max, is_full: false, stop }
    }

    /// Where packets are wanted.
    ///
    /// # Errors
    /// There was no room for it.
    pub fn done(self) -> Result<Spans, Fault> {
        if !self.is_full {
            return Ok(self.spans);
        }
        let cause =
            format!("it matches packets in more than {} separate spans", number(self.spans_max as u64));
        let memory = Setting::of("memory");
        let remedy = sentence!["lengthen ", Setting::of("before"), ", so that spans join, or raise ", memory];
        Err(Fault::of("around").cause(cause).remedy(remedy))
    }
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
pub struct Within<'a> {
    /// The spans.
    pub spans: &'a Spans,
    /// Who gets it.
    pub consumer: &'a mut dyn Consumer,
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

    fn goes_on(&self) -> bool {
        self.consumer.goes_on()
    }
}

/// A question in words; empty: all packets.
pub fn words(filter: &Filter, around: Option<&Around>) -> String {
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
