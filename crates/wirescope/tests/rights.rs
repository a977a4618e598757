//! What a run gives up once everything is open: tried from inside in every thread, looked at from outside,
//! and what goes on all the same.
//!
//! Most of it needs root; it says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, hit_frame, mixed_frames, stop_complete};
use run::{Done, Place, Started, is_root, names, skip, wait_until, wirescope};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The user who may nothing.
const NOBODY: u32 = 65534;
/// Another one that Debian always has.
const DAEMON: u32 = 1;
/// A second of traffic and a dump in the midst of it.
const TRAFFIC: [&str; 10] = [
    "--source",
    "synth:rate=20k,time=1s,trigger-at=500ms",
    "--ring",
    "64MiB",
    "--trigger",
    "udp port 60000",
    "--before",
    "200ms",
    "--after",
    "200ms",
];

/// `wirescope run` with [`TRAFFIC`], its folder owned by `owner`.
fn command(place: &Place, owner: u32, arguments: &[&str]) -> Command {
    place.open_to_all();
    chown(place.out(), Some(owner), Some(owner)).unwrap();
    let mut command = wirescope(&["run", "--out"]);
    command.arg(place.out()).args(TRAFFIC).args(arguments);
    command
}

fn selftest(done: &Done) -> Value {
    let line = done.stdout.lines().next().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}\n{}", done.stdout, done.stderr))
}

fn rights_line(done: &Done) -> &str {
    let lines: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("rights: ")).collect();
    assert_eq!(lines.len(), 1, "{}", done.stderr);
    lines[0]
}

/// Whether the package's user is here, who is tried before all others.
fn has_own_user() -> bool {
    std::fs::read_to_string("/etc/passwd").unwrap().lines().any(|line| line.starts_with("wirescope:"))
}

fn assert_all_refused(tried: &Value) {
    for (key, due) in [
        ("new_socket", "EPERM"),
        ("new_packet_socket", "EPERM"),
        ("write_outside", "EACCES"),
        ("exec", "EPERM"),
        ("fork", "EPERM"),
        ("ptrace", "EPERM"),
        ("write_inside", "ok"),
    ] {
        assert_eq!(tried[key], due, "{key} in {tried}");
    }
    assert_eq!((&tried["capabilities"], &tried["seccomp"]), (&0.into(), &2.into()), "{tried}");
    assert_eq!((&tried["landlock"], &tried["passed"]), (&true.into(), &true.into()), "{tried}");
    let threads = tried["threads"].as_array().unwrap();
    for name in ["wirescope", "signals", "events", "worker-0"] {
        assert!(threads.iter().any(|thread| thread["name"] == name), "no thread {name} in {tried}");
    }
}

/// Whether this kernel has what is tested; else says so.
fn has_landlock(tried: &Value) -> bool {
    if tried["landlock"] == false {
        skip("this kernel has no Landlock");
    }
    tried["landlock"] == true
}

#[test]
fn in_every_thread_everything_that_a_run_does_not_need_is_impossible() {
    if !is_root() {
        return;
    }
    for (owner, user) in [(NOBODY, "nobody"), (0, "root")] {
        let place = Place::new();
        let done = run::finish(command(&place, owner, &["--rights-selftest", "--user", user]));
        let tried = selftest(&done);
        if !has_landlock(&tried) {
            return;
        }
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert_eq!(tried["user"], user);
        assert_all_refused(&tried);
        for thread in tried["threads"].as_array().unwrap() {
            assert_eq!(thread["bounding"], "0000000000000000", "{thread}");
        }
        let start: Value = serde_json::from_str(
            std::fs::read_to_string(place.out().join("wirescope.jsonl")).unwrap().lines().next().unwrap(),
        )
        .unwrap();
        assert_eq!(start["rights"], rights_line(&done));
        // SAFETY: without attributes, and with this flag, nothing is made: a number is returned.
        let kernel =
            unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
        let line = format!("rights: user {user}, no capabilities, seccomp, Landlock (ABI {})", kernel.min(5));
        assert_eq!(rights_line(&done), line, "what the kernel has and this program uses");
    }
}

