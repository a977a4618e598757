//! The memory that the kernel and one worker share: a ring of blocks, each owned by one of the two at any
//! time.
//!
//! The kernel fills the block at its own place in the ring and hands it over by setting TP_STATUS_USER in the
//! block's status word, when the block is full or its time is up. The worker takes blocks in the same order
//! and hands each back by TP_STATUS_KERNEL. A kernel that finds the next block not handed back yet drops
//! packets and counts them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use scope_packet::time::NS_PER_SECOND;

use super::block::{BLOCK_HEAD_BYTES, FIRST_TIME_AT, PACKETS_AT, STATUS_AT};

/// The mapped ring of one socket, and the place of the next block to take.
pub(super) struct BlockRing {
    memory: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone (never cloned, unmapped in drop), so it may move to the
// worker's thread.
unsafe impl Send for BlockRing {}

impl BlockRing {
    /// Maps the ring of `blocks` blocks of `block_bytes` that the socket `fd` was given before.
    pub(super) fn map(fd: BorrowedFd<'_>, block_bytes: usize, blocks: usize) -> io::Result<BlockRing> {
        assert!(block_bytes >= BLOCK_HEAD_BYTES && block_bytes.is_multiple_of(4096) && blocks > 0);
        let bytes = block_bytes.checked_mul(blocks).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours; the result is
        // checked.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Packets are no part of what a crash leaves behind. Advice only.
        // SAFETY: the range is the new mapping, and the advice changes no byte.
        unsafe { libc::madvise(memory, bytes, libc::MADV_DONTDUMP) };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(BlockRing { memory, block_bytes, blocks, next: 0 })
    }

    /// Start of the next block to take.
    fn next_block(&self) -> *mut u8 {
        debug_assert!(self.next < self.blocks);
        // SAFETY: `next` is below `blocks` (see `give_back`), so the block lies within the
        // `blocks * block_bytes` mapped bytes.
        unsafe { self.memory.as_ptr().add(self.next * self.block_bytes) }
    }

    /// A word in the head of the next block, as both sides may change it.
    fn head_word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= BLOCK_HEAD_BYTES && at.is_multiple_of(4));
        // SAFETY: blocks are page aligned and longer than their head (asserted in `map`), so the word is
        // mapped and aligned; it lives as long as `self`. No `&mut` to the block exists meanwhile: `take`
        // borrows the ring mutably.
        unsafe { AtomicU32::from_ptr(self.next_block().add(at).cast()) }
    }

    /// Whether the kernel has handed the next block over.
    pub(super) fn is_ready(&self) -> bool {
        // Acquire: the kernel wrote the packets before the status word.
        self.head_word(STATUS_AT).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Time of the first packet, ns since the epoch, of the next block, if the kernel has handed that over.
    pub(super) fn ready_since_ns(&self) -> Option<i64> {
        let word = |at| i64::from(self.head_word(at).load(Ordering::Relaxed));
        // Its Acquire orders the words behind it.
        self.is_ready().then(|| word(FIRST_TIME_AT) * NS_PER_SECOND + word(FIRST_TIME_AT + 4))
    }

    /// Whether packets lie in the next block, be it handed over or still being filled. May say so of an old
    /// block that the kernel has not opened again yet (for one block time at most).
    pub(super) fn holds_packets(&self) -> bool {
        self.head_word(PACKETS_AT).load(Ordering::Acquire) != 0
    }

    /// The next block, if the kernel has handed it over: ours until [`Self::give_back`].
    pub(super) fn take(&mut self) -> Option<&mut [u8]> {
        if !self.is_ready() {
            return None;
        }
        // SAFETY: the block lies within the mapping; its status says that the kernel does not write to it
        // until `give_back`, which needs `&mut self` and so can't run while the slice lives.
        Some(unsafe { std::slice::from_raw_parts_mut(self.next_block(), self.block_bytes) })
    }

    /// Hands the block that `take` gave back to the kernel and goes to the next one.
    pub(super) fn give_back(&mut self) {
        // Release: all our reads and writes of the block come before the kernel may fill it again.
        self.head_word(STATUS_AT).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
    }
}

impl Drop for BlockRing {
    fn drop(&mut self) {
        // SAFETY: exactly the bytes that `map` mapped; nothing borrows them any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.blocks * self.block_bytes) };
    }
}
