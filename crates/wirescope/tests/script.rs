//! `wirescope script`: verdicts and exit codes of good, wrong and hostile scripts, what one would have fired on a
//! capture, and examples.

mod run;

use run::{Done, Place, finish, skip, wirescope};
use scope_testkit::oracle;
use scope_testkit::traffic::frame::{ethernet, udp};
use scope_testkit::traffic::{Capture, Precision, Record, pcap, pcapng};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Time of the first packet, ns.
const START_NS: i64 = 1_795_206_665_000_000_000;
/// A trigger script that says all that a hit can say.
const PAYLOAD: &str = "
return function(pkt)
    if not pkt.ip4:getSrc() or pkt.payload:string(7) ~= 'EXAMPLE' then return false end
    return { text = 'from ' .. pkt.ip4:getSrcString(), before = '2s', after = 0.5, hosts = { pkt.ip4:getSrc() } }
end";

fn script(arguments: &[&str]) -> Done {
    finish(wirescope(&[&["script"], arguments].concat()))
}

/// The object of `--json`.
fn object(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", done.stdout, done.stderr))
}

/// Writes a script, and returns its path.
fn written(place: &Place, name: &str, text: impl AsRef<[u8]>) -> String {
    std::fs::write(place.path(name), text).expect("own folder");
    place.path(name).to_str().expect("a plain path").to_string()
}

/// 100 packets, 10 ms apart, each from a host of its own; every tenth begins with EXAMPLE.
fn capture() -> Capture {
    let mut capture = Capture::ethernet("eth0");
    for number in 1..=100u8 {
        let payload: &[u8] = if number % 10 == 0 { b"EXAMPLE of it" } else { b"something else" };
        let source = format!("10.0.0.{number}:1000").parse().unwrap();
        let datagram = udp(source, "10.0.1.1:60000".parse().unwrap(), payload);
        let time_ns = START_NS + i64::from(number - 1) * 10_000_000;
        capture.packets.push(Record::new(time_ns, ethernet(&[], 0x0800, &datagram)));
    }
    capture
}

/// A place with that capture, and the path of it.
fn place_with_capture() -> (Place, String) {
    let place = Place::new();
    let path = written(&place, "in.pcapng", pcapng(&capture(), Precision::Nano, false));
    (place, path)
}

