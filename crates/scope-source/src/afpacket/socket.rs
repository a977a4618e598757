//! The packet socket: each system call that live capture needs, as a safe method.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use scope_packet::TimestampSource;

/// Packets per the kernel's count since the last look; dropped ones are among the offered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelCounts {
    pub offered: u64,
    pub dropped: u64,
}

/// An AF_PACKET socket.
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Opens a packet socket that receives nothing: protocol 0.
    pub(super) fn open_mute() -> io::Result<Socket> {
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and that nobody else owns.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Binds to interface `index`; protocol 0 stays mute, ETH_P_ALL receives everything.
    pub(super) fn bind(&self, index: i32, protocol: u16) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = index;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address lives through the call and `len` is its length.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), len) })
    }

    /// Sets TPACKET_V3 with `reserve` free bytes before each frame.
    pub(super) fn set_version(&self, reserve: u32) -> io::Result<()> {
        self.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
        self.set(libc::PACKET_RESERVE, &reserve)
    }

    /// Makes the receive ring; `retire_ms` is the longest that a block with packets is kept open.
    pub(super) fn make_ring(&self, block_bytes: u32, blocks: u32, retire_ms: u32) -> io::Result<()> {
        // Only its divisibility counts with TPACKET_V3: packets are packed, not framed.
        const FRAME_BYTES: u32 = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: block_bytes / FRAME_BYTES * blocks,
            tp_retire_blk_tov: retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        self.set(libc::PACKET_RX_RING, &request)
    }

    /// Gives the receive ring, which is not mapped any more, back.
    pub(super) fn drop_ring(&self) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid tpacket_req3: a ring of no blocks.
        let request: libc::tpacket_req3 = unsafe { std::mem::zeroed() };
        self.set(libc::PACKET_RX_RING, &request)
    }

    /// Says whose times packets carry: the network card's own or the kernel's.
    pub(super) fn set_timestamps(&self, source: TimestampSource) -> io::Result<()> {
        let hardware = source == TimestampSource::Hardware;
        self.set(libc::PACKET_TIMESTAMP, &if hardware { libc::SOF_TIMESTAMPING_RAW_HARDWARE } else { 0 })
    }

    /// Promiscuous for as long as this socket lives.
    pub(super) fn set_promiscuous(&self, index: i32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Puts classic BPF in front of the ring; what it rejects is not counted by the kernel either.
    pub(super) fn set_filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        // The kernel copies the program and does not write to it.
        self.set_at(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Takes the program in front of the ring away: everything comes in, whole.
    pub(super) fn drop_filter(&self) -> io::Result<()> {
        self.set_at(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
    }

    /// Joins fan-out group `id`, or with `None` founds one whose number is not in use; returns the number.
    pub(super) fn join_fanout(&self, id: Option<u16>, mode: u32) -> io::Result<u16> {
        let unique = if id.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
        let argument = u32::from(id.unwrap_or(0)) | (mode | unique) << 16;
        self.set(libc::PACKET_FANOUT, &argument)?;
        self.get::<u32>(libc::SOL_PACKET, libc::PACKET_FANOUT).map(|group| group as u16)
    }

    /// The kernel's counts since the last call, which this resets.
    pub(super) fn take_counts(&self) -> io::Result<KernelCounts> {
        let counts: libc::tpacket_stats_v3 = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(KernelCounts { offered: counts.tp_packets.into(), dropped: counts.tp_drops.into() })
    }

    /// The error that waits on the socket, and clears it; `None` if there is none.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let code: libc::c_int = self.get(libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
    }

    /// The number of the interface that the socket is bound to; -1 when that was removed.
    pub(super) fn bound_index(&self) -> io::Result<i32> {
        bound_index(self.fd())
    }

    /// The MTU of the interface named `name`: most bytes behind the link header.
    pub(super) fn mtu(&self, name: &str) -> io::Result<u32> {
        let mut request = request_for(name.as_bytes())?;
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel filled this member for this request.
        Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
    }

    /// Whether the card of the interface named `name` stamps every packet that it receives, now.
    pub(super) fn stamps_in_hardware(&self, name: &str) -> io::Result<bool> {
        // SAFETY: all-zero bytes are a valid hwtstamp_config.
        let mut config: libc::hwtstamp_config = unsafe { std::mem::zeroed() };
        let mut request = request_for(name.as_bytes())?;
        request.ifr_ifru.ifru_data = (&raw mut config).cast();
        self.ioctl(libc::SIOCGHWTSTAMP, &mut request)?;
        Ok(config.rx_filter as u32 == libc::HWTSTAMP_FILTER_ALL)
    }

    fn ioctl(&self, order: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: every order used here takes an ifreq; where it holds a pointer, the caller made it point to
        // what lives on.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), order as _, request as *mut libc::ifreq) })
    }

    fn set<T>(&self, name: libc::c_int, value: &T) -> io::Result<()> {
        self.set_at(libc::SOL_PACKET, name, value)
    }

    fn set_at<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value lives through the call and `len` is its length; the kernel only reads it.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, (value as *const T).cast(), len) })
    }

    /// `T` is one of the plain C types for which all-zero bytes are a value.
    fn get<T: Copy>(&self, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value lives through the call and `len` is its length, so the kernel writes no farther.
        check(unsafe {
            libc::getsockopt(self.0.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len)
        })?;
        // SAFETY: zeroed before and written by the kernel; all callers ask for integers or structs of
        // integers.
        Ok(unsafe { value.assume_init() })
    }
}

/// The number of the interface that a packet socket is bound to; -1 when that was removed.
pub(crate) fn bound_index(socket: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call and `len` is its length, so the kernel writes no farther.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) })?;
    Ok(address.sll_ifindex)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn empty_request() -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid ifreq.
    unsafe { std::mem::zeroed() }
}

/// A request about the interface named `name`; a name that is too long names no interface.
fn request_for(name: &[u8]) -> io::Result<libc::ifreq> {
    let mut request = empty_request();
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Whether the system says that the right is missing.
pub(crate) fn is_forbidden(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

/// Waits until one of `waiting` has something, at most `timeout`.
pub(crate) fn wait_any(waiting: &mut [libc::pollfd], timeout: Duration) -> io::Result<()> {
    // SAFETY: as many pollfds as are said, which live through the call.
    let ready = unsafe {
        libc::poll(waiting.as_mut_ptr(), waiting.len() as libc::nfds_t, timeout.as_millis() as libc::c_int)
    };
    match check(ready) {
        Err(cause) if cause.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}
