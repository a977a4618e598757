//! Holds: spans of time whose files are not deleted, whoever runs; the file `holds.json` of a volume.
//!
//! ```text
//! {"version":1,"next":3,"holds":[
//! {"from":"2026-11-20T14:00:00.000000000Z","id":2,"made":"2026-11-21T08:00:00.000000000Z",
//!  "note":"incident 4711","to":"2026-11-20T15:00:00.000000000Z"}
//! ]}
//! ```
//! Both ends belong to the span. Numbers rise and are never given twice. The file is replaced whole; who may
//! do that at the same time is kept apart by a lock on the volume's mark (`volume.rs`). A file that can't be
//! understood is a fault, and not "no holds": nothing is deleted then. Keys that this version doesn't know are
//! not kept when the file is replaced; they come with another version's number.

use scope_fault::{Fault, Setting, sentence};
use scope_folder::Folder;
use scope_spelling::printable::printable;
use scope_spelling::time::iso;
use scope_spelling::values::parse_time_ns;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, Read, Write};

/// The file's name.
pub const HOLDS_FILE: &str = "holds.json";
/// Most holds of a volume.
pub const HOLDS_MAX: usize = 1024;
/// Most letters of a note.
pub const NOTE_LETTERS_MAX: usize = 200;
const VERSION: u64 = 1;
/// Numbers stay below: programs that read JSON have 53 bits for them.
const NEXT_MAX: u64 = 1 << 53;
/// A file of the largest number of the longest holds is shorter.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A span that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its number in the volume, from 1.
    pub id: u64,
    /// Its begin, ns since the epoch.
    pub from_ns: i64,
    /// Its end, which belongs to it, ns since the epoch.
    pub to_ns: i64,
    /// What it is for. Of a file that somebody wrote by hand it may be any text.
    pub note: String,
    /// When it was added, ns since the epoch.
    pub made_ns: i64,
}

/// The holds of a volume, in the order in which they were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holds {
    next: u64,
    list: Vec<Hold>,
}

impl Default for Holds {
    /// None.
    fn default() -> Holds {
        Holds { next: 1, list: Vec::new() }
    }
}

impl Holds {
    /// Reads them; without a file there are none.
    ///
    /// # Errors
    /// The file can't be read or understood: nothing may be deleted.
    pub fn read(folder: &Folder) -> Result<Holds, Fault> {
        let in_file = |fault: Fault, line| fault.in_file(folder.path().join(HOLDS_FILE), line);
        let text = match read_text(folder) {
            Ok(None) => return Ok(Holds::default()),
            Ok(Some(text)) => text,
            Err(error) => {
                let fault = Fault::whole(format!(
                    "the holds can't be read, so nothing in this store is deleted: {error}"
                ));
                return Err(in_file(fault.remedy("let the user of the run read it"), None));
            }
        };
        Holds::parse(&text).map_err(|Damage { line, cause }| {
            let cause = format!("{cause}, so nothing in this store is deleted");
            let remedy = "repair it, or move it away and add the holds again";
            in_file(Fault::whole(cause).remedy(remedy), line)
        })
    }

    /// All of them, in the order in which they were added.
    pub fn list(&self) -> &[Hold] {
        &self.list
    }

    /// Whether any of them overlaps this span, both ends included.
    pub fn cover(&self, min_ns: i64, max_ns: i64) -> bool {
        self.list.iter().any(|hold| hold.from_ns <= max_ns && hold.to_ns >= min_ns)
    }

    /// Adds one, and gives it its number.
    ///
    /// # Errors
    /// It ends before it begins, its note is too long or holds what can't be shown, or there are too many.
    pub fn add(&mut self, from_ns: i64, to_ns: i64, note: &str, made_ns: i64) -> Result<&Hold, Fault> {
        if to_ns < from_ns {
            let cause = format!("{} is before {}", iso(to_ns), iso(from_ns));
            let remedy = sentence![
                "exchange it with ",
                Setting::of("from"),
                ", or write dates: a time of day is the latest that is past"
            ];
            return Err(Fault::of("to").cause(cause).remedy(remedy));
        }
        let note = note.trim();
        let letters = note.chars().count();
        if letters > NOTE_LETTERS_MAX {
            let fault = Fault::of("note").cause(format!("it has {letters} letters"));
            return Err(fault.remedy(format!("write at most {NOTE_LETTERS_MAX}")));
        }
        if printable(note) != note {
            let fault = Fault::of("note").cause("it has characters that can't be shown");
            return Err(fault.with_value(note).remedy("write it on one line, without them"));
        }
        if self.list.len() >= HOLDS_MAX {
            let fault = Fault::of("store").cause(format!("the store has {HOLDS_MAX} holds, and no more fit"));
            return Err(fault.remedy("remove one: wirescope hold remove ID --store DIR"));
        }
        let hold = Hold { id: self.next, from_ns, to_ns, note: note.to_string(), made_ns };
        self.next += 1;
        self.list.push(hold);
        Ok(&self.list[self.list.len() - 1])
    }

