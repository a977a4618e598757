//! `wirescope stats export`: all tables as files for other programs.

use super::{database, give_up_rights, no_result, one_of};
use crate::args::StatsExportArgs;
use crate::plan::Look;
use crate::plan::faults::Faults;
use crate::plan::places::writable_folder;
use crate::reading::{self, Stop};
use crate::speech::{Level, say};
use crate::{NoResult, told};
use scope_answer::SpanWords;
use scope_config::Settings;
use scope_fault::Fault;
use scope_folder::Folder;
use scope_spelling::figures::{counted, size};
use scope_stats::asking::{Database, Watch};
use scope_stats::export::{Export, Form};

/// Exports them. What was stopped has whole parts, and is made complete by doing it again.
pub fn export(args: &StatsExportArgs) -> u8 {
    let (database, export) = match understand(args) {
        Ok(asked) => asked,
        Err(faults) => return told(Err(NoResult::Refused(faults))),
    };
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let watch = Watch::until(stop.flag.clone());
    let exported = give_up_rights(&database, false, Some(export.folder()))
        .and_then(|()| export.write(&database, &watch).map_err(no_result));
    let code = told(exported.map(|exported| {
        let (rows, parts) = (counted(exported.rows, "row"), counted(exported.parts, "file"));
        say(Level::Info, &format!("wirescope: {rows} in {parts}, {}", size(exported.bytes)));
        String::new()
    }));
    stop.code().unwrap_or(code)
}

fn understand(args: &StatsExportArgs) -> Result<(Database, Export), Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let database = database(&args.db, &mut faults);
    let words = SpanWords { from: args.from.as_deref(), to: args.to.as_deref(), ..SpanWords::default() };
    let span = reading::span(&words, &mut faults);
    let form = one_of("format", &args.format, Form::of, &Form::WORDS.map(|(word, _)| word), &mut faults);
    let folder = writable_folder(&args.out, "out", Look::Machine, &mut faults);
    let folder = folder.and_then(|path| match Folder::open(&path) {
        Ok(folder) => Some(folder),
        Err(error) => {
            faults.add(Fault::of("out").with_value(args.out.to_string_lossy()).error(&error));
            None
        }
    });
    match (database, form, folder) {
        (Some(database), Some(form), Some(folder)) if faults.is_empty() => {
            Ok((database, Export::new(folder, form, (span.from_ns, span.to_ns))))
        }
        _ => Err(faults.into_vec()),
    }
}
