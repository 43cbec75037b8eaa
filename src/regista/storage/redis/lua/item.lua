-- item: the cell of one item; nothing when it is not there, or its time is over.
-- ARGV: shelf, key.
local found = {}
add_living(found, ARGV[1], { ARGV[2] }, 1, now())
return found[2]
