//! What capture files say beside their packets, for the dumps that have those packets: comments, names for
//! addresses, TLS secrets.
//!
//! Workers put in what their sources hand over; a dump takes out what belongs to the packets that it writes.
//! A block with names or secrets belongs to all packets of its file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes kept at most; what comes beyond is omitted and counted.
pub const ANNEX_BYTES_MAX: usize = 64 << 20;
/// Bytes that keeping one thing costs beside itself, about.
const OVERHEAD_BYTES: usize = 64;

/// A file's identity: number of the worker, and number of the part of its source.
pub type Owner = (u32, u32);

/// Of one run.
#[derive(Debug, Default)]
pub struct Annexes {
    /// Grows with each change that a dump may have to see; 0 where there is nothing.
    version: AtomicU64,
    /// Comments put in so far.
    comments: AtomicU64,
    omitted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By lane and packet number.
    comments: BTreeMap<(u32, u64), Vec<String>>,
    /// By the run's interface number.
    owners: HashMap<u32, Owner>,
    blocks: Vec<Block>,
    /// Number of a block that is there already.
    known: HashMap<Arc<[u8]>, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Block {
    bytes: Arc<[u8]>,
    owners: HashSet<Owner>,
}

impl State {
    fn forget(&mut self, place: (u32, u64)) {
        if let Some(comments) = self.comments.remove(&place) {
            self.bytes -= comments.iter().map(String::len).sum::<usize>() + OVERHEAD_BYTES;
        }
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let fits = self.bytes + bytes + OVERHEAD_BYTES <= ANNEX_BYTES_MAX;
        self.bytes += if fits { bytes + OVERHEAD_BYTES } else { 0 };
        fits
    }
}

impl Annexes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// The run's interface `number` belongs to this file.
    pub fn interface(&self, number: u32, owner: Owner) {
        self.lock().owners.insert(number, owner);
    }

    /// Takes a whole block of names or secrets of a file. The same block of the same file, read by several
    /// workers, is one.
    pub fn block(&self, owner: Owner, bytes: &[u8]) {
        let mut state = self.lock();
        if let Some(&at) = state.known.get(bytes) {
            state.blocks[at].owners.insert(owner);
        } else if state.has_room(2 * bytes.len()) {
            let bytes: Arc<[u8]> = bytes.into();
            let at = state.blocks.len();
            state.known.insert(bytes.clone(), at);
            state.blocks.push(Block { bytes, owners: HashSet::from([owner]) });
        } else {
            self.omitted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Takes the comments of a packet. Before it is visible to dumps.
    pub fn comment(&self, lane: u32, packet: u64, comments: Vec<String>) {
        let mut state = self.lock();
        let bytes = comments.iter().map(String::len).sum();
        // The lane's oldest give way: they are the first that the ring forgets.
        while state.bytes + bytes + OVERHEAD_BYTES > ANNEX_BYTES_MAX
            && let Some(oldest) =
                state.comments.range((lane, 0)..(lane, packet)).next().map(|(place, _)| *place)
        {
            state.forget(oldest);
            self.omitted.fetch_add(1, Ordering::Relaxed);
        }
        if state.has_room(bytes) {
            state.comments.insert((lane, packet), comments);
            self.comments.fetch_add(1, Ordering::Release);
        } else {
            self.omitted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// That packet wasn't stored.
    pub fn forget(&self, lane: u32, packet: u64) {
        self.lock().forget((lane, packet));
    }

    /// Comments and blocks that were omitted at the bound.
    pub fn omitted(&self) -> u64 {
        self.omitted.load(Ordering::Relaxed)
    }

    /// The comments of a packet.
    pub(crate) fn comments_of(&self, lane: u32, packet: u64) -> Vec<String> {
        if self.comments.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.lock().comments.get(&(lane, packet)).cloned().unwrap_or_default()
    }
}

/// Which blocks one of a dump's files has already.
#[derive(Default)]
pub(crate) struct Annexed {
    version: u64,
    /// The file's interfaces, by the run's numbers.
    interfaces: usize,
    blocks: HashSet<usize>,
}

impl Annexed {
    /// Appends what belongs to a file with packets of these `count` interfaces and isn't there yet.
    pub(crate) fn append(
        &mut self,
        out: &mut Vec<u8>,
        annexes: &Annexes,
        count: usize,
        interfaces: impl Iterator<Item = u32>,
    ) {
        let version = annexes.version.load(Ordering::Acquire);
        if (version, count) == (self.version, self.interfaces) || version == 0 {
            return;
        }
        (self.version, self.interfaces) = (version, count);
        let state = annexes.lock();
        let owners: HashSet<Owner> =
            interfaces.filter_map(|number| state.owners.get(&number).copied()).collect();
        for (at, block) in state.blocks.iter().enumerate() {
            if !block.owners.is_disjoint(&owners) && self.blocks.insert(at) {
                out.extend(&*block.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_each_block_of_its_interfaces_once() {
        let annexes = Annexes::default();
        let mut annexed = Annexed::default();
        let mut append = |interfaces: &[u32]| {
            let mut out = Vec::new();
            annexed.append(&mut out, &annexes, interfaces.len(), interfaces.iter().copied());
            out
        };
        annexes.interface(0, (0, 0));
        annexes.interface(1, (0, 1));
        assert!(append(&[0]).is_empty());
        annexes.block((0, 0), b"aaaa");
        annexes.block((0, 1), b"bbbb");
        assert_eq!((append(&[0]), append(&[0])), (b"aaaa".to_vec(), vec![]));
        annexes.block((0, 0), b"cccc");
        annexes.block((1, 0), b"aaaa");
        assert_eq!(append(&[0, 1]), b"bbbbcccc");
        assert!(append(&[0, 1]).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_is_counted() {
        let annexes = Annexes::default();
        let long = "x".repeat(ANNEX_BYTES_MAX / 2);
        annexes.comment(0, 1, vec![long.clone()]);
        annexes.comment(0, 2, vec![long]);
        annexes.comment(0, 3, vec!["short".to_string()]);
        annexes.forget(0, 3);
        assert_eq!(annexes.omitted(), 1, "the first gave way to the second");
        assert_eq!((1..=3).map(|packet| annexes.comments_of(0, packet).len()).collect::<Vec<_>>(), [0, 1, 0]);
        annexes.block((0, 0), &vec![1; ANNEX_BYTES_MAX / 2]);
        assert_eq!(annexes.omitted(), 2);
    }
}
