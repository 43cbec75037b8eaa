-- attend: notes which versions an instance can run, and until when that holds.
-- ARGV: process, instance, length of the lease, versions. Answers which process had said so before; '' for none.
local versions = {}
for number = 4, #ARGV do
  versions[#versions + 1] = ARGV[number]
end
local known = call('HGET', P .. 'attending', ARGV[2])
call('HSET', P .. 'attending', ARGV[2], pack({ now() + ARGV[3], versions, ARGV[1] }))
return known and unpacked(known)[3] or ''
