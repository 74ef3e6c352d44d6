-- renew.lua: moves a granted hold's expiry forward; never creates one, never shortens one, never adds up.
--
-- KEYS   as in prelude.lua
-- ARGV   1-2 as in prelude.lua, 3 hold, 4 TTL ms
-- Reply  renewed {1, token, ms left, server us}, not held here {0, 0, 0, server us}, abstaining {4, 0, ms,
--        server us}
-- Twice  the expiry is set from the server's clock, not summed
-- Cost   prelude and purge, HGET ZSCORE ZADD PTTL PEXPIREx3; works while Redis is out of memory
if abstains then return abstention() end
purge()
local r = load(ARGV[3])
if not r or r.state ~= 'g' then return { 0, 0, 0, us } end
local left = math.max(tonumber(ARGV[4]), remaining(r.id))
keep(left)
call('ZADD', holdsKey, int(ms + left), r.id)
return { 1, r.token, left, us }
