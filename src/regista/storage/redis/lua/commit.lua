-- commit: applies each change whole or refuses it, in order.
-- ARGV: run, batch, origin, milliseconds for which ended jobs stay, entries that the outbox may have, changes (packed);
-- then the bodies, which the changes name by number. Answers a letter per change, and the hints (packed).
local BODIES = 6
local done = P .. 'done:' .. ARGV[2]
local before = call('GET', done)
if before then
  return before -- the batch was applied; only its answer was lost
end

-- A change, by place.
local ID, TOKEN, EXPECTED, JOB, WRITES, DROPS, CLOSES, OPENS, BIRTHS, SAYS, CONSUMES, TELLS, HOLD, INSTANCE, ITEMS, QUOTA =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
-- A quota, by place; a limit below 0 stands for none.
local Q_COUNTER, Q_LIMIT, Q_TTL = 1, 2, 3
-- A job, by place.
local J_BODY, J_REVISION, J_VERSION, J_RUNS, J_RUNS_OPEN, J_DUE, J_TERMINAL, J_SETTLED, J_TOKEN = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- A write of a task: its field, its fence, and the task itself, by place.
local FIELD, FENCE, STATES, TASK = 1, 2, 3, 4
local T_BODY, T_ATTEMPT, T_STATE, T_WORKER, T_LANE, T_CLIENT, T_ORDER, T_QUEUED, T_DUE, T_RESULT_BY, T_TIMEOUT, T_CANCEL, T_WAKES =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13

-- Bytes of tokens that a job remembers: some thirty of them. A repetition comes within milliseconds.
local TOKEN_BYTES = 600
-- Fields that one command takes away; Lua cannot hand over many thousands at once.
local AT_ONCE = 1000
-- How long the answer of a batch is kept for a repetition, in milliseconds.
local DONE_MS = 120000

local ended_ms, outbox_limit = ARGV[4], tonumber(ARGV[5])
local at = now()
meet(ARGV[1], at)
local told = 0

local function body_of(number)
  return ARGV[BODIES + number]
end

local function knows(cell, token)
  return find(cell[TOKENS], '|' .. token .. '|', 1, true) ~= nil
end

local function remember(cell, token)
  local tokens = cell[TOKENS] .. token .. '|'
  while #tokens > TOKEN_BYTES do
    tokens = sub(tokens, (find(tokens, '|', 2, true)))
  end
  cell[TOKENS] = tokens
end

-- What is done to one job: its heads are read once, and what was put is written with one command.
local function open_page(id)
  return { id = id, key = P .. 'job:' .. id, heads = {}, puts = {} }
end

