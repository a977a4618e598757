//! Programs that attach to a run and read its ring in place: what they get, who may, and that nothing they do harms it.

mod run;

use run::asking::Running;
use run::captured::{packets, sorted};
use run::{LIMIT, NOBODY, Place, Started, finish, is_root, wait_until, wirescope};
use scope_testkit::oracle;
use scope_testkit::traffic::Record;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The whole ring of a run at its end, in its folder.
const WHOLE: &str = "whole.pcapng";

/// Who runs the tests.
fn me() -> String {
    // SAFETY: geteuid takes nothing and always succeeds.
    unsafe { libc::geteuid() }.to_string()
}

/// A run that others may attach to, of this user.
struct Shared {
    running: Running,
    socket: PathBuf,
}

impl Shared {
    fn new(source: &str, more: &[&str]) -> Shared {
        let place = Place::new();
        let socket = place.path("attach");
        let (at, me) = (socket.to_str().unwrap().to_string(), me());
        let whole = place.path(WHOLE).to_str().unwrap().to_string();
        let more = more.iter().map(|word| if *word == WHOLE { &whole } else { *word });
        let flags = ["--source", source, "--attach", &at, "--attach-ring", &me];
        let flags: Vec<&str> = flags.into_iter().chain(more).collect();
        let running = Running::bare(place, &flags);
        Shared { running, socket }
    }

    fn tap(&self, words: &[&str]) -> Command {
        let mut command = wirescope(&["tap", "ring", "--attach"]);
        command.arg(&self.socket).args(words).current_dir(self.running.place.root());
        command
    }

    /// What the run says of its group.
    fn group(&self) -> Value {
        self.running.get("groups").body["groups"][0].clone()
    }

