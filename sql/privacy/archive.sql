-- Months of turns past retention: compacted where their sessions have ended, then taken out whole and named turn by
-- turn, so that every turn ever written is either there or in the list of what was archived. What was derived from them
-- stays. Expired memories past theirs go one by one: keep and client with all they were, drop without. The settings
-- history_days, archive_* and expired_memory_days say what goes where (sql/data/settings.csv).

create or replace function _memoir.old_leaves()
returns table (leaf regclass, part integer, month date) language sql stable as $$
  select i.inhrelid::regclass, substring(c.relname from '_p(\d+)_y')::integer, to_date(right(c.relname, 7), 'YYYY"m"MM')
  from pg_inherits p join pg_inherits i on i.inhparent = p.inhrelid join pg_class c on c.oid = i.inhrelid,
    _memoir.settings_merged s
  where p.inhparent = '_memoir.conversation_history'::regclass and (s.config ->> 'history_days')::integer > 0
    and to_date(right(c.relname, 7), 'YYYY"m"MM') + interval '1 month' <= (memoir.now() at time zone 'UTC')
      - make_interval(days => (s.config ->> 'history_days')::integer)
    and not exists (select from _memoir.archives a where a.leaf = c.relname and a.restored_until > memoir.now())
  order by 3, 2
$$;

-- Returns what a leaf holds of which sessions. Leaves are named: reading the parent would open every hash part.
create or replace function _memoir.leaf_sessions(p_leaf regclass)
returns table (user_id uuid, session_id uuid, from_turn integer, to_turn integer, turns bigint, tokens bigint)
  language plpgsql stable as $$
begin
  return query execute
    format('select user_id, session_id, min(turn_index), max(turn_index), count(*), sum(token_count)::bigint from %s '
      'group by 1, 2 order by 1, 2', p_leaf);
end $$;

create or replace function _memoir.uncovered(p_leaf regclass)
returns table (user_id uuid, session_id uuid, status _memoir.session_status, turns bigint) language plpgsql stable as $$
declare
  v_part record; v_done int4multirange;
begin
  for v_part in select * from _memoir.leaf_sessions(p_leaf) loop
    select coalesce(range_agg(int4range(c.from_turn, c.to_turn + 1)), '{}') into v_done from _memoir.compactions c
    where c.user_id = v_part.user_id and c.session_id = v_part.session_id and c.undone_at is null and c.level > 0;
    user_id := v_part.user_id; session_id := v_part.session_id;
    select coalesce(sum(upper(r) - lower(r)), 0) into turns
    from unnest(int4multirange(int4range(v_part.from_turn, v_part.to_turn + 1)) - v_done) r;
    continue when turns = 0;
    select s.status into status from _memoir.sessions s where s.user_id = v_part.user_id
      and s.session_id = v_part.session_id;
    return next;
  end loop;
end $$;

-- Compacts the ended sessions of a leaf where no summary stands for their turns yet, up to p_limit stretches.
-- p_waiting: the turns without one that were seen before the limit was reached.
create or replace function _memoir.compact_leaf(p_leaf regclass, p_limit integer, out p_waiting bigint,
  out p_compacted integer)
language plpgsql as $$
declare
  v_open record; v_session _memoir.sessions; v_settings jsonb; v_counters _memoir.session_counters; v_range record;
  v_row _memoir.compactions;
