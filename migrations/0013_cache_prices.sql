-- What tokens cost that a provider reads from its prompt cache or writes there, as a share of the price of a prompt token.
alter table _memoir.models
  add column cache_read_rate real not null default 1 check (cache_read_rate between 0 and 10),
  add column cache_write_rate real not null default 1 check (cache_write_rate between 0 and 10),
  add column cache_write_1h_rate real not null default 1 check (cache_write_1h_rate between 0 and 10);

alter type _memoir.append_state
  add attribute cache_read_tokens integer,       -- of the prompt tokens
  add attribute cache_write_tokens integer,      -- kept for five minutes
  add attribute cache_write_1h_tokens integer;   -- kept for an hour
