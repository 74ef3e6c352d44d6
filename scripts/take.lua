-- take.lua: writes a write hold into a free lock.
--
-- KEYS   none; the including script sets lock
-- ARGV   none; the including script sets token, the fields w, d and e as in lock.lua, e nil if there is none, and
--        several as vote.lua does
-- Reply  none
-- Twice  the including script finds the hold
-- Cost   HSET
if several and e then
  call('HSET', lock, 't', token, 'tw', token, 'w', w, 'd', d, 'e', e)
elseif several then
  call('HSET', lock, 't', token, 'tw', token, 'w', w, 'd', d)
elseif e then
  call('HSET', lock, 't', token, 'w', w, 'd', d, 'e', e)
else
  call('HSET', lock, 't', token, 'w', w, 'd', d)
end
