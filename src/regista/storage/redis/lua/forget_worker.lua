-- forget_worker: strikes a worker off, unless it has a newer session.
-- ARGV: origin, worker, session, 1 to do so only while its lease is over.
local worker = ARGV[2]
if call('HGET', P .. 'sessions', worker) ~= ARGV[3] then
  return 0
end
if ARGV[4] == '1' and tonumber(call('ZSCORE', P .. 'beats', worker) or 0) > now() then
  return 0 -- it was heard a moment ago
end
for _, key in ipairs({ 'workers', 'sessions', 'notes' }) do
  call('HDEL', P .. key, worker)
end
call('ZREM', P .. 'beats', worker)
hint('worker', worker)
publish(ARGV[1])
return 1
