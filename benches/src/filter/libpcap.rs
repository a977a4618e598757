//! libpcap's own compiler and interpreter: what filters are measured against.

use anyhow::{Result, bail};
use std::ffi::{CString, c_char, c_int, c_void};

/// Snap length for which programs are compiled, bytes.
const SNAP_BYTES: c_int = 262_144;
/// Ethernet, to libpcap.
const ETHERNET: c_int = 1;

/// `struct bpf_program` of libpcap's ABI.
#[repr(C)]
struct RawProgram {
    len: u32,
    instructions: *mut c_void,
}

// SAFETY: these are the declarations of libpcap's own headers.
unsafe extern "C" {
    fn pcap_open_dead(link: c_int, snap_bytes: c_int) -> *mut c_void;
    fn pcap_close(handle: *mut c_void);
    fn pcap_compile(
        handle: *mut c_void,
        out: *mut RawProgram,
        text: *const c_char,
        optimise: c_int,
        netmask: u32,
    ) -> c_int;
    fn pcap_freecode(program: *mut RawProgram);
    fn bpf_filter(program: *const c_void, data: *const u8, original_bytes: u32, captured_bytes: u32) -> u32;
}

/// A filter as libpcap compiles it for Ethernet, optimised.
pub struct BpfFilter(RawProgram);

impl BpfFilter {
    /// Compiles `text`.
    ///
    /// # Errors
    /// Where libpcap refuses it.
    pub fn new(text: &str) -> Result<BpfFilter> {
        let c_text = CString::new(text)?;
        let mut program = RawProgram { len: 0, instructions: std::ptr::null_mut() };
        // SAFETY: takes two numbers; the handle is checked before it is used.
        let handle = unsafe { pcap_open_dead(ETHERNET, SNAP_BYTES) };
        if handle.is_null() {
            bail!("libpcap has no memory for a handle");
        }
        // SAFETY: the handle is open, `program` is ours and of libpcap's layout, the text ends with a NUL and
        // outlives the call.
        let status = unsafe { pcap_compile(handle, &mut program, c_text.as_ptr(), 1, 0) };
        // SAFETY: the handle is open and not used afterwards.
        unsafe { pcap_close(handle) };
        if status != 0 {
            bail!("libpcap refuses '{text}'");
        }
        Ok(BpfFilter(program))
    }

    /// Instructions.
    pub fn len(&self) -> u32 {
        self.0.len
    }

    /// Whether a packet that is captured whole matches.
    #[inline]
    pub fn matches(&self, data: &[u8]) -> bool {
        let bytes = data.len() as u32;
        // SAFETY: the program is libpcap's own; the data are read only, and their length is given.
        unsafe { bpf_filter(self.0.instructions, data.as_ptr(), bytes, bytes) != 0 }
    }
}

impl Drop for BpfFilter {
    fn drop(&mut self) {
        // SAFETY: filled by pcap_compile, freed once.
        unsafe { pcap_freecode(&mut self.0) }
    }
}
