//! The file behind `wirescope.jsonl`: lines to its end, each at once, and a new file where it was moved or removed.
//!
//! ```text
//!  wirescope.jsonl      start machine status ... | mv, SIGHUP
//!  wirescope.jsonl                               | start machine status ...
//! ```
//! The first lines of the new file are those that said who the run is and, last, how it was; the `start` among them has
//! `continues`, and `began`, the time of the run's first line. No line is lost: each is in one of the two.

use crate::events::EVENTS_FILE;
use scope_dump::time_text::iso;
use scope_store::Folder;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// Events that a new file begins with, in this order; of each the last one that came.
const HEAD: [&str; 3] = ["start", "machine", "status"];

/// The log, open to append to.
pub(crate) struct LogFile {
    folder: Arc<Folder>,
    file: File,
    head: [Option<Value>; HEAD.len()],
}

impl LogFile {
    /// Opens the log in `folder`, made where it isn't there.
    pub(crate) fn open(folder: &Arc<Folder>) -> io::Result<LogFile> {
        let file = folder.append(OsStr::new(EVENTS_FILE))?;
        Ok(LogFile { folder: folder.clone(), file, head: Default::default() })
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, line: Value) -> io::Result<()> {
        let written = write_line(&mut self.file, &line);
        if let Some(at) = HEAD.iter().position(|event| line["event"] == *event) {
            self.head[at] = Some(line);
        }
        written
    }

    /// Goes on in a new file if the log's name doesn't lead to this one any more; whether it does so. On failure this one stays.
    pub(crate) fn reopen(&mut self, now_ns: i64) -> io::Result<bool> {
        if self.folder.leads_to(OsStr::new(EVENTS_FILE), &self.file)? {
            return Ok(false);
        }
        let mut file = self.folder.append(OsStr::new(EVENTS_FILE))?;
        for line in self.head.iter().flatten() {
            write_line(&mut file, &continued(line.clone(), now_ns))?;
        }
        self.file = file;
        Ok(true)
    }
}

/// A `start` says that it goes on; the others stay as they are.
fn continued(mut line: Value, now_ns: i64) -> Value {
    if line["event"] == HEAD[0] {
        line["began"] = line["logged"].take();
        line["logged"] = iso(now_ns).into();
        line["continues"] = true.into();
    }
    line
}

/// In one piece, so that who moves the file finds whole lines.
fn write_line(file: &mut File, line: &Value) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}
