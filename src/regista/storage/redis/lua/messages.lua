-- messages: the bodies of the oldest messages that nobody has acted on.
-- ARGV: limit.
local bodies = {}
for number, id in ipairs(call('ZRANGE', P .. 'messages', 0, ARGV[1] - 1)) do
  bodies[number] = call('HGET', P .. 'words', id)
end
return bodies
