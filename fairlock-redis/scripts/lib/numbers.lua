-- Whole numbers. Redis gets them as they are, exact to 17 digits. Joined to a text they would lose digits: `text` writes them there.
-- @include lib/clock: number, since, now

-- Greater numbers were written by another program, and are not exact.
local LAST_END = 4503599627370496

local function text(value)
  return value == now and since or string.format('%d', value)
end

-- A number as another program may have written it; nil for another text, and for a number too large to be exact.
local function int(value)
  local found = tonumber(value)
  return found and found >= 0 and found < LAST_END and found or nil
end

-- The score of an end as a whole number: an operator may write `inf`, and another program a fraction.
local function end_of(score)
  return math.min(math.ceil(tonumber(score)), LAST_END)
end

-- The reply to an attempt that arrives after its end (`begin_by`, sixteen digits); nil in time. A network may deliver a script long
-- after its repeat was answered, and after the repeat's hold was over: the script would begin a hold for nobody.
local function late(begin_by)
  return number > begin_by and redis.error_reply('LATE ' .. number) or nil
end
