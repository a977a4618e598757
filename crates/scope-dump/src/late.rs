//! Packets that came too late for their place in a dump: kept aside on disk, and merged in when the window is over.
//!
//! ```text
//!  main run   written in order ............................. file A
//!  late run   as they came, with an index in memory ........ file B
//!  at the end, only if B has packets: A and sorted B  ─────► file C, which takes A's place
//! ```

use crate::form::DumpFormat;
use crate::merge::Place;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// The late run of one output file. Its index takes 40 bytes of memory per late packet.
pub(crate) struct LateRun {
    file: BufWriter<File>,
    index: Vec<(Place, u64, u32)>,
    bytes: u64,
}

impl LateRun {
    pub(crate) fn new(file: File) -> LateRun {
        LateRun { file: BufWriter::new(file), index: Vec::new(), bytes: 0 }
    }

    /// Adds one packet in the form that its file has.
    pub(crate) fn push(&mut self, place: Place, block: &[u8]) -> io::Result<()> {
        self.file.write_all(block)?;
        self.index.push((place, self.bytes, block.len() as u32));
        self.bytes += block.len() as u64;
        Ok(())
    }

    /// Writes `main` (a file of this format, whose head is copied as it is) and this run, merged by time, to `out`. At equal
    /// times the main run goes first: it was read first.
    pub(crate) fn merge_into(mut self, main: &mut File, format: DumpFormat, out: &mut impl Write) -> io::Result<()> {
        self.file.flush()?;
        let late = self.file.get_ref();
        self.index.sort_unstable();
        let mut waiting = self.index.iter().peekable();
        let mut block = Vec::new();
        main.seek(SeekFrom::Start(0))?;
        let mut main = io::BufReader::with_capacity(1 << 20, main);
        io::copy(&mut (&mut main).take(format.head_bytes()), out)?;
        loop {
            let time_ns = format.read(&mut main, &mut block)?;
            while let Some((_, at, len)) = waiting.next_if(|(place, ..)| time_ns.is_none_or(|time_ns| place.time_ns < time_ns)) {
                let mut bytes = vec![0; *len as usize];
                late.read_exact_at(&mut bytes, *at)?;
                out.write_all(&bytes)?;
            }
            if time_ns.is_none() {
                return Ok(());
            }
            out.write_all(&block)?;
        }
    }
}
