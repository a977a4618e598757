//! Where statistics go: one file, or a folder of files by month, day or hour, and which rows belong to which.
//!
//! ```text
//! wirescope-2026-11.sqlite           a month of capture time, UTC
//! wirescope-2026-11-27.sqlite        a day
//! wirescope-2026-11-27T18.sqlite     an hour
//! NAME-wal, NAME-shm                 beside one that is open, or whose writer was killed
//! NAME.damaged-1                     moved aside; the number grows
//! ```
//! A row belongs to the file of its time: an interval and its traffic of their begin, a flow and a loss of
//! their end. So no file gets a flow long after its own time.

use scope_folder::Folder;
use scope_folder::folder::{Entry, EntryKind};
use scope_spelling::time::iso;
use scope_spelling::values::parse_time_ns;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "wirescope-";
const SUFFIX: &str = ".sqlite";
const DAMAGED: &str = ".damaged-";
/// What SQLite keeps beside a file: its log of transactions, and who reads how far.
pub const BESIDE: [&str; 2] = ["-wal", "-shm"];
/// So many files of one name are moved aside at most.
const DAMAGED_MAX: u32 = 1000;
const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One file.
    File(PathBuf),
    /// Files in a folder.
    Folder(PathBuf),
}

impl Place {
    /// A folder has a slash at its end, or is there already.
    pub fn of(path: &Path) -> Place {
        if path.as_os_str().as_bytes().ends_with(b"/") || path.is_dir() {
            Place::Folder(path.to_path_buf())
        } else {
            Place::File(path.to_path_buf())
        }
    }

    /// As it was given.
    pub fn path(&self) -> &Path {
        match self {
            Place::File(path) | Place::Folder(path) => path,
        }
    }
}

/// How much capture time a file of a folder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Every {
    /// A month.
    Month,
    /// A day.
    #[default]
    Day,
    /// An hour.
    Hour,
}

impl Every {
    /// All, by the words for them.
    pub const WORDS: [(&'static str, Every); 3] =
        [("month", Every::Month), ("day", Every::Day), ("hour", Every::Hour)];

    /// The one that is called so.
    pub fn of(word: &str) -> Option<Every> {
        Every::WORDS.iter().find(|(known, _)| *known == word).map(|&(_, every)| every)
    }

    /// How much of a time in ISO 8601 says its file.
    fn letters(self) -> usize {
        match self {
            Every::Month => "2026-11".len(),
            Every::Day => "2026-11-27".len(),
            Every::Hour => "2026-11-27T18".len(),
        }
    }

    /// The span of the file that `time_ns` belongs to; the first one of 1970 has all before it, too.
    pub fn period(self, time_ns: i64) -> Period {
        let mut text = iso(time_ns.max(0));
        text.truncate(self.letters());
        let from_ns = begin(&text, self).unwrap_or(0);
        Period { from_ns, to_ns: self.end(&text, from_ns), text }
    }

    fn end(self, text: &str, from_ns: i64) -> i64 {
        match self {
            Every::Hour => from_ns.saturating_add(HOUR_NS),
            Every::Day => from_ns.saturating_add(DAY_NS),
            Every::Month => next_month(text).and_then(|next| begin(&next, self)).unwrap_or(i64::MAX),
        }
    }
}

/// When the span begins whose text that is.
fn begin(text: &str, every: Every) -> Option<i64> {
    let rest = match every {
        Every::Month => "-01T00:00:00Z",
        Every::Day => "T00:00:00Z",
        Every::Hour => ":00:00Z",
    };
    parse_time_ns(&format!("{text}{rest}")).ok()
}

/// `2027-01` for `2026-12`.
fn next_month(text: &str) -> Option<String> {
    let (year, month) = text.split_once('-')?;
    let (year, month): (i32, i32) = (year.parse().ok()?, month.parse().ok()?);
    Some(if month < 12 { format!("{year:04}-{:02}", month + 1) } else { format!("{:04}-01", year + 1) })
}

/// The span of capture time of one file in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its first moment, ns since the epoch.
    pub from_ns: i64,
    /// The first one behind it.
    pub to_ns: i64,
    text: String,
}

impl Period {
    /// Of the file that is called `name`.
    pub fn of_file(name: &str) -> Option<Period> {
        let text = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let (_, every) = Every::WORDS.into_iter().find(|(_, every)| every.letters() == text.len())?;
        let period = every.period(begin(text, every)?);
        (period.text == text).then_some(period)
    }

    /// As it stands in the file's name: `2026-11-27`.
    pub fn id(&self) -> &str {
        &self.text
    }

    /// What its file is called.
    pub fn file_name(&self) -> String {
        format!("{PREFIX}{}{SUFFIX}", self.text)
    }

    /// Whether its file has a time: every time has a file, also at both ends of what 64 bits reach.
    pub fn contains(&self, time_ns: i64) -> bool {
        self.from_ns <= time_ns.max(0) && (time_ns < self.to_ns || self.to_ns == i64::MAX)
    }
}

/// A file in a folder of statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its span.
    pub period: Period,
    /// What it takes of the disk, bytes, with what SQLite keeps beside it.
    pub bytes: u64,
    /// It was moved aside.
    pub is_damaged: bool,
}

