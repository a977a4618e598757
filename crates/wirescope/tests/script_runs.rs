//! Scripts in a run: what they fire and what their dumps keep, on files and live, and that nothing a broken one does
//! reaches capture or dumps.

mod run;

use run::{Done, Place, Started, finish, wirescope};
use scope_testkit::traffic::frame::{on_link, tcp, udp};
use scope_testkit::traffic::{Capture, ETHERNET, Record};
use serde_json::Value;
use std::time::Duration;

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_700_000_000_000 * MS;

/// What `udp port 60000` says, in Lua.
const UDP: &str = r#"
local packet = require "packet"
return function(pkt)
    local udp = packet.getUdp4Packet(pkt)
    return udp ~= nil and (udp.udp:getDstPort() == 60000 or udp.udp:getSrcPort() == 60000)
end
"#;
/// Keeps what the host sent that fired.
const HOST: &str = r#"
return function(fired)
    local host = fired.ip4:getSrc()
    return function(pkt) return pkt.ip4:getSrc() == host end
end
"#;

/// Datagrams of ten hosts, a millisecond apart; each hundredth goes to port 60000.
fn datagrams(count: i64) -> Capture {
    let mut capture = Capture::ethernet("eth0");
    for at in 0..count {
        let port = if at % 100 == 99 { 60000 } else { 53 };
        let from = ([10, 0, 0, 1 + (at % 10) as u8], 40_000);
        let datagram = udp(from.into(), ([10, 1, 0, 1], port).into(), b"payload");
        capture.packets.push(Record::new(BEGIN + at * MS, on_link(ETHERNET, &[], &datagram)));
    }
    capture
}

/// Writes a script; its path.
fn script(place: &Place, name: &str, text: &str) -> String {
    std::fs::write(place.path(name), text).expect("own folder");
    place.path(name).display().to_string()
}

/// The whole object of the summary.
fn object(done: &Done) -> Value {
    serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", done.stdout, done.stderr))
}

/// What it says of the script of this trigger.
fn of_script(summary: &Value, name: &str) -> Value {
    let scripts = summary["scripts"].as_array().expect("a list of scripts");
    let found = scripts.iter().find(|script| script["name"] == name);
    found.unwrap_or_else(|| panic!("no script {name} in {summary}")).clone()
}

fn fired(summary: &Value, name: &str) -> u64 {
    summary["hits"][name]["fired"].as_u64().unwrap_or_else(|| panic!("no hits of {name} in {summary}"))
}

#[test]
fn a_script_fires_as_the_filter_does_that_says_the_same() {
    for (more, threads) in [("", "1"), (",workers=4", "1"), (",pace=8", "1"), (",workers=2", "3")] {
        let place = Place::new();
        let file = script(&place, "udp.lua", UDP);
        let source = format!("{}{more}", place.source(&datagrams(3000)));
        let both = ["--trigger", "filter=udp port 60000", "--trigger-script", &format!("lua={file}")]
            .map(str::to_string);
        let times = ["--before", "5ms", "--after", "5ms", "--dump", "udp", "--script-threads", threads];
        let flags: Vec<&str> = both.iter().map(String::as_str).chain(times).collect();
        let done = place.run(&[&["--source", &source][..], &flags].concat());
        assert_eq!(done.code(), Some(0), "{more}: {}", done.stderr);
        let summary = done.summary();
        summary.assert_adds_up();
        let dumps = |name: &str| -> Vec<(i64, u64)> {
            let own = summary.dumps.iter().filter(|dump| dump.trigger == name);
            own.map(|dump| (dump.time_ns, dump.packets)).collect()
        };
        assert_eq!(dumps("filter").len(), 30, "{more}");
        assert_eq!(dumps("lua"), dumps("filter"), "{more}");
        let lua = of_script(&object(&done), "lua");
        assert_eq!((lua["packets"].as_u64(), lua["missed"].as_u64()), (Some(3000), Some(0)), "{lua}");
        assert_eq!((lua["hits"].as_u64(), lua["errors"].as_u64()), (Some(30), Some(0)), "{lua}");
        assert!(lua["disabled"].is_null() && lua["cpu_ns"].as_u64() > Some(0), "{lua}");
    }
}

