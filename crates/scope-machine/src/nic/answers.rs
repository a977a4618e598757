//! What a driver's answers to ethtool's questions mean: plain words and bytes to values.
//!
//! A driver may answer anything: an answer that is too short or contradicts itself is an error or an
//! omitted value, never a read outside of it. `linux/ethtool.h` defines the words; each answer begins with
//! the order's number.

use std::ffi::CStr;
use std::io;

/// Bytes of one name.
pub(super) const NAME_BYTES: usize = 32;

/// A driver, as it names itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Such as `ixgbe`.
    pub name: String,
    /// Its version, often the kernel's; empty: it says none.
    pub version: String,
    /// Version of the card's firmware; empty: it says none.
    pub firmware: String,
    /// Where the card is plugged in; empty: it says nothing.
    pub bus: String,
}

/// Entries of the card's rings: what is set, and what can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSizes {
    /// Received packets that the card can hand over before the kernel has taken the first.
    pub rx: u32,
    /// Most that can be set.
    pub rx_max: u32,
    /// Packets to be sent.
    pub tx: u32,
    /// Most that can be set.
    pub tx_max: u32,
}

/// Queues of the card: what is set, and what can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Receiving, those that send too included.
    pub rx: u32,
    /// Most that can be set.
    pub rx_max: u32,
    /// Sending, those that receive too included.
    pub tx: u32,
    /// Most that can be set.
    pub tx_max: u32,
}

/// Who can stamp packets with a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamping {
    /// The kernel stamps what is received.
    pub software: bool,
    /// The card can stamp every packet that it receives.
    pub hardware_all: bool,
    /// The card can stamp some packets that it receives (time protocols).
    pub hardware_some: bool,
    /// Number of the card's clock (`/dev/ptpN`).
    pub clock: Option<u32>,
}

/// Behind the order: name, version, firmware, bus, of 32 bytes each.
pub fn driver(bytes: &[u8]) -> Driver {
    let part = |at: usize| text(bytes.get(4 + at..4 + at + 32).unwrap_or_default());
    Driver { name: part(0), version: part(32), firmware: part(64), bus: part(96) }
}

/// Most of: received, small, large, sent; then what is set of each.
pub fn rings(words: &[u32]) -> RingSizes {
    RingSizes { rx_max: word(words, 1), tx_max: word(words, 4), rx: word(words, 5), tx: word(words, 8) }
}

/// Most of: receiving, sending, others, both; then what is set of each.
pub fn queues(words: &[u32]) -> Queues {
    let sum = |own: usize, both: usize| word(words, own).saturating_add(word(words, both));
    Queues { rx_max: sum(1, 4), tx_max: sum(2, 4), rx: sum(5, 8), tx: sum(6, 8) }
}

/// What can stamp, the clock's number, three of sending, what can be stamped.
pub fn timestamping(words: &[u32]) -> Timestamping {
    let (can, clock, filters) =
        (word(words, 1), words.get(2).map_or(-1, |&clock| clock as i32), word(words, 7));
    let hardware = can & libc::SOF_TIMESTAMPING_RX_HARDWARE != 0;
    let all = filters & 1 << libc::HWTSTAMP_FILTER_ALL != 0;
    Timestamping {
        software: can & libc::SOF_TIMESTAMPING_RX_SOFTWARE != 0,
        hardware_all: hardware && all,
        hardware_some: hardware && filters & !(1 << libc::HWTSTAMP_FILTER_NONE) != 0,
        clock: u32::try_from(clock).ok(),
    }
}

/// Entries of list number `list`: two words on, the bits of the lists that there are, and behind them their
/// lengths. At most `most`; `None` where there are none or more.
pub fn entries(words: &[u32], list: u32, most: usize) -> Option<usize> {
    let there = word(words, 2) >> list & 1 != 0;
    Some(word(words, 4) as usize).filter(|&count| there && count > 0 && count <= most)
}

