//! Capture files, written byte by byte and independent of the product's own code, so that they can judge it.

use super::Capture;

/// How finely a file states its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Microseconds; the rest of a time is lost.
    Micro,
    /// Nanoseconds.
    Nano,
}

/// Numbers in one byte order.
struct Words {
    bytes: Vec<u8>,
    big: bool,
}

impl Words {
    fn u16(&mut self, value: u16) {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    /// Bytes, filled up to a multiple of 4.
    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }
}

/// A pcap file of a capture with one link type, in big or little endian.
///
/// # Panics
/// Where the packets have more than one link type.
pub fn pcap(capture: &Capture, precision: Precision, big: bool) -> Vec<u8> {
    let link_types = capture.link_types();
    assert!(link_types.len() <= 1, "pcap holds one link type, not {link_types:?}");
    let link_type = link_types.first().copied().unwrap_or(capture.interfaces[0].link_type);
    let (magic, unit_ns) = match precision {
        Precision::Micro => (0xa1b2_c3d4, 1000),
        Precision::Nano => (0xa1b2_3c4d, 1),
    };
    let mut out = Words { bytes: Vec::new(), big };
    out.u32(magic);
    out.u16(2);
    out.u16(4);
    out.u64(0);
    out.u32(262_144);
    out.u32(u32::from(link_type));
    for packet in &capture.packets {
        out.u32((packet.time_ns / 1_000_000_000) as u32);
        out.u32((packet.time_ns % 1_000_000_000 / unit_ns) as u32);
        out.u32(packet.data.len() as u32);
        out.u32(packet.original_len);
        out.bytes.extend(&packet.data);
    }
    out.bytes
}

/// A pcapng file: one section, named interfaces, flags and drop counts where they are not 0, in big or little
/// endian.
pub fn pcapng(capture: &Capture, precision: Precision, big: bool) -> Vec<u8> {
    let mut out = Words { bytes: Vec::new(), big };
    block(&mut out, 0x0a0d_0d0a, |body| {
        body.u32(0x1a2b_3c4d);
        body.u16(1);
        body.u16(0);
        body.u64(u64::MAX);
    });
    for interface in &capture.interfaces {
        block(&mut out, 1, |body| {
            body.u16(interface.link_type);
            body.u16(0);
            body.u32(0);
            body.option(2, interface.name.as_bytes());
            body.option(9, &[if precision == Precision::Nano { 9 } else { 6 }]);
            body.option(0, &[]);
        });
    }
    let unit_ns = if precision == Precision::Nano { 1 } else { 1000 };
    for packet in &capture.packets {
        block(&mut out, 6, |body| {
            let time = (packet.time_ns / unit_ns) as u64;
            body.u32(packet.interface as u32);
            body.u32((time >> 32) as u32);
            body.u32(time as u32);
            body.u32(packet.data.len() as u32);
            body.u32(packet.original_len);
            body.padded(&packet.data);
            packet_options(body, packet.flags, packet.lost_before);
        });
    }
    out.bytes
}

/// A pcapng block for the end of a little-endian file: what an interface had dropped by then (`isb_ifdrop`), with its time in
/// nanoseconds.
pub fn dropped(interface: usize, packets: u64, time_ns: i64) -> Vec<u8> {
    let mut out = Words { bytes: Vec::new(), big: false };
    block(&mut out, 5, |body| {
        body.u32(interface as u32);
        body.u32((time_ns as u64 >> 32) as u32);
        body.u32(time_ns as u32);
        body.option(5, &packets.to_le_bytes());
        body.option(0, &[]);
    });
    out.bytes
}

fn packet_options(body: &mut Words, flags: u32, lost_before: u64) {
    if flags != 0 {
        body.u16(2);
        body.u16(4);
        body.u32(flags);
    }
    if lost_before != 0 {
        body.u16(4);
        body.u16(8);
        body.u64(lost_before);
    }
    if flags != 0 || lost_before != 0 {
        body.option(0, &[]);
    }
}

fn block(out: &mut Words, kind: u32, fill: impl FnOnce(&mut Words)) {
    let mut body = Words { bytes: Vec::new(), big: out.big };
    fill(&mut body);
    let total = body.bytes.len() as u32 + 12;
    out.u32(kind);
    out.u32(total);
    out.bytes.extend(body.bytes);
    out.u32(total);
}
