//! Programs that nobody changes, in which the device `wirescope` is a group: what tcpdump then has, what is left as it is, what
//! is refused, and how they end.

mod run;

use run::asking::Running;
use run::captured::{capture, packets, sorted};
use run::{LIMIT, NOBODY, Place, Started, finish, is_root, skip, wait_until, wirescope};
use scope_testkit::traffic::Record;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Traffic of many flows, over IPv4 and IPv6, with and without tags.
const SOURCE: &str = "synth:packets=30k,flows=500,vlan=20%,ipv6=30%,pace=max,rate=100k";
/// How tcpdump writes whole times.
const NANO: &str = "--time-stamp-precision=nano";

/// The library of this build: it lies beside the tests.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().join("libwirescope_preload.so")
}

/// `wirescope with GROUP -- PROGRAM ...` at this socket, in this folder.
fn with(socket: &Path, folder: &Path, group: &str, program: &[&str]) -> Command {
    let mut command = wirescope(&["with", group, "--attach"]);
    command.arg(socket).arg("--").args(program).current_dir(folder).env("WIRESCOPE_PRELOAD", library());
    command
}

/// A run of that file with this group, once it waits for members.
fn run_of_file(place: &Place, file: &Path, group: &str) -> (Started, PathBuf) {
    let socket = place.path("attach");
    let mut command = place.command(&["--group", group]);
    command.arg("-r").arg(file).arg("--attach").arg(&socket);
    let run = Started::new(command);
    wait_until("the socket", || socket.exists());
    (run, socket)
}

/// A live run with groups, which root and its user may read.
fn live(source: &str, groups: &[&str]) -> (Running, PathBuf) {
    let place = Place::new();
    let socket = place.path("attach");
    let at = socket.to_str().unwrap().to_string();
    // SAFETY: geteuid takes nothing and always succeeds.
    let me = unsafe { libc::geteuid() }.to_string();
    let groups = groups.iter().flat_map(|group| ["--group", group]);
    let flags = ["--source", source, "--attach", &at, "--attach-ring", &me].into_iter().chain(groups);
    (Running::bare(place, &flags.collect::<Vec<&str>>()), socket)
}

/// What tcpdump makes of a file.
fn tcpdump_of(folder: &Path, file: &Path, filter: &str) -> Vec<Record> {
    let mut oracle = Command::new("tcpdump");
    oracle.args([NANO, "-w", "oracle.pcap", "-r"]).arg(file).arg(filter).current_dir(folder);
    let done = oracle.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    packets(&folder.join("oracle.pcap"))
}

/// A figure of tcpdump's last words.
fn figure(words: &str, what: &str) -> u64 {
    let line = words.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {words}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn tcpdump_writes_exactly_what_the_group_took_and_ends_with_the_run() {
    let place = Place::new();
    let file = capture(place.root(), SOURCE);
    let (run, socket) = run_of_file(&place, &file, "some,filter=udp,members=1,memory=2MiB");
    let done =
        finish(with(&socket, place.root(), "some", &["tcpdump", "-i", "wirescope", NANO, "-w", "got.pcap"]));
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("pcap_loop: the run has ended"), "{}", done.stderr);
    let run = run.finish(LIMIT);
    assert_eq!(run.code(), Some(0), "{}", run.stderr);
    let (got, expected) =
        (packets(&place.path("got.pcap")), tcpdump_of(place.root(), &file, "udp or (vlan and udp)"));
    assert!(!expected.is_empty() && sorted(&got) == sorted(&expected), "{} {}", got.len(), expected.len());
    for what in ["packets captured", "received by filter"] {
        assert_eq!(figure(&done.stderr, what), expected.len() as u64, "{}", done.stderr);
    }
    assert_eq!(figure(&done.stderr, "dropped by kernel"), 0, "{}", done.stderr);
}

#[test]
fn a_program_has_its_own_filter_and_length() {
    let place = Place::new();
    let file = capture(place.root(), SOURCE);
    let (run, socket) = run_of_file(&place, &file, "all,members=1");
    let words = ["tcpdump", "-i", "wirescope", NANO, "-s", "60", "-w", "got.pcap", "ip and udp"];
    let done = finish(with(&socket, place.root(), "all", &words));
    assert!(done.stderr.contains("snapshot length 60 bytes"), "{}", done.stderr);
    assert_eq!(run.finish(LIMIT).code(), Some(0));
    let mut expected = tcpdump_of(place.root(), &file, "ip and udp");
    expected.iter_mut().for_each(|packet| packet.data.truncate(60));
    let got = packets(&place.path("got.pcap"));
    assert!(!expected.is_empty() && sorted(&got) == sorted(&expected), "{} {}", got.len(), expected.len());
    assert_eq!(figure(&done.stderr, "received by filter"), 30_000, "{}", done.stderr);
}

