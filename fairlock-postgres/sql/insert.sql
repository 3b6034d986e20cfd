-- Makes the row of a new lock ($1), or waits for the transaction that does.
insert into fairlock.lock (name) values ($1) on conflict do nothing
