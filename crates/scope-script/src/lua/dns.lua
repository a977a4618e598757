-- DNS over UDP: the question and the first answers, read with bounds.
--
-- A message that is truncated or wrong gives nil from the part on that can't be read. Names follow at most 32
-- pointers and have at most 255 bytes, so a hostile message costs no more than these.
local ffi, views = ...

local cast, typeof = ffi.cast, ffi.typeof
local be16, be32, ip4_text, ip6_text = views.be16, views.be32, views.ip4_text, views.ip6_text
local u8p = typeof("const uint8_t *")
local band, lshift, rshift, bor = bit.band, bit.lshift, bit.rshift, bit.bor
local char, format, concat = string.char, string.format, table.concat

local POINTERS_MAX, NAME_BYTES_MAX, ANSWERS_MAX, QUESTIONS_MAX = 32, 255, 16, 4
local A, CNAME, AAAA = 1, 5, 28

-- First byte and length of the message, nil where there is none.
local function message(self)
    local len = self._end - self._payload
    if self._transport == 17 and len >= 12 then
        return cast(u8p, self._data) + self._payload, len
    end
    return nil
end

-- The name at `at`, and where it ends. Bytes that don't print stand as \DDD.
local function name_at(p, len, at)
    local labels, pointers, bytes, after = {}, 0, 0, nil
    while true do
        if at >= len then return nil end
        local n = p[at]
        if n == 0 then
            return concat(labels, "."), after or at + 1
        elseif n >= 192 then
            pointers = pointers + 1
            if at + 2 > len or pointers > POINTERS_MAX then return nil end
            after = after or at + 2
            at = bor(lshift(band(n, 63), 8), p[at + 1])
        elseif n < 64 then
            bytes = bytes + n + 1
            if at + 1 + n > len or bytes > NAME_BYTES_MAX then return nil end
            local letters = {}
            for i = 1, n do
                local c = p[at + i]
                letters[i] = (c > 32 and c < 127 and c ~= 46) and char(c) or format("\\%03d", c)
            end
            labels[#labels + 1] = concat(letters)
            at = at + 1 + n
        else
            return nil
        end
    end
end

local methods = {}

function methods:getId()
    local p = message(self)
    return p and be16(p, 0)
end
-- true: a response; false: a query.
function methods:isResponse()
    local p = message(self)
    if p then return p[2] >= 128 end
    return nil
end
-- 0: no error; 3: no such name.
function methods:getResponseCode()
    local p = message(self)
    return p and band(p[3], 15)
end
-- The first question: its name without the last dot, its type and class.
function methods:getQuestion()
    local p, len = message(self)
    if not p or be16(p, 4) == 0 then return nil end
    local name, at = name_at(p, len, 12)
    if not name or at + 4 > len then return name end
    return name, be16(p, at), be16(p, at + 2)
end
function methods:getName()
    return (self:getQuestion())
end
function methods:getType()
    local _, kind = self:getQuestion()
    return kind
end

-- The first answers (at most 16): {name, type, ttl, address or target}. nil where there is no response.
function methods:getAnswers()
    local p, len = message(self)
    if not p or p[2] < 128 then return nil end
    local at, questions = 12, be16(p, 4)
    if questions > QUESTIONS_MAX then return {} end
    for _ = 1, questions do
        local name, after = name_at(p, len, at)
        if not name then return {} end
        at = after + 4
    end
    local answers = {}
    for i = 1, math.min(be16(p, 6), ANSWERS_MAX) do
        local name, after = name_at(p, len, at)
        if not name or after + 10 > len then break end
        local kind, bytes = be16(p, after), be16(p, after + 8)
        local answer = { name = name, type = kind, ttl = be32(p, after + 4) }
        at = after + 10
        if at + bytes > len then break end
        if kind == A and bytes == 4 then
            answer.address = ip4_text(p, at)
        elseif kind == AAAA and bytes == 16 then
            answer.address = ip6_text(p, at)
        elseif kind == CNAME then
            answer.target = name_at(p, len, at)
        end
        answers[i] = answer
        at = at + bytes
    end
    return answers
end
-- The first address among the answers, as text.
function methods:getAddress()
    for _, answer in ipairs(self:getAnswers() or {}) do
        if answer.address then return answer.address end
    end
end

ffi.metatype("ws_dns", { __index = methods })

return { TYPE_A = A, TYPE_NS = 2, TYPE_CNAME = CNAME, TYPE_PTR = 12, TYPE_MX = 15, TYPE_TXT = 16, TYPE_AAAA = AAAA, TYPE_ANY = 255 }
