//! A member's side: connecting, the greeting, and what comes back.

use crate::message::{Answer, BadMessage, Greeting, Refusal};
use crate::page::Page;
use crate::passing::{Heard, hear, hear_with_files, say};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the socket of a run that begins may be there before it is listened at.
const BEGINNING: Duration = Duration::from_millis(300);
/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a run may take for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is nothing more for a member though the run goes on.
pub const REMOVED: &str =
    "the run has removed this member: it did not read for too long, or may not any more";

/// Why this process is no member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nobody listens there, or it is no socket of this kind.
    #[error("{0}")]
    Connect(io::Error),
    /// The run said no.
    #[error("{words}")]
    Refused {
        /// Why.
        why: Refusal,
        /// In its words.
        words: String,
    },
    /// What answered is no run, or another version.
    #[error("the answer can't be understood: {0}")]
    Answer(BadMessage),
    /// It doesn't answer.
    #[error("no answer: {0}")]
    Silent(io::Error),
}

/// A member of a group.
#[derive(Debug)]
pub struct Joined {
    /// Its number there.
    pub member: u16,
    /// Whether what it hasn't read stays as it is until its page says that it is done with it.
    pub is_kept: bool,
    /// The files of the ring's tables and slots.
    ring: [OwnedFd; 2],
    /// Its page.
    pub page: Page,
    connection: OwnedFd,
}

impl Joined {
    /// A member within the run itself, by what a run hands out: the files of the memory, and the page.
    pub fn within(member: u16, ring: [OwnedFd; 2], page: OwnedFd, connection: OwnedFd) -> Joined {
        Joined { member, is_kept: true, ring, page: Page::of(page), connection }
    }

    /// The files of the ring's tables and slots.
    pub fn ring(&self) -> [BorrowedFd<'_>; 2] {
        [self.ring[0].as_fd(), self.ring[1].as_fd()]
    }

    /// Whether the run is over, or has ended the connection: nothing more is published. Takes all news. Never waits.
    pub fn is_over(&self) -> bool {
        loop {
            match hear(&self.connection) {
                Ok(Heard::End) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Whether the run has ended the membership before its own end: it did not move for too long where the run waits for it, or
    /// its user may not be a member any more.
    pub fn was_removed(&self) -> bool {
        self.page.is_removed()
    }

    /// The connection: it can be read from where there is news, or the run is over.
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Sleeps until there is news, or the run is over, at most `limit`.
    pub fn wait(&self, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let _ = poll(&mut [PollFd::new(&self.connection, PollFlags::IN)], Some(&limit));
    }
}

/// Joins a group of the run that listens at `path`.
///
/// # Errors
/// Why not.
pub fn join(path: &Path, greeting: &Greeting) -> Result<Joined, JoinError> {
    let (bytes, files, socket) = said(path, &greeting.to_bytes())?;
    match Answer::read(&bytes).map_err(JoinError::Answer)? {
        Answer::Refused { why, words } => Err(JoinError::Refused { why, words }),
        Answer::Joined { member, is_kept } => {
            let files: Result<[OwnedFd; 3], _> = files.try_into();
            let [tables, slots, page] = files.map_err(|_| JoinError::Answer(BadMessage::Length))?;
            Ok(Joined { member, is_kept, ring: [tables, slots], page: Page::of(page), connection: socket })
        }
    }
}

/// Asks the run whether it would let so many in who say this. Nobody joins, and nobody is given anything.
///
/// # Errors
/// Why not.
pub fn ask(path: &Path, greeting: &Greeting, times: u16) -> Result<(), JoinError> {
    let (bytes, _, _) = said(path, &greeting.to_question(times))?;
    let reply = Answer::read_reply(&bytes).map_err(JoinError::Answer)?;
    reply.map_err(|(why, words)| JoinError::Refused { why, words })
}

/// Why there is no answer.
fn silent(error: io::Error) -> JoinError {
    JoinError::Silent(match error.kind() {
        io::ErrorKind::WouldBlock => {
            let words = format!("nothing came within {} s; the run may be stopped", PATIENCE.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, words)
        }
        _ => error,
    })
}

/// Connects and says something: what comes back.
fn said(path: &Path, message: &[u8]) -> Result<(Vec<u8>, Vec<OwnedFd>, OwnedFd), JoinError> {
    let of_system = |error: Errno| JoinError::Connect(error.into());
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(of_system)?;
    let address = SocketAddrUnix::new(path).map_err(of_system)?;
    let begun = Instant::now();
    loop {
        match connect(&socket, &address) {
            // Its file may be there a moment before somebody listens.
            Err(Errno::CONNREFUSED) if begun.elapsed() < BEGINNING => std::thread::sleep(LOOK_EVERY),
            outcome => break outcome,
        }
    }
    .map_err(of_system)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(of_system)?;
    // Where the run has closed it already, its answer says why.
    let said = say(&socket, message, &[]);
    let (bytes, files) = match hear_with_files(&socket) {
        // What was sent in vain comes before the answer.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => hear_with_files(&socket),
        other => other,
    }
    .map_err(silent)?;
    if bytes.is_empty() {
        let closed = || io::Error::new(io::ErrorKind::ConnectionReset, "the connection was closed at once");
        return Err(JoinError::Silent(said.err().unwrap_or_else(closed)));
    }
    Ok((bytes, files, socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_doesn_t_answer_in_time_may_be_stopped() {
        let said = |kind: io::ErrorKind| silent(kind.into()).to_string();
        assert_eq!(
            said(io::ErrorKind::WouldBlock),
            "no answer: nothing came within 10 s; the run may be stopped"
        );
        assert_eq!(said(io::ErrorKind::ConnectionReset), "no answer: connection reset");
    }
}
