//! Interface numbers for the whole run: append-only, in order of appearance, never reused.
//!
//! One entry per lane and interface, so that a packet block's interface number is right wherever its segment
//! goes. The descriptions lie as whole pcapng blocks in the region's interface area, too, for a program that
//! finds the region after a crash.

use crate::INTERFACES_MAX;
use crate::lock::Mutex;
use crate::region::{INTERFACE_AREA_BYTES, Region};
use scope_packet::{Interface, LinkType, TimestampSource, pcapng};
use std::sync::atomic::Ordering;

/// Names longer than this many bytes are truncated in descriptions.
const NAME_BYTES_MAX: usize = 64;
/// Descriptions longer than this many bytes are truncated.
const DESCRIPTION_BYTES_MAX: usize = 120;

// The area holds the largest description of every interface that a run may know.
const _: () =
    assert!((NAME_BYTES_MAX + DESCRIPTION_BYTES_MAX + 60) * INTERFACES_MAX as usize <= INTERFACE_AREA_BYTES);

/// One registered interface of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceEntry {
    /// Lane that its packets are in.
    pub lane: u32,
    /// Link type.
    pub link_type: LinkType,
    /// `if_name`.
    pub name: String,
    /// Snap length, bytes; 0: none.
    pub snap_len: u32,
    /// Where its times come from.
    pub timestamps: TimestampSource,
    /// `if_description`: lane, real snap length, timestamp source, and what the source adds.
    pub description: String,
}

impl InterfaceEntry {
    /// How `interface` of `lane` is described in files.
    pub fn of(lane: u32, interface: &Interface) -> InterfaceEntry {
        InterfaceEntry {
            lane,
            link_type: interface.link_type,
            name: truncated(&interface.name, NAME_BYTES_MAX),
            snap_len: interface.snap_len,
            timestamps: interface.timestamps,
            description: truncated(&describe(lane, interface), DESCRIPTION_BYTES_MAX),
        }
    }

    /// Appends the interface description block.
    pub fn write(&self, out: &mut Vec<u8>) {
        pcapng::interface(out, self.link_type, &self.name, &self.description);
    }
}

/// What knows a run's interfaces by their numbers: its ring, later the files that it left.
pub trait Interfaces {
    /// The interface with this number.
    fn interface(&self, number: u32) -> Option<InterfaceEntry>;

    /// All interfaces with numbers from `from` on.
    fn interfaces_from(&self, from: u32) -> Vec<InterfaceEntry>;

    /// Those of a link type whose packets may come, by their numbers.
    fn of_type(&self, link_type: LinkType) -> Vec<(u32, InterfaceEntry)> {
        (0..).zip(self.interfaces_from(0)).filter(|(_, entry)| entry.link_type == link_type).collect()
    }

    /// The number here of the interface that a block of `lane` calls `number`.
    fn number_of(&self, _lane: u32, number: u32) -> u32 {
        number
    }

    /// Number of the first interface with this link type.
    fn interface_of(&self, link_type: LinkType) -> Option<u32> {
        (0..)
            .zip(self.interfaces_from(0))
            .find(|(_, entry)| entry.link_type == link_type)
            .map(|(number, _)| number)
    }
}

/// The append-only table.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Mutex<Vec<InterfaceEntry>>,
}

impl Registry {
    /// Gives `interface` of `lane` the next number; `None` at the bound.
    pub(crate) fn register(&self, region: &Region, lane: u32, interface: &Interface) -> Option<u32> {
        self.adopt(region, InterfaceEntry::of(lane, interface))
    }

    /// Gives an interface that is described already the next number; `None` at the bound.
    pub(crate) fn adopt(&self, region: &Region, entry: InterfaceEntry) -> Option<u32> {
        let mut entries = self.entries.lock().expect("no panic while held");
        let number = entries.len() as u32;
        if number >= INTERFACES_MAX {
            return None;
        }
        let mut block = Vec::new();
        entry.write(&mut block);
        let header = region.header();
        let at = header.interface_bytes.load(Ordering::Relaxed);
        // SAFETY: only here, under the registry's lock; `at` is where the area ends so far.
        unsafe { region.write_interface(at as usize, &block) };
        header.interface_bytes.store(at + block.len() as u64, Ordering::Release); // after the block's bytes
        entries.push(entry);
        header.interfaces.store(number + 1, Ordering::Release);
        Some(number)
    }

    /// All entries with numbers in `from..`.
    pub(crate) fn from(&self, from: u32) -> Vec<InterfaceEntry> {
        let entries = self.entries.lock().expect("no panic while held");
        entries.get(from as usize..).unwrap_or_default().to_vec()
    }

    pub(crate) fn get(&self, number: u32) -> Option<InterfaceEntry> {
        self.entries.lock().expect("no panic while held").get(number as usize).cloned()
    }
}

fn describe(lane: u32, interface: &Interface) -> String {
    let snap = match interface.snap_len {
        0 => "none".to_string(),
        bytes => bytes.to_string(),
    };
    let own =
        if interface.description.is_empty() { String::new() } else { format!("; {}", interface.description) };
    format!("lane {lane}; snap length {snap}; timestamps {}{own}", interface.timestamps.name())
}

/// Truncates at a character boundary.
fn truncated(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}