    /// Waits until so many members have joined and said where they are.
    fn wait_for_members(&self, many: usize) {
        wait_until("members", || {
            let group = self.group();
            let members = group["members"].as_array().unwrap().clone();
            members.len() == many && members.iter().all(|member| member["given"] != 0)
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.running.place.path(name)
    }
}

/// Time, length on the wire and bytes of each: all that files of both forms say of a packet.
fn plain(packets: &[Record]) -> Vec<(i64, u32, &[u8])> {
    packets.iter().map(|packet| (packet.time_ns, packet.original_len, &packet.data[..])).collect()
}

#[test]
fn a_tap_writes_what_the_run_records_byte_for_byte_and_ends_with_it() {
    let shared = Shared::new("synth:rate=20k,size=imix", &["--ring-out", WHOLE]);
    let tap = Started::new(shared.tap(&["--past", "1h", "-w", "tap.pcapng"]));
    let late = Started::new(shared.tap(&["-w", "late.pcap", "--name", "late"]));
    shared.wait_for_members(2);
    std::thread::sleep(Duration::from_millis(500));
    let group = shared.group();
    let names: Vec<&str> =
        group["members"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"late") && names.contains(&"tap"), "{group}");
    let Shared { running, .. } = shared;
    let (place, _) = running.end();
    for done in [tap.finish(LIMIT), late.finish(LIMIT)] {
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(done.stderr.contains("nothing is missing between them"), "{}", done.stderr);
    }
    let whole = packets(&place.path(WHOLE));
    let tapped = oracle::read(place.path("tap.pcapng")).unwrap();
    assert!(whole.len() > 5000);
    assert_eq!(plain(&tapped.capture.packets), plain(&whole));
    assert_eq!(
        (tapped.statistics[0].received, tapped.statistics[0].dropped),
        (Some(whole.len() as u64), Some(0))
    );
    let late = packets(&place.path("late.pcap"));
    assert!(!late.is_empty());
    assert_eq!(plain(&late), plain(&whole[whole.len() - late.len()..]), "from when it joined to the end");
}

#[test]
fn packets_of_several_lanes_come_in_order_of_time_with_a_filter_of_their_own() {
    let source = "synth:rate=20k,workers=3,flows=50,vlan=20%";
    let shared = Shared::new(source, &["--ring-out", WHOLE]);
    let tap = Started::new(shared.tap(&["--past", "1h", "-f", "udp", "-w", "udp.pcapng"]));
    shared.wait_for_members(1);
    std::thread::sleep(Duration::from_millis(800));
    let (place, _) = shared.running.end();
    let done = tap.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let tapped = packets(&place.path("udp.pcapng"));
    assert!(tapped.is_sorted_by_key(|packet| packet.time_ns));
    let wanted = scope_filter::Filter::compile("udp", scope_filter::VlanRule::default(), &[]).unwrap();
    let wanted = wanted.for_link(scope_packet::LinkType::ETHERNET);
    let whole = packets(&place.path(WHOLE));
    let matches = |packet: &&Record| {
        let headers = scope_packet::Headers::parse(scope_packet::LinkType::ETHERNET, &packet.data);
        wanted.matches(&headers, &packet.data, packet.original_len)
    };
    let mut expected: Vec<Record> = whole.iter().filter(matches).cloned().collect();
    expected.sort_by_key(|packet| packet.time_ns);
    assert!(!expected.is_empty() && expected.len() < whole.len());
    assert_eq!(sorted(&tapped), sorted(&expected));
}

#[test]
fn a_pipe_gets_packets_at_once_and_a_reader_that_has_enough_ends_the_tap() {
    let shared = Shared::new("synth:rate=2k", &[]);
    let done = finish(shared.tap(&["-c", "25", "-w", "some.pcapng"]));
    assert_eq!((done.code(), packets(&shared.path("some.pcapng")).len()), (Some(0), 25), "{}", done.stderr);
    let mut command = shared.tap(&[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 4096];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    drop(child.stdout.take()); // as head does
    assert_eq!(child.wait().unwrap().code(), Some(0));
    wait_until("both to be gone", || shared.group()["gone"]["members"] == 2);
    // The packets of one that is killed are gone, and it is gone from the list at once.
    let killed = Started::new(shared.tap(&["-w", "killed.pcapng"]));
    shared.wait_for_members(1);
    killed.signal(libc::SIGKILL);
    wait_until("the killed one to be gone", || shared.group()["gone"]["members"] == 3);
    let group = shared.group();
    let gone = &group["gone"];
    let of = |key: &str| gone[key].as_u64().unwrap();
    assert_eq!(of("given"), of("read") + of("missed") + of("behind"), "{group}");
    let taken = packets(&shared.path("some.pcapng"));
    assert!(taken.is_sorted_by_key(|packet| packet.time_ns));
    shared.running.end();
}

#[test]
fn a_tap_that_stands_still_misses_packets_exactly_and_the_run_loses_none() {
    // Of the ring 1 MiB: it turns many times a second.
    let more = ["--ring", "1MiB", "--segment", "64KiB"];
    let shared = Shared::new("synth:rate=20k,size=512", &more);
    let tap = Started::new(shared.tap(&["-w", "gaps.pcapng"]));
    shared.wait_for_members(1);
    tap.stand_still();
    let before = shared.group()["published"].as_u64().unwrap();
    wait_until("the ring to turn", || shared.group()["published"].as_u64().unwrap() > before + 10_000);
    let member = shared.group()["members"][0].clone();
    let of = |key: &str| member[key].as_u64().unwrap();
    assert!(of("behind") >= 10_000, "{member}");
    assert_eq!(of("given"), of("read") + of("missed") + of("behind"));
    tap.signal(libc::SIGCONT);
    wait_until("it to know", || shared.group()["members"][0]["missed"].as_u64().unwrap() > 0);
    std::thread::sleep(Duration::from_millis(300));
    let (place, run) = shared.running.end();
    let done = tap.finish(LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("missed: they were recycled before they were read"), "{}", done.stderr);
    let file = oracle::read(place.path("gaps.pcapng")).unwrap();
    let missed: u64 = file.capture.packets.iter().map(|packet| packet.lost_before).sum();
    assert!(missed > 0);
    assert_eq!(file.statistics[0].dropped, Some(missed));
    assert_eq!(file.statistics[0].received, Some(file.capture.packets.len() as u64 + missed));
    assert!(file.capture.packets.is_sorted_by_key(|packet| packet.time_ns));
    let summary: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        summary["dropped"].as_object().unwrap().values().filter(|it| **it != 0).count(),
        0,
        "{summary}"
    );
}

#[test]
fn a_tap_has_no_rights_left() {
    let shared = Shared::new("synth:rate=1k", &[]);
    let tap = Started::new(shared.tap(&["-w", "x.pcapng"]));
    shared.wait_for_members(1);
    for status in tap.threads() {
        let line =
            |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_string();
        assert!(line("Seccomp:").ends_with('2'), "{status}");
        assert!(line("NoNewPrivs:").ends_with('1') && line("CapEff:").ends_with("0000000000"), "{status}");
    }
    drop(tap);
}

#[test]
fn a_run_with_a_door_gives_up_as_many_rights_as_one_without() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.open_to_all();
    std::os::unix::fs::chown(place.root(), Some(NOBODY), Some(NOBODY)).unwrap();
    std::os::unix::fs::chown(place.out(), Some(NOBODY), Some(NOBODY)).unwrap();
    let socket = place.path("attach");
    let mut command =
        wirescope(&["run", "--source", "synth:rate=1k", "--ring", "64MiB", "--rights-selftest"]);
    command.args(["--user", "nobody", "--attach-ring", "root", "--attach"]).arg(&socket);
    command.arg("--out").arg(place.out());
    let run = Started::new(command);
    wait_until("the self-test", || run.printed().contains('}'));
    let tried: Value = serde_json::from_str(run.printed().lines().next().unwrap()).unwrap();
    assert_eq!(tried["passed"], true, "{tried}");
    let threads = tried["threads"].as_array().unwrap();
    assert!(threads.iter().any(|thread| thread["name"] == "attach"), "{tried}");
    // And with these rights it does all that it is for.
    let mut tap = wirescope(&["tap", "ring", "-c", "5", "-w"]);
    tap.arg(place.path("x.pcapng")).arg("--attach").arg(&socket);
    let done = finish(tap);
    assert_eq!((done.code(), packets(&place.path("x.pcapng")).len()), (Some(0), 5), "{}", done.stderr);
    run.signal(libc::SIGINT);
    let done = run.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(!socket.exists(), "it goes with its run");
}

