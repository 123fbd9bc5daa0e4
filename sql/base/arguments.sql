-- Checks of arguments, one for each kind. Each raises PM014 unless told otherwise.

-- A name that somebody else chose: 1 to p_limit characters, whatever they are.
create or replace function _memoir.check_name(p_field text, p_value text, p_limit integer)
returns void language plpgsql immutable as $$
begin
  if p_value is null or p_value = '' or length(p_value) > p_limit then
    perform _memoir.fail('PM014', format('%s must be a text of 1 to %s characters, not %s', p_field, p_limit,
      _memoir.shown(p_value)));
  end if;
end $$;

-- One of some texts; those of an enum are enum_range(null::the_enum)::text[].
create or replace function _memoir.check_choice(p_field text, p_value text, p_choices text[],
  p_code text default 'PM014')
returns void language plpgsql immutable as $$
declare
  v_last integer := cardinality(p_choices);
begin
  if p_value is null or p_value <> all (p_choices) then
    perform _memoir.fail(p_code, format('%s must be %s or %s, not %s', p_field,
      array_to_string(p_choices[: v_last - 1], ', '), p_choices[v_last], _memoir.shown(p_value)));
  end if;
end $$;

create or replace function _memoir.check_choices(p_field text, p_values text[], p_choices text[])
returns void language plpgsql immutable as $$
begin
  perform _memoir.check_choice(p_field, v, p_choices) from unnest(p_values) v;
end $$;

-- A JSON object, as it was given; null where there is none.
create or replace function _memoir.check_object(p_field text, p_value jsonb)
returns jsonb language plpgsql immutable as $$
begin
  if coalesce(jsonb_typeof(p_value), 'null') = 'null' then return null; end if;
  if jsonb_typeof(p_value) <> 'object' then
    perform _memoir.fail('PM014', format('%s must be a JSON object, not %s', p_field, _memoir.shown(p_value::text)));
  end if;
  return p_value;
end $$;

-- A number from 0 to p_most, or none.
create or replace function _memoir.check_share(p_field text, p_value real, p_most integer)
returns void language plpgsql immutable as $$
begin
  if p_value not between 0 and p_most then
    perform _memoir.fail('PM014', format('%s must be from 0 to %s, not %s', p_field, p_most, p_value));
  end if;
end $$;

-- How many of something: from 1 to p_most.
create or replace function _memoir.check_count(p_field text, p_value integer, p_most integer)
returns void language plpgsql immutable as $$
begin
  if p_value is null or p_value not between 1 and p_most then
    perform _memoir.fail('PM014', format('%s must be from 1 to %s, not %s', p_field, p_most,
      coalesce(p_value::text, 'null')));
  end if;
end $$;
