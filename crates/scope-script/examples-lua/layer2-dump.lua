-- A dump script: keeps what went between the two Ethernet addresses of the packet that fired, whatever it is.
local packet = require "packet"

return function(trigger_pkt)
    local trigger = trigger_pkt and packet.getEthPacket(trigger_pkt)
    local a, b = trigger and trigger.eth:getSrc(), trigger and trigger.eth:getDst()
    return function(pkt)
        local frame = packet.getEthPacket(pkt)
        local src, dst = frame.eth:getSrc(), frame.eth:getDst()
        return src == a and dst == b or src == b and dst == a
    end
end
