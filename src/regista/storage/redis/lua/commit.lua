-- commit: applies each change whole or refuses it, in order.
-- ARGV: run, batch, origin, milliseconds for which ended jobs stay, entries that the outbox may have, changes (packed);
-- then the bodies, which the changes name by number. Answers (packed) a letter per change, the hints, and the tasks that
-- were not offered (number of the change and task id in turn).
local done = P .. 'done:' .. ARGV[2]
local before = call('GET', done)
if before then
  return before -- the batch was applied; only its answer was lost
end

-- A change, by place; what few changes have stands in a table of its own, or true there says that it drops the tasks.
local ID, TOKEN, EXPECTED, JOB, WRITES, TELLS, EVENTS, REST = 1, 2, 3, 4, 5, 6, 7, 8
local DROPS, CLOSES, OPENS, BIRTHS, SAYS, CONSUMES, HOLD, INSTANCE, ITEMS, QUOTA = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local PLAIN = { false, 0, -1, {}, {}, false, -1, '', false, false }
local DROPPING = { true, 0, -1, {}, {}, false, -1, '', false, false }
-- A quota, by place; a limit below 0 stands for none.
local Q_COUNTER, Q_LIMIT, Q_TTL = 1, 2, 3
-- A job, by place. Flags: r (runnable), o (even with open branches), t (settled), e (ended).
local J_BODY, J_REVISION, J_VERSION, J_DUE, J_TOKEN, J_FLAGS = 1, 2, 3, 4, 5, 6
-- Bytes of tokens that a job remembers: some thirty of them. A repetition comes within milliseconds.
local TOKEN_BYTES = 600
-- Bytes of entries that a job's cell names: some fifty of them. Those before them are in a list of their own.
local ENTRY_BYTES = 1000
-- How long the answer of a batch is kept for a repetition, in milliseconds.
local DONE_MS = 120000

local ended_ms, outbox_limit = ARGV[4], tonumber(ARGV[5])
note_server_run(ARGV[1], at)
local not_offered = {}
local told, number_of_change = 0, 0

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
    local quota = change[REST][QUOTA]
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
  local consumes = change[REST][CONSUMES]
  if consumes and not call('ZSCORE', P .. 'messages', consumes) then
    return 's'
  end
end

local function consume(id)
  call('HDEL', P .. 'words', id)
  return call('ZREM', P .. 'messages', id) == 1
end

-- Move what the cell names of the job's entries to the list, and forget there what has left the outbox.
local function spill(id, cell)
  local events = P .. 'events:' .. id
  call('RPUSH', events, cell[ENTRIES])
  cell[ENTRIES], cell[SPILLED] = '', true
  local oldest = call('XRANGE', P .. 'outbox', '-', '+', 'COUNT', 1)[1]
  local from = oldest and tonumber(string.match(oldest[1], '%d+')) or math.huge
  local first = call('LINDEX', events, 0)
  while first and tonumber(string.match(first, '(%d+) %d+;?$')) < from do
    call('LPOP', events)
    first = call('LINDEX', events, 0)
  end
end

local function append_event(id, cell, body, events)
  local number, first = digits(count('entries')), cell[SEQ] + 1
  call('XADD', P .. 'outbox', number .. '-0', 'j', id, 's', first, 'b', body_of(body))
  cell[ENTRIES] = (cell[ENTRIES] or '') .. number .. ' ' .. first .. ';'
  if #cell[ENTRIES] > ENTRY_BYTES then
    spill(id, cell)
  end
  cell[SEQ] = cell[SEQ] + events
  told = told + 1
end

local function new_cell(version)
  return { 0, 0, 0, version, false, false, '|', 0, false, false, '', false }
end

local function has(job, flag)
  return find(job[J_FLAGS], flag, 1, true) ~= nil
end

local function put_job(page, cell, job)
  if cell[VERSION] ~= job[J_VERSION] then
    leave_ready(page.id, cell[VERSION])
    cell[VERSION] = job[J_VERSION]
  end
  cell[REVISION], cell[RUNS], cell[RUNS_OPEN] = job[J_REVISION], has(job, 'r'), has(job, 'o')
  remember(cell, job[J_TOKEN])
  if job[J_DUE] > 0 then
    set_due('J' .. page.id, job[J_DUE])
  elseif cell[DUE] then
    unset_due('J' .. page.id)
  end
  cell[DUE] = job[J_DUE] > 0
  put(page, 'b', body_of(job[J_BODY]))
end

local function put_in_line(id, cell)
  make_ready(id, cell[VERSION])
  hint('ready', '')
end

