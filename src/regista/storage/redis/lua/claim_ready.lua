-- claim_ready: leases jobs that can run, one from each version in turn; answers their bodies.
-- ARGV: run, how often it was sent before, name of the call, instance, limit, length of the lease, versions.
local FIRST = 7
-- How long it is known what was claimed, for a repetition, in milliseconds.
local DONE_MS = 30000
local at, instance, limit, length = now(), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local done = P .. 'done:' .. ARGV[3]
local before = ARGV[2] ~= '0' and call('GET', done)
if before then -- only the answer was lost
  local bodies = {}
  for _, id in ipairs(unpacked(before)) do
    if call('HGET', P .. 'owners', id) == instance then
      bodies[#bodies + 1] = call('HGET', P .. 'job:' .. id, 'b') or nil
    end
  end
  return bodies
end
note_server_run(ARGV[1], at)
return_lapsed(at)
note_lease(length)
local lines = {}
for number = FIRST, #ARGV do
  lines[#lines + 1] = P .. 'ready:' .. ARGV[number]
end
local claimed, ids = {}, {}
while #lines > 0 and #claimed < limit do
  local left = {}
  for _, line in ipairs(lines) do
    local id = #claimed < limit and call('ZPOPMIN', line)[1]
    if id then
      local body = call('HGET', P .. 'job:' .. id, 'b')
      if body then
        lease(id, instance, at + length)
        claimed[#claimed + 1] = body
        ids[#ids + 1] = id
      end
      left[#left + 1] = line
    end
  end
  lines = left
end
flush_indexes()
if #ids > 0 then
  call('SET', done, pack(ids), 'PX', DONE_MS)
end
return claimed
