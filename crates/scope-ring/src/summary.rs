//! Summaries of sealed segments, so that a search skips whole ones: which addresses, nets, ports, protocols, kinds and
//! tags occur. Built from the key column by a thread beside; workers hash nothing. A file's index has them in the
//! same form.
//!
//! ```text
//! table     one place for each slot of the ring, outside the region: it says whose summary it is
//! column ─► entries of another flow than the one before ─► addresses that weren't added just now ─► bits
//! ```
//! A segment without a summary is never skipped.

use crate::bits::{add_key, set};
use crate::lock::Mutex;
use crate::pin::Pinned;
use crate::ring::Ring;
use crate::search::{Column, KeyTest};
use crate::slices;
use crate::summary_form::{
    EIGHTS_AT, FLAGS_AT, HOST_BITS, HOSTS_AT, LOW_PORTS, LOW_PORTS_AT, NET_BITS, PARTIAL, PORT_BITS,
    PROTOCOLS_AT, SummaryForm, first_may_hold, hosts_bytes, mix, net_key,
};
use scope_packet::headers::Kind;
use scope_packet::{KeyEntry, SegmentId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places for addresses that were added last, so that a busy one isn't added for each of its packets.
const LAST: usize = 1 << LAST_BITS;
const LAST_BITS: u32 = 10;

/// What is known of the packets of one segment, of the ring or of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    form: SummaryForm,
    /// As it is written.
    bytes: Vec<u8>,
}

impl Summary {
    /// Bytes of the summary of a segment of `segment_bytes`, as it is written.
    pub const fn bytes_of(segment_bytes: usize) -> usize {
        SummaryForm::Second.bytes_of(segment_bytes)
    }

    /// Bytes of this one, as it is written.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How it is written.
    pub fn form(&self) -> SummaryForm {
        self.form
    }

    /// The summary of a sealed segment of `segment_bytes`, whose key entries are `column`.
    pub fn new(column: Column<'_>, segment_bytes: usize) -> Summary {
        let mut summary = Summary::empty();
        summary.build(column, segment_bytes);
        summary
    }

    fn empty() -> Summary {
        Summary { form: SummaryForm::Second, bytes: Vec::new() }
    }

    /// Becomes the summary of another segment, in the same memory.
    fn build(&mut self, column: Column<'_>, segment_bytes: usize) {
        self.bytes.clear();
        self.bytes.resize(SummaryForm::Second.bytes_of(segment_bytes), 0);
        let (fixed, bits) = self.bytes.split_at_mut(HOSTS_AT);
        let (hosts, ports) = bits.split_at_mut(hosts_bytes(bits.len()));
        let mut last = [u64::MAX; LAST];
        let mut before: Option<KeyEntry> = None;
        for entry in column.iter() {
            set(fixed, mix(entry.word) as usize);
            fixed[FLAGS_AT] |= if entry.partial() { PARTIAL } else { 0 };
            set(&mut fixed[PROTOCOLS_AT..], entry.protocol().into());
            if before.is_some_and(|before| flow(&before) == flow(&entry)) {
                continue;
            }
            before = Some(entry);
            for port in [entry.source_port, entry.destination_port] {
                match port < LOW_PORTS {
                    true => set(&mut fixed[LOW_PORTS_AT..], port.into()),
                    false => add_key(ports, port.into(), PORT_BITS),
                }
            }
            let is_folded = entry.kind() == Kind::Ipv6;
            for address in [entry.source, entry.destination] {
                let number = u32::from_be_bytes(address);
                let key = u64::from(number) | u64::from(is_folded) << 32;
                let place = (number.wrapping_mul(0x9e37_79b9) >> (u32::BITS - LAST_BITS)) as usize;
                if std::mem::replace(&mut last[place], key) == key {
                    continue;
                }
                add_key(hosts, net_key(address, 32), HOST_BITS);
                if !is_folded {
                    set(&mut fixed[EIGHTS_AT..], address[0].into());
                    add_key(hosts, net_key(address, 16), NET_BITS);
                    add_key(hosts, net_key(address, 24), NET_BITS);
                }
            }
        }
    }

    /// Its bytes, as they are written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads one of this form; `None` where so many bytes are none.
    pub fn read(form: SummaryForm, bytes: &[u8]) -> Option<Summary> {
        form.is_length(bytes.len()).then(|| Summary { form, bytes: bytes.to_vec() })
    }

    /// Whether an entry that `test` matches can be in the segment.
    pub fn may_hold(&self, test: &KeyTest) -> bool {
        self.form.may_hold(&self.bytes, test)
    }
}

impl SummaryForm {
    /// Whether an entry that `test` matches can be in the segment whose summary these bytes are. True where they are
    /// none of this form.
    pub fn may_hold(self, summary: &[u8], test: &KeyTest) -> bool {
        match self {
            SummaryForm::First => first_may_hold(summary, test),
            SummaryForm::Second => slices::may_hold(summary, test),
        }
    }
}

