-- The layout of what is stored. This one is number 1, which no text names. A later one begins each text with `v` and its number: so no text
-- of it is read as one of this layout. See `docs/versions.md` before you change what is written.

-- The refusal of a text of a later layout; nil for any other text.
local function newer(stored)
  local layout = string.match(stored or '', '^v(%d+)')
  return layout and redis.error_reply('LAYOUT ' .. layout) or nil
end
