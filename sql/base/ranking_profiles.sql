-- Learnt weights of the ranking, as profiles: the one that a release ships (sql/data/ranking.csv, replaced on
-- install), an install's own and users' own, which stay, with the command and data they were learnt from and the
-- shipped version they began with. The weights:
--
--   rank_weights       by signal, for all items; "memory.", "named.", "unnamed.", "long.", "unread.", "other." or
--                      "remark." before it: on top, for classes of items and questions (pg_memoir_kernel/ranking.py)
--   strength_weights   log odds that the store answers, by constant, score and cosine (pg_memoir_kernel/candidates.py)
--   fit_weights        log odds that a candidate fits the question at all; "memory." as above (the same)
--   weight_access, weight_authority
--                      a memory's use, and confidence times authority, set by hand (the same)
--
-- A profile may hold some of them; what it lacks is that of the next: user, install, shipped. merge_settings and
-- config() put them where compile reads its settings, so that none of this is looked up there.

do $$
declare
  v_head record; v_weights jsonb; v_own integer;
begin
  select * into v_head from _memoir.data_ranking_head();
  select jsonb_build_object(
      'rank_weights', jsonb_object_agg(case part when 'all' then '' else part || '.' end || signal, weight::numeric)
        filter (where part not in ('strength', 'fit', 'memory_fit', 'bonus')),
      'strength_weights', jsonb_object_agg(signal, weight::numeric) filter (where part = 'strength'),
      'fit_weights', jsonb_object_agg(case part when 'fit' then '' else 'memory.' end || signal, weight::numeric)
        filter (where part in ('fit', 'memory_fit')))
    || jsonb_object_agg('weight_' || signal, weight::numeric) filter (where part = 'bonus')
  into v_weights from _memoir.data_ranking();
  insert into _memoir.ranking_profiles as p (profile, version, source, started_from, weights)
  values ('shipped', v_head.version, v_head.source, v_head.version, v_weights)
  on conflict (profile) do update set version = excluded.version, source = excluded.source,
    started_from = excluded.started_from, weights = excluded.weights where p is distinct from excluded;
  select started_from into v_own from _memoir.ranking_profiles
  where profile = 'install' and started_from <> v_head.version;
  if found then
    raise notice 'this install has weights of its own that began with version % of the shipped ones; shipped now: %',
      v_own, v_head.version
      using hint = 'list_ranking_profiles(null) shows both; reset_ranking_profile(null) returns to the shipped ones';
  end if;
  perform _memoir.merge_settings();
end $$;

-- A user's own profile in the place of what the user had: one version on.
create or replace function _memoir.put_user_ranking(p_user_id uuid, p_weights jsonb, p_source text,
  p_started_from integer default null)
returns integer language plpgsql as $$
declare
  v_version integer;
begin
  update _memoir.users u set ranking = jsonb_build_object(
      'version', coalesce((u.ranking ->> 'version')::integer, 0) + 1,
      'source', p_source,
      'started_from', coalesce(p_started_from, (u.ranking ->> 'started_from')::integer,
        -- the install's before the shipped one
        (select started_from from _memoir.ranking_profiles order by profile limit 1)),
      'weights', p_weights,
      'made_at', memoir.now(),
      'made_by', _memoir.login())
  where u.user_id = p_user_id returning (u.ranking ->> 'version')::integer into v_version;
  return v_version;
end $$;

create or replace function _memoir.ranking_caller(p_user text)
returns _memoir.caller language plpgsql as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
begin
  perform _memoir.fail('PM001',
    format('login %s is bound to projects and may not change how a user is ranked for', quote_ident(v_caller.login)),
    'the weights are the user''s in all projects') where v_caller.projects is not null;
  return v_caller;
end $$;