    /// Removes one.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn remove(&mut self, id: u64) -> Result<Hold, Fault> {
        match self.list.iter().position(|hold| hold.id == id) {
            Some(at) => Ok(self.list.remove(at)),
            None => {
                let fault = Fault::of_thing("hold").with_value(id.to_string());
                Err(fault.cause(format!("the store has no hold {id}")))
            }
        }
    }

    /// Replaces the file. Called by root it belongs to the folder's owner.
    pub(crate) fn write(&self, folder: &Folder) -> io::Result<()> {
        let mut draft = folder.draft_over(OsStr::new(HOLDS_FILE))?;
        draft.file().write_all(self.text().as_bytes())?;
        folder.give_to_owner(draft.file())?;
        draft.file().sync_all()?;
        draft.replace()
    }

    fn text(&self) -> String {
        let line = |hold: &Hold| {
            let Hold { id, note, .. } = hold;
            let [from, to, made] = [hold.from_ns, hold.to_ns, hold.made_ns].map(iso);
            json!({"id": id, "from": from, "to": to, "note": note, "made": made}).to_string()
        };
        let lines: Vec<String> = self.list.iter().map(line).collect();
        format!("{{\"version\":{VERSION},\"next\":{},\"holds\":[\n{}\n]}}\n", self.next, lines.join(",\n"))
    }

    fn parse(text: &str) -> Result<Holds, Damage> {
        let whole: Value = serde_json::from_str(text).map_err(|error| Damage {
            line: Some(error.line()),
            cause: format!("the holds can't be understood ({error})"),
        })?;
        let damage =
            |what: &str| Damage { line: None, cause: format!("the holds can't be understood: {what}") };
        match whole["version"].as_u64() {
            Some(VERSION) => {}
            Some(newer) => {
                let cause = format!("the holds are of version {newer}, and this program reads {VERSION}");
                return Err(Damage { line: None, cause });
            }
            None => return Err(damage("no version")),
        }
        let next =
            whole["next"].as_u64().filter(|&next| next < NEXT_MAX).ok_or_else(|| damage("no next number"))?;
        let list = whole["holds"].as_array().ok_or_else(|| damage("no list of holds"))?;
        let holds: Option<Vec<Hold>> = list.iter().map(hold).collect();
        let list = holds.ok_or_else(|| damage("a hold without number or span"))?;
        if list.len() > HOLDS_MAX {
            return Err(damage("too many"));
        }
        let mut numbers: Vec<u64> = list.iter().map(|hold| hold.id).collect();
        numbers.sort_unstable();
        if !numbers.is_sorted_by(|a, b| a < b) || numbers.last().is_some_and(|&last| last >= next) {
            return Err(damage("a number that is given twice"));
        }
        Ok(Holds { next, list })
    }
}

/// Why the file isn't understood.
struct Damage {
    line: Option<usize>,
    cause: String,
}

fn read_text(folder: &Folder) -> io::Result<Option<String>> {
    let Some(file) = folder.existing(OsStr::new(HOLDS_FILE), false)? else { return Ok(None) };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes"))),
        false => Ok(Some(text)),
    }
}

