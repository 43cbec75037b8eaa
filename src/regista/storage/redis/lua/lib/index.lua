-- index: deadlines, queues of tasks, workers' tasks, the ready queue and its leases. It follows common.lua in scripts that need it.

-- Deadlines.

-- What is due in more microseconds than this is no news: whoever waits looks again every two seconds anyway.
local NEAR = 2000000
local earliest

local function set_due(member, at)
  if not earliest then
    earliest = tonumber(call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]) or math.huge
  end
  buffer(scored, 'due', member, at)
  if at <= earliest then
    earliest = at
    if at <= now() + NEAR then
      hint('deadline', '')
    end
  end
end

local function unset_due(member)
  buffer(scored, 'due', member, false)
end

-- Lines.

local function line_of(lane, client)
  return lane .. '\n' .. client
end

local function member_of(arrival, task)
  return format('%016.0f', arrival) .. task
end

-- How many wait in a line: asked once, and counted from there.
local waiting = {}

local function waiting_in(line)
  if not waiting[line] then
    waiting[line] = call('ZCARD', P .. 'line:' .. line)
  end
  return waiting[line]
end

local function enter_line(head, task, order, queued, wakes)
  local lane, client = head[LANE], head[CLIENT]
  local line = line_of(lane, client)
  if waiting_in(line) == 0 then
    -- Behind everybody who waits already, or one who sends task after task would always be first.
    buffer(scored, 'lane:' .. lane, client, count('turns'))
    buffer(members, 'lanes', lane, true)
  end
  waiting[line] = waiting[line] + 1
  head[ARRIVAL] = count('arrivals')
  local member = member_of(head[ARRIVAL], task)
  buffer(scored, 'line:' .. line, member, order)
  if queued then
    head[LATE] = true
    buffer(scored, 'late:' .. line, member, queued)
  end
  hint('task', lane, wakes)
end

local function leave_line(head, task)
  local lane, client = head[LANE], head[CLIENT]
  local line, member = line_of(lane, client), member_of(head[ARRIVAL], task)
  waiting[line] = waiting_in(line) - 1
  buffer(scored, 'line:' .. line, member, false)
  if head[LATE] then
    buffer(scored, 'late:' .. line, member, false)
  end
  if waiting[line] == 0 then
    buffer(scored, 'lane:' .. lane, client, false)
    thinned[lane] = true
  end
  head[LANE], head[ARRIVAL], head[LATE] = '', 0, false
end

local function hold(worker, task)
  buffer(members, 'held:' .. worker, task, true)
  buffer(members, 'holders', worker, true)
end

local function put_down(worker, task)
  buffer(members, 'held:' .. worker, task, false)
  eased[worker] = true
end

-- The ready queue and its leases.

local function make_ready(id, version)
  buffer(scored, 'ready:' .. version, id, count('arrivals'))
  buffer(members, 'versions', version, true)
end

local function leave_ready(id, version)
  buffer(scored, 'ready:' .. version, id, false)
end

local function lease(id, instance, expiry)
  buffer(scored, 'leases', id, expiry)
  buffer(fields, 'owners', id, instance)
end

local function let_go(id)
  buffer(scored, 'leases', id, false)
  buffer(fields, 'owners', id, false)
end

-- `run` names the process of the server. Another one than before may have lost the last second, or have been away:
-- its numbers go on from the clock, above all that were ever given, and no lease lapses for one full lease.
local function note_server_run(run, at)
  if call('HGET', P .. 'pulse', 'run') ~= run then
    for _, name in ipairs({ 'entries', 'sessions' }) do
      counters[name] = math.max(last_of(name), at)
    end
    local longest = tonumber(call('HGET', P .. 'pulse', 'longest') or 0)
    call('HSET', P .. 'pulse', 'run', run, 'calm', digits(at + longest))
  end
end

-- The clock was set back: no lease is longer than the longest.
local function shorten_leases(latest)
  for _, name in ipairs({ 'leases', 'beats' }) do
    for _, member in ipairs(call('ZRANGEBYSCORE', P .. name, '(' .. digits(latest), '+inf')) do
      call('ZADD', P .. name, digits(latest), member)
    end
  end
end

-- Whether leases may lapse now. After the store was silent for long, or its clock was set, nothing does for one full
-- lease.
local function leases_may_lapse(at)
  local pulse = call('HMGET', P .. 'pulse', 'seen', 'calm', 'longest')
  local seen, calm = tonumber(pulse[1]), tonumber(pulse[2] or 0)
  if seen and math.abs(at - seen) > GAP then
    calm = at + tonumber(pulse[3] or 0)
    if at < seen then
      shorten_leases(calm)
    end
  end
  call('HSET', P .. 'pulse', 'seen', digits(at), 'calm', digits(calm))
  return at >= calm
end

-- The newest session of a worker, if the one that is named was replaced or its lease is over: nothing may be offered
-- to that. Else false, also for a worker that was never registered. Each is asked for once.
local newest_if_gone
do
  local gone = {}

  -- Whether leases are not judged now, since the store was away a moment ago.
  local function is_calm(at)
    local pulse = call('HMGET', P .. 'pulse', 'seen', 'calm')
    return tonumber(pulse[2] or 0) > at or at - tonumber(pulse[1] or at) > GAP
  end

  function newest_if_gone(worker, session, at)
    local name = worker .. ' ' .. digits(session)
    if gone[name] == nil then
      local newest = tonumber(call('HGET', P .. 'sessions', worker))
      local lapsed = newest and tonumber(call('ZSCORE', P .. 'beats', worker) or 0) <= at and not is_calm(at)
      gone[name] = newest and (newest > session or lapsed) and newest or false
    end
    return gone[name]
  end
end

-- End the lease of a job, and put the job back in line.
local function requeue(id)
  let_go(id)
  local known = call('HGET', P .. 'job:' .. id, 'm')
  local cell = known and unpacked(known)
  if cell and not cell[ENDED] and cell[cell[OPEN] == 0 and RUNS or RUNS_OPEN] then
    make_ready(id, cell[VERSION])
  end
end

-- The same for all jobs whose lease is over.
local function return_lapsed(at)
  if not leases_may_lapse(at) then
    return
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'leases', '-inf', at, 'LIMIT', 0, 1000)) do
    requeue(id)
  end
  flush_indexes() -- whoever asked for it looks at the ready queue next
end
