-- slots: instance and body in turn, of all whose word still holds. Those of the dead are swept out.
local found, at = {}, now()
local all = call('HGETALL', P .. 'slots')
for place = 1, #all, 2 do
  local word = unpacked(all[place + 1])
  if word[1] > at then
    found[#found + 1] = all[place]
    found[#found + 1] = word[2]
  else
    call('HDEL', P .. 'slots', all[place])
  end
end
return found
