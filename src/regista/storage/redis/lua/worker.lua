-- worker: body and session of one worker; nothing when it is unknown.
-- ARGV: worker.
local body = call('HGET', P .. 'workers', ARGV[1])
return body and { body, call('HGET', P .. 'sessions', ARGV[1]) }
