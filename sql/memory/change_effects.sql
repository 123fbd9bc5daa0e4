-- Takes a request to forget out of recall, with its change; p_start null: its whole turn. Under the user's lock.
create or replace function _memoir.exclude_request(p_turn _memoir.conversation_history, p_start integer,
  p_length integer, p_change uuid)
returns void language plpgsql as $$
begin
  perform _memoir.exclude_units(p_turn.user_id, array[(p_turn.message_id, p_turn.session_id, p_turn.turn_index,
    p_turn.recorded_at, p_turn.created_at, p_turn.role, coalesce(p_start, 1), case when p_start is null
      then length(p_turn.content) else p_length end, null, null, false)::_memoir.said_unit], false, p_change, p_turn,
    'asked to forget', memoir.now());
end $$;

-- Applies a turn's changes, under the user's lock: certain ones take effect, likely ones are noted. Returns counts.
create or replace function _memoir.take_effect(p_session _memoir.sessions, p_turn _memoir.conversation_history,
  p_changes _memoir.found_change[], p_by text, p_config jsonb)
returns jsonb language plpgsql as $$
declare
  v_change _memoir.found_change; v_unit _memoir.said_unit; v_changed integer := 0; v_likely integer := 0;
  v_user uuid := p_turn.user_id;
begin
  foreach v_change in array p_changes loop
    if v_change.grade = 'certain' then
      v_changed := v_changed + _memoir.change(p_session, p_turn, v_change, p_by, p_config)::integer;
    else
      -- It may have changed the span, which stays as it was said: where that is shown, the turn's clause is said too.
      v_unit := v_change.unit;
      insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, span_start, span_length,
        reason, recorded_at, changed, is_doubt, change_id, by_session, by_turn, by_start, by_length)
      select v_user, v_unit.session_id, v_unit.turn_index, gen_random_uuid(), v_unit.span_start, v_unit.span_length,
        'perhaps changed in conversation', memoir.now(), true, true, gen_random_uuid(), p_turn.session_id,
        p_turn.turn_index, v_change.span_start, v_change.span_length
      where not exists (select from _memoir.exclusions_of(v_user, v_unit.session_id, v_unit.turn_index) x
        where x.by_session = p_turn.session_id and x.by_turn = p_turn.turn_index and x.span_start = v_unit.span_start);
      perform _memoir.drop_recalled(v_user, array[v_unit.message_id::text]);
      v_likely := v_likely + 1;
    end if;
  end loop;
  return jsonb_strip_nulls(jsonb_build_object('changed', nullif(v_changed, 0), 'likely', nullif(v_likely, 0)));
end $$;

create or replace function _memoir.made_of(p_turn _memoir.conversation_history, p_change _memoir.found_change,
  p_old uuid[])
returns uuid language plpgsql stable as $$
begin
  return (
    select m.memory_id from _memoir.memory_sources s join _memoir.memory_store m on m.user_id = p_turn.user_id
      and m.memory_id = s.item_id and m.state = 'active'
    where s.user_id = p_turn.user_id and s.source_kind = 'turn' and s.source_id = p_turn.message_id
      and s.item_kind = 'memory' and m.memory_id <> all (p_old)
    order by _memoir.spans_overlap(s.span_start, s.span_length, p_change.span_start, p_change.span_length)
      desc nulls last, m.recorded_at desc, m.memory_id limit 1);
end $$;

-- One change: the older span is marked, and what was made of it gives way to what was said now. What remains of it goes
-- on as a memory of its own. False where another change did it already.
create or replace function _memoir.change(p_session _memoir.sessions, p_turn _memoir.conversation_history,
  p_change _memoir.found_change, p_by text, p_config jsonb)
returns boolean language plpgsql as $$
declare
  v_user uuid := p_turn.user_id; v_now timestamptz := memoir.now(); v_unit _memoir.said_unit := p_change.unit;
  v_old uuid[] := _memoir.memories_from(v_user, array[v_unit], false); v_new uuid; v_change uuid := gen_random_uuid();
  v_found _memoir.extracted; v_was _memoir.memory_store; v_turn _memoir.conversation_history; v_place _memoir.sessions;
