-- extend_leases: renews the leases that this instance still holds; answers the ids of those.
-- ARGV: instance, length of the lease, job ids.
local until_then = now() + ARGV[2]
local kept = {}
note_lease(tonumber(ARGV[2]))
for number = 3, #ARGV do
  local id = ARGV[number]
  if call('HGET', P .. 'owners', id) == ARGV[1] then
    call('ZADD', P .. 'leases', until_then, id)
    kept[#kept + 1] = id
  end
end
return kept
