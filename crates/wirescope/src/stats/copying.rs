//! `wirescope stats copy`: one file of a database, whole, into a new file.

use super::{database, give_up_rights, no_result};
use crate::args::StatsCopyArgs;
use crate::plan::faults::Faults;
use crate::reading::Stop;
use crate::speech::{Level, say};
use crate::{NoResult, told};
use scope_config::Settings;
use scope_fault::Fault;
use scope_spelling::figures::size;
use scope_stats::asking::Copy;

/// Copies it. A copy that was stopped, or couldn't be written, leaves nothing behind.
pub fn copy(args: &StatsCopyArgs) -> u8 {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let database = database(&args.db, &mut faults);
    let copy = Copy::begin(&args.out).map_err(|fault| faults.add(fault)).ok();
    let (Some(database), Some(copy)) = (database, copy) else {
        return told(Err(NoResult::Refused(faults.into_vec())));
    };
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    let copied = give_up_rights(&database, false, Some(copy.folder()))
        .and_then(|()| copy.take(&database, &args.id, &stop.flag).map_err(no_result));
    let code = told(copied.map(|bytes| {
        say(Level::Info, &format!("wirescope: {}, {}", args.out.display(), size(bytes)));
        String::new()
    }));
    stop.code().unwrap_or(code)
}
