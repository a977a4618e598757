//! A door of the bench's own: lets one program in, to a ring or to a seat of a group that the bench feeds itself.
//!
//! It says what the door of a run says: the answer, and the files of a ring's tables and slots and of a page.

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};
use scope_group::{Newcomer, Seat};
use scope_ring::Ring;
use scope_share::Page;
use scope_share::message::{Answer, Greeting};
use scope_share::passing::{Heard, hear, say};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A program connects within this time.
const LIMIT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// Where a program connects.
pub struct Door {
    listener: OwnedFd,
    path: PathBuf,
}

impl Door {
    /// Listens at a path, where nothing is.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> Result<Door> {
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 1)?;
        Ok(Door { listener, path: path.to_path_buf() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next one, and for what it says first.
    fn guest(&self) -> Result<OwnedFd> {
        let ready = |file: &OwnedFd| -> Result<bool> {
            Ok(poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&LIMIT))? == 1)
        };
        ensure!(ready(&self.listener)?, "nobody connects");
        let guest = accept(&self.listener)?;
        ensure!(ready(&guest)?, "a program that says nothing");
        match hear(&guest)? {
            Heard::Message(bytes) => drop(Greeting::read(&bytes)?),
            other => bail!("{other:?} instead of a greeting"),
        }
        Ok(guest)
    }

    fn let_in(guest: &OwnedFd, ring: &Ring, page: &Page, is_kept: bool) -> Result<()> {
        let [tables, slots] = ring.sealed_files().map_err(|error| anyhow::anyhow!("{error}"))?;
        let answer = Answer::Joined { member: 0, is_kept };
        Ok(say(guest, &answer.to_bytes(), &[tables, slots, page.as_fd()])?)
    }

    /// Lets the next one read a ring; with the connection its run ends.
    ///
    /// # Errors
    /// Nobody comes, or says what is no greeting.
    pub fn let_read(&self, ring: &Ring) -> Result<OwnedFd> {
        let guest = self.guest()?;
        Door::let_in(&guest, ring, &Page::create()?, false)?;
        Ok(guest)
    }

    /// Gives the next one a free seat.
    ///
    /// # Errors
    /// Nobody comes, or the seat is taken.
    pub fn let_sit(&self, seat: &Arc<Seat>) -> Result<OwnedFd> {
        let guest = self.guest()?;
        let newcomer = Newcomer {
            weight: 1,
            class: String::new(),
            connection: guest.try_clone().context("a connection")?,
        };
        ensure!(seat.enter(newcomer), "the seat is taken");
        Door::let_in(&guest, seat.memory(), seat.page(), true)?;
        Ok(guest)
    }
}
