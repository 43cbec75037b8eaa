-- take: takes tokens from a bucket, all or none. Answers in how many seconds it would have been full before that.
-- ARGV: bucket, n, limit, window in seconds. The level is kept as seconds until it is full, and when that was true:
-- the difference of two instants is exact, and the level does not gather the rounding of large numbers.
-- How much is left follows from the answer; see `taken` in counters.py, which counts in the same way.
local key, at = P .. 'bucket:' .. ARGV[1], now()
local n, limit, window = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
-- Kept longer than it takes to fill, in milliseconds: a full bucket need not be known.
local SPARE_MS = 60000

local ahead, since = string.match(call('GET', key) or '', '(%S+) (%S+)')
ahead = ahead and math.max(tonumber(ahead) - (at - tonumber(since)) / 1000000, 0) or 0
local per_token = window / limit
local wanted = ahead + n * per_token
if n > 0 and wanted <= window + per_token * 1e-6 then
  call('SET', key, format('%.17g', wanted) .. ' ' .. digits(at), 'PX', digits(math.ceil(wanted * 1000) + SPARE_MS))
end
return format('%.17g', ahead)
