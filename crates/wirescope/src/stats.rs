//! `wirescope stats`: what a run's statistics say: the busiest, one SELECT, files, a copy, an export.
//!
//! 1. The command line is understood, what is to be asked is looked at, a new file or folder opened; or all faults are
//!    told.
//! 2. All rights are given up but reading the database, and making what was asked for.
//! 3. Only then a byte of it is read: whoever made it may have meant harm.

mod busiest;
mod copying;
mod exporting;
mod files;
mod selecting;

use crate::NoResult;
use crate::args::StatsVerb;
use crate::plan::faults::Faults;
use crate::speech::{Level, say};
use scope_fault::Fault;
use scope_folder::Folder;
use scope_stats::asking::{Access, AskError, Database};
use std::path::Path;

/// Does what was asked for. Exit codes: 0 done, 1 something couldn't be read or written, or the answer was cut, 2
/// refused.
pub fn stats(what: &StatsVerb) -> u8 {
    match what {
        StatsVerb::Top(args) => busiest::top(args),
        StatsVerb::Sql(args) => selecting::sql(args),
        StatsVerb::Files(args) => files::files(args),
        StatsVerb::Copy(args) => copying::copy(args),
        StatsVerb::Export(args) => exporting::export(args),
    }
}

/// What is to be asked.
pub fn database(path: &Path, faults: &mut Faults<'_>) -> Option<Database> {
    Database::look(path, Access::Outside).map_err(|fault| faults.add(fault)).ok()
}

/// Before a byte of the database is read: what stays is reading it, also what comes to it if it is `followed`, and
/// making files below `makes`.
///
/// # Errors
/// The system refuses it.
pub fn give_up_rights(database: &Database, followed: bool, makes: Option<&Folder>) -> Result<(), NoResult> {
    let paths = database.paths(followed);
    let paths: Vec<&Path> = paths.iter().map(|path| path.as_path()).collect();
    let kept = match makes {
        Some(folder) => scope_rights::keep_to_reading_and_making_below(&paths, folder),
        None => scope_rights::keep_to_reading(&paths),
    };
    let kept = kept.map_err(|error| NoResult::Refused(vec![error.fault()]))?;
    if let Some(lack) = kept.lack() {
        say(Level::Warning, &format!("wirescope: {lack}"));
    }
    Ok(())
}

/// Why there is no answer.
pub fn no_result(error: AskError) -> NoResult {
    match error {
        AskError::Refused(fault) => NoResult::Refused(vec![fault]),
        AskError::Failed(fault) => NoResult::Failed(fault),
    }
}

/// One of the words that a flag takes.
fn one_of<T>(
    key: &'static str,
    text: &str,
    of: impl Fn(&str) -> Option<T>,
    words: &[&str],
    faults: &mut Faults<'_>,
) -> Option<T> {
    let found = of(text);
    if found.is_none() {
        let fault = Fault::of(key).value(text, "is none of its words");
        faults.add(fault.remedy(format!("write one of: {}", words.join(", "))));
    }
    found
}
