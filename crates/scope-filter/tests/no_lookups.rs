//! No filter text makes libpcap use the system's name service. A process of its own: here the functions that
//! do so are replaced.
//!
//! A program's own functions come before those of the C library, also for libpcap: so each call of one of
//! them is seen.

use scope_filter::{Filter, Template, VlanRule};
use scope_packet::LinkType;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What was looked up, by any thread.
static LOOKED_UP: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// One test at a time: they look at the same list.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Adds a name that was looked up.
///
/// # Safety
/// `name` is null or a NUL-terminated text.
unsafe fn note(function: &str, name: *const c_char) {
    // SAFETY: as the caller promises.
    let name = if name.is_null() { "".into() } else { unsafe { CStr::from_ptr(name) }.to_string_lossy() };
    LOOKED_UP.lock().unwrap().push(format!("{function}({name})"));
}

type GetAddrInfo = unsafe extern "C" fn(*const c_char, *const c_char, *const c_void, *mut c_void) -> c_int;

/// Numeric addresses are none to look up: libpcap has them read by this function.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const c_void,
    out: *mut c_void,
) -> c_int {
    // SAFETY: the caller gives NUL-terminated texts or null.
    let numeric = !node.is_null()
        && unsafe { CStr::from_ptr(node) }.to_str().is_ok_and(|text| text.parse::<IpAddr>().is_ok());
    if !numeric || !service.is_null() {
        // SAFETY: as above.
        unsafe { note("getaddrinfo", if node.is_null() { service } else { node }) };
        return libc::EAI_NONAME;
    }
    // SAFETY: the C library has a function of that name and type; the arguments are the caller's own.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"getaddrinfo".as_ptr());
        assert!(!next.is_null());
        std::mem::transmute::<*mut c_void, GetAddrInfo>(next)(node, service, hints, out)
    }
}

/// Functions that take a name first; they find nothing.
macro_rules! finds_nothing {
    ($($name:ident -> $returns:ty = $nothing:expr;)*) => {$(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(name: *const c_char) -> $returns {
            // SAFETY: the first argument is a NUL-terminated text.
            unsafe { note(stringify!($name), name) };
            $nothing
        }
    )*};
}

// Those with more arguments are called as if they had one: the rest is ignored, and nothing is written.
finds_nothing! {
    gethostbyname -> *mut c_void = std::ptr::null_mut();
    gethostbyname2 -> *mut c_void = std::ptr::null_mut();
    gethostbyname_r -> c_int = libc::ENOENT;
    gethostbyname2_r -> c_int = libc::ENOENT;
    getnetbyname -> *mut c_void = std::ptr::null_mut();
    getnetbyname_r -> c_int = libc::ENOENT;
    getservbyname -> *mut c_void = std::ptr::null_mut();
    getservbyname_r -> c_int = libc::ENOENT;
    getprotobyname -> *mut c_void = std::ptr::null_mut();
    getprotobyname_r -> c_int = libc::ENOENT;
    ether_hostton -> c_int = -1;
}

// SAFETY: declarations of libpcap's own headers.
unsafe extern "C" {
    fn pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int;
    fn pcap_nametoaddrinfo(name: *const c_char) -> *mut c_void;
}

fn looked_up() -> Vec<String> {
    std::mem::take(&mut *LOOKED_UP.lock().unwrap())
}

#[test]
fn a_lookup_of_libpcaps_is_seen() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    looked_up();
    let (mut port, mut protocol) = (0, 0);
    // SAFETY: both take a NUL-terminated text, and write into the two numbers.
    unsafe {
        assert_eq!(pcap_nametoport(c"gorp".as_ptr(), &mut port, &mut protocol), 0);
        assert!(pcap_nametoaddrinfo(c"gorp".as_ptr()).is_null());
    }
    let seen = looked_up();
    assert!(seen.len() >= 2 && seen.iter().all(|name| name == "getaddrinfo(gorp)"), "{seen:?}");
}

const LINKS: [LinkType; 5] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
    LinkType(105 /* IEEE 802.11 */),
];

/// Everything that is done with a text, right or wrong.
fn use_text(text: &str) {
    for link in LINKS {
        for vlan in [VlanRule::Transparent, VlanRule::Exact] {
            match Filter::compile(text, vlan, &[link]) {
                Ok(filter) => {
                    let _ = (
                        filter.printed(link),
                        filter.in_kernel(link, 65_535),
                        filter.bytes_needed(link),
                        filter.compiles_for(link),
                    );
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    if let Ok(template) = Template::parse(text) {
        let _ = template.check(VlanRule::Transparent, &LINKS);
    }
}

#[test]
fn no_faulty_text_and_no_name_in_one_is_looked_up() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    looked_up();
    let begun = Instant::now();
    for text in [
        "tcp host 10.0.0.1",
        "udp net 10.0.0.0/8",
        "arp port 80",
        "tcp host",
        "host",
        "ether host",
        "gateway",
        "net",
        "ip6 host 10.0.0.1",
        "src tcp",
        "host gorp",
        "net gorp and host $srcIP",
        "gateway gorp",
        "ether host gorp",
        "wlan ra gorp",
        "port gorp",
        "port http",
        "port http or 443",
        "port (domain or ssh)",
        "tcp portrange ssh-http",
        "portrange 8a-9",
        "ip proto ospf",
        "ip proto gorp",
        "proto \\tcp",
        "ether proto \\arp",
        "ip6 protochain \\tcp",
        "tcp gorp",
        "tcp and gorp",
        "link proto gorp",
        "iso proto \\clnp",
        "type mgt subtype gorp",
        "wlan type data subtype qos-data",
        "llc gorp",
        "dir gorp",
        "on gorp",
        "reason gorp",
        "host 10.0.0.1 and port http and host $srcIP",
        "vlan 5 and tcp port http",
    ] {
        use_text(text);
        assert_eq!(looked_up(), Vec::<String>::new(), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(120));
}

/// A fixed sequence of numbers that look like chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn no_text_of_chance_words_is_looked_up() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    looked_up();
    const WORDS: &str = "host net gateway ether ip ip6 tcp udp sctp arp src dst port portrange proto protochain ( ) [ ] and or not ! \
        1 80-90 8a-9 1.2.3.4 ::1 vlan http ssh domain gorp a-b.c = << $x \\tcp : / mask 1-x 02:00:00:00:00:01 len broadcast type mgt \
        link iso esis ra fe80::1g 0xzz on ftp-ssh tcp-syn less 5";
    let words: Vec<&str> = WORDS.split_ascii_whitespace().collect();
    let mut chance = Chance(12);
    let mut compiled = 0;
    for _ in 0..40_000 {
        let text: Vec<&str> = (0..1 + chance.below(8)).map(|_| words[chance.below(words.len())]).collect();
        let text = text.join([" ", " ", " ", ""][chance.below(4)]);
        compiled += usize::from(Filter::compile(&text, VlanRule::Exact, &[LinkType::ETHERNET]).is_ok());
        assert_eq!(looked_up(), Vec::<String>::new(), "{text}");
    }
    assert!(compiled > 100, "{compiled}");
}
