//! The door for other programs, as meant: its socket, and who may read the ring there.

use super::Look;
use super::control::group;
use super::faults::{Faults, omit_it};
use super::places::socket;
use crate::args::RunArgs;
use scope_engine::{Allowed, AttachPlan};
use scope_fault::{Fault, Setting, sentence};
use scope_rights::User;

/// Users and groups that may be named.
const NAMED_MAX: usize = 64;

/// The door of a run, if it is to have one.
pub fn plan(args: &RunArgs, look: Look<'_>, faults: &mut Faults<'_>) -> Option<AttachPlan> {
    let ring = args.attach_ring.as_deref().map(|text| allowed(text, look, faults));
    let Some(text) = args.attach.as_deref() else {
        if let Some(named) = &args.attach_ring {
            let fault = Fault::of("attach-ring").with_value(named).cause("there is no socket to attach at");
            let socket = Setting::of("attach").example("/run/wirescope/attach");
            faults.add(fault.remedy(sentence!["give one: ", socket, ", or ", omit_it()]));
        }
        return None;
    };
    let path = socket("attach", text, sentence!["write a path, or ", omit_it()], look, faults)?;
    Some(AttachPlan { path, ring: ring.unwrap_or_default() })
}

/// `USER:@GROUP`: users and groups, by name or number.
fn allowed(text: &str, look: Look<'_>, faults: &mut Faults<'_>) -> Allowed {
    let mut allowed = Allowed::default();
    let example = || sentence!["write e.g. ", Setting::of("attach-ring").example("root:suricata:@netops")];
    let words: Vec<&str> = text.split(':').map(str::trim).collect();
    if words.len() > NAMED_MAX {
        let cause = format!("it names {} users and groups, and {NAMED_MAX} are the most", words.len());
        let remedy = "name a group that they are members of";
        faults.add(Fault::of("attach-ring").with_value(text).cause(cause).remedy(remedy));
        return allowed;
    }
    for word in words {
        let fault = |cause: String| Fault::of("attach-ring").with_value(text).cause(cause).remedy(example());
        let (name, is_group) = word.strip_prefix('@').map_or((word, false), |name| (name, true));
        if name.is_empty() {
            faults.add(fault("a name in it is empty".to_string()));
            continue;
        }
        // Who is there is a matter of the machine.
        if look != Look::Machine {
            continue;
        }
        if is_group {
            match group(name) {
                Ok(Some(number)) => allowed.groups.push(number),
                Ok(None) => faults.add(fault(format!("there is no group '{name}'"))),
                Err(error) => faults.add(fault(error.to_string())),
            }
        } else {
            let number = name.parse::<u32>().ok().filter(|number| *number < u32::MAX);
            let found =
                number.map_or_else(|| User::named(name), |number| User::with_numbers(number, None).map(Some));
            match found {
                Ok(Some(user)) => allowed.users.push(user),
                Ok(None) => faults.add(fault(format!("there is no user '{name}'"))),
                Err(error) => faults.add(fault(error.to_string())),
            }
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_config::Settings;

    fn check(text: &str, users: &[u32], groups: &[u32], faults_expected: &[&str]) {
        let settings = Settings::default();
        let mut faults = Faults::new(&settings);
        let found = allowed(text, Look::Machine, &mut faults);
        let faults: Vec<String> = faults.into_vec().iter().map(ToString::to_string).collect();
        let uids: Vec<u32> = found.users.iter().map(|user| user.uid).collect();
        assert_eq!((&uids[..], &found.groups[..]), (users, groups), "{text}");
        assert_eq!(faults.len(), faults_expected.len(), "{text}: {faults:?}");
        for (fault, expected) in faults.iter().zip(faults_expected) {
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn users_and_groups_are_read_by_name_and_number_and_all_faults_told() {
        check("root", &[0], &[], &[]);
        check("root:@root:1234:@5678", &[0, 1234], &[0, 5678], &[]);
        check("", &[], &[], &["a name in it is empty"]);
        check("root:@", &[0], &[], &["a name in it is empty"]);
        check(
            "no-such-user:@no-such-group",
            &[],
            &[],
            &["no user 'no-such-user'", "no group 'no-such-group'"],
        );
        check(&["0"; 65].join(":"), &[], &[], &["64 are the most"]);
    }
}
