-- tail: first seq and body of a job's entries in the outbox that reach above a seq.
-- ARGV: job, seq. Looks from the end: who follows a job asks for the last few only.
local STEP = 64
local events, after = P .. 'events:' .. ARGV[1], tonumber(ARGV[2])
local found = {}
local stop = -1
repeat
  local some = call('LRANGE', events, stop - STEP + 1, stop)
  local reached = #some < STEP
  for number = #some, 1, -1 do
    local entry, first = string.match(some[number], '(%d+) (%d+)')
    found[#found + 1] = { entry, first }
    if tonumber(first) <= after + 1 then
      reached = true
      break
    end
  end
  stop = stop - STEP
until reached
local rows = {}
for number = #found, 1, -1 do
  local entry = call('XRANGE', P .. 'outbox', found[number][1], found[number][1])[1]
  if entry then
    rows[#rows + 1] = { found[number][2], entry[2][6] }
  end
end
return rows
