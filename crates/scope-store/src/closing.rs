//! How a file ends, whoever ends it, the one that wrote it or recovery: its index, its name.

use crate::checks::Hash;
use crate::disk::{PAGE_BYTES, Pages};
use crate::index::{self, Entry};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment::{FOOT_BYTES, Foot};
use scope_ring::{Column, Summary};
use std::path::{Path, PathBuf};

/// What a file's name ends in while it grows.
pub const GROWING: &str = ".part";

/// What a finished file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Segments.
    pub segments: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes of their blocks.
    pub block_bytes: u64,
    /// Smallest and largest time, ns; `None`: no packet.
    pub span: Option<(i64, i64)>,
}

impl Holds {
    /// Adds what another file holds.
    pub fn join(&mut self, other: &Holds) {
        self.segments += other.segments;
        self.packets += other.packets;
        self.block_bytes += other.block_bytes;
        self.span = self.span.into_iter().chain(other.span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }

    /// Adds a segment.
    pub fn add(&mut self, foot: &Foot) {
        self.segments += 1;
        self.packets += u64::from(foot.packets);
        self.block_bytes += u64::from(foot.block_bytes);
        if foot.packets == 0 {
            return; // its times are those of what was left out
        }
        let (min_ns, max_ns) = self.span.unwrap_or((foot.min_ns, foot.max_ns));
        self.span = Some((min_ns.min(foot.min_ns), max_ns.max(foot.max_ns)));
    }
}

/// The name that a file has while it grows.
pub fn growing(name: &Path) -> PathBuf {
    let mut growing = name.as_os_str().to_owned();
    growing.push(GROWING);
    growing.into()
}

/// The name that a growing file gets; `None`: it is none.
pub fn whole(growing: &Path) -> Option<PathBuf> {
    growing.to_str()?.strip_suffix(GROWING).map(PathBuf::from)
}

/// What the index says of the closed segment at `offset`, of which `segment` is the bytes.
pub fn entry(offset: u64, segment: &[u8], foot: Foot, hash: Hash) -> Entry {
    let entries_end = segment.len() - FOOT_BYTES;
    let column = &segment[entries_end - foot.packets as usize * KEY_ENTRY_BYTES..entries_end];
    Entry { offset, foot, hash, summary: Summary::new(Column::new(column), segment.len()) }
}

/// The index of a file, to be written behind its last slot.
pub fn index(entries: &[Entry]) -> Pages {
    let bytes = index::write(entries);
    let mut pages = Pages::zeroed(bytes.len() / PAGE_BYTES);
    pages.as_mut_slice().copy_from_slice(&bytes);
    pages
}
