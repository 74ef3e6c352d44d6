-- marker.lua: what one of several masters remembers of itself: that it has been set up, by which rules, and until when
-- it abstains because it may have lost leases that still live. Runs without the prelude.
--
-- KEYS   1 marker  hash: rules, run (the server's run id, '' where INFO is refused), until (ms; 0: it votes)
-- ARGV   1 'look'; 'birth': the first start of a whole set, it votes at once; 'return': it abstains first
--        2 rules: what all clients must agree on  3 quarantine ms
-- Reply  {server us, the rules that it has ('' without a marker), until ms, run id, role, cluster '0' | '1'}
-- Twice  birth and return leave a marker that is there as it is; a changed run id starts the quarantine once
-- Cost   TIME INFO HMGET; HSET where it changes something
local marker = KEYS[1]
local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local ms = math.floor(us / 1000)

local function int(n) return string.format('%.0f', n) end

local info = redis.pcall('INFO')
if type(info) ~= 'string' then info = '' end
local run = string.match(info, 'run_id:(%x+)') or ''
local role = string.match(info, 'role:(%a+)') or ''
local cluster = string.match(info, 'cluster_enabled:(%d)') or '0'

local has = redis.call('HMGET', marker, 'rules', 'until', 'run')
if not has[1] and ARGV[1] ~= 'look' then
  has = { ARGV[2], ARGV[1] == 'birth' and '0' or int(ms + ARGV[3]), run }
  redis.call('HSET', marker, 'rules', has[1], 'until', has[2], 'run', run)
elseif has[1] and run ~= '' and has[3] ~= run and role ~= 'slave' then
  has[2] = int(ms + ARGV[3])
  redis.call('HSET', marker, 'until', has[2], 'run', run)
end
return { us, has[1] or '', tonumber(has[2] or '0'), run, role, cluster }
