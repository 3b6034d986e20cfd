-- The server's clock, in microseconds and in milliseconds since 1970.
local time = redis.call('TIME')
local now_micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_micros / 1000)

local function whole(number)
  return string.format('%.0f', number)
end

-- A number that `whole` has written. What is none, or too large to be exact, is not ours, and counts as absent: so
-- no number is computed from it that a later write of the script would refuse.
local function exact(text)
  local number = text and string.match(text, '^%d+$') and tonumber(text)
  return number and number < 4503599627370496 and number or nil
end
