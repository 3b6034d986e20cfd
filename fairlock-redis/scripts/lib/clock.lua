-- The server's clock, in microseconds and in milliseconds since 1970.
local time = redis.call('TIME')
local now_micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_micros / 1000)

local function whole(number)
  return string.format('%.0f', number)
end
