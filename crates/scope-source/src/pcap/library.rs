//! libpcap's functions of live capture, each as a safe method: all unsafe code of this source.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use libc::sock_filter;

/// What libpcap hides behind a `pcap_t`.
#[repr(C)]
struct RawHandle {
    _opaque: [u8; 0],
}

/// `struct pcap_pkthdr`.
#[repr(C)]
struct RawHead {
    time: libc::timeval,
    captured_len: u32,
    original_len: u32,
}

/// `struct pcap_stat` of systems other than Windows.
#[repr(C)]
#[derive(Default)]
struct RawCounts {
    received: u32,
    dropped: u32,
    _dropped_by_interface: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    len: u32,
    instructions: *const sock_filter,
}

/// `struct pcap_if`, as far as it is read.
#[repr(C)]
struct RawDevice {
    next: *mut RawDevice,
    name: *const c_char,
}

const ERROR_BYTES: usize = 256;
const DIRECTION_IN: c_int = 1;
const PRECISION_NANO: c_int = 1;
const ERROR_NO_SUCH_DEVICE: c_int = -5;
const ERROR_NO_PERMISSION: c_int = -8;
const ERROR_NO_PERMISSION_PROMISCUOUS: c_int = -11;

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_create(device: *const c_char, cause: *mut c_char) -> *mut RawHandle;
    fn pcap_set_snaplen(handle: *mut RawHandle, bytes: c_int) -> c_int;
    fn pcap_set_promisc(handle: *mut RawHandle, on: c_int) -> c_int;
    fn pcap_set_timeout(handle: *mut RawHandle, ms: c_int) -> c_int;
    fn pcap_set_buffer_size(handle: *mut RawHandle, bytes: c_int) -> c_int;
    fn pcap_set_tstamp_precision(handle: *mut RawHandle, precision: c_int) -> c_int;
    fn pcap_get_tstamp_precision(handle: *mut RawHandle) -> c_int;
    fn pcap_activate(handle: *mut RawHandle) -> c_int;
    fn pcap_setnonblock(handle: *mut RawHandle, on: c_int, cause: *mut c_char) -> c_int;
    fn pcap_setfilter(handle: *mut RawHandle, program: *const RawProgram) -> c_int;
    fn pcap_setdirection(handle: *mut RawHandle, direction: c_int) -> c_int;
    fn pcap_datalink(handle: *mut RawHandle) -> c_int;
    fn pcap_fileno(handle: *mut RawHandle) -> c_int;
    fn pcap_get_selectable_fd(handle: *mut RawHandle) -> c_int;
    fn pcap_next_ex(handle: *mut RawHandle, head: *mut *const RawHead, data: *mut *const u8) -> c_int;
    fn pcap_stats(handle: *mut RawHandle, counts: *mut RawCounts) -> c_int;
    fn pcap_geterr(handle: *mut RawHandle) -> *const c_char;
    fn pcap_statustostr(status: c_int) -> *const c_char;
    fn pcap_close(handle: *mut RawHandle);
    fn pcap_findalldevs(devices: *mut *mut RawDevice, cause: *mut c_char) -> c_int;
    fn pcap_freealldevs(devices: *mut RawDevice);
}

/// Why libpcap doesn't capture.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    NoInterface,
    NoPermission,
    /// libpcap's own words.
    Other(String),
}

/// A packet, lent until the next one is read.
pub(super) struct Lent<'a> {
    pub data: &'a [u8],
    pub original_len: u32,
    /// Capture time, ns since the epoch.
    pub time_ns: i64,
}

/// libpcap's counts, which wrap around at 2^32. What the card itself dropped isn't among them: libpcap's
/// figure of that jumps when the card is gone or renamed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub received: u32,
    pub dropped: u32,
}

/// The settings of a capture.
pub(super) struct CaptureOptions<'a> {
    pub interface: &'a str,
    pub snap_len: u32,
    pub promiscuous: bool,
    pub timeout_ms: u32,
    pub buffer_bytes: u32,
    /// No packets that leave.
    pub only_in: bool,
}

