//! Who a run is once everything is open: looked up, so that a name that isn't there is refused before
//! anything starts.

use super::Look;
use super::faults::{Faults, omit_it};
use crate::args::RunArgs;
use scope_fault::{Fault, Setting, Subject, sentence};
use scope_rights::{RightsPlan, User, UserChoice};
use scope_spelling::printable::shell_word;

/// What the run is to give up.
pub fn plan(args: &RunArgs, look: Look<'_>, faults: &mut Faults<'_>) -> RightsPlan {
    if args.rights_selftest && args.summary.is_some() {
        let cause = sentence!["standard output is taken by ", Setting::of("summary").example("json")];
        faults.add(Fault::of("rights-selftest").cause(cause).remedy("omit one of them"));
    }
    let asked = args.user.as_deref().and_then(|text| match Asked::read(text) {
        Ok(asked) => Some(asked),
        Err(fault) => {
            faults.add(fault);
            None
        }
    });
    // Who is there is a matter of the machine.
    let asked = asked.filter(|_| look == Look::Machine);
    let user = asked.and_then(|asked| user(asked, faults)).map_or(UserChoice::Best, UserChoice::Named);
    RightsPlan { user, selftest: args.rights_selftest }
}

/// Whom `--user` asks for.
#[derive(Debug, PartialEq)]
enum Asked<'a> {
    /// A user of the user database.
    Name(&'a str),
    /// A user, and a group, who need no entry there.
    Numbers(u32, Option<u32>),
}

impl<'a> Asked<'a> {
    /// Reads `NAME`, `UID` or `UID:GID`.
    fn read(text: &'a str) -> Result<Asked<'a>, Fault> {
        let fault = Fault::of("user").with_value(text);
        if text.trim().is_empty() {
            let remedy = sentence!["write the name or number of a user, or ", omit_it()];
            return Err(fault.cause("it is empty").remedy(remedy));
        }
        // What looks like a number is none of the names that useradd makes.
        // A name with an e in it, such as 1e300, is a number of a configuration file, too.
        let is_number = |letter: char| letter.is_ascii_digit() || ":+-.".contains(letter);
        if text.starts_with(is_number) && text.chars().all(|letter| is_number(letter) || letter == 'e') {
            let (user, group) =
                text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
            let group = group.map(|group| number(text, group, "group")).transpose();
            return Ok(Asked::Numbers(number(text, user, "user")?, group?));
        }
        if text.contains([':', '/']) || text.contains(char::is_control) {
            return Err(fault
                .cause(format!("{text:?} is not a user name"))
                .remedy("write NAME, UID or UID:GID, e.g. 1234:5678"));
        }
        Ok(Asked::Name(text))
    }
}

/// The number of a user or a group, `what`; never that of root.
fn number(whole: &str, text: &str, what: &str) -> Result<u32, Fault> {
    let (cause, remedy) = match text.parse::<u32>() {
        Ok(0) if what == "user" => {
            let root = Setting::of("user").example("root");
            ("0 is root".to_string(), sentence!["write another number, or ", root, " if that is meant"])
        }
        Ok(0) => ("group 0 is root's".to_string(), "write another number".into()),
        // All ones means "no change" to the system.
        Ok(number) if number < u32::MAX && !text.starts_with('+') => return Ok(number),
        _ => (
            format!("'{text}' is not a {what} number"),
            format!("write one from 1 to {}", u32::MAX - 1).into(),
        ),
    };
    let cause = if whole == text { cause } else { format!("'{whole}': {cause}") };
    Err(Fault::of("user").with_value(whole).cause(cause).remedy(remedy))
}

/// Whether a text can name a user; who is there is a matter of the machine.
///
/// # Errors
/// It can't.
pub fn may_be_user(key: &'static str, text: &str) -> Result<(), Fault> {
    Asked::read(text).map(drop).map_err(|fault| fault.of_subject(Subject::setting(key)))
}

/// The user that the setting `key` names, who this process needn't be able to become.
///
/// # Errors
/// There is no such user.
pub fn known_user(key: &'static str, text: &str) -> Result<User, Fault> {
    let fault = || Fault::of(key).with_value(text);
    let found = match Asked::read(text).map_err(|fault| fault.of_subject(Subject::setting(key)))? {
        Asked::Name(name) => User::named(name),
        Asked::Numbers(uid, gid) => User::with_numbers(uid, gid).map(Some),
    };
    match found {
        Ok(Some(user)) => Ok(user),
        Ok(None) => {
            let remedy = format!("create it with: useradd --system {}, or choose another", shell_word(text));
            Err(fault().cause(format!("there is no user '{text}'")).remedy(remedy))
        }
        Err(error) => Err(fault().cause(format!("'{text}' can't be looked up: {error}"))),
    }
}

fn user(asked: Asked<'_>, faults: &mut Faults<'_>) -> Option<User> {
    let (found, group) = match asked {
        Asked::Name(name) => (User::named(name), None),
        Asked::Numbers(uid, gid) => (User::with_numbers(uid, gid).map(Some), gid),
    };
    let shown = match asked {
        Asked::Name(name) => name.to_string(),
        Asked::Numbers(uid, _) => uid.to_string(),
    };
    let fault = Fault::of("user").with_value(&shown);
    faults.add(match found {
        Ok(Some(user)) => {
            let current = User::current();
            let is_current = user.uid == current.uid && group.is_none_or(|group| group == current.gid);
            if current.uid == 0 || is_current {
                return Some(user);
            }
            let (own, gid) = (current.name, current.gid);
            fault
                .cause(format!("only root can become another user, and this process is {own} of group {gid}"))
                .remedy(sentence!["start it as root, or ", omit_it()])
        }
        Ok(None) => {
            let remedy =
                format!("create it with: useradd --system {}, or choose another", shell_word(&shown));
            fault.cause(format!("there is no user '{shown}'")).remedy(remedy)
        }
        Err(error) => {
            let cause = format!("'{shown}' can't be looked up: {error}");
            fault.cause(cause).remedy("check the user database, or choose another")
        }
    });
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_name_or_numbers_that_are_not_root_s() {
        let check = |text, expected| assert_eq!(Asked::read(text), Ok(expected), "{text}");
        check("root", Asked::Name("root"));
        check("user-1.2", Asked::Name("user-1.2"));
        check("1", Asked::Numbers(1, None));
        check("4294967294", Asked::Numbers(4_294_967_294, None));
        check("1234:5678", Asked::Numbers(1234, Some(5678)));
        let refused = |text: &str, words: &str| {
            let fault = Asked::read(text).expect_err(text).reason();
            assert!(fault.contains(words), "{text:?}: {fault}");
        };
        refused("", "it is empty");
        refused(" ", "it is empty");
        for text in ["0", "0:5", "00"] {
            refused(text, "0 is root; ");
        }
        refused("5:0", "'5:0': group 0 is root's; ");
        for text in ["4294967295", "4294967296", "99999999999999999999", "-1", "+5", "1.5"] {
            refused(text, &format!("'{text}' is not a user number; write one from 1 to 4294967294"));
        }
        for text in ["5:", "5:-1", "5:4294967295", "5:6:7"] {
            refused(text, "is not a group number; ");
        }
        refused(":", "is not a user number");
        for text in ["daemon:5", "5:daemon", "a/b", "a\nb", "a\0b"] {
            refused(text, "is not a user name; write NAME, UID or UID:GID");
        }
    }
}
