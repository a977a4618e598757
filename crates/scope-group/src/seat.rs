//! A seat of a group: the memory that its member reads, the page that it writes, and who sits there.
//!
//! ```text
//!        door                thread             thread             door              thread
//! free ───────► entering ───────────► active ───────────► ... ───────────► leaving ─────────► free
//!       a newcomer       its page says                     its connection          nothing is handed
//!                        where it began                    has ended               to it any more
//! ```

use scope_packet::segment::kept_bytes_max;
use scope_ring::{Ring, RingConfig, RingError, SEGMENTS_PER_LANE_MIN};
use scope_share::Page;
use scope_share::message::news;
use scope_share::passing::say;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Least bytes of a segment of a member's memory.
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
/// Bytes of one that keeps each packet whole that a ring can have.
const SEGMENT_BYTES_WHOLE: u64 = 1 << 20;
/// Most bytes of it.
const SEGMENT_BYTES_MAX: u64 = 2 << 20;
/// Segments that a member's memory has at least.
const SEGMENTS_MIN: u64 = SEGMENTS_PER_LANE_MIN;
/// Segments that it aims at, where these keep packets whole.
const SEGMENTS_AIM: u64 = 64;

const _: () = assert!(kept_bytes_max(SEGMENT_BYTES_WHOLE as usize) == kept_bytes_max(usize::MAX));

/// Least bytes of a member's memory.
pub const MEMORY_BYTES_MIN: u64 = SEGMENT_BYTES_MIN * SEGMENTS_MIN;

/// Bytes of a segment of a memory of so many bytes. Packets that are longer than a quarter of it find no room there.
fn segment_bytes(memory_bytes: u64) -> u64 {
    let whole = SEGMENT_BYTES_WHOLE.min(memory_bytes / SEGMENTS_MIN);
    let bytes = (memory_bytes / SEGMENTS_AIM).max(whole).max(1);
    (1u64 << bytes.ilog2()).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// How far whoever sits there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nobody sits there.
    Free = 0,
    /// Somebody does, and hasn't said yet where it begins.
    Entering = 1,
    /// It is given packets.
    Active = 2,
    /// It is gone, or was removed; the thread may be about to give it some.
    Leaving = 3,
}

/// Who takes a seat.
#[derive(Debug)]
pub struct Newcomer {
    /// Its share of the packets against that of others.
    pub weight: u16,
    /// The class of packets that it wants; empty: those without one.
    pub class: String,
    /// Its connection, to be told of news.
    pub connection: OwnedFd,
}

/// See the module.
pub struct Seat {
    memory: Arc<Ring>,
    page: Arc<Page>,
    phase: AtomicU8,
    newcomer: Mutex<Option<Newcomer>>,
    /// It stands still, and others have its flows.
    is_stuck: AtomicBool,
    /// Its member didn't read what it was waited for.
    is_removed: AtomicBool,
}

impl Seat {
    /// A free one, with a memory of so many bytes, which becomes resident as it is used.
    ///
    /// # Errors
    /// The memory or the page can't be had, or not be given to others.
    pub fn create(memory_bytes: u64, run_id: [u8; 16]) -> Result<Seat, RingError> {
        let (segment_bytes, workers, lanes) = (Some(segment_bytes(memory_bytes)), 1, 1);
        let memory =
            Ring::create(&RingConfig { ring_bytes: memory_bytes, segment_bytes, workers, lanes, run_id })?;
        let system = |place: &'static str| move |cause: io::Error| RingError::System { place, cause };
        if let Err(error) = memory.sealed_files() {
            return Err(system("a member's memory")(io::Error::new(error.kind(), error.to_string())));
        }
        let page = Page::create().map_err(system("a member's page"))?;
        Ok(Seat {
            memory,
            page: Arc::new(page),
            phase: AtomicU8::new(Phase::Free as u8),
            newcomer: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
        })
    }

    /// The memory that its member reads.
    pub fn memory(&self) -> &Arc<Ring> {
        &self.memory
    }

    /// Its page.
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// How far whoever sits there is.
    pub fn phase(&self) -> Phase {
        [Phase::Free, Phase::Entering, Phase::Active, Phase::Leaving]
            [usize::from(self.phase.load(Ordering::Acquire)).min(3)]
    }

    fn step(&self, from: Phase, to: Phase) -> bool {
        let stepped = self.phase.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
        stepped.is_ok()
    }

    /// Somebody takes it; whether it was free. Called by the door.
    pub fn enter(&self, newcomer: Newcomer) -> bool {
        if self.phase() != Phase::Free || self.page.clear().is_err() {
            return false;
        }
        *self.newcomer() = Some(newcomer);
        self.is_stuck.store(false, Ordering::Relaxed);
        self.is_removed.store(false, Ordering::Relaxed);
        self.step(Phase::Free, Phase::Entering)
    }

    fn newcomer(&self) -> MutexGuard<'_, Option<Newcomer>> {
        self.newcomer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever sits there is gone. Called by the door.
    pub fn leave(&self) {
        let _ = self.step(Phase::Entering, Phase::Leaving) || self.step(Phase::Active, Phase::Leaving);
    }

    /// Whoever enters is given packets from now on; `None`: it is gone again.
    pub(crate) fn begin(&self) -> Option<Newcomer> {
        let newcomer = self.newcomer().take();
        newcomer.filter(|_| self.step(Phase::Entering, Phase::Active))
    }

    /// Nobody writes there any more.
    pub(crate) fn release(&self) {
        *self.newcomer() = None;
        let _ = self.step(Phase::Leaving, Phase::Free);
    }

    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// Has its member sent away.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    /// Whether its member stands still, so that others have its flows.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Whether its member is to be sent away: a run that loses nothing has waited for it in vain.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}

impl Newcomer {
    /// Tells it that there is something. It is not waited for.
    pub(crate) fn tell(&self) {
        let _ = say(&self.connection, &news(), &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn newcomer() -> Newcomer {
        let (one, _other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        Newcomer { weight: 1, class: String::new(), connection: one }
    }

    #[test]
    fn a_memory_of_16_mib_or_more_keeps_every_packet_whole() {
        let check = |memory_mib: u64, segment_kib: u64| {
            assert_eq!(segment_bytes(memory_mib << 20), segment_kib << 10, "{memory_mib} MiB");
        };
        check(2, 128);
        check(3, 128);
        check(4, 256);
        check(8, 512);
        check(16, 1024);
        check(100, 1024);
        check(128, 2048);
        check(64 << 10, 2048);
    }

    #[test]
    fn a_seat_is_taken_once_and_free_when_the_thread_has_let_it_go() {
        let seat = Seat::create(MEMORY_BYTES_MIN, [1; 16]).unwrap();
        assert!(seat.enter(newcomer()) && !seat.enter(newcomer()));
        assert!(seat.begin().is_some() && seat.phase() == Phase::Active);
        seat.leave();
        assert!(!seat.enter(newcomer()), "the thread hasn't seen it yet");
        seat.release();
        assert!(seat.enter(newcomer()));
        seat.leave();
        assert!(seat.begin().is_none() && seat.phase() == Phase::Leaving);
        seat.release();
        assert_eq!(seat.phase(), Phase::Free);
    }
}
