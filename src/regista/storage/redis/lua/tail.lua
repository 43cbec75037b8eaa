-- tail: first seq and body of a job's entries in the outbox that reach above a seq.
-- ARGV: job, seq. Looks from the end: who follows a job asks for the last few only.
local events, after = P .. 'events:' .. ARGV[1], tonumber(ARGV[2])
local known = call('HGET', P .. 'job:' .. ARGV[1], 'm')
local cell = known and unpacked(known) or {}

-- Groups of entries, from the last one back to the one in which the seq lies.
local groups, place = { cell[ENTRIES] or '' }, -1
local function begins(group)
  return tonumber(string.match(group, ' (%d+)') or math.huge)
end
while groups[#groups] and begins(groups[#groups]) > after + 1 do
  groups[#groups + 1] = call('LINDEX', events, place) or nil
  if #groups ~= -place + 1 then
    break
  end
  place = place - 1
end

local found = {}
for number = #groups, 1, -1 do
  for entry, first in string.gmatch(groups[number], '(%d+) (%d+)') do
    found[#found + 1] = { entry, first }
  end
end
-- Before the last one that begins no higher than what is asked for, all is known already.
local from = 1
for number = #found, 1, -1 do
  if tonumber(found[number][2]) <= after + 1 then
    from = number
    break
  end
end
local rows = {}
for number = from, #found do
  local entry = call('XRANGE', P .. 'outbox', found[number][1], found[number][1])[1]
  if entry then
    rows[#rows + 1] = { found[number][2], entry[2][6] }
  end
end
return rows
