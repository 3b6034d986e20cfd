-- Bounds a transaction and its waits, and has the server send warnings, whatever the role or the database has as its default: a commit
-- whose wait for the standby was cancelled is known by one.
--
-- $1 for how long a transaction may rest, $2 how long a statement waits for a row, $3 how long a transaction may last: milliseconds, as
-- texts. $4: only in this transaction, else from now on in this session.
select set_config('idle_in_transaction_session_timeout', $1, $4),
  set_config('lock_timeout', $2, $4),
  set_config('client_min_messages', 'warning', $4),
  case when current_setting('transaction_timeout', true) is not null then set_config('transaction_timeout', $3, $4) end