begin
  p_waiting := 0;
  p_compacted := 0;
  for v_open in select * from _memoir.uncovered(p_leaf) loop
    p_waiting := p_waiting + v_open.turns;
    continue when v_open.status not in ('closed', 'expired');
    select * into v_session from _memoir.sessions where user_id = v_open.user_id and session_id = v_open.session_id;
    v_settings := _memoir.config(v_open.user_id, v_session.settings);
    select * into v_counters from _memoir.session_counters c where c.user_id = v_open.user_id
      and c.session_id = v_open.session_id;
    select r.from_turn, r.to_turn into v_range from _memoir.compaction_range(v_session, v_counters, 0,
      (v_settings ->> 'compaction_tokens')::bigint, true) r;
    if v_range.from_turn is null then
      -- Less is left than compaction would take, so its last exchange is included.
      select coalesce(max(c.to_turn) + 1, coalesce(v_session.parent_turn, 0)) as from_turn,
        v_counters.turn_count - 1 as to_turn into v_range from _memoir.live_compactions(v_session) c;
      continue when v_range.from_turn > v_range.to_turn or _memoir.kept_exchanges(v_session)
        && int4multirange(int4range(v_range.from_turn, v_range.to_turn + 1));
    end if;
    v_row := _memoir.compact_range(v_session, v_range.from_turn, v_range.to_turn, v_settings, 'archive');
    continue when v_row.compaction_id is null;
    perform _memoir.refresh_summary(v_session.user_id, v_session.session_id);
    if _memoir.raise_summaries(v_session, v_settings) > 0 then perform _memoir.refresh_summary(v_session.user_id,
      v_session.session_id); end if;
    p_compacted := p_compacted + 1;
    exit when p_compacted >= p_limit;
  end loop;
end $$;

-- Takes the turns of a leaf out of what their users' recall knows, up to p_limit users at a time. Returns how many
-- users it were; less than none: so many are busy.
create or replace function _memoir.unlist_leaf(p_leaf regclass, p_month date, p_limit integer)
returns integer language plpgsql as $$
declare
  v_from timestamptz := p_month::timestamp at time zone 'UTC';
  v_to timestamptz := (p_month + interval '1 month')::timestamp at time zone 'UTC';
  v_users uuid[]; v_user uuid; v_done integer := 0;
begin
  execute format('select array(select u.user_id from (select distinct user_id from %s) u
    where exists (select from _memoir.search_items i where i.user_id = u.user_id and i.kind = ''t''
      and i.recorded_at >= $1 and i.recorded_at < $2 and not i.dead) order by 1 limit $3)', p_leaf)
  into v_users using v_from, v_to, p_limit;
  foreach v_user in array v_users loop
    continue when not _memoir.try_lock(v_user);
    v_done := v_done + 1;
    -- They are found no more; the next turns still lean on their places.
    delete from _memoir.embeddings e using _memoir.search_items i
    where i.user_id = v_user and i.kind = 't' and i.recorded_at >= v_from and i.recorded_at < v_to
      and e.user_id = v_user and e.item_no = i.item_no;
    update _memoir.search_items set dead = true where user_id = v_user and kind = 't' and recorded_at >= v_from
      and recorded_at < v_to and not dead;
    perform _memoir.release_echoes(v_user, array(select distinct t.ref_id from _memoir.search_items t
      where t.user_id = v_user and t.kind = 't' and t.recorded_at >= v_from and t.recorded_at < v_to));
    perform _memoir.drop_recalled(v_user, null);
    update _memoir.user_counters set has_archive = true where user_id = v_user and not has_archive;
  end loop;
  return case when v_done > 0 then v_done else -cardinality(v_users) end;
end $$;

-- Takes one leaf out, or finishes it where it is detached. False: its parent is locked, the next run tries again.
create or replace function _memoir.archive_leaf(p_leaf regclass, p_part integer, p_month date, p_destination text)
returns boolean language plpgsql set lock_timeout = '200ms' as $$
declare
  v_archive bigint; v_rows bigint; v_name name := (select relname from pg_class where oid = p_leaf);
  v_now timestamptz := memoir.now();
