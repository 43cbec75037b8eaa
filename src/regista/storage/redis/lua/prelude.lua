-- prelude: what the scripts share. It stands in front of each of them when they are loaded.
--
-- Keys, all below the prefix KEYS[1] ("regista:{tag}:"):
--   job:<id>          hash: b (body), m (what the store knows, packed), _<visit>_<index> (a task's cell)
--   events:<id>       list: "number first_seq" of the job's entries in the outbox
--   ready:<version>   zset: job by arrival          versions  set of those
--   leases            zset: job by expiry           owners    hash: job -> instance
--   lane:<lane>       zset: client by turn          lanes     set of those
--   line:<lane>\n<client>  zset: arrival and task id, by order key      late:…  those with a priority, by age
--   held:<worker>     set of task ids               holders   set of workers
--   due               zset: J<job> or T<task>, by deadline
--   messages          zset: message by arrival      words     hash: message -> body
--   outbox            stream: <number>-0 -> j (job), s (first seq), b (body)
--   workers, sessions, notes  hash: worker -> body, session, how often it was noted
--   beats             zset: worker by expiry
--   attending         hash: instance -> packed expiry and versions
--   slots             hash: instance -> packed expiry and body
--   counters, pulse   hash; leader:<chore>, secret:<name>, done:<batch>, bucket:<name>  strings
--   (items and quotas: see shelf.lua and quota.lua)
local P = KEYS[1]
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local format, sub, find = string.format, string.sub, string.find

-- What the store knows about a job (field m), by place.
local REVISION, SEQ, OPEN, VERSION, RUNS, RUNS_OPEN, TOKENS, TASKS, ENDED, DUE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
-- The head of a task's cell, by place.
local ATTEMPT, STATE, WORKER, LANE, CLIENT, ARRIVAL, TASK_DUE, RESULT_BY, TIMEOUT, PLACE, LATE, SESSION, PRICE, OFFERED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14

-- Silence after which the store counts as having been away (FENCES 12), in microseconds.
local GAP = 5000000

-- A whole number as text: Lua's own way loses digits above 10^14.
local function digits(number)
  return format('%.0f', number)
end

-- Counters are read once and written once by each script: whoever counts ends with `keep_counters`.
local counters = {}

local function last_of(name)
  return counters[name] or tonumber(call('HGET', P .. 'counters', name) or 0)
end

local function count(name)
  counters[name] = last_of(name) + 1
  return counters[name]
end

local function keep_counters()
  for name, last in pairs(counters) do
    call('HSET', P .. 'counters', name, digits(last))
  end
end

-- Hints: for whoever called, and by one message for all others.

local hints, hinted = {}, {}

-- `to` names the only instance that need act on it.
local function hint(kind, id, to)
  local name = kind .. ' ' .. id .. ' ' .. (to or '')
  if not hinted[name] then
    hinted[name] = true
    hints[#hints + 1] = kind
    hints[#hints + 1] = id
    hints[#hints + 1] = to or ''
  end
end

local function publish(origin)
  local channel = P .. 'hints'
  if #hints > 0 and call('PUBSUB', 'NUMSUB', channel)[2] > 1 then
    call('PUBLISH', channel, pack({ origin, hints }))
  end
end

-- Cells: a head that scripts read and change, and a body that they only carry.

local function join(head, body)
  local packed = pack(head)
  return struct.pack('>I4', #packed) .. packed .. body
end

local function split(cell)
  local size = struct.unpack('>I4', cell)
  return unpacked(sub(cell, 5, size + 4)), sub(cell, size + 5)
end

-- Deadlines.

local earliest

local function set_due(member, at)
  if not earliest then
    earliest = tonumber(call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]) or math.huge
  end
  call('ZADD', P .. 'due', at, member)
  if at <= earliest then
    earliest = at
    hint('deadline', '')
  end
end

-- Lines.

local function line_of(lane, client)
  return lane .. '\n' .. client
end

local function member_of(arrival, task)
  return format('%016.0f', arrival) .. task
end

-- Lines and hands that this script knows not to be empty, which saves it the look.
local standing, holding = {}, {}

local function enter_line(head, task, order, queued, wakes)
  local lane, client = head[LANE], head[CLIENT]
  local line = line_of(lane, client)
  if not standing[line] and not call('ZSCORE', P .. 'lane:' .. lane, client) then
    -- Behind everybody who waits already, or one who sends task after task would always be first.
    call('ZADD', P .. 'lane:' .. lane, count('turns'), client)
    call('SADD', P .. 'lanes', lane)
  end
  standing[line] = true
  head[ARRIVAL] = count('arrivals')
  local member = member_of(head[ARRIVAL], task)
  call('ZADD', P .. 'line:' .. line, order, member)
  if queued then
    head[LATE] = true
    call('ZADD', P .. 'late:' .. line, queued, member)
  end
  hint('task', lane, wakes)
end

local function leave_line(head, task)
  local lane, client = head[LANE], head[CLIENT]
  local line, member = line_of(lane, client), member_of(head[ARRIVAL], task)
  call('ZREM', P .. 'line:' .. line, member)
  if head[LATE] then
    call('ZREM', P .. 'late:' .. line, member)
  end
  if call('EXISTS', P .. 'line:' .. line) == 0 then
    standing[line] = nil
    call('ZREM', P .. 'lane:' .. lane, client)
    if call('EXISTS', P .. 'lane:' .. lane) == 0 then
      call('SREM', P .. 'lanes', lane)
    end
  end
  head[LANE], head[ARRIVAL], head[LATE] = '', 0, false
end

local function hold(worker, task)
  call('SADD', P .. 'held:' .. worker, task)
  if not holding[worker] then
    holding[worker] = true
    call('SADD', P .. 'holders', worker)
  end
end

local function put_down(worker, task)
  call('SREM', P .. 'held:' .. worker, task)
  if call('EXISTS', P .. 'held:' .. worker) == 0 then
    holding[worker] = nil
    call('SREM', P .. 'holders', worker)
  end
end

-- The ready queue and its leases.

local function make_ready(id, version)
  call('ZADD', P .. 'ready:' .. version, count('arrivals'), id)
  call('SADD', P .. 'versions', version)
end

local function lease(id, instance, expiry)
  call('ZADD', P .. 'leases', expiry, id)
  call('HSET', P .. 'owners', id, instance)
end

local function let_go(id)
  if call('HDEL', P .. 'owners', id) == 1 then
    call('ZREM', P .. 'leases', id)
  end
end

-- Leases of any kind: the longest is what everybody gets after an outage.
local function note_lease(length)
  if length > tonumber(call('HGET', P .. 'pulse', 'longest') or 0) then
    call('HSET', P .. 'pulse', 'longest', digits(length))
  end
end

-- `run` names the process of the server. Another one than before may have lost the last second, or have been away:
-- its numbers go on from the clock, above all that were ever given, and no lease lapses for one full lease.
local function meet(run, at)
  if call('HGET', P .. 'pulse', 'run') ~= run then
    for _, name in ipairs({ 'entries', 'sessions' }) do
      counters[name] = math.max(last_of(name), at)
    end
    local longest = tonumber(call('HGET', P .. 'pulse', 'longest') or 0)
    call('HSET', P .. 'pulse', 'run', run, 'calm', digits(at + longest))
  end
end

-- Whether leases may lapse now. After the store was silent for long, nothing does for one full lease.
local function may_judge(at)
  local pulse = call('HMGET', P .. 'pulse', 'seen', 'calm', 'longest')
  local seen, calm = tonumber(pulse[1]), tonumber(pulse[2] or 0)
  if seen and at - seen > GAP then
    calm = at + tonumber(pulse[3] or 0)
  end
  call('HSET', P .. 'pulse', 'seen', digits(at), 'calm', digits(calm))
  return at >= calm
end

-- End the lease of a job, and put the job back in line.
local function put_back(id)
  let_go(id)
  local known = call('HGET', P .. 'job:' .. id, 'm')
  local cell = known and unpacked(known)
  if cell and not cell[ENDED] and cell[cell[OPEN] == 0 and RUNS or RUNS_OPEN] then
    make_ready(id, cell[VERSION])
  end
end

-- The same for all jobs whose lease is over.
local function return_lapsed(at)
  if not may_judge(at) then
    return
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'leases', '-inf', at, 'LIMIT', 0, 1000)) do
    put_back(id)
  end
end

-- The outbox.

-- Forget up to `limit` entries whose number is not above `upto`; returns how many there were.
local function forget_entries(upto, limit)
  local entries = call('XRANGE', P .. 'outbox', '-', upto, 'COUNT', limit)
  for _, entry in ipairs(entries) do
    local events = P .. 'events:' .. entry[2][2]
    local first = call('LINDEX', events, 0)
    if first and find(entry[1], (first:gsub(' .*', '')) .. '-', 1, true) == 1 then
      call('LPOP', events)
    end
  end
  if #entries > 0 then
    local last = tonumber((entries[#entries][1]:gsub('-.*', '')))
    call('XTRIM', P .. 'outbox', 'MINID', digits(last + 1))
  end
  return #entries
end