#[test]
fn nobody_reads_the_ring_who_was_not_named() {
    let place = Place::new();
    let socket = place.path("attach");
    let flags = ["--source", "synth:rate=1k", "--attach", socket.to_str().unwrap()];
    let running = Running::bare(place, &flags);
    let tap = || {
        let mut command = wirescope(&["tap", "ring", "-w", "x.pcapng", "--attach"]);
        command.arg(&socket).current_dir(running.place.root());
        finish(command)
    };
    let done = tap();
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains(&format!("user {} may not read the ring", me())), "{}", done.stderr);
    assert!(done.stderr.contains("--attach-ring USER:@GROUP"), "{}", done.stderr);
    assert!(!running.place.path("x.pcapng").exists(), "nothing was begun");
    assert!(running.started.words().contains("nobody may attach at"), "{}", running.started.words());
    let groups = running.get("groups").body;
    assert_eq!(
        (&groups["attach"]["refused"]["not_allowed"], &groups["groups"][0]["members"]),
        (&1.into(), &Value::Array(vec![]))
    );
    running.end();
}

#[test]
fn another_user_reads_the_ring_where_its_group_was_named() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let binary = place.binary_for_all();
    let socket = place.path("attach");
    let (at, group) = (socket.to_str().unwrap().to_string(), format!("@{NOBODY}"));
    let running =
        Running::bare(place, &["--source", "synth:rate=1k", "--attach", &at, "--attach-ring", &group]);
    let tap = |uid: u32| {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&binary);
        command.args(["tap", "ring", "-c", "3", "--attach", &at]).uid(uid).gid(uid);
        finish(command)
    };
    let done = tap(NOBODY);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let refused = tap(12345);
    assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("user 12345 may not read the ring"), "{}", refused.stderr);
    running.end();
}

