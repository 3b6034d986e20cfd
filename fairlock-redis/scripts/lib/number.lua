-- The server's clock, for the fast parts: `number` in microseconds, as sixteen digits that sort as text; `since` in milliseconds.
local time = call('TIME')
local number = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))
local since = string.sub(number, 1, -4)
