-- The holder, whichever discipline granted the lock. Redisson's hash has the owner as its field, with the hold count as the
-- value. The hand-off has the field `fairlock` instead (see lib/hand_off).

-- The holder as {owner, count, token, label}, with its field and value, or nil. Token and label are known of holds by this
-- library only: from the field, or from the record of the last grant. A lock with several holders has `mode` instead.
local function read_holder(lock, last_grant)
  local fields, any = redis.call('HGETALL', lock), nil
  for index = 1, #fields, 2 do
    local field, value = fields[index], fields[index + 1]
    if field == 'mode' and string.find(value, '^shared ') then return { mode = value } end
    local owner, token, count, label = string.match(field == 'fairlock' and value or '', '^(.-):[^: ]* (%d+) (%d+) [-+!](.*)$')
    if owner then return { owner, count, token, label, field = field, value = value } end
    any = { field, value, field = field, value = value }
    if field == last_grant[1] then
      any[3], any[4] = last_grant[3], last_grant[4]
      return any
    end
  end
  return any
end
