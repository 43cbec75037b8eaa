-- update_worker: writes a worker's record again, if nobody else has since it was read. Sent again, it is answered alike.
-- ARGV: origin, worker, session, notes so far, body.
if call('HGET', P .. 'sessions', ARGV[2]) ~= ARGV[3] then
  return 0
end
local notes = tonumber(call('HGET', P .. 'notes', ARGV[2]) or 0)
if notes == ARGV[4] + 1 and call('HGET', P .. 'workers', ARGV[2]) == ARGV[5] then
  return 1 -- these very words: only the answer was lost
end
if notes ~= tonumber(ARGV[4]) then
  return 0
end
call('HSET', P .. 'workers', ARGV[2], ARGV[5])
call('HSET', P .. 'notes', ARGV[2], digits(notes + 1))
hint('worker', ARGV[2])
publish(ARGV[1])
return 1
