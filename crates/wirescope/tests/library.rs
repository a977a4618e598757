//! Programs that are linked to libwirescope: what it needs, its examples in C, Rust and Python, and one that was built against
//! its first header.

#[allow(dead_code)] // its `main` is what the example adds to this
#[path = "../../libwirescope/examples/count53.rs"]
mod count53;
mod run;

use run::asking::Running;
use run::{LIMIT, NOBODY, Place, Started, finish, is_root, skip, wait_until};
use scope_testkit::oracle;
use scope_testkit::traffic::Record;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program may need besides: the loader is a part of libc.
const OF_LIBC: [&str; 2] = ["libc.so.6", "ld-linux"];
/// All functions of the header.
const FUNCTIONS: [&str; 10] = [
    "ws_abi",
    "ws_close",
    "ws_counts",
    "ws_done",
    "ws_error",
    "ws_fd",
    "ws_interface",
    "ws_next",
    "ws_open",
    "ws_packet",
];

fn in_crate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../libwirescope").join(name)
}

/// The library of this build: it lies beside the tests.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().join("libwirescope.so")
}

/// What a command prints, which has to end well.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The library as it is installed: in this folder, with both of its names.
fn install(place: &Place) -> PathBuf {
    let folder = place.path("lib");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(library(), folder.join("libwirescope.so.0")).unwrap();
    symlink("libwirescope.so.0", folder.join("libwirescope.so")).unwrap();
    folder
}

/// A run that other programs may attach to, and the library beside it.
struct Shared {
    running: Running,
    socket: PathBuf,
    libraries: PathBuf,
}

/// The whole ring of a run at its end, in its folder.
const WHOLE: &str = "whole.pcapng";

impl Shared {
    fn new(source: &str, more: &[&str]) -> Shared {
        let place = Place::new();
        let (socket, libraries) = (place.path("attach"), install(&place));
        // SAFETY: geteuid takes nothing and always succeeds.
        let me = unsafe { libc::geteuid() }.to_string();
        let at = socket.to_str().unwrap().to_string();
        let flags = ["--source", source, "--attach", &at, "--attach-ring", &me];
        let whole = place.path(WHOLE).to_str().unwrap().to_string();
        let more = more.iter().map(|word| if *word == WHOLE { &whole } else { *word });
        let flags: Vec<&str> = flags.into_iter().chain(more).collect();
        Shared { running: Running::bare(place, &flags), socket, libraries }
    }

    /// A program that finds the library, at this socket.
    fn program(&self, program: impl AsRef<OsStr>, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.libraries).args(words);
        command
    }

    /// The example in C, compiled as a user does.
    fn count53(&self) -> PathBuf {
        let program = self.running.place.path("count53");
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"]).arg(&program);
        cc.arg("-I").arg(in_crate("include")).arg(in_crate("examples/count53.c"));
        printed(cc.arg("-L").arg(&self.libraries).arg("-lwirescope"));
        program
    }

    /// A UDP port of its traffic.
    fn port(&self) -> u16 {
        let udp = self.running.place.path("udp.pcapng");
        let mut tap = run::wirescope(&["tap", "ring", "-f", "udp", "-c", "200", "-w"]);
        tap.arg(&udp).arg("--attach").arg(&self.socket).args(["--past", "1h"]);
        let done = finish(tap);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let plain = |packet: &Record| packet.data[12..15] == [8, 0, 0x45]; // untagged IPv4, no options
        let packet = packets(&udp).into_iter().find(plain).unwrap().data;
        u16::from_be_bytes([packet[36], packet[37]])
    }

    /// Waits until so many programs have joined and said where they are.
    fn wait_for_members(&self, many: usize) {
        wait_until("members", || {
            let group = self.running.get("groups").body["groups"][0].clone();
            let members = group["members"].as_array().cloned().unwrap_or_default();
            members.len() == many && members.iter().all(|member| member["given"] != 0)
        });
    }
}

fn packets(path: &Path) -> Vec<Record> {
    oracle::read(path).unwrap().capture.packets
}

#[test]
fn the_library_needs_libc_alone_and_has_the_functions_of_its_header() {
    let dynamic = printed(Command::new("objdump").arg("-p").arg(library()));
    let named = |what: &'static str| {
        dynamic.lines().filter_map(move |line| Some(line.trim().strip_prefix(what)?.trim().to_string()))
    };
    let needed: Vec<String> = named("NEEDED ").collect();
    assert!(!needed.is_empty());
    assert!(needed.iter().all(|it| OF_LIBC.iter().any(|of| it.starts_with(of))), "{needed:?}");
    assert_eq!(named("SONAME ").collect::<Vec<_>>(), ["libwirescope.so.0"]);
    let symbols = printed(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let symbols: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(symbols, FUNCTIONS);
    let header = std::fs::read_to_string(in_crate("include/wirescope.h")).unwrap();
    for function in FUNCTIONS {
        assert!(header.contains(&format!("{function}(")), "{function}");
    }
}

