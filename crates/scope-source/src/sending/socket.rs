//! The socket that a queue sends through: each system call that sending needs, as a safe method.
//!
//! Packets go past the queueing discipline (`PACKET_QDISC_BYPASS`), many with one call, out of a ring in shared memory
//! (`ring`), or where the kernel has none by `sendmmsg(2)`. Either way the system answers for each packet: it took it, or
//! says why not. On a veth pair, 64 bytes, `sendmmsg` was 1.1 times as fast as a ring whose packets are handed over by
//! page, and a ring whose packets are copied 1.3 times.

use super::burst::Frame;
use super::ring::SendRing;
use super::sender::{CALL_FRAMES_MAX, Wire};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The zeros that packets are padded with: more than any interface takes.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];
/// Bytes of packets that may wait in the system, if it allows that.
const BUFFER_BYTES: libc::c_int = 4 << 20;
/// A call waits for room this long at most, so that a stop is noticed.
const ROOM_WAIT: Duration = Duration::from_millis(50);

/// An AF_PACKET socket that sends and hears nothing.
#[derive(Debug)]
pub struct SendSocket {
    /// `None`: the kernel has no such ring. It is unmapped before the socket is closed.
    ring: Option<SendRing>,
    socket: OwnedFd,
    index: i32,
}

impl SendSocket {
    /// Opens a socket that sends packets of at most `bytes_max` bytes out of interface `index`.
    ///
    /// # Errors
    /// The system's: `EPERM` without the right to.
    pub fn open(index: i32, bytes_max: usize) -> io::Result<SendSocket> {
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut socket = SendSocket { ring: None, socket, index };
        socket.ring = SendRing::make(socket.socket.as_fd(), bytes_max).ok();
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address lives through the call and `len` is its length.
        check(unsafe { libc::bind(socket.socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        // Where the kernel has it not, packets go the longer way.
        let _ = socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32);
        // More than the system's bound takes a right that isn't needed elsewhere.
        if socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER_BYTES).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &BUFFER_BYTES)?;
        }
        let wait = libc::timeval { tv_sec: 0, tv_usec: ROOM_WAIT.as_micros() as libc::suseconds_t };
        socket.set(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &wait)?;
        Ok(socket)
    }

    fn set<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value lives through the call and `len` is its length; the kernel only reads it.
        check(unsafe {
            libc::setsockopt(self.socket.as_raw_fd(), level, name, (value as *const T).cast(), len)
        })
    }

    fn ioctl(&self, order: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: every order used here takes an ifreq, and none of them follows a pointer in it.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), order as _, request as *mut libc::ifreq) })
    }

    /// Sends out of the ring.
    fn send_from(&self, ring: &mut SendRing, frames: &[Frame<'_>]) -> io::Result<usize> {
        let count = ring.put(&frames[..frames.len().min(CALL_FRAMES_MAX)]);
        if count == 0 {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN)); // packets before it have not left yet
        }
        // SAFETY: a call without bytes of ours: the kernel looks into the ring.
        let result = unsafe { libc::send(self.socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
        let error = io::Error::last_os_error();
        match (ring.take_back(count), result) {
            (0, ..0) => Err(error),
            // It says that all went well and took none: not to be met, and not to be tried for ever.
            (0, _) => Err(io::Error::from_raw_os_error(libc::EIO)),
            (taken, _) => Ok(taken),
        }
    }

    /// Sends by a call that copies.
    fn send_copied(&self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let count = frames.len().min(CALL_FRAMES_MAX);
        let mut parts = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; CALL_FRAMES_MAX];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; CALL_FRAMES_MAX];
        for ((frame, parts), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
            let zeros = (frame.zeros as usize).min(ZEROS.len());
            let parts = parts.write([
                libc::iovec { iov_base: frame.data.as_ptr().cast_mut().cast(), iov_len: frame.data.len() },
                libc::iovec { iov_base: ZEROS.as_ptr().cast_mut().cast(), iov_len: zeros },
            ]);
            // SAFETY: all-zero bytes are a valid mmsghdr.
            let message = message.write(unsafe { std::mem::zeroed() });
            message.msg_hdr.msg_iov = parts.as_mut_ptr();
            message.msg_hdr.msg_iovlen = if zeros > 0 { 2 } else { 1 };
        }
        // SAFETY: the first `count` messages and their parts were written above and live through the call, as do the
        // frames and the zeros that they point to; sending only reads these.
        let sent = unsafe {
            libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr().cast(), count as libc::c_uint, 0)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }
}

impl Wire for SendSocket {
    fn send(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let Some(mut ring) = self.ring.take() else { return self.send_copied(frames) };
        let sent = self.send_from(&mut ring, frames);
        self.ring = Some(ring);
        sent
    }

    fn is_up(&self) -> bool {
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = self.index;
        // The name may have changed meanwhile; the number says what it is now.
        if self.ioctl(libc::SIOCGIFNAME, &mut request).is_err()
            || self.ioctl(libc::SIOCGIFFLAGS, &mut request).is_err()
        {
            return false;
        }
        // SAFETY: the kernel filled this member for this request.
        let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
        flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0
    }
}

/// Lets this thread, and those that it begins, wake as close to their time as the system can: by default it puts
/// wakings together that lie within 50 us.
pub fn sharpen_timers() {
    // SAFETY: it takes numbers only. Where it fails, waking is as late as it is.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
