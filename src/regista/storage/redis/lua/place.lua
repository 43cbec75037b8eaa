-- place: where in its client's line a task waits, from 1; 0 when it does not.
-- ARGV: job, field of the task.
local cell = call('HGET', P .. 'job:' .. ARGV[1], ARGV[2])
local head = cell and split(cell)
if not head or head[LANE] == '' then
  return 0
end
local member = member_of(head[ARRIVAL], ARGV[1] .. ARGV[2])
return call('ZRANK', P .. 'line:' .. line_of(head[LANE], head[CLIENT]), member) + 1
