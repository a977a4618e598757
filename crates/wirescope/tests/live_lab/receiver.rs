//! What tcpdump sees arrive at an interface.

use super::Live;
use crate::run::wait_until;
use scope_testkit::lab::Namespace;
use scope_testkit::oracle;
use scope_testkit::traffic::Record;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Head of a pcap file, and of each packet in it, bytes.
pub const PCAP_HEAD: usize = 24;
const RECORD_HEAD: usize = 16;

/// See the module.
pub struct Receiver {
    child: Child,
    path: PathBuf,
}

impl Receiver {
    /// Looks on from now on.
    pub fn begin(live: &Live, namespace: &Namespace, interface: &str) -> Receiver {
        let path = live.place.path(&format!("received-{interface}.pcap"));
        let words = live.place.path(&format!("tcpdump-{interface}.txt"));
        let mut command = namespace.command("tcpdump");
        command.args(["-i", interface, "-Q", "in", "-w", "-", "-U", "--immediate-mode", "-B", "65536"]);
        let child = command
            .args(["-Z", "root"])
            .stdin(Stdio::null())
            .stdout(File::create(&path).unwrap())
            .stderr(File::create(&words).unwrap())
            .spawn()
            .expect("tcpdump");
        wait_until("tcpdump", || {
            std::fs::read_to_string(&words).is_ok_and(|text| text.contains("listening"))
        });
        Receiver { child, path }
    }

    /// Bytes of its file so far.
    pub fn bytes(&self) -> usize {
        std::fs::metadata(&self.path).map_or(0, |facts| facts.len() as usize)
    }

    /// Waits for so many bytes of packets in so many packets; all that came.
    pub fn end(mut self, packets: usize, bytes: usize) -> Vec<Record> {
        let whole = PCAP_HEAD + packets * RECORD_HEAD + bytes;
        wait_until("all packets", || self.bytes() >= whole);
        // What should not come had time to.
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY: kill takes no pointers, and the child is not waited for yet, so the number is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        self.child.wait().unwrap();
        oracle::read(&self.path).unwrap().capture.packets
    }
}
