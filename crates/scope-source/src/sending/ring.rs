//! The ring in shared memory that packets are handed to the kernel in: TPACKET_V2, `PACKET_TX_RING`.
//!
//! ```text
//! slot, a power of two bytes:  | status u32 | length u32 | ... 32 | virtio-net header 10 | packet |
//! status:  AVAILABLE ─► (we) SEND_REQUEST ─► (kernel, within the call) SENDING ─► AVAILABLE once the packet is gone
//! ```
//! The kernel goes round the slots in order, within our calls alone. Where it fails at one, it says why, and stays at that
//! slot: what it hasn't taken is withdrawn, and put there again if it is to be. So each packet's fate is known.
//!
//! The header in front of a packet (`PACKET_VNET_HDR`) says how much of it is to be copied into the kernel's own memory: all
//! of it, up to [`COPIED_MAX`]. Without it each packet is handed over by page, which costs more than a copy of a small one.

use super::burst::Frame;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot before the packet: the kernel's header and the virtio-net header.
const HEAD_BYTES: usize = 32;
const VNET_BYTES: usize = 10;
/// Where that says how many bytes are copied.
const VNET_COPIED_AT: usize = 2;
/// Bytes of a packet that the kernel copies at most; what is beyond is handed over by page.
const COPIED_MAX: usize = 2048;
/// Where the length stands in a slot, behind the status.
const LENGTH_AT: usize = 4;
/// Bytes of a block, unless a slot is larger.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of the ring, unless that is fewer than [`SLOTS_MIN`] slots.
const RING_BYTES: usize = 1 << 20;
const SLOTS_MIN: usize = 8;

const _: () = assert!(size_of::<libc::tpacket2_hdr>() == HEAD_BYTES);

/// A ring that is mapped, and where the kernel is in it.
#[derive(Debug)]
pub(super) struct SendRing {
    memory: NonNull<u8>,
    bytes: usize,
    slot_bytes: usize,
    slots: usize,
    /// The slot that the kernel looks at next.
    at: usize,
}

// SAFETY: the mapping belongs to this value alone, and is reached through `&mut self` only.
unsafe impl Send for SendRing {}

impl SendRing {
    /// Makes and maps the ring of a packet socket, for packets of `packet_bytes_max` bytes at most.
    ///
    /// # Errors
    /// The system's: a kernel without one of these, or without memory.
    pub(super) fn make(socket: BorrowedFd<'_>, packet_bytes_max: usize) -> io::Result<SendRing> {
        let slot_bytes = (HEAD_BYTES + VNET_BYTES + packet_bytes_max).next_power_of_two();
        let block_bytes = BLOCK_BYTES.max(slot_bytes);
        let bytes = RING_BYTES.max(SLOTS_MIN * slot_bytes);
        let slots = bytes / slot_bytes;
        let request = libc::tpacket_req {
            tp_block_size: block_bytes as u32,
            tp_block_nr: (bytes / block_bytes) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        set(socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        set(socket, libc::PACKET_VNET_HDR, &1i32)?;
        set(socket, libc::PACKET_TX_RING, &request)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of the ring that was just made, of just its bytes; the kernel chooses where.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SendRing { memory, bytes, slot_bytes, slots, at: 0 })
    }

    /// Puts packets into the slots that the kernel looks at next, as far as they are free; how many.
    pub(super) fn put(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut count = 0;
        for frame in frames.iter().take(self.slots) {
            let (status, slot) = self.slot(count);
            let len = frame.data.len() + frame.zeros as usize;
            if status.load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE || len > slot.len() - VNET_BYTES {
                break;
            }
            let (head, packet) = slot.split_at_mut(VNET_BYTES);
            head.fill(0);
            head[VNET_COPIED_AT..][..2].copy_from_slice(&(len.min(COPIED_MAX) as u16).to_ne_bytes());
            packet[..frame.data.len()].copy_from_slice(frame.data);
            packet[frame.data.len()..len].fill(0);
            self.set_length(count, (VNET_BYTES + len) as u32);
            let (status, _) = self.slot(count);
            // The kernel reads the packet behind this.
            status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
            count += 1;
        }
        count
    }

    /// After a call: how many of the `count` packets that were put the kernel has taken. The others are withdrawn.
    pub(super) fn take_back(&mut self, count: usize) -> usize {
        let is_open =
            |status: u32| status & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT) != 0;
        let mut taken = 0;
        while taken < count && !is_open(self.slot(taken).0.load(Ordering::Acquire)) {
            taken += 1;
        }
        for number in taken..count {
            self.slot(number).0.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
        self.at = (self.at + taken) % self.slots;
        taken
    }

    /// The status of a slot, `number` behind the next one, and its bytes behind the kernel's header.
    fn slot(&mut self, number: usize) -> (&AtomicU32, &mut [u8]) {
        let begin = (self.at + number) % self.slots * self.slot_bytes;
        // SAFETY: the slot lies in the mapping, which lives as long as `self`, and begins at a multiple of its size, so the
        // status is aligned; it is shared with the kernel, and only reached as an atomic.
        let status = unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(begin).cast()) };
        let len = self.slot_bytes - HEAD_BYTES;
        // SAFETY: the same slot, behind the status. The kernel writes nothing there, and reads it within calls on the
        // socket, which the owner of this value makes while no slice is out.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(begin + HEAD_BYTES), len) };
        (status, bytes)
    }

    fn set_length(&mut self, number: usize, length: u32) {
        let begin = (self.at + number) % self.slots * self.slot_bytes;
        // SAFETY: within the same slot's header, aligned to 4; an atomic, as the status is, since the kernel writes there, too.
        let word = unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(begin + LENGTH_AT).cast()) };
        word.store(length, Ordering::Relaxed);
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made, and nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

fn set<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call and `len` is its length; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, name, (value as *const T).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
