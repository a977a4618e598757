//! Which process beside a run this program was begun as, and serving in that role.

use crate::own_process::{CONFIG_READER, EXEC_HELPER, REFUSED, settle};
use crate::{exec, reread};
use std::process::ExitCode;

/// Serves a run, if this process was begun for that: its first argument says so. To be called before anything
/// else.
pub fn serve_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let role = arguments.next()?;
    let rest: Vec<_> = arguments.collect();
    let code = match (role.to_str()?, &rest[..]) {
        (EXEC_HELPER, []) => settle(EXEC_HELPER, c"wirescope-exec").map_or(REFUSED, exec::serve),
        (CONFIG_READER, [_, ..]) => {
            settle(CONFIG_READER, c"wirescope-conf").map_or(REFUSED, |run| reread::serve(&run, &rest))
        }
        _ => return None,
    };
    Some(ExitCode::from(code))
}
