-- claim_ready: leases jobs that can run, one from each version in turn; answers their bodies.
-- ARGV: run, instance, limit, length of the lease, versions.
local FIRST = 5
local at, limit, length = now(), tonumber(ARGV[3]), tonumber(ARGV[4])
meet(ARGV[1], at)
return_lapsed(at)
note_lease(length)
local lines = {}
for number = FIRST, #ARGV do
  lines[#lines + 1] = P .. 'ready:' .. ARGV[number]
end
local claimed = {}
while #lines > 0 and #claimed < limit do
  local left = {}
  for _, line in ipairs(lines) do
    local id = #claimed < limit and call('ZPOPMIN', line)[1]
    if id then
      local body = call('HGET', P .. 'job:' .. id, 'b')
      if body then
        lease(id, ARGV[2], at + length)
        claimed[#claimed + 1] = body
      end
      left[#left + 1] = line
    end
  end
  lines = left
end
write_down()
return claimed
