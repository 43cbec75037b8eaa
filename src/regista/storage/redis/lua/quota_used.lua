-- quota_used: how often a quota was used.
-- ARGV: counter.
return used_of(ARGV[1], now())
