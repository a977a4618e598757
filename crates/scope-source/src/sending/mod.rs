//! Packets of a source out of an interface: which of them it takes, when each is due, and the sockets that send them.
//!
//! ```text
//!  source ─► dealer: judged, padded, dated ─┬─► burst ─► sender ─► packet socket ─┐
//!            (the thread that reads)        └─► burst ─► sender ─► packet socket ─┴─► interface
//! ```
//! One thread reads and deals packets out to queues: a flow, both directions of it, goes to one queue, so it stays in
//! order. Each queue has a thread and a socket. What is dealt lies in bursts, of which a queue has [`BURSTS_MAX`] at
//! most: whoever reads waits for those who send.
//!
//! | module | what it holds |
//! |---|---|
//! | `outlet` | the interface: what it takes, and whether it may be sent out of it |
//! | `schedule` | when a packet is due |
//! | `clock` | waiting until then |
//! | `burst` | packets on their way to a socket |
//! | `dealer` | the sink of the source |
//! | `straight` | the same in one thread, as packets come |
//! | `sender` | one queue's thread |
//! | `socket`, `ring` | its socket, and the ring in memory that it shares with the kernel |
//! | `counts` | read = sent + refused, by reason |
//!
//! Absent on purpose: nothing of a packet is changed but zeros behind its bytes, no checksum is mended, and no packet
//! is sent twice, whatever the system says of it.

mod burst;
mod clock;
mod counts;
mod dealer;
mod outlet;
mod ring;
mod schedule;
mod sender;
mod socket;
mod straight;

pub use burst::Burst;
pub use clock::{Clock, SystemClock};
pub use counts::{Counts, Refusal};
pub use dealer::{Dealer, DealerEnd, Judge, Padding, SenderEnd, queues};
pub use outlet::{Outlet, OutletFault, not_opened};
pub use schedule::{Pace, Schedule};
pub use sender::{Begin, Sender, Wire};
pub use socket::{SendSocket, sharpen_timers};
pub use straight::Straight;

/// Queues of one sending at most.
pub const QUEUES_MAX: u32 = 64;
/// Bursts of a queue that wait to be sent, at most.
pub const BURSTS_MAX: usize = 3;
