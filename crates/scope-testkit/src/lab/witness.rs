//! The witness: a packet socket beside a run's own, with room for everything, that notes number and time of
//! each numbered packet.

use super::Namespace;
use crate::traffic::ETHERNET;
use crate::traffic::frame::{on_link, udp};
use anyhow::{Context, Result, ensure};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Room in the socket, bytes: a few times what a run sends.
const ROOM_BYTES: libc::c_int = 256 << 20;
/// Where a packet's number stands: behind Ethernet, IPv4 and UDP.
pub const NUMBER_AT: usize = 14 + 20 + 8;
/// Where its destination port stands.
pub const PORT_AT: usize = 14 + 20 + 2;

/// One packet that came.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its number.
    pub number: u64,
    /// Its destination port.
    pub port: u16,
    /// When the kernel took it, ns since the epoch.
    pub time_ns: i64,
}

/// A witness that looks on.
pub struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Seen>>>,
}

/// A packet with its number in it, of `bytes` bytes at least.
pub fn numbered(number: u64, port: u16, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(bytes.saturating_sub(NUMBER_AT).max(8), number as u8);
    on_link(ETHERNET, &[], &udp(([10, 0, 0, 1], 4000).into(), ([10, 0, 0, 2], port).into(), &payload))
}

/// Number and port of such a frame.
pub fn number_and_port(frame: &[u8]) -> Option<(u64, u16)> {
    let number = u64::from_le_bytes(frame.get(NUMBER_AT..NUMBER_AT + 8)?.try_into().ok()?);
    let port = u16::from_be_bytes(frame.get(PORT_AT..PORT_AT + 2)?.try_into().ok()?);
    Some((number, port))
}

impl Witness {
    /// Looks on at `interface` of `namespace`.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(namespace: &Namespace, interface: &str) -> Result<Witness> {
        let socket = namespace.enter(|| open(interface)).context("the witness's socket")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread =
            std::thread::Builder::new().name("witness".into()).spawn(move || look_on(&socket, &stopped))?;
        Ok(Witness { stop, thread })
    }

    /// What came, in order of coming.
    ///
    /// # Errors
    /// Where it has missed something itself.
    pub fn end(self) -> Result<Vec<Seen>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the witness failed"))?
    }
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call and `len` is its length.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn open(interface: &str) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: the name is a C string that lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened and that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &ROOM_BYTES)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &libc::timeval { tv_sec: 0, tv_usec: 20_000 })?;
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call and `len` is its length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

fn look_on(socket: &OwnedFd, stop: &AtomicBool) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    loop {
        // Read before the look: what has come by then is there.
        let stopped = stop.load(Ordering::Relaxed);
        match receive(socket) {
            Ok(packet) => seen.extend(packet),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) if stopped => break,
                // An interface that goes down is reported once.
                Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => {}
                _ => return Err(error).context("the witness"),
            },
        }
    }
    // SAFETY: all-zero bytes are valid statistics.
    let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    let into = (&raw mut statistics).cast();
    // SAFETY: the statistics live through the call and `len` is their length.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, into, &mut len)
    };
    ensure!(result == 0, "the witness's statistics: {}", io::Error::last_os_error());
    ensure!(statistics.tp_drops == 0, "the witness itself missed {} packets", statistics.tp_drops);
    Ok(seen)
}

/// One packet; `None`: not one of the run's.
fn receive(socket: &OwnedFd) -> io::Result<Option<Seen>> {
    let mut frame = [0u8; 64];
    let mut control = [0u64; 8]; // aligned as its header wants it
    let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    // SAFETY: message, part, frame and control live through the call, with these lengths.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the message's control part.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Err(io::Error::other("a packet without a time"));
    }
    // SAFETY: the only control message that was requested holds a timespec.
    let time: libc::timespec = unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
    let time_ns = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    Ok(number_and_port(&frame[..received as usize]).map(|(number, port)| Seen { number, port, time_ns }))
}
