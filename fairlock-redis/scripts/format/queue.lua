-- The field `queue` of the record: `<served> <pulse> <clock> <ttl> <rests>`, see lib/queue.

local function queue_text(served, pulse, clock, ttl, rests)
  return served .. ' ' .. pulse .. ' ' .. clock .. ' ' .. ttl .. ' ' .. rests
end

local function read_numbers(value)
  local served, pulse, clock, ttl, rests = string.match(value or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return served or '0', pulse, clock, ttl or '5000', rests or '0'
end
