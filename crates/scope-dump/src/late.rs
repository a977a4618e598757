//! Packets that came too late for their place in a dump: kept aside on disk, and merged in when the window is over.
//!
//! ```text
//!  main run   written in order ............................. file A
//!  late run   as they came, with an index in memory ........ file B
//!  at the end, only if B has packets: A and sorted B  ─────► file C, which takes A's place
//! ```
//! A file with more interfaces than its head has room for is written anew in the same way.

use crate::form::DumpFormat;
use crate::merge::Place;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Place, offset and length of a late packet.
type Entry = (Place, u64, u32);

/// The late run of one output file. Its index takes 40 bytes of memory per late packet.
pub(crate) struct LateRun {
    file: BufWriter<File>,
    index: Vec<Entry>,
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

    /// The file, and its index by place.
    fn sorted(mut self) -> io::Result<(File, Vec<Entry>)> {
        self.index.sort_unstable();
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        Ok((file, self.index))
    }
}

/// Writes `main`, whose first `head.0` bytes are its head, and the late packets to `out`, merged by time. At equal times the main
/// run goes first: it was read first. The head becomes `head.1` bytes long; what it holds is filled in later, or copied where its
/// length stays. Interface descriptions that stand among the packets are left out: they stand in the head.
pub(crate) fn rewrite(
    main: &mut File,
    late: Option<LateRun>,
    format: DumpFormat,
    head: (u64, u64),
    out: &mut impl Write,
) -> io::Result<()> {
    let (late, index) = late.map(LateRun::sorted).transpose()?.unzip();
    let mut waiting = index.iter().flatten().peekable();
    let mut block = Vec::new();
    main.seek(SeekFrom::Start(0))?;
    let mut main = io::BufReader::with_capacity(1 << 20, main);
    io::copy(&mut (&mut main).take(head.0), out)?;
    io::copy(&mut io::repeat(0).take(head.1.saturating_sub(head.0)), out)?;
    loop {
        let time_ns = format.read(&mut main, &mut block)?;
        while let Some((_, at, len)) = waiting.next_if(|(place, ..)| time_ns.is_none_or(|time_ns| place.time_ns < time_ns)) {
            let mut bytes = vec![0; *len as usize];
            if let Some(late) = &late {
                late.read_exact_at(&mut bytes, *at)?;
            }
            out.write_all(&bytes)?;
        }
        if time_ns.is_none() {
            return Ok(());
        }
        if !format.is_description(&block) {
            out.write_all(&block)?;
        }
    }
}
