-- What a script finds when it begins: its globals, `require`, `wirescope`; and what Rust calls.
--
-- Scripts get copies of the libraries, without what reaches outside (files, processes, other code). That keeps
-- mistakes in; it is no wall: FFI reaches everything, and scripts are trusted code of whoever runs them.
local control_address, records_address, keys_address, sources, host = ...

local ffi, bit = require "ffi", require "bit"
local real_load, load_text, setmetatable, getmetatable, rawget, rawset = load, loadstring, setmetatable, getmetatable, rawget, rawset
local type, tostring, tonumber, pairs, ipairs, error, pcall, xpcall, select, next =
    type, tostring, tonumber, pairs, ipairs, error, pcall, xpcall, select, next
local format, concat, traceback = string.format, table.concat, debug.traceback
local istype, cast, raw_string, typeof, ffi_load = ffi.istype, ffi.cast, ffi.string, ffi.typeof, ffi.load

local function part(name, ...)
    return assert(load_text(sources[name], "=wirescope/" .. name))(...)
end

local types = part("types")
local control = cast("ws_control *", control_address)
local records = cast("ws_packet *", records_address)
local keys = cast("ws_key *", keys_address)
local views = part("views", ffi, bit, types)
local dns = part("dns", ffi, views)

-- From a text or a number of seconds to ns, as a number.
local function duration(value)
    if type(value) == "number" and value >= 0 and value < 4e7 then return math.floor(value * 1e9 + 0.5) end
    if type(value) == "string" then
        local ns, problem = host.duration(value)
        if ns then return ns end
        error(problem, 0)
    end
    error(format("a span of time is '500ms', '2s' or a number of seconds from 0 to a year, not %s", tostring(value)), 0)
end

local modules = part("protocols", views, host.address, dns)
modules.ffi, modules.bit = views.ffi, bit

-- Errors ----------------------------------------------------------------------------------------------------

local FAILS_MAX = 1000
local NO_MEMORY = "not enough memory"
local reported, report, disabled = false, nil, nil

local function text_of(problem)
    if type(problem) == "string" then return problem end
    local fine, text = pcall(tostring, problem)
    return fine and type(text) == "string" and text or "an error that can't be shown: " .. type(problem)
end

-- Without the lines of what called the script: they tell its author nothing.
local function trace_of(problem)
    return (traceback(text_of(problem), 3):gsub("\n\t[^\n]*wirescope/[^\n]*", ""):gsub("\n\t%[C%]: in function 'xpcall'", ""))
end

-- The traceback is made once, for the first error.
local function handler(problem)
    if reported then return problem end
    reported = true
    local fine, text = pcall(trace_of, problem)
    report = fine and text or text_of(problem)
    return problem
end

local function disable(why)
    disabled = disabled or why
    return false
end

-- `row`: the packet in front of this one failed, too, or this is the first of the batch.
local function failed(problem, row)
    control.errors = control.errors + 1
    if report == nil then
        report = text_of(problem)
        reported = true
    end
    if problem == NO_MEMORY then return disable("memory") end
    local fails = row and control.fail_row + 1 or 1
    control.fail_row = fails
    if fails >= FAILS_MAX then return disable("row") end
    return true
end

-- Answers ---------------------------------------------------------------------------------------------------

local HITS_MAX, NAMES_MAX, TEXT_BYTES_MAX = 256, 64, 1024
local ANSWERS = { text = true, before = true, after = true, hosts = true, flows = true }
local answers, answer_count = {}, 0

