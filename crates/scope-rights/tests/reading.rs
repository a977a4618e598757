//! Who only reads: its paths, and nothing else; in a process of its own, since there is no way back.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;

fn refused<T>(result: io::Result<T>) -> bool {
    result.err().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[test]
fn who_only_reads_reads_its_paths_and_nothing_else_is_possible() {
    // The folder stays, since nothing can be removed any more: it is one among what was built.
    let at = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join("reading").join(name);
    fs::create_dir_all(at("store/day")).unwrap();
    for name in ["store/day/file", "alone", "beside"] {
        fs::write(at(name), name).unwrap();
    }
    let mut open = File::create(at("output")).unwrap();
    // SAFETY: geteuid takes nothing and always succeeds.
    let user = unsafe { libc::geteuid() };
    let rights = scope_rights::keep_to_reading(&[&at("store"), &at("alone")]).unwrap();
    // SAFETY: as above.
    assert_eq!(user, unsafe { libc::geteuid() }, "it stays who it was");
    let look = move || {
        assert_eq!(fs::read(at("alone")).unwrap(), b"alone");
        assert_eq!(fs::read(at("store/day/file")).unwrap(), b"store/day/file");
        assert_eq!(fs::read_dir(at("store/day")).unwrap().count(), 1);
        io::Write::write_all(&mut open, b"said").unwrap();
        if rights.landlock_abi > 0 {
            assert!(refused(fs::read(at("beside"))) && refused(fs::read_dir("/etc")));
        }
        if rights.seccomp || rights.landlock_abi > 0 {
            assert!(refused(OpenOptions::new().write(true).open(at("alone"))));
            assert!(refused(File::create(at("store/new"))) && refused(fs::remove_file(at("alone"))));
        }
        if rights.seccomp {
            assert!(refused(UdpSocket::bind("127.0.0.1:0")) && refused(TcpListener::bind("127.0.0.1:0")));
            assert!(refused(Command::new("/bin/true").output()) && refused(fs::create_dir(at("new"))));
            assert!(refused(fs::rename(at("alone"), at("other"))));
        }
    };
    // Threads that begin later have no more.
    std::thread::spawn(look).join().unwrap();
    assert_eq!(rights.lack().is_none(), rights.seccomp && rights.landlock_abi > 0);
}
