-- heartbeat: renews the lease of a worker's last session; 0 for any other.
-- ARGV: worker, session, length of the lease.
if call('HGET', P .. 'sessions', ARGV[1]) ~= ARGV[2] then
  return 0
end
call('ZADD', P .. 'beats', now() + ARGV[3], ARGV[1])
note_lease(tonumber(ARGV[3]))
return 1
