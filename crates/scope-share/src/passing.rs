//! Messages through a socket, with and without descriptors; none of these calls ever waits, but where it says so.

use crate::message::MESSAGE_BYTES_MAX;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that an answer has.
pub const FILES: usize = 3;

/// What came through a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Message(Vec<u8>),
    /// One that is longer than any, of which the rest is gone.
    TooLong,
    /// One with descriptors, which the kernel has closed.
    WithFiles,
    /// The other side has gone.
    End,
}

/// Takes the next message, without any descriptor: the kernel closes those that come with it, so that none of them is ever
/// this process's to close.
///
/// # Errors
/// `WouldBlock`: there is none; else the system's.
pub fn hear(socket: impl AsFd) -> io::Result<Heard> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut none = RecvAncillaryBuffer::default();
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut none, RecvFlags::DONTWAIT)?;
    Ok(if got.flags.contains(ReturnFlags::CTRUNC) {
        Heard::WithFiles
    } else if got.flags.contains(ReturnFlags::TRUNC) {
        Heard::TooLong
    } else if got.bytes == 0 {
        Heard::End
    } else {
        Heard::Message(bytes[..got.bytes].to_vec())
    })
}

/// Sends a message with these descriptors.
///
/// # Errors
/// `WouldBlock`: there is no room for it; else the system's.
pub fn say(socket: impl AsFd, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(message)], &mut control, flags)?;
    Ok(())
}

/// Waits for an answer as long as the socket says, and takes it with its descriptors.
///
/// # Errors
/// The system's.
pub(crate) fn hear_with_files(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            files.extend(passed);
        }
    }
    Ok((bytes[..got.bytes].to_vec(), files))
}
