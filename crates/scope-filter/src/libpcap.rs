//! The few functions of libpcap that are called: filter text in, classic BPF out.
//!
//! Compiling is serialised: older libpcaps keep the compiler's state in globals, and filters are compiled
//! rarely.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use scope_packet::LinkType;

use crate::bpf::Instruction;
use crate::names::{self, Lists};

/// Snap length for which programs are compiled, bytes: what an accepting program returns.
const SNAP_BYTES: u32 = 262_144;
/// No interface, no netmask: what tcpdump uses for capture files, and the only answer of `ip broadcast` that
/// fits all sources.
const NETMASK: u32 = 0;

/// Bytes of a pcap file's head.
const FILE_HEAD_BYTES: usize = 24;
/// Room for libpcap's words on a failure to open.
const ERROR_BYTES: usize = 256;

/// Longer texts (bytes) are not optimised: libpcap's optimiser takes time with the third power of their
/// length (libpcap 1.10.3: 1 ms for 30 hosts, 40 ms for a hundred, 44 s for a thousand).
pub(crate) const OPTIMISED_BYTES_MAX: usize = 512;

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

// SAFETY: these are the declarations of libpcap's own headers, `FILE` that of libc.
unsafe extern "C" {
    fn pcap_fopen_offline(stream: *mut libc::FILE, cause: *mut c_char) -> *mut RawHandle;
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
    #[cfg(test)]
    fn bpf_filter(program: *const Instruction, data: *const u8, original_len: u32, captured_len: u32) -> u32;
}

/// One compilation at a time. The handle of the last one is kept: long texts are compiled in many pieces, and
/// opening takes as long as compiling one.
static COMPILER: Mutex<Option<(LinkType, ByteOrder, Handle)>> = Mutex::new(None);

/// A `pcap_t` that reads an empty capture file in memory, so that programs mean what they mean to
/// `tcpdump -r`: libpcap knows the link types by the numbers of files, all systems' numbers for IPv6 over
/// loopback, and that packets in files have no direction.
struct Handle {
    raw: *mut RawHandle,
    /// What the file reads until it is closed.
    _file_head: Box<[u8; FILE_HEAD_BYTES]>,
}

// SAFETY: libpcap ties no handle to a thread; this one is used under the lock only.
unsafe impl Send for Handle {}

impl Handle {
    fn open(link: LinkType, order: ByteOrder) -> Option<Handle> {
        let mut file_head = Box::new(file_head(link, order));
        // SAFETY: the buffer is boxed and lives until the stream that reads it is closed with the handle, or
        // just below.
        let stream = unsafe { libc::fmemopen(file_head.as_mut_ptr().cast(), FILE_HEAD_BYTES, c"r".as_ptr()) };
        if stream.is_null() {
            return None;
        }
        let mut cause = [0; ERROR_BYTES];
        // SAFETY: the stream is open; the buffer has the size that libpcap writes at most. On success the
        // handle owns the stream.
        let raw = unsafe { pcap_fopen_offline(stream, cause.as_mut_ptr()) };
        if raw.is_null() {
            // SAFETY: libpcap leaves the stream to its caller when it fails.
            unsafe { libc::fclose(stream) };
            return None;
        }
        Some(Handle { raw, _file_head: file_head })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pointer came from pcap_fopen_offline, was not null, and is closed only here; the buffer
        // is freed after.
        unsafe { pcap_close(self.raw) }
    }
}

/// In which byte order the host that captured writes words: libpcap minds it for BSD loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Native,
    Swapped,
}

