//! What was imported: a line for each capture file, so that one is recognised that comes again; the file
//! `imports.jsonl` of a volume.
//!
//! ```text
//! {"bytes":5048,"hash":"7d9c..","name":"trace.pcapng","packets":40,"run":"0a1b..","volumes":["0011.."],
//!  "when":"2026-11-20T20:31:05.000000000Z"}
//! ```
//! (one line). `hash` is BLAKE3 over the file's bytes as they stand in it, compressed ones as they are. Lines are
//! written when an import has ended and everything of it is on the disk: one that was broken off leaves none,
//! and may be repeated. All volumes of the import get the same lines, so any of them knows.
//!
//! For example `trace.pcapng` is imported, and a year later retention has deleted the files of that run: then the
//! packets are gone, and it may be imported again ([`Imported::is_gone`]). While one file of the run is left it
//! counts as there. A volume that isn't looked at may have some: then it counts as there, too.
//!
//! The file is replaced whole, under the lock of the holds (`volume.rs`), and is at most 512 KiB long, about 2,000
//! lines: what is set aside beside a volume's files has room for it. Beyond that the oldest lines go, and what
//! they stood for is not recognised any more. A file that can't be understood is a fault.

use crate::chain::Digest;
use crate::name::{self, FileName};
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::printable::shell_word;
use scope_spelling::time::iso;
use scope_spelling::values::parse_time_ns;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

/// The file's name.
pub const IMPORTS_FILE: &str = "imports.jsonl";
/// Its length at most.
pub const FILE_BYTES_MAX: usize = 512 << 10;
/// Of a name so many letters are kept, the last ones.
const NAME_LETTERS_MAX: usize = 200;

/// A hash that is being made, of a file's bytes one behind the other.
#[derive(Clone, Debug, Default)]
pub struct Hashing(blake3::Hasher);

impl Hashing {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes so far.
    pub fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }

    /// All bytes that a reader still has.
    ///
    /// # Errors
    /// The reader's.
    pub fn update_from(&mut self, reader: impl Read) -> io::Result<()> {
        self.0.update_reader(reader).map(drop)
    }
}

/// A run, as names of files have it.
pub type RunInName = [u8; 4];

/// One imported file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Over its bytes.
    pub hash: Digest,
    /// Their number.
    pub bytes: u64,
    /// Packets that came of it.
    pub packets: u64,
    /// Its name, as it was given; of a long one its end.
    pub name: String,
    /// The run that stored it.
    pub run_id: [u8; 16],
    /// The ids of that run's volumes.
    pub volumes: Vec<[u8; 16]>,
    /// When, ns since the epoch.
    pub when_ns: i64,
}

impl Imported {
    /// Whether nothing of it can be left: `there` has the ids of volumes, each with the runs whose files are in it.
    pub fn is_gone(&self, there: &[([u8; 16], BTreeSet<RunInName>)]) -> bool {
        let is_without = |id: &[u8; 16]| {
            let known = there.iter().find(|(known, _)| known == id);
            known.is_some_and(|(_, runs)| !runs.iter().any(|run| self.run_id.starts_with(run)))
        };
        self.volumes.iter().all(is_without)
    }

    fn line(&self) -> String {
        let letters = self.name.chars().count();
        let name: String = self.name.chars().skip(letters.saturating_sub(NAME_LETTERS_MAX)).collect();
        let volumes: Vec<String> = self.volumes.iter().map(id_text).collect();
        let object = json!({
            "hash": self.hash.to_string(), "bytes": self.bytes, "packets": self.packets, "name": name,
            "run": id_text(&self.run_id), "volumes": volumes, "when": iso(self.when_ns),
        });
        format!("{object}\n")
    }

    fn read(line: &str) -> Option<Imported> {
        let object: Value = serde_json::from_str(line).ok()?;
        let id = |value: &Value| value.as_str().and_then(read_id);
        Some(Imported {
            hash: object["hash"].as_str().and_then(Digest::read)?,
            bytes: object["bytes"].as_u64()?,
            packets: object["packets"].as_u64()?,
            name: object["name"].as_str()?.to_string(),
            run_id: id(&object["run"])?,
            volumes: object["volumes"].as_array()?.iter().map(id).collect::<Option<_>>()?,
            when_ns: object["when"].as_str().and_then(|text| parse_time_ns(text).ok())?,
        })
    }
}

