//! Structures and numbers of libpcap, as `pcap/pcap.h` and `pcap/bpf.h` have them.

use libc::{c_char, c_int, c_uint, c_void, timeval};

/// A handle, which only libpcap looks into.
pub type Handle = *mut c_void;
/// What a program is called with for each packet.
pub type Handler = Option<unsafe extern "C" fn(*mut u8, *const Header, *const u8)>;

/// `struct pcap_pkthdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    /// Capture time; with a precision of ns its µs are ns.
    pub time: timeval,
    /// Bytes that are there.
    pub captured: u32,
    /// Bytes on the wire.
    pub original: u32,
}

impl Default for Header {
    fn default() -> Header {
        Header { time: timeval { tv_sec: 0, tv_usec: 0 }, captured: 0, original: 0 }
    }
}

/// `struct pcap_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Packets that were given to the member and read.
    pub received: c_uint,
    /// Packets that it missed.
    pub dropped: c_uint,
    /// Packets of other link types than that of the handle.
    pub dropped_by_interface: c_uint,
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    /// What is done.
    pub code: u16,
    /// Instructions to skip where it holds.
    pub jump_true: u8,
    /// Instructions to skip where it doesn't.
    pub jump_false: u8,
    /// The number in it.
    pub number: u32,
}

/// `struct bpf_program`.
#[repr(C)]
pub struct Program {
    /// How many instructions.
    pub len: c_uint,
    /// The instructions.
    pub instructions: *mut Instruction,
}

/// `struct pcap_if`.
#[repr(C)]
pub struct Device {
    /// The next one.
    pub next: *mut Device,
    /// Its name.
    pub name: *mut c_char,
    /// What it is.
    pub description: *mut c_char,
    /// Its addresses.
    pub addresses: *mut c_void,
    /// `PCAP_IF_...`.
    pub flags: u32,
}

/// `PCAP_IF_UP | PCAP_IF_RUNNING | PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE`.
pub const UP_AND_RUNNING: u32 = 0x2 | 0x4 | 0x30;

/// `PCAP_ERROR`: the handle says why.
pub const FAILED: c_int = -1;
/// `PCAP_ERROR_BREAK`.
pub const BROKEN: c_int = -2;
/// `PCAP_ERROR_NOT_ACTIVATED`.
pub const NOT_ACTIVATED: c_int = -3;
/// `PCAP_ERROR_ACTIVATED`.
pub const ACTIVATED: c_int = -4;
/// `PCAP_ERROR_RFMON_NOTSUP`.
pub const NO_MONITORING: c_int = -6;
/// `PCAP_ERROR_TSTAMP_PRECISION_NOTSUP`.
pub const NO_SUCH_PRECISION: c_int = -12;
/// `PCAP_WARNING_TSTAMP_TYPE_NOTSUP`.
pub const NO_SUCH_CLOCK: c_int = 3;

/// `PCAP_TSTAMP_PRECISION_NANO`.
pub const NANO: c_int = 1;
/// `PCAP_D_IN`.
pub const ONLY_IN: c_int = 1;
/// `PCAP_D_OUT`.
pub const ONLY_OUT: c_int = 2;
/// `PCAP_ERRBUF_SIZE`.
pub const ERROR_BYTES: usize = 256;
/// `MAXIMUM_SNAPLEN`.
pub const SNAPLEN_MAX: c_int = 262_144;
/// `DLT_EN10MB`.
pub const ETHERNET: c_int = 1;