begin
  if exists (select from _memoir.exclusions_of(v_user, v_unit.session_id, v_unit.turn_index) x where not x.is_doubt
      and x.span_start <= v_unit.span_start and x.span_start + x.span_length > v_unit.span_start) then
    return false;
  end if;
  -- Where no memory was made of the words, one is made, unless the door refuses it. What takes back a wish is a wish.
  v_new := _memoir.made_of(p_turn, p_change, v_old);
  select * into v_was from _memoir.memory_store where user_id = v_user and memory_id = v_old[1];
  if v_new is null or v_was.type = 'instruction' and not exists (select from _memoir.memory_store m
      where m.user_id = v_user and m.memory_id = v_new and m.type = v_was.type) then
    v_found := jsonb_populate_record(null::_memoir.extracted, jsonb_build_object('utility', 0.8, 'span_start',
      p_change.span_start, 'span_length', p_change.span_length, 'rule', 'changed', 'provenance', 'user_stated', 'type',
      case v_was.type when 'instruction' then v_was.type else 'fact' end, 'category', 'change', 'importance', 'normal',
      'text_no', 1, 'content', p_change.said, 'valid_from', p_turn.created_at, 'standing', v_was.type = 'instruction'));
    perform _memoir.enter_found(p_session, array[p_turn], array[v_found], p_by, 'rules 1', false, p_config);
    v_new := coalesce((select s.item_id from _memoir.memory_sources s where s.user_id = v_user
      and s.source_kind = 'turn' and s.source_id = p_turn.message_id and s.item_kind = 'memory'
      and s.span_start = p_change.span_start and s.item_id <> all (v_old) limit 1), v_new);
  end if;
  if v_old <> '{}' then
    if p_change.remainder is not null then
      v_was.recorded_at := v_now;
      v_was.content := p_change.remainder;
      v_was.slot := null;
      v_was.slot_value := null;
      v_was.confidence := null;
      v_was.superseded_by := null;
      v_was.written_by := p_by;
      v_was.metadata := v_was.metadata || jsonb_build_object('remainder_of', v_change);
      select h.* into v_turn from _memoir.conversation_history h where h.user_id = v_user
        and h.session_id = v_unit.session_id and h.recorded_at = v_unit.recorded_at
        and h.message_id = v_unit.message_id;
      select * into v_place from _memoir.sessions where user_id = v_user and session_id = v_unit.session_id;
      perform _memoir.enter(v_was, v_place, array[v_turn], array[v_unit.span_start], array[v_unit.span_length],
        v_turn.created_at, p_config);
    end if;
    if v_new is not null then
      perform _memoir.supersede(v_user, v_old, v_new, p_by, 'changed in conversation', v_now);
    else
      perform _memoir.set_state(v_user, v_old, 'invalidated', p_by, 'changed in conversation', null, v_now);
    end if;
  end if;
  perform _memoir.exclude_units(v_user, array[v_unit] || _memoir.echoes_of(v_unit, p_change.olds, p_turn), true,
    v_change, p_turn, 'changed in conversation', v_now);
  return true;
end $$;

-- Takes clauses out of recall and forgets memories, as p_turn asks. Under the user's lock.
create or replace function _memoir.forget_units(p_user_id uuid, p_units _memoir.said_unit[], p_memories uuid[],
  p_change uuid, p_turn _memoir.conversation_history, p_by text)
returns void language plpgsql as $$
declare
  v_now timestamptz := memoir.now();
begin
  perform _memoir.exclude_units(p_user_id, p_units, false, p_change, p_turn, 'asked to forget', v_now);
  if p_memories <> '{}' then
    perform _memoir.set_tombstones(p_user_id, p_memories, true, true, p_memories[1], 'asked to forget', 'person', p_by,
      v_now);
    perform _memoir.set_state(p_user_id, p_memories, 'forgotten', p_by, 'asked to forget', null, v_now, 'person');
    perform _memoir.withdraw_derived(p_user_id, p_memories, p_by, v_now, true);
    update _memoir.recall_exclusions set memory_id = p_memories[1] where user_id = p_user_id and change_id = p_change;
    perform _memoir.drop_recalled(p_user_id, p_memories::text[]);
  end if;
  perform _memoir.audit('forget', jsonb_build_object('change_id', p_change, 'memory_ids', p_memories, 'reason',
    'asked to forget'), p_user_id);
