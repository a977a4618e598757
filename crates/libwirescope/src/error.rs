//! Why a program is no member, or can't go on, in words for whoever runs it: place, cause, remedy.

use crate::options::OptionFault;
use scope_ring::OutsideError;
use scope_share::message::NAME_BYTES_MAX;
use scope_share::{JoinError, RING, Refusal};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// What connecting a socket of another kind says.
const WRONG_KIND: i32 = rustix::io::Errno::PROTOTYPE.raw_os_error();
const SAME_VERSION: &str = "use the same version of wirescope on both sides";

/// Why a program is no member.
#[derive(Debug)]
pub enum OpenError {
    /// Options that can't be meant.
    Options(Vec<OptionFault>),
    /// What was given is no text.
    NoText(&'static str),
    /// The group's name is none.
    Group(String),
    /// The run didn't let it in.
    Join {
        /// Where.
        socket: PathBuf,
        /// Which group.
        group: String,
        /// Why.
        error: JoinError,
    },
    /// The ring can't be read.
    Ring {
        /// Where.
        socket: PathBuf,
        /// Why.
        error: OutsideError,
    },
    /// The page can't be written.
    Page(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Options(faults) => {
                let lines: Vec<String> = faults.iter().map(OptionFault::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            OpenError::NoText(place) => write!(f, "{place}: it is no UTF-8; write plain text"),
            OpenError::Group(group) => write!(
                f,
                "group: '{}': it is no name of a group; write 1 to {NAME_BYTES_MAX} bytes of text, e.g. {RING}",
                group.escape_debug()
            ),
            OpenError::Join { socket, group, error } => {
                join_words(f, &socket.to_string_lossy(), group, error)
            }
            OpenError::Ring { socket, error } => {
                let remedy = if matches!(error, OutsideError::Version) {
                    ""
                } else {
                    "; see whether this is a run of wirescope"
                };
                write!(f, "socket: {}: {error}{remedy}", socket.to_string_lossy().escape_debug())
            }
            OpenError::Page(error) => write!(f, "page: {error}; see whether the run is going"),
        }
    }
}

fn join_words(f: &mut fmt::Formatter<'_>, socket: &str, group: &str, error: &JoinError) -> fmt::Result {
    let to_start = match group {
        RING => "start the run with --attach SOCKET and --attach-ring USER:@GROUP".to_string(),
        group => format!("start the run with --attach SOCKET and --group {}", group.escape_debug()),
    };
    let to_start = to_start.as_str();
    let allow = format!("start the run with --group {},allow=USER:@GROUP", group.escape_debug());
    let (cause, remedy) = match error {
        JoinError::Connect(cause) => match (cause.kind(), cause.raw_os_error()) {
            (io::ErrorKind::NotFound, _) => ("no run listens there".to_string(), to_start),
            (io::ErrorKind::ConnectionRefused, _) => ("no run listens there any more".to_string(), to_start),
            (_, Some(WRONG_KIND)) => {
                ("it is a socket of another kind, perhaps a control socket".to_string(), to_start)
            }
            _ => (cause.to_string(), "name the socket of a run, as its --attach does"),
        },
        JoinError::Refused { why, words } => {
            let remedy = match why {
                Refusal::NotAllowed if group != RING => &allow,
                Refusal::NotAllowed => to_start,
                Refusal::NoSuchGroup => {
                    return write!(f, "group: {group}: {words}; see: wirescope groups");
                }
                Refusal::Full => "wait until another member ends; see: wirescope groups",
                Refusal::Version | Refusal::BadMessage => SAME_VERSION,
            };
            (words.clone(), remedy)
        }
        JoinError::Answer(_) => (error.to_string(), SAME_VERSION),
        JoinError::Silent(_) => (error.to_string(), "see whether the run is going"),
    };
    write!(f, "socket: {}: {cause}; {remedy}", socket.escape_debug())
}

impl std::error::Error for OpenError {}

/// Why a member can't go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ring: {0}; leave the group, and join it again")]
pub struct ReadError(pub String);
