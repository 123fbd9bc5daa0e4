-- What a later turn may have changed: shown as it was said, with what was said since beside it.
alter table _memoir.recall_exclusions
  add column is_doubt boolean not null default false,  -- changed: perhaps; nothing gives way
  add column by_start integer,                         -- of a doubt: the clause of the turn it came by
  add column by_length integer;
