-- put_records: writes or removes items, each behind its fence. Answers as commit does: a letter for each (y: done, n: the
-- fence) and the hints.
-- ARGV: name of the call, origin, writes (packed); then the values, which the writes name by number.
local VALUES = 3
local done = P .. 'done:' .. ARGV[1]
local before = call('GET', done)
if before then
  return before -- it was carried out; only the answer was lost
end
-- How long the answer is kept for a repetition, in milliseconds.
local DONE_MS = 30000

local at = now()
sweep_items(at)
local answers = {}
for number, write in ipairs(unpacked(ARGV[VALUES])) do
  local value = write[W_BODY] > 0 and ARGV[VALUES + write[W_BODY]]
  answers[number] = put_item(write, value, at, true) and 'y' or 'n'
end
publish(ARGV[2])
local answer = pack({ table.concat(answers), hints, {} })
call('SET', done, answer, 'PX', DONE_MS)
return answer
