-- register: notes a worker under a new session, and answers that.
-- ARGV: run, origin, worker, body, length of the lease.
local at = now()
note_server_run(ARGV[1], at)
local session = count('sessions')
flush_indexes()
call('HSET', P .. 'workers', ARGV[3], ARGV[4])
call('HSET', P .. 'sessions', ARGV[3], digits(session))
call('HDEL', P .. 'notes', ARGV[3])
call('ZADD', P .. 'beats', at + ARGV[5], ARGV[3])
note_lease(tonumber(ARGV[5]))
hint('worker', ARGV[3])
publish(ARGV[2])
return session
