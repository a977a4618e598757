-- The types of a packet, as the loop lends it: one record of 64 bytes, seen in many roles.
--
-- Every role (`eth`, `udp`, `payload` ...) has the same fields at the same address, and methods of its own. So
-- `pkt.udp:getDstPort()` makes no object and copies nothing. The fields are constant: a script can't move the
-- bounds. The address of the bytes is a number, not a pointer: only `ffi.cast` makes one of it, unchecked.
--
-- Rust's side of this layout is record.rs; a test holds the two against each other.
local ffi = require "ffi"

local FIELDS = [[
    const uint64_t _data;       /* address of the first byte */
    const int64_t _time;        /* capture time, ns */
    const int32_t captured;     /* bytes that are there */
    const int32_t original;     /* bytes on the wire */
    const int32_t interface;
    const uint32_t flags;
    const int32_t _l3;          /* where the layers begin; what isn't there begins at `captured` */
    const int32_t _l4;
    const int32_t _payload;
    const int32_t _end;         /* where the payload ends: padding of Ethernet is none of it */
    const uint16_t link_type;
    const uint16_t _ethertype;
    const uint16_t _src_port;
    const uint16_t _dst_port;
    const uint8_t _network;     /* 4, 6: that header is whole; 2: ARP */
    const uint8_t _protocol;
    const uint8_t _transport;   /* the protocol, where its first 4 bytes are there */
    const uint8_t _tags;        /* VLAN tags; bit 7: Ethernet addresses are there */
    const int32_t _index;
]]

local HEADERS = { "eth", "vlan", "arp", "ip4", "ip6", "udp", "tcp", "icmp", "dns" }
-- Each stretch of bytes, with the fields where it begins and ends.
local STRETCHES = {
    whole = { "0", "captured" },
    frame = { "_l3", "captured" },
    network = { "_l4", "_end" },
    transport = { "_payload", "_end" },
}
local WIDTHS = { 8, 16, 32, 64 }

local text = { "typedef struct { " .. FIELDS .. " } ws_fields;\n" }
local function define(name, extra)
    text[#text + 1] = string.format("typedef struct { union { struct { %s }; %s }; } %s;\n", FIELDS, extra or "", name)
end
for _, header in ipairs(HEADERS) do
    define("ws_" .. header)
end
for stretch in pairs(STRETCHES) do
    local arrays = {}
    for _, width in ipairs(WIDTHS) do
        define("ws_" .. stretch .. width)
        arrays[#arrays + 1] = string.format("ws_%s%d uint%d;", stretch, width, width)
    end
    define("ws_" .. stretch, table.concat(arrays, " "))
end
local members = { "ws_whole bytes;" }
for _, header in ipairs(HEADERS) do
    members[#members + 1] = string.format("ws_%s %s;", header, header)
end
members = table.concat(members, " ")
define("ws_eth_packet", members .. " ws_frame payload;")
define("ws_ip_packet", members .. " ws_network payload;")
define("ws_packet", members .. " ws_transport payload; ws_eth_packet _as_eth; ws_ip_packet _as_ip;")
text[#text + 1] = [[
    typedef struct {
        const uint64_t _of;     /* address of the record */
        const int32_t _from, _to;
        const int32_t _width;   /* bytes of an element */
    } ws_slice;
    typedef struct {
        const uint8_t _a[16], _b[16];
        const uint16_t _a_port, _b_port;
        const uint8_t _protocol, _version;
        const uint16_t _unused;
        const uint32_t _hash;
        const uint32_t _unused2;
    } ws_key;
    typedef struct {
        int32_t at;
        int32_t hits;
        int32_t detailed;
        int32_t fail_row;
        int64_t errors;
        int64_t now;
        uint16_t hit[256];
    } ws_control;
]]
ffi.cdef(table.concat(text))

return { stretches = STRETCHES, widths = WIDTHS }