fn id_text(id: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

fn read_id(text: &str) -> Option<[u8; 16]> {
    let id = u128::from_str_radix(text, 16).ok()?.to_be_bytes();
    (id_text(&id) == text).then_some(id)
}

/// What was imported into a volume, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imports(Vec<Imported>);

impl Imports {
    /// Reads them; without a file there are none.
    ///
    /// # Errors
    /// The file can't be read or understood: what it says would come twice.
    pub fn read(folder: &Folder) -> Result<Imports, Fault> {
        let path = folder.path().join(IMPORTS_FILE);
        let fault = |cause: &dyn fmt::Display, line| {
            let cause = format!("what was imported before can't be read: {cause}");
            let away = format!("repair it, or move it away: mv {} /tmp/", shell_word(&path));
            Fault::whole(cause).remedy(away).in_file(&path, line)
        };
        let text = read_text(folder).map_err(|error| fault(&error, None))?;
        let read = |(at, line): (usize, &str)| {
            Imported::read(line).ok_or_else(|| fault(&"the line is none of an import", Some(at)))
        };
        (1..).zip(text.lines()).map(read).collect::<Result<_, _>>().map(Imports)
    }

    /// Whether one of them is so long.
    pub fn has_length(&self, bytes: u64) -> bool {
        self.0.iter().any(|imported| imported.bytes == bytes)
    }

    /// All with this hash.
    pub fn with(&self, hash: Digest) -> impl Iterator<Item = &Imported> {
        self.0.iter().filter(move |imported| imported.hash == hash)
    }

    /// Adds what was imported just now.
    pub(crate) fn add(&mut self, new: &[Imported]) {
        self.0.extend_from_slice(new);
    }

    /// Replaces the file; the oldest lines go where all don't fit.
    pub(crate) fn write(&self, folder: &Folder) -> io::Result<()> {
        let mut draft = folder.draft_over(OsStr::new(IMPORTS_FILE))?;
        draft.file().write_all(self.text().as_bytes())?;
        draft.file().sync_all()?;
        draft.replace()
    }

    fn text(&self) -> String {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for line in self.0.iter().rev().map(Imported::line) {
            bytes += line.len();
            if bytes > FILE_BYTES_MAX {
                break;
            }
            lines.push(line);
        }
        lines.into_iter().rev().collect()
    }
}

fn read_text(folder: &Folder) -> io::Result<String> {
    let mut text = String::new();
    let Some(file) = folder.existing(OsStr::new(IMPORTS_FILE), false)? else { return Ok(text) };
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    match text.len() > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

/// The runs that have files in a volume, by their names.
///
/// # Errors
/// The system's: a folder can't be read.
pub fn runs_in(folder: &Folder) -> io::Result<BTreeSet<RunInName>> {
    let mut runs = BTreeSet::new();
    for day in folder.entries()? {
        if !day.name.to_str().is_some_and(name::is_day) {
            continue;
        }
        let files = folder.below(&day.name)?.entries()?;
        let names = files.iter().filter_map(|file| FileName::read(&Path::new(&day.name).join(&file.name)));
        runs.extend(names.map(|name| name.run()));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn imported(number: u8, name: &str) -> Imported {
        Imported {
            hash: Digest([number; 32]),
            bytes: u64::from(number) * 1000,
            packets: 40,
            name: name.to_string(),
            run_id: [number; 16],
            volumes: vec![[1; 16], [2; 16]],
            when_ns: 1_795_206_665_000_000_000,
        }
    }

    #[test]
    fn what_was_imported_is_read_as_it_was_written_and_known_by_hash_and_length() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let mut imports = Imports::read(&folder).unwrap();
        assert_eq!(imports, Imports::default());
        imports.add(&[imported(1, "a b\n\"c\u{e9}"), imported(2, "b")]);
        imports.write(&folder).unwrap();
        imports.add(&[imported(1, "again")]);
        imports.write(&folder).unwrap();
        let read = Imports::read(&folder).unwrap();
        assert_eq!(read, imports);
        assert!(read.has_length(2000) && !read.has_length(2001));
        let names: Vec<&str> = read.with(Digest([1; 32])).map(|imported| &*imported.name).collect();
        assert_eq!(names, ["a b\n\"c\u{e9}", "again"]);
        assert_eq!(read.with(Digest([3; 32])).count(), 0);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn the_file_is_bounded_and_the_oldest_lines_go_first() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let mut imports = Imports::default();
        for number in 0..4000_u16 {
            let name = format!("{number:0>300}");
            imports.add(&[Imported { bytes: number.into(), ..imported(7, &name) }]);
        }
        imports.write(&folder).unwrap();
        let read = Imports::read(&folder).unwrap();
        let count = read.0.len() as u64;
        assert!((700..2000).contains(&count), "{count}");
        assert!(!read.has_length(3999 - count) && read.has_length(4000 - count) && read.has_length(3999));
        let newest = &read.0[read.0.len() - 1].name;
        assert!(newest.len() == NAME_LETTERS_MAX && newest.ends_with("3999"), "{newest}");
        assert!(std::fs::metadata(root.path().join(IMPORTS_FILE)).unwrap().len() <= FILE_BYTES_MAX as u64);
    }

    #[test]
    fn an_import_is_gone_when_none_of_its_volumes_has_a_file_of_its_run() {
        let check = |there: &[(u8, &[u8])], expected: bool| {
            let there: Vec<_> = there
                .iter()
                .map(|&(id, runs)| ([id; 16], runs.iter().map(|&run| [run; 4]).collect()))
                .collect();
            assert_eq!(imported(5, "x").is_gone(&there), expected, "{there:?}");
        };
        check(&[(1, &[4, 6]), (2, &[])], true);
        check(&[(1, &[4, 5]), (2, &[])], false);
        check(&[(1, &[]), (2, &[5])], false);
        check(&[(1, &[]), (3, &[])], false); // nobody has looked into volume 2
        check(&[], false);
    }

    #[test]
    fn runs_are_those_of_files_in_folders_of_days() {
        let root = tempfile::tempdir().unwrap();
        let day = root.path().join("2026-11-20");
        for folder in [&day, &root.path().join("notes")] {
            std::fs::create_dir(folder).unwrap();
            for name in [
                "2026-11-20T20-31-05.123456789Z_0a1b2c3d_ETHERNET_000001.pcapng",
                "2026-11-20T20-31-06.000000000Z_0a1b2c3d_RAW_000002.pcapng.part",
                "trace.pcapng",
            ] {
                std::fs::write(folder.join(name), "").unwrap();
            }
        }
        let found = runs_in(&Folder::open(root.path()).unwrap()).unwrap();
        assert_eq!(found, BTreeSet::from([[0x0a, 0x1b, 0x2c, 0x3d]]));
    }

    #[test]
    fn a_file_that_is_not_understood_is_a_fault_with_its_line() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let path = root.path().join(IMPORTS_FILE);
        let good = imported(1, "a").line();
        for (text, expected) in [
            (format!("{good}{{}}\n"), "imports.jsonl:2: "),
            (format!("{good}{}", &good[..good.len() - 9]), "imports.jsonl:2: "),
            (good.replace("\"run\"", "\"ran\""), "the line is none of an import"),
            (" ".repeat(FILE_BYTES_MAX + 1), "longer than"),
        ] {
            std::fs::write(&path, text).unwrap();
            let fault = Imports::read(&folder).unwrap_err().to_string();
            assert!(fault.contains(expected) && fault.contains("move it away: mv "), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_file_never_panics(at in 0..400usize, byte: u8, cut in 0..400usize) {
            let mut bytes = format!("{}{}", imported(1, "a").line(), imported(2, "b").line()).into_bytes();
            let (at, cut) = (at % bytes.len(), cut % bytes.len());
            bytes[at] = byte;
            for part in [&bytes[..], &bytes[..cut]] {
                let _ = std::str::from_utf8(part).map(|text| text.lines().map(Imported::read).count());
            }
        }
    }
}
