-- lanes: a row for each client in each lane: lane, client, how many wait, and since when (the oldest's order key).
local function oldest_of(line, waiting)
  local late = P .. 'late:' .. line
  local aged = call('ZCARD', late)
  local oldest = aged > 0 and tonumber(call('ZRANGE', late, 0, 0, 'WITHSCORES')[2]) or math.huge
  -- Without a priority the order key is the age; those with one are passed over. Not for ever: behind so many of
  -- them, how long the others have waited is not worth a server that answers nobody else.
  local place = 0
  while aged < waiting and place < 1000 do
    local one = call('ZRANGE', P .. 'line:' .. line, place, place, 'WITHSCORES')
    if aged == 0 or not call('ZSCORE', late, one[1]) then
      return math.min(oldest, tonumber(one[2]))
    end
    place = place + 1
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
