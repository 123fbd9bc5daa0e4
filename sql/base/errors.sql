-- The error contract. Class PM; the client maps each code to one exception.
--
--   PM001 not authorised                      PM020 the newest message does not fit the budget (DETAIL: sizes as JSON)
--   PM002 unknown user                        PM021 this server has not reached the given turn mark
--   PM003 unknown session                     PM022 nothing to continue: no query and no open exchange
--   PM004 unknown memory or call              PM023 cost budget exceeded
--   PM005 session is closed                   PM024 history is append-only
--   PM006 idempotency key reused              PM025 too little evidence to learn from
--   PM007 changed by another writer
--   PM010 invalid message                     PM030 embedding of the wrong dimension
--   PM011 tool result without its call        PM031 unknown model
--         or the reverse
--   PM012 text too large                      PM040 refused by a tombstone
--   PM013 text that can't be stored (client)  PM050 maintenance can't run here
--   PM014 invalid argument                    PM051 a job failed
--   PM015 unknown setting, value out of range PM052 a job is still running elsewhere

create or replace function _memoir.fail(p_code text, p_message text, p_hint text default null,
  p_detail text default null)
returns void language plpgsql as $$
begin
  raise exception using errcode = p_code, message = p_message,
    hint = coalesce(p_hint, ''), detail = coalesce(p_detail, '');
end $$;

-- A value as an error message shows it: short, on one line.
create or replace function _memoir.shown(p_value text)
returns text language sql immutable as $$
  select case when p_value is null then 'null'
    else '"' || left(regexp_replace(p_value, '[[:cntrl:]]', ' ', 'g'), 80)
         || case when length(p_value) > 80 then '…' else '' end || '"' end
$$;
