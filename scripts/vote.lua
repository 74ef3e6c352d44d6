-- vote.lua: the server's time, whether this master votes, and the floor of the tokens that it mints. Included
-- before the script writes, by most after they have read the lock.
--
-- KEYS   the last: marker, the hash of marker.lua; only where there are several masters
-- ARGV   vote, which the including script sets: '0' where this master alone decides; else 'proposal id quarantine
--        check': the floor of new tokens that the client proposes, in 16 digits; the value of the marker's field id
--        that it has seen, '-' for any; for how many ms this master abstains after it may have lost data; 1 to compare
--        its run id with the marker's, as in every script that was sent whole because the server did not know it: a
--        restart empties the server's script cache
-- Reply  refusal: {4, 0, ms, server us} while it abstains (ms 0: until a client has given it a marker);
--        {5, 0, 0, server us} if the client has seen another marker; else nil. This is the only check of a master's
--        vote. A script that grants a hold returns the refusal; settle.lua lets no waiter in, refresh.lua confirms no
--        grant, and renew.lua renews nothing for a client that has not seen the marker.
--        stale: whether the client has to read the marker before it counts on this master again
--        floor, and floorText: the same as text
-- Twice  only the marker's id is changed, and the first call has deleted it
-- Cost   TIME; of several masters also HMGET, and with check INFO; HDEL if the run id has changed
local clock = call('TIME') -- once: on Redis the clock moves while the script runs
local usText = #clock[2] == 6 and #clock[1] == 10 and clock[1] .. clock[2]
  or string.format('%010d%06d', clock[1], clock[2]) -- 16 characters
local us = usText + 0
local ms = math.floor(us / 1000)
local several, floor, floorText, abstains, changed, refusal, stale = #vote > 1, us, usText, false, false, nil, false
if several then
  -- Positions and plain comparisons: a pattern takes three times as long, and every call pays for them.
  local marker, check = KEYS[#KEYS], string.byte(vote, -1) == 49 -- '1'
  local has = check and call('HMGET', marker, 'until', 'id', 'run') or call('HMGET', marker, 'until', 'id')
  if check and has[1] then
    local info = redis.pcall('INFO', 'server')
    local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
    -- Data may be lost, unless the stored run id is unknown: the client that wrote the marker may have been refused
    -- INFO. marker.lua settles whether this is the server of its seat, and for how long it abstains then. Until then no
    -- vote counts, not even the vote on a request that was made before and has waited for the connection.
    if run and has[3] and has[3] ~= '' and run ~= has[3] then
      if has[2] then call('HDEL', marker, 'id') end -- accepted when memory is full
      has[2] = false
    end
  end
  local from, id = tonumber(has[1]), has[2]
  floorText = string.sub(vote, 1, 16)
  floor = tonumber(floorText)
  local least = from and from * 1000 or 0 -- every grant that it may have forgotten was counted before that
  if floor > us + 1000000 or floor < least then
    floor = math.max(math.min(floor, us + 1000000), least)
    floorText = string.format('%016.0f', floor)
  end
  abstains = not from or from > ms
  local seen = id and string.find(vote, id, 18, true) == 18 and string.byte(vote, 18 + #id) == 32 -- ' '
  changed = not id or not seen and string.sub(vote, 17, 19) ~= ' - '
  if not from then
    refusal = { 4, 0, 0, us }
  elseif changed then
    refusal = { 5, 0, 0, us }
  elseif abstains then
    refusal = { 4, 0, from - ms, us }
  end
  -- A quarantine that is longer than any that a client starts was written while the clock was ahead.
  stale = refusal and (changed or refusal[3] == 0 or refusal[3] - string.match(vote, '(%d+) %d$') > 0)
end
-- The error of a field w or n of another form than in lock.lua.
local malformed = 'WRONGTYPE field w or n of this lock has another form: these scripts have not written it'
