-- heartbeat: renews the leases of workers' last sessions; answers 1 for each that it renewed, 0 for any other session.
-- ARGV: worker, session and length of the lease in turn.
local at, answers = now(), {}
for number = 1, #ARGV, 3 do
  local worker, length = ARGV[number], tonumber(ARGV[number + 2])
  local known = call('HGET', P .. 'sessions', worker) == ARGV[number + 1]
  if known then
    call('ZADD', P .. 'beats', at + length, worker)
    note_lease(length)
  end
  answers[#answers + 1] = known and 1 or 0
end
return answers
