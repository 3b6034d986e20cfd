-- A place, in the record, as the field of its member: `<units> <capacity> <ticket> <deadline> <lease> <marks> <label>`. Marks: `d`
-- the client is deaf, `n` (new) the client has not yet repeated this ticket, so it may not know it; or `-`.

local function place_text(units, capacity, ticket, deadline, lease, marks, label)
  return units .. ' ' .. capacity .. ' ' .. ticket .. ' ' .. deadline .. ' ' .. lease .. ' ' .. marks .. ' ' .. label
end

-- The place of a member; nil for what can't be granted anything.
local function read_place(member, value)
  local units, capacity, ticket, deadline, lease, marks, label =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) ([-dn]+) (.*)$')
  local client = units and string.match(member, '^([^:]*):[^:]*:[^:]*$')
  if not client or units == '0' or units ~= capacity and tonumber(units) > tonumber(capacity) then return nil end
  return { client = client, units = units, capacity = capacity, ticket = ticket, deadline = tonumber(deadline),
    lease = tonumber(lease), is_deaf = string.find(marks, 'd', 1, true), is_new = string.find(marks, 'n', 1, true), label = label }
end
