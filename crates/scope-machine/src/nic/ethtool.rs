//! What a driver answers to ethtool's questions: the system calls as safe methods, values out of plain words.
//!
//! Every question is a buffer that begins with the order's number; the driver's answer overwrites it. For
//! lists (names, counts) the kernel writes as many entries as there are then, which may be more than
//! there were when the buffer was made. So the buffer is a mapping that ends at a page that can't be written:
//! an answer that is too long ends with EFAULT, never in foreign memory.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use super::answers::{self, Driver, NAME_BYTES, Queues, RingSizes, Timestamping};

const GET_DRIVER: u32 = 0x03;
const GET_RINGS: u32 = 0x10;
const GET_NAMES: u32 = 0x1b;
const GET_COUNTS: u32 = 0x1d;
const GET_LIST_LENGTHS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_QUEUES: u32 = 0x3c;
const GET_TIMES: u32 = 0x41;

/// Names of a driver's own counters.
const LIST_COUNTERS: u32 = 1;
/// Names of features (offloads).
const LIST_FEATURES: u32 = 4;
/// Words of a buffer: room for more names than any driver has.
const WORDS: usize = 1 << 18;
/// Entries of a list at most: their names fill half of the buffer.
const ENTRIES_MAX: usize = WORDS * 4 / NAME_BYTES / 2;
/// Bytes of a page, at least: a guard of this size stops the kernel, which writes front to back.
const GUARD_BYTES: usize = 1 << 16;

/// What the kernel says of an interface, whatever its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: i32,
    /// Kind of hardware, as ARPHRD numbers it.
    pub kind: u16,
    /// Switched on (`ip link set up`).
    pub up: bool,
    /// Something is at the other end.
    pub running: bool,
    /// Most bytes of a packet behind the link header.
    pub mtu: u32,
}

/// Queries drivers; works without privileges.
pub struct Ethtool {
    socket: OwnedFd,
    buffer: Buffer,
}

impl Ethtool {
    /// Opens what queries need. Later ones open nothing more.
    ///
    /// # Errors
    /// The system's, where there are no sockets or no memory.
    pub fn open() -> io::Result<Ethtool> {
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Ethtool { socket, buffer: Buffer::map()? })
    }

    /// What the kernel says of `interface`.
    ///
    /// # Errors
    /// There is no such interface in this network namespace.
    pub fn link(&self, interface: &str) -> io::Result<Link> {
        let query = |order| {
            let mut request = request_for(interface)?;
            send(&self.socket, order, &mut request)?;
            Ok::<_, io::Error>(request.ifr_ifru)
        };
        // SAFETY: after each order the kernel has filled the member that is read, and all are plain numbers.
        let (index, kind, flags, mtu) = unsafe {
            (
                query(libc::SIOCGIFINDEX)?.ifru_ifindex,
                query(libc::SIOCGIFHWADDR)?.ifru_hwaddr.sa_family,
                i32::from(query(libc::SIOCGIFFLAGS)?.ifru_flags),
                query(libc::SIOCGIFMTU)?.ifru_mtu,
            )
        };
        let (up, running) = (flags & libc::IFF_UP != 0, flags & libc::IFF_RUNNING != 0);
        Ok(Link { index, kind, up, running, mtu: u32::try_from(mtu).unwrap_or(0) })
    }

    /// The driver of `interface`.
    ///
    /// # Errors
    /// The driver's: most often that it doesn't know the question (EOPNOTSUPP). So with all questions below.
    pub fn driver(&mut self, interface: &str) -> io::Result<Driver> {
        self.query(interface, &[GET_DRIVER])?;
        Ok(answers::driver(self.buffer.bytes()))
    }

    /// Sizes of the card's rings.
    ///
    /// # Errors
    /// As [`Self::driver`].
    pub fn rings(&mut self, interface: &str) -> io::Result<RingSizes> {
        self.query(interface, &[GET_RINGS]).map(answers::rings)
    }

    /// Queues of the card.
    ///
    /// # Errors
    /// As [`Self::driver`].
    pub fn queues(&mut self, interface: &str) -> io::Result<Queues> {
        self.query(interface, &[GET_QUEUES]).map(answers::queues)
    }

    /// Who can stamp packets.
    ///
    /// # Errors
    /// As [`Self::driver`].
    pub fn timestamping(&mut self, interface: &str) -> io::Result<Timestamping> {
        self.query(interface, &[GET_TIMES]).map(answers::timestamping)
    }

    /// Offloads by the names that `ethtool -k` has for the kernel's own (`rx-gro`, `rx-lro`): whether each is
    /// on.
    ///
    /// # Errors
    /// As [`Self::driver`].
    pub fn features(&mut self, interface: &str) -> io::Result<Vec<(String, bool)>> {
        let names = self.names(interface, LIST_FEATURES)?;
        let blocks = names.len().div_ceil(32);
        let words = self.query(interface, &[GET_FEATURES, blocks as u32])?;
        Ok(answers::features(words, names))
    }

    /// The driver's own counters.
    ///
    /// # Errors
    /// As [`Self::driver`]; also where their number changes meanwhile.
    pub fn counters(&mut self, interface: &str) -> io::Result<Vec<(String, u64)>> {
        let names = self.names(interface, LIST_COUNTERS)?;
        let values = self.counter_values(interface, names.len())?;
        Ok(names.into_iter().zip(values).collect())
    }

    fn counter_values(&mut self, interface: &str, count: usize) -> io::Result<Vec<u64>> {
        let words = self.query(interface, &[GET_COUNTS, count as u32])?;
        answers::counter_values(words, count)
    }

    fn names(&mut self, interface: &str, list: u32) -> io::Result<Vec<String>> {
        let words = self.query(interface, &[GET_LIST_LENGTHS, 0, 1 << list, 0])?;
        let count = answers::entries(words, list, ENTRIES_MAX).ok_or(io::ErrorKind::Unsupported)?;
        self.query(interface, &[GET_NAMES, list, count as u32])?;
        answers::names(self.buffer.bytes(), count)
    }

    /// Sends `question` and returns the buffer with the answer.
    fn query(&mut self, interface: &str, question: &[u32]) -> io::Result<&[u32]> {
        let mut request = request_for(interface)?;
        let words = self.buffer.words_mut();
        words[..64].fill(0);
        words[..question.len()].copy_from_slice(question);
        request.ifr_ifru.ifru_data = self.buffer.memory.as_ptr().cast();
        send(&self.socket, libc::SIOCETHTOOL, &mut request)?;
        Ok(self.buffer.words())
    }
}

