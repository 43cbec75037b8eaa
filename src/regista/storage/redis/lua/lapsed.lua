-- lapsed: body, session and notes of the workers whose lease is over.
-- ARGV: run.
local at, rows = now(), {}
note_server_run(ARGV[1], at)
flush_indexes()
if leases_may_lapse(at) then
  for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'beats', '-inf', at)) do
    local body, session = call('HGET', P .. 'workers', worker), call('HGET', P .. 'sessions', worker)
    rows[#rows + 1] = { body, session, call('HGET', P .. 'notes', worker) or '0' }
  end
end
return rows
