//! Small writers of capture files, and a sink that keeps all it gets: what the tests of the file source
//! share.
#![allow(dead_code)] // each test binary uses its part

pub mod odd;

use std::io::Cursor;

use scope_packet::{Gap, Interface, Packet, Sink};
use scope_source::file::FileSource;
use scope_source::spec::FileForm;
use scope_source::{Polled, Source, SourceCounters, SourceError};

/// A packet as a sink got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub time_ns: i64,
    pub data: Vec<u8>,
    pub original_len: u32,
    pub interface: u32,
    pub flags: u32,
    pub lost_before: u64,
}

/// Keeps everything; checks what every source promises its sink.
#[derive(Default)]
pub struct Collect {
    pub interfaces: Vec<Interface>,
    pub packets: Vec<Got>,
    pub idle: Vec<i64>,
    /// With how many packets were there before.
    pub gaps: Vec<(usize, u32, Gap)>,
}

impl Sink for Collect {
    fn interface(&mut self, interface: &Interface) {
        self.interfaces.push(interface.clone());
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        assert!((1..=64).contains(&packets.len()), "a batch of {}", packets.len());
        for packet in packets {
            assert!(
                (packet.interface as usize) < self.interfaces.len(),
                "an interface before it was made known"
            );
            assert!(packet.time_ns >= 0);
            self.packets.push(Got {
                time_ns: packet.time_ns,
                data: packet.data.to_vec(),
                original_len: packet.original_len,
                interface: packet.interface,
                flags: packet.flags,
                lost_before: packet.lost_before,
            });
        }
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {
        panic!("a file loses nothing on its own");
    }

    fn gap(&mut self, interface: u32, gap: Gap) {
        assert!(
            (interface as usize) < self.interfaces.len(),
            "a gap of an interface before it was made known"
        );
        assert!(gap.from_ns <= gap.to_ns && gap.lost_max.is_none_or(|most| gap.lost_min <= most), "{gap:?}");
        self.gaps.push((self.packets.len(), interface, gap));
    }

    fn idle(&mut self, clock_ns: i64) {
        self.idle.push(clock_ns);
    }
}

/// What reading to the end brought.
pub struct Read {
    pub sink: Collect,
    pub counters: SourceCounters,
    pub warnings: Vec<String>,
}

/// Reads a source to its end and checks its law.
pub fn read_all(mut source: FileSource) -> Result<Read, SourceError> {
    let mut sink = Collect::default();
    while source.poll(&mut sink)? != Polled::Ended {}
    assert_eq!(source.poll(&mut sink)?, Polled::Ended);
    let counters = source.counters();
    assert_eq!(counters.offered, counters.received + counters.unreadable);
    assert_eq!(counters.received, sink.packets.len() as u64);
    Ok(Read { sink, counters, warnings: source.warnings() })
}

/// Reads a capture that lies in memory.
pub fn read_bytes(bytes: &[u8]) -> Result<Read, SourceError> {
    read_all(FileSource::from_reader("test", Box::new(Cursor::new(bytes.to_vec())), FileForm::Detected)?)
}

/// Writes integers in one byte order.
#[derive(Clone, Default)]
pub struct Out {
    pub bytes: Vec<u8>,
    pub big: bool,
}

impl Out {
    pub fn new(big: bool) -> Out {
        Out { bytes: Vec::new(), big }
    }

