-- attend: notes which versions an instance can run, and until when that holds.
-- ARGV: instance, length of the lease, versions.
local versions = {}
for number = 3, #ARGV do
  versions[#versions + 1] = ARGV[number]
end
call('HSET', P .. 'attending', ARGV[1], pack({ now() + ARGV[2], versions }))
return 1
