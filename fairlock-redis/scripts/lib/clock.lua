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

-- How long the sequence of a lock is kept, in milliseconds: until the clock has passed its last number, and a day. A
-- number is ahead of the clock after the clock was set back. Were the key gone before the clock has caught up, the next
-- number would be taken from the clock alone, and be smaller than one that was given out.
local function sequence_lasts(last)
  return 86400000 + math.max(0, math.ceil((last - now_micros) / 1000))
end
