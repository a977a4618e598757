//! Whoever follows a capture file while it is read: its bytes as they stand in it, and how its reading ended.

use std::fmt;

/// Follows the reading of one file. Whichever thread reads calls it, one at a time, and waits for it.
pub trait Follow: Send + Sync + fmt::Debug {
    /// The next bytes of the file, as they stand in it: nothing is decompressed yet. None: its end.
    fn bytes(&self, bytes: &[u8]);

    /// Nothing more of it is read. So many packets came; `is_whole`: there are no others.
    fn ended(&self, packets: u64, is_whole: bool);
}