end $$;

-- Marks parts of a turn as over where p_new stands instead, as a later turn says, or forgets them. Returns the change.
create or replace function _memoir.change_turn(p_caller _memoir.caller, p_session _memoir.sessions, p_cited integer,
  p_units _memoir.said_unit[], p_new uuid)
returns uuid language plpgsql as $$
declare
  v_user uuid := p_caller.user_id; v_old uuid[]; v_now timestamptz := memoir.now(); v_change uuid := gen_random_uuid();
  v_turn _memoir.conversation_history := _memoir.turn(p_session.user_id, p_session.session_id, p_cited);
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_old := array(select m from unnest(_memoir.memories_from(v_user, p_units, p_new is null)) m
    where m is distinct from p_new);
  if p_new is null then
    perform _memoir.forget_units(v_user, p_units, v_old, v_change, v_turn, p_caller.login);
    return v_change;
  end if;
  perform _memoir.supersede(v_user, v_old, p_new, p_caller.login, 'changed in conversation', v_now);
  perform _memoir.exclude_units(v_user, p_units, true, v_change, v_turn, 'changed in conversation', v_now);
  return v_change;
end $$;

-- Forgets what a request means, as the package read it: spans, what repeats their values, the memories made of them or
-- named, and the request's own words. It has no effect where it is not clear. p_request: null outside a conversation.
-- p_preview: only says what it would be. Under the user's lock.
create or replace function _memoir.forget_meant(p_turn _memoir.conversation_history, p_request jsonb, p_result jsonb,
  p_preview boolean, p_by text)
returns jsonb language plpgsql as $$
declare
  v_user uuid := p_turn.user_id; v_change uuid := gen_random_uuid(); v_units _memoir.said_unit[]; v_memories uuid[];
  v_values text[] := array(select jsonb_array_elements_text(p_result -> 'values')); v_shown jsonb;
begin
  if p_result ->> 'outcome' is distinct from 'clear' then
    return jsonb_build_object('outcome', coalesce(p_result ->> 'outcome', 'nothing'));
  end if;
  v_units := array(select u from jsonb_populate_recordset(null::_memoir.said_unit, p_result -> 'units') u);
  v_units := v_units || array(select e from unnest(v_units) u, unnest(_memoir.echoes_of(u, v_values, p_turn)) e);
  v_memories := array(select m from unnest(_memoir.memories_from(v_user, v_units, true)) m
    union select jsonb_array_elements_text(p_result -> 'memories')::uuid);
  v_shown := jsonb_build_object('turns', (select coalesce(jsonb_agg(jsonb_build_object('session', s.external_id, 'turn',
      u.turn_index, 'text', u.said) order by u.created_at, u.turn_index, u.span_start), '[]')
      from (select distinct on (x.message_id, x.span_start) x.* from unnest(v_units) x) u
      join _memoir.sessions s on s.user_id = v_user and s.session_id = u.session_id),
    'memories', (select coalesce(jsonb_agg(jsonb_build_object('memory_id', m.memory_id, 'content', m.content)
      order by m.recorded_at, m.memory_id), '[]') from _memoir.memory_store m where m.user_id = v_user
      and m.memory_id = any (v_memories)));
  if p_preview then return v_shown || jsonb_build_object('outcome', 'preview'); end if;
  perform _memoir.forget_units(v_user, v_units, v_memories, v_change, p_turn, p_by);
  if p_request is not null then
    perform _memoir.exclude_request(p_turn, case when (p_result ->> 'is_whole')::boolean is not true
      then (p_request ->> 'span_start')::integer end, (p_request ->> 'span_length')::integer, v_change);
  end if;
  return v_shown || jsonb_build_object('outcome', 'forgotten', 'change_id', v_change);
end $$;