local function put(page, field, value)
  page.puts[#page.puts + 1] = field
  page.puts[#page.puts + 1] = value
end

local function close_page(page)
  for first = 1, #page.puts, AT_ONCE do
    call('HSET', page.key, unpack(page.puts, first, math.min(first + AT_ONCE - 1, #page.puts)))
  end
  page.puts = {}
end

local function head_of(page, field)
  if page.heads[field] == nil then
    local cell = page.known and call('HGET', page.key, field)
    page.heads[field] = cell and split(cell) or false
  end
  return page.heads[field]
end

local function fences_hold(change, page)
  for _, write in ipairs(change[WRITES]) do
    if write[FENCE] > 0 then
      local head = head_of(page, write[FIELD])
      if not (head and head[ATTEMPT] == write[FENCE] and find(write[STATES], head[STATE], 1, true)) then
        return false
      end
    end
  end
  return true
end

-- The letter of a refusal, or nil.
local function refuse(change, cell, page)
  local job = change[JOB]
  local creates = job and change[EXPECTED] < 0
  if cell and cell[ENDED] then
    return knows(cell, change[TOKEN]) and 'r' or creates and 'e' or 's'
  elseif creates then
    if cell then
      return knows(cell, change[TOKEN]) and 'r' or 'e'
    end
    local quota = change[QUOTA]
    if quota and quota[Q_LIMIT] >= 0 and used_of(quota[Q_COUNTER], at) >= quota[Q_LIMIT] then
      return 'q'
    end
  elseif not cell then
    return 'm'
  elseif change[EXPECTED] >= 0 and cell[REVISION] ~= change[EXPECTED] then
    return knows(cell, change[TOKEN]) and 'r' or 's'
  end
  if not fences_hold(change, page) then
    return 's'
  end
  if change[CONSUMES] and not call('ZSCORE', P .. 'messages', change[CONSUMES]) then
    return 's'
  end
end

local function consume(id)
  call('HDEL', P .. 'words', id)
  return call('ZREM', P .. 'messages', id) == 1
end

local function unlink(task, head)
  if head[LANE] ~= '' then
    leave_line(head, task)
  elseif head[WORKER] ~= '' then
    put_down(head[WORKER], task)
  end
end

local function drop_tasks(page, cell)
  if cell[TASKS] == 0 then
    return
  end
  close_page(page)
  local fields = {}
  for _, field in ipairs(call('HKEYS', page.key)) do
    if sub(field, 1, 1) == '_' then
      fields[#fields + 1] = field
    end
  end
  for _, field in ipairs(fields) do
    local head = head_of(page, field)
    unlink(page.id .. field, head)
    if head[TASK_DUE] then
      call('ZREM', P .. 'due', 'T' .. page.id .. field)
    end
    page.heads[field] = false
  end
  for first = 1, #fields, AT_ONCE do
    call('HDEL', page.key, unpack(fields, first, math.min(first + AT_ONCE - 1, #fields)))
  end
  cell[TASKS] = 0
end

local function put_task(page, cell, field, task)
  local old, name = head_of(page, field), page.id .. field
  local place
  if old then
    unlink(name, old)
    place = old[PLACE]
  else
    cell[TASKS] = cell[TASKS] + 1
    place = cell[TASKS]
  end
  local head = {
    task[T_ATTEMPT], task[T_STATE], task[T_WORKER], task[T_LANE], task[T_CLIENT], 0, task[T_DUE] > 0,
    task[T_RESULT_BY], task[T_TIMEOUT], place, false, 0, 0, 0,
  }
  if task[T_DUE] > 0 then
    set_due('T' .. name, task[T_DUE])
  elseif old and old[TASK_DUE] then
    call('ZREM', P .. 'due', 'T' .. name)
  end
  if head[LANE] ~= '' then
    enter_line(head, name, task[T_ORDER], task[T_QUEUED], task[T_WAKES])
  elseif head[WORKER] ~= '' then
    hold(head[WORKER], name)
    if task[T_CANCEL] then
      hint('cancel', head[WORKER])
    end
  end
  put(page, field, join(head, body_of(task[T_BODY])))
  page.heads[field] = head
end

local function tell(id, cell, entry)
  local number, first = digits(count('entries')), cell[SEQ] + 1
  call('XADD', P .. 'outbox', number .. '-0', 'j', id, 's', first, 'b', body_of(entry[1]))
  call('RPUSH', P .. 'events:' .. id, number .. ' ' .. first)
  cell[SEQ] = cell[SEQ] + entry[2]
  told = told + 1
end

local function new_cell(version)
  return { 0, 0, 0, version, false, false, '|', 0, false, false }
end

local function put_job(page, cell, job)
  if cell[VERSION] ~= job[J_VERSION] then
    call('ZREM', P .. 'ready:' .. cell[VERSION], page.id)
    cell[VERSION] = job[J_VERSION]
  end
  cell[REVISION], cell[RUNS], cell[RUNS_OPEN] = job[J_REVISION], job[J_RUNS], job[J_RUNS_OPEN]
  remember(cell, job[J_TOKEN])
  if job[J_DUE] > 0 then
    set_due('J' .. page.id, job[J_DUE])
  elseif cell[DUE] then
    call('ZREM', P .. 'due', 'J' .. page.id)
  end
  cell[DUE] = job[J_DUE] > 0
  put(page, 'b', body_of(job[J_BODY]))
end

local function put_in_line(id, cell)
  make_ready(id, cell[VERSION])
  hint('ready', '')
end

local function bear(birth)
  local page, job, entry = open_page(birth[1]), birth[2], birth[3]
  if call('EXISTS', page.key) == 1 then
    return -- its id follows from the parent's visit: it was born in an earlier, equal write
  end
  local cell = new_cell(job[J_VERSION])
  put_job(page, cell, job)
  if entry then
    tell(page.id, cell, entry)
  end
  put_in_line(page.id, cell)
  put(page, 'm', pack(cell))
  close_page(page)
end

-- What follows from the new state: ready entry, lease, or the end. True if a branch woke the job.
local function settle(change, page, cell)
  local id, job = change[ID], change[JOB]
  if not job then
    local woken = change[CLOSES] > 0 and cell[OPEN] == 0 and cell[RUNS]
    if woken then
      put_in_line(id, cell)
    end
    return woken
  end
  if page.known then
    let_go(id)
    call('ZREM', P .. 'ready:' .. cell[VERSION], id)
  end
  if job[J_TERMINAL] then
    drop_tasks(page, cell)
    cell[ENDED] = true
  elseif cell[cell[OPEN] == 0 and RUNS or RUNS_OPEN] then
    if change[HOLD] >= 0 then
      lease(id, change[INSTANCE], at + change[HOLD])
      note_lease(change[HOLD])
    else
      put_in_line(id, cell)
    end
  end
  if job[J_SETTLED] then
    hint('changed', id)
  end
  return false
end

local function say(word)
  call('HSET', P .. 'words', word[1], body_of(word[3]))
  call('ZADD', P .. 'messages', 'NX', count('arrivals'), word[1])
  hint('message', word[2])
end

local function put_items(change)
  if change[ITEMS] then
    sweep_items(at)
    for _, item in ipairs(change[ITEMS]) do
      put_item(item, item[W_BODY] > 0 and body_of(item[W_BODY]), at, false)
    end
  end
end

local function write(change, page, cell)
  local job = change[JOB]
  if change[DROPS] then
    drop_tasks(page, cell)
  end
  for _, task in ipairs(change[WRITES]) do
    if task[TASK] then
      put_task(page, cell, task[FIELD], task[TASK])
    end
  end
  cell[OPEN] = (change[OPENS] >= 0 and change[OPENS] or cell[OPEN]) - change[CLOSES]
  for _, birth in ipairs(change[BIRTHS]) do
    bear(birth)
  end
  for _, word in ipairs(change[SAYS]) do
    say(word)
  end
  if change[CONSUMES] then
    consume(change[CONSUMES])
  end
  put_items(change)
  if change[QUOTA] and not page.known then
    count_use(change[QUOTA][Q_COUNTER], change[QUOTA][Q_TTL], at)
  end
  if job then
    put_job(page, cell, job)
  end
  if change[TELLS] then
    tell(page.id, cell, change[TELLS])
  end
  local woken = settle(change, page, cell)
  put(page, 'm', pack(cell))
  close_page(page)
  if cell[ENDED] then
    call('PEXPIRE', page.key, ended_ms)
    call('PEXPIRE', P .. 'events:' .. page.id, ended_ms)
  end
  return woken
end

local function apply(change)
  local job = change[JOB]
  if not job and #change[WRITES] == 0 then
    if not (change[CONSUMES] and consume(change[CONSUMES])) then
      return 's'
    end
    put_items(change)
    return 'a'
  end
  local page = open_page(change[ID])
  page.known = call('HGET', page.key, 'm')
  local cell = page.known and unpacked(page.known)
  local refusal = refuse(change, cell, page)
  if refusal then
    return refusal
  end
  return write(change, page, cell or new_cell(job[J_VERSION])) and 'w' or 'a'
end

local answers = {}
for number, change in ipairs(unpacked(ARGV[BODIES])) do
  answers[number] = apply(change)
end
if told > 0 then
  hint('outbox', '')
  local above = call('XLEN', P .. 'outbox') - outbox_limit
  if above > 0 then
    forget_entries('+', math.min(above, 2 * told + 100)) -- nobody prunes it, and it must not grow for ever
  end
end
keep_counters()
publish(ARGV[3])
local answer = table.concat(answers) .. '\n' .. pack(hints)
call('SET', done, answer, 'PX', DONE_MS)
return answer
