-- forget: strikes a worker off, unless it has a newer session.
-- ARGV: worker, session.
if call('HGET', P .. 'sessions', ARGV[1]) ~= ARGV[2] then
  return 0
end
call('HDEL', P .. 'workers', ARGV[1])
call('HDEL', P .. 'sessions', ARGV[1])
call('ZREM', P .. 'beats', ARGV[1])
return 1
