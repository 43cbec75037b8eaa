-- stranded: the bodies of runnable jobs whose version no instance attends, oldest first.
-- ARGV: run, limit.
-- The word of an instance is kept for so long after it counts, in microseconds: it looks for it, and clocks may jump.
local KEPT = 86400000000
local at, limit = now(), tonumber(ARGV[2])
meet(ARGV[1], at)
return_lapsed(at)
write_down()
local attended = {}
local known = call('HGETALL', P .. 'attending')
for number = 1, #known, 2 do
  local word = unpacked(known[number + 1])
  if word[1] > at then
    for _, version in ipairs(word[2]) do
      attended[version] = true
    end
  elseif word[1] + KEPT < at then
    call('HDEL', P .. 'attending', known[number])
  end
end
local found = {}
for _, version in ipairs(call('SMEMBERS', P .. 'versions')) do
  local line = not attended[version] and call('ZRANGE', P .. 'ready:' .. version, 0, limit - 1, 'WITHSCORES') or {}
  for number = 1, #line, 2 do
    found[#found + 1] = { line[number], tonumber(line[number + 1]) }
  end
  if call('EXISTS', P .. 'ready:' .. version) == 0 then
    call('SREM', P .. 'versions', version)
  end
end
table.sort(found, function(one, other)
  return one[2] < other[2]
end)
local bodies = {}
for number = 1, math.min(limit, #found) do
  bodies[number] = call('HGET', P .. 'job:' .. found[number][1], 'b')
end
return bodies
