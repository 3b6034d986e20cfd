-- What is ended in a grace stays ended: a claim that comes later is late. Stands in front of a script, behind lib/life.
--
-- The record's field `ended` is `<last> <token> …`: all holds with tokens up to the first number are over, and those with these
-- tokens. A hold of all units shows that all before it are over; of others the last ones are kept. (A claim of one that fell out
-- would take its units again, for a lease.)
local ENDED_KEPT = 100
local function read_ended(record)
  local last, tokens = string.match(redis.call('HGET', record, 'ended') or '', '^(%d+)(.*)$')
  return tonumber(last) or 0, tokens or ''
end

local function has_ended(record, token)
  local last, tokens = read_ended(record)
  return token <= last or string.find(tokens .. ' ', string.format(' %.0f ', token), 1, true) ~= nil
end

-- Notes that a token has ended; with `all`, that this and all smaller ones have. The next token is greater, also where the clock is
-- behind.
local function end_in_grace(record, queue, plan, token, all)
  local last, tokens = read_ended(record)
  last = all and math.max(last, token) or last
  tokens = all and tokens or string.format('%s %.0f', tokens, token)
  if select(2, string.gsub(tokens, ' ', '')) > ENDED_KEPT then tokens = string.match(tokens, '^ %d+(.*)$') end
  queue.last = math.max(queue.last, token)
  plan.places = { 'ended', string.format('%.0f%s', last, tokens) }
end
