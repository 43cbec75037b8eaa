-- quota: what the scripts share that count creations.
--   count:<counter>   string: how often it was used, and when that is forgotten

-- Kept longer than it counts, in milliseconds: the clocks of the store and of its keys may differ in tests.
local SPARE_MS = 60000

local function used_of(counter, at)
  local used, ends = string.match(call('GET', P .. 'count:' .. counter) or '', '(%d+) (%d+)')
  return used and tonumber(ends) > at and tonumber(used) or 0
end

local function count_use(counter, ttl, at)
  local value = digits(used_of(counter, at) + 1) .. ' ' .. digits(at + ttl)
  call('SET', P .. 'count:' .. counter, value, 'PX', digits(math.ceil(ttl / 1000) + SPARE_MS))
end
