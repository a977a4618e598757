//! The raw records of HPCAP, as its files have them: no file header, packets one behind the other.
//!
//! ```text
//!  0         4             8          10              12
//!  | seconds | nanoseconds | captured | original len  | captured bytes | next record ...
//!  seconds = nanoseconds = 0: padding of that many bytes
//! ```
//! All numbers are little-endian. The form has no link type, no interfaces, and no place for what is missing;
//! it holds 65,535 bytes of a packet and times before 2106-02-07.

use scope_packet::pcapng::PacketBlock;
use scope_packet::time::NS_PER_SECOND;

/// Bytes in front of a packet.
pub const HEAD_BYTES: usize = 12;
/// A file is at most so long: the program that made the form writes no longer ones.
pub const FILE_BYTES_MAX: u64 = 2 << 30;

/// What of a packet the form could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// All of it.
    Whole,
    /// Not all of its bytes, or not its length.
    Truncated,
    /// Nothing: its time has no place.
    LeftOut,
}

/// Appends a packet's record, as far as the form holds it.
pub fn record(out: &mut Vec<u8>, packet: &PacketBlock<'_>) -> Fit {
    let time_ns = packet.time_ns();
    // A record of the very begin of 1970 would be padding.
    let Some(seconds) = u32::try_from(time_ns / NS_PER_SECOND).ok().filter(|_| time_ns > 0) else {
        return Fit::LeftOut;
    };
    let data = packet.data();
    let kept = data.len().min(usize::from(u16::MAX));
    let original = packet.original_len().min(u32::from(u16::MAX));
    out.extend(seconds.to_le_bytes());
    out.extend(((time_ns % NS_PER_SECOND) as u32).to_le_bytes());
    out.extend((kept as u16).to_le_bytes());
    out.extend((original as u16).to_le_bytes());
    out.extend(&data[..kept]);
    match kept == data.len() && original == packet.original_len() {
        true => Fit::Whole,
        false => Fit::Truncated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::pcapng::PacketHead;

    fn check(time_ns: i64, len: usize, original_len: u32, expected: (Fit, &[u8])) {
        let head = PacketHead { time_ns, captured_len: len as u32, original_len, ..PacketHead::default() };
        let mut block = vec![0; head.block_bytes()];
        head.write(&mut block, &vec![7; len]);
        let mut out = Vec::new();
        let fit = record(&mut out, &PacketBlock::first(&block).unwrap());
        assert_eq!((fit, &out[..out.len().min(HEAD_BYTES)]), expected, "{time_ns}, {len} bytes");
        if fit != Fit::LeftOut {
            assert_eq!(&out[HEAD_BYTES..], &vec![7; len.min(65_535)]);
        }
    }

    #[test]
    fn a_record_has_time_and_lengths_in_little_endian_and_what_does_not_fit_is_said() {
        check(1_000_000_002, 3, 260, (Fit::Whole, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 4, 1]));
        check(5, 0, 0, (Fit::Whole, &[0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]));
        let longest = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        check(u32::MAX as i64 * NS_PER_SECOND, 65_535, 65_535, (Fit::Whole, &longest));
        check(u32::MAX as i64 * NS_PER_SECOND, 65_536, 65_536, (Fit::Truncated, &longest));
        check(5, 0, 70_000, (Fit::Truncated, &[0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0xff, 0xff]));
        check((u32::MAX as i64 + 1) * NS_PER_SECOND, 3, 3, (Fit::LeftOut, &[]));
        check(0, 3, 3, (Fit::LeftOut, &[]));
    }
}
