-- due_records: keys and cells in turn of the items whose due time has come, earliest first.
-- ARGV: shelf, the caller's now, limit.
local STEP = 500
local shelf, limit, at = ARGV[1], tonumber(ARGV[3]), now()
local step = math.min(limit, STEP)
local found, place = {}, 0
repeat
  local keys = call('ZRANGE', P .. 'ripe:' .. shelf, '-inf', ARGV[2], 'BYSCORE', 'LIMIT', place, step)
  add_living(found, shelf, keys, limit, at)
  place = place + #keys
until #keys < step or #found >= 2 * limit
return found
