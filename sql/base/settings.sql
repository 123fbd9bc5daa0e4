-- Settings of an operator (sql/data/settings.csv). Definitions are code, replaced on install; values are state.

delete from _memoir.setting_definitions;
insert into _memoir.setting_definitions (key, kind, default_value, min_value, max_value, allowed, overridable,
  description)
select key, kind,
  case kind when 'text' then to_jsonb(coalesce(default_value, '')) else coalesce(default_value, 'null')::jsonb end,
  min_value::numeric, max_value::numeric, array_replace(string_to_array(allowed, ' '), '-', ''), overridable = 'yes',
  description
from _memoir.data_settings();
delete from _memoir.settings s where not exists (select from _memoir.setting_definitions d where d.key = s.key);

-- The row that every hot function reads: defaults, what was set, and the weights of the ranking profile in force.
create or replace function _memoir.merge_settings()
returns void language sql as $$
  insert into _memoir.settings_merged (is_only, clock, config)
  select true, (m.config ->> 'clock')::timestamptz, m.config
  from (select jsonb_object_agg(d.key, coalesce(s.value, d.default_value))
          || coalesce((select p.weights from _memoir.ranking_profiles p where p.profile = 'shipped'), '{}')
          || coalesce((select p.weights from _memoir.ranking_profiles p where p.profile = 'install'), '{}') as config
        from _memoir.setting_definitions d left join _memoir.settings s on s.key = d.key) m
  on conflict (is_only) do update set clock = excluded.clock, config = excluded.config
  where settings_merged.config is distinct from excluded.config
$$;

-- A point in time that means the same to every session: with date, time and zone.
create or replace function _memoir.is_time(p_text text)
returns boolean language plpgsql stable as $$
begin
  return p_text ~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$'
    and p_text::timestamptz between '1970-01-01 00:00+00' and '2999-12-31 00:00+00';
exception when data_exception then
  return false;
end $$;

create or replace function _memoir.check_setting(p_key text, p_value jsonb, p_override boolean)
returns void language plpgsql stable as $$
declare
  v_def _memoir.setting_definitions; v_ok boolean;