create or replace function memoir.set_ranking_profile(p_user text, p_weights jsonb, p_source text)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller; v_version integer; v_key text; v_value jsonb; v_least integer;
begin
  if p_user is null then perform _memoir.authorise_admin();
  else v_caller := _memoir.ranking_caller(p_user); end if;
  perform _memoir.fail('PM015',
    format('a ranking profile must be a JSON object, not %s', _memoir.shown(p_weights::text)),
    'rank_weights, strength_weights, fit_weights, weight_access, weight_authority, as list_ranking_profiles(null)'
    || ' shows them') where jsonb_typeof(p_weights) is distinct from 'object' or p_weights = '{}';
  for v_key, v_value in select * from jsonb_each(p_weights) loop
    v_least := case when v_key in ('weight_access', 'weight_authority') then 0
      when v_key in ('rank_weights', 'strength_weights', 'fit_weights') then -100 end;
    perform _memoir.fail('PM015', format('a ranking profile has no %s', _memoir.shown(v_key))) where v_least is null;
    if v_least = 0 then v_value := jsonb_build_object('', v_value); end if;
    if jsonb_typeof(v_value) <> 'object' or exists (
      select from jsonb_each(v_value) w where jsonb_typeof(w.value) <> 'number'
        or case when jsonb_typeof(w.value) = 'number' then w.value::numeric not between v_least and 100 end)
    then
      perform _memoir.fail('PM015', format('%s can''t be %s', v_key, _memoir.shown(p_weights ->> v_key)),
        format('numbers from %s to 100', v_least));
    end if;
  end loop;
  if p_source is null or length(btrim(p_source)) not between 1 and 2000 then
    perform _memoir.fail('PM014',
      format('source must say what the weights were learnt from, not %s', _memoir.shown(p_source)));
  end if;
  if p_user is null then
    insert into _memoir.ranking_profiles as p (profile, version, source, started_from, weights, made_at, made_by)
    select 'install', 1, p_source, s.version, p_weights, memoir.now(), _memoir.login()
    from _memoir.ranking_profiles s where s.profile = 'shipped'
    on conflict (profile) do update set version = p.version + 1, source = excluded.source,
      started_from = excluded.started_from, weights = excluded.weights, made_at = excluded.made_at,
      made_by = excluded.made_by
    returning version into v_version;
    perform _memoir.merge_settings();
  else
    perform _memoir.touch_user(v_caller, p_user);
    v_version := _memoir.put_user_ranking(v_caller.user_id, p_weights, p_source,
      (select version from _memoir.ranking_profiles where profile = 'shipped'));
  end if;
  perform _memoir.audit('set_ranking_profile', jsonb_build_object('version', v_version, 'source', p_source),
    v_caller.user_id);
  return v_version;
end $$;
comment on function memoir.set_ranking_profile(text, jsonb, text) is
  'Ranks by weights of one''s own: a user''s, or with a p_user of null the install''s (admin only). p_weights:
{"rank_weights", "strength_weights", "fit_weights", "weight_access", "weight_authority"} or some of them, as
list_ranking_profiles shows the shipped ones; p_source: the command and the data they were learnt from. Returns the
version. Writes ranking_profiles or users, and audit_log. Raises PM001, PM014, PM015.';

create or replace function memoir.reset_ranking_profile(p_user text)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller; v_found boolean;
begin
  if p_user is null then
    perform _memoir.authorise_admin();
    delete from _memoir.ranking_profiles where profile = 'install';
    v_found := found;
    perform _memoir.merge_settings();
  else
    v_caller := _memoir.ranking_caller(p_user);
    update _memoir.users set ranking = null where user_id = v_caller.user_id and ranking is not null;
    v_found := found;
  end if;
  if v_found then perform _memoir.audit('reset_ranking_profile', '{}', v_caller.user_id); end if;
  return v_found;
end $$;
comment on function memoir.reset_ranking_profile(text) is
  'Drops a user''s own weights of the ranking, or with null the install''s (admin only): what is shipped counts again.
Returns whether there were any. Writes ranking_profiles or users, and audit_log. Raises PM001.';

create or replace function memoir.list_ranking_profiles(p_user text)
returns table (profile text, user_name text, version integer, source text, started_from integer, is_outdated boolean,
  made_at timestamptz, made_by text, weights jsonb)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller;
  v_shipped integer := (select p.version from _memoir.ranking_profiles p where p.profile = 'shipped');
begin
  if p_user is null then perform _memoir.authorise_admin();
  else v_caller := _memoir.authorise(p_user, 'read'); end if;
  return query
  select p.profile, null::text, p.version, p.source, p.started_from, p.started_from <> v_shipped, p.made_at,
    p.made_by, p.weights
  from _memoir.ranking_profiles p order by p.profile desc;
  return query
  select 'user', u.external_id, (u.ranking ->> 'version')::integer, u.ranking ->> 'source',
    (u.ranking ->> 'started_from')::integer, (u.ranking ->> 'started_from')::integer <> v_shipped,
    (u.ranking ->> 'made_at')::timestamptz, u.ranking ->> 'made_by', u.ranking -> 'weights'
  from _memoir.users u
  where u.ranking is not null and (p_user is null or u.user_id = v_caller.user_id) order by u.external_id, u.user_id;
end $$;
comment on function memoir.list_ranking_profiles(text) is
  'Weights of the ranking: the shipped profile, the install''s own, and a user''s own (with null, admin only: all
users''), each with its source and the version of the shipped one that it began with. is_outdated: shipped has changed
since. Later ones win: shipped, install, user. Raises PM001.';
