//! Why there is nothing to read at a socket, as a fault with its remedy.

use scope_fault::{Fault, Setting, sentence};
use scope_ring::OutsideError;
use scope_share::{JoinError, RING, Refusal};
use std::io;
use std::path::Path;

/// What connecting a socket of another kind says.
const WRONG_KIND: i32 = libc::EPROTOTYPE;

/// Why this process is no member.
pub fn not_joined(path: &Path, group: &str, error: &JoinError) -> Fault {
    let fault = || Fault::of("attach").with_value(path.to_string_lossy());
    let to_start = || {
        let (attach, ring) = (Setting::of("attach"), Setting::of("attach-ring"));
        let path = path.to_string_lossy();
        sentence!["start the run with ", attach.example(path), " and ", ring.example("USER:@GROUP")]
    };
    match error {
        JoinError::Connect(cause) => match (cause.kind(), cause.raw_os_error()) {
            (io::ErrorKind::NotFound, _) => fault().cause("no run listens there").remedy(to_start()),
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
            let there = format!("there is {RING}; see: wirescope groups");
            Fault::of_thing("GROUP").with_value(group).cause(words.clone()).remedy(there)
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
