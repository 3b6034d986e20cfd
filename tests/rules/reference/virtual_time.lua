-- Virtual time: a script after this text runs unchanged, with a clock that the test sets. TIME returns that clock, and the
-- TTLs of keys (PEXPIRE, PTTL) are kept in a hash beside the keys. As in Redis, a key exists through the millisecond in
-- which it expires, and an emptied key has lost its TTL. Received pushes are listed.
local redis = (function(server)
  local CLOCK, MICROS, ENDS, TOLD = 'virtual:clock', 'virtual:micros', 'virtual:ends', 'virtual:told'
  local now, micros = tonumber(server.call('GET', CLOCK)), tonumber(server.call('GET', MICROS))

  local function settle(key)
    local ends = server.call('HGET', ENDS, key)
    if not ends then return end
    if tonumber(ends) < now then server.call('DEL', key) end
    if server.call('EXISTS', key) == 0 then server.call('HDEL', ENDS, key) end
  end

  local function run(how, command, key, ...)
    if command == 'TIME' then
      return { string.format('%d', math.floor(now / 1000)), string.format('%d', now % 1000 * 1000 + micros) }
    elseif command == 'PUBSUB' then
      return server[how](command, key, ...)
    elseif command == 'PUBLISH' then
      local heard = server[how](command, key, ...)
      if type(heard) == 'number' and heard > 0 then server.call('RPUSH', TOLD, key, (...)) end
      return heard
    end
    settle(key)
    if command == 'EXISTS' then
      for _, other in ipairs({ ... }) do settle(other) end
    end
    if command == 'PEXPIRE' then
      local time, only = ...
      local ends = only == 'GT' and server.call('EXISTS', key) == 1 and (server.call('HGET', ENDS, key) or 'never')
      if ends == 'never' or ends and now + tonumber(time) <= tonumber(ends) then return 0 end
      local there = server[how](command, key, time) -- fails as the real command does
      if there == 1 then
        server.call('HSET', ENDS, key, string.format('%.0f', now + tonumber(time)))
      end
      server.call('PERSIST', key)
      return there
    elseif command == 'PTTL' then
      if server.call('EXISTS', key) == 0 then return -2 end
      local ends = server.call('HGET', ENDS, key)
      return ends and tonumber(ends) - now or -1
    end
    local answer = server[how](command, key, ...)
    settle(key)
    return answer
  end

  return {
    call = function(...) return run('call', ...) end,
    pcall = function(...) return run('pcall', ...) end,
    error_reply = server.error_reply,
    REDIS_VERSION_NUM = server.REDIS_VERSION_NUM,
  }
end)(redis)
