-- The layout of what is stored. This layout is number 1, which no text names. Each text of a later layout begins with `v` and its number, so
-- this version takes none of these texts for its own. See `docs/versions.md` before you change what is written.

-- The refusal of a text of a later layout; nil for any other text.
local function newer(stored)
  local layout = string.match(stored or '', '^v(%d+)')
  return layout and redis.error_reply('LAYOUT ' .. layout) or nil
end
