//! Users and groups who may do something, as named: `USER:@GROUP`.

use super::Look;
use super::control::group;
use scope_engine::Allowed;
use scope_fault::{Fault, Setting, sentence};
use scope_rights::User;

/// Users and groups that may be named.
const NAMED_MAX: usize = 64;

/// `USER:@GROUP`: users and groups, by name or number. Each fault begins as `fault` does; `example` is how a remedy spells
/// the setting.
///
/// # Errors
/// All faults.
pub fn allowed(
    fault: &Fault,
    example: &'static str,
    text: &str,
    look: Look<'_>,
) -> Result<Allowed, Vec<Fault>> {
    let mut allowed = Allowed::default();
    let mut faults = Vec::new();
    let words: Vec<&str> = text.split(':').map(str::trim).collect();
    if words.len() > NAMED_MAX {
        let cause = format!("it names {} users and groups, and {NAMED_MAX} are the most", words.len());
        return Err(vec![fault.clone().cause(cause).remedy("name a group that they are members of")]);
    }
    for word in words {
        let fault = |cause: String| {
            let remedy = match example {
                "attach-ring" => {
                    sentence!["write e.g. ", Setting::of(example).example("root:suricata:@netops")]
                }
                other => format!("write e.g. {other}=root:suricata:@netops").into(),
            };
            fault.clone().cause(cause).remedy(remedy)
        };
        let (name, is_group) = word.strip_prefix('@').map_or((word, false), |name| (name, true));
        if name.is_empty() {
            faults.push(fault("a name in it is empty".to_string()));
            continue;
        }
        // Who is there is a matter of the machine.
        if !matches!(look, Look::Machine | Look::Known(_)) {
            continue;
        }
        if is_group {
            match group(name) {
                Ok(Some(number)) => allowed.groups.push(number),
                Ok(None) => faults.push(fault(format!("there is no group '{name}'"))),
                Err(error) => faults.push(fault(error.to_string())),
            }
        } else {
            let number = name.parse::<u32>().ok().filter(|number| *number < u32::MAX);
            let found =
                number.map_or_else(|| User::named(name), |number| User::with_numbers(number, None).map(Some));
            match found {
                Ok(Some(user)) => allowed.users.push(user),
                Ok(None) => faults.push(fault(format!("there is no user '{name}'"))),
                Err(error) => faults.push(fault(error.to_string())),
            }
        }
    }
    if faults.is_empty() { Ok(allowed) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, users: &[u32], groups: &[u32], faults_expected: &[&str]) {
        let found = allowed(&Fault::of("attach-ring"), "attach-ring", text, Look::Machine);
        if let Ok(found) = &found {
            let uids: Vec<u32> = found.users.iter().map(|user| user.uid).collect();
            assert_eq!((&uids[..], &found.groups[..]), (users, groups), "{text}");
        }
        let faults: Vec<String> = found.err().unwrap_or_default().iter().map(ToString::to_string).collect();
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
        check("root:@", &[], &[], &["a name in it is empty"]);
        check(
            "no-such-user:@no-such-group",
            &[],
            &[],
            &["no user 'no-such-user'", "no group 'no-such-group'"],
        );
        check(&["0"; 65].join(":"), &[], &[], &["64 are the most"]);
    }
}
