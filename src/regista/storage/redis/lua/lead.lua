-- lead: become or stay the leader of a chore; 0 when somebody else is.
-- ARGV: chore, instance, length in microseconds.
local key, at = P .. 'leader:' .. ARGV[1], now()
local known = call('GET', key)
local leader = known and unpacked(known)
if leader and leader[1] ~= ARGV[2] and leader[2] > at then
  return 0
end
-- The expiry is only for tidiness, and never sooner than the lease: the store's own clock decides.
call('SET', key, pack({ ARGV[2], at + ARGV[3] }), 'PX', math.max(1000, math.ceil(ARGV[3] / 1000) * 2))
return 1