#[test]
fn the_header_is_c_and_c_plus_plus() {
    let place = Place::new();
    let source = "#include <wirescope.h>\nint main() { struct ws_packet p; p.size = sizeof p; return ws_packet(0, 0, &p); }\n";
    for (compiler, standard, name) in [("cc", "-std=c99", "x.c"), ("c++", "-std=c++11", "x.cc")] {
        std::fs::write(place.path(name), source).unwrap();
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
        match command.arg(in_crate("include")).arg(place.path(name)).output() {
            Err(_) => skip(&format!("no {compiler} here")),
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

#[test]
fn the_examples_in_c_rust_and_python_count_what_the_run_records() {
    let shared = Shared::new("synth:rate=10k,size=imix,flows=40,vlan=20%", &["--ring-out", WHOLE]);
    let (port, socket) = (shared.port(), shared.socket.to_str().unwrap().to_string());
    let words = [&socket, &port.to_string(), "past=1h"].map(str::to_string);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let c = Started::new(shared.program(shared.count53(), &words));
    let python = in_crate("examples/count53.py");
    let python = [&[python.to_str().unwrap()], &words[..]].concat();
    let python = match Command::new("python3").arg("--version").output() {
        Err(_) => {
            skip("no python3 here");
            None
        }
        Ok(_) => Some(Started::new(shared.program("python3", &python))),
    };
    let rust = std::thread::spawn({
        let socket = shared.socket.clone();
        move || count53::count(Some(socket), port, "past=1h,name=rust").unwrap()
    });
    shared.wait_for_members(2 + usize::from(python.is_some()));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (place, _) = shared.running.end();
    let whole = packets(&place.path(WHOLE));
    let filter = format!("udp port {port}");
    let wanted = scope_filter::Filter::compile(&filter, scope_filter::VlanRule::default(), &[]).unwrap();
    let wanted = wanted.for_link(scope_packet::LinkType::ETHERNET);
    let of_port = whole.iter().filter(|packet| {
        let headers = scope_packet::Headers::parse(scope_packet::LinkType::ETHERNET, &packet.data);
        wanted.matches(&headers, &packet.data, packet.original_len)
    });
    let (all, of_port) = (whole.len(), of_port.count());
    assert!(of_port > 0 && of_port < all, "{of_port} of {all}");
    let expected = format!("{all} packets, {of_port} of UDP port {port}, 0 missed\n");
    for done in [Some(c), python].into_iter().flatten().map(|program| program.finish(LIMIT)) {
        assert_eq!((done.code(), &done.stdout), (Some(0), &expected), "{}", done.stderr);
    }
    let (counts, found) = rust.join().unwrap();
    assert_eq!((counts.seen, found, counts.missed), (all as u64, of_port as u64, 0));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_program_that_was_built_against_the_first_header_runs_with_this_library() {
    let shared = Shared::new("synth:rate=5k", &["--ring-out", WHOLE]);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library/kept_1.x86_64");
    let program = shared.running.place.path("kept");
    std::fs::copy(kept, &program).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = finish(shared.program(&program, &["/nowhere/attach"]));
    assert!(refused.code() == Some(2) && refused.stdout.starts_with("socket: /nowhere/attach: no run"));
    let kept = Started::new(shared.program(&program, &[shared.socket.to_str().unwrap()]));
    shared.wait_for_members(1);
    let (place, _) = shared.running.end();
    let whole = packets(&place.path(WHOLE));
    let bytes: usize = whole.iter().map(|packet| packet.data.len()).sum();
    let done = kept.finish(LIMIT);
    assert_eq!(done.stdout, format!("1 {} {bytes} 0 1 synth\n", whole.len()), "{}", done.stderr);
    assert_eq!(done.code(), Some(0));
}

#[test]
fn a_program_that_stands_still_knows_what_it_missed_and_the_run_loses_none() {
    let shared = Shared::new("synth:rate=20k,size=512", &["--ring", "1MiB", "--segment", "64KiB"]);
    let program = shared.count53();
    let program = Started::new(shared.program(program, &[shared.socket.to_str().unwrap()]));
    shared.wait_for_members(1);
    let group = || shared.running.get("groups").body["groups"][0].clone();
    program.stand_still();
    let before = group()["published"].as_u64().unwrap();
    wait_until("the ring to turn", || group()["published"].as_u64().unwrap() > before + 10_000);
    program.signal(libc::SIGCONT);
    wait_until("it to know", || group()["members"][0]["missed"].as_u64().unwrap() > 0);
    let began = group()["published"].as_u64().unwrap() - group()["members"][0]["given"].as_u64().unwrap();
    let (_, run) = shared.running.end();
    let done = program.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let numbers: Vec<u64> =
        done.stdout.split(' ').filter_map(|word| word.trim_end_matches(',').parse().ok()).collect();
    let [seen, _, _, missed] = numbers[..] else { panic!("{}", done.stdout) };
    let summary: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(missed > 0 && seen > 0);
    assert!(summary["dropped"].as_object().unwrap().values().all(|it| *it == 0), "{summary}");
    // What it began behind is read off two answers, between which packets came.
    let stored = summary["stored"]["packets"].as_u64().unwrap_or_else(|| panic!("{summary}"));
    assert!(
        seen + missed <= stored && seen + missed + began + 20_000 > stored,
        "{seen} {missed} {began} {stored}"
    );
}

#[test]
fn what_is_held_for_a_program_that_stands_still_is_read_after_turns_of_the_ring() {
    let shared = Shared::new("synth:rate=20k,size=512", &["--ring", "16MiB", "--segment", "64KiB"]);
    let group = || shared.running.get("groups").body["groups"][0].clone();
    wait_until("packets", || group()["published"] != 0);
    // With the next packets: of the oldest ones some could be gone before they are held.
    let options = wirescope::Options::parse("name=holder,hold=12.5%").unwrap();
    let mut member = wirescope::Member::open(Some(&shared.socket), "ring", &options).unwrap();
    let held = || group()["members"][0]["held_bytes"].as_u64().unwrap();
    wait_until("all of it to be held", || held() == 2 << 20);
    let before = group()["published"].as_u64().unwrap();
    wait_until("the ring to turn", || group()["published"].as_u64().unwrap() > before + 50_000);
    // What is held is read whole, from the first packet on; then some are missed.
    let (mut packets, mut bytes) = (0u64, 0);
    while let wirescope::Next::Packets(many) = member.next(Some(LIMIT)).unwrap() {
        let batch: Vec<(usize, u64)> =
            member.packets().map(|packet| (packet.data.len(), packet.lost_before)).collect();
        assert!(member.is_whole() && batch.len() == many as usize);
        if batch.iter().any(|(_, lost_before)| *lost_before > 0) {
            break;
        }
        packets += batch.len() as u64;
        bytes += batch.iter().map(|(bytes, _)| bytes).sum::<usize>();
    }
    assert!(bytes > 1 << 20, "{packets} packets, {bytes} B");
    assert!(member.counts().missed > 0);
    let refused = wirescope::Options::parse("hold=25%").unwrap();
    let refused = wirescope::Member::open(Some(&shared.socket), "ring", &refused).unwrap_err();
    assert!(refused.to_string().contains("of the ring 12.50% can still be held for members"), "{refused}");
    drop(member);
    wait_until("it to be let go", || group()["members"].as_array().unwrap().is_empty());
    let (_, run) = shared.running.end();
    let summary: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(summary["dropped"].as_object().unwrap().values().all(|it| *it == 0), "{summary}");
}

#[test]
fn the_end_of_a_killed_run_is_read_and_then_it_has_ended() {
    let shared = Shared::new("synth:rate=5k", &[]);
    let program = Started::new(shared.program(shared.count53(), &[shared.socket.to_str().unwrap()]));
    shared.wait_for_members(1);
    shared.running.started.signal(libc::SIGKILL);
    let done = program.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.ends_with(" 0 missed\n"), "{}", done.stdout);
    // The kernel closes its connections one after another, and the socket that it listens at perhaps last.
    wait_until("nobody to listen", || {
        let program = shared.running.place.path("count53");
        let again = finish(shared.program(program, &[shared.socket.to_str().unwrap()]));
        assert_eq!(again.code(), Some(2), "{}", again.stderr);
        again.stderr.contains("no run listens there any more; start the run with --attach")
    });
}

#[test]
fn whoever_asks_for_what_can_t_be_had_is_told_what_helps() {
    let shared = Shared::new("synth:rate=1k", &[]);
    let program = shared.count53();
    let told = |words: &[&str]| {
        let done = finish(shared.program(&program, words));
        assert_eq!(done.code(), Some(2), "{}", done.stderr);
        done.stderr
    };
    let (attach, control) = (shared.socket.to_str().unwrap(), shared.running.socket());
    let words = told(&[attach, "53", "weight=0,part=5/4,colour=red,hold=5"]);
    for expected in
        ["weight=0: a weight is", "part=5/4: a part is", "colour=red: there is no", "hold=5: it is no part"]
    {
        assert!(words.contains(&format!("options: {expected}")), "{words}");
    }
    assert!(
        told(&[control.to_str().unwrap()])
            .contains("it is a socket of another kind, perhaps a control socket")
    );
    let no_group = wirescope_group(attach, "ids");
    assert!(
        no_group.starts_with("group: ids: ") && no_group.ends_with("see: wirescope groups"),
        "{no_group}"
    );
    if is_root() {
        shared.running.place.open_to_all();
        let mut command = shared.program(&program, &[attach]);
        command.uid(NOBODY).gid(NOBODY);
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{}", done.stderr);
        let expected = "may not read the ring";
        assert!(
            done.stderr.contains(expected) && done.stderr.contains("--attach-ring USER:@GROUP"),
            "{}",
            done.stderr
        );
    }
    shared.running.end();
}

/// Why nobody is in this group.
fn wirescope_group(socket: &str, group: &str) -> String {
    let joined = wirescope::Member::open(Some(Path::new(socket)), group, &wirescope::Options::default());
    joined.unwrap_err().to_string()
}
