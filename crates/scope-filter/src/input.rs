//! The input of a filter: a packet as predicates see it.

use std::marker::PhantomData;

use scope_packet::{BATCH_PACKETS_MAX, Headers, KeyEntry};

/// Packets that a predicate evaluates at once: a bit for each. A source's batch is no larger.
pub const FILTER_INPUTS_MAX: usize = 64;
const _: () = assert!(BATCH_PACKETS_MAX <= FILTER_INPUTS_MAX && FILTER_INPUTS_MAX == u64::BITS as usize);

/// A packet and what its worker knows of it. Machine code reads these fields where they stand.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FilterInput<'a> {
    /// With the length below it is a slice of lifetime `'a`.
    pub(crate) data: *const u8,
    pub(crate) captured_bytes: usize,
    pub(crate) original_bytes: u32,
    /// VLAN tags.
    pub(crate) tags: u32,
    key: KeyEntry,
    packet: PhantomData<&'a [u8]>,
}

impl Default for FilterInput<'_> {
    /// An empty packet.
    fn default() -> Self {
        FilterInput::new(&Headers::default(), KeyEntry::default(), &[], 0)
    }
}

impl<'a> FilterInput<'a> {
    /// The packet with captured bytes `data`, which had `original_len` bytes on the wire. `headers` is the
    /// parse of `data`, `key` its entry in the key column.
    #[inline]
    pub fn new(headers: &Headers, key: KeyEntry, data: &'a [u8], original_len: u32) -> FilterInput<'a> {
        FilterInput::tagged(headers.vlan_tags(), key, data, original_len)
    }

    /// The same of a packet whose VLAN tags were counted.
    #[inline]
    pub fn tagged(vlan_tags: u32, key: KeyEntry, data: &'a [u8], original_len: u32) -> FilterInput<'a> {
        FilterInput {
            data: data.as_ptr(),
            captured_bytes: data.len(),
            original_bytes: original_len,
            tags: vlan_tags,
            key,
            packet: PhantomData,
        }
    }

    /// The captured bytes.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        // SAFETY: `tagged`, the only place that makes one, took pointer and length from a slice of lifetime
        // `'a`.
        unsafe { std::slice::from_raw_parts(self.data, self.captured_bytes) }
    }

    /// Bytes on the wire.
    #[inline]
    pub fn original_len(&self) -> u32 {
        self.original_bytes
    }

    /// The entry in the key column.
    #[inline]
    pub fn key(&self) -> &KeyEntry {
        &self.key
    }
}

/// A bit for each packet, up to [`FILTER_INPUTS_MAX`].
#[inline]
pub(crate) fn bits(packets: &[FilterInput<'_>]) -> u64 {
    u64::MAX.checked_shr((FILTER_INPUTS_MAX - packets.len().min(FILTER_INPUTS_MAX)) as u32).unwrap_or(0)
}
