-- Attempts that arrive too late.
-- @include lib/clock: number

-- The reply to an attempt that arrives after its end (`begin_by`, sixteen digits); nil in time. A network may deliver a script long
-- after its repeat was answered, and after the repeat's hold was over: the script would begin a hold for nobody.
local function late(begin_by)
  return number > begin_by and redis.error_reply('LATE ' .. number) or nil
end
