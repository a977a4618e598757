//! Capture files into memory: pcap and pcapng in both byte orders, strict, slow and plain.

use crate::traffic::{Capture, Interface, Record};
use std::path::Path;

/// One interface statistics block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Index into the capture's interfaces.
    pub interface: usize,
    /// Packets received, if stated.
    pub received: Option<u64>,
    /// Packets dropped, if stated.
    pub dropped: Option<u64>,
}

/// What a capture file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Interfaces and packets in file order.
    pub capture: Capture,
    /// Interface statistics in file order (pcapng).
    pub statistics: Vec<Statistics>,
    /// Comments of the section header (pcapng).
    pub comments: Vec<String>,
    /// Comments of packets, each with the packet's index (pcapng).
    pub packet_comments: Vec<(usize, String)>,
    /// Bodies of blocks with names for addresses, and of those with secrets (pcapng).
    pub names_and_secrets: Vec<(u32, Vec<u8>)>,
}

/// Reads a whole file.
///
/// # Errors
/// A sentence that says where the file is not what it should be; a file that ends inside a block or record is
/// one.
pub fn read(path: impl AsRef<Path>) -> Result<File, String> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&bytes).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a whole file from memory.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8]) -> Result<File, String> {
    match bytes.get(..4) {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => parse_pcapng(bytes),
        Some(_) => Ok(File { capture: parse_pcap(bytes)?, ..File::default() }),
        None => Err(format!("{} bytes are no capture file", bytes.len())),
    }
}

/// Bytes that are read from the front, in one byte order.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let end =
            end.ok_or_else(|| format!("cut: {len} bytes wanted at {} of {}", self.at, self.bytes.len()))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, String> {
        let bytes = self.take(2)?.try_into().map_err(|_| "2 bytes".to_string())?;
        Ok(if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?.try_into().map_err(|_| "4 bytes".to_string())?;
        Ok(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(&mut self) -> Result<u64, String> {
        let (first, second) = (u64::from(self.u32()?), u64::from(self.u32()?));
        Ok(if self.big { first << 32 | second } else { second << 32 | first })
    }

    /// The options up to the end: (code, value).
    fn options(&mut self) -> Result<Vec<(u16, &'a [u8])>, String> {
        let mut options = Vec::new();
        while self.at < self.bytes.len() {
            let (code, len) = (self.u16()?, usize::from(self.u16()?));
            if code == 0 {
                break;
            }
            options.push((code, self.take(len)?));
            self.take(len.next_multiple_of(4) - len)?;
        }
        Ok(options)
    }

    fn number(&self, value: &'a [u8]) -> Result<u64, String> {
        let mut cursor = Cursor { bytes: value, at: 0, big: self.big };
        if value.len() == 8 { cursor.u64() } else { cursor.u32().map(u64::from) }
    }
}

fn parse_pcap(bytes: &[u8]) -> Result<Capture, String> {
    let (big, unit_ns) = match bytes[..4] {
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1000),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1000),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
        _ => return Err(format!("unknown magic {:02x?}", &bytes[..4])),
    };
    let mut cursor = Cursor { bytes, at: 20, big };
    let link_type = cursor.u32()? as u16;
    let mut capture = Capture { interfaces: vec![Interface::new("", link_type)], packets: Vec::new() };
    while cursor.at < bytes.len() {
        let time_ns = i64::from(cursor.u32()?) * 1_000_000_000 + i64::from(cursor.u32()?) * unit_ns;
        let captured = cursor.u32()? as usize;
        let original_len = cursor.u32()?;
        let data = cursor.take(captured)?.to_vec();
        capture.packets.push(Record { original_len, ..Record::new(time_ns, data) });
    }
    Ok(capture)
}

/// The units of a second by `if_tsresol`.
fn units_per_second(resolution: u8) -> u128 {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 != 0 { 2u128.pow(exponent) } else { 10u128.pow(exponent) }
}

fn parse_pcapng(bytes: &[u8]) -> Result<File, String> {
    let mut file = File::default();
    let mut units = Vec::new();
    let mut interface_base = 0;
    let mut cursor = Cursor { bytes, at: 0, big: false };
    while cursor.at < bytes.len() {
        let start = cursor.at;
        if bytes.get(start..start + 4) == Some(&[0x0a, 0x0d, 0x0d, 0x0a]) {
            cursor.big = bytes.get(start + 8..start + 12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]);
            interface_base = file.capture.interfaces.len();
        }
        let kind = cursor.u32()?;
        let total = cursor.u32()? as usize;
        if total < 12 || !total.is_multiple_of(4) {
            return Err(format!("block at {start} says it has {total} bytes"));
        }
        let body = Cursor { bytes: cursor.take(total - 12)?, at: 0, big: cursor.big };
        let closing = cursor.u32()? as usize;
        if closing != total {
            return Err(format!("block at {start} opens with length {total} and closes with {closing}"));
        }
        add_block(&mut file, &mut units, interface_base, kind, body)
            .map_err(|e| format!("block {kind:#x} at {start}: {e}"))?;
    }
    Ok(file)
}

