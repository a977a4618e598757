//! Frames onto the wire as fast as one core can, or at a rate: a packet socket with a ring for sending,
//! filled once.
//!
//! ```text
//!  frame n of the ring (2048 bytes): │ header, 32 bytes: status, length ... │ the frame itself │
//! ```
//! The frames stay in the ring; sending marks the next ones and calls `send`. On a veth pair the other end
//! receives them, and the copy into a capture's own ring is made, inside that call, on this core: receiving
//! pushes back on the sender.

use crate::cores::stay_on;
use anyhow::{Context, Result, ensure};
use scope_measure::{Packets, SOURCES};
use scope_testkit::lab::Namespace;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one place in the ring: the longest frame and its header fit.
const PLACE_BYTES: usize = 2048;
/// Bytes of a block of places.
const BLOCK_BYTES: usize = 64 << 10;
/// Where the frame begins in its place: behind the header, see `tpacket_snd` in Linux's
/// net/packet/af_packet.c.
const FRAME_AT: usize = size_of::<libc::tpacket2_hdr>();
/// Frames of one `send`.
const BATCH: usize = 64;
/// Frames of one `send` where they come at a rate, in the middle.
const BATCH_PACED: usize = 16;
/// A sender that must be quiet answers in less.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Where the source addresses of frames without a tag end.
const IPV4_SOURCE_END: usize = 30;
const IPV6_SOURCE_END: usize = 38;
/// The kernel takes the next frame; the kernel is done with it.
const SEND_REQUEST: u32 = 1;
const AVAILABLE: u32 = 0;

/// What was sent, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Frames that the link took.
    pub packets: u64,
    /// From the first to the last one.
    pub span: Duration,
}

impl Sent {
    /// Frames per second.
    pub fn per_second(self) -> f64 {
        self.packets as f64 / self.span.as_secs_f64().max(1e-9)
    }
}

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as the link takes them.
    FlatOut,
    /// So many a second.
    PerSecond(u32),
}

/// How many frames the next batch takes at least: 1 to twice [`BATCH_PACED`], by chance. Batches of one size
/// come at equal distances, of which, at a round rate, a whole number lies between two ticks of the system's
/// clock: the ticks, by which the system counts soft interrupts, would always meet the same place of a batch.
#[derive(Default)]
struct Batches(Dice);

impl Batches {
    fn next(&mut self) -> usize {
        1 + self.0.next() as usize % (2 * BATCH_PACED)
    }
}

/// A xorshift generator (Marsaglia 2003).
struct Dice(u32);

impl Default for Dice {
    fn default() -> Dice {
        Dice(0x9E37_79B9)
    }
}

impl Dice {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// A socket that sends the same frames in turn.
pub struct Sender {
    socket: OwnedFd,
    ring: *mut u8,
    next: usize,
    /// Niceness of the thread that sends; `None`: that of its caller.
    nice: Option<i32>,
    /// Who each frame comes from.
    hosts: Option<Hosts>,
    /// How long it sleeps where nothing is due; `None`: it looks on.
    rest: Option<Duration>,
}

/// From which hosts the same frames come, and how the next one is chosen.
struct Hosts {
    count: u16,
    /// Packets that were sent; `None`: hosts are chosen by chance.
    sent: Option<u64>,
    dice: Dice,
}

impl Hosts {
    /// Puts the next host into a frame: the last two bytes of its source address.
    fn write(&mut self, frame: &mut [u8]) {
        let host = match &mut self.sent {
            Some(sent) => {
                *sent += 1;
                ((*sent - 1) / SOURCES as u64 % u64::from(self.count)) as u16
            }
            None => (self.dice.next() % u32::from(self.count)) as u16,
        };
        let at = if frame[12..14] == [0x86, 0xdd] { IPV6_SOURCE_END } else { IPV4_SOURCE_END };
        // 0 is no host.
        frame[at - 2..at].copy_from_slice(&(host + 1).to_be_bytes());
    }
}

// SAFETY: the mapping belongs to the sender alone and is used by its owner; no thread is bound to it.
unsafe impl Send for Sender {}

impl Sender {
    /// Opens a sender of `packets` on `interface` of `namespace`.
    ///
    /// # Errors
    /// The system's, each with the step that it refused.
    pub fn open(namespace: &Namespace, interface: &str, packets: &Packets) -> Result<Sender> {
        ensure!(
            packets.longest() + FRAME_AT <= PLACE_BYTES,
            "frames of {} bytes don't fit",
            packets.longest()
        );
        let socket = namespace
            .enter(|| bound(interface))
            .with_context(|| format!("a socket that sends on {interface}"))?;
        let ring = ring(&socket).context("a ring for sending")?;
        let sender = Sender { socket, ring, next: 0, nice: None, hosts: None, rest: None };
        for place in 0..SOURCES {
            sender.fill(place, packets.frame(place as u64));
        }
        Ok(sender)
    }

