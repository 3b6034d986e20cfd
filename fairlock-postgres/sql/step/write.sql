-- Writes the row of this lock ($1), which the transaction has locked.
update fairlock.lock
set rev = rev + 1, last = $2, dead_at = $3, h_owner = $4, h_request = $5, h_token = $6, h_count = $7::bigint, h_since = $8, h_ends = $9,
  h_label = $10, heads = $11, state = $12
where name = $1
