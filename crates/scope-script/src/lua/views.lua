-- What a packet's roles can do: getters of headers, and stretches of bytes with bounds.
--
-- A getter whose header isn't in the packet, or isn't whole, gives nil. So does an element outside of its
-- stretch. Nothing here reads a byte before it has compared with the record's bounds. When a batch is over,
-- its records are emptied: what a script kept of them gives nil.
local ffi, bit, types = ...

local cast, istype, raw_string, raw_copy, typeof = ffi.cast, ffi.istype, ffi.string, ffi.copy, ffi.typeof
local band, bor, lshift, rshift, bswap = bit.band, bit.bor, bit.lshift, bit.rshift, bit.bswap
local type, tonumber, format, floor, error = type, tonumber, string.format, math.floor, error
local min, max = math.min, math.max

local u8p = typeof("const uint8_t *")
local pointers = {
    [8] = u8p,
    [16] = typeof("const uint16_t *"),
    [32] = typeof("const uint32_t *"),
    [64] = typeof("const uint64_t *"),
}
local fields_p = typeof("const ws_fields *")
local slice_t, packet_t, eth_packet_t, ip_packet_t =
    typeof("ws_slice"), typeof("ws_packet"), typeof("ws_eth_packet"), typeof("ws_ip_packet")

local function be16(p, at)
    return bor(lshift(p[at], 8), p[at + 1])
end

local function be32(p, at)
    return p[at] * 16777216 + bor(lshift(p[at + 1], 16), lshift(p[at + 2], 8), p[at + 3])
end

local function ip4_text(p, at)
    return format("%d.%d.%d.%d", p[at], p[at + 1], p[at + 2], p[at + 3])
end

-- RFC 5952: the longest run of two or more zero words becomes "::".
local function ip6_text(p, at)
    local words, run_at, run_len, here = {}, 0, 1, 0
    for i = 1, 8 do
        words[i] = be16(p, at + 2 * i - 2)
        here = words[i] == 0 and here + 1 or 0
        if here > run_len then
            run_at, run_len = i - here + 1, here
        end
    end
    local text = ""
    local i = 1
    while i <= 8 do
        if i == run_at then
            text = text .. "::"
            i = i + run_len
        else
            local colon = i > 1 and i ~= run_at + run_len
            if run_at == 0 then colon = i > 1 end
            text = text .. (colon and ":" or "") .. format("%x", words[i])
            i = i + 1
        end
    end
    return text
end

local function mac_text(p, at)
    return format("%02x:%02x:%02x:%02x:%02x:%02x", p[at], p[at + 1], p[at + 2], p[at + 3], p[at + 4], p[at + 5])
end

local eth, vlan, arp, ip4, ip6, udp, tcp, icmp = {}, {}, {}, {}, {}, {}, {}, {}

-- Ethernet ------------------------------------------------------------------------------------------------

-- What the frame carries, behind any VLAN tags; on links without Ethernet what they carry. nil: not there.
function eth:getType()
    local ethertype = self._ethertype
    if ethertype ~= 0 then return ethertype end
    return nil
end

local function mac(self, at)
    if self._tags >= 128 then
        local p = cast(u8p, self._data)
        return be16(p, at) * 4294967296 + be32(p, at + 2)
    end
end
function eth:getDst() return mac(self, 0) end
function eth:getSrc() return mac(self, 6) end
function eth:getDstString()
    if self._tags >= 128 then return mac_text(cast(u8p, self._data), 0) end
    return nil
end
function eth:getSrcString()
    if self._tags >= 128 then return mac_text(cast(u8p, self._data), 6) end
    return nil
end

-- VLAN tags -------------------------------------------------------------------------------------------------

-- How many tags there are.
function vlan:getCount() return band(self._tags, 127) end

