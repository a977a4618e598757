-- Fires when nDPI detects one of these applications, and keeps that flow. For nDPI 4.2 (Debian 12: libndpi4.2).
--
-- The library is named here, at the top, so that it is opened before rights are given up.
wirescope.library "ndpi"

local WANTED = { BitTorrent = true, Telnet = true, SSH = true }
local FLOWS_MAX, PACKETS_MAX = 20000, 24 -- nDPI gives up after some packets; so does this script

local ffi = require "ffi"
ffi.cdef [[
    typedef struct { uint32_t bits[16]; } ndpi_bitmask;
    typedef struct { uint16_t master, app; int32_t category; } ndpi_found;
    void *ndpi_init_detection_module(uint32_t prefs);
    void ndpi_set_protocol_detection_bitmask2(void *module, const ndpi_bitmask *protocols);
    void ndpi_finalize_initialization(void *module);
    uint32_t ndpi_detection_get_sizeof_ndpi_flow_struct(void);
    void *ndpi_flow_malloc(size_t bytes);
    void ndpi_free_flow(void *flow);
    ndpi_found ndpi_detection_process_packet(void *module, void *flow, const uint8_t *ip, uint16_t bytes, uint64_t ms);
    char *ndpi_get_proto_name(void *module, uint16_t protocol);
    uint16_t ndpi_get_api_version(void);
]]
local ndpi = wirescope.library "ndpi"

local module = ndpi.ndpi_init_detection_module(0)
assert(module ~= nil, "nDPI gives no detection module")
local all = ffi.new("ndpi_bitmask")
ffi.fill(all, ffi.sizeof(all), 0xff)
ndpi.ndpi_set_protocol_detection_bitmask2(module, all)
ndpi.ndpi_finalize_initialization(module)
local flow_bytes = ndpi.ndpi_detection_get_sizeof_ndpi_flow_struct()

return wirescope.flows {
    state = "struct { void *flow; uint16_t packets; bool done; }",
    idle = "60s",
    max = FLOWS_MAX,
    packet = function(key, state, pkt)
        if state.done then return false end
        if state.flow == nil then
            state.flow = ndpi.ndpi_flow_malloc(flow_bytes)
            if state.flow == nil then return false end
            ffi.fill(state.flow, flow_bytes)
        end
        state.packets = state.packets + 1
        -- The bytes from the IP header on, as a raw pointer: C libraries see no bounds but what they are given.
        local frame = require("packet").getEthPacket(pkt)
        local bytes = math.min(#frame.payload, 65535)
        local found = ndpi.ndpi_detection_process_packet(module, state.flow,
            ffi.cast("const uint8_t *", frame.payload.uint8), bytes, pkt:getTime() / 1000000)
        local app = found.app ~= 0 and found.app or found.master
        if app == 0 and state.packets < PACKETS_MAX then return false end
        state.done = true
        ndpi.ndpi_free_flow(state.flow)
        state.flow = nil
        if app == 0 then return false end
        local name = ffi.string(ndpi.ndpi_get_proto_name(module, app))
        if not WANTED[name] then return false end
        return { text = name .. ": " .. tostring(key), flows = { key } }
    end,
    expired = function(_, state)
        if state.flow ~= nil then
            ndpi.ndpi_free_flow(state.flow)
            state.flow = nil
        end
    end,
}
