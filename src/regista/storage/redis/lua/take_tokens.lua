-- take_tokens: takes tokens from a bucket, all or none. Answers in how many seconds it would have been full before that.
-- ARGV: run, how often it was sent before, name of the call, bucket, n, limit, window in seconds. The level is kept as
-- seconds until it is full, and when that was true: the difference of two instants is exact, and the level does not gather
-- the rounding of large numbers. Beside it stand the name of the last call, and what that was answered.
-- How much is left follows from the answer; see `taken` in counters.py, which counts in the same way.
local key, at = P .. 'bucket:' .. ARGV[4], now()
local n, limit, window = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
-- Kept longer than it takes to fill, in milliseconds: a full bucket need not be known.
local SPARE_MS = 60000

local ahead, since, last, answer = string.match(call('GET', key) or '', '(%S+) (%S+) ?(%S*) ?(%S*)')
if ARGV[2] ~= '0' and last == ARGV[3] then
  return answer -- only that was lost
end
ahead = ahead and math.max(tonumber(ahead) - (at - tonumber(since)) / 1000000, 0) or 0
local per_token = window / limit
local wanted = ahead + n * per_token
answer = format('%.17g', ahead)
if n > 0 and wanted <= window + per_token * 1e-6 then
  local level = table.concat({ format('%.17g', wanted), digits(at), ARGV[3], answer }, ' ')
  call('SET', key, level, 'PX', digits(math.ceil(wanted * 1000) + SPARE_MS))
end
return answer
