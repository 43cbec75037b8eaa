-- find_records: keys and cells of some records in turn, of those that are there and whose time is not over.
-- ARGV: collection, then the keys.
local keys = {}
for number = 2, #ARGV do
  keys[number - 1] = ARGV[number]
end
local found, at = {}, now()
for first = 1, #keys, AT_ONCE do
  local some = { unpack(keys, first, math.min(first + AT_ONCE - 1, #keys)) }
  add_living(found, ARGV[1], some, #keys, at)
end
return found
