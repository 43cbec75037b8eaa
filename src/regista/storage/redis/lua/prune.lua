-- prune: forgets entries of the outbox up to a number; answers how many there were this time.
-- ARGV: number, limit.
return forget_entries(ARGV[1], tonumber(ARGV[2]))