/// The head of a pcap file: magic, version 2.4, zone and accuracy 0, snap length, link type.
fn file_head(link: LinkType, order: ByteOrder) -> [u8; FILE_HEAD_BYTES] {
    let mut head = [0; FILE_HEAD_BYTES];
    for (at, word) in [(0, 0xa1b2_c3d4u32), (16, SNAP_BYTES), (20, link.0.into())] {
        let word = if order == ByteOrder::Swapped { word.swap_bytes() } else { word };
        head[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    for (at, half) in [(4, 2u16), (6, 4)] {
        let half = if order == ByteOrder::Swapped { half.swap_bytes() } else { half };
        head[at..at + 2].copy_from_slice(&half.to_ne_bytes());
    }
    head
}

/// Compiles `text` for `link`, or gives libpcap's own words for why not. The text has passed
/// [`crate::words::check`]: it is not nested deeper than libpcap's stack bears. What names it holds become
/// numbers here, or are refused: libpcap looks none up.
pub(crate) fn compile(text: &str, link: LinkType, order: ByteOrder) -> Result<Vec<Instruction>, String> {
    translate(text, link, order, text.len() <= OPTIMISED_BYTES_MAX)
}

/// As [`compile`], never optimised.
pub(crate) fn compile_plain(
    text: &str,
    link: LinkType,
    order: ByteOrder,
) -> Result<Vec<Instruction>, String> {
    translate(text, link, order, false)
}

/// Whether libpcap understands `text`. Its optimiser isn't run.
pub(crate) fn understands(text: &str, link: LinkType) -> bool {
    compile_plain(text, link, ByteOrder::Native).is_ok()
}

fn translate(
    text: &str,
    link: LinkType,
    order: ByteOrder,
    optimise: bool,
) -> Result<Vec<Instruction>, String> {
    translate_numbered(&names::numbered(text, Lists::of_host)?, link, order, optimise)
}

/// As [`compile`], with the names left to libpcap, which looks them up.
#[cfg(test)]
pub(crate) fn compile_as_it_is(text: &str, link: LinkType) -> Result<Vec<Instruction>, String> {
    translate_numbered(text, link, ByteOrder::Native, true)
}

fn translate_numbered(
    text: &str,
    link: LinkType,
    order: ByteOrder,
    optimise: bool,
) -> Result<Vec<Instruction>, String> {
    let text = CString::new(text.as_bytes()).map_err(|_| "a NUL byte inside the text".to_string())?;
    let mut compiler = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = match &*compiler {
        Some((opened, in_order, handle)) if (*opened, *in_order) == (link, order) => handle,
        _ => {
            let handle =
                Handle::open(link, order).ok_or("libpcap does not know the link type, or memory is short")?;
            &compiler.insert((link, order, handle)).2
        }
    };
    let mut program = RawProgram { len: 0, instructions: std::ptr::null_mut() };
    // SAFETY: the handle is open, `program` is ours and of libpcap's layout, `text` ends with a NUL and
    // outlives the call.
    let status = unsafe { pcap_compile(handle.raw, &mut program, text.as_ptr(), optimise.into(), NETMASK) };
    if status != 0 {
        // SAFETY: the handle is open; the text lies inside it, ends with a NUL and is copied before it is
        // closed.
        let cause = unsafe { CStr::from_ptr(pcap_geterr(handle.raw)) }.to_string_lossy().into_owned();
        let cause = cause.replace(" when reading savefiles", "");
        return Err(cause.trim_start_matches("can't parse filter expression: ").into());
    }
    let instructions = match program.instructions.is_null() {
        true => Vec::new(),
        // SAFETY: on success libpcap says that `len` initialised instructions stand there; they are copied
        // before freeing.
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

/// libpcap's own interpreter, the oracle of the tests. `instructions` have passed
/// [`crate::bpf::Program::new`].
#[cfg(test)]
pub(crate) fn accepts(instructions: &[Instruction], data: &[u8], original_len: u32) -> bool {
    // SAFETY: the program was checked: it ends with a return, and its jumps and memory cells lie inside their
    // bounds. The length given is that of `data`, which is only read.
    unsafe { bpf_filter(instructions.as_ptr(), data.as_ptr(), original_len, data.len() as u32) != 0 }
}
