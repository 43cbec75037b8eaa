-- now: the one clock of the store, in microseconds since 1970. Tests load another file in its place.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
