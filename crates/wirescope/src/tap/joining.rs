//! What is asked for as a member, understood, and the run asked for it; why there is nothing to read at a socket, as a
//! fault with its remedy.

use crate::args::MemberArgs;
use crate::plan::faults::Faults;
use scope_fault::{Fault, Setting, sentence};
use scope_ring::OutsideError;
use scope_share::message::{Greeting, NAME_BYTES_MAX, WEIGHTS, is_name};
use scope_share::{DEFAULT_PATH, JoinError, RING, Refusal, ask};
use scope_spelling::values::parse_duration_ns;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What connecting a socket of another kind says.
const WRONG_KIND: i32 = libc::EPROTOTYPE;

/// What is asked for as a member, understood.
pub struct Wanted {
    /// Where the run is asked.
    pub path: PathBuf,
    /// What the run is told.
    pub greeting: Greeting,
    /// Of the ring: begin with what came in so many ns before.
    pub past_ns: Option<i64>,
}

/// Understands what is asked for, `name` where it isn't told, and asks the run whether it would let so many members in.
/// Whatever is wrong besides is for others to tell at the same time.
pub fn wanted(group: &str, args: &MemberArgs, (name, members): (&str, u16), faults: &mut Faults) -> Wanted {
    let mut found = Vec::new();
    let wanted = understood(group, args, name, &mut found);
    if found.is_empty()
        && let Err(error) = ask(&wanted.path, &wanted.greeting, members)
    {
        found.push(not_joined(&wanted.path, group, &error));
    }
    found.into_iter().for_each(|fault| faults.add(fault));
    wanted
}

/// What is asked for, as far as it can be meant.
fn understood(group: &str, args: &MemberArgs, name: &str, faults: &mut Vec<Fault>) -> Wanted {
    let path = args.attach.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    let past_ns = args.past.as_deref().and_then(|text| {
        let parsed = parse_duration_ns(text).map_err(|_| {
            faults.push(Fault::of("past").value(text, "is no time").remedy("write e.g. --past 30s"));
        });
        parsed.ok()
    });
    let name = args.name.clone().unwrap_or_else(|| name.to_string());
    if !is_name(&name) {
        let remedy = format!("write 1 to {NAME_BYTES_MAX} bytes of text");
        faults.push(Fault::of("name").value(&name, "is no name of a member").remedy(remedy));
    }
    if !is_name(group) {
        let fault = Fault::of_thing("GROUP").with_value(group).cause("it is no name of a group");
        faults.push(fault.remedy("write ring, or what wirescope groups shows"));
    }
    if let Some(past) = args.past.as_ref().filter(|_| group != RING) {
        let fault =
            Fault::of("past").with_value(past).cause("a group has nothing of before its member joined");
        faults.push(fault.remedy("tap ring, or omit it"));
    }
    let class = args.class.clone().unwrap_or_default();
    if args.class.is_some() && !is_name(&class) {
        let remedy = format!("write 1 to {NAME_BYTES_MAX} bytes of text, or omit it");
        faults.push(Fault::of("class").value(&class, "is no name of a class").remedy(remedy));
    }
    let weight = args.weight.as_deref().map_or(1, |text| {
        let found = text.parse::<u16>().ok().filter(|weight| WEIGHTS.contains(weight));
        if found.is_none() {
            let remedy = format!("write {} to {}", WEIGHTS.start(), WEIGHTS.end());
            faults.push(Fault::of("weight").value(text, "is no weight").remedy(remedy));
        }
        found.unwrap_or(1)
    });
    for (key, is_given) in [("class", args.class.is_some()), ("weight", args.weight.is_some())] {
        if is_given && group == RING {
            let fault = Fault::of(key).cause("whoever reads the ring gets all of it");
            faults.push(fault.remedy("tap another group, or omit it"));
        }
    }
    Wanted { path, greeting: Greeting { weight, class, ..Greeting::new(group, &name) }, past_ns }
}

/// Why this process is no member.
pub fn not_joined(path: &Path, group: &str, error: &JoinError) -> Fault {
    let fault = || Fault::of("attach").with_value(path.to_string_lossy());
    let to_start = || {
        let attach = Setting::of("attach").example(path.to_string_lossy());
        let who = match group {
            RING => Setting::of("attach-ring").example("USER:@GROUP"),
            group => Setting::of("group").example(group),
        };
        sentence!["start the run with ", attach, " and ", who]
    };
    match error {
        JoinError::Connect(cause) => match (cause.kind(), cause.raw_os_error()) {
            (io::ErrorKind::NotFound, _) => fault().cause("no run listens there").remedy(to_start()),
            _ if path.metadata().is_ok_and(|facts| !facts.file_type().is_socket()) => fault()
                .cause(format!("{} is no socket", path.display()))
                .remedy("name the socket that the run's --attach names"),
            (_, Some(libc::ENAMETOOLONG)) => {
                let cause = format!("{} is longer than the path of a socket can be", path.display());
                fault().cause(cause).remedy("name the run's socket by a shorter path")
            }
            (io::ErrorKind::ConnectionRefused, _) => {
                fault().cause("no run listens there any more").remedy(to_start())
            }
            (_, Some(WRONG_KIND)) => {
                fault().cause("it is a socket of another kind, perhaps a control socket").remedy(to_start())
            }
            _ => fault().error(cause),
        },
        JoinError::Refused { why: Refusal::NotAllowed, words } if group != RING => {
            let group = Setting::of("group").example(format!("{group},allow=USER:@GROUP"));
            fault().cause(words.clone()).remedy(sentence!["start the run with ", group])
        }
        JoinError::Refused { why: Refusal::NotAllowed, words } => {
            fault().cause(words.clone()).remedy(to_start())
        }
        JoinError::Refused { why: Refusal::NoSuchGroup, words } => {
            Fault::of_thing("GROUP").with_value(group).cause(words.clone()).remedy("see: wirescope groups")
        }
        JoinError::Refused { why: Refusal::Full, words } => {
            fault().cause(words.clone()).remedy("wait until another member ends; see: wirescope groups")
        }
        JoinError::Refused { why: Refusal::Version, words } => {
            fault().cause(words.clone()).remedy("use the same version of wirescope on both sides")
        }
        JoinError::Refused { words, .. } => fault().cause(words.clone()),
        JoinError::Answer(_) => {
            fault().cause(error.to_string()).remedy("use the same version of wirescope on both sides")
        }
        JoinError::Silent(_) => fault().cause(error.to_string()).remedy("see whether the run is going"),
    }
}

/// Why its ring can't be read.
pub fn not_read(path: &Path, error: &OutsideError) -> Fault {
    Fault::of("attach").with_value(path.to_string_lossy()).cause(error.to_string())
}
