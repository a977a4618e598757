//! The kernel's route socket: how it is opened and asked, the messages that come, attributes and numbers in them.
//!
//! ```text
//! message:   0 length u32 | 4 type u16 | 6 flags u16 | 8 number u32 | 12 port u32 | 16 body
//! attribute: 0 length u16 | 2 type u16 | 4 its bytes, padded to 4
//! ```

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The head of a message; its body begins behind it.
pub const HEAD_BYTES: usize = 16;
/// Where the attributes of an interface begin, and how long a question for a list of anything is at least.
pub const LINK_ATTRIBUTES_AT: usize = 32;
/// What a read may bring: the kernel's own bound for a datagram of a list, and more than any single change.
pub const READ_BYTES: usize = 64 << 10;

/// A route socket of this process's network namespace. Reading it never waits.
#[derive(Debug)]
pub struct RouteSocket(OwnedFd);

impl AsRawFd for RouteSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl RouteSocket {
    /// Opens it for answers, and for changes of these groups (`RTMGRP_*`). No rights are needed.
    ///
    /// # Errors
    /// The system's.
    pub fn open(groups: u32) -> io::Result<RouteSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid sockaddr_nl.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = groups;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address lives through the call and `len` is its length.
        if unsafe { libc::bind(fd, (&raw const address).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(RouteSocket(socket))
    }

    /// Sends a question of this kind and number, with its body. The kernel has answered one that is for no list when
    /// this returns.
    ///
    /// # Errors
    /// The system's.
    pub fn ask(&self, kind: u16, flags: i32, number: u32, body: &[u8]) -> io::Result<()> {
        let mut question = ((HEAD_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        question.extend(kind.to_ne_bytes());
        question.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        question.extend(number.to_ne_bytes());
        question.extend([0; 4]);
        question.extend(body);
        // SAFETY: the question lives through the call, which only reads it.
        let sent = unsafe { libc::send(self.as_raw_fd(), question.as_ptr().cast(), question.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Asks for a list of all there is of a kind (`RTM_GET*`).
    ///
    /// # Errors
    /// The system's.
    pub fn ask_for_list(&self, kind: u16, number: u32) -> io::Result<()> {
        self.ask(kind, libc::NLM_F_DUMP, number, &[0; LINK_ATTRIBUTES_AT - HEAD_BYTES])
    }

    /// Waits until something can be read.
    ///
    /// # Errors
    /// Nothing came in so many milliseconds.
    pub fn wait(&self, ms_max: i32) -> io::Result<()> {
        let mut waiting = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        match unsafe { libc::poll(&raw mut waiting, 1, ms_max) } {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()), // what is wrong, reading says
        }
    }

    /// What came, one datagram of messages, into a buffer of [`READ_BYTES`].
    ///
    /// # Errors
    /// The system's: also `EAGAIN`, where nothing waits, and `ENOBUFS`, where more came than it holds.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        // SAFETY: the kernel writes at most the buffer's length into it.
        let got = unsafe { libc::recv(self.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => Ok(&buffer[..got]),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// The messages of a datagram, whole ones.
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let len = u32_at(self.0, 0)? as usize;
        let message = self.0.get(..len).filter(|_| len >= HEAD_BYTES)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    }
}

/// The attributes of a message, each its type and bytes.
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)?;
        let bytes = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, bytes))
    }
}

/// A text that ends at a zero byte, or with its attribute.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A number of this machine's byte order at `at`; `None` where the message ends before.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

/// A number of this machine's byte order at `at`; `None` where the message ends before.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// A number of this machine's byte order at `at`; `None` where the message ends before.
pub fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    u32_at(bytes, at).map(|word| word as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_messages_are_found_and_what_ends_before_its_time_is_none() {
        let message = |len: u32, body: &[u8]| {
            let mut message = len.to_ne_bytes().to_vec();
            message.extend([0; HEAD_BYTES - 4]);
            message.extend(body);
            message
        };
        let datagram = [message(17, &[1, 0, 0, 0]), message(20, &[2; 4]), message(24, &[3; 4])].concat();
        let found: Vec<usize> = Messages(&datagram).map(<[u8]>::len).collect();
        assert_eq!(found, [17, 20]);
        assert_eq!(Messages(&message(15, &[])).count(), 0, "no head");
        assert_eq!(Messages(&[]).count(), 0);
    }

    #[test]
    fn a_list_comes_to_its_end_and_then_nothing_waits() {
        let (socket, mut buffer) = (RouteSocket::open(0).unwrap(), vec![0; READ_BYTES]);
        socket.ask_for_list(libc::RTM_GETLINK, 7).unwrap();
        let (mut links, mut is_done) = (0, false);
        while !is_done {
            socket.wait(60_000).unwrap();
            for message in Messages(socket.read(&mut buffer).unwrap()) {
                assert_eq!(u32_at(message, 8), Some(7));
                links += usize::from(u16_at(message, 4) == Some(libc::RTM_NEWLINK));
                is_done |= u16_at(message, 4) == Some(libc::NLMSG_DONE as u16);
            }
        }
        assert!(links >= 1, "there is lo");
        assert_eq!(socket.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(socket.wait(1).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