/// The binary as everybody can run it, with these capabilities of its own; says why where that can't be.
fn binary_with(place: &Place, capabilities: &str) -> Option<std::path::PathBuf> {
    chown(place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
    let binary = place.binary_for_all();
    match Command::new("setcap").arg(format!("{capabilities}=ep")).arg(&binary).output() {
        Ok(output) if output.status.success() => Some(binary),
        other => {
            skip(&format!("setcap: {other:?}"));
            None
        }
    }
}

#[test]
fn the_one_capability_to_open_packet_sockets_is_enough_for_all_that_capture_can() {
    let Some(live) = Live::or_skip() else { return };
    let Some(binary) = binary_with(&live.place, "cap_net_raw") else { return };
    // Fan-out over two workers, promiscuous, with spare sockets and a prefilter; a pattern; libpcap.
    for source in [
        "afpacket:vb,workers=2,spare=2,prefilter=ip or ip6 or arp",
        "afpacket:v*,workers=0,spare=2",
        "pcap:vb",
    ] {
        for name in live.place.out_names() {
            std::fs::remove_file(live.place.out().join(name)).unwrap();
        }
        let mut command = Command::new(&binary);
        command.args([
            "run",
            "--source",
            source,
            "--ring",
            "64MiB",
            "--trigger",
            "udp port 60000",
            "--dump",
            "",
        ]);
        command
            .args(["--after", "200ms", "--out"])
            .arg(live.place.out())
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/");
        let started = live.lab.b().enter(|| Started::new(command));
        live.place.wait_for_start();
        let mut frames = mixed_frames(1, 100);
        frames.push(hit_frame(&[]));
        live.sender().send(&frames).unwrap();
        wait_until("the dump", || live.place.out_names().iter().any(|name| run::is_finished_dump(name)));
        started.signal(libc::SIGINT);
        let done = started.finish(run::LIMIT);
        assert_eq!(done.code(), Some(0), "{source}: {}", done.stderr);
        assert!(!done.stderr.contains("promisc"), "{source}: {}", done.stderr);
        assert!(done.stdout.contains("received  101 packets"), "{source}: {}", done.stdout);
    }
}

#[test]
fn a_program_with_file_capabilities_gives_them_up_without_root() {
    let Some(live) = Live::or_skip() else { return };
    // The second is for --mlock alone.
    let Some(binary) = binary_with(&live.place, "cap_net_raw,cap_ipc_lock") else { return };
    let mut command = Command::new(&binary);
    command
        .args(["run", "-i", "vb", "--ring", "64MiB", "--mlock", "--rights-selftest", "--out"])
        .arg(live.place.out());
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    let started = live.lab.b().enter(|| Started::new(command));
    live.place.wait_for_start();
    live.sender().send(&mixed_frames(1, 100)).unwrap();
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    let tried = selftest(&done);
    if has_landlock(&tried) {
        assert_all_refused(&tried);
    }
    assert!(done.stdout.contains("received  100 packets"), "{}", done.stdout);
    assert!(done.stderr.contains("locked"), "{}", done.stderr);
}

#[test]
fn capture_and_dumps_go_on_without_any_rights() {
    let Some(live) = Live::or_skip() else { return };
    // The ring goes into the folder for dumps: the one above it belongs to root.
    live.place.open_to_all();
    chown(live.place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
    let ring = live.place.out().join("ring.pcapng");
    let orders = ["--trigger", "hit=udp port 60000", "--dump", "ip or ip6", "--after", "300ms"];
    let source = ["--source", "afpacket:vb,workers=2", "--ring-out", ring.to_str().unwrap()];
    let started = live.start_at(&live.place, &[&source[..], &orders].concat());
    for thread in started.threads() {
        let lines: BTreeMap<&str, &str> = thread.lines().filter_map(|line| line.split_once(":\t")).collect();
        let name = lines["Name"];
        for (key, due) in [
            ("CapEff", "0000000000000000"),
            ("CapPrm", "0000000000000000"),
            ("CapInh", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("CapAmb", "0000000000000000"),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
            ("Uid", "65534\t65534\t65534\t65534"),
        ] {
            assert_eq!(lines[key], due, "{key} of thread {name}");
        }
        assert_eq!(lines["Groups"].trim(), "", "thread {name}");
    }
    let mut frames = mixed_frames(1, 500);
    frames.insert(250, hit_frame(&[]));
    live.sender().send(&frames).unwrap();
    live.wait_for_dumps(1);
    let summary = stop_complete(started, frames.len());
    std::fs::rename(&ring, live.ring_path()).unwrap();
    let found = live.check_only_dump(&summary, "ip or ip6", &hit_frame(&[]));
    assert_eq!(found.packets.len(), frames.len());
    let dump = summary.only_dump().path.metadata().unwrap();
    assert_eq!(
        (dump.uid(), dump.mode() & 0o7777),
        (NOBODY, 0o600),
        "several programs may be nobody: its group reads nothing"
    );
}

#[test]
fn started_as_root_a_run_is_who_can_write_with_the_least_rights_and_says_who() {
    if !is_root() {
        return;
    }
    let own_user = has_own_user();
    // Owner and mode of the folder, what is given, who it is.
    for (owner, mode, arguments, user, expected) in [
        (DAEMON, 0o755, &[][..], DAEMON, "user daemon (the dump folder's owner), no capabilities"),
        (0, 0o700, &[], 0, "nobody; to have another user: give the folder to this user by: chown -R "),
        (0, 0o755, &["--user", "root"], 0, "user root, no capabilities"),
        (0, 0o777, &["--user", "daemon"], DAEMON, "user daemon, no capabilities"),
        (
            0,
            0o777,
            &[],
            if own_user { 0 } else { NOBODY },
            if own_user { "user wirescope" } else { "user nobody, no capabilities" },
        ),
    ] {
        let place = Place::new();
        let command = command(&place, owner, arguments);
        std::fs::set_permissions(place.out(), PermissionsExt::from_mode(mode)).unwrap();
        let done = run::finish(command);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(rights_line(&done).contains(expected), "{expected}: {}", rights_line(&done));
        assert_eq!(place.out_names().len(), 2, "{:?}", place.out_names());
        for name in place.out_names() {
            let found = place.out().join(&name).metadata().unwrap();
            assert!(own_user || found.uid() == user, "{name} belongs to {}", found.uid());
        }
    }
}

#[test]
fn a_user_who_is_not_there_or_can_t_write_is_refused_before_anything_starts() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let done = run::finish(command(&place, 0, &["--user", "no-such-user", "--holdoff", "never"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for fault in ["--user: there is no user 'no-such-user'", "useradd --system no-such-user", "--holdoff: "] {
        assert!(done.stderr.contains(fault), "'{fault}' is missing in: {}", done.stderr);
    }
    let out = place.out().display().to_string();
    let done = run::finish(command(&place, 0, &["--user", "nobody"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    let remedy = format!("chown -R nobody {out}");
    assert!(done.stderr.contains(&remedy) && !done.stderr.contains("ready"), "{}", done.stderr);
    // A log of an earlier run that this user can't go on with.
    std::fs::set_permissions(place.out(), PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(place.out().join("wirescope.jsonl"), "").unwrap();
    std::fs::set_permissions(place.out().join("wirescope.jsonl"), PermissionsExt::from_mode(0o600)).unwrap();
    let done = run::finish(command(&place, 0, &["--user", "nobody"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains(&remedy), "{}", done.stderr);
    assert_eq!(names(&place.out()), ["wirescope.jsonl"]);
    // One that this user could go on with, but that is somebody else's, who would read it.
    chown(place.out().join("wirescope.jsonl"), Some(DAEMON), Some(DAEMON)).unwrap();
    std::fs::set_permissions(place.out().join("wirescope.jsonl"), PermissionsExt::from_mode(0o666)).unwrap();
    let done = run::finish(command(&place, 0, &["--user", "nobody"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(
        done.stderr.contains("belongs to another user (number 1)") && done.stderr.contains("move it away"),
        "{}",
        done.stderr
    );
    assert_eq!(place.out().join("wirescope.jsonl").metadata().unwrap().len(), 0);
    // The same where nobody was named: root without capabilities may not write to what belongs to others,
    // either.
    let place = Place::new();
    let command = command(&place, DAEMON, &[]);
    std::fs::write(place.out().join("wirescope.jsonl"), "").unwrap();
    std::fs::set_permissions(place.out().join("wirescope.jsonl"), PermissionsExt::from_mode(0o600)).unwrap();
    let done = run::finish(command);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains(&format!("chown -R daemon {}", place.out().display())), "{}", done.stderr);
}

/// The folders of `-w`, `--out` and `--ring-out`, each a flag of its own.
const WHERE: [(&str, &str, &str); 3] =
    [("-w", "single", "x.pcapng"), ("--out", "log", ""), ("--ring-out", "ring", "ring.pcapng")];

/// A run as root that writes to some of [`WHERE`], each of them a folder of its own and somebody's own;
/// `None`: not given.
fn run_into(owners: [Option<u32>; 3], arguments: &[&str]) -> (Place, Done) {
    let place = Place::new();
    place.open_to_all();
    let mut command = wirescope(&["run"]);
    command.args(TRAFFIC).args(arguments);
    for ((flag, folder, file), owner) in WHERE.into_iter().zip(owners) {
        let Some(owner) = owner else { continue };
        let folder = place.path(folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        chown(&folder, Some(owner), Some(owner)).unwrap();
        command.arg(flag).arg(if file.is_empty() { folder } else { folder.join(file) });
    }
    (place, run::finish(command))
}

/// That `said` names, of [`WHERE`], those that `lacks` is true of and no other one, and the remedy of exactly
/// these, for `user`.
fn names_exactly(place: &Place, said: &str, user: &str, lacks: impl Fn(usize) -> bool) {
    for (number, (flag, folder, _)) in WHERE.iter().enumerate() {
        let path = place.path(folder).display().to_string();
        let give = match *flag {
            "--out" => format!("chown -R {user} {path}"),
            _ => format!("install -d -o {user} {path}/dumps"),
        };
        assert_eq!(said.contains(&path), lacks(number), "{path} for {user}: {said}");
        assert_eq!(said.contains(&give), lacks(number), "{give}: {said}");
    }
}

#[test]
fn a_user_who_can_t_write_everywhere_is_told_which_folders_and_what_helps_for_each_of_them() {
    if !is_root() {
        return;
    }
    const OWNERS: [Option<u32>; 3] = [None, Some(0), Some(NOBODY)];
    for case in 0..27 {
        let (single, log, ring) = (OWNERS[case / 9], OWNERS[case / 3 % 3], OWNERS[case % 3]);
        if single.or(log).is_none() {
            continue; // there is nowhere to write a dump
        }
        let owners = [single, log, ring];
        let (place, done) = run_into(owners, &["--user", "nobody"]);
        if owners.iter().all(|owner| *owner != Some(0)) {
            assert_eq!(done.code(), Some(0), "{owners:?}: {}", done.stderr);
            continue;
        }
        assert_eq!(done.code(), Some(2), "{owners:?}: {}", done.stderr);
        assert!(done.stderr.contains("--user: nobody can't write to "), "{}", done.stderr);
        names_exactly(&place, &done.stderr, "nobody", |number| owners[number] == Some(0));
    }
}

#[test]
fn where_nobody_can_write_everywhere_the_folders_named_are_those_that_the_user_named_can_t_write() {
    if !is_root() || has_own_user() {
        return;
    }
    // Owners of the folders; who can write to the most of them, and to which not.
    for (owners, user, lacking) in [
        // Nobody else can write to what is root's, and root without capabilities not to what is another
        // one's.
        ([Some(0), Some(NOBODY), None], "nobody", &[0][..]),
        ([Some(NOBODY), Some(0), None], "nobody", &[1]),
        ([Some(NOBODY), Some(NOBODY), Some(0)], "nobody", &[2]),
        ([Some(0), Some(NOBODY), Some(0)], "nobody", &[0, 2]),
        // Two users, each of whom can write to one folder.
        ([Some(NOBODY), Some(DAEMON), None], "daemon", &[0]),
        ([Some(DAEMON), Some(NOBODY), None], "nobody", &[0]),
        // The second can write to more than the first.
        ([Some(NOBODY), Some(DAEMON), Some(NOBODY)], "nobody", &[1]),
    ] {
        let (place, done) = run_into(owners, &[]);
        assert_eq!(done.code(), Some(2), "{owners:?}: {}", done.stderr);
        assert!(
            done.stderr.contains(&format!("--user: {user} can't write to ")),
            "{owners:?}: {}",
            done.stderr
        );
        names_exactly(&place, &done.stderr, user, |number| lacking.contains(&number));
    }
    // All that there is belongs to root: the run stays root, and says what would make it another user.
    for owners in
        [[Some(0), None, None], [None, Some(0), None], [Some(0), Some(0), None], [Some(0), Some(0), Some(0)]]
    {
        for arguments in [&[][..], &["--user", "root", "--exec", "true"]] {
            let exec = arguments.contains(&"--exec");
            let (place, done) = run_into(owners, arguments);
            assert_eq!(done.code(), Some(if exec { 2 } else { 0 }), "{owners:?}: {}", done.stderr);
            let said = if exec { &done.stderr } else { rights_line(&done) };
            names_exactly(&place, said, "nobody", |number| owners[number].is_some());
        }
    }
    // Root without capabilities can't write to what is another one's, and is told so as anybody is.
    let (place, done) = run_into([Some(NOBODY), Some(0), None], &["--user", "root", "--exec", "true"]);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    names_exactly(&place, &done.stderr, "root", |number| number == 0);
}

/// Users and groups of a process, as the kernel tells them: real, effective, saved, of files; and its further
/// groups.
fn identity(pid: u32) -> (String, String, String) {
    identity_of(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap())
}

fn identity_of(status: &str) -> (String, String, String) {
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    (line("Uid:"), line("Gid:"), line("Groups:"))
}

/// Runs with [`TRAFFIC`] that doesn't end by itself, into a folder of `owner`; who it is, and whose its files
/// are.
fn run_of(owner: (u32, u32), arguments: &[&str]) -> ((String, String, String), Vec<(u32, u32)>) {
    let place = Place::new();
    place.open_to_all();
    chown(place.out(), Some(owner.0), Some(owner.1)).unwrap();
    let mut command =
        wirescope(&["run", "--source", "synth:rate=1k", "--ring", "64MiB", "--before", "100ms", "--out"]);
    command.arg(place.out()).args(arguments).args(["--exit-after", "1"]);
    let started = Started::new(command);
    place.wait_for_start();
    let identity = identity(started.id());
    started.signal(libc::SIGUSR1);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let metadata = |name: &String| place.out().join(name).metadata().unwrap();
    let owners: Vec<_> =
        place.out_names().iter().map(metadata).map(|file| (file.uid(), file.gid())).collect();
    assert_eq!(owners.len(), 2, "a log and a dump");
    (identity, owners)
}

#[test]
fn the_owner_of_the_folder_is_taken_on_without_the_group_of_root() {
    if !is_root() {
        return;
    }
    let (identity, owners) = run_of((12_345, 0), &[]);
    assert_eq!(identity, ("12345 12345 12345 12345".into(), "12345 12345 12345 12345".into(), String::new()));
    assert!(owners.iter().all(|owner| *owner == (12_345, 12_345)), "{owners:?}");
}

#[test]
fn a_user_may_be_given_by_numbers_that_nobody_knows() {
    if !is_root() {
        return;
    }
    for (given, uid, gid) in
        [("12345", 12_345, 12_345), ("12345:23456", 12_345, 23_456), ("1:23456", 1, 23_456)]
    {
        let (identity, owners) = run_of((uid, 0), &["--user", given]);
        let four = |number: u32| [number; 4].map(|number| number.to_string()).join(" ");
        assert_eq!(identity, (four(uid), four(gid), String::new()), "{given}");
        assert!(owners.iter().all(|owner| *owner == (uid, gid)), "{given}: {owners:?}");
    }
    let place = Place::new();
    let done = run::finish(command(&place, 0, &["--user", "12345"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(
        done.stderr.contains("12345 can't write") || done.stderr.contains("chown -R 12345"),
        "{}",
        done.stderr
    );
    for wrong in ["0", "0:0", "5:0", "-1", "4294967295", "5:daemon"] {
        let done = run::finish(command(&place, 0, &["--user", wrong]));
        assert_eq!(done.code(), Some(2), "{wrong}: {}", done.stderr);
        assert!(done.stderr.starts_with("wirescope: --user: "), "{wrong}: {}", done.stderr);
    }
}

#[test]
fn who_is_not_root_can_t_become_somebody_else() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let command = command(&place, NOBODY, &["--user", "daemon"]);
    let mut as_nobody = Command::new(place.binary_for_all());
    as_nobody.args(command.get_args()).uid(NOBODY).gid(NOBODY).current_dir("/");
    let done = run::finish(as_nobody);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("--user: only root can become another user"), "{}", done.stderr);
    assert!(place.out_names().is_empty());
}

#[test]
fn no_file_is_readable_for_everybody_whatever_the_umask_says() {
    for umask in [0o000, 0o022, 0o077] {
        let place = Place::new();
        let ring = place.path("ring.pcapng");
        let mut command = wirescope(&["run", "--out"]);
        command.arg(place.out()).args(TRAFFIC).arg("--ring-out").arg(&ring);
        // SAFETY: between fork and exec; umask takes a number and never fails.
        unsafe {
            command.pre_exec(move || {
                libc::umask(umask);
                Ok(())
            })
        };
        let done = run::finish(command);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let files: Vec<_> =
            place.out_names().iter().map(|name| place.out().join(name)).chain([ring]).collect();
        assert_eq!(files.len(), 3, "{files:?}");
        for file in files {
            let mode = file.metadata().unwrap().mode() & 0o777;
            assert!(
                mode & 0o137 == 0 && mode & 0o600 == 0o600,
                "{mode:o}: {} under {umask:o}",
                file.display()
            );
        }
    }
}

#[test]
fn dumps_go_to_the_folder_that_was_opened_even_when_it_was_moved_meanwhile() {
    let place = Place::new();
    let started =
        Started::new(place.command(&["--source", "synth:rate=1k", "--before", "1", "--exit-after", "1"]));
    place.wait_for_start();
    let moved = place.path("moved");
    std::fs::rename(place.out(), &moved).unwrap();
    std::fs::create_dir(place.out()).unwrap();
    started.signal(libc::SIGUSR1);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(names(&moved).len(), 2, "{:?}", names(&moved));
    assert!(place.out_names().is_empty());
}

/// What a process of user `uid` can do to process `pid`, one bit each: read its memory through /proc, and by
/// the system call; stop and trace it; take its descriptors; list them; read its environment.
fn possible(uid: u32, pid: u32) -> i32 {
    let path = |name: &str| std::ffi::CString::new(format!("/proc/{pid}/{name}")).unwrap();
    let (memory, open, environment) = (path("mem"), path("fd"), path("environ"));
    let tries = move || {
        let mut byte = [0u8; 1];
        let here = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let there = libc::iovec { iov_base: 0x1000 as *mut libc::c_void, iov_len: 1 };
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let mut mask = 0;
        let mut note = |bit: i32, possible: bool| mask |= i32::from(possible) << bit;
        // SAFETY: the paths and what is read into outlive the calls; all else is numbers. This process ends
        // at once.
        unsafe {
            note(0, libc::open(memory.as_ptr(), flags) >= 0);
            // There is nothing at that address: who may read is told that, who may not is told so.
            libc::process_vm_readv(pid as i32, &here, 1, &there, 1, 0);
            note(1, std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT));
            let handle = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            note(2, (0..64).any(|fd| libc::syscall(libc::SYS_pidfd_getfd, handle, fd, 0) >= 0));
            note(3, libc::open(open.as_ptr(), flags) >= 0);
            note(4, libc::open(environment.as_ptr(), flags) >= 0);
            note(5, libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0);
            libc::_exit(mask)
        }
    };
    let mut command = Command::new("/bin/true");
    command.uid(uid).gid(uid);
    // SAFETY: between fork and exec only system calls are made; everything was allocated before.
    unsafe { command.pre_exec(tries) };
    command.status().unwrap().code().unwrap()
}

#[test]
fn no_process_of_the_same_user_looks_into_a_run_or_takes_its_sockets() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    chown(place.out(), Some(12_345), Some(12_345)).unwrap();
    // Never was it anybody else: then the kernel wouldn't hide it by itself.
    let mut command = Command::new(place.binary_for_all());
    command.args([
        "run",
        "--source",
        "synth:rate=1k",
        "--ring",
        "64MiB",
        "--before",
        "1",
        "--exec",
        "sleep 60",
        "--out",
    ]);
    command.arg(place.out()).uid(12_345).gid(12_345).current_dir("/");
    let started = Started::new(command);
    place.wait_for_start();
    assert_eq!(possible(12_345, started.pid()), 0, "the run");
    // The processes for its commands have its rights to files: they are as closed.
    // Those of other tests' runs come and go meanwhile: what is gone tells nothing of itself.
    let told =
        |pid: u32, name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let is_helper = |pid: &u32| {
        told(*pid, "cmdline").contains("exec-helper\0")
            && identity_of(&told(*pid, "status")).0.contains("12345")
    };
    let helpers = || -> Vec<u32> {
        names(Path::new("/proc")).into_iter().filter_map(|name| name.parse().ok()).filter(is_helper).collect()
    };
    wait_until("the helper and its keeper", || helpers().len() >= 2);
    for pid in helpers() {
        assert_eq!(possible(12_345, pid), 0, "a helper");
    }
    // What is asked is possible where nobody hides.
    let mut other = Command::new("/bin/sleep").arg("60").uid(12_345).gid(12_345).spawn().unwrap();
    let guarded =
        std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.trim() != "0");
    let found = possible(12_345, other.id());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(guarded || found == 0b11_1111, "{found:b}");
}

#[test]
fn the_memory_of_packets_is_not_part_of_what_a_crash_leaves() {
    let Some(live) = Live::or_skip() else { return };
    let started = live.start_at(&live.place, &["-i", "vb"]);
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", started.pid())).unwrap();
    let (mut place, mut found) = ("", BTreeMap::new());
    for line in smaps.lines() {
        match line.strip_prefix("VmFlags:") {
            Some(flags) if !place.is_empty() => {
                found.insert(place, flags.split_whitespace().any(|flag| flag == "dd"));
            }
            Some(_) => {}
            None if line
                .split_whitespace()
                .next()
                .is_some_and(|first| first.contains('-') && !first.ends_with(':')) =>
            {
                place = ["wirescope-ring", "wirescope-tables", "socket:"]
                    .into_iter()
                    .find(|name| line.contains(name))
                    .unwrap_or("");
            }
            None => {}
        }
    }
    assert_eq!(found.len(), 3, "ring, tables and the kernel's ring: {found:?}\n{smaps}");
    assert!(found.values().all(|left_out| *left_out), "{found:?}");
    drop(live_lab::stop(started));
}

#[test]
fn a_file_in_a_folder_of_others_opens_nothing_else_there() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.open_to_all();
    let shared = place.path("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(shared.join("other"), "others'").unwrap();
    let (dump, ring) = (shared.join("x.pcapng"), shared.join("ring.pcapng"));
    let mut command = wirescope(&["run", "--rights-selftest", "--user", "nobody", "-w"]);
    command.arg(&dump).arg("--ring-out").arg(&ring).args(TRAFFIC);
    let done = run::finish(command);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let tried = selftest(&done);
    if !has_landlock(&tried) {
        return;
    }
    assert_eq!(
        (&tried["list_beside"], &tried["open_beside"], &tried["passed"]),
        (&"EACCES".into(), &"EACCES".into(), &true.into()),
        "{tried}"
    );
    for path in [&dump, &ring] {
        assert_eq!(
            (path.metadata().unwrap().uid(), path.metadata().unwrap().mode() & 0o777),
            (NOBODY, 0o600)
        );
        scope_testkit::oracle::opens_cleanly(path).unwrap();
    }
    assert_eq!(names(&shared).len(), 3);
}

/// Lets a system call fail as where the kernel doesn't have it.
fn without(calls: &[i64]) -> BpfProgram {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    SeccompFilter::new(rules, SeccompAction::Allow, missing, architecture).unwrap().try_into().unwrap()
}

#[test]
fn a_kernel_without_seccomp_or_landlock_is_said_and_everything_else_is_given_up() {
    let landlock = [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self];
    for (missing, expected) in [
        (&landlock[..], "no capabilities, seccomp, no Landlock in this kernel: "),
        (&[libc::SYS_seccomp], "no capabilities, no seccomp in this kernel: "),
        (&[landlock[0], libc::SYS_seccomp], "no capabilities, no seccomp in this kernel: "),
    ] {
        let place = Place::new();
        let mut command = wirescope(&["run", "--out"]);
        command.arg(place.out()).args(TRAFFIC);
        let filter = without(missing);
        // SAFETY: between fork and exec only system calls are made; the filter was made before.
        unsafe {
            command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other))
        };
        let done = run::finish(command);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(rights_line(&done).contains(expected), "{}", rights_line(&done));
        assert_eq!(
            rights_line(&done).contains("no Landlock"),
            missing.contains(&landlock[0]),
            "{}",
            rights_line(&done)
        );
        assert_eq!(place.out_names().len(), 2, "{:?}", place.out_names());
    }
}

#[test]
fn a_self_test_that_finds_something_possible_fails_the_run() {
    let place = Place::new();
    let mut command = wirescope(&["run", "--rights-selftest", "--out"]);
    command.arg(place.out()).args(TRAFFIC);
    let filter = without(&[libc::SYS_landlock_create_ruleset]);
    // SAFETY: between fork and exec only system calls are made; the filter was made before.
    unsafe { command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other)) };
    let done = run::finish(command);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let tried = selftest(&done);
    assert_eq!((&tried["write_outside"], &tried["passed"]), (&"possible".into(), &false.into()), "{tried}");
    assert!(leftovers(Path::new("/var/tmp")).is_empty() && leftovers(Path::new("/tmp")).is_empty());
}

fn leftovers(folder: &Path) -> Vec<String> {
    names(folder).into_iter().filter(|name| name.starts_with("wirescope-selftest-")).collect()
}
