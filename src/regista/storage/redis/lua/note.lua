-- note: writes a worker's record again, if the session is its last one.
-- ARGV: origin, worker, session, body.
if call('HGET', P .. 'sessions', ARGV[2]) ~= ARGV[3] then
  return 0
end
call('HSET', P .. 'workers', ARGV[2], ARGV[4])
hint('worker', ARGV[2])
publish(ARGV[1])
return 1