/// One hold; `None` where number or span is missing or makes no sense.
fn hold(value: &Value) -> Option<Hold> {
    let time = |key: &str| value[key].as_str().and_then(|text| parse_time_ns(text).ok());
    let (from_ns, to_ns) = (time("from")?, time("to")?);
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_string();
    let id = value["id"].as_u64()?;
    let made_ns = time("made").unwrap_or(0);
    (from_ns <= to_ns).then_some(Hold { id, from_ns, to_ns, note: text("note"), made_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(spans: &[(i64, i64)]) -> Holds {
        let mut holds = Holds::default();
        for &(from, to) in spans {
            holds.add(from, to, "why", 7).unwrap();
        }
        holds
    }

    #[test]
    fn spans_that_touch_are_covered() {
        let holds = holds(&[(10, 20), (40, 40)]);
        let check = |min, max, expected| assert_eq!(holds.cover(min, max), expected, "{min} to {max}");
        check(0, 9, false);
        check(0, 10, true);
        check(20, 30, true);
        check(21, 39, false);
        check(21, 40, true);
        check(12, 13, true);
        check(0, 100, true);
        assert!(!Holds::default().cover(i64::MIN, i64::MAX));
    }

    #[test]
    fn numbers_are_never_given_twice() {
        let mut holds = holds(&[(1, 2), (3, 4)]);
        assert_eq!(holds.remove(2).map(|hold| hold.from_ns), Ok(3));
        let holds_again = &mut Holds::parse(&holds.text()).ok().unwrap();
        assert_eq!(holds_again.add(5, 6, "", 0).map(|hold| hold.id), Ok(3));
        let fault = holds.remove(2).unwrap_err().to_string();
        assert_eq!(fault, "hold: the store has no hold 2");
    }

    #[test]
    fn what_can_not_be_held_is_refused_with_the_reason() {
        let check = |from, to, note: &str, expected: &str| {
            let fault = Holds::default().add(from, to, note, 0).unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        };
        check(1, 0, "", "--to: 1970-01-01T00:00:00.000000000Z is before 1970-01-01T00:00:00.000000001Z");
        check(0, 0, &"x".repeat(201), "--note: it has 201 letters; write at most 200");
        check(0, 0, "a\u{1b}[2J", "--note: it has characters that can't be shown");
        let mut full = holds(&[(0, 0); HOLDS_MAX]);
        let fault = full.add(0, 0, "", 0).unwrap_err().to_string();
        assert!(fault.contains("1024 holds") && fault.contains("hold remove"), "{fault}");
        assert!((full.text().len() as u64) < FILE_BYTES_MAX / 4);
        assert!(holds(&[(3, 3)]).cover(3, 3), "an instant is a span");
    }

    #[test]
    fn the_file_is_replaced_and_read_again_and_without_one_there_are_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        assert_eq!(Holds::read(&folder), Ok(Holds::default()));
        for spans in [&[(1, 2), (3, 4)][..], &[(5, 6)], &[]] {
            let holds = holds(spans);
            holds.write(&folder).unwrap();
            assert_eq!(Holds::read(&folder), Ok(holds));
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_not_understood_is_a_fault_with_its_place() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let path = root.path().join(HOLDS_FILE);
        let whole = holds(&[(1, 2)]).text();
        let rows: [(&str, &str); 11] = [
            ("", "holds.json:1: the holds can't be understood"),
            ("{\"version\":1,\n\"next\":", "holds.json:2: "),
            ("[]", "no version"),
            ("{\"version\":2}", "are of version 2, and this program reads 1"),
            ("{\"version\":1,\"holds\":[]}", "no next number"),
            ("{\"version\":1,\"next\":18446744073709551615}", "no next number"),
            ("{\"version\":1,\"next\":1}", "no list of holds"),
            (&whole.replace("\"from\"", "\"form\""), "a hold without number or span"),
            (&whole.replace("000000001Z", "000000003Z"), "a hold without number or span"),
            (&whole.replace("\"next\":2", "\"next\":1"), "a number that is given twice"),
            (&whole[..whole.len() - 4], "can't be understood"),
        ];
        for (text, expected) in rows {
            std::fs::write(&path, text).unwrap();
            let fault = Holds::read(&folder).unwrap_err().to_string();
            assert!(fault.contains(expected), "{text}: {fault}");
            assert!(
                fault.contains("so nothing in this store is deleted; repair it, or move it away"),
                "{fault}"
            );
        }
        std::fs::write(&path, [0xff]).unwrap();
        assert!(Holds::read(&folder).is_err());
        std::fs::write(&path, vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(Holds::read(&folder).unwrap_err().to_string().contains("longer than"));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(Holds::read(&folder).unwrap_err().to_string().contains("a symbolic link"));
    }

    proptest! {
        #[test]
        fn every_list_is_read_back_as_it_was_written(
            spans in prop::collection::vec((0..i64::MAX, 0..i64::MAX, "[ -~\u{e9}]{0,30}"), 0..10),
        ) {
            let mut holds = Holds::default();
            for (a, b, note) in spans {
                holds.add(a.min(b), a.max(b), &note, a).unwrap();
            }
            prop_assert_eq!(Holds::parse(&holds.text()).ok(), Some(holds));
        }

        #[test]
        fn a_damaged_file_never_panics(at in 0..400usize, byte: u8, cut in 0..400usize) {
            let mut bytes = holds(&[(1, 2), (3, 4)]).text().into_bytes();
            let (at, cut) = (at % bytes.len(), cut % bytes.len());
            bytes[at] = byte;
            for part in [&bytes[..], &bytes[..cut]] {
                let _ = std::str::from_utf8(part).map(Holds::parse);
            }
        }
    }
}
