//! The file behind `wirescope.jsonl`: lines to its end, each at once, and a new file where it was moved or
//! removed.
//!
//! ```text
//!  wirescope.jsonl      start machine status ... | mv, SIGHUP
//!  wirescope.jsonl                               | start machine status ...
//! ```
//! The first lines of the new file are those that said who the run is and, last, how it was; the `start`
//! among them has `continues`, and `began`, the time of the run's first line. No line is lost: each is in one
//! of the two.

use crate::EVENTS_FILE;
use crate::event::{Event, Start};
use crate::fact::Rare;
use crate::line;
use crate::tail::Tail;
use scope_folder::Folder;
use scope_spelling::printable::json_line;
use scope_spelling::time::iso;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// Events that a new file begins with; of each the last one that came.
const HEAD_LINES: usize = 4;

/// An event, and when it came.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub event: Event,
    pub logged_ns: i64,
}

/// The log, open to append to.
pub(crate) struct LogFile {
    folder: Arc<Folder>,
    file: File,
    run_id: String,
    head: [Option<Entry>; HEAD_LINES],
    /// A full disk took only the beginning of the last line.
    torn: bool,
    /// Who follows it.
    tail: Arc<Tail>,
}

impl LogFile {
    /// Opens the log in `folder` for the run `run_id`, made where it isn't there.
    pub(crate) fn open(folder: &Arc<Folder>, run_id: String) -> io::Result<LogFile> {
        let name = OsStr::new(EVENTS_FILE);
        let file = folder.append(name)?;
        // A run that lost its machine or its disk may have left half a line.
        let torn = folder.ends_within_a_line(name);
        let (folder, tail) = (folder.clone(), Arc::default());
        Ok(LogFile { folder, file, run_id, head: Default::default(), torn, tail })
    }

    /// The newest lines, whatever became of them on the disk.
    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, entry: Entry) -> io::Result<()> {
        let line = line::write(&entry.event, &self.run_id, &iso(entry.logged_ns));
        let written = write_line(&mut self.file, &line, &mut self.torn);
        self.tail.push(&json_line(&line.to_string()));
        if let Some(at) = place_in_head(&entry.event) {
            self.head[at] = Some(entry);
        }
        written
    }

    /// Goes on in a new file if the log's name doesn't lead to this one any more; whether it does so. On
    /// failure this one stays.
    pub(crate) fn reopen(&mut self, now_ns: i64) -> io::Result<bool> {
        if self.folder.leads_to(OsStr::new(EVENTS_FILE), &self.file)? {
            return Ok(false);
        }
        let name = OsStr::new(EVENTS_FILE);
        let mut file = self.folder.append(name)?;
        // Reopening may have failed half-way before.
        let mut torn = self.folder.ends_within_a_line(name);
        for entry in self.head.iter().flatten() {
            let Entry { event, logged_ns } = continued(entry.clone(), now_ns);
            write_line(&mut file, &line::write(&event, &self.run_id, &iso(logged_ns)), &mut torn)?;
        }
        (self.file, self.torn) = (file, torn);
        Ok(true)
    }
}

/// Where it stands among the first lines of a new file; `None`: nowhere.
fn place_in_head(event: &Event) -> Option<usize> {
    match event {
        Event::Start(_) => Some(0),
        Event::Machine(_) => Some(1),
        // One that was refused has changed nothing.
        Event::Reload(reload) if reload.ok => Some(2),
        Event::Status(_) => Some(3),
        _ => None,
    }
}

/// A `start` says that it goes on; the others stay as they are.
fn continued(entry: Entry, now_ns: i64) -> Entry {
    match entry {
        Entry { event: Event::Start(start), logged_ns } => {
            let began = start.began.0.clone().unwrap_or_else(|| iso(logged_ns));
            let start = Start { continues: Rare(Some(true)), began: Rare(Some(began)), ..start };
            Entry { event: start.into(), logged_ns: now_ns }
        }
        entry => entry,
    }
}

/// In one piece, so that who moves the file finds whole lines; behind a line that is `torn` on a new one.
fn write_line(out: &mut impl Write, line: &Value, torn: &mut bool) -> io::Result<()> {
    let line = line.to_string();
    let text = format!("{}{}\n", if *torn { "\n" } else { "" }, json_line(&line));
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                *torn |= rest.len() < text.len();
                return Err(error);
            }
        }
    }
    *torn = false;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Takes as many bytes as it has room for.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.bytes.extend(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_a_full_disk_cut_costs_no_other_line() {
        let (line, mut torn) = (json!({"event": "x"}), false);
        let expected = line.to_string();
        let len = expected.len() + 1;
        for room in 0..=2 * len {
            let mut disk = Disk { bytes: Vec::new(), room };
            let whole = (0..3).filter(|_| write_line(&mut disk, &line, &mut torn).is_ok()).count();
            disk.room = 1000;
            write_line(&mut disk, &line, &mut torn).unwrap();
            let text = String::from_utf8(disk.bytes).unwrap();
            let read = text.lines().filter(|read| *read == expected).count();
            assert!(!torn && read > whole, "{room}: {text}");
        }
    }
}
