-- What a new session has to know of its server, $1 being the process that the login has told of: whether it is a standby, or takes no
-- writes; which process this is, as a pooler gives itself another number than that of the session; whether commits don't wait for the
-- disk; and the encoding. A session of its own may rest for as long as it likes: that setting, which version 13 doesn't have, is for
-- forgotten sessions.
select pg_is_in_recovery(),
  current_setting('transaction_read_only') = 'on',
  pg_backend_pid(),
  current_setting('synchronous_commit') = 'off',
  current_setting('server_encoding'),
  (select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout' and pg_backend_pid() = $1::bigint)