/// A running capture that never blocks.
pub(super) struct Capture {
    handle: Handle,
    ns_per_unit: i64,
}

/// An open `pcap_t`, closed when dropped.
struct Handle(NonNull<RawHandle>);

// SAFETY: libpcap ties no handle to a thread; this one is used only through its one owner.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pointer came from pcap_create and is closed only here.
        unsafe { pcap_close(self.0.as_ptr()) }
    }
}

impl Handle {
    /// libpcap's words for its last failure.
    fn words(&self) -> String {
        // SAFETY: the handle is open; the text lies inside it, ends with a NUL and is copied at once.
        unsafe { CStr::from_ptr(pcap_geterr(self.0.as_ptr())) }.to_string_lossy().into_owned()
    }

    fn refusal(&self, status: c_int) -> Refused {
        match status {
            ERROR_NO_SUCH_DEVICE => Refused::NoInterface,
            ERROR_NO_PERMISSION | ERROR_NO_PERMISSION_PROMISCUOUS => Refused::NoPermission,
            _ => {
                // SAFETY: returns a NUL-terminated text that is never freed, or one of a static buffer,
                // copied at once.
                let what = unsafe { CStr::from_ptr(pcap_statustostr(status)) }.to_string_lossy().into_owned();
                let words = self.words();
                Refused::Other(if words.is_empty() { what } else { words })
            }
        }
    }
}

