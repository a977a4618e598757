//! The few functions of libpcap that are called: filter text in, classic BPF out.
//!
//! Compiling is serialised: older libpcaps keep the compiler's state in globals, and filters are compiled rarely.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use scope_packet::LinkType;

use crate::bpf::Instruction;

/// Snap length for which programs are compiled, bytes: what an accepting program returns.
const SNAP_BYTES: c_int = 262_144;
/// No interface, no netmask: what tcpdump takes for capture files, and the only answer of `ip broadcast` that fits all sources.
const NETMASK: u32 = 0;

/// `struct bpf_program` of libpcap's ABI.
#[repr(C)]
struct RawProgram {
    len: u32,
    instructions: *mut Instruction,
}

/// `pcap_t`, only ever behind a pointer.
#[repr(C)]
struct RawHandle {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn pcap_open_dead(dlt: c_int, snap_bytes: c_int) -> *mut RawHandle;
    fn pcap_close(handle: *mut RawHandle);
    fn pcap_compile(
        handle: *mut RawHandle,
        program: *mut RawProgram,
        text: *const c_char,
        optimise: c_int,
        netmask: u32,
    ) -> c_int;
    fn pcap_freecode(program: *mut RawProgram);
    fn pcap_geterr(handle: *mut RawHandle) -> *const c_char;
    fn pcap_lib_version() -> *const c_char;
}

/// One compilation at a time.
static COMPILER: Mutex<()> = Mutex::new(());

/// A `pcap_t` that is open for one link type and captures nothing.
struct Handle(*mut RawHandle);

impl Handle {
    fn open(link: LinkType) -> Option<Handle> {
        // SAFETY: takes two integers and returns a handle of its own or null, which is checked.
        let raw = unsafe { pcap_open_dead(dlt(link), SNAP_BYTES) };
        (!raw.is_null()).then_some(Handle(raw))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pointer came from pcap_open_dead, was not null, and is closed only here.
        unsafe { pcap_close(self.0) }
    }
}

/// The number by which libpcap on Linux knows a link type that capture files number otherwise.
fn dlt(link: LinkType) -> c_int {
    match link.0 {
        100 => 11, // ATM with LLC
        101 => 12, // raw IP
        102 => 15, // SLIP of BSD/OS
        103 => 16, // PPP of BSD/OS
        106 => 19, // Linux classical IP over ATM
        same => same.into(),
    }
}

/// Compiles `text` for `link`, or gives libpcap's own words for why not. The text has passed [`crate::words::check`]: it
/// holds no names to resolve and is not nested deeper than libpcap's stack bears.
pub(crate) fn compile(text: &str, link: LinkType) -> Result<Vec<Instruction>, String> {
    let text = CString::new(text).map_err(|_| "a NUL byte inside the text".to_string())?;
    let _one_at_a_time = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = Handle::open(link).ok_or("libpcap is out of memory")?;
    let mut program = RawProgram { len: 0, instructions: std::ptr::null_mut() };
    // SAFETY: the handle is open, `program` is ours and of libpcap's layout, `text` ends with a NUL and outlives the call.
    let status = unsafe { pcap_compile(handle.0, &mut program, text.as_ptr(), 1, NETMASK) };
    if status != 0 {
        // SAFETY: the handle is open; the text lies inside it, ends with a NUL and is copied before it is closed.
        return Err(unsafe { CStr::from_ptr(pcap_geterr(handle.0)) }.to_string_lossy().into_owned());
    }
    let instructions = match program.instructions.is_null() {
        true => Vec::new(),
        // SAFETY: on success libpcap says that `len` initialised instructions stand there; they are copied before freeing.
        false => unsafe { std::slice::from_raw_parts(program.instructions, program.len as usize) }.to_vec(),
    };
    // SAFETY: pcap_compile filled `program`; it is freed once and not used afterwards.
    unsafe { pcap_freecode(&mut program) };
    Ok(instructions)
}

/// libpcap's own name and version, as `libpcap version 1.10.3 (with TPACKET_V3)`.
pub fn libpcap_version() -> String {
    // SAFETY: returns a pointer to a NUL-terminated text that libpcap never changes or frees.
    unsafe { CStr::from_ptr(pcap_lib_version()) }.to_string_lossy().into_owned()
}
