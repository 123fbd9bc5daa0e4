-- The life of a memory after it is written: promotion, demotion, expiry, that of idle sessions too.
--   tier 1 ── used ──> 2 ── used ──> 3 semantic, or 4 procedural            U(m), per user whose memories were recalled
--   tier 2 ── idle ──> 1 ── idle or over ──> expired                        D(m), a slow walk over all users
--   tiers 3 and 4 keep their place; what fades is their confidence, at read: c * 2^(-time since reinforced / half-life)
-- Every step function does one bounded batch in one short transaction and says whether more is waiting. A user who is
-- just being written for is left for the next time.

-- Has nobody used it, after its grace? [PG] 5.3: uses per hour since the last one. Writing a memory counts as its first
-- use, else nothing new would survive its grace.
create or replace function _memoir.is_idle(p_memory _memoir.memory_store, p_stats _memoir.memory_stats,
  p_config jsonb, p_now timestamptz)
returns boolean language sql stable as $$
  select greatest(p_memory.recorded_at, p_stats.last_accessed_at, p_stats.reinforced_at)
      < p_now - make_interval(days => (p_config ->> 'demotion_grace_days')::integer)
    and (1 + coalesce(p_stats.access_count, 0) + coalesce(p_stats.restatements, 0)) / greatest(1, extract(epoch
        from p_now - greatest(p_memory.recorded_at, p_stats.last_accessed_at, p_stats.reinforced_at))::float8 / 3600)
      < (p_config ->> ('demotion_floor_' || p_memory.tier))::float8
$$;

-- The same, concluded in other sessions, where it is local: what no person said stays in its session until it rises.
create or replace function _memoir.twins(p_memory _memoir.memory_store)
returns uuid[] language plpgsql stable as $$
declare
  v_user uuid := p_memory.user_id;
begin
  return array(select m.memory_id from _memoir.memory_store m
    where m.user_id = v_user and m.content_hash = p_memory.content_hash and m.project = p_memory.project
      and m.local_to is not null and m.state = 'active' and m.memory_id <> p_memory.memory_id
    order by m.recorded_at, m.memory_id);
end $$;

-- Raises one memory by a tier and returns how it went: 2, 3, 4 (its new tier), waiting, merged, refused. Under the
-- user's lock. Promotion validates, but what no person said or is contested waits for validate() or a second session.
create or replace function _memoir.promote(p_memory _memoir.memory_store, p_config jsonb, p_by text, p_at timestamptz)
returns text language plpgsql as $$
declare
  v_user uuid := p_memory.user_id; v_id uuid := p_memory.memory_id; v_tier smallint; v_ids uuid[];
begin
  -- A twin that rose before it took it along.
  if not exists (select from _memoir.memory_store m where m.user_id = v_user and m.memory_id = v_id
    and m.state = 'active') then return 'merged'; end if;
  if (_memoir.tombstone_of(v_user, p_memory.content, p_memory.slot, p_memory.slot_value, p_memory.project)).user_id
    is not null then
    perform _memoir.set_state(v_user, array[v_id], 'forgotten', p_by, 'tombstone', null, p_at);
    return 'refused';
  end if;
  if p_memory.validated_at is null and (p_memory.provenance in ('tool_output', 'system_inferred')
    -- Something that stands contradicts it: edges either way, and another value of its slot where it would stand.
    or exists (select from _memoir.memory_relationships r join _memoir.memory_store o on o.user_id = v_user
        and o.memory_id in (r.source_id, r.target_id) and o.memory_id <> v_id and o.state = 'active'
      where r.user_id = v_user and v_id in (r.source_id, r.target_id) and r.relation = 'contradicts')
    or p_memory.slot is not null and exists (select from _memoir.memory_store o where o.user_id = v_user
      and o.slot = p_memory.slot and o.state = 'active' and o.scope = 'global' and o.memory_id <> v_id
      and o.slot_value is distinct from p_memory.slot_value and _memoir.may_conflict(o, p_memory)))
  then
    -- Sessions that support it: its own, those of the turns it is drawn from, and the same of its twins.
    v_ids := v_id || _memoir.twins(p_memory);
    if 2 > (select count(distinct x.session_id) from (select s.session_id from _memoir.memory_sources s
      where s.user_id = v_user and s.item_kind = 'memory' and s.item_id = any (v_ids)
      union all select m.session_id from _memoir.memory_store m
      where m.user_id = v_user and m.memory_id = any (v_ids)) x) then return 'waiting'; end if;
  end if;
  -- How to act, rather than how things are, is procedural: tier 4, not 3.
  v_tier := case when p_memory.tier = 1 then 2
    when p_memory.type in ('instruction', 'preference') or p_memory.provenance in ('instruction', 'preference')
      or p_memory.provenance in ('user_stated', 'correction') and (p_memory.category in ('workflow', 'convention')
        or p_memory.content ~* '^\s*(please\s+)?(always|never|don''t|do not|make sure|be sure|remember to|use|avoid'
          '|answer|reply|respond|write|call me)\M') then 4 else 3 end;
  -- It leaves its session. What says the same outside already goes on for both.
  if p_memory.scope = 'local' and _memoir.make_global(v_user, v_id, p_by, p_at) <> v_id then return 'merged'; end if;
  update _memoir.memory_store set tier = v_tier, validated_at = coalesce(validated_at, p_at),
    confidence = greatest(confidence, 0.7::real),  -- the least of what promotion has validated
    expires_at = case when v_tier = 2 then p_at + make_interval(days => (p_config ->> 'episodic_days')::integer) end
  where user_id = v_user and memory_id = v_id;
  if p_memory.scope = 'local' then
    perform _memoir.merge_memory(v_user, t, v_id, p_by, p_at) from unnest(_memoir.twins(p_memory)) t;
    perform _memoir.settle_slot(v_user, v_id, null, p_by);
  end if;
  update _memoir.user_counters set profile_stale = true where v_tier >= 3 and user_id = v_user and not profile_stale;
  return v_tier::text;