create or replace function memoir.undo_change(p_user text, p_change uuid)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_user uuid := v_caller.user_id;
  v_now timestamptz := memoir.now(); v_at timestamptz; v_units _memoir.said_unit[]; v_id uuid; v_back uuid[] := '{}';
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_units := array(
    select (s.message_id, x.session_id, x.turn_index, null, null, null, x.span_start, x.span_length, null, null, null)
      ::_memoir.said_unit
    from _memoir.recall_exclusions x
    join lateral (select i.ref_id as message_id from _memoir.search_items i where i.user_id = v_user
      and i.session_id = x.session_id and i.turn_index = x.turn_index and i.kind = 't' limit 1) s on true
    where x.user_id = v_user and x.change_id = p_change and x.lifted_at is null);
  with lifted as (
    update _memoir.recall_exclusions set lifted_at = v_now where user_id = v_user and change_id = p_change
      and lifted_at is null returning recorded_at)
  select min(recorded_at) into v_at from lifted;
  if v_at is null or exists (select from _memoir.recall_exclusions x
    join _memoir.sessions s on s.user_id = v_user and s.session_id = x.session_id
    where x.user_id = v_user and x.change_id = p_change and s.project <> all (v_caller.projects)) then
    perform _memoir.fail('PM004', format('unknown change %s', _memoir.shown(p_change::text)),
      'list_changes names them');
  end if;
  update _memoir.tombstones set lifted_at = v_now, lifted_by = v_caller.login
  where user_id = v_user and recorded_at = v_at and lifted_at is null and reason = 'asked to forget';
  -- The pieces that were left of a turn give way to the whole.
  update _memoir.search_items i set dead = true from unnest(v_units) u
  where i.user_id = v_user and i.ref_id = u.message_id and not i.dead and exists (
    select from _memoir.search_items w where w.user_id = v_user and w.ref_id = i.ref_id and w.dead
      and w.span_start <= i.span_start and w.span_start + w.span_length >= i.span_start + i.span_length
      and w.span_length > i.span_length);
  perform _memoir.revive_items(v_user, array(
    select i.item_no from _memoir.search_items i where i.user_id = v_user and i.dead and i.kind = 't'
      and i.ref_id in (select u.message_id from unnest(v_units) u)
      and not exists (select from _memoir.search_items w where w.user_id = v_user and w.ref_id = i.ref_id
        and w.span_start <= i.span_start and w.span_start + w.span_length >= i.span_start + i.span_length
        and w.span_length > i.span_length) and not _memoir.is_excluded(i)));
  perform _memoir.set_state(v_user, array(select m.memory_id from _memoir.memory_store m where m.user_id = v_user
    and m.state = 'active' and m.metadata ->> 'remainder_of' = p_change::text), 'invalidated', v_caller.login,
    'change undone', null, v_now);
  for v_id in select m.memory_id from _memoir.memory_store m where m.user_id = v_user and m.state_at = v_at
      and m.state in ('superseded', 'invalidated', 'forgotten') and m.state_reason in ('changed in conversation',
        'asked to forget') order by m.recorded_at, m.memory_id
  loop
    -- Of a forgotten one it is known again first.
    update _memoir.memory_store set state = 'superseded', superseded_by = null
    where user_id = v_user and memory_id = v_id;
    if _memoir.restore(v_user, v_id, v_caller.login, 'change undone', v_now, v_caller.actor) then v_back := v_back
      || v_id; end if;
  end loop;
  perform _memoir.audit('undo_change', jsonb_build_object('change_id', p_change, 'restored', v_back), v_user);
  return jsonb_build_object('change_id', p_change, 'restored', to_jsonb(v_back), 'returned_turns',
    (select count(distinct (u.session_id, u.turn_index)) from unnest(v_units) u));
end $$;
comment on function memoir.undo_change(text, uuid) is
  'Takes back what a turn changed or asked to forget (list_changes): the spans are shown again as they were said, the
memories that gave way are active again where nothing else has their place, tombstones are lifted. Returns {"change_id",
"restored", "returned_turns"}. Writes recall_exclusions, memory_store, tombstones, audit_log. Raises PM001, PM004.';

