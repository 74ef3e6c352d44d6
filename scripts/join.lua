-- join.lua: a nested acquisition from another process acting for the same owner: joins the owner's standing hold.
--
-- KEYS   as in prelude.lua
-- ARGV   1-2 as in prelude.lua, 3 hold, 4 owner, 5 mode r|w, 6 client, 7 TTL ms, 8 claim ms, 9 meta
-- Reply  joined {1, token, ms left, server us, the owner's counter, the mode of the hold}, the owner holds nothing here
--        {0, 0, 0, server us},
--        it reads and a write was asked for {2, ...}, released before it came {3, ...}, abstaining {4, 0, ms,
--        server us}
-- Twice  the joined hold is answered with the same token and counter
-- Cost   prelude, HMGET, then as a grant of acquire.lua without minting
if abstains then return abstention() end
purge()
local id, owner = ARGV[3], ARGV[4]
local r = load(id)
if r and r.state == 'x' then return { 3, 0, 0, us } end
if not r then
  local own = call('HMGET', lockKey, 'w', 't:' .. owner)
  if not own[2] then return { 0, 0, 0, us } end
  local mode = own[1] == owner and 'w' or 'r'
  if mode == 'r' and ARGV[5] == 'w' then return { 2, 0, 0, us } end
  r = { id = id, mode = mode, owner = owner, client = ARGV[6], claim = tonumber(ARGV[8]), meta = ARGV[9] }
  hold(r, tonumber(own[2]), tonumber(ARGV[7]))
end
return { 1, r.token, remaining(id), us, tonumber(call('HGET', lockKey, 'n:' .. owner)), r.mode }
