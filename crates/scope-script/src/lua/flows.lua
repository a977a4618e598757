-- wirescope.flows: bounded state per flow.
--
-- All flows of a tracker stand in one array of `max` entries, made at once. Two lists go through it: the
-- entries of a bucket, and all entries from the one seen longest ago to the last one. The oldest goes when it
-- was idle for long enough, or when another flow needs its place (counted as `evicted`). So the state is
-- bounded, and every packet costs the same.
local ffi, views, keys, duration = ...

local band, type, error, format, tonumber, tostring, pcall = bit.band, type, error, string.format, tonumber, tostring, pcall
local typeof, copy, fill, cast = ffi.typeof, ffi.copy, ffi.fill, ffi.cast
local u8p, words_p = typeof("const uint8_t *"), typeof("const uint64_t *")
local key_bytes = ffi.sizeof("ws_key")
local FLOWS_MAX = 16777216

-- A key's two ends, the lower address (and port) first, whoever sent.
local key_methods = {}
local function address(key, at)
    local p = cast(u8p, key)
    if key._version == 6 then return views.ip6_text(p, at) end
    return views.ip4_text(p, at)
end
function key_methods:getHosts() return address(self, 0), address(self, 16) end
function key_methods:getPorts() return self._a_port, self._b_port end
function key_methods:getProtocol() return self._protocol end
function key_methods:getVersion() return self._version end
local names = { [1] = "icmp", [6] = "tcp", [17] = "udp", [58] = "icmp6", [132] = "sctp" }
ffi.metatype("ws_key", {
    __index = key_methods,
    __tostring = function(self)
        local a, b = self:getHosts()
        local form = self._version == 6 and "%s [%s]:%d [%s]:%d" or "%s %s:%d %s:%d"
        local name = names[self._protocol] or ("protocol " .. self._protocol)
        return format(form, name, a, self._a_port, b, self._b_port)
    end,
})

local function same(one, other)
    local a, b = cast(words_p, one), cast(words_p, other)
    return a[0] == b[0] and a[1] == b[1] and a[2] == b[2] and a[3] == b[3] and a[4] == b[4]
end

local function setting(options, name, kinds)
    local value = options[name]
    if not kinds[type(value)] then
        error(format("wirescope.flows: '%s' is a %s; write %s", name, type(value), kinds.like), 3)
    end
    return value
end

local KNOWN = { state = true, idle = true, max = true, packet = true, expired = true }

-- `ticks` gets a function to call at each tick, `fire` takes what `expired` returns.
return function(options, ticks, fire)
    if type(options) ~= "table" then
        error("wirescope.flows takes one table: wirescope.flows{state = 'struct { uint32_t packets; }', packet = "
            .. "function(key, state, pkt) ... end}", 2)
    end
    for name in pairs(options) do
        if not KNOWN[name] then
            error(format("wirescope.flows: it has no setting '%s'; it has state, idle, max, packet, expired", tostring(name)), 2)
        end
    end
    local text = setting(options, "state", { string = true, like = "a C type: state = 'struct { uint32_t packets; }'" })
    local packet = setting(options, "packet", { ["function"] = true, like = "packet = function(key, state, pkt) ... end" })
    local expired = setting(options, "expired",
        { ["function"] = true, ["nil"] = true, like = "expired = function(key, state) ... end, or leave it out" })
    local max = setting(options, "max", { number = true, ["nil"] = true, like = "a number of flows: max = 65536" }) or 65536
    local idle = duration(options.idle or "60s") -- ns, as a number
    if max < 1 or max > FLOWS_MAX or max % 1 ~= 0 then
        error(format("wirescope.flows: max is %s; write a whole number from 1 to %d", tostring(max), FLOWS_MAX), 2)
    end
    local fine, state_type = pcall(typeof, text)
    if not fine then
        error(format("wirescope.flows: state '%s' is no C type: %s", text, tostring(state_type)), 2)
    end
    local entry_type = typeof("struct { ws_key key; int64_t last; int32_t chain, older, newer, used; $ state; }", state_type)
    local buckets = 1
    while buckets < max do buckets = buckets * 2 end
    -- Entry 0 stands for none, and is the end of both lists.
    local entries = ffi.new(typeof("$[?]", entry_type), max + 1)
    local heads = ffi.new("int32_t[?]", buckets)
    local mask = buckets - 1
    local state_bytes = ffi.sizeof(state_type)
    local free_list, fresh = 0, 1
    local count, evicted_count, expired_count = 0, 0, 0

    local function unlink(at)
        local entry = entries[at]
        entries[entry.older].newer = entry.newer
        entries[entry.newer].older = entry.older
    end
    local function link_newest(at)
        local entry, newest = entries[at], entries[0].older
        entry.older, entry.newer = newest, 0
        entries[newest].newer = at
        entries[0].older = at
    end
    local function remove(at)
        local entry = entries[at]
        unlink(at)
        local bucket = band(tonumber(entry.key._hash), mask)
        local here = heads[bucket]
        if here == at then
            heads[bucket] = entry.chain
        else
            while entries[here].chain ~= at do here = entries[here].chain end
            entries[here].chain = entry.chain
        end
        -- Off all lists before the script hears of it: an error there leaves the table whole.
        entry.used, entry.chain = 0, free_list
        free_list = at
        count = count - 1
        if expired then fire(expired(entry.key, entry.state)) end
    end
    local function oldest() return entries[0].newer end

    local function insert(key, bucket)
        if free_list == 0 and fresh > max then
            evicted_count = evicted_count + 1
            remove(oldest())
        end
        local at = free_list
        if at ~= 0 then
            free_list = entries[at].chain
        else
            at, fresh = fresh, fresh + 1
        end
        local entry = entries[at]
        copy(entry.key, key, key_bytes)
        fill(entry.state, state_bytes)
        entry.used, entry.chain = 1, heads[bucket]
        heads[bucket] = at
        link_newest(at)
        count = count + 1
        return at
    end

    local function each(pkt)
        local key = keys[pkt._index]
        if key._version == 0 then return nil end
        local bucket = band(tonumber(key._hash), mask)
        local at = heads[bucket]
        while at ~= 0 and not same(entries[at].key, key) do at = entries[at].chain end
        if at == 0 then
            at = insert(key, bucket)
        elseif entries[0].older ~= at then
            unlink(at)
            link_newest(at)
        end
        local entry = entries[at]
        entry.last = pkt._time
        return packet(entry.key, entry.state, pkt)
    end

    ticks[#ticks + 1] = function(now_ns)
        local at = oldest()
        while at ~= 0 and tonumber(now_ns - entries[at].last) >= idle do
            expired_count = expired_count + 1
            remove(at)
            at = oldest()
        end
    end

    local tracker = { packet = each }
    -- How many flows there are, were evicted for another, and expired.
    function tracker.counts() return count, evicted_count, expired_count end
    return tracker
end
