-- worker: body, session and notes of one worker; nothing when it is unknown.
-- ARGV: worker.
local body = call('HGET', P .. 'workers', ARGV[1])
return body and { body, call('HGET', P .. 'sessions', ARGV[1]), call('HGET', P .. 'notes', ARGV[1]) or '0' }
