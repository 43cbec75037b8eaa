-- workers: body, session and record version of the workers named, or of all.
-- ARGV: ids; none: all.
local rows = {}
for _, worker in ipairs(#ARGV > 0 and ARGV or call('HKEYS', P .. 'workers')) do
  local body = call('HGET', P .. 'workers', worker)
  if body then
    rows[#rows + 1] = { body, call('HGET', P .. 'sessions', worker), call('HGET', P .. 'notes', worker) or '0' }
  end
end
return rows