    pub fn u16(&mut self, value: u16) -> &mut Out {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Out {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Out {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut Out {
        self.bytes.extend(bytes);
        self
    }

    pub fn pad(&mut self) -> &mut Out {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

pub const MICRO: u32 = 0xa1b2_c3d4;
pub const NANO: u32 = 0xa1b2_3c4d;
pub const MODIFIED: u32 = 0xa1b2_cd34;

/// Writes a pcap file.
pub struct Pcap {
    pub out: Out,
    pub magic: u32,
}

impl Pcap {
    pub fn new(big: bool, magic: u32, minor: u16, snap_len: u32, link_type: u32) -> Pcap {
        let mut out = Out::new(big);
        out.u32(magic).u16(2).u16(minor).u32(0).u32(0).u32(snap_len).u32(link_type);
        Pcap { out, magic }
    }

    /// A record with all four numbers as given.
    pub fn record(&mut self, seconds: u32, fraction: u32, third: u32, fourth: u32, data: &[u8]) -> &mut Pcap {
        self.out.u32(seconds).u32(fraction).u32(third).u32(fourth);
        if self.magic == MODIFIED {
            self.out.raw(&[1, 0, 0, 0, 8, 0, 0, 0]);
        }
        self.out.raw(data);
        self
    }

    /// A whole packet at a time in ns, cut down to what the format can say.
    pub fn packet(&mut self, time_ns: i64, data: &[u8]) -> &mut Pcap {
        let fraction = (time_ns % 1_000_000_000) as u32;
        let fraction = if self.magic == NANO { fraction } else { fraction / 1000 };
        let len = data.len() as u32;
        self.record((time_ns / 1_000_000_000) as u32, fraction, len, len, data)
    }

    pub fn done(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out.bytes)
    }
}

/// Writes a pcapng file, block by block.
pub struct Ng {
    pub out: Out,
}

impl Ng {
    pub fn new(big: bool) -> Ng {
        let mut ng = Ng { out: Out::new(big) };
        ng.section(big);
        ng
    }

    pub fn block(&mut self, kind: u32, body: &[u8]) -> &mut Ng {
        let bytes = (12 + body.len().next_multiple_of(4)) as u32;
        self.out.u32(kind).u32(bytes).raw(body).pad().u32(bytes);
        self
    }

    fn body(&self) -> Out {
        Out::new(self.out.big)
    }

    /// Begins a section in the byte order given.
    pub fn section(&mut self, big: bool) -> &mut Ng {
        self.out.big = big;
        let mut body = self.body();
        body.u32(0x1A2B_3C4D).u16(1).u16(0).u64(u64::MAX);
        self.block(0x0A0D_0D0A, &body.bytes)
    }

    pub fn options(&self, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = self.body();
        for (code, value) in options {
            body.u16(*code).u16(value.len() as u16).raw(value).pad();
        }
        if !options.is_empty() {
            body.u32(0);
        }
        body.bytes
    }

    pub fn interface(&mut self, link_type: u16, snap_len: u32, options: &[(u16, &[u8])]) -> &mut Ng {
        let mut body = self.body();
        body.u16(link_type).u16(0).u32(snap_len).raw(&self.options(options));
        self.block(1, &body.bytes)
    }

    pub fn packet(&mut self, interface: u32, stamp: u64, data: &[u8]) -> &mut Ng {
        self.packet_with(interface, stamp, data.len() as u32, data, data.len() as u32, &[])
    }

    pub fn packet_with(
        &mut self,
        interface: u32,
        stamp: u64,
        captured: u32,
        data: &[u8],
        original: u32,
        options: &[(u16, &[u8])],
    ) -> &mut Ng {
        let mut body = self.body();
        body.u32(interface)
            .u32((stamp >> 32) as u32)
            .u32(stamp as u32)
            .u32(captured)
            .u32(original)
            .raw(data)
            .pad();
        body.raw(&self.options(options));
        self.block(6, &body.bytes)
    }

    pub fn old_packet(&mut self, interface: u16, drops: u16, stamp: u64, data: &[u8]) -> &mut Ng {
        let mut body = self.body();
        let len = data.len() as u32;
        body.u16(interface)
            .u16(drops)
            .u32((stamp >> 32) as u32)
            .u32(stamp as u32)
            .u32(len)
            .u32(len)
            .raw(data)
            .pad();
        self.block(2, &body.bytes)
    }

    pub fn simple_packet(&mut self, original: u32, data: &[u8]) -> &mut Ng {
        let mut body = self.body();
        body.u32(original).raw(data);
        self.block(3, &body.bytes)
    }

    pub fn done(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out.bytes)
    }
}
