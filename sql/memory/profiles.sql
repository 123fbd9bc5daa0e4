-- The profile: what is known about a user in any session, as a few fenced lines of the system message. Versions only
-- follow each other when the text changes, so prompts stay the same byte for byte. A memory that is forgotten,
-- corrected, superseded or made secret leaves it in the same transaction: no version that holds it stays, and until the
-- job has made the next one, whoever reads the profile gets it as it is then.

-- Returns what belongs in it, the weightiest first: validated, global in scope, of the project, tiers 3 and 4, in
-- force, open to every clearance.
create or replace function _memoir.profile_memories(p_user_id uuid, p_project text default 'global')
returns table (memory_id uuid, heading text, content text, until timestamptz, is_health boolean)
  language plpgsql stable as $$
declare
  v_now timestamptz := memoir.now();
begin
  return query
  select m.memory_id, case when m.type = 'instruction' or m.provenance = 'instruction' then 'Instructions'
    when m.type = 'preference' or m.provenance = 'preference' then 'Preferences' else 'Facts' end,
    _memoir.one_line(m.content), m.valid_to, (m.category = 'health') is true
  from _memoir.memory_store m
  where m.user_id = p_user_id and m.scope = 'global' and m.tier in (3, 4) and m.state = 'active'
    and m.validated_at is not null and m.project = p_project
    and m.sensitivity = 'normal' and m.type <> all (_memoir.experience_types())
    and (m.type in ('instruction', 'preference', 'fact', 'profile') or m.tier = 4)
    and (m.valid_from is null or m.valid_from <= v_now) and (m.valid_to is null or m.valid_to > v_now)
    and (m.expires_at is null or m.expires_at > v_now)
    -- Standing statements, not everything that was said.
    and (m.actor = 'person' or m.metadata ? 'standing' or m.slot is not null or not m.metadata ? 'extracted_by'
      and (m.type in ('instruction', 'preference', 'profile') or m.provenance in ('instruction', 'preference')))
  order by (m.type = 'instruction' or m.provenance = 'instruction') desc, (m.category = 'health') is true desc,
    m.trust * m.confidence * case m.importance when 'critical' then 2 when 'important' then 1.3
    when 'minor' then 0.6 else 1 end
      * case when m.tier = 4 then 1.2 else 1 end desc, m.recorded_at desc, m.memory_id
  limit 500;
end $$;

-- Returns the profile as it would be now; of version, the one that the user has.
create or replace function _memoir.profile_now(p_user_id uuid)
returns _memoir.profiles language plpgsql stable as $$
declare
  v_config jsonb := _memoir.config(p_user_id, null); v_budget integer := (v_config ->> 'profile_tokens')::integer;
  v_profile _memoir.profiles; v_memory record; v_left_used integer := 0; v_headings text[] := '{}';
  v_texts text[] := '{}'; v_used integer := 0; v_cost integer;
  v_tokenizer text := _memoir.tokenizer_used((_memoir.model(v_config ->> 'default_model')).tokenizer);
begin
  v_profile.user_id := p_user_id;
  v_profile.version := (select u.profile_version from _memoir.users u where u.user_id = p_user_id);
  v_profile.made_by := 'rules';
  v_profile.recorded_at := memoir.now();
  v_profile.memory_ids := '{}';
  v_profile.left_out := '{}';
  for v_memory in select * from _memoir.profile_memories(p_user_id) loop
    v_cost := _memoir.tokens_of('- ' || v_memory.content || E'\n', v_tokenizer) + case
      when v_memory.heading = any (v_headings) then 0 else 4 end;
    if v_used + v_cost > v_budget then
      -- Wishes and health lead every recall instead, up to as much again.
      if (v_memory.heading <> 'Facts' or v_memory.is_health) and v_left_used + v_cost <= v_budget then
        v_profile.left_out := v_profile.left_out || v_memory.memory_id;
        v_left_used := v_left_used + v_cost;
      end if;
      continue;
    end if;
    v_used := v_used + v_cost;
    v_profile.memory_ids := v_profile.memory_ids || v_memory.memory_id;
    v_headings := v_headings || v_memory.heading;
    v_texts := v_texts || v_memory.content;
  end loop;
  v_profile.content := coalesce((select string_agg(heading || E':\n' || lines, E'\n'
      order by array_position('{Instructions,Preferences,Facts}'::text[], heading)) from (
    select h as heading, string_agg('- ' || t, E'\n' order by n) as lines
    from unnest(v_headings, v_texts) with ordinality x(h, t, n) group by h) g), '');
  v_profile.tokens := jsonb_build_object(v_tokenizer, _memoir.tokens_of(v_profile.content, v_tokenizer));
  select min(x.at) into v_profile.fresh_until from _memoir.memory_store m, lateral (values (m.valid_from), (m.valid_to),
    (m.expires_at)) x(at)
  where m.user_id = p_user_id and m.scope = 'global' and m.tier in (3, 4) and m.state = 'active'
    and x.at > v_profile.recorded_at;
  return v_profile;