    /// The same sender, whose thread goes before all others of its core: it keeps its pace beside programs that want
    /// the core, too. Only root may.
    pub fn urgent(mut self) -> Sender {
        self.nice = Some(-20);
        self
    }

    /// The same sender, whose frames come from `count` hosts each: as many flows as that, times [`SOURCES`]. Which is next
    /// is chosen by chance, or they take turns.
    pub fn of_hosts(mut self, count: u16, by_chance: bool) -> Sender {
        let sent = (!by_chance).then_some(0);
        self.hosts = Some(Hosts { count: count.max(1), sent, dice: Dice::default() });
        self
    }

    /// The same sender, which sleeps for so long where nothing is due: what it takes of its core is what it sends.
    pub fn resting(mut self, rest: Duration) -> Sender {
        self.rest = Some(rest);
        self
    }

    /// Sends from `core` at `pace` until `span` is over.
    ///
    /// # Errors
    /// The system's.
    pub fn send_for(&mut self, core: usize, pace: Pace, span: Duration) -> Result<Sent> {
        let begun = Instant::now();
        self.send_while(core, pace, || begun.elapsed() < span)
    }

    fn send_until(&mut self, core: usize, pace: Pace, stop: &AtomicBool, quiet: &Quiet) -> Result<Sent> {
        self.send_while(core, pace, || {
            quiet.keep(stop);
            !stop.load(Ordering::Relaxed)
        })
    }

    fn send_while(
        &mut self,
        core: usize,
        pace: Pace,
        mut goes_on: impl FnMut() -> bool + Send,
    ) -> Result<Sent> {
        let (nice, rest) = (self.nice, self.rest);
        let task = || -> io::Result<Sent> {
            stay_on(core);
            if let Some(nice) = nice {
                go_before(nice)?;
            }
            let begun = Instant::now();
            let mut sent = Sent::default();
            let mut offered = 0;
            let mut batches = Batches::default();
            let mut least = batches.next();
            while goes_on() {
                let due = match pace {
                    Pace::FlatOut => BATCH,
                    Pace::PerSecond(rate) => {
                        let due = (begun.elapsed().as_secs_f64() * f64::from(rate)) as u64;
                        due.saturating_sub(offered).min(BATCH as u64) as usize
                    }
                };
                if pace != Pace::FlatOut && due < least {
                    match rest {
                        Some(rest) => std::thread::sleep(rest),
                        None => std::hint::spin_loop(),
                    }
                    continue;
                }
                least = batches.next();
                sent.packets += self.push(due)?;
                offered += due as u64;
            }
            sent.span = begun.elapsed();
            Ok(sent)
        };
        // A thread of its own: the caller isn't bound to the core.
        let done = std::thread::scope(|scope| scope.spawn(task).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).context("sending")
    }