#[test]
fn the_end_of_a_killed_run_is_read_and_its_socket_is_replaced() {
    let shared = Shared::new("synth:rate=5k", &[]);
    let tap = Started::new(shared.tap(&["--past", "1h", "-w", "x.pcapng"]));
    shared.wait_for_members(1);
    let published = shared.group()["published"].as_u64().unwrap();
    // Another run leaves a socket alone at which one listens.
    let at = shared.socket.to_str().unwrap().to_string();
    let other =
        Place::new().run(&["--source", "synth:rate=1k,time=1s", "--attach", &at, "--attach-ring", "root"]);
    assert_eq!(other.code(), Some(2), "{}", other.stderr);
    assert!(other.stderr.contains("another instance listens at it"), "{}", other.stderr);
    shared.running.started.signal(libc::SIGKILL);
    let done = tap.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(packets(&shared.path("x.pcapng")).len() as u64 >= published);
    assert!(shared.socket.symlink_metadata().unwrap().file_type().is_socket(), "it was left over");
    // The kernel closes its connections one after another, and the socket that it listens at perhaps last.
    wait_until("nobody to listen", || {
        let gone = finish(shared.tap(&["-w", "y.pcapng"]));
        assert_eq!(gone.code(), Some(2), "{}", gone.stderr);
        gone.stderr.contains("no run listens there any more")
    });
    let next =
        Place::new().run(&["--source", "synth:rate=1k,time=1s", "--attach", &at, "--attach-ring", "root"]);
    assert_eq!(next.code(), Some(0), "{}", next.stderr);
    assert!(!shared.socket.exists(), "it goes with its run");
}

#[test]
fn what_can_t_be_meant_is_refused_before_anything_starts_all_of_it_at_once() {
    let place = Place::new();
    let refused = |flags: &[&str], expected: &[&str]| {
        let done = place.run(&[&["--source", "synth:rate=1k,time=1s"], flags].concat());
        assert_eq!(done.code(), Some(2), "{flags:?}: {}", done.stderr);
        for words in expected {
            assert!(done.stderr.contains(words), "{flags:?}: {words}: {}", done.stderr);
        }
    };
    let long = format!("/tmp/{}", "x".repeat(120));
    refused(&["--attach", &long], &["a socket's path has at most 107 bytes, this one has 125"]);
    refused(&["--attach", ""], &["--attach", "it is empty"]);
    refused(&["--attach", "/no/such/folder/x"], &["there is no folder /no/such/folder"]);
    refused(&["--attach-ring", "root"], &["there is no socket to attach at", "--attach"]);
    let at = place.path("x");
    let at = at.to_str().unwrap();
    refused(
        &["--attach", at, "--attach-ring", "no-such-user:@no-such-group:"],
        &["there is no user 'no-such-user'", "there is no group 'no-such-group'", "a name in it is empty"],
    );
    std::fs::write(place.path("file"), "x").unwrap();
    refused(&["--attach", place.path("file").to_str().unwrap()], &["it exists, and is no socket"]);
    assert!(place.out_names().is_empty());
    let tap = |words: &[&str]| {
        let mut command = wirescope(&["tap"]);
        command.args(words).current_dir(place.root());
        finish(command)
    };
    let done = tap(&[
        "ring",
        "-f",
        "nonsense nonsense",
        "--past",
        "x",
        "-c",
        "0",
        "--format",
        "y",
        "--name",
        "a\nb",
    ]);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for words in ["no time", "no number of packets", "no form of a tap", "no name of a member", "filter"] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    let done = tap(&["ring", "--attach", at, "-f", "nonsense nonsense", "-w", "no-such-folder/x.pcap"]);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    for words in ["no run listens there", "filter", "no-such-folder: no such folder"] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    let done = tap(&["ring", "--attach", at, "-w", "x.pcapng"]);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(
        done.stderr.contains("no run listens there") && !place.path("x.pcapng").exists(),
        "{}",
        done.stderr
    );
    let taken = tap(&["ring", "--attach", at, "-w", "file"]);
    assert!(taken.code() == Some(2) && taken.stderr.contains("file"), "{}", taken.stderr);
}

