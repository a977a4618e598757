-- A dump script: keeps every packet from or to the host that sent the packet which fired.
--
-- The outer function runs once per dump, with the packet that fired (nil if it was fired by hand). What it
-- returns runs for each packet of the window.
return function(trigger_pkt)
    if not trigger_pkt or not trigger_pkt.ip4:getSrc() then
        return function() return true end
    end
    local host = trigger_pkt.ip4:getSrc()
    return function(pkt)
        return pkt.ip4:getSrc() == host or pkt.ip4:getDst() == host
    end
end
