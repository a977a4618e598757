//! The C interface of `include/wirescope.h`: pointers of the caller become references here, and nowhere else.
//!
//! What must hold is what the header says: a `ws` comes from `ws_open`, was not closed, and belongs to one thread at a time;
//! texts end with a NUL; structures are as long as they say. A pointer that is NULL is refused everywhere.

use crate::error::{OpenError, ReadError};
use crate::member::{Counts, Member, Next, Packet};
use crate::options::Options;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// The run has ended.
const ENDED: c_int = -1;
/// It failed.
const FAILED: c_int = -2;
/// There is no such thing.
const NONE: c_int = -1;

/// A member, and what it says of its failure.
#[allow(non_camel_case_types)] // as C knows it
pub struct ws {
    member: Member,
    error: CString,
}

/// `struct ws_packet`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, non_camel_case_types)] // the header says what they are
pub struct ws_packet {
    pub size: u32,
    pub captured: u32,
    pub data: *const u8,
    pub time_ns: i64,
    pub original: u32,
    pub interface: u32,
    pub flags: u32,
    pub mark: u32,
    pub lost_before: u64,
}

/// `struct ws_counts`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, non_camel_case_types)] // as above
pub struct ws_counts {
    pub size: u32,
    pub reserved: u32,
    pub seen: u64,
    pub missed: u64,
    pub behind: u64,
}

/// Bytes of an interface's name, its NUL included.
const NAME_BYTES: usize = 256;

/// `struct ws_interface`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, non_camel_case_types)] // as above
pub struct ws_interface {
    pub size: u32,
    pub link_type: u32,
    pub name: [u8; NAME_BYTES],
}

// Their sizes are what programs were built against: a field more is added at the end.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ws_packet>() == 48);
const _: () = assert!(size_of::<ws_counts>() == 32 && size_of::<ws_interface>() == 264);

/// Fills as much of a structure as its caller knows with what `make` makes; its size stays as the caller has set it.
///
/// # Safety
/// `to` is NULL, or begins with a `u32`, and as many bytes as that says may be written there.
#[inline(always)]
unsafe fn fill<T: Copy>(to: *mut T, make: impl Fn() -> T) -> c_int {
    if to.is_null() {
        return NONE;
    }
    // SAFETY: not NULL by the comparison, and so long by this function's contract.
    let size = unsafe { to.cast::<u32>().read_unaligned() };
    if size as usize >= size_of::<T>() {
        // SAFETY: so many bytes may be written by the comparison and this function's contract. It is made here and made
        // again below, so that its address is never taken here, and each field is stored from its register: a copy of
        // the structure would wait for these stores.
        unsafe {
            to.write_unaligned(make());
            to.cast::<u32>().write_unaligned(size);
        }
        return 0;
    }
    // SAFETY: by this function's contract.
    unsafe { fill_some(to, &make(), size as usize) }
}

/// The same of a structure that is shorter than it is known here.
///
/// # Safety
/// `size` bytes may be written to `to`, no more than a `T` has.
#[cold]
unsafe fn fill_some<T: Copy>(to: *mut T, value: &T, size: usize) -> c_int {
    const SIZE_BYTES: usize = size_of::<u32>();
    let bytes = size.min(size_of::<T>());
    if bytes < SIZE_BYTES {
        return NONE;
    }
    // SAFETY: inside the caller's structure by this function's contract, and inside `value`, by the minimum of both.
    unsafe {
        let from = std::ptr::from_ref(value).cast::<u8>().add(SIZE_BYTES);
        std::ptr::copy_nonoverlapping(from, to.cast::<u8>().add(SIZE_BYTES), bytes - SIZE_BYTES);
    }
    0
}

/// A text of the caller; NULL: none.
///
/// # Safety
/// It is NULL, or ends with a NUL, and stays as it is for `'a`.
unsafe fn text<'a>(place: &'static str, text: *const c_char) -> Result<Option<&'a str>, OpenError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL by the comparison, and ended by this function's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| OpenError::NoText(place))
}

/// Writes a text with its NUL, as much of it as there is room for.
///
/// # Safety
/// `to` is NULL, or has room for so many bytes.
unsafe fn tell(to: *mut c_char, room: usize, words: &str) {
    let Some(room) = room.checked_sub(1).filter(|_| !to.is_null()) else { return };
    let words = words.split('\0').next().unwrap_or_default();
    let words = &words[..words.floor_char_boundary(room)];
    // SAFETY: `words` and a NUL fit into the room that there is by this function's contract.
    unsafe {
        std::ptr::copy_nonoverlapping(words.as_ptr(), to.cast(), words.len());
        to.add(words.len()).write(0);
    }
}

