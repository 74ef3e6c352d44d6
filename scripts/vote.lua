-- vote.lua: whether this master votes, and the floor of the tokens that it mints. Included after the script has read
-- the clock: us and ms are the server's time.
--
-- KEYS   the last: marker, the hash of marker.lua; only where there are several masters
-- ARGV   1 '0' where this master alone decides; else 'proposal id quarantine check': the floor of new tokens that the
--        client proposes; the value of the marker's field id that it has seen, '-' for any; for how many ms this master
--        abstains after it may have lost data; 1 to compare its run id with the marker's, as in every script that was
--        sent whole because the server did not know it: a restart empties the server's script cache
-- Reply  refusal: {4, 0, ms, server us} while it abstains (ms 0: until a client has given it a marker);
--        {5, 0, 0, server us} if the client has seen another marker; else nil. This is the only check of a master's
--        vote. A script that grants a hold returns the refusal; settle.lua lets no waiter in, refresh.lua confirms no
--        grant, and renew.lua renews nothing for a client that has not seen the marker.
--        stale: whether the client has to read the marker before it counts on this master again
-- Twice  only the marker's id is changed, and the first call has deleted it
-- Cost   one master: nothing; several: HMGET, and with check INFO; HDEL if the run id has changed
local several, floor, abstains, changed, refusal, stale = ARGV[1] ~= '0', us, false, false, nil, false
if several then
  local marker = KEYS[#KEYS]
  local proposal, seen, quarantine, check = string.match(ARGV[1], '^(%d+) (%S+) (%d+) (%d)$')
  local has = call('HMGET', marker, 'until', 'id', 'run')
  if check == '1' and has[1] then
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
  -- Every grant that this master may have forgotten was counted before the end of its last quarantine.
  floor = math.max(math.min(tonumber(proposal), us + 1000000), (has[1] or 0) * 1000)
  abstains = not has[1] or has[1] - ms > 0
  changed = not has[2] or seen ~= '-' and seen ~= has[2]
  if not has[1] then
    refusal = { 4, 0, 0, us }
  elseif changed then
    refusal = { 5, 0, 0, us }
  elseif abstains then
    refusal = { 4, 0, has[1] - ms, us }
  end
  -- A quarantine that is longer than any that a client starts was written while the clock was ahead.
  stale = refusal and (changed or refusal[3] == 0 or refusal[3] - quarantine > 0)
end