    /// Offers the next `count` frames, at most [`BATCH`]; returns how many the link took. It takes none while
    /// it is down.
    fn push(&mut self, count: usize) -> io::Result<u64> {
        for n in 0..count {
            if let Some(mut hosts) = self.hosts.take() {
                hosts.write(self.frame(self.next + n));
                self.hosts = Some(hosts);
            }
            self.status(self.next + n).store(SEND_REQUEST, Ordering::Release);
        }
        // SAFETY: plain system call without a buffer; the frames lie in the ring.
        let result = unsafe { libc::send(self.socket.as_raw_fd(), std::ptr::null(), 0, 0) };
        let refused = if result < 0 { Some(io::Error::last_os_error()) } else { None };
        let mut taken = 0;
        while taken < count && self.status(self.next + taken).load(Ordering::Acquire) == AVAILABLE {
            taken += 1;
        }
        for n in taken..count {
            self.status(self.next + n).store(AVAILABLE, Ordering::Release);
        }
        self.next = (self.next + taken) % SOURCES;
        match refused {
            Some(error) if !is_passing(&error) => Err(error),
            _ => Ok(taken as u64),
        }
    }

    /// The status of a place, which the kernel changes, too.
    fn status(&self, place: usize) -> &AtomicU32 {
        let header = self.place(place).cast::<libc::tpacket2_hdr>();
        // SAFETY: the place lies in the mapping, which lives as long as the sender, is aligned to 16 bytes,
        // and begins with the header; status is a u32 that kernel and user change by turns.
        unsafe { AtomicU32::from_ptr(&raw mut (*header).tp_status) }
    }

    /// The first bytes of a frame, up to behind its addresses. Nothing of it is being sent.
    fn frame(&mut self, place: usize) -> &mut [u8] {
        // SAFETY: the place lies in the mapping, which lives as long as the sender; the shortest frame is longer than
        // this; the kernel reads it only between the request to send it and its end, for which `push` waits.
        unsafe { std::slice::from_raw_parts_mut(self.place(place).add(FRAME_AT), IPV6_SOURCE_END) }
    }

    fn fill(&self, place: usize, frame: &[u8]) {
        let at = self.place(place);
        // SAFETY: the place lies in the mapping and nobody else looks at it yet; `open` saw that the longest
        // frame fits.
        unsafe {
            (*at.cast::<libc::tpacket2_hdr>()).tp_len = frame.len() as u32;
            std::ptr::copy_nonoverlapping(frame.as_ptr(), at.add(FRAME_AT), frame.len());
        }
    }

    fn place(&self, place: usize) -> *mut u8 {
        // SAFETY: the mapping has SOURCES places.
        unsafe { self.ring.add(place % SOURCES * PLACE_BYTES) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: mapped by `ring` with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.ring.cast(), SOURCES * PLACE_BYTES) };
    }
}

/// Runs `task` while `sender` sends; returns what both yield.
///
/// # Errors
/// Those of the task, or of sending.
pub fn while_sending<T>(
    sender: &mut Sender,
    core: usize,
    pace: Pace,
    quiet: &Quiet,
    task: impl FnOnce() -> Result<T>,
) -> Result<(T, Sent)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| sender.send_until(core, pace, &stop, quiet));
        let done = task();
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((done?, sent))
    })
}

/// Keeps a sender quiet for a while, and says when it is.
#[derive(Debug, Default)]
pub struct Quiet {
    wanted: AtomicBool,
    is_quiet: AtomicBool,
}

impl Quiet {
    /// Runs `task` while nothing is sent.
    ///
    /// # Errors
    /// Those of the task, and where the sender doesn't answer: it has failed.
    pub fn during<T>(&self, task: impl FnOnce() -> Result<T>) -> Result<T> {
        self.wanted.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while !self.is_quiet.load(Ordering::SeqCst) {
            ensure!(begun.elapsed() < ANSWER_LIMIT, "the sender doesn't answer");
            std::thread::sleep(Duration::from_micros(100));
        }
        let result = task();
        self.wanted.store(false, Ordering::SeqCst);
        // Until it goes on: the next call must not read the old answer as a new one.
        while self.is_quiet.load(Ordering::SeqCst) && begun.elapsed() < ANSWER_LIMIT {
            std::thread::sleep(Duration::from_micros(100));
        }
        result
    }

