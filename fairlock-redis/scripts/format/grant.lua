-- The field `grant` of the record, of the disciplines Redisson and plain: `<owner>:<request> <token> <label>`.

local function grant_text(owner, request, token, label)
  return owner .. ':' .. request .. ' ' .. token .. ' ' .. label
end

-- Owner, request, token and label; nothing for another text.
local function split_grant(value)
  return string.match(value or '', '^(.-):([^: ]*) (%d+) (.*)$')
end
