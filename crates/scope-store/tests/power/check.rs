//! What is found after a crash, held against the truth.

use super::run::{Found, Run};
use scope_packet::pcapng::le32;
use scope_store::StoredSegment;
use scope_store::head::Head;
use scope_store::index;
use std::collections::BTreeMap;
use std::path::Path;

/// Looks through a whole file: every byte of it belongs to a block, index and segments agree, each packet is
/// the one that the run wrote under its number. Adds what it has to `found`.
pub fn file(name: &Path, bytes: &[u8], run: &Run, found: &mut Found) {
    let shown = name.display();
    let mut at = 0;
    while at < bytes.len() {
        let total = le32(bytes, at + 4) as usize;
        assert!(total >= 12 && at + total <= bytes.len(), "{shown}: no block at {at}");
        assert_eq!(le32(bytes, at + total - 4) as usize, total, "{shown}: block at {at}");
        at += total;
    }
    let (head, head_bytes) = Head::read(bytes).unwrap();
    let entries = index::read(bytes).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let segment_bytes = head.segment_bytes as usize;
    let mut at = head_bytes as u64;
    let mut sequences: BTreeMap<u32, u64> = BTreeMap::new();
    for entry in &entries {
        assert!(
            entry.offset >= at && (entry.offset - head_bytes as u64).is_multiple_of(segment_bytes as u64)
        );
        at = entry.offset + segment_bytes as u64;
        let segment = StoredSegment::new(&bytes[entry.offset as usize..at as usize]);
        let segment = segment.unwrap_or_else(|fault| panic!("{shown}, byte {}: {fault}", entry.offset));
        assert_eq!(segment.entry(entry.offset), *entry, "{shown}");
        assert!(segment.hash() != scope_store::Hash::NONE && segment.foot().run_id == head.run_id);
        let foot = segment.foot();
        let before = sequences.insert(foot.lane, foot.sequence);
        assert!(run.failed > 0 || before.is_none_or(|before| before < foot.sequence), "{shown}: order");
        let known = head.interfaces.len() as u32;
        for (number, block) in (foot.first_packet..).zip(segment.packets()) {
            let truth = &run.truth[foot.lane as usize][number as usize];
            assert!(block.bytes() == &truth[..], "{shown}: packet {number} of lane {}", foot.lane);
            assert!(block.interface() < known, "{shown}: an interface that the head doesn't describe");
            *found.entry((foot.lane, number)).or_default() += 1;
        }
        assert!(segment.statistics().all(|statistics| statistics.interface < known), "{shown}: statistics");
    }
}