create or replace function memoir.list_changes(p_user text, p_undone boolean default false,
  p_after_change uuid default null, p_limit integer default 100)
returns table (change_id uuid, kind text, recorded_at timestamptz, by_session text, by_turn integer, turns jsonb,
  undone_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_last timestamptz;
begin
  perform _memoir.check_count('limit', p_limit, 1000);
  select min(x.recorded_at) into v_last from _memoir.recall_exclusions x
  where x.user_id = v_caller.user_id and x.change_id = p_after_change;
  perform _memoir.fail('PM004', format('unknown change %s', p_after_change)) where p_after_change is not null
    and v_last is null;
  return query
  select x.change_id, case when bool_and(x.is_doubt) then 'likely' when bool_and(x.changed) then 'changed'
    else 'forgotten' end, min(x.recorded_at), min(b.external_id), min(x.by_turn),
    jsonb_agg(jsonb_build_object('session', s.external_id, 'turn', x.turn_index, 'from', x.span_start, 'length',
      x.span_length) order by s.external_id, x.turn_index, x.span_start), max(x.lifted_at)
  from _memoir.recall_exclusions x
  join _memoir.sessions s on s.user_id = v_caller.user_id and s.session_id = x.session_id
  left join _memoir.sessions b on b.user_id = v_caller.user_id and b.session_id = x.by_session
  where x.user_id = v_caller.user_id and x.change_id is not null and (p_undone or x.lifted_at is null)
    and (v_caller.projects is null or s.project = any (v_caller.projects))
  group by x.change_id having p_after_change is null or (min(x.recorded_at), x.change_id) < (v_last, p_after_change)
  order by 3 desc, 1 desc limit p_limit;
end $$;
comment on function memoir.list_changes(text, boolean, uuid, integer) is
  'Lists what turns changed of earlier turns (changed: shown with a mark), likely changed (likely: nothing gives way,
both are recalled together) and asked to forget (forgotten), newest first: which turn said so, and which spans of which
turns it concerns; with p_undone those that were taken back, too. At most p_limit (1000) a page: p_after_change is the
last change_id of the page before. undo_change takes one back. Raises PM001, PM004, PM014.';

create or replace function memoir.forget_about(p_user text, p_query text, p_preview boolean default false)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_turn _memoir.conversation_history; v_read jsonb;
  v_config jsonb := _memoir.config(v_caller.user_id, null);
begin
  perform _memoir.check_text('query', p_query), _memoir.check_size('query', p_query, 10000);
  if not _memoir.reads_language() then
    perform _memoir.fail('PM050', 'forget_about needs PL/Python on this server', 'forget() takes the id of a memory');
  end if;
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  v_turn.user_id := v_caller.user_id;
  v_turn.session_id := _memoir.no_session();
  v_turn.turn_index := 0;
  v_turn.created_at := 'infinity';
  v_turn.content := p_query;
  v_read := _memoir.py_read('read_context', jsonb_build_object('turns', '[]'::jsonb, 'requests', jsonb_build_array(
    _memoir.asking_context(v_turn, jsonb_build_object('text_no', 1, 'names', p_query, 'said', 'forget my ' || p_query,
      'is_all', p_query ~* ('\m(?:' || _memoir.pattern_all_about() || ')\M'), 'language',
      _memoir.spoken_language(p_query)), v_config, v_caller.projects, v_caller.clearance)))::text,
    v_config ->> 'embedder_socket');
  return _memoir.forget_meant(v_turn, null, v_read -> 'requests' -> 0, p_preview, v_caller.login);
end $$;
comment on function memoir.forget_about(text, text, boolean) is
  'Forgets what a few words name ("my locker code", "everything about Dominik"): the clauses in which the user said it,
what repeats their values, the memories made of them or saying the same; tombstones keep them away. p_preview: only
tells what that would be. Nothing is lost where it is not clear what is meant. Returns {"outcome": forgotten, preview,
unclear or nothing, "turns", "memories", "change_id"}; undo_change takes it back. Writes recall_exclusions,
memory_store, tombstones, audit_log. Needs PL/Python. Raises PM001, PM006, PM014, PM050.';