#[test]
fn copies_together_have_each_packet_once_and_each_flow_whole() {
    let place = Place::new();
    let file = capture(place.root(), SOURCE);
    let (run, socket) = run_of_file(&place, &file, "ids,steer=flow,members=3");
    let done = finish(with(
        &socket,
        place.root(),
        "ids*3",
        &["tcpdump", "-i", "wirescope", NANO, "-w", "out%m.pcap"],
    ));
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert_eq!(run.finish(LIMIT).code(), Some(0));
    let copies = [0, 1, 2].map(|copy| packets(&place.path(&format!("out{copy}.pcap"))));
    assert!(copies.iter().all(|copy| !copy.is_empty()));
    assert!(sorted(copies.iter().flatten()) == sorted(&packets(&file)), "other packets");
    let mut owners: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (number, copy) in copies.iter().enumerate() {
        for packet in copy.iter().filter(|packet| packet.data[12..15] == [8, 0, 0x45]) {
            let mut ends = [&packet.data[26..30], &packet.data[30..34]];
            ends.sort();
            let mut ports = [&packet.data[34..36], &packet.data[36..38]];
            ports.sort();
            let flow = [&ends.concat()[..], &ports.concat(), &packet.data[23..24]].concat();
            assert_eq!(*owners.entry(flow).or_insert(number), number, "a flow is at two copies");
        }
    }
}

#[test]
fn other_devices_and_files_are_what_they_are() {
    let (running, socket) = live("synth:rate=2k", &["web"]);
    let folder = running.place.root();
    let file = capture(folder, SOURCE);
    let words = ["-r", file.to_str().unwrap(), NANO, "-w"];
    let read = |name: &'static str| [&["tcpdump"], &words[..], &[name]].concat();
    let done = finish(with(&socket, folder, "web", &read("one.pcap")));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let plain = Command::new("tcpdump").args(&read("other.pcap")[1..]).current_dir(folder).output().unwrap();
    assert!(plain.status.success());
    let bytes = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(bytes("one.pcap") == bytes("other.pcap"));

    let words = ["tcpdump", "-i", "no-such-device", "-c", "1"];
    let done = finish(with(&socket, folder, "web", &words));
    let plain = Command::new("tcpdump").args(&words[1..]).output().unwrap();
    assert_eq!((done.code(), done.stderr), (plain.status.code(), String::from_utf8(plain.stderr).unwrap()));

    let done = finish(with(&socket, folder, "web", &["tcpdump", "-D"]));
    let plain = Command::new("tcpdump").arg("-D").output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    let own = done.stdout.strip_prefix(&plain).unwrap_or_else(|| panic!("{}", done.stdout));
    assert!(own.contains("wirescope (group web of a run of wirescope) [Up, Running"), "{own}");

    if !is_root() {
        return skip("capturing from lo needs root");
    }
    let tap = Started::new(with(
        &socket,
        folder,
        "web",
        &["tcpdump", "-i", "lo", "-c", "1", "-w", "lo.pcap", "udp port 34567"],
    ));
    wait_until("tcpdump to listen", || tap.words().contains("listening on lo"));
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    wait_until("a packet of lo", || {
        sender.send_to(b"to lo", "127.0.0.1:34567").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        std::fs::metadata(folder.join("lo.pcap")).is_ok_and(|it| it.len() > 24)
            || children(tap.id()).is_empty()
    });
    assert_eq!(tap.finish(LIMIT).code(), Some(0));
    assert!(packets(&folder.join("lo.pcap"))[0].data.ends_with(b"to lo"));
}

