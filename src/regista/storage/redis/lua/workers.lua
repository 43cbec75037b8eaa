-- workers: body and session of everybody known.
local rows = {}
local known = call('HGETALL', P .. 'workers')
for number = 1, #known, 2 do
  rows[#rows + 1] = { known[number + 1], call('HGET', P .. 'sessions', known[number]) }
end
return rows