end $$;

-- Returns the version in force. Where a memory has left it since, that is what the job will make of it.
create or replace function _memoir.profile_in_force(p_user_id uuid, p_version integer)
returns _memoir.profiles language plpgsql stable as $$
declare
  v_profile _memoir.profiles;
begin
  select * into v_profile from _memoir.profiles p where p.user_id = p_user_id and p.version = p_version;
  if not found and p_version > 0 then v_profile := _memoir.profile_now(p_user_id); end if;
  return v_profile;
end $$;

create or replace function _memoir.step_profiles(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_user uuid; v_seen integer := 0; v_changed integer := 0; v_failed integer := 0; v_error text;
  v_new _memoir.profiles; v_old _memoir.profiles;
begin
  for v_user in select x.user_id from (
      (select c.user_id from _memoir.user_counters c where c.profile_stale limit p_limit)
      union
      (select p.user_id from _memoir.profiles p join _memoir.users u on u.user_id = p.user_id
        and u.profile_version = p.version
       where p.fresh_until <= memoir.now() limit p_limit)) x
    order by x.user_id limit p_limit
  loop
    perform from _memoir.user_counters where user_id = v_user for update skip locked;
    continue when not found;
    v_seen := v_seen + 1;
    begin
      v_new := _memoir.profile_now(v_user);
      continue when v_new.version is null;
      update _memoir.user_counters set profile_stale = false where user_id = v_user and profile_stale;
      select * into v_old from _memoir.profiles p where p.user_id = v_user and p.version = v_new.version;
      if v_old.content = v_new.content or v_new.version = 0 and v_new.content = '' then
        update _memoir.profiles p set fresh_until = v_new.fresh_until, memory_ids = v_new.memory_ids,
          left_out = v_new.left_out
        where p.user_id = v_user and p.version = v_new.version and (p.fresh_until, p.memory_ids, p.left_out)
          is distinct from (v_new.fresh_until, v_new.memory_ids, v_new.left_out);
        continue;
      end if;
      v_new.version := 1 + greatest(v_new.version, (select max(p.version) from _memoir.profiles p
        where p.user_id = v_user));
      insert into _memoir.profiles select v_new.*;
      update _memoir.users set profile_version = v_new.version where user_id = v_user;
      delete from _memoir.profiles where user_id = v_user
        and version <= v_new.version - (_memoir.config(v_user, null) ->> 'profile_versions')::integer;
      v_changed := v_changed + 1;
    exception when others then
      update _memoir.user_counters set profile_stale = false where user_id = v_user;
      v_failed := v_failed + 1; v_error := format('user %s: %s', v_user, sqlerrm);
    end;
  end loop;
  return jsonb_strip_nulls(jsonb_build_object('users', v_seen, 'changed', v_changed, 'failed', v_failed, 'error',
    v_error, 'more', v_seen = p_limit));
end $$;

create or replace function memoir.profile(p_user text)
returns jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  -- A caller limited to projects does not see what is known beyond them.
  return coalesce((select to_jsonb(p) - '{user_id,fresh_until}'::text[]
    from _memoir.users u, _memoir.profile_in_force(u.user_id, u.profile_version) p
    where u.user_id = v_caller.user_id and p.version is not null and (v_caller.projects is null
      or 'global' = any (v_caller.projects))), '{"version": 0, "content": ""}');
end $$;
comment on function memoir.profile(text) is
  'The profile in force: {"version", "content", "tokens", "memory_ids", "left_out", "made_by", "recorded_at"}; version
0 while there is none. What compile shows of it is fenced. left_out: wishes and health for which profile_tokens had no
room; they lead every recall, and the context warns. Raises PM001.';
