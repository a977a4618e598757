-- Fires on DNS queries for names that end with one of these, and keeps what the client does then.
--
-- Answers are told too: which address a client got is in the dump's header.
local dns = require "proto.dns"
local udp = require "proto.udp"

local ENDS = { "example.org", "evil.example" }

local function watched(name)
    name = name:lower()
    for _, last in ipairs(ENDS) do
        if name == last or name:sub(-#last - 1) == "." .. last then return true end
    end
end

return function(pkt)
    if pkt.udp:getDstPort() ~= udp.PORT_DNS and pkt.udp:getSrcPort() ~= udp.PORT_DNS then return false end
    local name, kind = pkt.dns:getQuestion()
    if not name or not watched(name) then return false end
    local header = pkt.ip4:getSrc() and pkt.ip4 or pkt.ip6
    if pkt.dns:isResponse() then
        local address = pkt.dns:getAddress()
        return { text = string.format("%s is %s", name, address or "not found"), hosts = { header:getDstString(), address } }
    end
    return {
        text = string.format("%s asks for %s%s", header:getSrcString(), name, kind == dns.TYPE_AAAA and " (IPv6)" or ""),
        after = "5s",
        hosts = { header:getSrcString() },
    }
end
