//! Names of the store's files: made, read back, and told from foreign ones.
//!
//! ```text
//!  2026-11-20/2026-11-20T20-31-05.123456789Z_0a1b2c3d_ETHERNET_000001.pcapng[.part]
//!  \__ day __/\_________ first_ns _________/ run      link   number        grows
//! ```
//! The day is that of the time, in UTC. Reading is the exact inverse of making: a name that isn't made in the
//! same way, letter by letter, is no name of the store. That a file has such a name makes it none of the
//! store's yet: its head has to agree ([`FileName::agrees`]).

use scope_packet::LinkType;
use scope_spelling::time::{for_file_name, from_file_name};
use std::path::{Path, PathBuf};

/// Letters of a day, `2026-11-20`.
const DAY_LEN: usize = 10;
const DAY_NS: i64 = 86_400 * 1_000_000_000;
const ENDING: &str = ".pcapng";
const GROWING: &str = ".part";

/// What names have of a run's id: its first four bytes.
pub fn begin_of_run(&[a, b, c, d, ..]: &[u8; 16]) -> [u8; 4] {
    [a, b, c, d]
}

/// What the name of a file says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// Time of the packet that was the first when the file was begun, ns since 1970; not negative.
    first_ns: i64,
    /// First bytes of the run's id.
    run: [u8; 4],
    /// Number of the file in its run and volume, from 1.
    number: u32,
    /// The link type's name with other letters than `A-Z a-z 0-9 -` as `-`.
    link_type: String,
    /// It grows, or its run died.
    growing: bool,
}

impl FileName {
    /// The name of a file that is begun now: it grows. Times before 1970 stand as 1970, number 0 as 1.
    pub fn growing(first_ns: i64, run_id: &[u8; 16], link_type: LinkType, number: u32) -> FileName {
        FileName {
            first_ns: first_ns.max(0),
            run: begin_of_run(run_id),
            number: number.max(1),
            link_type: letters(link_type),
            growing: true,
        }
    }

    /// The name that the file gets when it is whole.
    pub fn closed(&self) -> FileName {
        FileName { growing: false, ..self.clone() }
    }

