-- Reads the next 500 rows of locks in use behind this name ($1). Behind the columns of a row (`Loaded`) is its name.
select l.last, l.h_owner, l.h_request, l.h_token, l.h_count, l.h_since, l.h_ends, l.h_label, l.heads, l.state,
  fairlock.micros(), fairlock.grace_ends(),
  l.name
from fairlock.lock l
where l.name > $1 and (l.state <> '' or l.h_ends > fairlock.micros())
order by l.name
limit 500
