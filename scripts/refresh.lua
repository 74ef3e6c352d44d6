-- refresh.lua: one process keeps all its waiters of a lock alive, and learns of a grant whose message was lost.
--
-- KEYS   as in prelude.lua
-- ARGV   1-2 as in prelude.lua, then for every waiter: hold, claim ms
-- Reply  {server us, ms until something may expire, then for every waiter: status, token, ms left};
--        status 0 waiting, 1 granted, 2 unknown here (it was dropped, or this master lost it: acquire again)
-- Twice  a waiter's lease is set, not summed
-- Cost   prelude and purge, then per waiter HGET ZADD PTTL PEXPIREx4
purge()
local reply = { us, 0 }
for i = 3, #ARGV, 2 do
  local id, claim = ARGV[i], tonumber(ARGV[i + 1])
  local r = load(id)
  local status, token, left = 2, 0, 0
  if r and r.state == 'g' then
    status, token, left = 1, r.token, remaining(id)
  elseif r and r.state == 'q' then
    status = 0
    keep(claim)
    call('ZADD', waitsKey, int(ms + claim), id)
  end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = status, token, left
end
reply[2] = nextExpiry()
return reply
