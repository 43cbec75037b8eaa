-- lapsed: body, session and notes of the workers whose lease is over.
-- ARGV: run.
local at, rows = now(), {}
meet(ARGV[1], at)
write_down()
if may_judge(at) then
  for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'beats', '-inf', at)) do
    local body, session = call('HGET', P .. 'workers', worker), call('HGET', P .. 'sessions', worker)
    rows[#rows + 1] = { body, session, call('HGET', P .. 'notes', worker) or '0' }
  end
end
return rows
