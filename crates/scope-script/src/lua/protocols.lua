-- The modules that scripts require: constants of protocols, and addresses read from text.
local views, address_bytes, dns = ...

local error, type, format = error, type, string.format

-- An IPv4 address as text, as the number that `getSrc` and `getDst` give.
local function parse_ip4(text)
    local bytes = address_bytes(text)
    if not bytes or #bytes ~= 4 then
        error(format("parseIP4Address: '%s' is no IPv4 address; write it like '10.0.0.1'", tostring(text)), 2)
    end
    local a, b, c, d = bytes:byte(1, 4)
    return a * 16777216 + b * 65536 + c * 256 + d
end

-- An IPv6 address as text, as the 16 bytes that `getSrc` and `getDst` give.
local function parse_ip6(text)
    local bytes = address_bytes(text)
    if not bytes or #bytes ~= 16 then
        error(format("parseIP6Address: '%s' is no IPv6 address; write it like '2001:db8::1'", tostring(text)), 2)
    end
    return bytes
end

local PROTOCOLS = {
    PROTO_ICMP = 1, PROTO_IGMP = 2, PROTO_TCP = 6, PROTO_UDP = 17, PROTO_GRE = 47, PROTO_ESP = 50, PROTO_AH = 51,
    PROTO_ICMPV6 = 58, PROTO_OSPF = 89, PROTO_SCTP = 132,
}
local function with(base, more)
    local module = {}
    for name, value in pairs(base) do module[name] = value end
    for name, value in pairs(more) do module[name] = value end
    return module
end

return {
    ["packet"] = views.packet,
    ["proto.ethernet"] = {
        TYPE_IP = 0x0800, TYPE_ARP = 0x0806, TYPE_IP6 = 0x86dd, TYPE_VLAN = 0x8100, TYPE_QINQ = 0x88a8,
        TYPE_8021Q = 0x8100, TYPE_MPLS = 0x8847, TYPE_PPPOE = 0x8864, TYPE_LACP = 0x8809, TYPE_LLDP = 0x88cc,
        TYPE_PTP = 0x88f7,
    },
    ["proto.vlan"] = { TYPE_VLAN = 0x8100, TYPE_QINQ = 0x88a8 },
    ["proto.arp"] = { OP_REQUEST = 1, OP_REPLY = 2 },
    ["proto.ip4"] = with(PROTOCOLS, { parseIP4Address = parse_ip4 }),
    ["proto.ip6"] = with(PROTOCOLS, { parseIP6Address = parse_ip6 }),
    ["proto.udp"] = {
        PORT_DNS = 53, PORT_DHCP_SERVER = 67, PORT_DHCP_CLIENT = 68, PORT_NTP = 123, PORT_SNMP = 161, PORT_SYSLOG = 514,
        PORT_PTP_1 = 319, PORT_PTP_2 = 320, PORT_VXLAN = 4789,
    },
    ["proto.tcp"] = { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32 },
    ["proto.icmp"] = {
        ECHO_REPLY = { type = 0, code = 0 }, ECHO_REQUEST = { type = 8, code = 0 }, TYPE_ECHO_REPLY = 0,
        TYPE_UNREACHABLE = 3, TYPE_ECHO_REQUEST = 8, TYPE_TIME_EXCEEDED = 11, TYPE6_ECHO_REQUEST = 128,
        TYPE6_ECHO_REPLY = 129,
    },
    ["proto.dns"] = dns,
}
