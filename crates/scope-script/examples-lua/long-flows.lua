-- Fires on TCP connections that carried more than 100 MiB, and prints those that ended with resets.
--
-- wirescope.flows keeps a C struct per flow in a table of fixed size. A flow that was idle for 30 seconds of
-- capture time expires; where the table is full, the flow that was idle longest gives its place.
local BYTES_MAX = 100 * 1024 * 1024

return wirescope.flows {
    state = "struct { double bytes; uint32_t packets, resets; bool told; }",
    idle = "30s",
    max = 65536,
    packet = function(key, state, pkt)
        if key:getProtocol() ~= 6 then return false end
        state.bytes = state.bytes + pkt.original
        state.packets = state.packets + 1
        state.resets = state.resets + (pkt.tcp:getRst() or 0)
        if state.bytes <= BYTES_MAX or state.told then return false end
        state.told = true
        return { text = "more than 100 MiB: " .. tostring(key), flows = { key } }
    end,
    expired = function(key, state)
        if state.resets > 0 then
            print(string.format("%s: %d packets, %d resets", tostring(key), state.packets, state.resets))
        end
    end,
}