impl Capture {
    /// Begins to capture; the texts are libpcap's warnings.
    pub(super) fn begin(wanted: &CaptureOptions<'_>) -> Result<(Capture, Vec<String>), Refused> {
        let name = CString::new(wanted.interface).map_err(|_| Refused::NoInterface)?;
        let mut cause = [0 as c_char; ERROR_BYTES];
        // SAFETY: the name ends with a NUL and lives through the call; the buffer has the size that libpcap
        // writes at most.
        let raw = unsafe { pcap_create(name.as_ptr(), cause.as_mut_ptr()) };
        let handle = Handle(NonNull::new(raw).ok_or_else(|| Refused::Other(text_of(&cause)))?);
        let raw = handle.0.as_ptr();
        // SAFETY: the handle is open and not active yet, which is when these may be called; they only set
        // numbers.
        let status = unsafe {
            pcap_set_snaplen(raw, wanted.snap_len as c_int);
            pcap_set_promisc(raw, wanted.promiscuous.into());
            pcap_set_timeout(raw, wanted.timeout_ms as c_int);
            pcap_set_buffer_size(raw, wanted.buffer_bytes as c_int);
            // A system that has no ns stays with us, which is checked below.
            pcap_set_tstamp_precision(raw, PRECISION_NANO);
            pcap_activate(raw)
        };
        if status < 0 {
            return Err(handle.refusal(status));
        }
        let warnings = if status > 0 { vec![handle.words()] } else { Vec::new() };
        // libpcap leaves its sockets, and one more descriptor that it doesn't name, open for programs that
        // this one starts. All other descriptors of this program close by themselves. Kernels before 5.11
        // can't close all at once: there at least the socket is closed.
        // SAFETY: the handle is active, and the calls take and return numbers only.
        unsafe {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for fd in [pcap_fileno(raw), pcap_get_selectable_fd(raw)].into_iter().filter(|fd| *fd >= 0) {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        // SAFETY: the handle is active; the buffer has the size that libpcap writes at most.
        if unsafe { pcap_setnonblock(raw, 1, cause.as_mut_ptr()) } < 0 {
            return Err(Refused::Other(text_of(&cause)));
        }
        if wanted.only_in {
            // libpcap leaves out what comes all the same; so the kernel doesn't count it, where it can. Elsewhere the
            // descriptor is no packet socket, and the call fails.
            // SAFETY: the handle is active; the number lives through the call and its length is given.
            let status = unsafe {
                let (yes, len) = (1 as c_int, size_of::<c_int>() as libc::socklen_t);
                let option = (&raw const yes).cast();
                libc::setsockopt(
                    pcap_fileno(raw),
                    libc::SOL_PACKET,
                    libc::PACKET_IGNORE_OUTGOING,
                    option,
                    len,
                );
                pcap_setdirection(raw, DIRECTION_IN)
            };
            if status < 0 {
                return Err(handle.refusal(status));
            }
        }
        // SAFETY: the handle is active.
        let ns_per_unit = if unsafe { pcap_get_tstamp_precision(raw) } == PRECISION_NANO { 1 } else { 1000 };
        Ok((Capture { handle, ns_per_unit }, warnings))
    }

    /// The link type, by libpcap's number.
    pub(super) fn link_number(&self) -> c_int {
        // SAFETY: the handle is active.
        unsafe { pcap_datalink(self.handle.0.as_ptr()) }
    }

    /// A descriptor that can be waited on, where the system has one.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the handle is active; the descriptor stays the handle's.
        let fd = unsafe { pcap_get_selectable_fd(self.handle.0.as_ptr()) };
        // SAFETY: no -1, and open as long as the handle, which is borrowed with it.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Puts classic BPF in front of the capture.
    pub(super) fn set_filter(&mut self, instructions: &[sock_filter]) -> Result<(), String> {
        let program = RawProgram { len: instructions.len() as u32, instructions: instructions.as_ptr() };
        // SAFETY: the handle is active; the program and its instructions live through the call, which copies
        // them.
        match unsafe { pcap_setfilter(self.handle.0.as_ptr(), &program) } {
            0 => Ok(()),
            _ => Err(self.handle.words()),
        }
    }

    /// The next packet if one is there.
    pub(super) fn next(&mut self) -> Result<Option<Lent<'_>>, String> {
        let mut head: *const RawHead = std::ptr::null();
        let mut data: *const u8 = std::ptr::null();
        // SAFETY: the handle is active; libpcap writes two pointers.
        let status = unsafe { pcap_next_ex(self.handle.0.as_ptr(), &mut head, &mut data) };
        match status {
            1 if !head.is_null() && !data.is_null() => {
                // SAFETY: libpcap says that a head stands there, until the next call, which needs `&mut self`
                // and so can't come while the packet is lent.
                let head = unsafe { &*head };
                // SAFETY: as many captured bytes stand there, equally long.
                let data = unsafe { std::slice::from_raw_parts(data, head.captured_len as usize) };
                let time_ns = head
                    .time
                    .tv_sec
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(head.time.tv_usec * self.ns_per_unit);
                Ok(Some(Lent { data, original_len: head.original_len, time_ns }))
            }
            0 | 1 => Ok(None),
            _ => Err(self.handle.words()),
        }
    }

    /// The counts since the beginning.
    pub(super) fn counts(&mut self) -> Result<Counts, String> {
        let mut counts = RawCounts::default();
        // SAFETY: the handle is active; libpcap fills the struct.
        match unsafe { pcap_stats(self.handle.0.as_ptr(), &mut counts) } {
            0 => Ok(Counts { received: counts.received, dropped: counts.dropped }),
            _ => Err(self.handle.words()),
        }
    }
}

/// The interfaces that libpcap knows.
pub(super) fn interfaces() -> Vec<String> {
    let mut first: *mut RawDevice = std::ptr::null_mut();
    let mut cause = [0 as c_char; ERROR_BYTES];
    let mut names = Vec::new();
    // SAFETY: libpcap writes the head of a list that ends with a null pointer, whose names are C strings; all
    // are copied before the list is freed, once.
    unsafe {
        if pcap_findalldevs(&mut first, cause.as_mut_ptr()) == 0 {
            let mut device = first;
            while !device.is_null() {
                names.push(CStr::from_ptr((*device).name).to_string_lossy().into_owned());
                device = (*device).next;
            }
            pcap_freealldevs(first);
        }
    }
    names
}

/// The text in libpcap's buffer.
fn text_of(buffer: &[c_char; ERROR_BYTES]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
