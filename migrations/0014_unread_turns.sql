-- Turns that nobody has looked through for secrets yet, on a server without PL/Python: from this item on none is embedded.
alter table _memoir.user_counters add column unread_from integer check (unread_from > 0);
