-- The load, for wrk: POST with 200 bytes of JSON. Arguments behind `--`:
--
--   plain            the same request every time, without a key
--   same KEY         the same request every time: replays of one record
--   fresh RUN        a new key and a new body each time: first-seen requests
--   cycle RUN KEYS   KEYS keys in turn, over and over: replays of many records
--
-- The last line of the output is for compare.sh:
--   RESULT requests microseconds p50 p99 statuses-over-399 socket-errors made
local BODY_BYTES = 200
local KEY = "%s-%012d"

local function body(ref)
  local head, tail = '{"amount":4200,"currency":"eur","customer":"cus_1","ref":"' .. ref, '"}'
  return head .. string.rep("x", BODY_BYTES - #head - #tail) .. tail
end

local function post(key)
  local headers = { ["Content-Type"] = "application/json", ["Idempotency-Key"] = key }
  return wrk.format("POST", wrk.path, headers, body(key or ""))
end

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  local load, run, keys = arguments[1], arguments[2], tonumber(arguments[3])
  made = 0
  wrk.headers["Content-Type"] = "application/json"
  wrk.method = "POST"
  if load == "plain" then
    wrk.body = body("")
  elseif load == "same" then
    wrk.headers["Idempotency-Key"] = run
    wrk.body = body(run)
  else
    -- Where wrk finds this function it calls it for each request. All of them
    -- are of one length, so one is made with care and the rest by putting in the key.
    local sample = KEY:format(run, 0)
    local parts, from = {}, 1
    local whole = post(sample)
    while true do
      local start, stop = whole:find(sample, from, true)
      if not start then break end
      table.insert(parts, whole:sub(from, start - 1))
      from = stop + 1
    end
    local before, between, after = parts[1], parts[2], whole:sub(from)
    function request()
      made = made + 1
      local key = KEY:format(run, keys and made % keys or made)
      return before .. key .. between .. key .. after
    end
  end
end

function done(summary, latency)
  local errors = summary.errors
  local sent = 0
  for _, thread in ipairs(threads) do
    sent = sent + thread:get("made")
  end
  io.write(string.format("RESULT %d %d %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, sent))
end
