//! Whether LuaJIT may make machine code. Without it scripts run, ten to fifty times slower.
//!
//! It needs memory that is written, and then executed: what some systems refuse. LuaJIT ends the process when
//! that is refused, so it is tried without LuaJIT first. Where the memory lies doesn't matter to this version of
//! LuaJIT: it goes elsewhere where large mappings take what is near its own code (a test takes it).

use mlua::{Lua, LuaOptions, StdLib};
use std::ptr::null_mut;

const TRIED_BYTES: usize = 64 << 10;

/// A loop that is always compiled, where that is possible.
const LOOP: &str = "
local sum = 0
for i = 1, 10000 do sum = sum + i end
return jit.status() and require('jit.util').traceinfo(1) ~= nil
";

/// Whether a script that starts now gets machine code. It takes about a millisecond. `false` is worth a warning:
/// scripts then run in LuaJIT's interpreter.
pub fn machine_code_works() -> bool {
    new_lua().load(LOOP).set_name("=machine_code").eval().unwrap_or(false)
}

/// Whether memory that was written may be made executable.
fn allowed() -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of its own, anywhere, that is given back.
    unsafe {
        let memory = libc::mmap(null_mut(), TRIED_BYTES, protection, flags, -1, 0);
        if memory == libc::MAP_FAILED {
            return false;
        }
        let allowed = libc::mprotect(memory, TRIED_BYTES, libc::PROT_READ | libc::PROT_EXEC) == 0;
        libc::munmap(memory, TRIED_BYTES);
        allowed
    }
}

/// A state with all libraries of LuaJIT, FFI included.
pub(crate) fn new_lua() -> Lua {
    // Without mlua's own pcall, which compiled code can't call. No panic passes through Lua: the functions
    // below don't.
    let options = LuaOptions::new().catch_rust_panics(false);
    // SAFETY: all libraries are loaded, which makes every script trusted code: that is what scripts are
    // (see the crate's first page). They get copies without what reaches outside (`lua/prelude.lua`).
    let lua = unsafe { Lua::unsafe_new_with(StdLib::ALL, options) };
    if !allowed() {
        // Before anything runs that could be compiled. It can't fail: the library is there.
        let off: mlua::Result<()> = lua.load("jit.off()").exec();
        debug_assert!(off.is_ok());
    }
    lua
}
