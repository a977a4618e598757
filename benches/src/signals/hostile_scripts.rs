//! Scripts that would do harm without FFI, and what becomes of each in a run: issue 17, "Bad input".

/// What becomes of a script, and of its run's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It isn't loaded: disabled from the begin.
    Refused,
    /// Its packets fail, each is counted, and a thousand in a row disable it.
    Fails,
    /// It takes more memory than it may: disabled.
    Memory,
    /// It doesn't come back: disabled.
    Stuck,
    /// It does no harm, and no error is counted.
    Harmless,
}
use Fate::{Fails, Harmless, Memory, Refused, Stuck};

/// Fifty of them.
pub const SCRIPTS: [(&str, Fate); 50] = [
    // Reaching out.
    ("return function() os.exit(0) end", Fails),
    ("os.exit(0)", Refused),
    ("return function() os.execute('true') end", Fails),
    ("return function() io.popen('true') end", Fails),
    ("return function() io.open('/etc/passwd') end", Fails),
    ("return function() io.write('x') end", Fails),
    ("return function() os.remove('x') end", Fails),
    ("return function() os.getenv('HOME') end", Fails),
    ("return function() dofile('/etc/passwd') end", Fails),
    ("return function() loadfile('/etc/passwd') end", Fails),
    ("return function() package.loadlib('libc.so.6', 'exit') end", Fails),
    ("return function() require('os').exit() end", Fails),
    ("return function() debug.sethook(function() end, 'c') end", Fails),
    ("return function() getfenv(0) end", Fails),
    ("return function() load('\\27LJ')() end", Fails),
    ("return function() wirescope.library('c') end", Fails),
    // Writing where it must not.
    ("return function() x = 1 end", Fails),
    ("return function() print = nil end", Fails),
    ("return function() setmetatable(_G, {}) end", Fails),
    ("return function(pkt) pkt.captured = 1e6 end", Fails),
    ("return function(pkt) pkt._data = 0 end", Fails),
    ("return function(pkt) pkt.payload.uint8[0] = 0 end", Fails),
    ("return function(pkt) pkt.udp.getDstPort = nil end", Fails),
    ("return function(pkt) return pkt[100000].captured > 0 end", Fails),
    ("return function(pkt) return (pkt + 1).captured > 0 end", Fails),
    ("return function(pkt) require('packet').getUdp4Packet({}) end", Fails),
    // Errors of all kinds.
    ("return function() error() end", Fails),
    ("return function() error({}) end", Fails),
    ("return function() error(setmetatable({}, { __tostring = function() error('again') end })) end", Fails),
    ("return function() local function f() return 1 + f() end return f() end", Fails),
    ("local function f() return f() + f() end return f", Fails),
    ("return function() coroutine.yield() end", Fails),
    ("return function() return coroutine.wrap(function() error('in it') end)() end", Fails),
    ("return function() unpack({}, 1, 1e8) end", Fails),
    ("return 5", Refused),
    ("this is no Lua", Refused),
    ("return function() return 5 end", Fails),
    ("return function() return { text = 5 } end", Fails),
    ("return setmetatable({}, { __index = function() error('no') end })", Refused),
    ("collectgarbage('stop') return function() return false end", Harmless),
    ("return function() for i = 1, 10 do print(('x'):rep(100)) end end", Harmless),
    // Memory.
    ("local t = {} return function() t[#t + 1] = ('x'):rep(1e6) .. #t end", Memory),
    ("local t = {} while true do t[#t + 1] = {} end", Refused),
    ("local s = 'x' return function() s = s .. s end", Memory),
    ("return function() return ('x'):rep(1e9) end", Memory),
    ("local t = {} return function() for i = 1, 1e5 do t[#t + 1] = coroutine.create(print) end end", Memory),
    // Never coming back.
    ("return function() while true do end end", Stuck),
    ("return function() local n = 0 repeat n = n + 1 until false end", Stuck),
    ("return function() pcall(function() while true do end end) end", Stuck),
    ("return { packet = function() end, on_tick = function() while true do end end }", Stuck),
];