#[test]
fn a_copy_that_stood_still_says_what_it_missed_and_ctrl_c_ends_all() {
    let (running, socket) = live("synth:rate=50k,size=512", &["all,steer=all,memory=2MiB"]);
    let folder = running.place.root();
    let words = ["tcpdump", "-i", "wirescope", "-w", "out%m.pcap"];
    let copies = Started::new(with(&socket, folder, "all*2", &words));
    let group = || running.get("groups").body["groups"][1].clone();
    wait_until("two members that read", || {
        let members = group()["members"].as_array().cloned().unwrap_or_default();
        members.len() == 2 && members.iter().all(|member| member["read"].as_u64() > Some(0))
    });
    let pids = children(copies.id());
    assert_eq!(pids.len(), 2);
    // SAFETY: kill takes no pointers, and the process is a child's, which waits for it.
    let tell = |signal: i32| assert_eq!(unsafe { libc::kill(pids[0], signal) }, 0);
    tell(libc::SIGSTOP);
    wait_until("packets to be missed", || {
        group()["members"].as_array().unwrap().iter().any(|member| member["missed"].as_u64() > Some(1000))
    });
    tell(libc::SIGCONT);
    wait_until("it to have read on", || {
        let members = group()["members"].as_array().cloned().unwrap_or_default();
        members.iter().all(|member| member["behind"].as_u64() < Some(1000))
    });
    std::thread::sleep(Duration::from_millis(200));
    copies.signal(libc::SIGINT);
    let done = copies.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let missed: Vec<u64> = done
        .stderr
        .lines()
        .filter(|line| line.contains("dropped by kernel"))
        .map(|line| figure(line, "dropped"))
        .collect();
    assert!(missed.len() == 2 && missed.contains(&0) && missed.iter().sum::<u64>() > 1000, "{}", done.stderr);
    wait_until("both to be gone", || group()["gone"]["members"] == 2);
}

#[test]
fn what_can_t_work_is_refused_before_anything_starts_and_the_pipe_is_named() {
    let (running, socket) = live("synth:rate=2k", &["web"]);
    let place = &running.place;
    let tcpdump = String::from_utf8(Command::new("which").arg("tcpdump").output().unwrap().stdout).unwrap();
    let copied = |name: &str, mode: u32| {
        let path = place.path(name);
        std::fs::copy(tcpdump.trim(), &path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    copied("setuid", 0o4755);
    copied("setgid", 0o2755);
    copied("plain", 0o644);
    std::fs::write(place.path("main.c"), "int main(void) { return 0; }\n").unwrap();
    let cc =
        Command::new("cc").args(["-static", "-o", "static", "main.c"]).current_dir(place.root()).output();
    assert!(cc.unwrap().status.success());
    let check = |group: &str, program: &str, expected: &[&str]| {
        let done = finish(with(&socket, place.root(), group, &[program, "-i", "wirescope", "-w", "x.pcap"]));
        assert_eq!(done.code(), Some(2), "{program}: {}", done.stderr);
        for words in expected {
            assert!(done.stderr.contains(words), "{program}: {words}: {}", done.stderr);
        }
        assert!(!place.path("x.pcap").exists());
    };
    let pipe = format!("use the pipe: wirescope tap web --attach {} | ", socket.display());
    check("web", "./static", &["/static: it is statically linked", &pipe, "| ./static -r -"]);
    check("web", "./setuid", &["/setuid: it is setuid or setgid", &pipe]);
    check("web", "./setgid", &["/setgid: it is setuid or setgid", &pipe]);
    check("web", "true", &["it doesn't link libpcap", &pipe, "| true -r -"]);
    check("web", "./plain", &["./plain: it is no program"]);
    check("web", "no-such-program", &["no-such-program: there is no such program; install it"]);
    check("nets", "tcpdump", &["GROUP: there is no group 'nets'", "wirescope groups"]);
    check("web*9", "tcpdump", &["8 of its 8 places for members are left, and 9 are asked for; wait until"]);
    check("nets*9", "./static", &["there is no group 'nets'", "it is statically linked"]);
    for group in ["web*0", "web*65", "web*x"] {
        check(
            group,
            "tcpdump",
            &["has no number of copies behind its '*'", "write e.g. 'web*2', at most 64"],
        );
    }
    let mut command =
        wirescope(&["with", "web", "--attach", "nowhere", "--weight", "0", "--name", "a,b", "--past"]);
    command.args(["1m", "--", "tcpdump", "-D"]).env("WIRESCOPE_PRELOAD", library());
    let done = finish(command);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for words in ["weight", "has a comma", "a group has nothing of before"] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    let done = finish(with(Path::new("nowhere"), place.root(), "web", &["tcpdump", "-D"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("no run listens there; start the run with --attach"), "{}", done.stderr);
    if is_root() {
        place.open_to_all();
        let copy = place.binary_for_all();
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), "--clear-groups", "--"]).arg(copy);
        command.args(["with", "web", "--attach"]).arg(&socket).args(["--", "tcpdump", "-D"]);
        let library_copy = place.path("libwirescope_preload.so");
        std::fs::copy(library(), &library_copy).unwrap();
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{}", done.stderr);
        assert!(done.stderr.contains("user 65534 may not read group 'web'"), "{}", done.stderr);
    }
    // Nobody has joined by all this.
    let group = running.get("groups").body["groups"][1].clone();
    assert_eq!((&group["gone"]["members"], &group["idle"]), (&0.into(), &group["published"]), "{group}");
}

#[test]
fn a_program_that_calls_all_of_libpcap_gets_what_its_manual_says_and_goes_on_with_the_next_run() {
    let (running, socket) = live("synth:rate=20k", &["web"]);
    let folder = running.place.root().to_path_buf();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/with/calls.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(folder.join("calls")).arg(source).arg("-lpcap");
    let cc = cc.output().unwrap();
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    for group in ["web", "ring"] {
        let done = finish(with(&socket, &folder, group, &["./calls"]));
        assert_eq!(done.code(), Some(0), "{group}: {}", done.stderr);
    }
    let calls = Started::new(with(&socket, &folder, "web", &["./calls", "last words"]));
    wait_until("it to wait for the end", || calls.printed().contains("waiting"));
    let (place, _) = running.end();
    wait_until("it to see the end", || calls.printed().contains("ended"));
    let flags = ["--source", "synth:rate=5k", "--group", "web", "--attach", socket.to_str().unwrap()];
    let running = Running::bare(place, &flags);
    let done = calls.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("last words: "), "{}", done.stderr);
    drop(running);
}

