-- job: what commit does to one job and its tasks. It follows index.lua in commit.lua.

-- The place of the changes among the arguments; behind them the bodies, which they name by number.
local BODIES = 6
local at = now()

-- A write of a task: its field, its fence, and the task itself, by place; then the line in which it waits, or would.
local FIELD, FENCE, STATES, TASK = 1, 2, 3, 4
local T_BODY, T_ATTEMPT, T_STATE, T_WORKER, T_SESSION, T_DUE, T_CANCEL, T_LINE = 1, 2, 3, 4, 5, 6, 7, 8
local L_LANE, L_CLIENT, L_ORDER, L_QUEUED, L_RESULT_BY, L_TIMEOUT, L_WAKES, L_DUE = 1, 2, 3, 4, 5, 6, 7, 8

local function body_of(number)
  return ARGV[BODIES + number]
end

-- What is done to one job: its heads are read once, and what was put is written with one command.
local function open_job_buffer(id)
  return { id = id, key = P .. 'job:' .. id, heads = {}, puts = {} }
end

local function put(page, field, value)
  page.puts[#page.puts + 1] = field
  page.puts[#page.puts + 1] = value
end

local function close_job_buffer(page)
  in_steps('HSET', page.key, page.puts)
  page.puts = {}
end

-- What the store knows about the job, and the heads of the tasks that these writes fence, with one command.
local function read_job_buffer(page, writes)
  local asked = { 'm' }
  for _, write in ipairs(writes) do
    if write[FENCE] > 0 and #asked < AT_ONCE then
      asked[#asked + 1] = write[FIELD]
    end
  end
  local found = call('HMGET', page.key, unpack(asked))
  page.known = found[1]
  for place = 2, #asked do
    page.heads[asked[place]] = found[place] and (head_in(found[place]))
  end
end

local function head_of(page, field)
  if page.heads[field] == nil then
    local cell = page.known and call('HGET', page.key, field)
    page.heads[field] = cell and (head_in(cell))
  end
  return page.heads[field]
end

local function unlink(task, head)
  if head[LANE] ~= '' then
    leave_line(head, task)
  elseif head[WORKER] ~= '' then
    put_down(head[WORKER], task)
  end
end

-- The fields of all its tasks. The server is asked only when some of them were not read yet.
local function tasks_of(page, cell)
  local found = {}
  for field, head in pairs(page.heads) do
    found[#found + 1] = head and field or nil
  end
  if #found == cell[TASKS] then
    return found
  end
  found = {}
  for _, field in ipairs(call('HKEYS', page.key)) do
    if sub(field, 1, 1) == '_' then
      found[#found + 1] = field
    end
  end
  return found
end

local function drop_tasks(page, cell)
  if cell[TASKS] == 0 then
    return
  end
  close_job_buffer(page)
  local dropped = tasks_of(page, cell)
  for _, field in ipairs(dropped) do
    local head = head_of(page, field)
    unlink(page.id .. field, head)
    if head[TASK_DUE] then
      unset_due('T' .. page.id .. field)
    end
    page.heads[field] = false
  end
  in_steps('HDEL', page.key, dropped)
  cell[TASKS] = 0
end

local put_task
do
  -- Whether it is offered now, to whom nothing may be offered any more.
  local function comes_too_late(task, old)
    if task[T_STATE] ~= 'o' or (old and old[STATE] == 'o' and old[ATTEMPT] == task[T_ATTEMPT]) then
      return false
    end
    return newest_if_gone(task[T_WORKER], task[T_SESSION], at)
  end

  -- The head of a task that was just written. An offer that comes too late waits in line: its body says otherwise.
  local function new_head(task, place, old)
    local head = { task[T_ATTEMPT], task[T_STATE], task[T_WORKER], '', '', 0, task[T_DUE], 0, -1, place, false, 0, 0, 0 }
    local line = task[T_LINE]
    if line and (task[T_STATE] == 'q' or comes_too_late(task, old)) then
      head[STATE], head[WORKER], head[LANE], head[CLIENT] = 'q', '', line[L_LANE], line[L_CLIENT]
      head[TASK_DUE], head[RESULT_BY], head[TIMEOUT] = line[L_DUE], line[L_RESULT_BY], line[L_TIMEOUT]
    end
    return head
  end

  -- False when the task was to be offered, and waits in its lane.
  function put_task(page, cell, field, task)
    local old, name = head_of(page, field), page.id .. field
    if old then
      unlink(name, old)
    else
      cell[TASKS] = cell[TASKS] + 1
    end
    local head = new_head(task, old and old[PLACE] or cell[TASKS], old)
    if head[TASK_DUE] > 0 then
      set_due('T' .. name, head[TASK_DUE])
    elseif old and old[TASK_DUE] then
      unset_due('T' .. name)
    end
    head[TASK_DUE] = head[TASK_DUE] > 0
    if head[LANE] ~= '' then
      local line = task[T_LINE]
      enter_line(head, name, line[L_ORDER], line[L_QUEUED], task[T_STATE] == 'q' and line[L_WAKES])
    elseif head[WORKER] ~= '' then
      hold(head[WORKER], name)
      if task[T_CANCEL] then
        hint('cancel', head[WORKER])
      end
    end
    put(page, field, join(head, body_of(task[T_BODY])))
    page.heads[field] = head
    return head[STATE] == task[T_STATE]
  end
end
