//! Hostile scripts: whatever one does without FFI, the process stays whole, and it is told what happened.

use scope_packet::LinkType;
use scope_script::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What becomes of a script.
#[derive(Debug, PartialEq)]
enum Fate {
    /// It is not loaded; the report has these words.
    Refused(&'static str),
    /// Its packets fail, its report has these words.
    Fails(&'static str),
    /// It is disabled for its memory.
    Memory,
    /// It does no harm: it runs, without an error.
    Harmless,
    /// It never comes back.
    Stuck,
}
use Fate::*;

const SCRIPTS: &[(&str, Fate)] = &[
    // Reaching out.
    ("return function() os.exit(0) end", Fails("os.exit is removed")),
    ("os.exit(0)", Refused("os.exit is removed")),
    ("return function() os.execute('true') end", Fails("os.execute is removed")),
    ("return function() io.popen('true') end", Fails("io.popen is removed")),
    ("return function() io.open('/etc/passwd') end", Fails("io.open is removed")),
    ("return function() io.write('x') end", Fails("io.write is removed")),
    ("return function() os.remove('x') end", Fails("os.remove is removed")),
    ("return function() os.getenv('HOME') end", Fails("os.getenv is removed")),
    ("return function() dofile('/etc/passwd') end", Fails("dofile is removed")),
    ("return function() loadfile('/etc/passwd') end", Fails("loadfile is removed")),
    ("return function() package.loadlib('libc.so.6', 'exit') end", Fails("'package'")),
    ("return function() require('os').exit() end", Fails("os.exit is removed")),
    ("return function() require('package') end", Fails("no module 'package'")),
    ("return function() debug.getregistry() end", Fails("getregistry")),
    ("return function() debug.sethook(function() end, 'c') end", Fails("sethook")),
    ("return function() getfenv(0) end", Fails("getfenv")),
    ("return function() string.dump(print) end", Fails("dump")),
    ("return function() load('\\27LJ')() end", Fails("")),
    ("return function() wirescope.library('c') end", Fails("isn't at the script's top")),
    // Writing where it must not.
    ("return function() x = 1 end", Fails("the global 'x' while it runs; write `local x`")),
    ("return function() print = nil end", Fails("the global 'print'")),
    ("return function() _G.x = 1 end", Fails("the global 'x'")),
    ("return function() setmetatable(_G, {}) end", Fails("protected metatable")),
    ("return function() getmetatable('').__index = nil end", Fails("")),
    ("return function(pkt) pkt.captured = 1e6 end", Fails("constant")),
    ("return function(pkt) pkt._data = 0 end", Fails("constant")),
    ("return function(pkt) pkt.payload.uint8[0] = 0 end", Fails("")),
    ("return function(pkt) pkt.udp.getDstPort = nil end", Fails("")),
    ("return function(pkt) return pkt[100000].captured > 0 end", Fails("")),
    ("return function(pkt) return (pkt + 1).captured > 0 end", Fails("")),
    ("return function(pkt) return pkt.payload[3] end", Fails("")),
    ("return function(pkt) pkt.udp.getDstPort(5) end", Fails("")),
    ("return function(pkt) pkt.udp.getDstPort('x') end", Harmless),
    ("return function(pkt) require('packet').getUdp4Packet({}) end", Fails("this is no packet but a table")),
    (
        "string.format = nil math.floor = nil table.concat = nil return function(pkt) return pkt.ip4:getSrcString() == 5 end",
        Harmless,
    ),
    ("rawset(_G, 'x', 1) return function() return x == 1 end", Harmless),
    // Errors of all kinds.
    ("return function() error() end", Fails("nil")),
    ("return function() error({}) end", Fails("table")),
    (
        "return function() error(setmetatable({}, { __tostring = function() error('again') end })) end",
        Fails("an error that can't be shown"),
    ),
    ("return function() error(setmetatable({}, { __tostring = function() return 5 end })) end", Fails("")),
    ("return function() error('x', 1e9) end", Fails("x")),
    ("return function() local function f() return 1 + f() end return f() end", Fails("stack overflow")),
    ("local function f() return f() + f() end return f", Fails("stack overflow")),
    (
        "return function() local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x end",
        Fails("loop"),
    ),
    ("return function() coroutine.yield() end", Fails("yield")),
    ("return function() return coroutine.wrap(function() error('in it') end)() end", Fails("in it")),
    (
        "return function() return ('x'):rep(3):find('((((((((((((((((((((((((((((((((((x') end",
        Fails("captures"),
    ),
    ("return function() unpack({}, 1, 1e8) end", Fails("too many results")),
    ("return 5", Refused("it has to end with")),
    ("return function() return 5 end", Fails("returned a number")),
    ("return function() return { text = 5 } end", Fails("text is a number")),
    ("return function() return setmetatable({}, { __index = error, __pairs = error }) end", Fails("__index")),
    ("return setmetatable({}, { __index = function() error('no') end })", Refused("neither")),
    ("return function() for i = 1, 1e4 do print(('x'):rep(100)) end end", Harmless),
    ("collectgarbage('stop') return function() return false end", Harmless),
    // Memory.
    ("local t = {} return function() t[#t + 1] = ('x'):rep(1e6) .. #t end", Memory),
    ("local t = {} while true do t[#t + 1] = {} end", Refused("not enough memory")),
    ("local s = 'x' return function() s = s .. s end", Memory),
    ("return function() return ('x'):rep(1e9) end", Memory),
    ("local ffi, t = require 'ffi', {} return function() t[#t + 1] = ffi.new('char[?]', 1e6) end", Memory),
    ("local t = {} return function() for i = 1, 1e5 do t[#t + 1] = coroutine.create(print) end end", Memory),
    (
        "collectgarbage('stop') local n = 0 return function() local t for i = 1, 1e5 do n = n + 1 t = n .. 'x' end end",
        Memory,
    ),
    (
        "return function() local t = {} pcall(function() while true do t[#t + 1] = {} end end) t = nil end",
        Memory,
    ),
    ("return wirescope.flows{ state = 'char[100000]', max = 1e7, packet = print }", Refused("")),
    // Never coming back.
    ("return function() while true do end end", Stuck),
    ("return function() local n = 0 repeat n = n + 1 until false end", Stuck),
    ("while true do end", Stuck),
    (
        "return function() return ('a'):rep(40):find(('a?'):rep(40) .. ('a'):rep(40) .. 'b') and (('a'):rep(1e5)):find('.-.-.-.-.-.-b') end",
        Stuck,
    ),
    ("return function() pcall(function() while true do end end) end", Stuck),
    ("return { packet = function() end, on_tick = function() while true do end end }", Stuck),
];

/// Why it was disabled, its counts and its report; or why it wasn't loaded.
type Outcome = Result<(Option<Disabled>, Counts, String), String>;

/// Loads and runs a script in a thread of its own, as an engine would.
fn fate(text: &'static str) -> (Arc<Watch>, Receiver<Outcome>) {
    let watch = Arc::new(Watch::new());
    let (sender, receiver) = channel();
    let shared = Arc::clone(&watch);
    let run = move || {
        let mut options = Options::named("hostile.lua");
        options.memory_bytes_max = 32 << 20;
        let mut script = match Script::load_watched(text, &options, shared) {
            Ok(script) => script,
            Err(error) => return sender.send(Err(error.to_string())),
        };
        let packets = builtin_packets();
        for round in 0..6 {
            let lent: Vec<Lent<'_>> = packets.iter().map(|packet| packet.lend(round * 100_000_000)).collect();
            if script.run(&lent).is_err() {
                break;
            }
        }
        let report = script.report().unwrap_or_default();
        sender.send(Ok((script.disabled().cloned(), script.counts(), report)))
    };
    // Rust's own threads have 2 MiB of stack: the deepest recursion of Lua needs less.
    std::thread::spawn(run);
    (watch, receiver)
}

#[test]
fn every_hostile_script_meets_its_fate() {
    assert!(SCRIPTS.len() >= 50);
    for (text, expected) in SCRIPTS {
        let (watch, receiver) = fate(text);
        if *expected == Stuck {
            let timeout = Duration::from_millis(300);
            let mut waited = 0;
            while !watch.abandon_if_stuck(timeout) {
                std::thread::sleep(Duration::from_millis(20));
                waited += 1;
                assert!(waited < 3000 && receiver.try_recv().is_err(), "{text}: it came back");
            }
            assert!(watch.is_abandoned());
            continue;
        }
        let outcome =
            receiver.recv_timeout(Duration::from_secs(120)).unwrap_or_else(|error| panic!("{text}: {error}"));
        match (expected, outcome) {
            (Refused(words), Err(report)) => assert!(report.contains(words), "{text}: {report}"),
            (Fails(words), Ok((None, counts, report))) => {
                assert!(counts.errors > 0 && report.contains(words), "{text}: {counts:?} {report}");
                assert_eq!(counts.hits, 0, "{text}");
            }
            (Memory, Ok((Some(Disabled::Memory { .. }), ..))) => {}
            (Harmless, Ok((None, counts, report))) => {
                assert_eq!((counts.errors, report.as_str()), (0, ""), "{text}")
            }
            (_, outcome) => panic!("{text}: expected {expected:?}, got {outcome:?}"),
        }
    }
}

#[test]
fn what_an_abandoned_script_returns_is_ignored() {
    // It comes back after a while, when nobody waits any more.
    let text = "local stop = os.clock() + 1e9
        return function() stop = math.min(stop, os.clock() + 0.5) while os.clock() < stop do end return true end";
    let mut script = Script::load(text, &Options::named("late.lua")).expect("it loads");
    let watch = script.watch();
    let watchdog = std::thread::spawn(move || {
        while !watch.abandon_if_stuck(Duration::from_millis(50)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let lent = Lent {
        data: &[],
        original_len: 0,
        time_ns: 0,
        interface: 0,
        flags: 0,
        link_type: LinkType::ETHERNET,
    };
    assert_eq!(script.run(&[lent]), Err(Ended::Abandoned));
    assert_eq!(script.run(&[lent]), Err(Ended::Abandoned));
    watchdog.join().expect("it abandons");
}