-- What follows from the new state: ready entry, lease, or the end. True if a branch woke the job.
local function settle(change, page, cell)
  local id, job, rest = change[ID], change[JOB], change[REST]
  if not job then
    local woken = rest[CLOSES] > 0 and cell[OPEN] == 0 and cell[RUNS]
    if woken then
      put_in_line(id, cell)
    end
    return woken
  end
  if page.ran then
    let_go(id)
    leave_ready(id, cell[VERSION])
  end
  if has(job, 'e') then
    drop_tasks(page, cell)
    cell[ENDED] = true
  elseif cell[cell[OPEN] == 0 and RUNS or RUNS_OPEN] then
    if rest[HOLD] >= 0 then
      lease(id, rest[INSTANCE], at + rest[HOLD])
      note_lease(rest[HOLD])
    else
      put_in_line(id, cell)
    end
  end
  if has(job, 't') then
    hint('changed', id)
  end
  return false
end

local function put_items(items)
  if items then
    sweep_items(at)
    for _, item in ipairs(items) do
      put_item(item, item[W_BODY] > 0 and body_of(item[W_BODY]), at, false)
    end
  end
end

-- What few changes do beside the rest.
local write_rest
do
  -- A birth and a message, by place.
  local B_ID, B_JOB, B_TELLS, B_EVENTS = 1, 2, 3, 4
  local M_ID, M_TO, M_BODY = 1, 2, 3

  local function create_child(birth)
    local page, job = open_job_buffer(birth[B_ID]), birth[B_JOB]
    if call('EXISTS', page.key) == 1 then
      return -- its id follows from the parent's visit: it was born in an earlier, equal write
    end
    local cell = new_cell(job[J_VERSION])
    put_job(page, cell, job)
    if birth[B_TELLS] > 0 then
      append_event(page.id, cell, birth[B_TELLS], birth[B_EVENTS])
    end
    put_in_line(page.id, cell)
    put(page, 'm', pack(cell))
    close_job_buffer(page)
  end

  local function say(word)
    call('HSET', P .. 'words', word[M_ID], body_of(word[M_BODY]))
    call('ZADD', P .. 'messages', 'NX', count('arrivals'), word[M_ID])
    hint('message', word[M_TO])
  end

  function write_rest(rest, page, cell)
    cell[OPEN] = (rest[OPENS] >= 0 and rest[OPENS] or cell[OPEN]) - rest[CLOSES]
    for _, birth in ipairs(rest[BIRTHS]) do
      create_child(birth)
    end
    for _, word in ipairs(rest[SAYS]) do
      say(word)
    end
    if rest[CONSUMES] then
      consume(rest[CONSUMES])
    end
    put_items(rest[ITEMS])
    if rest[QUOTA] and not page.known then
      count_use(rest[QUOTA][Q_COUNTER], rest[QUOTA][Q_TTL], at)
    end
  end
end

local function write(change, page, cell)
  local job, rest = change[JOB], change[REST]
  if rest[DROPS] then
    drop_tasks(page, cell)
  end
  for _, task in ipairs(change[WRITES]) do
    if task[TASK] then
      if not put_task(page, cell, task[FIELD], task[TASK]) then
        not_offered[#not_offered + 1] = number_of_change
        not_offered[#not_offered + 1] = page.id .. task[FIELD]
      end
    end
  end
  if rest ~= PLAIN and rest ~= DROPPING then
    write_rest(rest, page, cell)
  end
  if job then
    put_job(page, cell, job)
  end
  if change[TELLS] > 0 then
    append_event(page.id, cell, change[TELLS], change[EVENTS])
  end
  local woken = settle(change, page, cell)
  put(page, 'm', pack(cell))
  close_job_buffer(page)
  if cell[ENDED] then
    call('PEXPIRE', page.key, ended_ms)
    if cell[SPILLED] ~= false then
      call('PEXPIRE', P .. 'events:' .. page.id, ended_ms)
    end
  end
  return woken
end

local function apply(change)
  local job, rest = change[JOB], change[REST] or PLAIN
  rest = rest == true and DROPPING or rest
  change[REST] = rest
  if not job and #change[WRITES] == 0 then
    if not (rest[CONSUMES] and consume(rest[CONSUMES])) then
      return 's'
    end
    put_items(rest[ITEMS])
    return 'a'
  end
  local page = open_job_buffer(change[ID])
  read_job_buffer(page, change[WRITES])
  local cell = page.known and unpacked(page.known)
  page.ran = cell and (cell[RUNS] or cell[RUNS_OPEN]) -- else nobody holds it, and it is in no ready queue
  local refusal = refuse(change, cell, page)
  if refusal then
    return refusal
  end
  return write(change, page, cell or new_cell(job[J_VERSION])) and 'w' or 'a'
end

local answers = {}
for number, change in ipairs(unpacked(ARGV[BODIES])) do
  number_of_change = number
  answers[number] = apply(change)
end
if told > 0 then
  hint('outbox', '')
  local entries = call('XLEN', P .. 'outbox')
  if entries > outbox_limit then -- nobody prunes it, and it must not grow for ever
    call('XTRIM', P .. 'outbox', 'MAXLEN', math.max(outbox_limit, entries - 2 * told - 100))
  end
end
flush_indexes()
publish(ARGV[3])
local answer = pack({ table.concat(answers), hints, not_offered })
call('SET', done, answer, 'PX', DONE_MS)
return answer
