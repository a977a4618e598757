//! Capture files whose packets are in order, read once more while they are handed on: none of them waits.
//!
//! ```text
//! first reading    in order? what is there at all, how many packets
//! again            a few packets ─► sorted by themselves ─► handed on ─► the next few
//! ```
//! Whoever writes to the files meanwhile is noticed by their order, or by the number of packets.

use crate::answer::captures::reader::Reader;
use crate::answer::captures::taking::{Keeping, Taking};
use scope_fault::Fault;
use scope_filter::Filter;
use scope_source::file::FileSource;
use scope_store::sorter::{Sorter, Walk};
use scope_store::spill::SpillFile;
use scope_store::timeline::Span;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of packets from which on they are handed on.
const CHUNK_BYTES: usize = 256 << 10;

/// Their packets, some at a time.
pub struct Again {
    reader: Reader,
    taking: Taking,
    /// Packets of all files, as the first reading has counted them.
    packets: u64,
    goes_on: bool,
}

impl Again {
    /// What `filter` matches in `span`, of sources that haven't begun and have so many packets.
    pub fn new(sources: Vec<FileSource>, filter: &Filter, span: Span, packets: u64) -> Again {
        let sorter = Sorter::new(usize::MAX, SpillFile::None);
        let taking = Taking::new(vec![filter.clone()], span, Keeping::Sort(sorter));
        Again { reader: Reader::new(sources), taking, packets, goes_on: true }
    }

    /// Whether more may come.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Reads on until there are packets, or all files have ended.
    ///
    /// # Errors
    /// The files have changed.
    pub fn read(&mut self, stop: &AtomicBool) -> Result<Option<Walk>, Fault> {
        while self.goes_on && self.taking.bytes() < CHUNK_BYTES {
            self.goes_on = self.reader.step(&mut self.taking, stop)?;
        }
        let is_whole = self.goes_on || self.taking.packets == self.packets || stop.load(Ordering::Relaxed);
        if !self.taking.is_ordered() || !is_whole {
            self.goes_on = false;
            let cause = "a capture file changed while it was read: packets of it may be missing";
            return Err(Fault::whole(cause).remedy("ask a copy of it, or when it is finished"));
        }
        Ok(self.taking.sorted().map(|sorted| sorted.walk()))
    }
}