/// What two entries have in common of which the second adds nothing to the bits.
fn flow(entry: &KeyEntry) -> ([u8; 4], [u8; 4], u16, u16, Kind) {
    (entry.source, entry.destination, entry.source_port, entry.destination_port, entry.kind())
}

/// A summary and whose it is.
struct Slot {
    /// `None`: nothing is known.
    of: Option<SegmentId>,
    summary: Summary,
}

impl Slot {
    fn is_of(&self, pinned: &Pinned) -> bool {
        self.of == Some(pinned.id())
    }
}

/// Summaries of a ring's sealed segments, as far as they are built.
pub struct Summaries {
    /// One for each slot of the ring.
    table: Vec<Mutex<Slot>>,
    segment_bytes: usize,
    built: AtomicU64,
}

impl Summaries {
    /// Room for the summaries of `ring`'s segments, none of them built.
    pub fn new(ring: &Ring) -> Arc<Summaries> {
        let nothing = || Mutex::new(Slot { of: None, summary: Summary::empty() });
        Arc::new(Summaries {
            table: (0..ring.segments()).map(|_| nothing()).collect(),
            segment_bytes: ring.segment_bytes(),
            built: AtomicU64::new(0),
        })
    }

    /// Builds the summary of a segment, unless somebody has; false where it isn't sealed yet.
    pub fn build(&self, pinned: &Pinned) -> bool {
        let committed = pinned.committed();
        if committed.sealed {
            let mut slot = self.table[pinned.slot() as usize].lock().expect("no panic while held");
            self.fill(&mut slot, pinned, committed.packets);
        }
        committed.sealed
    }

    /// The summary of a segment, built for everybody if nobody has; `None`: it isn't sealed yet. Waits for
    /// nobody: what another thread is building right now is built twice.
    pub fn of(&self, pinned: &Pinned) -> Option<Summary> {
        let committed = pinned.committed();
        committed.sealed.then(|| match self.table[pinned.slot() as usize].try_lock() {
            Ok(mut slot) => {
                self.fill(&mut slot, pinned, committed.packets);
                slot.summary.clone()
            }
            Err(_) => Summary::new(pinned.column(0, committed.packets), self.segment_bytes),
        })
    }

    fn fill(&self, slot: &mut Slot, pinned: &Pinned, packets: u32) {
        if !slot.is_of(pinned) {
            slot.summary.build(pinned.column(0, packets), self.segment_bytes);
            slot.of = Some(pinned.id());
            self.built.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the segment can hold an entry that `test` matches. True where nothing is known of it.
    pub fn may_hold(&self, pinned: &Pinned, test: &KeyTest) -> bool {
        let Ok(slot) = self.table[pinned.slot() as usize].try_lock() else { return true };
        !slot.is_of(pinned) || slot.summary.may_hold(test)
    }

    /// Summaries built so far.
    pub fn built(&self) -> u64 {
        self.built.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

    #[test]
    fn a_summary_is_read_as_it_was_written_and_says_the_same() {
        let entry = |number: u8| KeyEntry {
            source: [10, 0, 0, number],
            destination: [10, 0, 1, number],
            source_port: 1000 + number as u16,
            destination_port: 53,
            word: 17 | 1 << 8,
        };
        let bytes: Vec<u8> = (0..9).flat_map(|number| entry(number).to_bytes()).collect();
        for segment_bytes in [SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX] {
            let summary = Summary::new(Column::new(&bytes), segment_bytes);
            let written = summary.as_bytes().to_vec();
            assert_eq!([written.len(), summary.bytes()], [Summary::bytes_of(segment_bytes); 2]);
            let read = Summary::read(SummaryForm::Second, &written).unwrap();
            assert_eq!(read, summary);
            assert!((0..9).all(|number| read.may_hold(&KeyTest::host([10, 0, 1, number]))));
            assert!(!read.may_hold(&KeyTest::protocol(6)) && read.may_hold(&KeyTest::port(53)));
            assert!(!read.may_hold(&KeyTest::vlan(true)) && read.may_hold(&KeyTest::vlan(false)));
            assert!(!read.may_hold(&KeyTest::net_v4([11, 0, 0, 0], [255, 0, 0, 0])));
            for len in [0, HOSTS_AT - 1, HOSTS_AT, written.len() - 8] {
                assert_eq!(Summary::read(SummaryForm::Second, &written[..len]), None, "{len} bytes");
            }
        }
    }

    #[test]
    fn a_summary_with_a_partial_entry_holds_anything() {
        let partial = KeyEntry { word: 1 << 12, ..KeyEntry::default() };
        let summary = Summary::new(Column::new(&partial.to_bytes()), SEGMENT_BYTES_MIN);
        assert!(partial.partial() && summary.may_hold(&KeyTest::host([1, 2, 3, 4])));
    }
}
