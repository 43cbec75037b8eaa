-- release_leases: puts back in line whatever an instance has claimed; answers how many jobs that were.
-- ARGV: origin, instance.
local returned = 0
local owners = call('HGETALL', P .. 'owners')
for number = 1, #owners, 2 do
  if owners[number + 1] == ARGV[2] then
    requeue(owners[number])
    returned = returned + 1
  end
end
if returned > 0 then
  hint('ready', '')
end
flush_indexes()
publish(ARGV[1])
return returned
