-- yield.lua: a hold that has no quorum goes back to its place in the queue where an older one waits behind it, so that
-- all masters come to the same holder; where none waits it keeps its grant for another claim.
--
-- KEYS   as in prelude.lua
-- ARGV   1-2 as in prelude.lua, 3 hold, 4 claim ms, 5 token of the grant
-- Reply  kept {1, token, ms left, server us}, yielded {0, 0, ms until something may expire, server us},
--        unknown here {2, 0, 0, server us}, abstaining {4, 0, ms, server us}
-- Twice  a grant that is kept gets a new token, so the second finds another grant and leaves it alone, however late it
--        comes and whoever waits by then; or it finds the hold waiting
-- Cost   prelude and purge, ZRANGE; a yield costs a release and an enqueueing, a grant kept INCR SET HSETx2
if abstains then return abstention() end
purge()
local id, claim, token = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local r = load(id)
if not r or r.state == 'x' then return { 2, 0, 0, us } end
if r.state == 'g' then
  if r.token ~= token then return { 1, r.token, remaining(id), us } end
  local head = call('ZRANGE', queueKey, 0, 0)[1]
  if not head or head > id then
    local left = math.max(claim, remaining(id))
    keep(left)
    call('ZADD', holdsKey, int(ms + left), id)
    r.token = mint()
    save(r)
    call('HSET', lockKey, 't:' .. r.owner, int(r.token))
    return { 1, r.token, left, us }
  end
  drop(r)
  r.state, r.token, r.since = 'q', 0, ms
  save(r)
  call('ZADD', queueKey, 0, id)
end
call('ZADD', waitsKey, int(ms + claim), id)
keep(claim)
admit()
return { 0, 0, nextExpiry(), us }
