-- take.lua: writes a write hold into a free lock.
--
-- KEYS   none; the including script sets lock
-- ARGV   none; the including script sets the fields w, d and e as in lock.lua, e nil if there is none
-- Reply  none
-- Twice  the including script finds the hold
-- Cost   HSET
if e then call('HSET', lock, 'w', w, 'd', d, 'e', e) else call('HSET', lock, 'w', w, 'd', d) end
