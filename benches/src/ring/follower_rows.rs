//! What a follower costs: alone, followed by packets and by keys, by turns in slices of some milliseconds.
//!
//! On a busy machine one long run after another meets another minute each. Slices that take turns meet the
//! same one, and of each form the lower quartile counts: what else the machine does only adds, and not to
//! most of them.

use super::{Mix, Stand, packets_in};
use crate::figures::percentile;
use crate::table::Table;
use scope_measure::{Beside, Run};

/// Slices of each form in a round.
const SLICES: usize = 24;
/// What a slice writes; of a small ring less.
const SLICE_BYTES: u64 = 32 << 20;
const FORMS: [(Beside, &str); 3] = [
    (Beside::Nobody, "1 writer"),
    (Beside::Packets, "1 writer, follower"),
    (Beside::Column, "1 writer, column follower"),
];

/// Measures the rows once.
pub fn round(stand: &mut Stand, table: &mut Table) {
    for (name, row) in [("64", "followed_64"), ("imix", "followed_imix")] {
        let mut slices: [Vec<f64>; FORMS.len()] = Default::default();
        let mut faults: [Option<String>; FORMS.len()] = Default::default();
        for slice in 0..SLICES * FORMS.len() {
            // Each form in turn, and the first of three changes, so that each comes behind each.
            let form = (slice + slice / FORMS.len()) % FORMS.len();
            match measure(stand, name, FORMS[form].0) {
                Ok(ns) => slices[form].push(ns),
                Err(fault) => faults[form] = Some(fault),
            }
        }
        for (((_, of), ns), fault) in FORMS.into_iter().zip(slices).zip(faults) {
            let quartile = percentile(&ns, 25.0).ok_or_else(|| "no slice was measured".to_string());
            table.put(row, of, "ns/packet", fault.map_or(quartile, Err));
        }
    }
}

/// One slice, ns per packet; all that it wrote is checked.
fn measure(stand: &mut Stand, mix: &str, beside: Beside) -> Result<f64, String> {
    let Stand { ring, feeders, mixes, scale, .. } = stand;
    let source = &mixes.iter().find(|known: &&Mix| known.name == mix).ok_or("no such mix")?.packets;
    let packets = packets_in(source, SLICE_BYTES.min(scale.ring_bytes / 8), 1.0);
    Run { ring, source, packets, beside }.measure(&mut feeders[..1]).map(|(ns, _)| ns)
}
