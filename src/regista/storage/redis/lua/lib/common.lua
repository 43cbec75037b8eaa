-- common: what all scripts share. It stands in front of each of them when they are loaded.
--
-- Keys, all below the prefix KEYS[1] ("regista:{tag}:"):
--   job:<id>          hash: b (body), m (what the store knows, packed), _<visit>_<index> (a task's cell)
--   events:<id>       list: "number first_seq;…" of the job's entries in the outbox, before those that m names
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
--   counters, pulse   hash; leader:<chore>, done:<batch>, bucket:<name>  strings
--   (records and quotas: see records.lua and quota.lua)
local P = KEYS[1]
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local format, sub, find = string.format, string.sub, string.find

-- What the store knows about a job (field m), by place.
local REVISION, SEQ, OPEN, VERSION, RUNS, RUNS_OPEN, TOKENS, TASKS, ENDED, DUE, ENTRIES, SPILLED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
-- The head of a task's cell, by place.
local ATTEMPT, STATE, WORKER, LANE, CLIENT, ARRIVAL, TASK_DUE, RESULT_BY, TIMEOUT, PLACE, LATE, SESSION, PRICE, OFFERED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14

-- Silence after which the store counts as having been away (FENCES 12), in microseconds.
local GAP = 5000000
-- Words that one command takes; Lua cannot hand over many thousands at once.
local AT_ONCE = 1000

-- A whole number as text: Lua's own way loses digits above 10^14.
local function digits(number)
  return format('%.0f', number)
end

-- Counters are read once and written once by each script, and so are the indexes: what is said about their members is
-- buffered, and written with one command for each index. The last word about a member counts, as if each had been
-- written in turn; so a script looks into an index before it says anything about it, or keeps count by itself.
-- A script that counts or buffers ends with `flush_indexes`.
local counters = {}
local scored, members, fields = {}, {}, {}

local function last_of(name)
  return counters[name] or tonumber(call('HGET', P .. 'counters', name) or 0)
end

local function count(name)
  counters[name] = last_of(name) + 1
  return counters[name]
end

-- The value of a member: its score in a sorted set, true in a set, a text in a hash; false takes it out.
local function buffer(indexes, key, member, value)
  local index = indexes[key]
  if not index then
    index = {}
    indexes[key] = index
  end
  index[member] = value
end

local function in_steps(command, key, words)
  for first = 1, #words, AT_ONCE do
    call(command, key, unpack(words, first, math.min(first + AT_ONCE - 1, #words)))
  end
end

-- Lanes and workers' hands from which something was taken: when they are empty, nobody need know them.
local thinned, eased = {}, {}

-- Lua allows no more than 200 names side by side: those that only one function needs stand in a block with it.
local flush_indexes
do
  -- `places` says where the value of a member stands beside it: before (-1), after (1) or nowhere (0).
  local function write_indexes(indexes, add, remove, places)
    for key, index in pairs(indexes) do
      local added, removed = {}, {}
      for member, value in pairs(index) do
        if value == false then
          removed[#removed + 1] = member
        elseif places == 0 then
          added[#added + 1] = member
        else
          added[#added + 1] = places < 0 and value or member
          added[#added + 1] = places < 0 and member or value
        end
      end
      in_steps(add, P .. key, added)
      in_steps(remove, P .. key, removed)
    end
  end

  local function forget_empty(names, kind, known)
    for name in pairs(names) do
      if call('EXISTS', P .. kind .. name) == 0 then
        call('SREM', P .. known, name)
      end
    end
  end

  function flush_indexes()
    for name, last in pairs(counters) do
      call('HSET', P .. 'counters', name, digits(last))
    end
    write_indexes(scored, 'ZADD', 'ZREM', -1)
    write_indexes(members, 'SADD', 'SREM', 0)
    write_indexes(fields, 'HSET', 'HDEL', 1)
    forget_empty(thinned, 'lane:', 'lanes')
    forget_empty(eased, 'held:', 'holders')
    scored, members, fields, thinned, eased = {}, {}, {}, {}, {}
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

-- `origin` names the caller, who is one of those who listen; it is empty while it does not.
local function publish(origin)
  local channel = P .. 'hints'
  if #hints > 0 and call('PUBSUB', 'NUMSUB', channel)[2] > (origin == '' and 0 or 1) then
    call('PUBLISH', channel, pack({ origin, hints }))
  end
end

-- Cells: a head that scripts read and change, and a body that they only carry.

local function join(head, body)
  local packed = pack(head)
  return struct.pack('>I4', #packed) .. packed .. body
end

local function head_in(cell)
  local size = struct.unpack('>I4', cell)
  return unpacked(sub(cell, 5, size + 4)), size + 5
end

local function split(cell)
  local head, first = head_in(cell)
  return head, sub(cell, first)
end

-- Leases of any kind: the longest is what everybody gets after an outage.
local function note_lease(length)
  if length > tonumber(call('HGET', P .. 'pulse', 'longest') or 0) then
    call('HSET', P .. 'pulse', 'longest', digits(length))
  end
end
