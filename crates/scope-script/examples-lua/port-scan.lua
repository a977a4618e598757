-- Fires when one host opens connections to more than 20 ports of another within 10 seconds.
--
-- Keeps state of its own, in capture time, and bounds it: `on_tick` forgets what is old.
local PORTS, SECONDS, PAIRS_MAX = 20, 10, 100000

local pairs_seen, count = {}, 0

local function packet(pkt)
    if pkt.tcp:getSyn() ~= 1 or pkt.tcp:getAck() ~= 0 then return false end
    local from, to = pkt.ip4:getSrc(), pkt.ip4:getDst()
    if not from then return false end
    -- Both addresses in one number would not fit: a string is as good a key.
    local key = from .. ">" .. to
    local seen = pairs_seen[key]
    if not seen then
        if count >= PAIRS_MAX then return false end
        seen = { since = pkt:getTimestamp(), ports = {}, count = 0 }
        pairs_seen[key] = seen
        count = count + 1
    end
    local port = pkt.tcp:getDstPort()
    if seen.ports[port] then return false end
    seen.ports[port] = true
    seen.count = seen.count + 1
    if seen.count ~= PORTS + 1 then return false end
    return {
        text = string.format("%s opens more than %d ports of %s", pkt.ip4:getSrcString(), PORTS, pkt.ip4:getDstString()),
        before = SECONDS,
        hosts = { from },
    }
end

local function on_tick(now)
    for key, seen in pairs(pairs_seen) do
        if now - seen.since > SECONDS then
            pairs_seen[key] = nil
            count = count - 1
        end
    end
end

return { packet = packet, on_tick = on_tick }
