-- claim_tasks: offers the best tasks that wait in these lanes to a worker; answers hints, their cells, and 1 if
-- the worker's session was replaced or its lease is over: then it is given nothing.
-- ARGV: run, how often it was sent before, name of the call, origin, worker, session, the caller's now, limit, lanes and
-- what the worker asks for each (packed in turn).
-- Clients take turns. Next is the one whose line in any of these lanes was served longest ago, with the best of
-- its tasks; then all its lines here count as served. Turns are written once, at the end: until then `order` has
-- them, and whoever was not served yet comes first, since every turn that is stored is lower than a new one.
local worker, session, offered_at, limit = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local asked, done = unpacked(ARGV[9]), P .. 'done:' .. ARGV[3]
-- How long it is known what was offered, for a repetition, in milliseconds.
local DONE_MS = 30000

local newest = newest_if_gone(worker, session, now())
if newest then
  hint('worker', worker)
  if newest > session then -- its seat is given up at once, and somebody else there may do what waits
    for number = 1, #asked, 2 do
      hint('task', asked[number])
    end
  end
  return { pack(hints), {}, 1 }
end

local function place_of(task)
  local id = string.match(task, '^(.*)_[^_]*_[^_]*$')
  return P .. 'job:' .. id, sub(task, #id + 1)
end

local before = ARGV[2] ~= '0' and call('GET', done)
if before then -- only the answer was lost
  local cells = {}
  for _, task in ipairs(unpacked(before)) do
    local cell = call('HGET', place_of(task))
    local head = cell and head_in(cell)
    if head and head[STATE] == 'o' and head[WORKER] == worker and head[SESSION] == session then
      cells[#cells + 1] = cell
    end
  end
  return { pack(hints), cells, 0 }
end

-- Clients of a lane that are looked at in one go.
local STEP = 16

local order, served = {}, {}

-- Whose turn it is in a lane, among those who were not served yet.
local function look(lane)
  lane.client = nil
  while not lane.client do
    local client = lane.row[lane.place]
    if not client then
      if lane.finished then
        return
      end
      lane.row = call('ZRANGE', lane.key, lane.after, '+inf', 'BYSCORE', 'LIMIT', 0, STEP, 'WITHSCORES')
      lane.place, lane.finished = 1, #lane.row < 2 * STEP
    else
      local turn = lane.row[lane.place + 1]
      lane.place, lane.after = lane.place + 2, '(' .. turn
      if not served[client] then
        lane.client, lane.turn = client, tonumber(turn)
      end
    end
  end
end

-- The best task of a client in a lane and its order key, or nothing. What was offered stays in its line until the
-- end, so places count on; more of them are read at once the more are taken.
local function best_of(lane, client)
  local seen = lane.seen[client]
  if not seen then
    seen = { line = line_of(lane.name, client), row = {}, place = 1, from = 0, step = 1 }
    lane.seen[client] = seen
  end
  if waiting_in(seen.line) == 0 then
    return
  end
  if not seen.row[seen.place] then
    seen.row = call('ZRANGE', P .. 'line:' .. seen.line, seen.from, seen.from + seen.step - 1, 'WITHSCORES')
    seen.from, seen.step, seen.place = seen.from + seen.step, 2 * seen.step, 1
  end
  return seen.row[seen.place], tonumber(seen.row[seen.place + 1])
end

local function offer(lane, task)
  local key, field = place_of(task)
  local head, body = split(call('HGET', key, field))
  leave_line(head, task)
  head[STATE], head[WORKER], head[SESSION], head[PRICE], head[OFFERED] = 'o', worker, session, lane.price, offered_at
  local due = head[RESULT_BY]
  if head[TIMEOUT] >= 0 and (due == 0 or offered_at + head[TIMEOUT] < due) then
    due = offered_at + head[TIMEOUT]
  end
  if due > 0 then
    set_due('T' .. task, due)
  elseif head[TASK_DUE] then
    unset_due('T' .. task)
  end
  head[TASK_DUE] = due > 0
  hold(worker, task)
  local cell = join(head, body)
  call('HSET', key, field, cell)
  return cell
end

local lanes = {}
for number = 1, #asked, 2 do
  local lane = { name = asked[number], price = asked[number + 1], key = P .. 'lane:' .. asked[number] }
  lane.seen, lane.row, lane.place, lane.after = {}, {}, 1, '-inf'
  look(lane)
  lanes[#lanes + 1] = lane.client and lane or nil
end

-- The lane with the best task of a client, and that task.
local function best_line_of(client)
  local from, best, lowest
  for _, lane in ipairs(lanes) do
    local task, order = best_of(lane, client)
    if task and (not from or order < lowest or (order == lowest and task < best)) then
      from, best, lowest = lane, task, order
    end
  end
  return from, best
end

-- Somebody who was not served yet, the one who waits longest.
local function next_newcomer()
  local first
  for _, lane in ipairs(lanes) do
    if lane.client and served[lane.client] then
      look(lane)
    end
    if lane.client and (not first or lane.turn < first.turn) then
      first = lane
    end
  end
  return first and first.client
end

local rounds = 1

-- The client that is next, the lane that has its best task, and that task.
local function next_client()
  local client = next_newcomer()
  if client then
    return client, best_line_of(client)
  end
  while rounds <= #order do
    client, rounds = order[rounds], rounds + 1
    local from, best = best_line_of(client)
    if from then
      return client, from, best
    end
  end
end

local cells, offered = {}, {}
while #cells < limit do
  local client, from, best = next_client()
  if not client then
    break
  end
  order[#order + 1] = client
  served[client] = #order
  from.seen[client].place = from.seen[client].place + 2
  offered[#offered + 1] = sub(best, 17)
  cells[#cells + 1] = offer(from, offered[#offered])
end
local before = last_of('turns')
counters.turns = before + #order
for client, place in pairs(served) do
  for _, lane in ipairs(lanes) do
    if waiting_in(line_of(lane.name, client)) > 0 then
      buffer(scored, 'lane:' .. lane.name, client, before + place)
    end
  end
end
flush_indexes()
if #offered > 0 then
  call('SET', done, pack(offered), 'PX', DONE_MS)
end
publish(ARGV[4])
return { pack(hints), cells, 0 }
