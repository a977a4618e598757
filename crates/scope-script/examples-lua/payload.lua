-- Fires on UDP packets over IPv4 whose payload begins with EXAMPLE.
--
--   wirescope run -i eth0 --trigger-script payload.lua --dump-script host-dump.lua
--
-- `packet.getUdp4Packet` costs nothing: the packet is the same, and knows which headers it has. A getter of a
-- header that isn't there gives nil, so the tests below are safe for any packet.
local ffi = require "ffi"
local packet = require "packet"
local eth = require "proto.ethernet"
local ip = require "proto.ip4"

local BEGIN = "EXAMPLE"

return function(pkt)
    local udp = packet.getUdp4Packet(pkt)
    if udp.eth:getType() ~= eth.TYPE_IP or udp.ip4:getProtocol() ~= ip.PROTO_UDP then
        return false
    end
    -- Stops at the payload's end where that is shorter.
    return ffi.string(udp.payload.uint8, #BEGIN) == BEGIN
end