    fn keep(&self, stop: &AtomicBool) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        self.is_quiet.store(true, Ordering::SeqCst);
        while self.wanted.load(Ordering::SeqCst) && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.is_quiet.store(false, Ordering::SeqCst);
    }
}

/// Sets the niceness of the calling thread.
fn go_before(nice: i32) -> io::Result<()> {
    // SAFETY: takes numbers only; 0 is the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether an error of `send` passes by itself: the link is down or full.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOBUFS | libc::EAGAIN | libc::ENETDOWN))
}

/// A packet socket of this thread's namespace that hears nothing and sends on `interface`, past the queueing
/// discipline.
fn bound(interface: &str) -> io::Result<OwnedFd> {
    let name = CString::new(interface)?;
    // SAFETY: the name is a C string that lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened and that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call and `len` is its length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    set(&socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
    set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as i32))?;
    Ok(socket)
}

/// Gives the socket its ring and maps it.
fn ring(socket: &OwnedFd) -> io::Result<*mut u8> {
    let bytes = SOURCES * PLACE_BYTES;
    let request = libc::tpacket_req {
        tp_block_size: BLOCK_BYTES as u32,
        tp_block_nr: (bytes / BLOCK_BYTES) as u32,
        tp_frame_size: PLACE_BYTES as u32,
        tp_frame_nr: SOURCES as u32,
    };
    set(socket, libc::PACKET_TX_RING, &request)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a descriptor that lives; the result is checked.
    let ring =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
    if ring == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(ring.cast()) }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call and `len` is its length.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, (&raw const *value).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_measure::Sizes;
    use scope_testkit::lab::Lab;

    #[test]
    fn batches_have_all_sizes_alike() {
        let mut batches = Batches::default();
        let mut met = [0; 2 * BATCH_PACED];
        for _ in 0..32_000 {
            met[batches.next() - 1] += 1;
        }
        assert!(met.iter().all(|times| (800..1200).contains(times)), "{met:?}");
    }

    #[test]
    fn frames_come_from_as_many_hosts_as_are_asked_for() {
        let mut frames = [[0u8; 64]; 2];
        frames[1][12..14].copy_from_slice(&[0x86, 0xdd]);
        for (frame, end) in frames.iter_mut().zip([30, 38]) {
            let mut in_turn = Hosts { count: 3, sent: Some(0), dice: Dice::default() };
            let mut by_chance = Hosts { count: 3, sent: None, dice: Dice::default() };
            let mut met = [0; 4];
            for number in 0..10 * SOURCES {
                in_turn.write(frame);
                assert_eq!(frame[end - 2..end], [0, (number / SOURCES % 3) as u8 + 1]);
                by_chance.write(frame);
                met[usize::from(frame[end - 1])] += 1;
            }
            assert!(met[0] == 0 && met[1..].iter().all(|times| (1500..2000).contains(times)), "{met:?}");
        }
    }

    #[test]
    fn what_the_link_took_has_arrived_and_a_rate_is_kept() {
        let Some(lab) = Lab::or_skip() else { return };
        let mut sender = Sender::open(lab.a(), "va", &Packets::new(Sizes::Fixed(64))).unwrap();
        let core = crate::cores::cores()[0];
        let sent = sender.send_for(core, Pace::PerSecond(20_000), Duration::from_millis(500)).unwrap();
        // A busy machine makes it late, and the span longer, never early; a batch more may be on its way.
        let due = (sent.span.as_secs_f64() * 20_000.0) as u64 + 64;
        assert!((1_000..=due).contains(&sent.packets), "{sent:?}");
        let more = sender.send_for(core, Pace::FlatOut, Duration::from_millis(100)).unwrap();
        assert_eq!(super::super::link::received(lab.b(), "vb").unwrap(), sent.packets + more.packets);
    }
}