-- The 16 bits of tag `n`, 1 the outermost.
local function tag(self, n)
    n = n or 1
    local count = band(self._tags, 127)
    if n >= 1 and n <= count and n == floor(n) then
        -- The tags end where the network layer begins, each 4 bytes of which the first 2 are the tag's.
        local at = self._l3 - 4 * (count - n + 1)
        if at >= 0 and at + 2 <= self.captured then return be16(cast(u8p, self._data), at) end
    end
end
function vlan:getId(n)
    local bits = tag(self, n)
    return bits and band(bits, 4095)
end
function vlan:getPriority(n)
    local bits = tag(self, n)
    return bits and rshift(bits, 13)
end

-- ARP -------------------------------------------------------------------------------------------------------

function arp:getOperation()
    if self._network == 2 then return be16(cast(u8p, self._data), self._l3 + 6) end
    return nil
end
function arp:getProtoSrcString()
    if self._network == 2 then return ip4_text(cast(u8p, self._data), self._l3 + 14) end
    return nil
end
function arp:getProtoDstString()
    if self._network == 2 then return ip4_text(cast(u8p, self._data), self._l3 + 24) end
    return nil
end

-- IPv4 ------------------------------------------------------------------------------------------------------

function ip4:getProtocol()
    if self._network == 4 then return self._protocol end
    return nil
end
function ip4:getVersion()
    if self._network == 4 then return 4 end
    return nil
end
local function ip4_byte(name, at)
    ip4[name] = function(self)
        if self._network == 4 then return cast(u8p, self._data)[self._l3 + at] end
        return nil
    end
end
local function ip4_word(name, at)
    ip4[name] = function(self)
        if self._network == 4 then return be16(cast(u8p, self._data), self._l3 + at) end
        return nil
    end
end
local function ip4_address(name, at)
    ip4[name] = function(self)
        if self._network == 4 then return be32(cast(u8p, self._data), self._l3 + at) end
        return nil
    end
    ip4[name .. "String"] = function(self)
        if self._network == 4 then return ip4_text(cast(u8p, self._data), self._l3 + at) end
        return nil
    end
end
ip4_byte("getTOS", 1)
ip4_word("getLength", 2)
ip4_word("getID", 4)
ip4_byte("getTTL", 8)
ip4_word("getChecksum", 10)
ip4_address("getSrc", 12)
ip4_address("getDst", 16)
-- In words of 4 bytes, options included.
function ip4:getHeaderLength()
    if self._network == 4 then return band(cast(u8p, self._data)[self._l3], 15) end
    return nil
end
function ip4:getFlags()
    if self._network == 4 then return rshift(cast(u8p, self._data)[self._l3 + 6], 5) end
    return nil
end
-- In units of 8 bytes; 0 for a whole packet and for the first fragment.
function ip4:getFragment()
    if self._network == 4 then return band(be16(cast(u8p, self._data), self._l3 + 6), 8191) end
    return nil
end

-- IPv6 ------------------------------------------------------------------------------------------------------

-- The protocol behind the extension headers, as far as these are there.
function ip6:getProtocol()
    if self._network == 6 then return self._protocol end
    return nil
end
function ip6:getVersion()
    if self._network == 6 then return 6 end
    return nil
end
function ip6:getNextHeader()
    if self._network == 6 then return cast(u8p, self._data)[self._l3 + 6] end
    return nil
end
function ip6:getTTL()
    if self._network == 6 then return cast(u8p, self._data)[self._l3 + 7] end
    return nil
end
function ip6:getLength()
    if self._network == 6 then return be16(cast(u8p, self._data), self._l3 + 4) end
    return nil
end
function ip6:getTrafficClass()
    if self._network == 6 then return band(rshift(be16(cast(u8p, self._data), self._l3), 4), 255) end
    return nil
end
function ip6:getFlowLabel()
    if self._network == 6 then return band(be32(cast(u8p, self._data), self._l3), 0xfffff) end
    return nil