#[test]
fn examples_are_written_pass_their_check_and_overwrite_no_file() {
    let place = Place::new();
    let folder = place.path("new/scripts");
    let path = folder.to_str().unwrap();
    let done = script(&["examples", path]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let names = run::names(&folder);
    assert!(names.len() > 5 && names.contains(&"payload.lua".to_string()), "{names:?}");
    for name in &names {
        let line = done.stdout.lines().find(|line| line.starts_with(name.as_str())).expect("a line for each");
        assert!(line.len() > 40, "{line}");
    }
    assert!(done.stdout.contains(&format!("{} written into", names.len())), "{}", done.stdout);
    // nDPI may not be installed.
    let files: Vec<String> = names
        .iter()
        .filter(|name| *name != "ndpi.lua")
        .map(|name| folder.join(name).display().to_string())
        .collect();
    let words: Vec<&str> = ["check", "--json"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let done = script(&words);
    let found = object(&done);
    assert_eq!((done.code(), &found["verdict"]), (Some(0), &"fine".into()), "{found:#}");
    let kind = |name: &str| {
        let files = found["files"].as_array().unwrap();
        files.iter().find(|file| file["file"].as_str().unwrap().ends_with(name)).unwrap()["kind"].clone()
    };
    assert_eq!((kind("payload.lua"), kind("host-dump.lua")), ("trigger".into(), "dump".into()));
    // What is there stays as it is: the same text is no fault, another one is.
    let done = script(&["examples", path]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("0 written into"), "{}", done.stdout);
    let own = written(&place, "new/scripts/payload.lua", "-- mine");
    std::fs::remove_file(folder.join("port-scan.lua")).unwrap();
    let done = script(&["examples", path]);
    assert_eq!(done.code(), Some(2), "{}", done.stdout);
    assert!(
        done.stderr.contains("payload.lua") && done.stderr.contains("name another folder"),
        "{}",
        done.stderr
    );
    assert_eq!(std::fs::read_to_string(own).unwrap(), "-- mine");
    assert!(!folder.join("port-scan.lua").exists(), "nothing is written where something is wrong");
}

#[test]
fn a_folder_that_can_not_be_written_to_is_refused() {
    let place = Place::new();
    let file = written(&place, "file", "");
    for folder in ["/proc/nobody/may", &file] {
        let done = script(&["examples", folder]);
        assert_eq!(done.code(), Some(2), "{}", done.stdout);
        assert!(done.stderr.contains(folder) && done.stderr.contains("name a folder"), "{}", done.stderr);
    }
}

/// The verdict of one script, its words, and the exit code.
fn checked(place: &Place, text: impl AsRef<[u8]>, more: &[&str]) -> (String, String, Option<i32>) {
    let path = written(place, "t.lua", text);
    let done = script(&[&["check", &path], more].concat());
    let verdict = done.stdout.lines().next().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
    (verdict.to_string(), done.stdout.clone() + &done.stderr, done.code())
}

#[test]
fn a_script_has_a_verdict_its_forms_what_it_hits_and_why_it_fails() {
    let place = Place::new();
    let check = |text: &str, verdict: &str, code: i32, words: &[&str]| {
        let (found, said, exit) = checked(&place, text, &[]);
        assert_eq!((found.as_str(), exit), (verdict, Some(code)), "{text}\n{said}");
        assert!(words.iter().all(|words| said.contains(words)), "{text}\n{said}");
    };
    // Fine.
    check(PAYLOAD, "fine", 0, &["trigger script with packet", "packets of 38 kinds", "UDP over IPv4; "]);
    check(
        "return { packet = function() end, on_tick = function() end, on_dump = function() end, on_reload = function() end }",
        "fine",
        0,
        &["packet, on_tick, on_dump, on_reload", "ticks: 0 hits"],
    );
    check(
        "return wirescope.flows{ state = 'struct { int n; }', packet = function() return true end, expired = function() print('gone') end }",
        "fine",
        0,
        &["packet, flows", "printed    gone"],
    );
    check(
        "return function() return function() return true end end",
        "fine",
        0,
        &["dump script", "39 dumps fired by 38"],
    );
    check("return function(pkt) pkt.udp.getDstPort('x') end", "fine", 0, &[]);
    // It fails.
    check(
        "return function(pkt) if pkt.arp:getOperation() then error('no ARP') end end",
        "fails",
        1,
        &["fails on   ARP request", "t.lua:1: no ARP", "stack traceback"],
    );
    check("return function() return 5 end", "fails", 1, &["the function returned a number (5); return true"]);
    check("return function() os.exit(0) end", "fails", 1, &["os.exit is removed"]);
    check("return function() os.execute('true') end", "fails", 1, &["os.execute is removed"]);
    check("return function() io.popen('true') end", "fails", 1, &["io.popen is removed"]);
    check(
        "return function() count = 1 end",
        "fails",
        1,
        &["the global 'count' while it runs; write `local count`"],
    );
    check(
        "return function() local function f() return 1 + f() end return f() end",
        "fails",
        1,
        &["stack overflow"],
    );
    check("return { packet = print, on_dump = function() error('oh') end }", "fails", 1, &["t.lua:1: oh"]);
    check(
        "return { packet = function() end, on_reload = function() error('oh') end }",
        "fails",
        1,
        &["t.lua:1: oh"],
    );
    check(
        "return { packet = function() end, on_tick = function() error('oh') end }",
        "fails",
        1,
        &["t.lua:1: oh"],
    );
    check(
        "return function(t) return function(pkt) return 7 end end",
        "fails",
        1,
        &["dump script", "the function of a dump script returned a number"],
    );
    // It can't be loaded.
    check("return function(pkt)", "refused", 2, &["t.lua:1: 'end' expected"]);
    check("return 5", "refused", 2, &["it has to end with: return function(pkt)"]);
    check("os.exit(0)", "refused", 2, &["os.exit is removed"]);
    check("wirescope.library(name)", "refused", 2, &["isn't at the script's top"]);
    check(
        "wirescope.library 'nobody-has-this'",
        "unread",
        2,
        &["the library 'nobody-has-this'", "install it"],
    );
    check("", "refused", 2, &["it has to end with"]);
    // Asked for a dump script it has to be one.
    let (verdict, said, code) = checked(&place, PAYLOAD, &["--dump"]);
    assert_eq!((verdict.as_str(), code), ("fails", Some(1)), "{said}");
    assert!(said.contains("it has to return function(pkt)"), "{said}");
}

#[test]
fn memory_beyond_its_bound_disables_a_script() {
    let place = Place::new();
    for text in [
        "local t = {} return function() for i = 1, 1e5 do t[#t + 1] = {} end end",
        "return function() return ('x'):rep(1e9) end",
    ] {
        let (verdict, said, code) = checked(&place, text, &["--script-memory", "16MiB"]);
        assert_eq!((verdict.as_str(), code), ("fails", Some(1)), "{text}\n{said}");
        assert!(said.contains("it needed more than 16 MiB of memory"), "{said}");
    }
    let text = "local t = {} while true do t[#t + 1] = {} end";
    let (verdict, said, code) =
        checked(&place, text, &["--script-memory", "16MiB", "--script-timeout", "60s"]);
    assert_eq!((verdict.as_str(), code), ("refused", Some(2)), "{said}");
    assert!(said.contains("not enough memory"), "{said}");
}

#[test]
fn a_script_that_never_comes_back_is_named_and_the_command_ends() {
    let place = Place::new();
    let spin = "while true do end";
    let rows = [
        (spin.to_string(), "while it was loaded"),
        (
            format!("return function(pkt) if pkt.arp:getOperation() then {spin} end end"),
            "for a packet: ARP request",
        ),
        (format!("return {{ packet = print, on_tick = function() {spin} end }}"), "for a "),
        (format!("return {{ packet = print, on_dump = function() {spin} end }}"), "in on_dump"),
        (format!("return {{ packet = print, on_reload = function() {spin} end }}"), "in on_reload"),
        (
            format!("return {{ packet = print, counts = function() {spin} end }}"),
            "for a packet: UDP over IPv4",
        ),
        (format!("return function() return function() {spin} end end"), "for the dump that was fired by"),
        (format!("return function() pcall(function() {spin} end) end"), "for a packet"),
        (
            format!(
                "local kept = require('ffi').gc(require('ffi').new('int[1]'), function() {spin} end) return function() return kept == nil end"
            ),
            "when its state was closed",
        ),
    ];
    for (text, words) in &rows {
        let (verdict, said, code) = checked(&place, text, &["--script-timeout", "300ms"]);
        assert_eq!((verdict.as_str(), code), ("stuck", Some(1)), "{text}\n{said}");
        assert!(said.contains(words) && said.contains("within 300 ms"), "{text}\n{said}");
    }
    // The others are checked all the same.
    let (loops, good) = (written(&place, "loops.lua", spin), written(&place, "good.lua", PAYLOAD));
    let done = script(&["check", "--script-timeout", "300ms", &loops, &good]);
    assert_eq!(done.code(), Some(1), "{}", done.stdout);
    assert!(
        done.stdout.contains("good.lua: fine") && done.stdout.contains("2 scripts: 1 fine, 1 stuck"),
        "{}",
        done.stdout
    );
}

#[test]
fn what_is_no_script_is_unread_with_cause_and_remedy() {
    let place = Place::new();
    let good = written(&place, "good.lua", PAYLOAD);
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let latin = written(&place, "latin.lua", b"-- one\n-- caf\xe9\nreturn print");
    let check = |path: &str, words: &[&str]| {
        let done = script(&["check", path, &good]);
        assert_eq!(done.code(), Some(2), "{}{}", done.stdout, done.stderr);
        assert!(words.iter().all(|words| done.stdout.contains(words)), "{}", done.stdout);
        assert!(done.stdout.contains("good.lua: fine"), "the other one is checked: {}", done.stdout);
        let done = script(&["check", "--json", path, &good]);
        let found = object(&done);
        assert_eq!((&found["verdict"], &found["files"][0]["verdict"]), (&"unread".into(), &"unread".into()));
        let done = script(&["run", path, "-r", "-"]);
        assert_eq!((done.code(), done.stdout.as_str()), (Some(2), ""), "{}", done.stderr);
        assert!(words.iter().all(|words| done.stderr.contains(words)), "{}", done.stderr);
    };
    check(place.path("nowhere.lua").to_str().unwrap(), &["no such file", "check the spelling"]);
    check(place.root().to_str().unwrap(), &["is a folder, not a script", "name the files in it"]);
    check(pipe.to_str().unwrap(), &["is no regular file", "save the script in a file first"]);
    check("/dev/zero", &["is no regular file"]);
    check(&latin, &["line 2 is not UTF-8: byte 13", "save it as UTF-8"]);
    let large = written(&place, "large.lua", vec![b' '; 2 << 20]);
    check(&large, &["is longer than 1 MiB"]);
}

#[test]
fn a_trigger_script_over_a_capture_lists_what_it_would_have_fired() {
    let (place, file) = place_with_capture();
    let payload = written(&place, "payload.lua", PAYLOAD);
    let done = script(&["run", &payload, "-r", &file, "--json"]);
    let found = object(&done);
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""), "{found:#}");
    assert_eq!((&found["packets"], &found["hits"], &found["errors"]), (&100.into(), &10.into(), &0.into()));
    assert_eq!(
        (&found["kind"], &found["fine"], &found["unlisted"]),
        (&"trigger".into(), &true.into(), &0.into())
    );
    assert!(found["ns_per_packet"].as_f64().unwrap() > 0.0 && found["memory_bytes"].as_u64().unwrap() > 0);
    let slowest = &found["slowest_batch"];
    assert!(slowest["ns"].as_u64().unwrap() > 0 && slowest["packets"].as_u64().unwrap() <= 100, "{slowest}");
    let listed = found["listed"].as_array().unwrap();
    for (hit, number) in listed.iter().zip((10..=100).step_by(10)) {
        assert_eq!((&hit["packet"], &hit["text"]), (&number.into(), &format!("from 10.0.0.{number}").into()));
        let time_ns = START_NS + (number - 1) * 10_000_000;
        assert_eq!(hit["time"], scope_spelling::time::iso(time_ns));
        assert_eq!((&hit["before_ns"], &hit["after_ns"]), (&2_000_000_000i64.into(), &500_000_000i64.into()));
        assert_eq!(hit["keeps"], format!("host 10.0.0.{number}"));
    }
    // For people, with a bound on the list.
    let done = script(&["run", &payload, "-r", &file, "--hits-max", "2"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(
        lines[0].ends_with("packet 10: from 10.0.0.10; 2 s before; 500 ms after; keeps host 10.0.0.10"),
        "{}",
        lines[0]
    );
    assert!(lines[2].contains("8 more, not listed: --hits-max 10"), "{}", done.stdout);
    assert!(lines[3].ends_with("payload.lua: 10 hits in 100 packets"), "{}", done.stdout);
    assert!(lines[4].contains("ns per packet; slowest batch: "), "{}", done.stdout);
    // A text can't fake a line, nor reach the terminal.
    let text =
        "return function(pkt) return pkt.ip4:getSrc() == 0x0a000001 and { text = 'a\\nscript\\27[2J' } end";
    let odd = written(&place, "odd.lua", text);
    let done = script(&["run", &odd, "-r", &file]);
    assert!(done.stdout.contains("packet 1: a\\nscript\\u{1b}[2J\n"), "{}", done.stdout);
}

#[test]
fn the_form_of_a_capture_changes_nothing_for_a_script() {
    let (place, file) = place_with_capture();
    let payload = written(&place, "payload.lua", PAYLOAD);
    let found = |done: &Done| {
        let found = object(done);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        (found["listed"].clone(), found["packets"].clone())
    };
    let expected = found(&script(&["run", &payload, "-r", &file, "--json"]));
    let old = written(&place, "in.pcap", pcap(&capture(), Precision::Nano, true));
    assert_eq!(found(&script(&["run", &payload, "-r", &old, "--json"])), expected);
    for way in ["gzip", "zstd", "lz4"] {
        if !oracle::have(way) {
            continue;
        }
        let packed = place.path(way);
        let into = std::fs::File::create(&packed).unwrap();
        let from = std::fs::File::open(&file).unwrap();
        let packs = Command::new(way).arg("-c").stdin(from).stdout(into).stderr(Stdio::null()).status();
        assert!(packs.unwrap().success());
        let done = script(&["run", &payload, "-r", packed.to_str().unwrap(), "--json"]);
        assert_eq!(found(&done), expected, "{way}");
    }
    let mut from_input = Command::new("sh");
    from_input.args([
        "-c",
        "cat \"$0\" | exec \"$@\"",
        &file,
        env!("CARGO_BIN_EXE_wirescope"),
        "script",
        "run",
    ]);
    from_input.args([&payload, "-r", "-", "--json"]);
    assert_eq!(found(&finish(from_input)), expected);
}

#[test]
fn ticks_flows_and_what_a_script_prints_are_part_of_its_run() {
    let (place, file) = place_with_capture();
    let text = "
        local seen = 0
        local function packet() seen = seen + 1 end
        local function on_tick(now) print(seen) return seen == 50 and { text = 'half' } end
        return { packet = packet, on_tick = on_tick }";
    let ticks = written(&place, "ticks.lua", text);
    let found = object(&script(&["run", &ticks, "-r", &file, "--json"]));
    // A second of packets, the first at a whole one: the first tick is due before the eleventh packet.
    assert_eq!(
        (&found["ticks"], &found["hits"], &found["printed"][0]),
        (&9.into(), &1.into(), &"10".into()),
        "{found:#}"
    );
    assert_eq!((&found["listed"][0]["packet"], &found["listed"][0]["text"]), (&Value::Null, &"half".into()));
    let flows = written(
        &place,
        "flows.lua",
        "return wirescope.flows{ state = 'struct { int n; }', max = 40, packet = function() end }",
    );
    let done = script(&["run", &flows, "-r", &file]);
    assert!(done.stdout.contains("40 flows, 60 evicted"), "{}", done.stdout);
}

#[test]
fn a_dump_script_over_a_capture_says_how_many_packets_it_keeps() {
    let (place, file) = place_with_capture();
    let text = "return function(fired)
        if not fired then return function() return true end end
        local port, byte = fired.udp:getDstPort(), fired.payload.uint8[0]
        return function(pkt) return pkt.udp:getDstPort() == port and pkt.payload.uint8[0] == byte end
    end";
    let dump = written(&place, "dump.lua", text);
    let kept = |more: &[&str]| {
        let done = script(&[&["run", &dump, "--dump", "-r", &file, "--json"], more].concat());
        let found = object(&done);
        assert_eq!((done.code(), &found["packets"]), (Some(0), &100.into()), "{found:#}");
        (found["kept"].as_u64().unwrap(), found["first_kept"].as_u64(), found["last_kept"].as_u64())
    };
    assert_eq!(kept(&[]), (90, Some(1), Some(99)));
    assert_eq!(kept(&["--fire", "70"]), (10, Some(10), Some(100)));
    assert_eq!(kept(&["--fire", "0"]), (100, Some(1), Some(100)));
    let done = script(&["run", &dump, "--dump", "--fire", "70", "-r", &file]);
    let words = "fired by packet 70 it keeps 10 of 100 packets, the first 10, the last 100";
    assert!(done.stdout.contains(words), "{}", done.stdout);
    let refused = |arguments: &[&str], words: &str| {
        let done = script(&[&["run", &dump], arguments].concat());
        assert_eq!((done.code(), done.stdout.as_str()), (Some(2), ""), "{}", done.stderr);
        assert!(done.stderr.contains(words), "{}", done.stderr);
    };
    refused(
        &["--dump", "--fire", "101", "-r", &file],
        "--fire: there is no packet 101: the capture has 100 packets",
    );
    refused(&["--dump", "--fire", "soon", "-r", &file], "--fire: 'soon' is not a number");
    refused(&["--fire", "7", "-r", &file], "--dump");
    let mut from_input = Command::new("sh");
    from_input.args([
        "-c",
        "cat \"$0\" | exec \"$@\"",
        &file,
        env!("CARGO_BIN_EXE_wirescope"),
        "script",
        "run",
    ]);
    from_input.args([&dump, "--dump", "-r", "-"]);
    let done = finish(from_input);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("would have to be read twice"), "{}", done.stderr);
    // It makes no function, or fails for packets.
    for (text, words) in [
        ("return function() return 5 end", "returned a number"),
        (
            "return function() return function(pkt) return pkt.payload.uint8[0] + nil end end",
            "100 errors, the first",
        ),
    ] {
        let wrong = written(&place, "wrong.lua", text);
        let done = script(&["run", &wrong, "--dump", "-r", &file]);
        assert_eq!(done.code(), Some(1), "{}", done.stderr);
        assert!(done.stderr.contains(words), "{}", done.stderr);
    }
}

#[test]
fn a_script_that_fails_or_stays_away_on_a_capture_is_exit_code_1_with_its_report() {
    let (place, file) = place_with_capture();
    let check = |text: &str, code: i32, words: &[&str], hits: Option<u64>| {
        let path = written(&place, "t.lua", text);
        let bounds = ["--script-timeout", "300ms", "--script-memory", "16MiB"];
        let done = script(&[&["run", &path, "-r", &file, "--json"], &bounds[..]].concat());
        assert_eq!(done.code(), Some(code), "{text}\n{}{}", done.stdout, done.stderr);
        assert!(words.iter().all(|words| done.stderr.contains(words)), "{text}\n{}", done.stderr);
        let found = hits.map(|_| object(&done)["hits"].as_u64().unwrap());
        assert_eq!(found, hits, "{text}: {}", done.stdout);
    };
    let is = |number: u8| format!("pkt.ip4:getSrc() % 256 == {number}");
    check(
        &format!("return function(pkt) if {} then error('seven') end return {} end", is(7), is(8)),
        1,
        &["1 error, the first: t.lua:1: seven", "stack traceback"],
        Some(1),
    );
    check(
        "local t = {} return function() for i = 1, 1e5 do t[#t + 1] = {} end end",
        1,
        &["it was disabled", "it needed more than 16 MiB of memory"],
        Some(0),
    );
    check(
        "return function() while true do end end",
        1,
        &["within 300 ms for the batch that begins with packet 1"],
        Some(0),
    );
    // What it did before is known.
    check(
        &format!("return function(pkt) while {} do end return {} end", is(99), is(5)),
        1,
        &["it didn't come back", "--script-timeout 10s"],
        Some(1),
    );
    check("while true do end", 1, &["while it was loaded"], Some(0));
    check(
        "return { packet = print, counts = function() while true do end end }",
        1,
        &["at its end: look at its finalizers"],
        Some(0),
    );
    check("return 5", 2, &["it can't be loaded: the script returned a number"], None);
    let path = written(&place, "t.lua", PAYLOAD);
    for (flag, value, words) in [
        ("--script-timeout", "0", "is not from 10ms to 1h"),
        ("--script-timeout", "soon", "is not a number"),
        ("--script-memory", "1023KiB", "is not from 1MiB to 64GiB"),
        ("--script-memory", "-1", "is negative"),
        ("--hits-max", "many", "is not a number"),
    ] {
        let done = script(&["run", &path, "-r", &file, flag, value]);
        assert_eq!(done.code(), Some(2), "{}", done.stdout);
        assert!(done.stderr.contains(flag) && done.stderr.contains(words), "{}", done.stderr);
    }
}

#[test]
fn a_damaged_capture_is_run_to_its_damage_and_an_empty_one_has_no_hits() {
    let (place, file) = place_with_capture();
    let payload = written(&place, "payload.lua", PAYLOAD);
    let bytes = std::fs::read(&file).unwrap();
    let cut = written(&place, "cut.pcapng", &bytes[..bytes.len() - 10]);
    let done = script(&["run", &payload, "-r", &cut, "--json"]);
    let found = object(&done);
    assert_eq!(
        (done.code(), &found["packets"], &found["hits"]),
        (Some(1), &99.into(), &9.into()),
        "{found:#}"
    );
    assert_eq!(found["fine"], false);
    assert!(done.stderr.contains("damaged or truncated: 99 packets of it were read"), "{}", done.stderr);
    let empty = written(&place, "empty.pcapng", pcapng(&Capture::ethernet("eth0"), Precision::Nano, false));
    let done = script(&["run", &payload, "-r", &empty]);
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""), "{}", done.stdout);
    assert!(done.stdout.contains("0 hits in 0 packets"), "{}", done.stdout);
    let refused = |path: &str, words: &str| {
        let done = script(&["run", &payload, "-r", path]);
        assert_eq!((done.code(), done.stdout.as_str()), (Some(2), ""), "{}", done.stderr);
        assert!(
            done.stderr.contains(words) && done.stderr.contains("--read") | done.stderr.contains("-r"),
            "{}",
            done.stderr
        );
    };
    refused(&written(&place, "none", ""), "empty");
    refused(&written(&place, "text", "no packets at all, only text"), "is no capture file");
    refused(place.path("nowhere").to_str().unwrap(), "no such file");
    refused(place.root().to_str().unwrap(), "is a folder");
}

#[test]
fn rights_are_given_up_before_lua_runs_and_libraries_stay() {
    let (place, file) = place_with_capture();
    let text = "
wirescope.library 'm'
local ffi = require 'ffi'
ffi.cdef 'int open(const char *path, int flags, ...); int socket(int, int, int); double cbrt(double);'
local libm = wirescope.library 'm'
-- While it is loaded, and for a packet.
local early = ffi.C.open('/etc/passwd', 0)
return function(pkt)
    return { text = table.concat({ early, ffi.C.open('/etc/passwd', 0), ffi.C.open('/tmp', 0x410001, 6 * 64),
        ffi.C.socket(2, 1, 0), libm.cbrt(27) }, ' ') }
end";
    let path = written(&place, "reaches.lua", text);
    let done = script(&["run", &path, "-r", &file, "--json", "--hits-max", "1"]);
    if done.stderr.contains("in this kernel") {
        return skip("this kernel lacks Landlock or seccomp");
    }
    let found = object(&done);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(found["listed"][0]["text"], "-1 -1 -1 -1 3", "{found:#}");
    assert_eq!(found["libraries"][0], "m");
    let done = script(&["check", &path]);
    assert!(done.stdout.contains("libraries  m\n"), "{}", done.stdout);
}
