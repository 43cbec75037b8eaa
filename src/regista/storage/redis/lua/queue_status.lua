-- queue_status: a row for each client in each lane: lane, client, how many wait, and since when (the oldest's order key).

-- Tasks that are looked at in one go, and in all, for the age of one line.
local STEP, LOOKS = 500, 5000

-- Without a priority the order key is the age, so the first such task in line is the oldest of them; those with a
-- priority are passed over. Not for ever: behind so many of them, how long the others have waited is not worth a
-- server that answers nobody else.
local function oldest_of(line, waiting)
  local late = P .. 'late:' .. line
  if call('EXISTS', late) == 0 then
    return tonumber(call('ZRANGE', P .. 'line:' .. line, 0, 0, 'WITHSCORES')[2])
  end
  local oldest = tonumber(call('ZRANGE', late, 0, 0, 'WITHSCORES')[2])
  for first = 0, math.min(waiting, LOOKS) - 1, STEP do
    local row = call('ZRANGE', P .. 'line:' .. line, first, first + STEP - 1, 'WITHSCORES')
    local names = {}
    for place = 1, #row, 2 do
      names[#names + 1] = row[place]
    end
    local ages = call('ZMSCORE', late, unpack(names))
    for number = 1, #names do
      local order = tonumber(row[2 * number])
      if not ages[number] or order >= oldest then -- whatever comes behind it is younger
        return math.min(oldest, order)
      end
    end
  end
  return oldest
end

local rows = {}
for _, lane in ipairs(call('SMEMBERS', P .. 'lanes')) do
  for _, client in ipairs(call('ZRANGE', P .. 'lane:' .. lane, 0, -1)) do
    local line = line_of(lane, client)
    local waiting = call('ZCARD', P .. 'line:' .. line)
    rows[#rows + 1] = { lane, client, waiting, format('%.17g', oldest_of(line, waiting)) }
  end
end
return rows