begin
  -- Nobody erases from it while it is counted; reading goes on.
  perform _memoir.run_ddl(format('lock table %s in share row exclusive mode', p_leaf));
  insert into _memoir.archives as a (leaf, part, month, state, destination, recorded_at)
  values (v_name, p_part, p_month, 'detaching', p_destination, v_now)
  -- What waited for a client goes as it is wanted now.
  on conflict (leaf) where state in ('ready', 'exported', 'detaching') do update set destination = case
    when a.state = 'ready' then p_destination else a.destination end returning a.archive_id into v_archive;
  insert into _memoir.archived_turns (user_id, session_id, from_turn, to_turn, turns, tokens, archive_id, recorded_at)
  select l.user_id, l.session_id, l.from_turn, l.to_turn, l.turns, l.tokens, v_archive, v_now
  from _memoir.leaf_sessions(p_leaf) l;
  select coalesce(sum(turns), 0) into v_rows from _memoir.archived_turns where archive_id = v_archive;
  -- Only now the lock that readers wait behind, until this commits.
  if exists (select from pg_inherits where inhrelid = p_leaf) then
    perform _memoir.run_ddl(format('lock table _memoir.%I in access exclusive mode',
      _memoir.leaf_name('conversation_history', p_part)));
    perform _memoir.run_ddl(format('alter table _memoir.%I detach partition %s',
      _memoir.leaf_name('conversation_history', p_part), p_leaf));
  end if;
  if p_destination = 'keep' then
    perform _memoir.run_ddl(format('alter table %s rename to %I', p_leaf, 'archived_' || v_name));
  else
    perform _memoir.run_ddl(format('drop table %s', p_leaf));
  end if;
  update _memoir.archives set state = case p_destination when 'keep' then 'kept' else 'dropped' end, turns = v_rows
  where archive_id = v_archive;
  perform _memoir.audit('archive', jsonb_build_object('leaf', v_name, 'month', p_month, 'part', p_part, 'turns', v_rows,
    'destination', p_destination));
  return true;
exception when lock_not_available or deadlock_detected then
  return false;
end $$;

