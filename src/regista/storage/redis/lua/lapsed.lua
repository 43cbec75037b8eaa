-- lapsed: body and session of the workers whose lease is over.
-- ARGV: run.
local at, rows = now(), {}
meet(ARGV[1], at)
keep_counters()
if may_judge(at) then
  for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'beats', '-inf', at)) do
    rows[#rows + 1] = { call('HGET', P .. 'workers', worker), call('HGET', P .. 'sessions', worker) }
  end
end
return rows
