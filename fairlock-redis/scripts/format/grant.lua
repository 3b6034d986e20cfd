-- The field `grant` of the record, of the disciplines Redisson and plain: `<owner>:<request> <token> <label>`.

local function grant_text(owner, request, token, label)
  return owner .. ':' .. request .. ' ' .. token .. ' ' .. label
end

-- The last grant as {owner, request, token, label}, empty for another text; with the last number of the sequence.
local function read_last_grant(record)
  local saved = redis.call('HMGET', record, 'grant', 'last')
  local last_grant = { string.match(saved[1] or '', '^(.-):([^: ]*) (%d+) (.*)$') }
  last_grant.last = saved[2]
  return last_grant
end
