-- lead: become or stay the leader of a chore; 0 when somebody else is.
-- ARGV: chore, instance, length in microseconds.
local key, at, length = P .. 'leader:' .. ARGV[1], now(), tonumber(ARGV[3])
local known = call('GET', key)
local leader = known and unpacked(known) -- instance, expiry, length
if leader and leader[1] ~= ARGV[2] then
  local left = leader[2] - at
  -- More than the whole lease is left after the clock was set back: nobody knows when it would be over.
  if left > 0 and left <= (leader[3] or left) then
    return 0
  end
end
-- The expiry is only for tidiness, and never sooner than the lease: the store's own clock decides.
call('SET', key, pack({ ARGV[2], at + length, length }), 'PX', math.max(1000, math.ceil(length / 1000) * 2))
return 1
