-- One step of a record's life: compare and set, at the server's time.
--
-- KEYS[1]  the record's key
-- ARGV     expected  the row as the caller knows it; '' for none
--          next      the row to be written; '' to look only
--          shape     'open' or 'closed', of the row to be written
--          due       when a closed row has to be cut down (ms); '' for never
--          expires   when the row to be written vanishes (ms); '' for never
--          earliest  the step is taken from this time of the server on (ms) …
--          latest    … and not after this one, so that a step that was long on
--                    its way refuses itself
--          waits     '1': the caller wants to be told when an open row settles
--          channel   where who waits is told
--          news      what they are told; '' for nothing
--          now       the time (ms), instead of the server's own; '' outside tests
--
-- Returns the time (ms), 'written' | 'found' | 'untimely' | 'foreign', and the
-- row that was found, if there is one.
--
-- A row that something may still come of is a hash: an open one waits for its
-- truth or its next attempt, one with a due date for being cut down. A row that
-- ends by itself is a string. So SCAN finds the former by their type.

local key = KEYS[1]
local expected, next_row, shape, due, expires, earliest, latest, waits, channel, news, now = unpack(ARGV)

if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = tonumber(now)
end

local kind = redis.call('TYPE', key).ok
local row, waited = false, false
if kind == 'string' then
  row = redis.call('GET', key)
elseif kind == 'hash' then
  local fields = redis.call('HMGET', key, 'row', 'waited')
  row, waited = fields[1], fields[2]
end
if kind ~= 'none' and (not row or row == '') then
  return { now, 'foreign' }
end

if (row or '') ~= expected or next_row == '' then
  if waits == '1' and kind == 'hash' and not waited then
    -- Where there is no memory left for it, waiting costs a second at the end;
    -- what the row says can be told all the same.
    redis.pcall('HSET', key, 'waited', '1')
  end
  return { now, 'found', row }
end
if now < tonumber(earliest) or now > tonumber(latest) then
  return { now, 'untimely', row }
end

-- First a write that needs no memory: behind one a script may go on where there
-- is none left, so whatever is known can still be settled. What stands there is
-- replaced in one command: if that is refused, it stands as it was. And it never
-- goes in between: a slot that is moving to another server has no place for a
-- key that is made anew.
if kind == 'hash' then
  redis.call('HDEL', key, 'due')
elseif row then
  redis.call('PERSIST', key)
end
local left = expires ~= '' and math.floor(tonumber(expires) - now)
if left and left <= 0 then
  redis.call('DEL', key)
elseif shape == 'closed' and due == '' then
  if left then
    redis.call('SET', key, next_row, 'PX', left)
  else
    redis.call('SET', key, next_row)
  end
else
  if kind == 'string' then
    -- Its time is over, or it is an answer that is being cut down.
    redis.call('DEL', key)
  end
  redis.call('HSET', key, 'row', next_row)
  if due ~= '' then
    redis.call('HSET', key, 'due', due)
  end
  if waited and news ~= '' then
    redis.call('HDEL', key, 'waited')
  end
  if left then
    redis.call('PEXPIRE', key, left)
  elseif row then
    redis.call('PERSIST', key)
  end
end
if waited and news ~= '' then
  -- A message that cannot be sent costs those who wait a second.
  redis.pcall('PUBLISH', channel, news)
end
return { now, 'written' }
