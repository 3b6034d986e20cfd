-- Whole numbers as texts. Redis gets a number as it is, exact to 17 digits. Joined to a text it would lose digits: `text` writes it there.
-- @include lib/clock: since, now

local function text(value)
  return value == now and since or string.format('%d', value)
end