fn add_block(
    file: &mut File,
    units: &mut Vec<u128>,
    base: usize,
    kind: u32,
    mut body: Cursor,
) -> Result<(), String> {
    match kind {
        0x0a0d_0d0a => {
            body.take(16)?;
            for (code, value) in body.options()? {
                if code == 1 {
                    file.comments.push(String::from_utf8_lossy(value).into_owned());
                }
            }
        }
        1 => {
            // libpcap's own number of raw IP, which files with several interfaces carry: the same type.
            let link_type = match body.u16()? {
                12 => 101,
                number => number,
            };
            body.take(6)?;
            let mut interface = Interface::new("", link_type);
            let mut resolution = 6;
            for (code, value) in body.options()? {
                match (code, value) {
                    (2, name) => interface.name = String::from_utf8_lossy(name).into_owned(),
                    (9, &[value]) => resolution = value,
                    _ => {}
                }
            }
            file.capture.interfaces.push(interface);
            units.push(units_per_second(resolution));
        }
        5 => {
            let interface = base + body.u32()? as usize;
            body.take(8)?;
            let mut statistics = Statistics { interface, received: None, dropped: None };
            for (code, value) in body.options()? {
                match code {
                    4 => statistics.received = Some(body.number(value)?),
                    5 => statistics.dropped = Some(body.number(value)?),
                    _ => {}
                }
            }
            file.statistics.push(statistics);
        }
        6 => {
            let (packet, comments) = enhanced_packet(units, base, &mut body)?;
            let index = file.capture.packets.len();
            file.packet_comments.extend(comments.into_iter().map(|comment| (index, comment)));
            file.capture.packets.push(packet);
        }
        4 | 10 => file.names_and_secrets.push((kind, body.take(body.bytes.len())?.to_vec())),
        _ => {}
    }
    Ok(())
}

fn enhanced_packet(units: &[u128], base: usize, body: &mut Cursor) -> Result<(Record, Vec<String>), String> {
    let interface = base + body.u32()? as usize;
    let per_second =
        *units.get(interface).ok_or_else(|| format!("interface {interface} is not described"))?;
    let time = u128::from(body.u32()?) << 32 | u128::from(body.u32()?);
    let captured = body.u32()? as usize;
    let original_len = body.u32()?;
    let data = body.take(captured)?.to_vec();
    body.take(captured.next_multiple_of(4) - captured)?;
    let time_ns = (time * 1_000_000_000 / per_second) as i64;
    let mut record = Record { original_len, ..Record::new(time_ns, data) }.on(interface);
    let mut comments = Vec::new();
    for (code, value) in body.options()? {
        match code {
            1 => comments.push(String::from_utf8_lossy(value).into_owned()),
            2 => record.flags = body.number(value)? as u32,
            4 => record.lost_before = body.number(value)?,
            _ => {}
        }
    }
    Ok((record, comments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Conversations, Precision, RAW, pcap, pcapng};

    fn sample() -> Capture {
        let interfaces = vec![Interface::new("left", 1), Interface::new("right", 1)];
        let mut capture =
            Conversations { packets: 300, interfaces, vlan: 30, ..Conversations::default() }.capture();
        capture.packets[7].lost_before = 12;
        capture
    }

    #[test]
    fn what_is_written_as_pcapng_is_read_back() {
        let mut coarse = sample();
        for packet in &mut coarse.packets {
            packet.time_ns -= packet.time_ns % 1000;
        }
        for big in [false, true] {
            assert_eq!(parse(&pcapng(&sample(), Precision::Nano, big)).unwrap().capture, sample());
            assert_eq!(parse(&pcapng(&sample(), Precision::Micro, big)).unwrap().capture, coarse);
        }
    }

    #[test]
    fn pcap_keeps_times_bytes_and_lengths_but_neither_names_nor_flags() {
        for big in [false, true] {
            let read = parse(&pcap(&sample(), Precision::Nano, big)).unwrap().capture;
            assert_eq!(read.interfaces, [Interface::new("", 1)]);
            for (read, written) in read.packets.iter().zip(&sample().packets) {
                let expected = Record { interface: 0, flags: 0, lost_before: 0, ..written.clone() };
                assert_eq!(*read, expected);
            }
        }
        let raw = Conversations {
            interfaces: vec![Interface::new("r", RAW)],
            packets: 5,
            ..Conversations::default()
        }
        .capture();
        assert_eq!(parse(&pcap(&raw, Precision::Micro, false)).unwrap().capture.link_types(), [RAW]);
    }

    #[test]
    fn a_cut_file_is_an_error_wherever_it_is_cut_inside_a_block() {
        let whole = pcapng(&sample(), Precision::Nano, false);
        for cut in [3, 27, 40, whole.len() / 2 + 1, whole.len() - 1] {
            assert!(parse(&whole[..cut]).is_err(), "{cut}");
        }
    }
}
