-- stranded: the bodies of runnable jobs of other versions than these, oldest first.
-- ARGV: run, limit, versions.
local at, limit = now(), tonumber(ARGV[2])
note_server_run(ARGV[1], at)
return_lapsed(at)
flush_indexes()
local known = {}
for number = 3, #ARGV do
  known[ARGV[number]] = true
end
local found = {}
for _, version in ipairs(call('SMEMBERS', P .. 'versions')) do
  local line = not known[version] and call('ZRANGE', P .. 'ready:' .. version, 0, limit - 1, 'WITHSCORES') or {}
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
