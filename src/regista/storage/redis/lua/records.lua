-- records: keys and cells of a shelf in turn, in the order of the keys.
-- ARGV: shelf, the key after which to begin (empty: at the first), limit.
local STEP = 500
local shelf, limit, at = ARGV[1], tonumber(ARGV[3]), now()
local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local step = math.min(limit, STEP)
local found = {}
repeat
  local keys = call('ZRANGE', P .. 'shelf:' .. shelf, from, '+', 'BYLEX', 'LIMIT', 0, step)
  add_living(found, shelf, keys, limit, at)
  from = '(' .. (keys[#keys] or '')
until #keys < step or #found >= 2 * limit
return found
