-- Makes the rows of new locks, in the order of their names ($1). The load follows.
insert into fairlock.lock (name) select unnest($1::bytea[]) on conflict do nothing
