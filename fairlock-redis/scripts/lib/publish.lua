-- Sends a message. Stands in front of a script, behind its life. Where scripts may not publish (a right is missing, or the service
-- refuses PUBLISH in scripts), `untold` lists why, and then each channel and message. The reply takes them along, and the client
-- sends them.
local untold
local function publish(channel, message)
  local sent = redis.pcall('PUBLISH', channel, message)
  if type(sent) == 'table' then
    untold = untold or { sent.err }
    untold[#untold + 1] = channel
    untold[#untold + 1] = message
  end
end