end
-- The 16 bytes as a string: addresses of IPv6 compare as these.
local function ip6_address(name, at)
    ip6[name] = function(self)
        if self._network == 6 then return raw_string(cast(u8p, self._data) + self._l3 + at, 16) end
        return nil
    end
    ip6[name .. "String"] = function(self)
        if self._network == 6 then return ip6_text(cast(u8p, self._data), self._l3 + at) end
        return nil
    end
end
ip6_address("getSrc", 8)
ip6_address("getDst", 24)

-- UDP, TCP, ICMP --------------------------------------------------------------------------------------------

function udp:getSrcPort()
    if self._transport == 17 then return self._src_port end
    return nil
end
function udp:getDstPort()
    if self._transport == 17 then return self._dst_port end
    return nil
end
function udp:getLength()
    if self._transport == 17 and self._l4 + 8 <= self.captured then
        return be16(cast(u8p, self._data), self._l4 + 4)
    end
    return nil
end
function udp:getChecksum()
    if self._transport == 17 and self._l4 + 8 <= self.captured then
        return be16(cast(u8p, self._data), self._l4 + 6)
    end
    return nil
end

function tcp:getSrcPort()
    if self._transport == 6 then return self._src_port end
    return nil
end
function tcp:getDstPort()
    if self._transport == 6 then return self._dst_port end
    return nil
end
local function whole_tcp(self)
    return self._transport == 6 and self._l4 + 20 <= self.captured
end
function tcp:getSeqNumber()
    if whole_tcp(self) then return be32(cast(u8p, self._data), self._l4 + 4) end
    return nil
end
function tcp:getAckNumber()
    if whole_tcp(self) then return be32(cast(u8p, self._data), self._l4 + 8) end
    return nil
end
-- In words of 4 bytes, options included.
function tcp:getDataOffset()
    if whole_tcp(self) then return rshift(cast(u8p, self._data)[self._l4 + 12], 4) end
    return nil
end
function tcp:getFlags()
    if whole_tcp(self) then return cast(u8p, self._data)[self._l4 + 13] end
    return nil
end
function tcp:getWindow()
    if whole_tcp(self) then return be16(cast(u8p, self._data), self._l4 + 14) end
    return nil
end
function tcp:getChecksum()
    if whole_tcp(self) then return be16(cast(u8p, self._data), self._l4 + 16) end
    return nil
end
for at, name in ipairs { "Fin", "Syn", "Rst", "Psh", "Ack", "Urg" } do
    local mask = lshift(1, at - 1)
    -- 1 or 0, as a number.
    tcp["get" .. name] = function(self)
        if whole_tcp(self) then
            return band(cast(u8p, self._data)[self._l4 + 13], mask) ~= 0 and 1 or 0
        end
        return nil
    end
end

-- ICMP over IPv4, and over IPv6 (its protocol tells which).
local function is_icmp(self)
    return self._transport == 1 or self._transport == 58
end
function icmp:getType()
    if is_icmp(self) then return cast(u8p, self._data)[self._l4] end
    return nil
end
function icmp:getCode()
    if is_icmp(self) then return cast(u8p, self._data)[self._l4 + 1] end
    return nil
end
function icmp:getChecksum()
    if is_icmp(self) then return be16(cast(u8p, self._data), self._l4 + 2) end
    return nil
end

for name, methods in pairs { eth = eth, vlan = vlan, arp = arp, ip4 = ip4, ip6 = ip6, udp = udp, tcp = tcp, icmp = icmp } do
    ffi.metatype("ws_" .. name, { __index = methods })
end

-- Stretches -------------------------------------------------------------------------------------------------

-- For each type of view, what gives address and bytes of its stretch; in the order of use.
local views = {}
local function view_bounds(view)
    for i = 1, #views do
        if istype(views[i].type, view) then return views[i].bounds(view) end
    end
end

-- The slice's bounds are those of its record as it is now: that of a batch that is over is empty.
local function slice_bounds(self)
    local of = cast(fields_p, self._of)
    local from = self._from
    return of._data + from, max(min(self._to, of.captured) - from, 0)
end

