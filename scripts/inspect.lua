-- inspect.lua: lists the holders and the waiters of a lock; changes nothing. Needs no other script, so that an operator
-- can use it while the application is down:
--   redis-cli --eval inspect.lua 'fencelock:{orders}'
--
-- KEYS   1 lock, as in lock.lua; 2-4 as there
-- ARGV   none
-- Reply  {server us, mode '' | 'r' | 'w', token,
--         holders {{hold, owner, mode, channel, owner's counter, ms left, ms held, token (of a block the last, of a
--         broken hold the one that it had), meta, 1 for a shared hold or 0, 1 for a broken one or 0, 1 for one that is
--         marked for another client or 0, who broke a broken one and why, or ''}, ...} by expiry,
--         waiters {{hold, owner, mode, channel, ms waited, meta, state q | p | d as in lock.lua, place}, ...} by
--         place}
-- Twice  reads only
-- Cost   TIME HGETALL ZRANGE: reads the whole lock, so it is for operators, not for a hot path
local lock = KEYS[1]
local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local ms = math.floor(us / 1000)

local flat, fields = redis.call('HGETALL', lock), {}
for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
local w = fields.w or '0'
local held = #w == 64 and (string.find(w, '%D') or 64) > 29 and string.find(w, '^ *%d+[%da-v]$', 56)
if not (held or string.find(w, '^%d+n?$')) then return redis.error_reply('WRONGTYPE field w has another form') end
local scored, expiries = redis.call('ZRANGE', lock .. ':h', 0, -1, 'WITHSCORES'), {}
for i = 1, #scored, 2 do expiries[scored[i]] = tonumber(scored[i + 1]) end

local holders, waiters = {}, {}
local function show(id, state, expiry, token, since, details)
  local mode, owner, more, channel, meta = string.match(details, '^(%a) %d+ ([^ ^~#]+)(%S*) %a?(%S*) ?(.*)$')
  if not mode then mode, owner, more, channel, meta = 'w', '-', '', '', details end -- an operator has deleted d
  local shared = string.byte(owner) == 43 and 1 or 0 -- '+'
  if shared == 1 or owner == '-' then owner = id end
  local passed = math.max(ms - since, 0) -- the clock may have been set back
  if state == 'g' then
    local count, broken, by = string.match(fields['o:' .. owner] or '1', '^%d+'), 0, nil
    if token == 0 and channel ~= '-' then
      token, by = string.match(fields['b:' .. id] or '', '^x %d+ (%d+) %d+ (.*)$')
      token, broken = tonumber(token or 0), 1
    end
    holders[#holders + 1] =
      { id, owner, mode, channel, tonumber(count), expiry - ms, passed, token, meta, shared, broken,
        string.find(more, '#', 1, true) and 1 or 0, by or '' }
  else
    waiters[#waiters + 1] = { id, owner, mode, channel, passed, meta, state, token }
  end
end
for id, text in pairs(fields) do
  local record = id ~= 'e' and text or '' -- a part of the details may look like a record
  local state, expiry, token, since, details = string.match(record, '^(%a) (%d+) (%d+) (%d+) (.*)$')
  if id == 'w' and held then
    local flag, last = tonumber(string.sub(text, 64), 32), string.sub(text, 17, 29)
    id, expiry, since = string.sub(text, 30, 55), last + string.sub(text, 56, 63), flag % 4 > 1 and fields.b or last
    state, token = 'g', flag % 16 > 7 and string.match(fields.m or '', '^. (%d+)') or string.sub(text, 1, 16)
    details = (fields.d or '') .. (flag % 2 == 1 and fields.e or '')
  elseif state then
    expiry = state == 'g' and (expiries[id] or expiry) or expiry + (string.match(details, '^%a (%d+)') or 0)
  end
  if state and state ~= 'x' and expiry and expiry - ms > 0 then
    show(id, state, tonumber(expiry), tonumber(token), tonumber(since), details)
  end
end

table.sort(holders, function(a, b) return a[6] < b[6] or a[6] == b[6] and a[1] < b[1] end)
table.sort(waiters, function(a, b) return a[8] < b[8] or a[8] == b[8] and a[1] < b[1] end)
return { us, holders[1] and holders[1][3] or '', tonumber(string.sub(w, 1, 16)), holders, waiters }
