-- marker.lua: what a master remembers of itself: which layout its locks have and, of one of several masters, to which
-- set it belongs, by which rules, and until when it abstains because it may have lost leases that still live.
--
-- KEYS   1 marker  hash: layout, rules, set (the set's id), seat, seats (the addresses of all masters, as its founder
--                  named them, by seat), run (the server's run id, '' where INFO is refused), until (ms; it votes from
--                  then on), id (set, run and until together: what a vote names, another one after every quarantine),
--                  past (the run ids that it had before)
-- ARGV   1 'single' for a master that decides alone; for one of several 'look', 'birth' (the first start of a
--        whole set: it votes at once) or 'return' (it abstains first)
--        2 layout, 3 rules, 4 set, 5 seat, 6 seats, 7 quarantine ms, 8 the run id that the client has seen here before,
--        or '', 9 the set whose marker 'return' replaces, or '',
--        10 the server's time (us) at which the client saw no marker: a birth that comes late is a return
-- Reply  {server us, layout, rules, set, seat, seats, until, run now, id, role, cluster '0' | '1'}; '' where there
--        is none
-- Twice  birth and return leave a marker that is there as it is; a changed run id starts the quarantine once: past
--        has it
-- Cost   TIME INFO HMGET, HSET where it changes something; for a master that decides alone TIME HSETNX HMGET
local marker, purpose = KEYS[1], ARGV[1]
local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local ms = math.floor(us / 1000)

local function int(n) return string.format('%.0f', n) end

if purpose == 'single' then
  redis.call('HSETNX', marker, 'layout', ARGV[2])
  local is = redis.call('HMGET', marker, 'layout', 'rules', 'set')
  return { us, is[1], is[2] or '', is[3] or '', '', '', 0, '', '', '', '' }
end

local info = redis.pcall('INFO')
if type(info) ~= 'string' then info = '' end
local run = string.match(info, 'run_id:(%x+)') or ''
local role = string.match(info, 'role:(%a+)') or ''
local cluster = string.match(info, 'cluster_enabled:(%d)') or '0'

local fields = { 'layout', 'rules', 'set', 'seat', 'seats', 'until', 'run', 'id', 'past' }
local has = redis.call('HMGET', marker, unpack(fields))
local quarantine = tonumber(ARGV[7])
if has[3] and has[3] == ARGV[9] and purpose == 'return' then has[3] = false end
if role ~= 'slave' then
  if not has[3] and purpose ~= 'look' then
    local fresh = us - (tonumber(ARGV[10]) or 0) < 5000000
    local from = purpose == 'birth' and fresh and '0' or int(ms + quarantine)
    has = { has[1] or ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], from, run, '', '' }
    has[8] = has[3] .. ':' .. run .. ':' .. from
    for i, name in ipairs(fields) do redis.call('HSET', marker, name, has[i]) end
  elseif has[3] then
    local from, past, seen = tonumber(has[6]) or 0, has[9] or '', ARGV[8] or ''
    if run ~= '' and has[7] ~= run then
      if has[7] ~= '' then from = ms + quarantine end -- it restarted, and may have lost what it had counted
      past = has[7] .. ' ' .. past
    elseif run ~= '' and seen ~= '' and seen ~= run and not string.find(past, seen, 1, true) then
      from = ms + quarantine -- another server was in its place, and counted what this one has not seen
      past = seen .. ' ' .. past
    end
    if past ~= (has[9] or '') then
      has[7], has[9] = run, string.sub(past, 1, 328)
      redis.call('HSET', marker, 'run', run, 'past', has[9])
    end
    if from > ms + quarantine then -- its clock was ahead when it wrote that
      from = ms + quarantine
    end
    local id = has[8]
    if from ~= tonumber(has[6]) or id == '' then id = has[3] .. ':' .. has[7] .. ':' .. int(from) end
    if id ~= has[8] then redis.call('HSET', marker, 'until', int(from), 'id', id) end
    has[6], has[8] = from, id
  end
end
return { us, has[1] or '', has[2] or '', has[3] or '', has[4] or '', has[5] or '', tonumber(has[6] or '0'), run,
  has[8] or '', role, cluster }