local function element(address, bytes, pointer, width, i)
    i = tonumber(i)
    if i and i >= 0 and i < floor(bytes / width) then
        return cast(pointer, address)[i]
    end
    return nil
end

local slice_widths = { [1] = pointers[8], [2] = pointers[16], [4] = pointers[32], [8] = pointers[64] }
ffi.metatype(slice_t, {
    __index = function(self, i)
        local address, bytes = slice_bounds(self)
        local width = self._width
        if width == 1 then return element(address, bytes, u8p, 1, i) end
        return element(address, bytes, slice_widths[width], width, i)
    end,
    __len = function(self)
        local _, bytes = slice_bounds(self)
        return floor(bytes / self._width)
    end,
    -- Behind its end a slice is empty, in front of its begin there is nothing either.
    __add = function(self, n)
        local from = self._from + max(0, n) * self._width
        return slice_t(self._of, min(from, self._to), self._to, self._width)
    end,
})
views[1] = { type = slice_t, bounds = slice_bounds }

local code = [[
local cast, element, slice, pointer, max, min, tonumber, fields_p, type, arshift = ...
local function bounds(self)
    return self._data + FROM, max(TO - FROM, 0)
end
local function index(self, i)
    if type(i) == "number" then
        local from = FROM
        if i >= 0 and i * WIDTH + from + WIDTH <= TO then
            return cast(pointer, self._data + from)[i]
        end
    end
    return element(self._data + FROM, max(TO - FROM, 0), pointer, WIDTH, i)
end
local function add(self, n)
    local from = min(FROM + max(0, n) * WIDTH, TO)
    return slice(tonumber(cast("uintptr_t", cast(fields_p, self))), from, TO, WIDTH)
end
local function len(self)
    local bytes = max(TO - FROM, 0)
    return (bytes - bytes % WIDTH) / WIDTH
end
return bounds, index, add, len
]]
local SHIFTS = { [8] = "0", [16] = "1", [32] = "2", [64] = "3" }
for stretch, limits in pairs(types.stretches) do
    local from, to = limits[1], "self." .. limits[2]
    from = from == "0" and from or "self." .. from
    for _, width in ipairs(types.widths) do
        local text = code:gsub("FROM", from):gsub("TO", to):gsub("WIDTH", tostring(width / 8))
            :gsub("SHIFT", SHIFTS[width])
        local bounds, index, add, len = assert(loadstring(text, "=view"))(
            cast, element, slice_t, pointers[width], max, min, tonumber, fields_p, type, bit.arshift)
        local name = "ws_" .. stretch .. width
        ffi.metatype(name, { __index = index, __add = add, __len = len })
        views[#views + 1] = { type = typeof(name), bounds = bounds }
        if width == 8 then
            views[#views + 1] = { type = typeof("ws_" .. stretch), bounds = bounds }
            local methods = {}
            -- The stretch as a string, or so many bytes from its begin.
            function methods.string(self, n)
                local address, bytes = bounds(self)
                return raw_string(cast(u8p, address), max(0, min(n or bytes, bytes)))
            end
            -- A number in network byte order, at a byte.
            function methods.be16(self, at)
                local address, bytes = bounds(self)
                if at >= 0 and at + 2 <= bytes then return be16(cast(u8p, address), at) end
                return nil
            end
            function methods.be32(self, at)
                local address, bytes = bounds(self)
                if at >= 0 and at + 4 <= bytes then return be32(cast(u8p, address), at) end
                return nil
            end
            ffi.metatype("ws_" .. stretch, { __index = methods, __len = len })
        end
    end
end

-- The packet ------------------------------------------------------------------------------------------------

local pkt = {}
-- Capture time in seconds since 1970, as a number: exact to about 0.2 us.
function pkt:getTimestamp() return tonumber(self._time) / 1e9 end
-- Capture time in ns since 1970, exact, as a 64-bit integer.
function pkt:getTime() return self._time end
-- Bytes that were captured.
function pkt:getLength() return self.captured end
pkt.getSize = pkt.getLength
-- Bytes on the wire.
function pkt:getOriginalLength() return self.original end
-- The outermost VLAN identifier.
function pkt:getVlan() return self.vlan:getId() end
local packet_meta = { __index = pkt, __len = function(self) return self.captured end }
ffi.metatype(packet_t, packet_meta)
ffi.metatype(eth_packet_t, packet_meta)
ffi.metatype(ip_packet_t, packet_meta)

local function the_packet(value, name)
    if istype(packet_t, value) then return value end
    if istype(eth_packet_t, value) or istype(ip_packet_t, value) then return cast("ws_packet &", value) end
    error(format("packet.%s: this is no packet but a %s; give it the packet that the function was called with",
        name, type(value)), 3)
end

-- All of these give the same packet: its getters know which headers it has. Only where `payload` begins
-- differs. A packet of another kind is no error: the getters of headers that it lacks give nil.
local packet = {}
for _, kind in ipairs { "Udp", "Tcp", "Icmp", "Dns" } do
    for _, version in ipairs { "", "4", "6" } do
        local name = "get" .. kind .. version .. "Packet"
        packet[name] = function(value)
            if istype(packet_t, value) then return value end
            return the_packet(value, name)
        end
    end
end
packet.getIcmpPacket, packet.getDnsPacket = packet.getIcmp4Packet, packet.getDns4Packet
for _, name in ipairs { "getEthPacket", "getEthernetPacket", "getVlanPacket", "getArpPacket" } do
    packet[name] = function(value) return the_packet(value, name)._as_eth end
end
for _, name in ipairs { "getIp4Packet", "getIP4Packet", "getIp6Packet", "getIP6Packet", "getIPPacket" } do
    packet[name] = function(value) return the_packet(value, name)._as_ip end
end

-- ffi -------------------------------------------------------------------------------------------------------

-- The ffi library as scripts see it: it knows the bounds of views.
local script_ffi = {}
for name, value in pairs(ffi) do
    script_ffi[name] = value
end
local transport8, whole8 = typeof("ws_transport8"), typeof("ws_whole8")
local transport8_bounds, whole8_bounds
for _, view in ipairs(views) do
    if view.type == transport8 then transport8_bounds = view.bounds end
    if view.type == whole8 then whole8_bounds = view.bounds end
end

local function bounds_of(value)
    if istype(transport8, value) then return transport8_bounds(value) end
    if istype(whole8, value) then return whole8_bounds(value) end
    if istype(slice_t, value) then return slice_bounds(value) end
    return view_bounds(value)
end

-- Of a view: at most up to its end.
function script_ffi.string(value, n)
    if type(value) == "cdata" then
        local address, bytes = bounds_of(value)
        if address then
            if n and n < bytes then bytes = max(n, 0) end
            return raw_string(cast(u8p, address), bytes)
        end
        if istype(packet_t, value) then return raw_string(cast(u8p, value._data), min(n or value.captured, value.captured)) end
    end
    if n then return raw_string(value, n) end
    return raw_string(value)
end
-- Out of a view: at most up to its end.
function script_ffi.copy(to, from, n)
    if type(from) == "cdata" then
        local address, bytes = bounds_of(from)
        if address then return raw_copy(to, cast(u8p, address), max(0, min(n or bytes, bytes))) end
    end
    if n then return raw_copy(to, from, n) end
    return raw_copy(to, from)
end
-- Of a view: a raw pointer to its first byte. From here on nothing is checked.
function script_ffi.cast(ctype, value)
    if type(value) == "cdata" then
        local address = bounds_of(value)
        if address then return cast(ctype, cast(u8p, address)) end
    end
    return cast(ctype, value)
end

return {
    packet = packet,
    ffi = script_ffi,
    be16 = be16,
    be32 = be32,
    ip4_text = ip4_text,
    ip6_text = ip6_text,
    the_packet = the_packet,
    fields_p = fields_p,
}