#[test]
fn the_library_needs_libc_alone() {
    let output = Command::new("objdump").arg("-p").arg(library()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let values = |key: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(key));
        lines.map(|value| value.trim().to_string()).collect()
    };
    assert_eq!(values("SONAME"), ["libwirescope_preload.so"]);
    let of_libc = |name: &String| name == "libc.so.6" || name.starts_with("ld-linux");
    assert!(values("NEEDED").iter().all(of_libc), "{text}");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let others: Vec<&str> = text.lines().filter(|line| !line.contains(" T pcap_")).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
#[ignore = "needs Suricata, which Debian 12 has in its backports alone: cargo test --release --test with -- --ignored"]
fn suricata_finds_the_same_as_in_the_file() {
    let place = Place::new();
    let file = capture(place.root(), SOURCE);
    let settings = "%YAML 1.1\n---\noutputs:\n  - fast:\n      enabled: yes\n      filename: fast.log\n";
    std::fs::write(place.path("s.yaml"), settings).unwrap();
    std::fs::write(place.path("x.rules"), "alert udp any any -> any any (msg:\"udp\"; sid:1;)\n").unwrap();
    for folder in ["file", "live0"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    let words = ["suricata", "-c", "s.yaml", "-S", "x.rules", "-k", "none", "--runmode", "single", "-l"];
    let alerts = |folder: &str| {
        let text = std::fs::read_to_string(place.path(folder).join("fast.log")).unwrap_or_default();
        let mut alerts: Vec<String> = text.lines().map(str::to_string).collect();
        alerts.sort();
        alerts
    };
    let mut plain = Command::new(words[0]);
    plain.args(&words[1..]).args(["file", "-r"]).arg(&file).current_dir(place.root());
    assert!(plain.output().unwrap().status.success());
    let expected = alerts("file");
    let (run, socket) = run_of_file(&place, &file, "ids,members=1");
    let words = [&words[..], &["live%m", "--pcap=wirescope"]].concat();
    let live = Started::new(with(&socket, place.root(), "ids", &words));
    assert_eq!(run.finish(LIMIT).code(), Some(0));
    wait_until("all alerts", || alerts("live0").len() >= expected.len());
    // It tries for ever to open the device again.
    live.signal(libc::SIGINT);
    live.finish(LIMIT);
    assert!(!expected.is_empty() && alerts("live0") == expected);
}
