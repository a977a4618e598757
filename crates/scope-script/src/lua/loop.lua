-- The loop over a batch, inside Lua: one call from Rust per batch, none per packet.
--
-- There is no pcall per packet either. An error ends the loop; `control.at` says at which packet, and the loop
-- goes on behind it. This file is loaded anew for each function that it loops over, so that compiled code knows
-- the function it calls.
local control, records, packet, answered, failed, xpcall, handler = ...

local function loop(from, to)
    local control, records, packet = control, records, packet
    for i = from, to do
        control.at = i
        local answer = packet(records[i])
        if answer then
            if answer == true then
                local hits = control.hits
                control.hit[hits] = i
                control.hits = hits + 1
            else
                answered(i, answer)
            end
        end
    end
end

-- Packets `from` to `to`. false: the script is disabled.
local function run(from, to)
    while from <= to do
        local whole, message = xpcall(loop, handler, from, to)
        if whole then
            control.fail_row = 0
            break
        end
        local at = control.at
        if not failed(message, at == from) then return false end
        from = at + 1
    end
    return true
end

-- The loop is compiled, not what is around it.
jit.off(run)
return run
