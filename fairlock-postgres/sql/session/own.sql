-- Sets up a session that no pooler gives to others. The server gives a silent client up at most 7 s after its last sign of life: while it
-- waits for the rest of a flight, `transaction_timeout` alone ends the transaction, from version 17 on. Statements of many rows are
-- planned once, and never compiled.
--
-- $1: what the session has for `synchronous_commit` is kept, whatever the server's files say later, and raised if it is off.
select set_config('tcp_user_timeout', '5000', false),
  set_config('tcp_keepalives_idle', '4', false),
  set_config('tcp_keepalives_interval', '1', false),
  set_config('tcp_keepalives_count', '3', false),
  set_config('plan_cache_mode', 'force_generic_plan', false),
  set_config('jit', 'off', false),
  case when $1 then set_config('synchronous_commit', case level when 'off' then 'on' else level end, false) end
from (select current_setting('synchronous_commit') as level) s