#[test]
fn scripts_are_counted_with_triggers_and_dump_scripts_with_templates_in_the_order_of_the_command_line() {
    let place = Place::new();
    let (udp_file, host) = (script(&place, "udp.lua", UDP), script(&place, "host.lua", HOST));
    let source = place.source(&datagrams(1000));
    let done = place.run(&[
        "--source",
        &source,
        "--before",
        "10s",
        "--after",
        "0s",
        "--trigger-code",
        &udp_file,
        "--dumper-code",
        &host,
        "--trigger",
        "b=udp port 60000",
        "--dump",
        "udp port 53",
        "--trigger-script",
        &format!("c={udp_file}"),
        "--dump",
        "",
        "--single",
    ]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    let of = |name: &str| {
        summary.dumps.iter().find(|dump| dump.trigger == name).unwrap_or_else(|| panic!("{name}"))
    };
    // The 100th datagram is of the host with the 10th of all.
    assert_eq!([of("trigger1").packets, of("b").packets, of("c").packets], [10, 100, 100], "{summary:?}");
    let whole = object(&done);
    let of_first =
        whole["dumps"].as_array().unwrap().iter().find(|dump| dump["trigger"] == "trigger1").unwrap();
    assert_eq!(of_first["script"].as_str(), Some(host.as_str()));
    let dump_script =
        whole["scripts"].as_array().unwrap().iter().find(|script| script["kind"] == "dump").unwrap();
    // It is asked of packets behind the window, too, while that may still grow.
    assert!(dump_script["hits"].as_u64() >= Some(10) && dump_script["errors"] == 0, "{dump_script}");
    assert_eq!(fired(&whole, "c"), 1);
}

#[test]
fn a_hit_has_a_text_a_window_and_hosts_of_its_own_and_the_script_is_told_of_the_dump() {
    let place = Place::new();
    let text = r#"
        local count = 0
        local function packet(pkt)
            count = count + 1
            if count == 500 then
                return { text = "the five hundredth", before = "20ms", after = "10ms", hosts = { "10.0.0.3" } }
            end
        end
        return { packet = packet, on_dump = function(facts)
            print("told of", facts.id, facts.packets, facts.complete, facts.why)
        end }
    "#;
    let file = script(&place, "own.lua", text);
    let source = place.source(&datagrams(1000));
    let done = place.run(&["--source", &source, "--trigger-script", &format!("own={file}")]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let dump = done.summary().only_dump().clone();
    assert_eq!(dump.asked, (BEGIN + 479 * MS, BEGIN + 509 * MS));
    assert_eq!(dump.filter, "host 10.0.0.3");
    // 482, 492, 502 are of that host, and the one that fired.
    assert_eq!(dump.packets, 4, "{dump:?}");
    let header = std::process::Command::new("capinfos").arg(&dump.path).output().expect("capinfos");
    let header = String::from_utf8_lossy(&header.stdout).into_owned();
    assert!(header.contains("the five hundredth"), "{header}");
    assert!(done.stderr.contains(r"told of\t1\t4\ttrue\tby a script: the five hundredth"), "{}", done.stderr);
}

#[test]
fn ticks_come_each_100_ms_of_capture_time_and_fire_without_a_packet() {
    let place = Place::new();
    let text = r#"
        return { on_tick = function(now)
            if math.abs(now - 1700000000.5) < 0.001 then return { text = "half past", flows = {} } end
        end }
    "#;
    let file = script(&place, "tick.lua", text);
    let source = place.source(&datagrams(1000));
    let done = place.run(&[
        "--source",
        &source,
        "--trigger-script",
        &format!("tick={file}"),
        "--before",
        "10ms",
        "--after",
        "9ms",
    ]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let dump = done.summary().only_dump().clone();
    assert_eq!((dump.time_ns, dump.packets), (BEGIN + 500 * MS, 20), "{dump:?}");
    let tick = of_script(&object(&done), "tick");
    assert!((9..=20).contains(&tick["ticks"].as_u64().unwrap()), "{tick}");
}

/// Broken scripts, what is said of each, and whether it is disabled.
fn hostile() -> Vec<(&'static str, &'static str, bool)> {
    vec![
        ("return function(pkt) while true do end end", "didn't come back", true),
        ("while true do end", "didn't come back", true),
        ("return 7", "return", true),
        ("this is no Lua", "can't be loaded", true),
        ("", "can't be loaded", true),
        ("error('while loading')", "while loading", true),
        ("return function(pkt) error('each time') end", "each time", true),
        ("local n = 0 return function(pkt) n = n + 1 if n == 5 then error('once') end end", "once", false),
        ("return function(pkt) return os.exit(0) end", "exit", true),
        ("return function(pkt) os.execute('true') end", "execute", true),
        ("return function(pkt) io.popen('true') end", "popen", true),
        ("local t = {} return function(pkt) for i = 1, 1e5 do t[#t + 1] = {} end end", "memory", true),
        ("local s = 'x' return function(pkt) s = s .. s end", "memory", true),
        ("local function f() return 1 + f() end return function(pkt) return f() end", "stack overflow", true),
        ("return function(pkt) return 'yes' end", "", true),
        ("return function(pkt) coroutine.yield() end", "", true),
        ("return { packet = function() end, on_tick = function() error('tick') end }", "tick", false),
        (
            "return { packet = function() end, counts = function() while true do end end }",
            "didn't come back",
            true,
        ),
    ]
}

#[test]
fn whatever_a_broken_script_does_the_run_goes_on_with_a_name_and_a_count() {
    for (text, words, disabled) in hostile() {
        let place = Place::new();
        let file = script(&place, "bad.lua", text);
        let source = place.source(&datagrams(3000));
        // Who fails fails before its time is up, also where the machine is slow.
        let timeout = if words == "didn't come back" { "300ms" } else { "60s" };
        let done = place.run(&[
            "--source",
            &source,
            "--trigger-script",
            &format!("bad={file}"),
            "--trigger",
            "good=udp port 60000",
            "--before",
            "5ms",
            "--after",
            "5ms",
            "--dump",
            "udp",
            "--script-memory",
            "16MiB",
            "--script-timeout",
            timeout,
        ]);
        assert_eq!(done.code(), Some(1), "{text}: {}", done.stderr);
        let whole = object(&done);
        let bad = of_script(&whole, "bad");
        assert_eq!(!bad["disabled"].is_null(), disabled, "{text}: {bad}");
        assert!(done.stderr.contains(words) && done.stderr.contains("bad.lua"), "{text}: {}", done.stderr);
        assert!(disabled || bad["errors"].as_u64() > Some(0), "{text}: {bad}");
        let summary = done.summary();
        summary.assert_adds_up();
        assert_eq!((summary.received.packets, fired(&whole, "good")), (3000, 30), "{text}");
        assert!(
            summary.dumps.iter().filter(|dump| dump.trigger == "good").all(|dump| dump.lost_nothing()),
            "{text}"
        );
    }
}

#[test]
fn a_dump_script_that_breaks_loses_no_packet() {
    for (text, words) in [
        ("return function(fired) return function(pkt) while true do end end end", "didn't come back"),
        ("return function(fired) error('none') end", "none"),
        ("return function(fired) return 7 end", ""),
        ("while true do end", "didn't come back"),
        ("return function(fired) return function(pkt) error('each') end end", "each"),
    ] {
        let place = Place::new();
        let file = script(&place, "keep.lua", text);
        let source = place.source(&datagrams(5000));
        let done = place.run(&[
            "--source",
            &source,
            "--trigger",
            "a=udp port 60000",
            "--single",
            "--dump-script",
            &file,
            "--before",
            "1s",
            "--after",
            "4s",
            "--script-timeout",
            "300ms",
        ]);
        assert_eq!(done.code(), Some(1), "{text}: {}", done.stderr);
        let whole = object(&done);
        let dump = &whole["dumps"][0];
        assert!(done.stderr.contains(words) && done.stderr.contains("keep.lua"), "{text}: {}", done.stderr);
        assert!(dump["gave_up"].is_string(), "{text}: {dump}");
        // Of a script that fails for each packet the first thousand are none that it keeps; the one that fired stays.
        let least = if text.contains("each") { 3000 } else { 4000 };
        assert!(dump["packets"].as_u64() >= Some(least), "{text}: {dump}");
        assert!(dump["error"].is_null(), "{dump}");
    }
}

#[test]
fn what_can_t_be_meant_is_refused_before_anything_starts() {
    let place = Place::new();
    let good = script(&place, "good.lua", UDP);
    let refused = |flags: &[&str], words: &[&str]| {
        let mut all = vec!["run", "--source", "synth:packets=1,pace=max", "--out", "."];
        all.extend(flags);
        let mut command = wirescope(&all);
        command.current_dir(place.out());
        let done = finish(command);
        assert_eq!(done.code(), Some(2), "{flags:?}: {}", done.stderr);
        words.iter().for_each(|word| {
            assert!(done.stderr.contains(word), "{flags:?}: no '{word}' in {}", done.stderr)
        });
        assert!(place.out_names().is_empty(), "nothing was begun");
    };
    std::fs::write(place.path("latin.lua"), b"-- \xe9").unwrap();
    let folder = place.root().display().to_string();
    let latin = place.path("latin.lua").display().to_string();
    refused(&["--trigger-script", "/nowhere/a.lua"], &["--trigger-script", "/nowhere/a.lua", "no such file"]);
    refused(&["--trigger-script", &folder], &["is a folder"]);
    refused(&["--trigger-script", &latin], &["not UTF-8"]);
    refused(&["--trigger-script", "/dev/null"], &["no regular file"]);
    refused(&["--trigger", "udp", "--dump-script", "/nowhere/b.lua"], &["--dump-script", "no such file"]);
    refused(&["--dump-script", &good], &["there is no trigger for it"]);
    refused(
        &["--trigger-script", &good, "--dump", "udp", "--dump-script", &good],
        &["2 templates for 1 trigger"],
    );
    refused(&["--trigger-script", &format!("manual={good}")], &["name of dumps by hand"]);
    refused(
        &["--trigger-script", &good, "--script-timeout", "1ms"],
        &["--script-timeout", "is not from 10ms to 1h"],
    );
    refused(&["--trigger-script", &good, "--script-memory", "1"], &["--script-memory"]);
    refused(&["--trigger-script", &good, "--script-threads", "0"], &["--script-threads"]);
    let library =
        script(&place, "library.lua", "wirescope.library 'there-is-none-such'\nreturn function() end");
    refused(&["--trigger-script", &library], &["there-is-none-such", "install it"]);
}

#[test]
fn a_configuration_has_scripts_and_a_reload_replaces_them_with_what_they_kept() {
    let place = Place::new();
    let counting = |what: &str| {
        format!(
            "wirescope.state.seen = 0
             return {{ packet = function(pkt) wirescope.state.seen = wirescope.state.seen + 1 end,
             on_reload = function(old) wirescope.state = old; print('{what} had', old.seen > 0) end }}"
        )
    };
    script(&place, "count.lua", &counting("first"));
    let config = place.path("run.toml");
    let text = |more: &str| {
        format!(
            "ring = \"64MiB\"\nout = {:?}\nsource = \"synth:rate=5k\"\n[[trigger]]\nname = \"count\"\nscript = {:?}\n{more}",
            place.out(),
            place.path("count.lua")
        )
    };
    std::fs::write(&config, text("")).unwrap();
    let run = Started::new(wirescope(&["run".as_ref(), "--config".as_ref(), config.as_os_str()]));
    place.wait_for_start();
    let log = |words: &str| place.wait_for_words(words);
    run::wait_until("packets in the script", || packets_of(&place, "count") > 0);
    script(&place, "count.lua", &counting("second"));
    run.signal(libc::SIGHUP);
    log("second had\\ttrue");
    log("script ");
    // A text that is wrong isn't taken up.
    script(&place, "count.lua", "this is no Lua");
    run.signal(libc::SIGHUP);
    log("the old one goes on");
    // One that needs a library which isn't there is refused as a whole.
    script(&place, "count.lua", "wirescope.library 'm'\nreturn function() end");
    run.signal(libc::SIGHUP);
    log("can't be opened any more");
    // Another mode of the same trigger.
    script(&place, "count.lua", &counting("third"));
    std::fs::write(&config, text("single = true\n")).unwrap();
    run.signal(libc::SIGHUP);
    log("third had\\ttrue");
    run.signal(libc::SIGINT);
    let done = run.finish(run::LIMIT);
    assert_eq!(done.code(), Some(1), "one text couldn't be loaded: {}", done.stderr);
    assert!(done.stderr.contains("count.lua"), "{}", done.stderr);
}

/// Packets of a script, as the newest status line of the log has it.
fn packets_of(place: &Place, name: &str) -> u64 {
    let log = place.log();
    let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let status = lines.into_iter().find(|line| line["event"] == "status");
    let scripts = status.as_ref().and_then(|status| status["scripts"].as_array());
    let own = scripts.into_iter().flatten().find(|script| script["name"] == name);
    own.and_then(|script| script["packets"].as_u64()).unwrap_or(0)
}

#[test]
fn live_a_script_that_is_slow_misses_packets_which_are_counted_and_one_that_hangs_is_left_behind() {
    let place = Place::new();
    let slow = "return function(pkt) local until_ = 0 for i = 1, 20000 do until_ = until_ + i % 7 end return false end";
    let hangs = "local n = 0 return function(pkt) n = n + 1 if n == 1000 then while true do end end end";
    let (slow, hangs) = (script(&place, "slow.lua", slow), script(&place, "hangs.lua", hangs));
    let done = place.run(&[
        "--source",
        "synth:rate=200k,time=3s,size=1000,trigger-at=1s",
        "--ring",
        "16MiB",
        "--trigger-script",
        &format!("slow={slow}"),
        "--trigger-script",
        &format!("hangs={hangs}"),
        "--trigger",
        "good=udp port 60000",
        "--before",
        "10ms",
        "--after",
        "10ms",
        "--script-timeout",
        "5s",
    ]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let whole = object(&done);
    let (slow, hangs) = (of_script(&whole, "slow"), of_script(&whole, "hangs"));
    let published = whole["stored"]["packets"].as_u64().unwrap();
    let sum = |script: &Value| {
        ["packets", "missed", "behind"].iter().map(|key| script[key].as_u64().unwrap()).sum::<u64>()
    };
    assert!(slow["missed"].as_u64() > Some(0) && slow["disabled"].is_null(), "{slow}");
    assert_eq!(sum(&slow), published, "{slow}");
    assert!(hangs["disabled"].as_str().unwrap().contains("left behind"), "{hangs}");
    // Also while it never comes to the end of what there is.
    assert!(packets_of(&place, "slow") > 0, "the log's status lines say how far it is");
    assert_eq!(fired(&whole, "good"), 1);
    assert_eq!(done.summary().received.packets, 600_001);
    assert!(done.took < Duration::from_secs(120), "nobody waits for what was left behind");
}

#[test]
fn a_script_sees_frames_of_every_kind_and_fails_for_none() {
    let place = Place::new();
    let mut capture = Capture::ethernet("eth0");
    for at in 0..200u16 {
        let segment =
            tcp(([10, 0, 0, 1], 1000 + at).into(), ([10, 0, 0, 2], 80).into(), 1, 0x18, b"GET / HTTP/1.1");
        let frame = on_link(ETHERNET, &[], &segment);
        let cut = frame.len().min(usize::from(at) + 1);
        capture.packets.push(Record::new(BEGIN + i64::from(at) * MS, frame[..cut].to_vec()));
    }
    let text = r#"
        return function(pkt)
            local payload = pkt.payload.uint8
            return payload[0] == 71 and payload[1] == 69 and payload[2] == 84
        end
    "#;
    let file = script(&place, "get.lua", text);
    let done = place.run(&[
        "--source",
        &place.source(&capture),
        "--trigger-script",
        &format!("get={file}"),
        "--holdoff",
        "1h",
    ]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let get = of_script(&object(&done), "get");
    // 14 + 20 + 20 bytes of headers, and three of payload.
    assert_eq!(
        (get["packets"].as_u64(), get["hits"].as_u64(), get["errors"].as_u64()),
        (Some(200), Some(144), Some(0)),
        "{get}"
    );
}

#[test]
fn ticks_never_go_back_and_are_the_same_at_any_speed() {
    let text = r#"
        local packets = 0
        return { packet = function(pkt) packets = packets + 1 end,
            on_tick = function(now) print(string.format("tick %.3f %d", now, packets)) end }
    "#;
    let ticks = |more: &str| -> Vec<(String, String)> {
        let place = Place::new();
        let file = script(&place, "ticks.lua", text);
        let source = format!("{}{more}", place.source(&datagrams(4000)));
        let done = place.run(&["--source", &source, "--trigger-script", &file]);
        assert_eq!(done.code(), Some(0), "{more}: {}", done.stderr);
        let lines = place.log();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let printed = lines.filter(|line| line["event"] == "script");
        let words = printed.filter_map(|line| line["line"].as_str().map(str::to_string));
        let parts = |line: String| {
            let mut words = line.split(' ').skip(1).map(str::to_string);
            words.next().zip(words.next())
        };
        words.filter_map(parts).collect()
    };
    let one = ticks("");
    // One is due every 100 ms; the first packet is none.
    assert_eq!(one.len(), 39, "{one:?}");
    assert_eq!((one[0].1.as_str(), one[38].1.as_str()), ("100", "3900"), "{one:?}");
    assert_eq!(ticks(",pace=8"), one);
    for more in [",workers=2", ",workers=4"] {
        let several = ticks(more);
        assert!(
            several.is_sorted_by_key(|(time, _)| time.clone()) && several.len() == 39,
            "{more}: {several:?}"
        );
    }
}

#[test]
fn capture_time_that_falls_back_to_the_epoch_holds_nothing_up() {
    for times in [[1_800_000_000, 0, 0], [10, 0, 0], [1_800_000_000, 1, 1]] {
        let place = Place::new();
        let file = script(&place, "udp.lua", UDP);
        let mut capture = datagrams(3);
        capture
            .packets
            .iter_mut()
            .zip(times)
            .for_each(|(packet, second)| packet.time_ns = second * 1000 * MS);
        let done =
            place.run(&["--source", &place.source(&capture), "--trigger-script", &format!("a={file}")]);
        assert_eq!(done.code(), Some(0), "{times:?}: {}", done.stderr);
        assert_eq!(of_script(&object(&done), "a")["packets"], 3, "{times:?}");
    }
}

#[test]
fn a_script_that_a_reload_repairs_runs_again_and_the_exit_code_tells_that_it_was_disabled() {
    let place = Place::new();
    let file = script(&place, "live.lua", "return function(pkt) error('broken') end");
    let mut command = wirescope(&["run", "--ring", "64MiB", "--source", "synth:rate=5k", "--out"]);
    command.arg(place.out()).args(["--trigger-script", &format!("live={file}"), "--status-every", "1s"]);
    let run = Started::new(command);
    place.wait_for_words("is disabled: ");
    script(&place, "live.lua", "return function(pkt) return false end");
    run.signal(libc::SIGHUP);
    let newest = || -> Option<Value> {
        let log = place.log();
        let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let status = lines.into_iter().find(|line| line["event"] == "status")?;
        status["scripts"].as_array()?.iter().find(|script| script["name"] == "live").cloned()
    };
    let runs = |script: Value| script["disabled"].is_null() && script["packets_per_s"].as_f64() > Some(0.0);
    run::wait_until("the script to run again", || newest().is_some_and(runs));
    run.signal(libc::SIGINT);
    let done = run.finish(run::LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("was disabled: it failed for 1000 packets in a row"), "{}", done.stderr);
}