-- Memories that expired long ago, of the next p_limit users: their rows go, but what they led to and came from is kept.
create or replace function _memoir.archive_memories(p_config jsonb, p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_users uuid[]; v_hit record; v_ids uuid[]; v_count integer := 0; v_now timestamptz := memoir.now();
  v_before timestamptz := v_now - make_interval(days => (p_config ->> 'expired_memory_days')::integer);
  v_whole boolean := p_config ->> 'archive_destination' <> 'drop';
begin
  if (p_config ->> 'expired_memory_days')::integer = 0 then return '{}'; end if;
  v_users := _memoir.next_users('archive', p_limit);
  for v_hit in select m.user_id, array_agg(m.memory_id order by m.memory_id) as ids from _memoir.memory_store m
    where m.user_id = any (v_users) and m.state = 'expired' and m.state_at < v_before group by m.user_id
    order by m.user_id
  loop
    continue when not _memoir.try_lock(v_hit.user_id);
    -- What another memory was superseded by, stays beside it.
    v_ids := array(select m.memory_id from _memoir.memory_store m
      where m.user_id = v_hit.user_id and m.memory_id = any (v_hit.ids) and m.state = 'expired'
        and m.state_at < v_before
        and not exists (select from _memoir.memory_store o where o.user_id = v_hit.user_id
        and o.superseded_by = m.memory_id));
    continue when v_ids = '{}';
    insert into _memoir.archived_memories (user_id, memory_id, session_id, recorded_at, memory)
    select m.user_id, m.memory_id, m.session_id, v_now, case
      when v_whole then to_jsonb(m) || jsonb_build_object('states',
      (select jsonb_agg(to_jsonb(s) order by s.seq) from _memoir.memory_states s where s.user_id = v_hit.user_id
        and s.memory_id = m.memory_id)) end
    from _memoir.memory_store m where m.user_id = v_hit.user_id and m.memory_id = any (v_ids)
    on conflict (user_id, memory_id) do update set memory = excluded.memory, recorded_at = excluded.recorded_at;
    perform _memoir.drop_items(v_hit.user_id, array(select i.item_no from _memoir.search_items i
      where i.user_id = v_hit.user_id and i.ref_id = any (v_ids)));
    delete from _memoir.memory_stats where user_id = v_hit.user_id and memory_id = any (v_ids);
    delete from _memoir.memory_states where user_id = v_hit.user_id and memory_id = any (v_ids);
    delete from _memoir.memory_renditions where user_id = v_hit.user_id and memory_id = any (v_ids);
    delete from _memoir.session_objects where user_id = v_hit.user_id and memory_id = any (v_ids);
    delete from _memoir.object_places where user_id = v_hit.user_id and memory_id = any (v_ids);
    delete from _memoir.memory_judgements where user_id = v_hit.user_id
      and (memory_id = any (v_ids) or other_id = any (v_ids));
    delete from _memoir.memory_relationships where user_id = v_hit.user_id
      and (source_id = any (v_ids) or target_id = any (v_ids));
    with gone as (delete from _memoir.memory_store where user_id = v_hit.user_id and memory_id = any (v_ids)
      returning is_object)
    update _memoir.user_counters set memories = greatest(0, memories - (select count(*) from gone where not is_object))
    where user_id = v_hit.user_id;
    v_count := v_count + cardinality(v_ids);
  end loop;
  perform _memoir.audit('archive', jsonb_build_object('memories', v_count, 'destination',
    p_config ->> 'archive_destination')) where v_count > 0;
  return jsonb_build_object('memories', v_count, 'more', cardinality(v_users) = p_limit);
end $$;

-- Some stretches of compaction, one leaf, or the memories of some users.
create or replace function _memoir.step_archive(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_config jsonb := (select config from _memoir.settings_merged);
  v_destination text := v_config ->> 'archive_destination'; v_leaf record; v_waiting bigint; v_done integer;
  v_blocked integer := 0; v_locked integer := 0; v_asked integer := 0; v_name name;
begin
  if v_destination = '' then return '{}'; end if;
  -- Leaves that are detached and wait for the rest: the statement was sent from outside.
  for v_leaf in
    select c.oid::regclass as leaf, a.part, a.month from _memoir.archives a join pg_class c on c.relname = a.leaf
      and c.relnamespace = '_memoir'::regnamespace
    where a.state = 'detaching' and not exists (select from pg_inherits i where i.inhrelid = c.oid)
    order by a.month, a.part
  loop
    if _memoir.archive_leaf(v_leaf.leaf, v_leaf.part, v_leaf.month, v_destination)
      then return '{"months": 1, "more": true}'; end if;
    v_locked := v_locked + 1;
  end loop;
  for v_leaf in select * from _memoir.old_leaves() loop
    v_waiting := 0; v_name := (select relname from pg_class where oid = v_leaf.leaf);
    if v_config ->> 'archive_requires' = 'compacted' then
      select * into v_waiting, v_done from _memoir.compact_leaf(v_leaf.leaf, p_limit);
      -- Of one leaf, whose users are in order: those who lock more than one user do it in that order.
      if v_done > 0 then return jsonb_build_object('compacted', v_done, 'more', true); end if;
    end if;
    if v_waiting > 0 then v_blocked := v_blocked + 1; continue; end if;
    if v_destination = 'client' and not exists (select from _memoir.archives a where a.leaf = v_name
      and a.state in ('exported', 'detaching')) then
      insert into _memoir.archives (leaf, part, month, state, destination, recorded_at)
      values (v_name, v_leaf.part, v_leaf.month, 'ready', v_destination, memoir.now())
      on conflict (leaf) where state in ('ready', 'exported', 'detaching') do nothing;
      continue;
    end if;
    v_waiting := _memoir.unlist_leaf(v_leaf.leaf, v_leaf.month, 100);
    if v_waiting > 0 then return '{"more": true}'; end if;
    if v_waiting < 0 then v_locked := v_locked + 1; continue; end if;
    if v_config ->> 'archive_detach' = 'concurrently' then
      insert into _memoir.archives (leaf, part, month, state, destination, recorded_at)
      values (v_name, v_leaf.part, v_leaf.month, 'detaching', v_destination, memoir.now())
      on conflict (leaf) where state in ('ready', 'exported', 'detaching') do update set state = 'detaching'
        where archives.state <> 'detaching';
      v_asked := v_asked + 1;
      continue;
    end if;
    if _memoir.archive_leaf(v_leaf.leaf, v_leaf.part, v_leaf.month, v_destination)
      then return '{"months": 1, "more": true}'; end if;
    v_locked := v_locked + 1;
  end loop;
  return jsonb_build_object('blocked', v_blocked, 'locked', v_locked, 'detaching', v_asked)
    || _memoir.archive_memories(v_config, 200);
end $$;

create or replace function memoir.archive_plan()
returns table (part integer, month date, turns bigint, uncompacted bigint, sessions_open bigint, export text)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  return query
  select l.part, l.month, (select coalesce(sum(x.turns), 0)::bigint from _memoir.leaf_sessions(l.leaf) x),
    coalesce(u.turns, 0)::bigint, coalesce(u.open, 0)::bigint,
    (select a.state from _memoir.archives a join pg_class c on c.relname = a.leaf where c.oid = l.leaf
      and a.state in ('ready', 'exported', 'detaching'))
  from _memoir.old_leaves() l
  cross join lateral (select sum(x.turns) as turns, count(*) filter (where x.status in ('active', 'paused')) as open
  from _memoir.uncovered(l.leaf) x) u
  order by l.month, l.part;
end $$;
comment on function memoir.archive_plan() is
  'The leaves (hash part, month) of turns past history_days: how many turns, for how many of them no summary stands,
how many sessions that still run keep them, and how far it is: ready (a client is to export it), exported, detaching
(bare_statements has the statement). Admin only. Raises PM001.';

create or replace function memoir.export_month(p_part integer, p_month date, p_after text default null,
  p_limit integer default 1000)
returns table (key text, turn jsonb) language plpgsql stable security definer set search_path from current as $$
declare
  v_leaf regclass := to_regclass('_memoir.' || quote_ident(_memoir.leaf_name('conversation_history', p_part, p_month)));
  v_user uuid; v_session uuid; v_turn integer;
begin
  perform _memoir.authorise_admin(), _memoir.check_count('limit', p_limit, 100000);
  perform _memoir.refuse_value(p_after !~ '^[0-9a-f-]{36}/[0-9a-f-]{36}/[0-9]{1,9}$', 'after', p_after,
    'a key of this function');
  if v_leaf is null then return; end if;
  v_user := coalesce(split_part(p_after, '/', 1), '00000000-0000-0000-0000-000000000000')::uuid;
  v_session := coalesce(split_part(p_after, '/', 2), '00000000-0000-0000-0000-000000000000')::uuid;
  v_turn := coalesce(split_part(p_after, '/', 3), '-1')::integer;
  return query execute format($q$
    select format('%%s/%%s/%%s', h.user_id, h.session_id, h.turn_index), to_jsonb(h) || jsonb_build_object('user',
      u.external_id, 'session', s.external_id)
    from (select * from %s where (user_id, session_id, turn_index) > ($1, $2, $3)
      order by user_id, session_id, turn_index limit $4) h
    join _memoir.users u on u.user_id = h.user_id join _memoir.sessions s on s.user_id = h.user_id
      and s.session_id = h.session_id
    order by h.user_id, h.session_id, h.turn_index $q$, v_leaf) using v_user, v_session, v_turn, p_limit;
end $$;
comment on function memoir.export_month(integer, date, text, integer) is
  'The turns of a leaf as JSON, p_limit at a time behind the key p_after, secret ones too: what a client writes away
before the month is dropped. Admin only. Raises PM001, PM014.';

create or replace function memoir.confirm_export(p_part integer, p_month date, p_turns bigint, p_destination text)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_leaf name := _memoir.leaf_name('conversation_history', p_part, p_month); v_turns bigint;
begin
  perform _memoir.authorise_admin(), _memoir.check_short('destination', p_destination, 2000);
  if not exists (select from _memoir.archives where leaf = v_leaf and state = 'ready') then return false; end if;
  select coalesce(sum(l.turns), 0) into v_turns
  from _memoir.leaf_sessions(('_memoir.' || quote_ident(v_leaf))::regclass) l;
  perform _memoir.fail('PM014', format('part %s, month %s has %s turns, not %s', p_part, p_month, v_turns,
    coalesce(p_turns::text, 'null')), 'export it again') where v_turns <> coalesce(p_turns, -1);
  update _memoir.archives set state = 'exported', destination = coalesce(p_destination, destination)
  where leaf = v_leaf and state = 'ready';
  perform _memoir.audit('export_month', jsonb_build_object('leaf', v_leaf, 'turns', p_turns, 'destination',
    p_destination));
  return true;
end $$;
comment on function memoir.confirm_export(integer, date, bigint, text) is
  'Says that a leaf''s turns are written away, all p_turns of them, and where; the archive job then drops it. False
where none is waiting for that. Admin only. Raises PM001, PM014.';

create or replace function memoir.restore_month(p_part integer, p_month date, p_turns jsonb default null,
  p_days integer default 30)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_month date := date_trunc('month', p_month)::date; v_archive _memoir.archives;
  v_turns _memoir.conversation_history[]; v_restored bigint := 0; v_missing bigint; v_left bigint := 0;
  v_now timestamptz := memoir.now(); v_kept regclass;
begin
  perform _memoir.authorise_admin(), _memoir.check_count('days', p_days, 36500);
  perform _memoir.refuse_value(coalesce(jsonb_typeof(p_turns), 'null') not in ('array', 'null'), 'turns', p_turns,
    'a list of what export_month gave');
  perform _memoir.make_part(p_part, v_month)
  where exists (select from _memoir.archives a where a.part = p_part and a.month = v_month);
  for v_archive in select * from _memoir.archives a where a.part = p_part and a.month = v_month
    and a.state in ('kept', 'dropped') order by a.archive_id for update
  loop
    -- Of the turns that are kept or were given, those that nobody has erased since.
    v_kept := to_regclass(format('_memoir.%I', 'archived_' || v_archive.leaf));
    if v_archive.state = 'kept' then
      execute format('select array_agg(row(h.*)::_memoir.conversation_history) from %s h', v_kept) into v_turns;
    else
      v_turns := array(select h from jsonb_populate_recordset(null::_memoir.conversation_history, p_turns) h);
    end if;
    v_turns := array(select h from unnest(v_turns) h
      join _memoir.archived_turns a on a.user_id = h.user_id and a.session_id = h.session_id
        and h.turn_index between a.from_turn and a.to_turn and a.archive_id = v_archive.archive_id
      where _memoir.month_of(h.recorded_at) = v_archive.month and _memoir.part_of(h.user_id) = v_archive.part
        and not exists (select from _memoir.turn_marks m where m.user_id = h.user_id and m.session_id = h.session_id
          and m.turn_index = h.turn_index and m.mark = 'erased')
        and not exists (select from _memoir.conversation_history o where o.user_id = h.user_id
          and o.session_id = h.session_id and o.turn_index = h.turn_index and o.recorded_at = h.recorded_at)
      order by h.user_id, h.session_id, h.turn_index);
    perform from _memoir.user_counters c where c.user_id in (select t.user_id from unnest(v_turns) t)
      order by c.user_id for update;
    insert into _memoir.conversation_history select t.* from unnest(v_turns) t;
    if v_archive.state = 'kept' then perform _memoir.run_ddl(format('drop table %s', v_kept)); end if;
    perform _memoir.reindex_turn(t, _memoir.sensitivity_now(t.sensitivity, t.turn_index,
      _memoir.marks(t.user_id, t.session_id))) from unnest(v_turns) t;
    select coalesce(sum(a.turns - (select count(*) from _memoir.conversation_history h where h.user_id = a.user_id
        and h.session_id = a.session_id and h.turn_index between a.from_turn and a.to_turn)
      - (select count(*) from _memoir.turn_marks m where m.user_id = a.user_id and m.session_id = a.session_id
        and m.turn_index between a.from_turn and a.to_turn and m.mark = 'erased')), 0) into v_missing
    from _memoir.archived_turns a where a.archive_id = v_archive.archive_id;
    if v_missing <= 0 or v_archive.state = 'kept' then
      delete from _memoir.archived_turns where archive_id = v_archive.archive_id;
      v_missing := 0;
    end if;
    update _memoir.archives set
      restored_until = case when v_turns <> '{}' then v_now + make_interval(days => p_days) else restored_until end,
      state = case when v_missing = 0 then 'restored' else state end
    where archive_id = v_archive.archive_id;
    v_restored := v_restored + cardinality(v_turns);
    v_left := v_left + v_missing;
  end loop;
  perform _memoir.audit('restore', jsonb_build_object('part', p_part, 'month', v_month, 'turns', v_restored));
  return jsonb_build_object('restored', v_restored, 'missing', v_left);
end $$;
comment on function memoir.restore_month(integer, date, jsonb, integer) is
  'Brings an archived month of a hash part back: from its own table (archive_destination keep), else from p_turns, a
list of what export_month gave ("turn"), any number at a time. What was erased since stays away. Its turns are read and
found again; they are archived anew no earlier than p_days from now. Returns {"restored", "missing"}, 0 of both where
nothing of that month is archived. Takes as long as storing them did. Writes conversation_history, search items,
archives, archived_turns, audit_log. Admin only. Raises PM001, PM014.';

create or replace function memoir.export_memories(p_limit integer default 1000)
returns table (user_id uuid, memory_id uuid, memory jsonb) language plpgsql stable security definer
  set search_path from current as $$
begin
  perform _memoir.authorise_admin(), _memoir.check_count('limit', p_limit, 100000);
  return query
  select a.user_id, a.memory_id, a.memory || jsonb_build_object('user', u.external_id, 'session', s.external_id)
  from _memoir.archived_memories a left join _memoir.users u on u.user_id = a.user_id
  left join _memoir.sessions s on s.user_id = a.user_id and s.session_id = a.session_id
  where a.memory is not null order by a.user_id, a.memory_id limit p_limit;
end $$;
comment on function memoir.export_memories(integer) is
  'Archived memories whose text is still here, as JSON with their states, secret ones too: what a client writes away
before it confirms (confirm_memories). Admin only. Raises PM001, PM014.';

create or replace function memoir.confirm_memories(p_user_ids uuid[], p_memory_ids uuid[])
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_count integer;
begin
  perform _memoir.authorise_admin();
  if coalesce(cardinality(p_user_ids), 0) <> coalesce(cardinality(p_memory_ids), 0) then
    perform _memoir.fail('PM014', format('%s users and %s memories are not parallel',
      coalesce(cardinality(p_user_ids), 0), coalesce(cardinality(p_memory_ids), 0)));
  end if;
  update _memoir.archived_memories a set memory = null from unnest(p_user_ids, p_memory_ids) x(user_id, memory_id)
  where a.user_id = any (p_user_ids) and a.user_id = x.user_id and a.memory_id = x.memory_id and a.memory is not null;
  get diagnostics v_count = row_count;
  perform _memoir.audit('export_memories', jsonb_build_object('memories', v_count));
  return v_count;
end $$;
comment on function memoir.confirm_memories(uuid[], uuid[]) is
  'Says that archived memories are written away: their text goes, that they were is kept. Parallel arrays; returns
how many. Admin only. Raises PM001, PM014.';