/// The files of statistics in a folder, oldest first. What is called otherwise isn't one.
///
/// # Errors
/// The system's.
pub fn files(folder: &Folder) -> io::Result<Vec<Found>> {
    let entries = folder.entries()?;
    let taken: BTreeMap<&OsStr, u64> = entries.iter().map(|entry| (&*entry.name, entry.taken)).collect();
    let found = |entry: &Entry| {
        let name = entry.name.to_str().filter(|_| entry.kind == EntryKind::File)?;
        let (stem, number) = name.split_once(DAMAGED).map_or((name, None), |(stem, rest)| (stem, Some(rest)));
        if number.is_some_and(|number| number.parse::<u32>().is_err()) {
            return None;
        }
        let beside = BESIDE.map(|suffix| taken.get(&*beside(name, suffix)).copied().unwrap_or(0));
        Some(Found {
            period: Period::of_file(stem)?,
            bytes: entry.taken + beside.iter().sum::<u64>(),
            is_damaged: number.is_some(),
            name: name.to_string(),
        })
    };
    let mut files: Vec<Found> = entries.iter().filter_map(found).collect();
    files.sort_by(|a, b| (a.period.from_ns, &a.name).cmp(&(b.period.from_ns, &b.name)));
    Ok(files)
}

/// A name with a suffix: of what SQLite keeps beside the file.
pub fn beside(name: impl AsRef<OsStr>, suffix: &str) -> OsString {
    let mut name = name.as_ref().to_os_string();
    name.push(suffix);
    name
}

/// The first free name for a file that is moved aside.
pub fn damaged_name(name: &OsStr, is_free: impl Fn(&OsStr) -> bool) -> Option<OsString> {
    (1..=DAMAGED_MAX).map(|number| beside(name, &format!("{DAMAGED}{number}"))).find(|name| is_free(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_with_a_slash_at_its_end_or_of_a_folder_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(Place::of(path), Place::Folder(path.to_path_buf()));
        assert_eq!(Place::of(Path::new("x.sqlite")), Place::File("x.sqlite".into()));
        assert_eq!(Place::of(Path::new("no/such/")), Place::Folder("no/such/".into()));
    }

    #[test]
    fn names_say_the_span_in_utc() {
        let time = |text: &str| parse_time_ns(text).unwrap();
        let check = |every: Every, at: &str, name: &str, from: &str, to: &str| {
            let period = every.period(time(at));
            assert_eq!(
                (period.file_name().as_str(), period.from_ns, period.to_ns),
                (name, time(from), time(to))
            );
            assert_eq!(Period::of_file(name), Some(period));
        };
        let at = "2026-11-27T18:59:59.999999999Z";
        check(
            Every::Hour,
            at,
            "wirescope-2026-11-27T18.sqlite",
            "2026-11-27T18:00:00Z",
            "2026-11-27T19:00:00Z",
        );
        check(Every::Day, at, "wirescope-2026-11-27.sqlite", "2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z");
        check(Every::Month, at, "wirescope-2026-11.sqlite", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z");
        let at = "2024-12-31T23:00:00Z";
        check(Every::Month, at, "wirescope-2024-12.sqlite", "2024-12-01T00:00:00Z", "2025-01-01T00:00:00Z");
        check(Every::Hour, at, "wirescope-2024-12-31T23.sqlite", at, "2025-01-01T00:00:00Z");
        let at = "1970-01-01T00:00:00Z";
        check(Every::Day, at, "wirescope-1970-01-01.sqlite", at, "1970-01-02T00:00:00Z");
        for name in [
            "wirescope-2026-13.sqlite",
            "wirescope-2026-1.sqlite",
            "wirescope-2026-11-27T24.sqlite",
            "wirescope-2026-11-27T1.sqlite",
            "wirescope-2026-11-27t18.sqlite",
            "wirescope-2026-11-27T18.sqlite-wal",
            "wirescope-.sqlite",
            "x-2026-11.sqlite",
        ] {
            assert_eq!(Period::of_file(name), None, "{name}");
        }
    }

    #[test]
    fn a_folder_lists_its_files_oldest_first_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let write =
            |name: &str, bytes: usize| std::fs::write(root.path().join(name), vec![1; bytes]).unwrap();
        write("wirescope-2026-11-28.sqlite", 4096);
        write("wirescope-2026-11-27T18.sqlite", 4096);
        write("wirescope-2026-11-27T18.sqlite-wal", 8192);
        write("wirescope-2026-11-27T18.sqlite.damaged-1", 4096);
        write("wirescope-2026-11-27T18.sqlite.damaged-1-wal", 4096);
        write("wirescope-2026-11-27T18.sqlite.damaged-x", 4096);
        write("notes.sqlite", 1);
        std::fs::create_dir(root.path().join("wirescope-2026-11-29.sqlite")).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let files = files(&folder).unwrap();
        let listed: Vec<_> =
            files.iter().map(|file| (file.name.as_str(), file.bytes, file.is_damaged)).collect();
        assert_eq!(
            listed,
            [
                ("wirescope-2026-11-27T18.sqlite", 12288, false),
                ("wirescope-2026-11-27T18.sqlite.damaged-1", 8192, true),
                ("wirescope-2026-11-28.sqlite", 4096, false),
            ]
        );
        let is_free = |name: &OsStr| !files.iter().any(|file| *file.name == *name);
        let aside = damaged_name("wirescope-2026-11-27T18.sqlite".as_ref(), is_free);
        assert_eq!(aside, Some("wirescope-2026-11-27T18.sqlite.damaged-2".into()));
    }

    proptest! {
        #[test]
        fn every_time_lies_in_its_period_and_names_are_in_the_order_of_time(
            first in any::<i64>(), second in any::<i64>(), every in 0..3usize,
        ) {
            let every = Every::WORDS[every].1;
            let (first, second) = (first.min(second), first.max(second));
            let (a, b) = (every.period(first), every.period(second));
            prop_assert!(a.contains(first) && b.contains(second));
            prop_assert_eq!(a == b, a.contains(second));
            prop_assert!(a.file_name() <= b.file_name());
            prop_assert!(a == b || a.to_ns <= b.from_ns);
        }
    }
}
