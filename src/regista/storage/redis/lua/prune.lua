-- prune: forgets entries of the outbox up to a number; answers how many this time, and 0 when none are left.
-- ARGV: number, limit. Whole blocks go first, for they cost nothing; what is left of the last one in the last call.
local outbox, first = P .. 'outbox', digits(ARGV[1] + 1)
local gone = call('XTRIM', outbox, 'MINID', '~', first, 'LIMIT', ARGV[2])
if gone == 0 then
  call('XTRIM', outbox, 'MINID', first)
end
return gone
