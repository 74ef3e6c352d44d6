-- release.lua: ends a hold, granted or still waiting, and hands the lock to whoever may enter now.
--
-- KEYS   as in prelude.lua
-- ARGV   1-2 as in prelude.lua, 3 hold, 4 tombstone ms: how long an acquire of this hold may still be on its way
--        ('0': its answer is known), 5 '1': more than one may be, so the one that was granted need not be the last
-- Reply  {1, server us} it was granted, {2, server us} it was waiting, {0, server us} it was gone
-- Twice  the second finds it gone; nobody else's hold is touched
-- Cost   prelude and purge, HGET ZCARD EXISTS DEL where nobody waits; a hand-off costs a grant and a PUBLISH;
--        works while Redis is out of memory
purge()
local id, tombstone, several = ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local r = load(id)
local had = r and r.state ~= 'x'
if had then drop(r) end
if tombstone > 0 and (several or not had) then
  keep(tombstone)
  save({ id = id, state = 'x', mode = 'x', owner = '-', client = '-', token = 0, since = ms, claim = 0, meta = '' })
  call('ZADD', waitsKey, int(ms + tombstone), id)
  keep(tombstone)
end
if not had then return { 0, us } end
admit()
return { r.state == 'g' and 1 or 2, us }
