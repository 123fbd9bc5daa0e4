-- One field of a cron expression as the numbers it stands for; null where it is not one.
create or replace function _memoir.cron_field(p_field text, p_min integer, p_max integer)
returns integer[] language sql immutable as $$
  with parts as (select regexp_match(part, '^(?:(\*)|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?$') as m
    from string_to_table(p_field, ',') part),
  ranges as (
    select m is not null and (m[4] is null or m[4]::integer > 0 and (m[1] is not null or m[3] is not null)) as ok,
      case when m[1] is not null then p_min else m[2]::integer end as low,
      case when m[1] is not null then p_max else coalesce(m[3], m[2])::integer end as high,
        coalesce(nullif(m[4]::integer, 0), 1) as step
    from parts)
  select case when bool_and(coalesce(ok and low between p_min and high and high <= p_max, false))
    then (select array_agg(distinct n order by n) from ranges r, generate_series(r.low, r.high, r.step) n) end
  from ranges
$$;

-- The last time at or before p_at that a cron expression (UTC) or "N seconds" (1 to 59) names; null where it is neither
-- or names none within eight years.
create or replace function _memoir.cron_last(p_schedule text, p_at timestamptz)
returns timestamptz language plpgsql immutable as $$
declare
  v_fields text[]; v_minutes integer[]; v_hours integer[]; v_days integer[]; v_months integer[]; v_weekdays integer[];
  v_at timestamp := p_at at time zone 'UTC'; v_day date; v_last timestamp;
  v_either boolean; v_by_day boolean; v_by_weekday boolean;
begin
  if p_schedule ~ '^[1-5]?[1-9] seconds?$|^[1-5]0 seconds?$' then
    return date_bin(make_interval(secs => split_part(p_schedule, ' ', 1)::integer), p_at, '2000-01-01 00:00+00');
  end if;
  v_fields := regexp_split_to_array(btrim(p_schedule), '\s+');
  if cardinality(v_fields) is distinct from 5 then return null; end if;
  v_minutes := _memoir.cron_field(v_fields[1], 0, 59);
  v_hours := _memoir.cron_field(v_fields[2], 0, 23);
  v_days := _memoir.cron_field(v_fields[3], 1, 31);
  v_months := _memoir.cron_field(v_fields[4], 1, 12);
  v_weekdays := _memoir.cron_field(v_fields[5], 0, 7);
  if v_minutes is null or v_hours is null or v_days is null or v_months is null or v_weekdays is null then return null;
  end if;
  -- Where both are limited, a day may match either.
  v_either := v_fields[3] not like '*%' and v_fields[5] not like '*%';
  for v_back in 0 .. 2922 loop
    v_day := v_at::date - v_back;
    continue when date_part('month', v_day) <> all (v_months);
    v_by_day := date_part('day', v_day) = any (v_days);
    v_by_weekday := date_part('dow', v_day) = any (v_weekdays) or date_part('isodow', v_day) = any (v_weekdays);
    continue when not case when v_either then v_by_day or v_by_weekday else v_by_day and v_by_weekday end;
    select max(v_day + make_interval(hours => h, mins => m)) into v_last from unnest(v_hours) h, unnest(v_minutes) m
    where v_day + make_interval(hours => h, mins => m) <= v_at;
    exit when v_last is not null;
  end loop;
  return v_last at time zone 'UTC';
end $$;
