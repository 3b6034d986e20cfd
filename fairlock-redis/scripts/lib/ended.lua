-- What is ended in a grace stays ended: a reclaim that comes later is late. Stands in front of a script, behind lib/life.
--
-- The record's field `ended` is `<last> <token> …`: the holds with tokens up to the first number are over, and so are the holds
-- with the listed tokens. The end of a hold of all units replaces the list: all earlier holds are over. Otherwise the list keeps
-- the last tokens. (A hold whose token fell out could be reclaimed again, for a lease.)
local ENDED_KEPT = 100
local function read_ended(record)
  local last, tokens = string.match(redis.call('HGET', record, 'ended') or '', '^(%d+)(.*)$')
  return tonumber(last) or 0, tokens or ''
end

local function has_ended(record, token)
  local last, tokens = read_ended(record)
  return token <= last or string.find(tokens .. ' ', string.format(' %.0f ', token), 1, true) ~= nil
end

-- Notes that the hold of a token has ended; with `all`, the holds of all smaller tokens too. The next token is greater, even if
-- the clock is behind.
local function end_in_grace(record, queue, plan, token, all)
  local last, tokens = read_ended(record)
  last = all and math.max(last, token) or last
  tokens = all and tokens or string.format('%s %.0f', tokens, token)
  if select(2, string.gsub(tokens, ' ', '')) > ENDED_KEPT then tokens = string.match(tokens, '^ %d+(.*)$') end
  queue.last = math.max(queue.last, token)
  plan.places = { 'ended', string.format('%.0f%s', last, tokens) }
end
