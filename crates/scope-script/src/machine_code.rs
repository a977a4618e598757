//! Whether LuaJIT gets memory for machine code. It needs it within 2 GiB of its own code, which large mappings
//! can take. Without it scripts run, ten to fifty times slower.

use crate::state::new_lua;

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