#[test]
fn another_group_and_a_control_socket_are_told_apart() {
    let shared = Shared::new("synth:rate=1k", &[]);
    let mut command = wirescope(&["tap", "voip", "-w", "x.pcapng", "--attach"]);
    command.arg(&shared.socket).current_dir(shared.running.place.root());
    let done = finish(command);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("there is no group 'voip'"), "{}", done.stderr);
    let mut command = wirescope(&["tap", "ring", "-w", "x.pcapng", "--attach"]);
    command.arg(shared.running.socket()).current_dir(shared.running.place.root());
    let done = finish(command);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("a socket of another kind"), "{}", done.stderr);
    shared.running.end();
}

#[test]
fn the_command_groups_shows_members_with_figures_that_add_up() {
    let shared = Shared::new("synth:rate=2k", &[]);
    let tap = Started::new(shared.tap(&["-w", "x.pcapng", "--name", "ids"]));
    shared.wait_for_members(1);
    let json = shared.running.command(&["groups", "--json"]);
    assert_eq!(json.code(), Some(0), "{}", json.stderr);
    let groups: Value = serde_json::from_str(&json.stdout).unwrap();
    let member = &groups["groups"][0]["members"][0];
    let of = |key: &str| member[key].as_u64().unwrap();
    assert_eq!(
        (member["name"].as_str(), of("pid"), of("uid").to_string()),
        (Some("ids"), u64::from(tap.id()), me())
    );
    assert!(of("given") > 0);
    assert_eq!(of("given"), of("read") + of("missed") + of("behind"), "{member}");
    let words = shared.running.command(&["groups"]);
    assert!(words.stdout.contains("ring: ") && words.stdout.contains("  ids (process "), "{}", words.stdout);
    shared.running.end();
    assert_eq!(tap.finish(LIMIT).code(), Some(0));
    let running = Running::bare(Place::new(), &["--source", "synth:rate=1k"]);
    assert_eq!(running.command(&["groups"]).stdout, "no program can attach: the run has no --attach\n");
    running.end();
}

#[test]
fn tcpdump_reads_a_tap_in_a_pipe() {
    let shared = Shared::new("synth:rate=2k", &[]);
    let line = format!(
        "{} tap ring -c 40 --attach {} 2>words.txt | tcpdump -nr - 2>/dev/null | wc -l",
        env!("CARGO_BIN_EXE_wirescope"),
        shared.socket.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(shared.running.place.root());
    let done = finish(command);
    assert_eq!(done.stdout.trim(), "40", "{}", done.stderr);
    let mut words = String::new();
    File::open(shared.path("words.txt")).unwrap().read_to_string(&mut words).unwrap();
    assert!(words.contains("40 packets to standard output; nothing is missing between them"), "{words}");
    assert_eq!(shared.socket.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o666);
    shared.running.end();
}

#[test]
fn a_tap_that_nobody_reads_ends_by_ctrl_c_and_says_what_it_missed() {
    let shared = Shared::new("synth:rate=50k,size=512", &["--group", "g,memory=2MiB"]);
    let fifo = shared.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Open at both ends, and never read.
    let _open = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let mut command = wirescope(&["tap", "g", "--attach"]);
    command.arg(&shared.socket).arg("-w").arg(&fifo);
    let tap = Started::new(command);
    let group = || shared.running.get("groups").body["groups"][1].clone();
    wait_until("packets to be missed", || group()["members"][0]["missed"].as_u64() > Some(1000));
    tap.signal(libc::SIGINT);
    let done = tap.finish(LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    for words in [
        "is truncated, after at most",
        "packets missed: they found no room",
        "it is full, and nobody reads it",
    ] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    wait_until("it to be gone", || group()["gone"]["members"] == 1);
    let gone = group()["gone"].clone();
    assert!(
        gone["missed"].as_u64() > Some(1000) && gone["given"].as_u64() > gone["missed"].as_u64(),
        "{gone}"
    );
    shared.running.end();
}
