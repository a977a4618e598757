//! The program resolves no name: it opens no socket for a filter, right or wrong, and reads no file of the
//! resolver.
//!
//! Needs root, for a file system of its own on which reads leave a mark; says so and passes without it.

mod run;

use run::{Place, finish, skip, wirescope};
use scope_testkit::oracle;
use scope_testkit::traffic::Conversations;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the C library reads before it looks up a host, a net, a service or a protocol.
const RESOLVERS: &str = "nsswitch.conf resolv.conf hosts host.conf gai.conf networks ethers";
/// When all of them were read last, before the program runs: seconds since 1970.
const LONG_AGO: &str = "1000000000";

/// The command in a mount namespace whose `/etc` is a copy on which each read is noted; prints the files that
/// were read, after what the command itself prints. It is killed when it asks for a socket.
fn watched(place: &Place, command: &Command) -> Command {
    let script = format!(
        "mount -t tmpfs -o strictatime none \"$0\" && cp -a /etc \"$0/etc\" || exit 99
         cd \"$0/etc\" && for file in {RESOLVERS}; do [ -e $file ] || : > $file; done
         for file in {RESOLVERS}; do cp -L $file $file.own && mv -f $file.own $file; done
         mount --bind \"$0/etc\" /etc || exit 99
         for file in {RESOLVERS}; do touch -a -d @{LONG_AGO} /etc/$file; done
         \"$@\"; code=$?
         cd /etc && stat -c 'read: %n %X' {RESOLVERS} | grep -v ' {LONG_AGO}$'
         exit $code"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "--propagation", "private", "sh", "-c", &script]).arg(place.path("watched"));
    unshare.arg(command.get_program()).args(command.get_args());
    // SAFETY: between fork and exec only `prctl` is called, with constants and a program that lives through
    // the call.
    unsafe { unshare.pre_exec(forbid_sockets) };
    unshare
}

/// From here on this process, and whatever it becomes, is killed when it asks for a socket.
fn forbid_sockets() -> std::io::Result<()> {
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut filter = [
        statement(0x20, 0), // the number of the call
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_socket as u32 },
        statement(0x06, 0x8000_0000), // SECCOMP_RET_KILL_PROCESS
        statement(0x06, 0x7fff_0000), // SECCOMP_RET_ALLOW
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: constants, and a program that lives through the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn can_watch() -> bool {
    if !run::is_root() || !oracle::have("unshare") {
        skip("needs root and unshare");
        return false;
    }
    true
}

#[test]
fn a_filter_right_or_wrong_makes_no_socket_and_reads_no_file_of_the_resolver() {
    if !can_watch() {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.path("watched")).unwrap();
    let source = place.source(&Conversations::default().capture());
    let run = |trigger: &str| {
        let mut command = wirescope(&["run", "--source", &source, "--trigger", trigger, "--out"]);
        command.arg(place.out());
        command
    };
    let rows = [
        (wirescope(&["filter", "tcp host 10.0.0.1"]), 2),
        (wirescope(&["filter", "host gorp"]), 2),
        (wirescope(&["filter", "port gorp"]), 2),
        (wirescope(&["filter", "ether host gorp"]), 2),
        (wirescope(&["filter", "port http or 443"]), 0),
        (wirescope(&["filter", "ip proto ospf or ip6 host ::1"]), 0),
        (run("tcp host 10.0.0.1"), 2),
        (run("net gorp"), 2),
    ];
    for (command, code) in rows {
        let done = finish(watched(&place, &command));
        assert_eq!(done.code(), Some(code), "{command:?}: {}{}", done.stdout, done.stderr);
        assert!(!done.stdout.contains("read: "), "{command:?}: {}", done.stdout);
    }
}

#[test]
fn who_does_look_a_name_up_is_seen() {
    if !can_watch() || !oracle::have("getent") {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.path("watched")).unwrap();
    let mut reads = Command::new("cat");
    reads.args(["/etc/nsswitch.conf", "/etc/hosts"]);
    let done = finish(watched(&place, &reads));
    assert!(
        done.stdout.contains("read: nsswitch.conf") && done.stdout.contains("read: hosts"),
        "{}{}",
        done.stdout,
        done.stderr
    );
    assert!(!done.stdout.contains("read: resolv.conf"), "{}", done.stdout);
    let mut asks = Command::new("getent");
    asks.args(["ahosts", "gorp.invalid"]);
    let done = finish(watched(&place, &asks));
    assert_eq!(done.code(), Some(128 + libc::SIGSYS), "killed for the socket: {}", done.stderr);
}
