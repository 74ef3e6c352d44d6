-- inspect.lua: who holds a lock and who waits; changes nothing. Runs without the prelude, so that an operator can
-- use it while the application is down:
--   redis-cli --eval inspect.lua 'fencelock:{orders}'
--
-- KEYS   as in prelude.lua; the keys after the first may be left out
-- ARGV   none
-- Reply  {server us, mode '' | 'r' | 'w', token,
--         holders {{hold, owner, mode, client, owner's counter, ms left, ms held, token, meta}, ...} by expiry,
--         waiters {{hold, owner, mode, client, ms waited, meta}, ...} by place}
-- Twice  reads only
-- Cost   one HGET for every holder and waiter: an operator's call, not for a hot path
local lockKey = KEYS[1]
local holdsKey, queueKey = KEYS[2] or lockKey .. ':h', KEYS[3] or lockKey .. ':q'
local waitsKey, tokenKey = KEYS[4] or lockKey .. ':w', KEYS[5] or lockKey .. ':t'
local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local ms = math.floor(us / 1000)
local format = '^(%a) (%a) (%S+) (%S+) (%d+) (%d+) (%d+) (.*)$'

redis.call('HLEN', lockKey) -- a key of another type is an error, not a free lock
local mode, holders, waiters = '', {}, {}
local scored = redis.call('ZRANGE', holdsKey, 0, -1, 'WITHSCORES')
for i = 1, #scored, 2 do
  local left = tonumber(scored[i + 1]) - ms
  local text = redis.call('HGET', lockKey, scored[i])
  if left > 0 and text then
    local _, m, owner, client, token, since, _, meta = string.match(text, format)
    local count = tonumber(redis.call('HGET', lockKey, 'n:' .. owner) or '0')
    holders[#holders + 1] = { scored[i], owner, m, client, count, left, ms - since, tonumber(token), meta }
    mode = m
  end
end
for _, id in ipairs(redis.call('ZRANGE', queueKey, 0, -1)) do
  local expiry = tonumber(redis.call('ZSCORE', waitsKey, id) or '0')
  local text = redis.call('HGET', lockKey, id)
  if expiry > ms and text then
    local _, m, owner, client, _, since, _, meta = string.match(text, format)
    waiters[#waiters + 1] = { id, owner, m, client, ms - since, meta }
  end
end
return { us, mode, tonumber(redis.call('GET', tokenKey) or '0'), holders, waiters }
