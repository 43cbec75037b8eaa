-- records: what the scripts about records share. It follows common.lua in them.
--
-- Keys, all below the prefix:
--   shelf:<shelf>     zset without scores: the keys of a shelf, in their order
--   items:<shelf>     hash: key -> cell, whose head is named below and whose body is the value
--   ripe:<shelf>      zset: key by due time
--   ends              zset: packed shelf and key, by when their time is over

-- The head of an item's cell, by place. `due` is false or microseconds since 1970, `ends` likewise.
local I_REVISION, I_DUE, I_ENDS = 1, 2, 3
-- A write, by place: body 0 removes; a revision or a time to live below 0 stands for none.
local W_SHELF, W_KEY, W_BODY, W_DUE, W_TTL, W_EXPECTED = 1, 2, 3, 4, 5, 6

-- Items that one script sweeps out: a server that sweeps for long answers nobody else.
local SWEPT_AT_ONCE = 100
-- What is due in more microseconds than this is no news: whoever waits looks again every two seconds anyway.
local SOON = 2000000

local function is_over(head, at)
  return head[I_ENDS] and head[I_ENDS] <= at
end

local function head_of_item(shelf, key)
  local cell = call('HGET', P .. 'items:' .. shelf, key)
  return cell and (head_in(cell))
end

-- Note when an item is due and when its time is over, where that is another word than before.
local function put_times(shelf, key, old, due, ends)
  if due then
    call('ZADD', P .. 'ripe:' .. shelf, digits(due), key)
  elseif old and old[I_DUE] then
    call('ZREM', P .. 'ripe:' .. shelf, key)
  end
  if ends then
    call('ZADD', P .. 'ends', digits(ends), pack({ shelf, key }))
  elseif old and old[I_ENDS] then
    call('ZREM', P .. 'ends', pack({ shelf, key }))
  end
end

local function remove_item(shelf, key, head)
  call('HDEL', P .. 'items:' .. shelf, key)
  call('ZREM', P .. 'shelf:' .. shelf, key)
  put_times(shelf, key, head, false, false)
end

local function sweep_items(at)
  for _, name in ipairs(call('ZRANGE', P .. 'ends', '-inf', digits(at), 'BYSCORE', 'LIMIT', 0, SWEPT_AT_ONCE)) do
    local place = unpacked(name)
    local head = head_of_item(place[1], place[2])
    if head then
      remove_item(place[1], place[2], head)
    else
      call('ZREM', P .. 'ends', name)
    end
  end
end

-- True unless the fence does not hold. `value` is what the item shall be.
local function put_item(write, value, at, fenced)
  local shelf, key = write[W_SHELF], write[W_KEY]
  local old = head_of_item(shelf, key)
  local revision = old and not is_over(old, at) and old[I_REVISION] or 0
  if fenced and write[W_EXPECTED] >= 0 and write[W_EXPECTED] ~= revision then
    return false
  end
  if value then
    local due, ends = write[W_DUE], write[W_TTL] >= 0 and at + write[W_TTL]
    call('HSET', P .. 'items:' .. shelf, key, join({ revision + 1, due, ends }, value))
    if not old then
      call('ZADD', P .. 'shelf:' .. shelf, 0, key)
    end
    put_times(shelf, key, old, due, ends)
  elseif old then
    remove_item(shelf, key, old)
  end
  if value and write[W_DUE] and write[W_DUE] <= at + SOON then
    hint('record', shelf)
  end
  return true
end

-- Adds keys and cells to `found`, in turn, until it has `limit` of them; those whose time is over are left out.
local function add_living(found, shelf, keys, limit, at)
  local cells = #keys > 0 and call('HMGET', P .. 'items:' .. shelf, unpack(keys)) or {}
  for place, key in ipairs(keys) do
    if #found < 2 * limit and cells[place] and not is_over((head_in(cells[place])), at) then
      found[#found + 1] = key
      found[#found + 1] = cells[place]
    end
  end
end
