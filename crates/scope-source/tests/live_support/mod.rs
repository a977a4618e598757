//! What tests of live interfaces share: a sink that keeps all, frames told apart, links made and removed,
//! capabilities dropped.
#![allow(dead_code)] // every test file takes what it needs

use scope_packet::{Interface, Packet, Sink};
use scope_testkit::lab::{Lab, Namespace};
use std::time::{Duration, Instant};

/// Longest that anything here may take, on a machine however busy.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Keeps the interface and the bytes of every packet.
#[derive(Default)]
pub struct Kept {
    pub interfaces: Vec<Interface>,
    pub packets: Vec<(u32, Vec<u8>)>,
    pub dropped: u64,
}

impl Sink for Kept {
    fn interface(&mut self, interface: &Interface) {
        self.interfaces.push(interface.clone());
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        self.packets.extend(packets.iter().map(|packet| {
            assert_eq!(packet.original_len as usize, packet.data.len());
            (packet.interface, packet.data.to_vec())
        }));
    }

    fn lost(&mut self, _: u32, packets: u64, _: i64, _: i64) {
        self.dropped += packets;
    }

    fn idle(&mut self, _: i64) {}
}

impl Kept {
    /// Packets of the interface named `name`, over all its lives.
    pub fn of(&self, name: &str) -> Vec<&[u8]> {
        let is_it = |interface: &u32| self.interfaces[*interface as usize].name == name;
        self.packets.iter().filter(|(interface, _)| is_it(interface)).map(|(_, data)| &data[..]).collect()
    }
}

/// Takes all capabilities from the calling thread, which then can open no packet socket.
pub fn drop_capabilities() {
    // Version 3 of the header, this thread; two times effective, permitted, inheritable.
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: both live through the call and have the layout that version 3 asks for; the kernel only reads
    // them.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: plain system call, which has to fail.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert_eq!((socket, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
}

/// Frames of `len` bytes, told apart by `seed` and their number, of as many flows.
pub fn frames(seed: u32, count: u32, len: usize) -> Vec<Vec<u8>> {
    let one = |number: u32| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        frame.extend((len as u16 - 14).to_be_bytes());
        frame.extend([
            0,
            0,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            seed as u8,
            (number >> 8) as u8,
            number as u8,
            10,
            0,
            1,
            1,
            3,
            232,
            7,
            208,
        ]);
        frame.extend((len as u16 - 34).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend([seed.to_be_bytes(), number.to_be_bytes()].concat());
        frame.resize(len, number as u8);
        frame
    };
    (0..count).map(one).collect()
}

/// Removes `va` and `vb` and makes them again, down.
pub fn make_again(lab: &Lab) {
    lab.a().ip(&["link", "del", "va"]).unwrap();
    add_link(lab, "va", "vb");
}

pub fn add_link(lab: &Lab, end_a: &str, end_b: &str) {
    lab.a()
        .ip(&[
            "link",
            "add",
            end_a,
            "arp",
            "off",
            "type",
            "veth",
            "peer",
            "name",
            end_b,
            "netns",
            lab.b().name(),
        ])
        .unwrap();
}

/// Takes both ends up and waits until the sending one passes packets on.
pub fn take_up(lab: &Lab, end_a: &str, end_b: &str) {
    lab.a().ip(&["link", "set", end_a, "up"]).unwrap();
    lab.b().ip(&["link", "set", end_b, "arp", "off", "up"]).unwrap();
    wait_for_link(lab.b(), end_b);
}

/// Waits until `interface` passes packets on: the kernel notices a link a little later than that comes up.
pub fn wait_for_link(namespace: &Namespace, interface: &str) {
    let begun = Instant::now();
    loop {
        let output = namespace.command("ip").args(["link", "show", interface]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        if text.contains("state UP") && text.contains("qdisc noqueue") {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{text}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
