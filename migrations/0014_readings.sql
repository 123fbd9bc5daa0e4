-- Turns that nobody has looked through for secrets yet, on a server without PL/Python: from this item on none is embedded.
alter table _memoir.user_counters add column unread_from integer check (unread_from > 0);

-- facts: what pg_memoir_language reads in the question; goes_on: it continues what was begun in an earlier session.
alter type _memoir.question add attribute facts jsonb, add attribute goes_on boolean;
