-- Makes the row of a lock ($1) that has none: see `swap.sql`. Waits for another insert of this name, and is not done then. Where there is
-- a row nothing is inserted: `on conflict` alone would wait for a transaction that writes or deletes this row. Returns a row if it was done.
--
-- $2, $3: the server's time of the decision, and until when it may have an effect. $4: the end of the grace as the session knows it; $5:
-- until when the decision knows of a grace. $6: by how much the hold may end too late. From $7 on the columns.
insert into fairlock.lock (name, rev, last, dead_at, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label, heads, state)
select $1, fairlock.micros(), $7, $8, $9, $10, $11, $12::bigint, $13,
  $14::bigint - greatest($6::bigint - (fairlock.micros() - $2), 0), $15, $16, $17
where fairlock.micros() between $2::bigint and $3::bigint and coalesce($4::bigint, fairlock.grace_ends()) <= $5::bigint
  and not exists (select from fairlock.lock where name = $1)
on conflict do nothing returning true
