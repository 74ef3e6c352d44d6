-- marker.lua: what a master stores about itself: the layout of its locks and, for one of several masters, the set that
-- it belongs to, the rules of the set, and until when it abstains because it may have lost leases that still live.
--
-- A set identifies each of its masters by a seat, and the server process in a seat by a term. The first process in a
-- seat has the first term, and its successor (the server restarted, or another server took its place) has the next.
-- Every master stores the last term of every seat that clients have reported to it. So even a client that has never
-- used this master recognizes a process of an earlier term, or a copy of a master that the set does not know.
--
-- KEYS   1 marker  hash: layout, rules, set (the set's id), seat, seats (the addresses of all masters, as its founder
--                  named them, by seat), terms ('number:run id' by seat), run (the run id of its own term, '' if INFO
--                  is refused), until (ms; it votes from then on), id (set, run and until together: a vote names it,
--                  every quarantine changes it; absent after a vote has met a run id other than run)
-- ARGV   1 'single' for a master that decides alone; for one of several 'look', 'join' (it gets a marker, and abstains
--        first), 'note' (it stores the terms of 8) or 'succeed': its next term begins, and it abstains first; the
--        client has checked that it is the server of that seat
--        2 layout, or '' for 'single' and 'look' to change nothing, 3 rules, 4 set, 5 seat, 6 seats, 7 quarantine ms,
--        8 the terms that the client knows, or '', 9 the set of the marker that 'join' replaces, or ''
-- Reply  {server us, layout, rules, set, seat, seats, until, run id now, id, role, cluster '0' | '1', run, terms}; ''
--        for a missing value
-- Twice  join leaves an existing marker as it is; a second succeed finds that the term has begun and is the
--        last one
-- Cost   TIME INFO HMGET, HSET for each field that changes; for a master that decides alone TIME HSETNX HMGET
local marker, purpose = KEYS[1], ARGV[1]
local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local ms = (us - us % 1000) / 1000

local function int(n) return string.format('%.0f', n) end

if purpose == 'single' then
  if ARGV[2] ~= '' then redis.call('HSETNX', marker, 'layout', ARGV[2]) end
  local is = redis.call('HMGET', marker, 'layout', 'rules', 'set')
  return { us, is[1] or '', is[2] or '', is[3] or '', '', '', 0, '', '', '', '', '', '' }
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
local member = has.set and not (has.set == ARGV[9] and purpose == 'join')
local writes = role ~= 'slave' and ARGV[2] ~= ''
if writes and not member and purpose == 'join' then
  local seat = ARGV[5] + 1
  local last = theirs[seat] and theirs[seat].number or 0
  for i = #theirs + 1, seat do theirs[i] = { number = 0, run = '' } end -- no gap before a later seat
  if run ~= '' then theirs[seat] = { number = last + 1, run = run } end
  write('layout', has.layout or ARGV[2])
  write('rules', ARGV[3])
  write('set', ARGV[4])
  write('seat', ARGV[5])
  write('seats', ARGV[6])
  write('terms', text(theirs))
  write('run', run)
  write('until', int(ms + quarantine))
  identify()
elseif writes and member then
  local mine, seat, from = parse(has.terms), (tonumber(has.seat) or 0) + 1, tonumber(has['until']) or 0
  local own, last = mine[seat] or { number = 0, run = has.run }, theirs[seat] or { number = 0, run = '' }
  for i, its in ipairs(theirs) do -- the later term of each seat
    if not mine[i] or its.number > mine[i].number then mine[i] = its end
  end
  if purpose == 'succeed' or purpose == 'note' then
    local replaced = last.number > own.number
      or last.number == own.number and last.run ~= own.run and last.run ~= '' and own.run ~= ''
    if purpose == 'succeed' and (not has.id or run ~= '' and (has.run ~= run or replaced)) then
      from = ms + quarantine -- it may have lost what it had counted, or missed what another server has counted
      mine[seat] = { number = math.max(own.number, last.number) + 1, run = run }
      write('run', run)
    elseif has.run == '' and run ~= '' then -- the client that wrote the marker was refused INFO
      mine[seat] = { number = math.max(own.number, 1), run = run }
      write('run', run)
    end
    write('terms', text(mine))
  end
  if from > ms + quarantine then from = ms + quarantine end -- its clock was ahead when it wrote until
  if int(from) ~= has['until'] or not has.id and has.run == run then
    write('until', int(from))
    identify()
  end
end
return { us, has.layout or '', has.rules or '', has.set or '', has.seat or '', has.seats or '',
  tonumber(has['until'] or '0'), run, has.id or '', role, cluster, has.run, has.terms or '' }
