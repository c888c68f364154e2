-- Idempotency in front of an API, by nginx and Redis: what a good engineer
-- writes today in an afternoon. One command claims the key, the request goes to
-- the destination, a second command stores the answer; a retry gets it again.
--
-- It is here to be measured against, not to be used: a claim that lapses, an
-- answer that is lost or a Redis that forgets makes the request run twice.
local redis = require "nginx.redis"

local CLAIM_SECONDS, KEEP_SECONDS = 60, 86400
local TIMEOUT_MS, IDLE_MS, POOL = 1000, 60000, 256

local function refuse(status, why)
  ngx.status = status
  ngx.header["Content-Type"] = "application/problem+json"
  ngx.say('{"status":' .. status .. ',"title":"' .. why .. '"}')
end

-- Runs one command on a pooled connection. The connection is not held while the
-- destination works: a slow one would need a connection for each request.
local function ask(command, ...)
  local connection = redis:new()
  connection:set_timeout(TIMEOUT_MS)
  local is_connected, why = connection:connect("127.0.0.1", ngx.var.redis_port)
  if not is_connected then return nil, why end
  local reply, failure = connection[command](connection, ...)
  if reply == nil or reply == false then
    connection:close()
    return nil, failure
  end
  connection:set_keepalive(IDLE_MS, POOL)
  return reply
end

-- A row is the fingerprint, and once there is an answer its status, two headers
-- and its body: one line each, since a header's value has no line breaks.
local function row(fingerprint, answer)
  if not answer then return fingerprint .. "\n" end
  local header = answer.header
  return table.concat({
    fingerprint, answer.status, header["Content-Type"] or "", header["Location"] or "", answer.body,
  }, "\n")
end

local function replay(stored, fingerprint)
  local its_fingerprint, rest = stored:match("^(%x+)\n(.*)$")
  if its_fingerprint ~= fingerprint then return refuse(422, "key reused with other parameters") end
  if rest == "" then
    ngx.header["Retry-After"] = "1"
    return refuse(409, "request in flight")
  end
  local status, content_type, location, body = rest:match("^(%d+)\n([^\n]*)\n([^\n]*)\n(.*)$")
  ngx.status = tonumber(status)
  ngx.header["Content-Type"] = content_type
  if location ~= "" then ngx.header["Location"] = location end
  ngx.header["Idempotent-Replayed"] = "true"
  ngx.header["Content-Length"] = #body
  ngx.print(body)
end

local function handle(destination)
  local key = ngx.var.http_idempotency_key
  if not key or key == "" then return refuse(400, "key missing") end
  local method, uri = ngx.req.get_method(), ngx.var.request_uri
  -- It tells a retry from a mistake and keeps no secret: the cheapest digest will do.
  local fingerprint = ngx.md5(method .. "\n" .. uri .. "\n" .. (ngx.req.get_body_data() or ""))
  local name = "idempotency:" .. (ngx.var.http_authorization or "") .. ":" .. key

  local claimed, why = ask("set", name, row(fingerprint), "NX", "EX", CLAIM_SECONDS)
  if not claimed then return refuse(503, "store unavailable") end
  if claimed == ngx.null then
    local stored
    stored, why = ask("get", name)
    if not stored then return refuse(503, "store unavailable") end
    -- It lapsed between the two commands.
    if stored == ngx.null then return refuse(409, "request in flight") end
    return replay(stored, fingerprint)
  end

  local answer = ngx.location.capture(destination .. uri, { method = ngx["HTTP_" .. method], always_forward_body = true })
  -- The usual choice: after an error the client may try again under the same
  -- key, whatever the destination did before it failed.
  local ok
  if answer.status >= 500 or answer.truncated then
    ok, why = ask("del", name)
  else
    ok, why = ask("set", name, row(fingerprint, answer), "EX", KEEP_SECONDS)
  end
  if not ok then ngx.log(ngx.ERR, "the answer could not be stored: ", why) end

  ngx.status = answer.status
  ngx.header["Content-Type"] = answer.header["Content-Type"]
  ngx.header["Location"] = answer.header["Location"]
  ngx.header["Content-Length"] = #answer.body
  ngx.print(answer.body)
end

return { handle = handle }
