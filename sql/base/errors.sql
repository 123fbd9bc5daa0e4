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
--   PM012 text too large                      PM026 no PL/Python here to make a recall with
--                                             PM040 refused by a tombstone
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

create or replace function _memoir.shown(p_value text)
returns text language sql immutable as $$
  select case when p_value is null then 'null'
    else '"' || left(regexp_replace(p_value, '[[:cntrl:]]', ' ', 'g'), 80)
         || case when length(p_value) > 80 then '…' else '' end || '"' end
$$;

-- Checks of arguments, one for each kind. Each raises PM014 unless told otherwise.

-- Refuses a value that is wrong. p_rule says what the field must be.
create or replace function _memoir.refuse_value(p_is_wrong boolean, p_field text, p_value anyelement, p_rule text,
  p_hint text default null, p_code text default 'PM014')
returns void language plpgsql as $$
begin
  if p_is_wrong then
    perform _memoir.fail(p_code, format('%s must be %s, not %s', p_field, p_rule, _memoir.shown(p_value::text)),
      p_hint);
  end if;
end $$;

create or replace function _memoir.check_name(p_field text, p_value text, p_limit integer)
returns void language plpgsql as $$
begin
  if p_value is null or p_value = '' or length(p_value) > p_limit then
    perform _memoir.fail('PM014', format('%s must be a text of 1 to %s characters, not %s', p_field, p_limit,
      _memoir.shown(p_value)));
  end if;
end $$;

-- One of some texts; those of an enum are enum_range(null::the_enum)::text[].
create or replace function _memoir.check_choice(p_field text, p_value text, p_choices text[],
  p_code text default 'PM014')
returns void language plpgsql as $$
declare
  v_last integer := cardinality(p_choices);
begin
  if p_value is null or p_value <> all (p_choices) then
    perform _memoir.fail(p_code, format('%s must be %s or %s, not %s', p_field,
      array_to_string(p_choices[: v_last - 1], ', '), p_choices[v_last], _memoir.shown(p_value)));
  end if;
end $$;

create or replace function _memoir.check_choices(p_field text, p_values text[], p_choices text[])
returns void language plpgsql as $$
begin
  perform _memoir.check_choice(p_field, v, p_choices) from unnest(p_values) v;
end $$;

create or replace function _memoir.check_object(p_field text, p_value jsonb)
returns jsonb language plpgsql as $$
begin
  if coalesce(jsonb_typeof(p_value), 'null') = 'null' then return null; end if;
  if jsonb_typeof(p_value) <> 'object' then
    perform _memoir.fail('PM014', format('%s must be a JSON object, not %s', p_field, _memoir.shown(p_value::text)));
  end if;
  return p_value;
end $$;

create or replace function _memoir.check_range(p_field text, p_value anyelement, p_least numeric, p_most numeric,
  p_is_needed boolean default false)
returns void language plpgsql as $$
begin
  if p_value::numeric not between p_least and p_most or p_value is null and p_is_needed then
    perform _memoir.fail('PM014', format('%s must be from %s to %s, not %s', p_field, p_least, p_most,
      coalesce(p_value::text, 'null')));
  end if;
end $$;

create or replace function _memoir.check_count(p_field text, p_value integer, p_most integer)
returns void language plpgsql as $$
begin
  perform _memoir.check_range(p_field, p_value, 1, p_most, true);
end $$;

-- One clock. Everything that stores or compares time asks now(), so that tests move time instead of sleeping.

create or replace function memoir.now()
returns timestamptz language plpgsql stable security definer set search_path from current as $$
begin
  return coalesce((select clock from _memoir.settings_merged), pg_catalog.now());
end $$;
comment on function memoir.now() is
  'The clock of the memory: the transaction''s start, or the time an admin has set with set_clock.';