local function list(value, name)
    if value == nil then return {} end
    if type(value) ~= "table" then value = { value } end
    if #value > NAMES_MAX then
        error(format("%s names %d %s, at most %d are possible", "the answer", #value, name, NAMES_MAX), 0)
    end
    return value
end

local function host_bytes(value)
    if type(value) == "number" and value >= 0 and value < 4294967296 and value % 1 == 0 then
        return string.char(math.floor(value / 16777216), math.floor(value / 65536) % 256, math.floor(value / 256) % 256, value % 256)
    end
    if type(value) == "string" then
        if #value == 16 and not host.address(value) then return value end
        local bytes = host.address(value)
        if bytes then return bytes end
    end
    error(format("hosts: '%s' is no address; give what getSrc or getSrcString of an IP header gave", tostring(value)), 0)
end

local function flow_bytes(value)
    if type(value) == "cdata" then
        if istype("ws_packet", value) or istype("ws_eth_packet", value) or istype("ws_ip_packet", value) then
            value = host.key(value._index)
            if value then return value end
            error("flows: the packet belongs to no flow: it isn't IP; test `pkt.ip4:getProtocol()` before", 0)
        end
        if istype("ws_key", value) then return raw_string(cast("const uint8_t *", value), ffi.sizeof("ws_key")) end
    end
    error(format("flows: a %s is no flow; give the packet, or the key that wirescope.flows gave", type(value)), 0)
end

-- An answer that isn't true or false, checked: a table of what the hit adds.
local function checked(answer)
    if type(answer) ~= "table" then
        error(format("the function returned a %s (%s); return true, false, nil, or a table such as {text = 'why'}",
            type(answer), tostring(answer)), 0)
    end
    for name in pairs(answer) do
        if not ANSWERS[name] then
            error(format("the function returned a table with '%s'; it may have text, before, after, hosts, flows", tostring(name)), 0)
        end
    end
    local text = answer.text
    if text ~= nil and type(text) ~= "string" then
        error(format("text is a %s; write a string", type(text)), 0)
    end
    local hosts, flows = {}, {}
    for i, value in ipairs(list(answer.hosts, "hosts")) do hosts[i] = host_bytes(value) end
    for i, value in ipairs(list(answer.flows, "flows")) do flows[i] = flow_bytes(value) end
    return {
        text = text and text:sub(1, TEXT_BYTES_MAX),
        before = answer.before ~= nil and duration(answer.before) or nil,
        after = answer.after ~= nil and duration(answer.after) or nil,
        hosts = hosts,
        flows = flows,
    }
end

-- What the function returned for packet `at`.
local function answered(at, answer)
    local details = checked(answer)
    answer_count = answer_count + 1
    details.hit = control.hits
    answers[answer_count] = details
    control.detailed = answer_count
    control.hit[control.hits] = at
    control.hits = control.hits + 1
end

-- What a function without a packet returned: a hit of the moment.
local function moment(answer)
    if answer == nil or answer == false then return end
    if answer_count >= HITS_MAX then error(format("more than %d hits at one tick", HITS_MAX), 0) end
    local details = answer == true and { hosts = {}, flows = {} } or checked(answer)
    answer_count = answer_count + 1
    answers[answer_count] = details
    control.detailed = answer_count
end

local function refuse_answer(_, answer)
    error(format("the function of a dump script returned a %s; return true to keep the packet, else false", type(answer)), 0)
end

-- The script's globals --------------------------------------------------------------------------------------

local globals, loaded = {}, false
local environment = setmetatable({}, {
    __index = globals,
    __newindex = function(_, name, value)
        if loaded then
            error(format("the script writes the global '%s' while it runs; write `local %s` in front of its functions",
                tostring(name), tostring(name)), 2)
        end
        globals[name] = value
    end,
    __metatable = "the globals of a script",
})

local function copied(library, without)
    local copy = {}
    for name, value in pairs(library) do copy[name] = value end
    for _, name in ipairs(without or {}) do copy[name] = nil end
    return copy
end

-- Calling it is an error that says what to do.
local function removed(name, remedy)
    return function()
        error(format("%s is removed: %s", name, remedy), 2)
    end
end

for _, name in ipairs { "assert", "error", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget", "rawset", "select",
    "setmetatable", "getmetatable", "tonumber", "tostring", "type", "unpack", "xpcall", "collectgarbage", "_VERSION" } do
    globals[name] = _G[name]
end
globals._G = environment
globals.bit = bit
globals.math, globals.table, globals.coroutine = copied(math), copied(table), copied(coroutine)
globals.string = copied(string, { "dump" })
globals.os = { time = os.time, clock = os.clock, date = os.date, difftime = os.difftime }
globals.io, globals.debug = {}, { traceback = traceback }
globals.jit = { version = jit.version, arch = jit.arch, os = jit.os, status = jit.status }
for _, name in ipairs { "exit", "execute", "remove", "rename", "tmpname", "getenv", "setlocale" } do
    globals.os[name] = removed("os." .. name, "a script reads packets, and answers; it can't reach the system")
end
for _, name in ipairs { "popen", "open", "lines", "read", "write", "close", "input", "output", "tmpfile", "type" } do
    globals.io[name] = removed("io." .. name, "a script has no files; use print for notes, and text of a hit for the dump")
end
for _, name in ipairs { "dofile", "loadfile" } do
    globals[name] = removed(name, "a script is one file; put all of it there")
end
globals.load = function(text, name)
    if type(text) ~= "string" then error("load takes a string", 2) end
    return real_load(text, name or "=(load)", "t", environment)
end
globals.loadstring = globals.load
globals.print = function(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = text_of((select(i, ...))) end
    host.note(concat(words, "\t"):sub(1, TEXT_BYTES_MAX))
end
modules.string, modules.table, modules.math, modules.coroutine = globals.string, globals.table, globals.math, globals.coroutine
modules["jit"], modules.os, modules.io = globals.jit, globals.os, globals.io
globals.require = function(name)
    local module = modules[name]
    if module == nil then
        local known = {}
        for known_name in pairs(modules) do known[#known + 1] = known_name end
        table.sort(known)
        error(format("require: there is no module '%s'; there are %s", tostring(name), concat(known, ", ")), 2)
    end
    return module
end
getmetatable("").__metatable = "strings"

local ticks = {}
local wirescope = { state = {} }
globals.wirescope = wirescope
modules.wirescope = wirescope
local new_flows = part("flows", ffi, views, keys, duration)
function wirescope.flows(options)
    if loaded then
        error("wirescope.flows is called while packets come; call it once, outside of the functions", 2)
    end
    host.want_keys()
    return new_flows(options, ticks, moment)
end
local libraries = {}
function wirescope.library(name)
    local path = host.library(name)
    if not path then
        error(format("wirescope.library '%s' isn't at the script's top; write it there as a line of its own, since "
            .. "libraries are loaded before the script runs", tostring(name)), 2)
    end
    libraries[name] = libraries[name] or ffi_load(path)
    return libraries[name]
end

-- Rust's side -----------------------------------------------------------------------------------------------

local forms = {}
local FORMS = { packet = true, on_tick = true, on_dump = true, on_reload = true, counts = true }

local function shape(value)
    if type(value) == "function" then return { packet = value } end
    if type(value) ~= "table" then
        return nil, format("the script returned a %s; it has to end with: return function(pkt) ... end", type(value))
    end
    for name, form in pairs(value) do
        if not FORMS[name] then
            return nil, format("the script returned a table with '%s'; it may have packet, on_tick, on_dump, on_reload", tostring(name))
        end
        if type(form) ~= "function" then
            return nil, format("'%s' is a %s; write %s = function(...) ... end", name, type(form), name)
        end
    end
    return value
end

local run

-- Runs the script's text. nil: it is loaded; else what is wrong.
local function load_script(text, name, dump)
    local chunk, problem = real_load(text, "=" .. name, "t", environment)
    if not chunk then return problem end
    local trace
    local fine, value = xpcall(chunk, function(problem)
        trace = trace_of(problem)
    end)
    if not fine then return trace or text_of(value) end
    if dump then
        if type(value) ~= "function" then
            return format("the dump script returned a %s; it has to end with: return function(trigger_pkt) return "
                .. "function(pkt) ... end end", type(value))
        end
        forms.trigger = value
    else
        local made
        made, problem = shape(value)
        if not made then return problem end
        for form in pairs(FORMS) do
            local global = rawget(globals, form)
            if form ~= "packet" and form ~= "counts" and type(global) == "function" then forms[form] = global end
        end
        for form, fn in pairs(made) do forms[form] = fn end
        if not forms.packet and not forms.on_tick then
            return "the script returned neither 'packet' nor 'on_tick'; it has to end with: return function(pkt) ... end"
        end
        run = part("loop", control, records, forms.packet or function() end, answered, failed, xpcall, handler)
    end
    loaded = true
end

local rust = { load = load_script }
function rust.wants_ticks() return forms.on_tick ~= nil or #ticks > 0 end
function rust.has(form) return forms[form] ~= nil end
function rust.disabled() return disabled end
function rust.report() return report end
function rust.flows()
    if forms.counts then return forms.counts() end
end

local function begin()
    control.hits, control.detailed, answer_count = 0, 0, 0
end
function rust.answers()
    local given = answers
    answers = {}
    return given
end

function rust.run(count)
    begin()
    return run(0, count - 1)
end

-- A call without packets: an error is counted, and disables nothing but for memory.
local function guarded(fn, ...)
    local fine, problem = xpcall(fn, handler, ...)
    if not fine then
        local row = control.fail_row
        failed(problem, false)
        control.fail_row = row
    end
    return fine, problem
end

function rust.tick(now)
    begin()
    for i = 1, #ticks do guarded(ticks[i], control.now) end
    if forms.on_tick then guarded(function() moment(forms.on_tick(now)) end) end
end
function rust.dumped(facts)
    begin()
    if forms.on_dump then guarded(forms.on_dump, facts) end
end
function rust.state() return wirescope.state end
function rust.reload(old)
    begin()
    if forms.on_reload then
        guarded(forms.on_reload, old)
    elseif type(old) == "table" then
        wirescope.state = old
    end
end

local keepers = {}
-- A dump begins: its function, made by the script of the packet that fired.
function rust.keeper(id, slot)
    local fine, made = guarded(forms.trigger, slot and records[slot] or nil)
    if fine and type(made) ~= "function" then
        fine = guarded(error, format("the function of trigger_pkt returned a %s; it has to return function(pkt) ... end", type(made)))
    end
    if not fine then return false end
    keepers[id] = part("loop", control, records, made, refuse_answer, failed, xpcall, handler)
    return true
end
function rust.keep(id, count)
    begin()
    return keepers[id](0, count - 1)
end
function rust.release(id) keepers[id] = nil end

-- Called once per batch: compiling these would only be tried, over and over.
jit.off(rust.run)
jit.off(rust.keep)
-- The prelude's own tables are most of what lives. With LuaJIT's 200 % they would be marked so often that marking
-- costs as much as making strings does (measured).
collectgarbage("setpause", 400)
return rust
