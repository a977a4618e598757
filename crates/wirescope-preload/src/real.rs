//! The real libpcap, which is loaded behind this library: each of its functions that is called here.

use crate::abi::{Device, Handle, Handler, Header, Instruction, Program, Stat};
use libc::{c_char, c_int, c_uint, c_void};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where it is looked for in programs that load it later.
const LIBRARIES: [&CStr; 2] = [c"libpcap.so.0.8", c"libpcap.so.1"];

/// Finds a function, once; a process in which it is nowhere ends, as it would have ended without this library.
fn find(found: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = found.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends with a NUL; what comes back is a pointer or NULL.
    let mut function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    for library in LIBRARIES {
        if function.is_null() {
            // SAFETY: both names end with a NUL; libpcap does nothing when it is loaded, and stays loaded.
            function = unsafe {
                let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
                if library.is_null() { null_mut() } else { libc::dlsym(library, name.as_ptr()) }
            };
        }
    }
    if function.is_null() {
        eprintln!("wirescope: {}: no libpcap here has this function", name.to_string_lossy());
        std::process::abort();
    }
    found.store(function, Ordering::Release);
    function
}

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $back:ty;)*) => {$(
        /// libpcap's function of this name.
        ///
        /// # Safety
        /// As its manual says.
        pub unsafe fn $name($($argument: $type),*) -> $back {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            let function = find(&FOUND, NAME);
            // SAFETY: libpcap's function of this name has this type, by its header; the caller keeps to its manual.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> $back = std::mem::transmute(function);
                function($($argument),*)
            }
        }
    )*};
}

functions! {
    fn bpf_filter(program: *const Instruction, data: *const u8, original: c_uint, captured: c_uint) -> c_uint;
    fn bpf_validate(program: *const Instruction, len: c_int) -> c_int;
    fn pcap_activate(handle: Handle) -> c_int;
    fn pcap_breakloop(handle: Handle) -> ();
    fn pcap_bufsize(handle: Handle) -> c_int;
    fn pcap_can_set_rfmon(handle: Handle) -> c_int;
    fn pcap_close(handle: Handle) -> ();
    fn pcap_compile(handle: Handle, program: *mut Program, text: *const c_char, optimize: c_int, mask: u32) -> c_int;
    fn pcap_create(device: *const c_char, error: *mut c_char) -> Handle;
    fn pcap_datalink(handle: Handle) -> c_int;
    fn pcap_datalink_ext(handle: Handle) -> c_int;
    fn pcap_dispatch(handle: Handle, count: c_int, handler: Handler, user: *mut u8) -> c_int;
    fn pcap_dump_fopen(handle: Handle, file: *mut c_void) -> *mut c_void;
    fn pcap_dump_open(handle: Handle, path: *const c_char) -> *mut c_void;
    fn pcap_dump_open_append(handle: Handle, path: *const c_char) -> *mut c_void;
    fn pcap_file(handle: Handle) -> *mut c_void;
    fn pcap_fileno(handle: Handle) -> c_int;
    fn pcap_findalldevs(devices: *mut *mut Device, error: *mut c_char) -> c_int;
    fn pcap_get_required_select_timeout(handle: Handle) -> *const libc::timeval;
    fn pcap_get_selectable_fd(handle: Handle) -> c_int;
    fn pcap_get_tstamp_precision(handle: Handle) -> c_int;
    fn pcap_geterr(handle: Handle) -> *mut c_char;
    fn pcap_getnonblock(handle: Handle, error: *mut c_char) -> c_int;
    fn pcap_inject(handle: Handle, data: *const c_void, bytes: usize) -> c_int;
    fn pcap_is_swapped(handle: Handle) -> c_int;
    fn pcap_list_datalinks(handle: Handle, types: *mut *mut c_int) -> c_int;
    fn pcap_list_tstamp_types(handle: Handle, types: *mut *mut c_int) -> c_int;
    fn pcap_lookupnet(device: *const c_char, net: *mut u32, mask: *mut u32, error: *mut c_char) -> c_int;
    fn pcap_loop(handle: Handle, count: c_int, handler: Handler, user: *mut u8) -> c_int;
    fn pcap_major_version(handle: Handle) -> c_int;
    fn pcap_minor_version(handle: Handle) -> c_int;
    fn pcap_next(handle: Handle, header: *mut Header) -> *const u8;
    fn pcap_next_ex(handle: Handle, header: *mut *mut Header, data: *mut *const u8) -> c_int;
    fn pcap_open_dead_with_tstamp_precision(link_type: c_int, snaplen: c_int, precision: c_uint) -> Handle;
    fn pcap_open_live(device: *const c_char, snaplen: c_int, promiscuous: c_int, timeout_ms: c_int, error: *mut c_char) -> Handle;
    fn pcap_perror(handle: Handle, prefix: *const c_char) -> ();
    fn pcap_sendpacket(handle: Handle, data: *const u8, bytes: c_int) -> c_int;
    fn pcap_set_buffer_size(handle: Handle, bytes: c_int) -> c_int;
    fn pcap_set_datalink(handle: Handle, link_type: c_int) -> c_int;
    fn pcap_set_immediate_mode(handle: Handle, is_on: c_int) -> c_int;
    fn pcap_set_promisc(handle: Handle, is_on: c_int) -> c_int;
    fn pcap_set_protocol_linux(handle: Handle, protocol: c_int) -> c_int;
    fn pcap_set_rfmon(handle: Handle, is_on: c_int) -> c_int;
    fn pcap_set_snaplen(handle: Handle, bytes: c_int) -> c_int;
    fn pcap_set_timeout(handle: Handle, timeout_ms: c_int) -> c_int;
    fn pcap_set_tstamp_precision(handle: Handle, precision: c_int) -> c_int;
    fn pcap_set_tstamp_type(handle: Handle, clock: c_int) -> c_int;
    fn pcap_setdirection(handle: Handle, direction: c_int) -> c_int;
    fn pcap_setfilter(handle: Handle, program: *mut Program) -> c_int;
    fn pcap_setnonblock(handle: Handle, is_on: c_int, error: *mut c_char) -> c_int;
    fn pcap_snapshot(handle: Handle) -> c_int;
    fn pcap_stats(handle: Handle, stat: *mut Stat) -> c_int;
}
