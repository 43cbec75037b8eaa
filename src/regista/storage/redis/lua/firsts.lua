-- firsts: for each of some keys the key and cell of the first item behind it; nothing where there is none.
-- ARGV: shelf; then the keys.
local STEP = 4
local shelf, at = ARGV[1], now()
local rows = {}
for number = 2, #ARGV do
  local found, from = {}, ARGV[number] == '' and '-' or '(' .. ARGV[number]
  repeat
    local keys = call('ZRANGE', P .. 'shelf:' .. shelf, from, '+', 'BYLEX', 'LIMIT', 0, STEP)
    add_living(found, shelf, keys, 1, at)
    from = '(' .. (keys[#keys] or '')
  until #found > 0 or #keys < STEP
  rows[#rows + 1] = found
end
return rows
