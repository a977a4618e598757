//! The control socket, as meant: where it is, and who may connect.

use super::Look;
use super::door::DoorPlan;
use super::faults::{Faults, omit_it};
use super::places::socket;
use crate::args::RunArgs;
use scope_api::{Role, SOCKET_NAME};
use scope_door::Hooks;
use scope_engine::ControlPlan;
use scope_fault::{Fault, Setting, sentence};
use scope_filter::GivenName;
use scope_rights::group_number;
use std::io;
use std::path::Path;

/// Most requests a second: more than one thread answers.
pub const RATE_MAX: u64 = 1_000_000;
/// Letters of a label.
const LABEL_LETTERS_MAX: usize = 256;

/// The word for a run without a socket.
const OFF: &str = "off";

/// The socket of a run whose dumps go into `folder`, and what the members of its group may do.
pub fn plan(
    args: &RunArgs,
    folder: Option<&Path>,
    door: &DoorPlan,
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
        Some(text) => socket("control", text, "write a path, or off".into(), look, faults),
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
    if args.control_group.is_none() && role != Role::Viewer {
        let fault = Fault::of("control-role").with_value(&args.control_role);
        let fault = fault.cause("it is the role of a group, and none is given");
        let group = Setting::of("control-group").example("GROUP");
        faults.add(fault.remedy(sentence!["name the group: ", group, ", or ", omit_it()]));
    }
    // Who is there is a matter of the machine.
    let group = args.control_group.as_deref().filter(|_| look == Look::Machine);
    let group = group.and_then(|name| group_of(name, faults));
    let serve_group = door.user.as_ref().map(|user| user.gid);
    // A door of its own needs the socket.
    let is_given = args.control.is_some() || door.beside.is_some();
    if path.is_none() && door.beside.is_some() && args.control.is_none() {
        let fault = Fault::of("listen").cause("the run has no control socket: its dumps go into no folder");
        faults.add(fault.remedy(sentence!["give one: ", Setting::of("control").example("PATH")]));
    }
    (path.map(|path| ControlPlan { path, is_given, group, serve_group }), role)
}

/// What of a hook fills a template, and what names the trigger.
pub fn hooks(args: &RunArgs, faults: &mut Faults<'_>) -> Hooks {
    let mut hooks = Hooks::default();
    let is_label = |text: &str| {
        let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
        begins && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if is_label(&args.hook_trigger) && args.hook_trigger.len() <= LABEL_LETTERS_MAX {
        hooks.trigger_label.clone_from(&args.hook_trigger);
    } else {
        let fault = Fault::of("hook-trigger").value(&args.hook_trigger, "is no name of a label");
        faults.add(fault.remedy("write one such as alertname: letters, digits and _"));
    }
    if args.hook_label.is_empty() {
        return hooks;
    }
    hooks.labels.clear();
    for text in &args.hook_label {
        let fault = || Fault::of("hook-label");
        let example = || sentence!["write e.g. ", Setting::of("hook-label").example("srcIP=instance")];
        let Some((name, label)) = text.split_once('=') else {
            faults.add(fault().value(text, "has no '='").remedy(example()));
            continue;
        };
        let (name, label) = (name.trim(), label.trim());
        let Some(known) = GivenName::of(name) else {
            let names = GivenName::ALL.map(GivenName::word).join(", ");
            let fault = fault().value(text, format!("names '{name}', which no hook can fill"));
            faults.add(fault.remedy(format!("there are: {names}")));
            continue;
        };
        if label.is_empty() || label.len() > LABEL_LETTERS_MAX || label.chars().any(char::is_control) {
            faults.add(fault().value(text, "names no label").remedy(example()));
        } else if hooks.labels.iter().any(|(other, _)| *other == known) {
            faults.add(fault().value(text, format!("fills {name} a second time")).remedy(omit_it()));
        } else {
            hooks.labels.push((known, label.to_string()));
        }
    }
    hooks
}

/// The number of a group, by name or number; `None`: there is none of the name.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    match name.parse::<u32>() {
        Ok(number) if number < u32::MAX => Ok(Some(number)),
        _ => group_number(name),
    }
}

fn group_of(name: &str, faults: &mut Faults<'_>) -> Option<u32> {
    let fault = || Fault::of("control-group").with_value(name);
    faults.add(match group(name) {
        Ok(Some(number)) => return Some(number),
        Ok(None) => {
            fault().cause(format!("there is no group '{name}'")).remedy("write a group's name or number")
        }
        Err(error) => fault().error(&error),
    });
    None
}
