-- raise.lua: brings a hold that was granted a smaller token up to the token that a quorum agreed on, and the counter
-- with it. Only where this very hold still stands: raising a counter for a hold that is gone would count a vote that
-- was never kept. Nor where another reader has been counted up to that token since: it may hold that very one.
--
-- KEYS   as in prelude.lua
-- ARGV   1-2 as in prelude.lua, 3 hold, 4 token
-- Reply  raised {1, token, ms left, server us}, not held here or counted past the token {0, 0, 0, server us},
--        abstaining {4, 0, ms, server us}
-- Twice  the second finds the token there
-- Cost   prelude and purge, GET SET HSETx2
if abstains then return abstention() end
purge()
local r, token = load(ARGV[3]), tonumber(ARGV[4])
if not r or r.state ~= 'g' or r.token > token then return { 0, 0, 0, us } end
local counter = tonumber(call('GET', tokenKey) or '0')
if r.token < token and counter >= token then return { 0, 0, 0, us } end
r.token = token
save(r)
call('HSET', lockKey, 't:' .. r.owner, int(token))
call('SET', tokenKey, int(math.max(token, counter)), 'PX', ARGV[2])
return { 1, token, remaining(r.id), us }