begin
  select * into v_def from _memoir.setting_definitions where key = p_key;
  perform _memoir.fail('PM015', format('unknown setting %s', _memoir.shown(p_key)),
    'select * from memoir.list_settings()') where not found;
  if p_override and not v_def.overridable then
    perform _memoir.fail('PM015', format('setting %s can''t be overridden per user or session', p_key));
  end if;
  v_ok := p_value is not null and case v_def.kind
    when 'number' then jsonb_typeof(p_value) = 'number'
    when 'integer' then jsonb_typeof(p_value) = 'number' and (p_value #>> '{}') ~ '^-?[0-9]+$'
    when 'boolean' then jsonb_typeof(p_value) = 'boolean'
    when 'text' then jsonb_typeof(p_value) = 'string'
    when 'time' then jsonb_typeof(p_value) in ('string', 'null')
    when 'weights' then jsonb_typeof(p_value) = 'object'
      and not exists (select from jsonb_each(case when jsonb_typeof(p_value) = 'object' then p_value else '{}' end)
        where jsonb_typeof(value) <> 'number')
    -- {"my_tool": {"does": "read", "key": "path"}}: columns of sql/data/tools.csv, and the type of what it returns.
    when 'tools' then jsonb_typeof(p_value) = 'object'
      and not exists (select from jsonb_each(case when jsonb_typeof(p_value) = 'object' then p_value else '{}' end) t
        where jsonb_typeof(t.value) <> 'object' or t.value ->> 'does' is null
          or t.value ->> 'does' <> all ('{read,write,edit,patch,run,search,list,fetch,plan,other}')
          or exists (select from jsonb_each(case when jsonb_typeof(t.value) = 'object' then t.value else '{}' end) f
            where jsonb_typeof(f.value) <> 'string' or f.key <> all ('{does,key,lines,texts,type}')))
  end;
  if v_ok and v_def.kind in ('number', 'integer') then
    v_ok := (p_value #>> '{}')::numeric between coalesce(v_def.min_value, '-infinity')
      and coalesce(v_def.max_value, 'infinity');
  elsif v_ok and v_def.kind = 'weights' then
    v_ok := not exists (select from jsonb_each_text(p_value)
                        where value::numeric not between coalesce(v_def.min_value, '-infinity')
                          and coalesce(v_def.max_value, 'infinity'));
  elsif v_ok and v_def.allowed is not null then
    v_ok := (p_value #>> '{}') = any (v_def.allowed);
  elsif v_ok and v_def.kind = 'time' and jsonb_typeof(p_value) = 'string' then
    v_ok := _memoir.is_time(p_value #>> '{}');
  elsif v_ok and p_key = 'text_search_config' then
    -- As the functions' pinned search_path finds it: a configuration of one's own is given with its schema.
    v_ok := exists (select from pg_ts_config c join pg_namespace n on n.oid = c.cfgnamespace
                    where (p_value #>> '{}') in (case when pg_ts_config_is_visible(c.oid) then quote_ident(cfgname) end,
                      format('%I.%I', nspname, cfgname)));
  elsif v_ok and p_key = 'time_zone' then
    v_ok := (p_value #>> '{}') in ('', 'UTC') or exists (select from pg_timezone_names where name = p_value #>> '{}'
      and name ~ '/');
  elsif v_ok and p_key = 'default_model' then
    v_ok := exists (select from _memoir.models where model = p_value #>> '{}');
  end if;
  if not v_ok then
    perform _memoir.fail('PM015', format('setting %s can''t be %s', p_key, _memoir.shown(p_value #>> '{}')),
      format('%s%s%s', v_def.kind,
        case when v_def.min_value is not null then format(' from %s to %s', v_def.min_value, v_def.max_value)
        else '' end,
        case when v_def.allowed is not null then ': ' || array_to_string(v_def.allowed, ', ') else '' end));
  end if;
end $$;

create or replace function memoir.set_setting(p_key text, p_value jsonb)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin(), _memoir.check_setting(p_key, p_value, false);
  insert into _memoir.settings (key, value) values (p_key, p_value)
  on conflict (key) do update set value = excluded.value;
  perform _memoir.merge_settings(), _memoir.audit('set_setting', jsonb_build_object('key', p_key, 'value', p_value));
end $$;
comment on function memoir.set_setting(text, jsonb) is
  'Sets a setting for the whole install. Admin only. Raises PM001, PM015 (unknown key, wrong kind, out of range).';

create or replace function memoir.reset_setting(p_key text)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  if not exists (select from _memoir.setting_definitions where key = p_key) then
    perform _memoir.fail('PM015', format('unknown setting %s', _memoir.shown(p_key)));
  end if;
  delete from _memoir.settings where key = p_key;
  perform _memoir.merge_settings(), _memoir.audit('reset_setting', jsonb_build_object('key', p_key));
end $$;
comment on function memoir.reset_setting(text) is 'Returns a setting to its default. Admin only. Raises PM001, PM015.';

create or replace function memoir.list_settings()
returns table (key text, value jsonb, default_value jsonb, kind text, min_value numeric, max_value numeric,
  overridable boolean, description text)
language sql stable security definer set search_path from current as $$
  select d.key, coalesce(s.value, d.default_value), d.default_value, d.kind, d.min_value, d.max_value, d.overridable,
    d.description
  from _memoir.setting_definitions d left join _memoir.settings s on s.key = d.key order by d.key
$$;
comment on function memoir.list_settings() is 'All settings with value, default, range and meaning.';

-- {"key": value | null}: null removes the override.
create or replace function _memoir.merge_overrides(p_old jsonb, p_new jsonb)
returns jsonb language plpgsql stable as $$
declare
  v_key text; v_value jsonb;
begin
  perform _memoir.refuse_value(jsonb_typeof(coalesce(p_new, '{}')) <> 'object', 'settings', p_new, 'a JSON object');
  for v_key, v_value in select * from jsonb_each(coalesce(p_new, '{}')) loop
    -- Who is bound by a cost limit does not move it, nor the guard against secrets.
    if (v_key like 'budget\_%' or v_key = 'detect_secrets') and not (pg_has_role(_memoir.login(), 'memoir_app', 'usage')
      or pg_has_role(_memoir.login(), 'memoir_admin', 'usage')) then
      perform _memoir.fail('PM001', format('login %s may not override setting %s', quote_ident(_memoir.login()),
        v_key));
    end if;
    if jsonb_typeof(v_value) <> 'null' then
      perform _memoir.check_setting(v_key, v_value, true);
    elsif not (p_old ? v_key or exists (select from _memoir.setting_definitions where key = v_key)) then
      perform _memoir.fail('PM015', format('unknown setting %s', _memoir.shown(v_key)),
        'select * from memoir.list_settings()');
    end if;
  end loop;
  return jsonb_strip_nulls(p_old || coalesce(p_new, '{}'));
end $$;

create or replace function memoir.set_user_settings(p_user text, p_settings jsonb)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_settings jsonb;
begin
  perform _memoir.touch_user(v_caller, p_user);
  update _memoir.users set settings = _memoir.merge_overrides(settings, p_settings)
  where user_id = v_caller.user_id returning settings into v_settings;
  return v_settings;
end $$;
comment on function memoir.set_user_settings(text, jsonb) is
  'Overrides settings of one user ({"key": value}, null removes). Returns all overrides. Raises PM001, PM014, PM015.';

-- Defaults, install, user (weights of the ranking, then settings), session: later wins.
create or replace function _memoir.config(p_user_id uuid, p_session_settings jsonb)
returns jsonb language plpgsql stable as $$
begin
  return (select config from _memoir.settings_merged)
    || coalesce((select coalesce(u.ranking -> 'weights', '{}') || u.settings
                   || jsonb_build_object('profile_version', u.profile_version)
                 from _memoir.users u where u.user_id = p_user_id), '{}')
    || coalesce(p_session_settings, '{}');
end $$;

create or replace function memoir.set_clock(p_at timestamptz)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform memoir.set_setting('clock', coalesce(to_jsonb(p_at), 'null'));
end $$;
comment on function memoir.set_clock(timestamptz) is
  'Fixes memoir.now() at a time, for tests and replays; null returns to the real clock. Admin only. Raises PM001.';

create or replace function _memoir.history_share(p_config jsonb, p_task _memoir.task_type)
returns real language sql stable as $$
  select (p_config ->> ('history_share_' || coalesce(p_task, 'continuation')))::real
$$;
