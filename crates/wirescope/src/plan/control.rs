//! The control socket, as meant: where it is, and who may connect.

use super::Look;
use super::faults::{Faults, omit_it};
use crate::args::RunArgs;
use scope_api::{Role, SOCKET_NAME};
use scope_engine::ControlPlan;
use scope_fault::{Fault, Setting, sentence};
use scope_rights::group_number;
use std::path::{Path, PathBuf, absolute};

/// The word for a run without a socket.
const OFF: &str = "off";

/// The socket of a run whose dumps go into `folder`, and what the members of its group may do.
pub fn plan(
    args: &RunArgs,
    folder: Option<&Path>,
    look: Look<'_>,
    faults: &mut Faults<'_>,
) -> (Option<ControlPlan>, Role) {
    let role = Role::of(&args.control_role).unwrap_or_else(|| {
        let fault = Fault::of("control-role").value(&args.control_role, "is no role");
        let words: Vec<&str> = Role::ALL.iter().map(|role| role.word()).collect();
        faults.add(fault.remedy(format!("write one of: {}", words.join(", "))));
        Role::Viewer
    });
    let path = match args.control.as_deref() {
        Some(OFF) => None,
        Some(text) => given(text, look, faults),
        None => folder.map(|folder| folder.join(SOCKET_NAME)),
    };
    if path.is_none()
        && let (Some(group), true) = (&args.control_group, faults.is_empty())
    {
        let fault = Fault::of("control-group").with_value(group).cause("there is no control socket");
        faults.add(fault.remedy(sentence![
            "give one: ",
            Setting::of("control").example("PATH"),
            ", or ",
            omit_it()
        ]));
    }
    if args.control_group.as_deref().is_some_and(|group| group.trim().is_empty()) {
        let fault = Fault::of("control-group").with_value("").cause("it is empty");
        faults.add(fault.remedy(sentence!["write a group's name or number, or ", omit_it()]));
    }
    // Who is there is a matter of the machine.
    let group = args.control_group.as_deref().filter(|_| look == Look::Machine);
    let group = group.and_then(|name| group_of(name, faults));
    (path.map(|path| ControlPlan { path, is_given: args.control.is_some(), group }), role)
}

fn given(text: &str, look: Look<'_>, faults: &mut Faults<'_>) -> Option<PathBuf> {
    let fault = || Fault::of("control").with_value(text);
    if text.trim().is_empty() {
        faults.add(fault().cause("it is empty").remedy("write a path, or off"));
        return None;
    }
    let path = match absolute(text) {
        Ok(path) => path,
        Err(error) => {
            faults.add(fault().error(&error));
            return None;
        }
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    if look == Look::Machine && !folder.is_dir() {
        let cause = format!("there is no folder {}", folder.display());
        faults.add(fault().cause(cause).remedy("make it, or choose another path"));
        return None;
    }
    Some(path)
}

fn group_of(name: &str, faults: &mut Faults<'_>) -> Option<u32> {
    let fault = || Fault::of("control-group").with_value(name);
    let found = match name.parse::<u32>() {
        Ok(number) if number < u32::MAX => return Some(number),
        _ => group_number(name),
    };
    faults.add(match found {
        Ok(Some(number)) => return Some(number),
        Ok(None) => {
            fault().cause(format!("there is no group '{name}'")).remedy("write a group's name or number")
        }
        Err(error) => fault().error(&error),
    });
    None
}