/// Joins a group; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_open(
    socket: *const c_char,
    group: *const c_char,
    options: *const c_char,
    error: *mut c_char,
    error_bytes: usize,
) -> *mut ws {
    let open = || {
        // SAFETY: texts of the caller, which stay as they are during this call.
        let texts = unsafe { [text("socket", socket)?, text("group", group)?, text("options", options)?] };
        let [socket, group, options] = texts;
        let options = Options::parse(options.unwrap_or_default()).map_err(OpenError::Options)?;
        Member::open(socket.map(Path::new), group.unwrap_or_default(), &options)
    };
    match open() {
        Ok(member) => {
            // SAFETY: a buffer of the caller, as long as the caller says.
            unsafe { tell(error, error_bytes, "") };
            Box::into_raw(Box::new(ws { member, error: CString::default() }))
        }
        Err(why) => {
            // SAFETY: as above.
            unsafe { tell(error, error_bytes, &why.to_string()) };
            std::ptr::null_mut()
        }
    }
}

impl ws {
    fn next(&mut self, timeout_ms: c_int) -> c_int {
        let wait = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        match self.member.next(wait) {
            Ok(Next::Packets(packets)) => packets as c_int,
            Ok(Next::NoneYet) => 0,
            Ok(Next::Ended) => ENDED,
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &ReadError) -> c_int {
        self.error = CString::new(error.to_string()).unwrap_or_default();
        FAILED
    }
}

/// Goes on to the next packets; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_next(w: *mut ws, timeout_ms: c_int) -> c_int {
    // SAFETY: NULL, or from `ws_open` and of this thread alone, by this function's contract.
    unsafe { w.as_mut() }.map_or(FAILED, |w| w.next(timeout_ms))
}

/// One of the packets; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_packet(w: *mut ws, index: c_int, to: *mut ws_packet) -> c_int {
    // SAFETY: as of `ws_next`.
    let Some(w) = (unsafe { w.as_mut() }) else { return NONE };
    let Some(packet) = u32::try_from(index).ok().and_then(|index| w.member.packet(index)) else {
        return NONE;
    };
    let Packet { data, time_ns, original_len, interface, flags, mark, lost_before } = packet;
    let make = || ws_packet {
        size: 0,
        captured: data.len() as u32,
        data: data.as_ptr(),
        time_ns,
        original: original_len,
        interface,
        flags,
        mark,
        lost_before,
    };
    // SAFETY: a structure of the caller, as long as it says.
    unsafe { fill(to, make) }
}

/// Whether the packets are whole; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_done(w: *mut ws) -> c_int {
    // SAFETY: as of `ws_next`.
    unsafe { w.as_mut() }.map_or(0, |w| c_int::from(!w.member.is_whole()))
}

/// An interface; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_interface(w: *mut ws, interface: u32, to: *mut ws_interface) -> c_int {
    // SAFETY: as of `ws_next`.
    let Some(w) = (unsafe { w.as_mut() }) else { return NONE };
    let Ok(Some(interface)) = w.member.interface(interface) else { return NONE };
    let mut value = ws_interface { size: 0, link_type: interface.link_type.0.into(), name: [0; NAME_BYTES] };
    let name = interface.name.split('\0').next().unwrap_or_default();
    let name = &name[..name.floor_char_boundary(NAME_BYTES - 1)];
    value.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: a structure of the caller, as long as it says.
    unsafe { fill(to, || value) }
}

/// How much was seen and missed; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_counts(w: *mut ws, to: *mut ws_counts) -> c_int {
    // SAFETY: as of `ws_next`.
    let Some(w) = (unsafe { w.as_ref() }) else { return NONE };
    let Counts { seen, missed, behind } = w.member.counts();
    let make = || ws_counts { size: 0, reserved: 0, seen, missed, behind };
    // SAFETY: a structure of the caller, as long as it says.
    unsafe { fill(to, make) }
}

/// A descriptor to poll; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_fd(w: *mut ws) -> c_int {
    // SAFETY: as of `ws_next`.
    let Some(w) = (unsafe { w.as_mut() }) else { return NONE };
    w.member.poll_fd().map_or(NONE, |fd| fd.as_raw_fd())
}

/// Why `ws_next` has failed; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_error(w: *mut ws) -> *const c_char {
    // SAFETY: as of `ws_next`.
    unsafe { w.as_ref() }.map_or(c"".as_ptr(), |w| w.error.as_ptr())
}

/// The interface that this library speaks.
#[unsafe(no_mangle)]
pub extern "C" fn ws_abi() -> c_int {
    crate::ABI
}

/// Leaves the group; see the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_close(w: *mut ws) {
    if !w.is_null() {
        // SAFETY: from `ws_open`, and not closed yet, by this function's contract.
        drop(unsafe { Box::from_raw(w) });
    }
}
