//! A member of the group, and the packets that it was lent last, as a copy.
//!
//! ```text
//! fill          the next batch of the member is copied whole ─► was it overwritten meanwhile? then it is forgotten, and missed
//! next_packet   one packet of the copy after another; those of other link types are left out, and counted
//! ```
//! The copy is the program's alone: it may be written to, and nothing changes in it while a filter looks at it.

use crate::{GROUP, OPTIONS, SOCKET};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::env;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;
use wirescope::{Counts, Member, Next, Options, Packet};

/// How long the first interface of a run that has just begun is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// It is looked for so often.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What the link type is where there was no interface in that time.
const ETHERNET: u16 = 1;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Capture time, ns since the epoch.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub original: u32,
    /// `epb_flags`, 0 where there are none.
    pub flags: u32,
    interface: u32,
    at: usize,
    bytes: usize,
}

/// What [`Capture::fill`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Packets.
    Packets,
    /// None yet.
    NoneYet,
    /// The run is over, and all that it left was handed out.
    Ended,
}

/// A member that reads.
pub struct Capture {
    member: Member,
    link_type: u16,
    /// Link types of the run's interfaces, as far as they are known.
    types: Vec<u16>,
    heads: Vec<Head>,
    bytes: Vec<u8>,
    next: usize,
    other_types: u64,
    has_ended: bool,
    waiting: Option<Waiting>,
}

/// What a program polls: readable where packets may be there already, or the member's own descriptor is.
struct Waiting {
    both: OwnedFd,
    /// Readable: packets may be there already.
    there: OwnedFd,
}

impl Capture {
    /// Joins the group that the environment names.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn open() -> Result<Capture, String> {
        let group = env::var(GROUP).map_err(|_| format!("{GROUP} names no group"))?;
        let socket = env::var_os(SOCKET).map(PathBuf::from);
        let options = env::var(OPTIONS).unwrap_or_default();
        let options = Options::parse(&options)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let mut member =
            Member::open(socket.as_deref(), &group, &options).map_err(|error| error.to_string())?;
        let link_type = first_link_type(&mut member)?;
        Ok(Capture {
            member,
            link_type,
            types: Vec::new(),
            heads: Vec::new(),
            bytes: Vec::new(),
            next: 0,
            other_types: 0,
            has_ended: false,
            waiting: None,
        })
    }

    /// The link type of the packets that are handed out: that of the run's first interface.
    pub fn link_type(&self) -> u16 {
        self.link_type
    }

    /// Whether the run was seen to be over.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What the member has seen and missed.
    pub fn counts(&self) -> Counts {
        self.member.counts()
    }

    /// Packets of other link types.
    pub fn other_types(&self) -> u64 {
        self.other_types
    }

    /// Copies the next packets, waiting for them for this time.
    ///
    /// # Errors
    /// What stands in the ring can't be so.
    pub fn fill(&mut self, wait: Duration) -> Result<Filled, String> {
        self.heads.clear();
        self.bytes.clear();
        self.next = 0;
        let packets = match self.member.next(Some(wait)).map_err(|error| error.to_string())? {
            Next::Packets(packets) => packets,
            Next::NoneYet => {
                self.say_that_packets_are_there(false);
                return Ok(Filled::NoneYet);
            }
            Next::Ended => {
                self.has_ended = true;
                self.say_that_packets_are_there(true); // whoever polls reads that it has ended
                return Ok(Filled::Ended);
            }
        };
        for index in 0..packets {
            let Some(packet) = self.member.packet(index) else { break };
            let Packet { data, time_ns, original_len: original, interface, flags, .. } = packet;
            let (at, bytes) = (self.bytes.len(), data.len());
            self.bytes.resize(at + bytes, 0);
            data.copy_to(&mut self.bytes[at..]);
            self.heads.push(Head { time_ns, original, flags, interface, at, bytes });
        }
        if !self.member.is_whole() {
            self.heads.clear();
        }
        self.say_that_packets_are_there(true);
        Ok(Filled::Packets)
    }

    /// The next packet of the copy.
    pub fn next_packet(&mut self) -> Option<(Head, &[u8])> {
        while let Some(head) = self.heads.get(self.next).copied() {
            self.next += 1;
            if self.type_of(head.interface) == Some(self.link_type) {
                return self.bytes.get(head.at..head.at + head.bytes).map(|data| (head, data));
            }
            self.other_types += 1;
        }
        None
    }

    fn type_of(&mut self, interface: u32) -> Option<u16> {
        let number = interface as usize;
        while self.types.len() <= number {
            let interface = self.member.interface(self.types.len() as u32).ok()??;
            self.types.push(interface.link_type.0);
        }
        Some(self.types[number])
    }

    /// A descriptor that is readable where there may be packets, or the run is over.
    ///
    /// # Errors
    /// The system's.
    pub fn descriptor(&mut self) -> io::Result<RawFd> {
        if self.waiting.is_none() {
            let there = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let both = epoll::create(CreateFlags::CLOEXEC)?;
            epoll::add(&both, &there, EventData::new_u64(0), EventFlags::IN)?;
            epoll::add(&both, self.member.poll_fd()?, EventData::new_u64(1), EventFlags::IN)?;
            self.waiting = Some(Waiting { both, there });
        }
        self.waiting.as_ref().map(|waiting| waiting.both.as_raw_fd()).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Whoever polls needn't wait, or has to.
    fn say_that_packets_are_there(&self, are_there: bool) {
        let Some(Waiting { there, .. }) = &self.waiting else { return };
        // Neither waits, and neither fails but where it says already what it should.
        let _ = match are_there {
            true => rustix::io::write(there, &1_u64.to_ne_bytes()),
            false => rustix::io::read(there, &mut [0_u8; 8]),
        };
    }
}

/// The link type of the run's first interface, which comes with its first packet where files are read.
fn first_link_type(member: &mut Member) -> Result<u16, String> {
    for _ in 0..PATIENCE.as_millis() / LOOK_EVERY.as_millis() {
        if let Some(interface) = member.interface(0).map_err(|error| error.to_string())? {
            return Ok(interface.link_type.0);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(ETHERNET)
}
