//! Interfaces by name, and their kinds: which can be captured, and as which link type.

use scope_packet::LinkType;

/// Interface kinds that the libc crate doesn't list.
const ARPHRD_RAWIP: u16 = 519;

/// What [`link_type`] knows, in words.
pub const SUPPORTED: &str = "Ethernet, loopback, raw IP (tun, ipip, sit), 802.11 with radiotap";

/// The link type of frames from an interface of ARPHRD kind `kind`; `None` where it isn't supported.
pub fn link_type(kind: u16) -> Option<LinkType> {
    match kind {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::ETHERNET),
        libc::ARPHRD_NONE | ARPHRD_RAWIP | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => {
            Some(LinkType::RAW)
        }
        libc::ARPHRD_IEEE80211_RADIOTAP => Some(LinkType(127)),
        _ => None,
    }
}

/// The interfaces of this network namespace.
pub fn interface_names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the kernel's list is an array that ends with a zero index; each name is a C string; all is
    // copied before it is freed, and freed once.
    unsafe {
        let list = libc::if_nameindex();
        let mut entry = list;
        while !entry.is_null() && (*entry).if_index != 0 {
            names.push(std::ffi::CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}
