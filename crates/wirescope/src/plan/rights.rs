//! Who a run is once everything is open: looked up, so that a name that isn't there is refused before anything starts.

use super::{Faults, Look};
use crate::args::RunArgs;
use scope_engine::rights::{RightsPlan, User, UserChoice};
use std::path::Path;

/// What the run is to give up.
pub fn plan(args: &RunArgs, look: Look<'_>, faults: &mut Faults) -> RightsPlan {
    let place = "--rights-selftest";
    if args.rights_selftest && args.summary.is_some() {
        faults.add(place, "standard output is taken by --summary json; leave one of both away");
    }
    if args.user.as_deref().is_some_and(|name| name.trim().is_empty()) {
        faults.add("--user", "there is no name in it; write the name of a user, or leave the flag away");
    }
    // Who is there is a matter of the machine.
    let named = args.user.as_deref().filter(|name| look == Look::Machine && !name.trim().is_empty());
    let user = named.and_then(|name| user(name, faults)).map_or(UserChoice::Best, UserChoice::Named);
    // The file is read again when it is to be.
    let config =
        args.settings.file().map(|file| file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")));
    RightsPlan { user, readable: config.map(Path::to_path_buf).into_iter().collect(), selftest: args.rights_selftest }
}

fn user(name: &str, faults: &mut Faults) -> Option<User> {
    let place = "--user";
    let fault = match User::named(name) {
        Ok(Some(user)) => {
            let current = User::current();
            if current.uid == 0 || user.uid == current.uid {
                return Some(user);
            }
            let own = current.name;
            format!("only root can become another user, and this is {own}; start it as root, or leave the flag away")
        }
        Ok(None) => format!("there is no user '{name}'; make it by: useradd --system {name}, or choose another"),
        Err(error) => format!("'{name}' can't be looked up: {error}; look at the user database, or choose another"),
    };
    faults.add(place, fault);
    None
}