/// The names of a list of `count` entries: its number, how many there are, and the names.
///
/// # Errors
/// There are not that many.
pub fn names(bytes: &[u8], count: usize) -> io::Result<Vec<String>> {
    let given =
        bytes.get(8..).and_then(<[u8]>::first_chunk).map_or(0, |given| u32::from_ne_bytes(*given) as usize);
    let names = bytes.get(12..).unwrap_or_default().chunks_exact(NAME_BYTES).take(given.min(count));
    let names: Vec<String> = names.map(text).collect();
    if names.len() == count { Ok(names) } else { Err(io::Error::other("the number of names changed")) }
}

/// Features that have a name, and whether each is on: blocks of 32, each with four words (available,
/// requested, active, never changed).
pub fn features(words: &[u32], names: Vec<String>) -> Vec<(String, bool)> {
    let active = |index: usize| word(words, 2 + index / 32 * 4 + 2) >> (index % 32) & 1 != 0;
    let features = names.into_iter().enumerate().map(|(index, name)| (name, active(index)));
    features.filter(|(name, _)| !name.is_empty()).collect()
}

/// The values of `count` counters: how many there are, and two words for each.
///
/// # Errors
/// There are not that many.
pub fn counter_values(words: &[u32], count: usize) -> io::Result<Vec<u64>> {
    let values = words.get(2..).unwrap_or_default().chunks_exact(2).take(count);
    let values: Vec<u64> = values.map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect();
    match word(words, 1) as usize == count && values.len() == count {
        true => Ok(values),
        false => Err(io::Error::other("the number of counters changed")),
    }
}

/// 0 where the answer ends before.
fn word(words: &[u32], at: usize) -> u32 {
    words.get(at).copied().unwrap_or(0)
}

/// Text that ends at its first zero byte; what isn't a letter, digit or punctuation comes from a driver's
/// mistake and is omitted.
fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
    text.iter()
        .map(|&byte| byte as char)
        .filter(|letter| letter.is_ascii_graphic() || *letter == ' ')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_ends_at_its_zero_byte_and_has_no_control_letters() {
        assert_eq!(text(b"rx_dropped\0garbage"), "rx_dropped");
        assert_eq!(text(b"a\x1b[2Jb"), "a[2Jb");
        assert_eq!(text(&[b'x'; 32]).len(), 32);
    }

    #[test]
    fn an_answer_that_is_too_short_or_counts_otherwise_is_no_list() {
        let mut bytes = [0x1b, 1, 2].map(u32::to_ne_bytes).concat();
        bytes.extend([b'a'; 32]);
        bytes.extend([b'b'; 32]);
        assert_eq!(names(&bytes, 2).unwrap(), ["a".repeat(32), "b".repeat(32)]);
        assert!(names(&bytes, 3).is_err() && names(&bytes[..75], 2).is_err() && names(&[], 1).is_err());
        assert_eq!(counter_values(&[0x1d, 1, 5, 1], 1).unwrap(), [5 | 1 << 32]);
        assert!(counter_values(&[0x1d, 2, 5, 1], 1).is_err() && counter_values(&[0x1d, 1, 5], 1).is_err());
        assert_eq!(
            [
                entries(&[0, 0, 2, 0, 9], 1, 9),
                entries(&[0, 0, 2, 0, 9], 1, 8),
                entries(&[0, 0, 2, 0, 9], 0, 9)
            ],
            [Some(9), None, None]
        );
    }

    proptest! {
        #[test]
        fn junk_never_panics_and_yields_nothing_that_is_not_there(words in proptest::collection::vec(any::<u32>(), 0..300),
            count in prop_oneof![0usize..40, any::<usize>()], list in 0u32..32) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let Driver { name, version, firmware, bus } = driver(&bytes);
            for text in [name, version, firmware, bus] {
                prop_assert!(text.len() <= 32 && text.chars().all(|letter| letter.is_ascii_graphic() || letter == ' '));
            }
            let _ = (rings(&words), queues(&words), timestamping(&words));
            prop_assert!(entries(&words, list, count).is_none_or(|entries| (1..=count).contains(&entries)));
            if let Ok(names) = names(&bytes, count) {
                prop_assert!(names.len() == count && count * NAME_BYTES <= bytes.len());
                prop_assert!(features(&words, names).len() <= count);
            }
            if let Ok(values) = counter_values(&words, count) {
                prop_assert!(values.len() == count && count * 2 <= words.len());
            }
        }
    }
}
