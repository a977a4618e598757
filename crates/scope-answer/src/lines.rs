//! Packets as they come: a line each, an object each, or only counted.

use crate::line::Line;
use crate::sum::{Sum, local};
use jiff::tz::TimeZone;
use scope_dump::Consumer;
use scope_dump::merge::Position;
use scope_packet::LinkType;
use scope_packet::pcapng::PacketBlock;
use scope_spelling::printable::json_line;
use scope_spelling::time::iso;
use scope_store::timeline::KnownInterfaces;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What of each packet is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// A line.
    Line,
    /// An object.
    Object,
    /// Nothing.
    Nothing,
}

/// Packets, said.
pub struct Lines<W> {
    /// Where they go.
    pub out: W,
    zone: TimeZone,
    interfaces: Arc<dyn KnownInterfaces>,
    each: Each,
    limit: u64,
    /// What all of them come to.
    pub sum: Sum,
    error: Option<io::Error>,
    stop: Arc<AtomicBool>,
}

impl<W: Write> Lines<W> {
    /// Into `out`, of at most `limit` packets, with times in `zone`; `stop` is set when nobody takes them any more.
    pub fn new(
        out: W,
        (each, limit): (Each, u64),
        zone: TimeZone,
        interfaces: Arc<dyn KnownInterfaces>,
        stop: Arc<AtomicBool>,
    ) -> Lines<W> {
        Lines { out, zone, interfaces, each, limit, sum: Sum::default(), error: None, stop }
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

    /// Packets that got no line.
    pub fn more(&self) -> u64 {
        self.sum.packets.saturating_sub(self.limit)
    }

    /// Everything is written.
    ///
    /// # Errors
    /// Standard output's.
    pub fn finish(mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }
}

impl<W: Write> Consumer for Lines<W> {
    fn packet(&mut self, position: Position, link_type: LinkType, block: &[u8]) {
        let Some(block) = PacketBlock::first(block) else { return };
        self.sum.add(&block);
        if self.sum.packets > self.limit || self.error.is_some() {
            return;
        }
        let line = match self.each {
            Each::Line => {
                let line = Line::of(link_type, block.data(), block.original_len());
                format!("{} {}\n", local(block.time_ns(), &self.zone), line.text())
            }
            Each::Object => self.object(position.lane, link_type, &block),
            Each::Nothing => return,
        };
        if let Err(error) = self.out.write_all(line.as_bytes()) {
            self.error = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
