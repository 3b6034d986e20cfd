
-- For each role that uses locks:
-- grant usage on schema fairlock to ROLE;
-- grant select on fairlock.meta to ROLE;
-- grant select, insert, update, delete on fairlock.lock to ROLE;