/// A request about `interface`; a name that is too long names none.
fn request_for(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.is_empty() || interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn send(socket: &OwnedFd, order: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every order used here takes an ifreq, which lives through the call. Only SIOCETHTOOL's points
    // farther: to the buffer of the `Ethtool` that sends it; however long the answer, it is written front to
    // back and stopped by the guard behind it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), order as _, request as *mut libc::ifreq) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// [`WORDS`] words of memory of its own, and behind them a guard.
struct Buffer {
    memory: NonNull<u32>,
}

// SAFETY: the mapping belongs to this value alone, never cloned, so it may move to another thread.
unsafe impl Send for Buffer {}

impl Buffer {
    const BYTES: usize = WORDS * 4;

    fn map() -> io::Result<Buffer> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours; the result is
        // checked.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES + GUARD_BYTES, access, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let buffer = Buffer { memory: NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)? };
        // SAFETY: the last GUARD_BYTES of the mapping that was just made; `BYTES` is a multiple of every page
        // size up to them.
        let guarded = unsafe { libc::mprotect(memory.byte_add(Self::BYTES), GUARD_BYTES, libc::PROT_NONE) };
        if guarded < 0 { Err(io::Error::last_os_error()) } else { Ok(buffer) }
    }

    fn words(&self) -> &[u32] {
        // SAFETY: WORDS words that are mapped, aligned and zero or written; borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), WORDS) }
    }

    fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as in `words`; `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), WORDS) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: as in `words`; bytes have no alignment.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), Self::BYTES) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: exactly the bytes that `map` mapped; nothing borrows them any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), Self::BYTES + GUARD_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_answers_what_it_can_and_refuses_the_rest() {
        let mut ethtool = Ethtool::open().unwrap();
        let features = ethtool.features("lo").unwrap();
        assert!(features.iter().any(|(name, _)| name == "rx-gro"), "{features:?}");
        assert!(ethtool.timestamping("lo").unwrap().software);
        assert!(ethtool.rings("lo").is_err(), "it has no rings");
        assert!(ethtool.counters("lo").is_err(), "it has no counters of its own");
    }

    #[test]
    fn names_that_name_no_interface_are_refused() {
        let mut ethtool = Ethtool::open().unwrap();
        for name in ["", "no-such-iface0", "a-name-that-is-longer-than-any"] {
            assert_eq!(ethtool.driver(name).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
