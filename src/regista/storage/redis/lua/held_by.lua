-- held_by: the cells of the tasks in a worker's hands.
-- ARGV: worker.
local cells = {}
for number, task in ipairs(call('SMEMBERS', P .. 'held:' .. ARGV[1])) do
  local id = string.match(task, '^(.*)_[^_]*_[^_]*$')
  cells[number] = call('HGET', P .. 'job:' .. id, sub(task, #id + 1))
end
return cells
