//! A packet socket that was opened before rights were given up serves an interface afterwards: bound, with a
//! ring, promiscuous, in a group.
//!
//! Needs root; says so and passes without it, except in CI. The part that gives up its rights is a process of
//! its own.

use scope_folder::Folder;
use scope_rights::{FolderUse, RightsPlan, UserChoice, Writable};
use scope_testkit::lab::{Lab, RawSender};
use scope_testkit::traffic::frame;
use std::ffi::OsStr;
use std::io;
use std::mem::{size_of_val, zeroed};
use std::time::{Duration, Instant};

/// Names the folder of the process that gives up its rights; without it that test does nothing.
const FOLDER: &str = "SPARE_SOCKET_FOLDER";
/// The interface that the socket serves.
const INTERFACE: &str = "vb";
/// Neither may take longer.
const LIMIT: Duration = Duration::from_secs(120);

fn check(what: &str, result: libc::c_int) -> libc::c_int {
    assert!(result >= 0, "{what}: {}", io::Error::last_os_error());
    result
}

fn set<T>(socket: libc::c_int, what: &str, option: libc::c_int, value: &T) {
    // SAFETY: the value outlives the call, and its own size is given.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_PACKET,
            option,
            (&raw const *value).cast(),
            size_of_val(value) as u32,
        )
    };
    check(what, result);
}

#[test]
fn a_spare_socket_serves_an_interface_after_rights_are_given_up() {
    let Some(lab) = Lab::or_skip() else { return };
    let folder = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let mut command = lab.b().command(this.to_str().unwrap());
    let mut child = command
        .args(["--exact", "gives_up_its_rights_and_captures", "--nocapture"])
        .env(FOLDER, folder.path())
        .spawn()
        .unwrap();
    let sender = RawSender::open(lab.a(), "va").unwrap();
    let frames = [frame::ethernet(&[], frame::EXPERIMENT, &[7; 100])];
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > LIMIT {
            drop(child.kill());
        }
        sender.send(&frames).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success());
}

#[test]
fn gives_up_its_rights_and_captures() {
    let Some(path) = std::env::var_os(FOLDER) else { return };
    // SAFETY: takes numbers only. Protocol 0: it gets nothing before it is bound.
    let socket =
        check("a socket", unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) });
    let folder = Folder::open(path.as_ref()).unwrap();
    let plan = RightsPlan { user: UserChoice::Best, selftest: false };
    let writable = [Writable { folder: &folder, file: OsStr::new("log"), folder_use: FolderUse::Own }];
    scope_rights::give_up(scope_rights::decide(&plan, &writable).unwrap(), &writable).unwrap();
    // SAFETY: takes numbers only.
    assert!(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) } < 0, "new sockets are refused");

    let index = index_of(socket);
    set(socket, "version", libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3);
    // SAFETY: all bytes zero is a request for nothing; what is wanted follows.
    let mut request: libc::tpacket_req3 = unsafe { zeroed() };
    (request.tp_block_size, request.tp_block_nr, request.tp_frame_size, request.tp_frame_nr) =
        (1 << 16, 8, 1 << 11, 256);
    request.tp_retire_blk_tov = 10;
    set(socket, "ring", libc::PACKET_RX_RING, &request);
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of the ring that was made; it stays until the process ends.
    let ring = unsafe { libc::mmap(std::ptr::null_mut(), 8 << 16, protection, flags, socket, 0) };
    assert!(ring != libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // SAFETY: all bytes zero is an address of nothing; what is wanted follows.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: the address outlives the call, and its own size is given.
    let bound = unsafe { libc::bind(socket, (&raw const address).cast(), size_of_val(&address) as u32) };
    check("binding", bound);
    set(socket, "group", libc::PACKET_FANOUT, &(4711 | (libc::PACKET_FANOUT_HASH as i32) << 16));
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, "promiscuous", libc::PACKET_ADD_MEMBERSHIP, &promiscuous);
    let mut waiting = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    let ready = check("waiting", unsafe { libc::poll(&mut waiting, 1, LIMIT.as_millis() as i32) });
    assert_eq!((ready, waiting.revents & libc::POLLIN), (1, libc::POLLIN), "no packet came");
}

/// The interface's number, asked through the socket: no other can be opened.
fn index_of(socket: libc::c_int) -> libc::c_int {
    // SAFETY: all bytes zero is a request with an empty name; the name is put in, and fits.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(INTERFACE.bytes()) {
        *to = from as libc::c_char;
    }
    for (what, order) in
        [("flags", libc::SIOCGIFFLAGS), ("hardware", libc::SIOCGIFHWADDR), ("number", libc::SIOCGIFINDEX)]
    {
        // SAFETY: the request outlives the call, which fills it in.
        check(what, unsafe { libc::ioctl(socket, order as _, &mut request) });
    }
    // SAFETY: the last order filled in the number.
    unsafe { request.ifr_ifru.ifru_ifindex }
}
