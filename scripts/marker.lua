-- marker.lua: what a master remembers of itself: which layout its locks have and, of one of several masters, to which
-- set it belongs, by which rules, and until when it abstains because it may have lost leases that still live.
--
-- A set knows each of its masters by its seat, and who is in a seat by a term: the first process there has the first
-- term, and whatever comes after it (the server restarted, or another one took its place) has the next. Every master
-- keeps the last term of every seat that it has been told of. So a process that comes back from before, or a copy of a
-- master that the set does not know, is found also by a client that has never been here.
--
-- KEYS   1 marker  hash: layout, rules, set (the set's id), seat, seats (the addresses of all masters, as its founder
--                  named them, by seat), terms ('number:run id' by seat), run (the run id of its own term, '' where
--                  INFO is refused), until (ms; it votes from then on), id (set, run and until together: what a vote
--                  names, another one after every quarantine; absent where a vote has met another run id than run)
-- ARGV   1 'single' for a master that decides alone; for one of several 'look', 'birth' (the first start of a
--        whole set: it votes at once), 'return' (it abstains first), 'note' (it is told of terms), or 'succeed': a term
--        of its own begins, and it abstains first; the client has made sure that it is the server of that seat
--        2 layout, 3 rules, 4 set, 5 seat, 6 seats, 7 quarantine ms, 8 the terms that the client knows of, or '',
--        9 the set whose marker 'return' replaces, or '',
--        10 the server's time (us) at which the client saw no marker: a birth that comes late is a return
-- Reply  {server us, layout, rules, set, seat, seats, until, run id now, id, role, cluster '0' | '1', run, terms}; ''
--        where there is none
-- Twice  birth and return leave a marker that is there as it is; of a term that has begun the second finds that it is
--        the last one
-- Cost   TIME INFO HMGET, HSET where it changes something; for a master that decides alone TIME HSETNX HMGET
local marker, purpose = KEYS[1], ARGV[1]
local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local ms = (us - us % 1000) / 1000

local function int(n) return string.format('%.0f', n) end

if purpose == 'single' then
  redis.call('HSETNX', marker, 'layout', ARGV[2])
  local is = redis.call('HMGET', marker, 'layout', 'rules', 'set')
  return { us, is[1], is[2] or '', is[3] or '', '', '', 0, '', '', '', '', '', '' }
end

local info = redis.pcall('INFO')
if type(info) ~= 'string' then info = '' end
local run = string.match(info, 'run_id:(%x+)') or ''
local role = string.match(info, 'role:(%a+)') or ''
local cluster = string.match(info, 'cluster_enabled:(%d)') or '0'

local fields = { 'layout', 'rules', 'set', 'seat', 'seats', 'until', 'run', 'id', 'terms' }
local has, values = {}, redis.call('HMGET', marker, unpack(fields))
for i, field in ipairs(fields) do has[field] = values[i] end
local quarantine = tonumber(ARGV[7])

local function parse(text)
  local terms = {}
  for number, its in string.gmatch(text or '', '(%d+):(%x*)') do
    terms[#terms + 1] = { number = number + 0, run = its }
  end
  return terms
end

-- The later term of each seat, of two lists.
local function later(mine, theirs)
  local terms = {}
  for seat = 1, math.max(#mine, #theirs) do
    local a, b = mine[seat], theirs[seat]
    terms[seat] = (not a or b and b.number > a.number) and b or a
  end
  return terms
end

local function text(terms)
  local parts = {}
  for seat, term in ipairs(terms) do parts[seat] = int(term.number) .. ':' .. term.run end
  return table.concat(parts, ' ')
end

local function write(field, value)
  if value ~= has[field] then redis.call('HSET', marker, field, value) end
  has[field] = value
end

local function identify() write('id', has.set .. ':' .. has.run .. ':' .. has['until']) end

has.run = has.run or ''
local theirs = parse(ARGV[8])
local member = has.set and not (has.set == ARGV[9] and purpose == 'return')
local writes = role ~= 'slave'
if writes and not member and (purpose == 'birth' or purpose == 'return') then
  local seat = ARGV[5] + 1
  local fresh = us - (tonumber(ARGV[10]) or 0) < 5000000
  local last = theirs[seat] and theirs[seat].number or 0
  for i = #theirs + 1, seat do theirs[i] = { number = 0, run = '' } end -- no later seat has a hole before it
  if run ~= '' then theirs[seat] = { number = last + 1, run = run } end
  write('layout', has.layout or ARGV[2])
  write('rules', ARGV[3])
  write('set', ARGV[4])
  write('seat', ARGV[5])
  write('seats', ARGV[6])
  write('terms', text(theirs))
  write('run', run)
  write('until', purpose == 'birth' and fresh and '0' or int(ms + quarantine))
  identify()
elseif writes and member then
  local mine, seat, from = parse(has.terms), (tonumber(has.seat) or 0) + 1, tonumber(has['until']) or 0
  local own, last = mine[seat] or { number = 0, run = has.run }, theirs[seat] or { number = 0, run = '' }
  local known = later(mine, theirs)
  if purpose == 'succeed' or purpose == 'note' then
    local replaced = last.number > own.number
      or last.number == own.number and last.run ~= own.run and last.run ~= '' and own.run ~= ''
    if purpose == 'succeed' and (not has.id or run ~= '' and (has.run ~= run or replaced)) then
      from = ms + quarantine -- it may have lost what it had counted, or another has counted what it has not seen
      known[seat] = { number = math.max(own.number, last.number) + 1, run = run }
      write('run', run)
    elseif has.run == '' and run ~= '' then -- the marker's author was refused INFO
      known[seat] = { number = math.max(own.number, 1), run = run }
      write('run', run)
    end
    write('terms', text(known))
  end
  if from > ms + quarantine then from = ms + quarantine end -- its clock was ahead when it wrote that
  if int(from) ~= has['until'] or not has.id and has.run == run then
    write('until', int(from))
    identify()
  end
end
return { us, has.layout or '', has.rules or '', has.set or '', has.seat or '', has.seats or '',
  tonumber(has['until'] or '0'), run, has.id or '', role, cluster, has.run, has.terms or '' }
