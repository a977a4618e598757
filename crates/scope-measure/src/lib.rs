//! What a machine's memory takes, and what the ring makes of it: shared by `wirescope bench` and the
//! project's benches.
//!
//! ```text
//! packets   512 made packets of one size or mix, small enough for a core's own cache
//! fill      non-temporal filling of chunks: the limit of everything that is stored
//! feed      a lane that is fed with those packets as a worker would do it, and the check of what lies in the ring
//! run       all of them together, the result checked
//! follow    readers that follow a lane: by its packets, or by its key column only
//! ```
//! Nothing here is in the packet path. Every measurement can check its own result; never with zero bytes,
//! which memory takes at twice the real speed.

mod feed;
mod fill;
mod follow;
mod packets;
mod run;

pub use feed::{Fed, Feeder, check_ring, ring};
pub use fill::{check_filled, copy, fill, sum, uses_avx512};
pub use follow::{ColumnFollower, Followed, PacketFollower};
pub use packets::{Packets, SOURCES, Sizes};
pub use run::{Beside, Run, fill_rate, together};

pub use scope_ring::Arena;

use std::time::{SystemTime, UNIX_EPOCH};

/// Sixteen bytes that differ from run to run: what a ring of a measurement is named with.
fn run_id() -> [u8; 16] {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    now_ns.to_le_bytes()
}
