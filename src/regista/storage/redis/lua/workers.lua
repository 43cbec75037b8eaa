-- workers: body, session and notes of everybody known.
local rows, notes = {}, {}
local noted = call('HGETALL', P .. 'notes')
for number = 1, #noted, 2 do
  notes[noted[number]] = noted[number + 1]
end
local known = call('HGETALL', P .. 'workers')
for number = 1, #known, 2 do
  local worker = known[number]
  rows[#rows + 1] = { known[number + 1], call('HGET', P .. 'sessions', worker), notes[worker] or '0' }
end
return rows
