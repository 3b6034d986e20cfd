-- A place, in the record, as the field of its member: `<units> <capacity> <ticket> <deadline> <lease> <marks> <label>`. Two marks: `d`
-- (deaf: the client gets no messages now) or `-`; `n` (new: the client has not yet repeated this ticket, so it may not know the ticket)
-- or `-`.

local function place_text(units, capacity, ticket, deadline, lease, marks, label)
  return units .. ' ' .. capacity .. ' ' .. ticket .. ' ' .. deadline .. ' ' .. lease .. ' ' .. marks .. ' ' .. label
end

-- The place of a member; nil for a text or a member that can't be read, and for units that the lock can't have.
local function read_place(member, value)
  local units, capacity, ticket, deadline, lease, deaf, new, label =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) ([-d])([-n]) (.*)$')
  local client = units and string.match(member, '^([^:]*):[^:]*:[^:]*$')
  if not client or units == '0' or units ~= capacity and tonumber(units) > tonumber(capacity) then return nil end
  return { client = client, units = units, capacity = capacity, ticket = ticket, deadline = tonumber(deadline),
    lease = tonumber(lease), is_deaf = deaf == 'd', is_new = new == 'n', label = label }
end
