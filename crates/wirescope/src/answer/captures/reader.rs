//! Sources of capture files, read one behind the other.

use crate::answer::captures::taking::Taking;
use scope_fault::{Fault, Subject};
use scope_source::file::FileSource;
use scope_source::{Polled, Source, spec};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sources that aren't read to their ends.
pub struct Reader {
    sources: VecDeque<FileSource>,
    /// The first one has begun.
    has_begun: bool,
    /// What couldn't be read.
    pub faults: Vec<Fault>,
    /// What else the sources say, in plain words.
    pub warnings: Vec<String>,
}

impl Reader {
    /// Of sources that haven't begun.
    pub fn new(sources: Vec<FileSource>) -> Reader {
        Reader { sources: sources.into(), has_begun: false, faults: Vec::new(), warnings: Vec::new() }
    }

    /// Reads on a little; whether there is more. Once `stop` is set all of it ends.
    ///
    /// # Errors
    /// What stands before a file's first packets is none of a capture.
    pub fn step(&mut self, taking: &mut Taking, stop: &AtomicBool) -> Result<bool, Fault> {
        let Some(source) = self.sources.front_mut() else { return Ok(false) };
        if !std::mem::replace(&mut self.has_begun, true) {
            taking.begin_source();
            source.begin().map_err(|error| of_file("", error.reason()))?;
        }
        match source.poll(taking) {
            Ok(Polled::Ended) => {}
            Ok(_) => {
                if stop.load(Ordering::Relaxed) {
                    source.stop();
                }
                return Ok(true);
            }
            Err(error) => self.faults.push(of_file("", error.reason())),
        }
        self.warnings.append(&mut source.warnings());
        self.sources.pop_front();
        self.has_begun = false;
        Ok(!self.sources.is_empty())
    }
}

/// A fault of a file that was given; its words name it.
pub fn of_file(path: &str, fault: Fault) -> Fault {
    let fault = fault.of_subject(Subject::setting("read"));
    if path.is_empty() { fault } else { fault.with_value(spec::escape(path)) }
}