    /// Reads the path of a file below the volume's folder; `None`: no file of the store has it.
    pub fn read(path: &Path) -> Option<FileName> {
        let text = path.to_str()?;
        let name = text.get(DAY_LEN + 1..)?;
        let (stem, growing) = match name.strip_suffix(GROWING) {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let mut parts = stem.strip_suffix(ENDING)?.split('_');
        let (time, run, link_type, number) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let read = FileName {
            first_ns: from_file_name(time).filter(|&first_ns| first_ns >= 0)?,
            run: u32::from_str_radix(run, 16).ok()?.to_be_bytes(),
            number: number.parse().ok().filter(|&number| number > 0)?,
            link_type: link_type.to_string(),
            growing,
        };
        let is_made = !link_type.is_empty() && link_type.bytes().all(is_letter) && read.text() == text;
        is_made.then_some(read)
    }

    /// Whether it grows, or was left by a run that died.
    pub fn is_growing(&self) -> bool {
        self.growing
    }

    /// First bytes of the run's id.
    pub fn run(&self) -> [u8; 4] {
        self.run
    }

    /// Number of the file in its run and volume, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Time of the first packet when the file was begun, ns since 1970.
    pub fn first_ns(&self) -> i64 {
        self.first_ns
    }

    /// The link type of its packets; `None`: the name doesn't tell it.
    pub fn link_type(&self) -> Option<LinkType> {
        LinkType::named(&self.link_type.replace('-', "_")).filter(|&found| letters(found) == self.link_type)
    }

    /// Whether a head that says this belongs to a file of this name.
    pub fn agrees(&self, run_id: &[u8; 16], link_type: LinkType, number: u32) -> bool {
        run_id.starts_with(&self.run) && self.link_type == letters(link_type) && self.number == number
    }

    /// The folder that it stands in, below the volume's.
    pub fn day(&self) -> PathBuf {
        for_file_name(self.first_ns).get(..DAY_LEN).unwrap_or_default().into()
    }

    /// The path below the volume's folder.
    pub fn path(&self) -> PathBuf {
        self.text().into()
    }

    fn text(&self) -> String {
        let FileName { first_ns, run, number, link_type, growing } = self;
        let time = for_file_name(*first_ns);
        let day = time.get(..DAY_LEN).unwrap_or_default();
        let run = u32::from_be_bytes(*run);
        let grows = if *growing { GROWING } else { "" };
        format!("{day}/{time}_{run:08x}_{link_type}_{number:06}{ENDING}{grows}")
    }
}

/// Whether the name of a folder is that of a day.
pub fn is_day(name: &str) -> bool {
    day_ns(name).is_some()
}

/// First and last time, ns, of the day that a folder has the name of.
pub fn day_ns(name: &str) -> Option<(i64, i64)> {
    let begin_ns = from_file_name(&format!("{name}T00-00-00.000000000Z"));
    let begin_ns = begin_ns.filter(|&begin_ns| begin_ns >= 0 && name.len() == DAY_LEN)?;
    Some((begin_ns, begin_ns.saturating_add(DAY_NS - 1)))
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn letters(link_type: LinkType) -> String {
    let name = link_type.name();
    name.bytes().map(|byte| if is_letter(byte) { char::from(byte) } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RUN: [u8; 16] = *b"\x0a\x1b\x2c\x3d............";

    fn name() -> FileName {
        FileName::growing(1_795_206_665_123_456_789, &RUN, LinkType::LINUX_SLL2, 1)
    }

    #[test]
    fn a_name_says_time_run_link_type_and_number_and_stands_in_its_day() {
        let part = "2026-11-20/2026-11-20T20-31-05.123456789Z_0a1b2c3d_LINUX-SLL2_000001.pcapng.part";
        assert_eq!(name().path(), Path::new(part));
        assert_eq!(name().closed().path(), Path::new(part.trim_end_matches(".part")));
        assert_eq!(name().day(), Path::new("2026-11-20"));
        let long = FileName::growing(0, &RUN, LinkType(65000), 12_345_678).closed();
        let text = "1970-01-01/1970-01-01T00-00-00.000000000Z_0a1b2c3d_65000_12345678.pcapng";
        assert_eq!(long.path(), Path::new(text));
        assert_eq!(FileName::growing(-5, &RUN, LinkType(65000), 12_345_678).closed(), long);
    }

    #[test]
    fn name_and_head_agree_in_run_link_type_and_number() {
        let agrees = |run: &[u8; 16], link_type, number| name().agrees(run, link_type, number);
        assert!(agrees(&RUN, LinkType::LINUX_SLL2, 1));
        assert!(!agrees(&[7; 16], LinkType::LINUX_SLL2, 1));
        assert!(!agrees(&RUN, LinkType::ETHERNET, 1));
        assert!(!agrees(&RUN, LinkType::LINUX_SLL2, 2));
    }

    #[test]
    fn what_is_not_made_in_this_way_is_no_name_of_the_store() {
        let whole = "2026-11-20/2026-11-20T20-31-05.123456789Z_0a1b2c3d_ETHERNET_000001.pcapng";
        assert!(FileName::read(Path::new(whole)).is_some());
        for (from, to) in [
            ("2026-11-20/", ""),
            ("2026-11-20/", "2026-11-21/"),
            ("2026-11-20/", "2026-11-20//"),
            ("2026-11-20/", "./2026-11-20/"),
            ("0a1b2c3d", "0A1B2C3D"),
            ("0a1b2c3d", "+a1b2c3d"),
            ("0a1b2c3d", "a1b2c3d"),
            ("ETHERNET", ""),
            ("ETHERNET", "ETHER_NET"),
            ("ETHERNET", "ETHERN\u{c9}T"),
            ("000001", "000000"),
            ("000001", "0000001"),
            ("000001", "00001"),
            ("000001", "+00001"),
            ("000001", "4294967296"),
            ("000001", "000001_2"),
            (".pcapng", ".pcap"),
            (".pcapng", ".pcapng.part.part"),
            (".pcapng", ".pcapng~"),
            ("20-31", "20:31"),
            ("2026-", "1969-"),
            ("2026-11-20T", "2026-11-20t"),
        ] {
            let other = whole.replace(from, to);
            assert_eq!(FileName::read(Path::new(&other)), None, "{other}");
        }
        for text in ["", "2026-11-20", "2026-11-20/", "wirescope.store"] {
            assert_eq!(FileName::read(Path::new(text)), None, "{text}");
        }
    }

    #[test]
    fn folders_of_days_are_known() {
        assert!(is_day("2026-11-20") && is_day("1970-01-01") && is_day("2262-04-11"));
        for text in ["", "2026-02-30", "2026-11-2", "2026-11-200", "2026/11/20", "1969-12-31", "lost+found"] {
            assert!(!is_day(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_read_back_as_it_was_made(
            first_ns in 0..=i64::MAX, run in any::<[u8; 16]>(), link in any::<u16>(), number in 1u32.., grows: bool,
        ) {
            let made = FileName::growing(first_ns, &run, LinkType(link), number);
            let made = if grows { made } else { made.closed() };
            prop_assert_eq!(FileName::read(&made.path()), Some(made.clone()));
            prop_assert!(made.agrees(&run, LinkType(link), number));
            prop_assert!(is_day(made.day().to_str().unwrap()));
            prop_assert!(made.path().starts_with(made.day()));
        }

        #[test]
        fn names_of_one_run_stand_in_the_order_of_their_times(a in 0..=i64::MAX, b in 0..=i64::MAX) {
            let path = |ns| FileName::growing(ns, &RUN, LinkType::ETHERNET, 1).path();
            prop_assert_eq!(path(a).cmp(&path(b)), a.cmp(&b));
        }

        #[test]
        fn junk_is_read_as_nothing_or_as_itself(text in "\\PC{0,60}", near in "2026-11-20/[-0-9TZ.]{0,30}_[0-9a-f]{6,9}_[A-Z_]{0,5}_[0-9]{1,8}\\.pcapng(\\.part)?") {
            for text in [text, near] {
                if let Some(read) = FileName::read(Path::new(&text)) {
                    prop_assert_eq!(read.text(), text);
                }
            }
        }
    }
}
