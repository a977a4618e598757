//! The memory that Rust and Lua share: a control word for the loop, records of packets, keys of flows.
//!
//! Lua has its address for as long as its state lives, so it neither moves nor goes before. Rust touches it only
//! between calls of Lua, or in a function that Lua calls: in one thread, one after the other. All access is by
//! raw pointers, or by references that end before Lua runs.
//!
//! What a script can keep is a record. So records are never freed, and are emptied when the bytes they speak of
//! aren't lent any more: a kept view then gives nil.

use crate::record::{KEY_BYTES, Key, Lent, RECORDS_MAX, Record};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::{NonNull, addr_of_mut};

/// Packets that fired and whose dumps are being written: their records stand behind those of the batch.
pub(crate) const KEEPERS_MAX: usize = 64;
const SLOTS: usize = RECORDS_MAX + KEEPERS_MAX;
/// LuaJIT takes light user data below 2^47 for addresses.
const _: () = assert!(RECORDS_MAX <= u16::MAX as usize + 1);

/// As `lua/types.lua` has it.
#[repr(C)]
struct Control {
    at: i32,
    hits: i32,
    detailed: i32,
    fail_row: i32,
    errors: i64,
    now: i64,
    hit: [u16; RECORDS_MAX],
}

#[repr(C)]
struct Memory {
    control: Control,
    records: [Record; SLOTS],
    keys: [Key; SLOTS],
}

/// The memory of one Lua state.
#[derive(Debug)]
pub(crate) struct Lending {
    memory: NonNull<Memory>,
}

impl Lending {
    pub(crate) fn new() -> Lending {
        let layout = Layout::new::<Memory>();
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(layout) };
        // All zero is a legal value of every field.
        let memory = NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout));
        Lending { memory }
    }

    /// Addresses of control, records and keys, for Lua.
    pub(crate) fn addresses(&self) -> [*mut c_void; 3] {
        let memory = self.memory.as_ptr();
        // SAFETY: the fields lie in the allocation; no reference is made.
        unsafe {
            [
                addr_of_mut!((*memory).control).cast(),
                addr_of_mut!((*memory).records).cast(),
                addr_of_mut!((*memory).keys).cast(),
            ]
        }
    }

    /// Lends a packet to the script, until `take_back`. A record that Lua reads later holds its address: the
    /// caller takes it back before the bytes go.
    #[inline]
    pub(crate) fn lend(&self, slot: usize, packet: &Lent<'_>, with_key: bool) {
        assert!(slot < SLOTS);
        // SAFETY: the slot lies in the arrays, whose values are legal from the start, and Lua doesn't run: these
        // are the only references to them, and end here.
        unsafe {
            let record = &mut *addr_of_mut!((*self.memory.as_ptr()).records).cast::<Record>().add(slot);
            record.set(packet, slot);
            if with_key {
                let key = record.key(packet.data).unwrap_or_default();
                addr_of_mut!((*self.memory.as_ptr()).keys).cast::<Key>().add(slot).write(key);
            }
        }
    }

    /// Takes back what was lent in these slots.
    pub(crate) fn take_back(&self, from: usize, count: usize) {
        assert!(from + count <= SLOTS);
        // SAFETY: the slots lie in the array; a record of zeros is one of an empty packet.
        unsafe {
            addr_of_mut!((*self.memory.as_ptr()).records).cast::<Record>().add(from).write_bytes(0, count);
        }
    }

    /// The flow's key of what is lent in a slot.
    pub(crate) fn key(&self, slot: usize) -> Option<[u8; KEY_BYTES]> {
        if slot >= SLOTS {
            return None;
        }
        // SAFETY: the slot lies in the array.
        let record =
            unsafe { addr_of_mut!((*self.memory.as_ptr()).records).cast::<Record>().add(slot).read() };
        if record.captured <= 0 {
            return None;
        }
        let bytes = std::ptr::with_exposed_provenance::<u8>(record.data as usize);
        // SAFETY: a record that isn't empty is lent: `lend` took address and length from a slice that lives
        // until `take_back`. The fields are constant for Lua, except by raw pointers.
        let data = unsafe { std::slice::from_raw_parts(bytes, record.captured as usize) };
        record.key(data).map(|key| key.bytes())
    }

    /// Forgets what the last call hit: one that fails before it begins hits nothing.
    pub(crate) fn forget_hits(&self) {
        // SAFETY: fields of the allocation.
        unsafe {
            addr_of_mut!((*self.memory.as_ptr()).control.hits).write(0);
            addr_of_mut!((*self.memory.as_ptr()).control.detailed).write(0);
        }
    }

    /// Indices of the packets that the loop hit, in order, into `hits`.
    pub(crate) fn hits(&self, count: usize, hits: &mut Vec<usize>) {
        hits.clear();
        // SAFETY: fields of the allocation, copied.
        let (found, places) = unsafe {
            let control = addr_of_mut!((*self.memory.as_ptr()).control);
            ((*control).hits, addr_of_mut!((*control).hit).read())
        };
        let found = usize::try_from(found).unwrap_or(0).min(places.len());
        hits.extend(places[..found].iter().map(|&at| usize::from(at)).filter(|&at| at < count));
    }

    /// How many answers have details.
    pub(crate) fn detailed(&self) -> bool {
        // SAFETY: a field of the allocation, copied.
        unsafe { (*self.memory.as_ptr()).control.detailed != 0 }
    }

    /// Errors so far, and how many packets failed in a row.
    pub(crate) fn errors(&self) -> (u64, u32) {
        // SAFETY: fields of the allocation, copied.
        let (errors, row) =
            unsafe { ((*self.memory.as_ptr()).control.errors, (*self.memory.as_ptr()).control.fail_row) };
        (u64::try_from(errors).unwrap_or(0), u32::try_from(row).unwrap_or(0))
    }

    /// The time of a tick, ns.
    pub(crate) fn set_now(&self, now_ns: i64) {
        // SAFETY: a field of the allocation.
        unsafe { addr_of_mut!((*self.memory.as_ptr()).control.now).write(now_ns) }
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and nobody has the address any more: the Lua state that
        // got it holds this value, too (`state.rs`).
        unsafe { dealloc(self.memory.as_ptr().cast(), Layout::new::<Memory>()) }
    }
}