end $$;

create or replace function _memoir.step_promotion(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_work _memoir.work_items; v_counts jsonb := '{}'; v_users integer := 0; v_failed integer := 0; v_error text;
  v_user uuid; v_config jsonb; v_now timestamptz := memoir.now(); v_memory _memoir.memory_store; v_how text;
  v_accesses integer[]; v_raised jsonb;
  -- Discount of utility per hour of age, and the utility above which a memory rises, by tier.
  v_lambda constant float8[] := '{0.01,0.001}'; v_theta constant float8[] := '{0.3,0.5}';
begin
  for v_work in select * from _memoir.work_items where kind = 'promote' and state = 'ready'
    and run_after <= greatest(memoir.now(), clock_timestamp())
    order by priority desc, run_after, work_id limit p_limit for update skip locked
  loop
    v_user := v_work.user_id;
    continue when not _memoir.try_lock(v_user) and exists (select from _memoir.user_counters where user_id = v_user);
    begin
      v_config := _memoir.config(v_user, null);
      v_accesses := array[v_config ->> 'promotion_accesses_1', v_config ->> 'promotion_accesses_2'];
      v_raised := v_counts;
      -- All memories that have earned it, in the order in which they were written.
      for v_memory in select m.* from _memoir.memory_store m join _memoir.memory_stats s on s.user_id = v_user
          and s.memory_id = m.memory_id
        where m.user_id = v_user and m.state = 'active' and m.tier in (1, 2) and not m.is_object
          and (m.expires_at is null or m.expires_at > v_now) and s.access_count >= v_accesses[m.tier]
          -- [PG] 5.2, utility: mean relevance times log2(1 + accesses), discounted by age in hours.
          and case when s.access_count > 0 then s.relevance_sum::float8 / s.access_count * ln(1 + s.access_count)
              / ln(2) / (1 + v_lambda[m.tier]
                * greatest(extract(epoch from v_now - m.recorded_at)::float8 / 3600, 0)) else 0 end > v_theta[m.tier]
        order by m.recorded_at, m.memory_id
      loop
        v_how := _memoir.promote(v_memory, v_config, 'promotion', v_now);
        v_how := case when v_how ~ '^\d$' then 'to_tier_' || v_how else v_how end;
        v_raised := _memoir.add_counts(v_raised, jsonb_build_object(v_how, 1));
      end loop;
      v_counts := v_raised;
      delete from _memoir.work_items where work_id = v_work.work_id;
      v_users := v_users + 1;
    exception when others then
      perform _memoir.put_back(v_work, sqlerrm);
      v_failed := v_failed + 1; v_error := format('user %s: %s', v_work.user_id, sqlerrm);
    end;
  end loop;
  return jsonb_strip_nulls(v_counts || jsonb_build_object('users', v_users, 'failed', v_failed, 'error', v_error,
    'more', v_users + v_failed = p_limit));
end $$;

-- Lowers tiers 1 and 2 that have no use, after their grace: 2 becomes 1 with a last grace, 1 expires.
create or replace function _memoir.step_demotion(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_users uuid[] := _memoir.next_users('demotion', p_limit); v_user uuid; v_demoted uuid[]; v_gone uuid[];
  v_config jsonb := (select config from _memoir.settings_merged); v_now timestamptz := memoir.now();
  v_count_demoted integer := 0; v_count_gone integer := 0;
begin
  -- Those who have anything to lower, in one statement and without a lock: most have not, most of the time.
  foreach v_user in array array(select m.user_id from _memoir.memory_store m
    left join _memoir.memory_stats s on s.user_id = any (v_users) and s.user_id = m.user_id
      and s.memory_id = m.memory_id
    where m.user_id = any (v_users) and m.state = 'active' and m.tier in (1, 2) and m.importance <> 'critical'
      and _memoir.is_idle(m, s, v_config, v_now)
    union  -- who has other limits is looked at in any case
    select u.user_id from _memoir.users u where u.user_id = any (v_users)
      and u.settings ?| '{demotion_grace_days,demotion_floor_1,demotion_floor_2}'
    order by 1)
  loop
    continue when not _memoir.try_lock(v_user);
    v_config := _memoir.config(v_user, null);
    select coalesce(array_agg(d.memory_id) filter (where d.tier = 2), '{}'),
      coalesce(array_agg(d.memory_id) filter (where d.tier = 1), '{}')
    into v_demoted, v_gone from (select m.memory_id, m.tier from _memoir.memory_store m
      left join _memoir.memory_stats s on s.user_id = v_user and s.memory_id = m.memory_id
      where m.user_id = v_user and m.state = 'active' and m.tier in (1, 2) and not m.is_object
        and m.importance <> 'critical' and _memoir.is_idle(m, s, v_config, v_now)
        and not exists (select from _memoir.session_objects o join _memoir.session_counters c on c.user_id = v_user
          and c.session_id = o.session_id
          where o.user_id = v_user and o.memory_id = m.memory_id and o.pinned_until_turn > c.turn_count)) d;
    update _memoir.memory_store set tier = 1, expires_at = least(expires_at,
      v_now + make_interval(days => (v_config ->> 'demotion_grace_days')::integer))
    where user_id = v_user and memory_id = any (v_demoted);
    perform _memoir.set_state(v_user, v_gone, 'expired', 'demotion', 'unused', null, v_now);
    v_count_demoted := v_count_demoted + cardinality(v_demoted);
    v_count_gone := v_count_gone + cardinality(v_gone);
  end loop;
  return jsonb_build_object('demoted', v_count_demoted, 'expired', v_count_gone, 'users', cardinality(v_users), 'more',
    cardinality(v_users) = p_limit);
end $$;

create or replace function _memoir.step_expiry(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_now timestamptz := memoir.now(); v_hit record; v_session _memoir.sessions; v_memories integer := 0;
  v_sessions integer := 0; v_renewed integer := 0; v_working integer; v_seen integer := 0; v_until timestamptz;
  v_more boolean;
begin
  for v_hit in select user_id, array_agg(memory_id order by memory_id) as ids from (
      select m.user_id, m.memory_id from _memoir.memory_store m
      where m.state = 'active' and m.expires_at is not null and m.expires_at <= v_now
      order by m.expires_at limit p_limit) d
    group by user_id order by user_id
  loop
    continue when not _memoir.try_lock(v_hit.user_id);
    v_memories := v_memories + _memoir.set_state(v_hit.user_id, array(
      select m.memory_id from _memoir.memory_store m where m.user_id = v_hit.user_id and m.memory_id = any (v_hit.ids)
        and m.state = 'active'
        and m.expires_at <= v_now), 'expired', 'expiry', 'expired', null, v_now);
  end loop;
  v_more := v_memories >= p_limit;

  for v_session in select * from _memoir.sessions s where s.status <> 'expired' and s.expires_at <= v_now
    order by s.expires_at limit p_limit loop
    -- Its end is counted from its last turn, which is not in the index. If that is later, the session moves on there.
    continue when not _memoir.try_lock(v_session.user_id, v_session.session_id);
    select * into v_session from _memoir.sessions where user_id = v_session.user_id
      and session_id = v_session.session_id;
    continue when v_session.status = 'expired' or v_session.expires_at > v_now;
    select greatest(v_session.created_at, c.last_recorded_at)
      + make_interval(hours => (_memoir.config(v_session.user_id, v_session.settings) ->> 'session_ttl_hours')::integer)
        into v_until
    from _memoir.session_counters c where c.user_id = v_session.user_id and c.session_id = v_session.session_id;
    v_seen := v_seen + 1;
    if v_until > v_now then
      update _memoir.sessions set expires_at = v_until where user_id = v_session.user_id
        and session_id = v_session.session_id;
      v_renewed := v_renewed + 1;
    else
      perform _memoir.end_session(v_session, 'expired', v_until);
      v_sessions := v_sessions + 1;
    end if;
  end loop;

  with gone as (delete from _memoir.memory_store_working w using (
      select o.user_id, o.session_id, o.key from _memoir.memory_store_working o
      where o.expires_at <= v_now limit p_limit) d
    where w.user_id = d.user_id and w.session_id = d.session_id and w.key = d.key returning 1)
  select count(*) into v_working from gone;
  return jsonb_build_object('memories', v_memories, 'sessions', v_sessions, 'renewed', v_renewed, 'working', v_working,
    'more', v_more or v_seen = p_limit or v_working = p_limit);
end $$;
