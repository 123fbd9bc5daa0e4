-- Visibility by sensitivity. normal: every caller; private: clearance private (the default) and above; secret:
-- clearance secret only, and no model, embedding, summary, work item or recall block at all. A turn is as secret as
-- its newest mark says, else as it was stored.

-- The sessions that see a turn: its own, and those that branched off behind it.
create or replace function _memoir.sharing(p_user_id uuid, p_session_id uuid, p_turn integer)
returns uuid[] language plpgsql stable as $$
begin
  return array(with recursive tree as (select p_session_id as id
      union
      select b.session_id from tree t join _memoir.sessions b on b.user_id = p_user_id and b.parent_session_id = t.id
        and b.parent_turn > p_turn)
    select id from tree);
end $$;

-- Everything that was derived from these turns or memories, directly or through other derived items. A memory that is
-- restated by something else does not stem from them alone: p_all says whether it counts all the same.
create or replace function _memoir.derived(p_user_id uuid, p_refs uuid[], p_all boolean)
returns uuid[] language plpgsql stable as $$
declare
  v_all uuid[] := p_refs; v_new uuid[];
begin
  loop
    v_new := array(select distinct s.item_id from _memoir.memory_sources s
      where s.user_id = p_user_id and s.source_id = any (v_all) and s.item_id <> all (v_all) and s.link = 'origin'
        and (p_all or not exists (select from _memoir.memory_sources r where r.user_id = p_user_id
        and r.item_kind = s.item_kind and r.item_id = s.item_id
                                  and r.link = 'restated' and r.source_id <> all (v_all))));
    exit when v_new = '{}';
    v_all := v_all || v_new;
  end loop;
  return array(select x from unnest(v_all) x where x <> all (p_refs));
end $$;

-- Gives a turn new items, with numbers that no worker knows yet: vectors made of what it was stay outside.
create or replace function _memoir.reindex_turn(p_turn _memoir.conversation_history, p_sensitivity _memoir.sensitivity)
returns void language plpgsql as $$
declare
  v_session _memoir.sessions; v_user uuid := p_turn.user_id;
  v_old integer[] := array(select item_no from _memoir.search_items where user_id = v_user
    and ref_id = p_turn.message_id);
begin
  select * into v_session from _memoir.sessions where user_id = v_user and session_id = p_turn.session_id;
  perform _memoir.drop_items(v_user, v_old);
  perform _memoir.index_stored(p_turn, v_session, _memoir.config(v_user, v_session.settings), p_sensitivity, false);
  -- What was said after it is still said after it.
  update _memoir.search_items set previous_item = (select max(i.item_no) from _memoir.search_items i
  where i.user_id = v_user and i.ref_id = p_turn.message_id)
  where user_id = v_user and kind = 't' and previous_item = any (v_old) and ref_id <> p_turn.message_id;
  update _memoir.user_counters set last_session = null where user_id = v_user;
end $$;

-- Renews the vector of the next turn, which was embedded behind this one's last words.
create or replace function _memoir.reindex_after(p_user_id uuid, p_items integer[])
returns void language plpgsql as $$
declare
  v_next record; v_turn _memoir.conversation_history;
begin
  for v_next in select distinct i.session_id, i.turn_index, i.ref_id, i.sensitivity from _memoir.search_items i
    where i.user_id = p_user_id and i.kind = 't' and i.item_no <> all (p_items) and i.previous_item = any (p_items) loop
    v_turn := _memoir.turn(p_user_id, v_next.session_id, v_next.turn_index);
    if v_turn.message_id = v_next.ref_id then perform _memoir.reindex_turn(v_turn, v_next.sensitivity); end if;
  end loop;
end $$;

-- A turn counts as p_to from now on, and with it what came of it: which memories, and summaries that were undone. Under
-- the user's lock.
create or replace function _memoir.set_mark(p_turn _memoir.conversation_history, p_was _memoir.sensitivity,
  p_to _memoir.sensitivity, p_actor _memoir.actor, p_reason text, p_by text, out memories uuid[], out undone uuid[])
language plpgsql as $$
declare
  v_user uuid := p_turn.user_id; v_now timestamptz; v_items integer[]; v_sharing uuid[];
begin
  memories := '{}';
  undone := '{}';
  select greatest(memoir.now(), max(recorded_at) + interval '1 microsecond') into v_now
  from _memoir.turn_marks where user_id = v_user and session_id = p_turn.session_id and turn_index = p_turn.turn_index;
  insert into _memoir.turn_marks (user_id, session_id, turn_index, recorded_at, mark, actor, reason, set_by)
  values (v_user, p_turn.session_id, p_turn.turn_index, v_now, p_to::text, p_actor, p_reason, p_by);
  v_items := array(select item_no from _memoir.search_items where user_id = v_user and ref_id = p_turn.message_id);
  if p_to < p_was then
    perform _memoir.reindex_turn(p_turn, p_to);
  else
    update _memoir.search_items set sensitivity = p_to, embeddable = embeddable and p_to <> 'secret'
    where user_id = v_user and item_no = any (v_items);
    memories := _memoir.derived(v_user, array[p_turn.message_id], true);
    update _memoir.memory_store set sensitivity = greatest(sensitivity, p_to), embeddable = embeddable
      and p_to <> 'secret'
    where user_id = v_user and memory_id = any (memories);
    update _memoir.search_items set sensitivity = greatest(sensitivity, p_to), embeddable = embeddable
      and p_to <> 'secret'
    where user_id = v_user and ref_id = any (memories);
    if p_to = 'secret' then
      delete from _memoir.memory_renditions where user_id = v_user and memory_id = any (memories);
      delete from _memoir.embeddings where user_id = v_user and item_no = any (v_items || array(
        select item_no from _memoir.search_items where user_id = v_user and ref_id = any (memories)));
      perform _memoir.reindex_after(v_user, v_items);
    end if;
    v_sharing := _memoir.sharing(v_user, p_turn.session_id, p_turn.turn_index);
    undone := _memoir.undo_summaries(v_user, array[p_turn.session_id], array[p_turn.turn_index], memoir.now());
    perform _memoir.leave_profile(v_user, memories) where memories <> '{}';
    -- Which calls carried it on, nobody can say: all of its sessions, and all since it was there.
    update _memoir.api_calls set sensitivity = p_to
    where user_id = v_user and (recorded_at >= p_turn.recorded_at or session_id = any (v_sharing))
      and sensitivity < p_to;
  end if;
  perform _memoir.drop_recalled(v_user, null);
  perform _memoir.audit('mark_turn', jsonb_build_object('session_id', p_turn.session_id, 'turn', p_turn.turn_index,
    'from', p_was, 'to', p_to), v_user);
end $$;

create or replace function memoir.mark_turn(p_user text, p_session text, p_turn integer,
  p_sensitivity text default 'secret', p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_user uuid := v_caller.user_id; v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_turn _memoir.conversation_history; v_was _memoir.sensitivity; v_to _memoir.sensitivity; v_done record;
  v_actor _memoir.actor := _memoir.actor(v_caller, null, 'person');
begin
  perform _memoir.check_choice('sensitivity', p_sensitivity, enum_range(null::_memoir.sensitivity)::text[]);
  perform _memoir.check_size('reason', p_reason, 10000);
  v_to := p_sensitivity;
  v_turn := _memoir.known_turn(v_session, p_turn);
  perform from _memoir.user_counters where user_id = v_user for update;
  v_was := _memoir.sensitivity_now(v_turn.sensitivity, v_turn.turn_index, _memoir.marks(v_user, v_turn.session_id));
  if v_was > v_to and (v_was > v_caller.clearance or v_actor <> 'person') then
    perform _memoir.fail('PM001', format('login %s may not lower a turn from %s to %s', quote_ident(v_caller.login),
      v_was, v_to), 'that takes the clearance to see it, and a person');
  end if;
  if v_was = v_to then
    return jsonb_build_object('turn_index', p_turn, 'sensitivity', v_to, 'memories', '[]'::jsonb,
      'invalidated_summaries', 0);
  end if;
  v_done := _memoir.set_mark(v_turn, v_was, v_to, v_actor, p_reason, v_caller.login);
  return jsonb_build_object('turn_index', p_turn, 'sensitivity', v_to, 'memories', to_jsonb(v_done.memories),
    'invalidated_summaries', cardinality(v_done.undone));
end $$;
comment on function memoir.mark_turn(text, text, integer, text, text) is
  'Says how secret a stored turn is from now on: normal, private or secret. Beside the turn, which stays as it is.
Made stricter, so do the memories that came of it and the calls that may carry it; secret also takes its vectors, and
the summaries, profile and kept recalls that may hold it. Lowering takes a person and the clearance to see it.
Returns {"turn_index", "sensitivity", "memories", "invalidated_summaries"}. Writes turn_marks and what is named
above. Raises PM001, PM003, PM014.';

-- Returns the range of turns with what belongs to its ends: a tool call and its results go together.
create or replace function _memoir.with_results(p_user_id uuid, p_session_id uuid, p_from integer, p_to integer)
returns int4range language plpgsql stable as $$
begin
  while (_memoir.turn(p_user_id, p_session_id, p_from)).role = 'tool' loop p_from := p_from - 1; end loop;
  while (_memoir.turn(p_user_id, p_session_id, p_to + 1)).role = 'tool' loop p_to := p_to + 1; end loop;
  return case when p_from <= p_to then int4range(p_from, p_to, '[]') else 'empty' end;
end $$;

-- Takes turns back: they are neither shown nor recalled, learnt from or summarised; history has them, marked.
create or replace function memoir.retract_turns(p_user text, p_session text, p_from_turn integer,
  p_to_turn integer default null, p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_user uuid := v_caller.user_id;
  v_id uuid := (_memoir.session(v_caller, p_session)).session_id; v_now timestamptz := memoir.now();
  v_turns _memoir.conversation_history[];
  v_units _memoir.said_unit[]; v_memories uuid[]; v_marks jsonb; v_range int4range; v_last integer;
begin
  perform _memoir.check_size('reason', p_reason, 10000);
  if p_from_turn is null or p_from_turn < 0 or p_to_turn < p_from_turn then
    perform _memoir.fail('PM014', format('turns must be a range from 0 on, not %s to %s', coalesce(p_from_turn::text,
      'null'), coalesce(p_to_turn::text, 'null')));
  end if;
  v_marks := _memoir.marks(v_user, v_id);
  select turn_count - 1 into v_last from _memoir.session_counters where user_id = v_user and session_id = v_id;
  v_range := _memoir.with_results(v_user, v_id, p_from_turn, least(coalesce(p_to_turn, p_from_turn), v_last));
  v_turns := array(select h from generate_series(lower(v_range), upper(v_range) - 1) t,
    lateral _memoir.turn(v_user, v_id, t) h
    where h.message_id is not null and not _memoir.is_retracted(t, v_marks) order by t);
  if v_turns = '{}' then return jsonb_build_object('turns', '[]'::jsonb, 'memories', '[]'::jsonb); end if;
  perform from _memoir.user_counters where user_id = v_user for update;
  insert into _memoir.turn_marks (user_id, session_id, turn_index, recorded_at, mark, actor, reason, set_by)
  select v_user, h.session_id, h.turn_index, v_now, 'retracted', coalesce(v_caller.actor, 'person'), p_reason,
    v_caller.login from unnest(v_turns) h;
  v_units := array(select (h.message_id, h.session_id, h.turn_index, h.recorded_at, h.created_at, h.role, 1,
      greatest(length(h.content), 1), h.content, null, false)::_memoir.said_unit from unnest(v_turns) h);
  v_memories := array(select m from unnest(_memoir.memories_from(v_user, v_units, true)) m
    where not exists (select from _memoir.memory_sources s where s.user_id = v_user and s.item_kind = 'memory'
      and s.item_id = m and s.source_id not in (select u.message_id from unnest(v_units) u)));
  perform _memoir.exclude_units(v_user, v_units, false, gen_random_uuid(), v_turns[cardinality(v_turns)], 'retracted',
    v_now);
  perform _memoir.set_state(v_user, v_memories, 'invalidated', v_caller.login, 'retracted', null, v_now);
  if (v_turns[cardinality(v_turns)]).turn_index = v_last then
    v_marks := _memoir.marks(v_user, v_id);
    update _memoir.session_counters set open_calls = '{}', last_role = coalesce((
      select case when h.tool_calls is null then h.role end from generate_series(v_last, 0, -1) t,
        lateral _memoir.turn(v_user, v_id, t) h
      where h.message_id is not null and not _memoir.is_retracted(t, v_marks) order by t desc limit 1), 'assistant')
    where user_id = v_user and session_id = v_id;
  end if;
  return jsonb_build_object('turns', (select jsonb_agg(h.turn_index) from unnest(v_turns) h),
    'memories', to_jsonb(v_memories));
end $$;
comment on function memoir.retract_turns(text, text, integer, integer, text) is
  'Takes turns of a session back, with a tool call its results: they are neither shown nor recalled, learnt from or
summarised any more, and memories that stem from them alone are invalidated. History has them still, marked "retracted".
Turns that a branch shares are taken back where they are. Returns {"turns", "memories"}. Writes turn_marks,
recall_exclusions, memory_store, compactions. Raises PM001, PM003, PM014.';

create or replace function memoir.annotate_turn(p_user text, p_session text, p_turn integer, p_annotations jsonb)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_user uuid := v_caller.user_id;
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_turn _memoir.conversation_history;
begin
  perform _memoir.refuse_value(p_annotations is null or jsonb_typeof(p_annotations) <> 'object', 'annotations',
    p_annotations, 'an object', 'a key with null is taken away');
  perform _memoir.check_size('annotations', p_annotations::text, 10000);
  v_turn := _memoir.turn_seen(v_session, p_turn);
  -- Who may not see a turn does not say anything about it either.
  if v_turn.message_id is null or v_caller.clearance < _memoir.sensitivity_now(v_turn.sensitivity, v_turn.turn_index,
      _memoir.marks(v_user, v_turn.session_id)) then
    perform _memoir.fail('PM014', format('turn %s does not exist in session %s', coalesce(p_turn::text, 'null'),
      _memoir.shown(p_session)));
  end if;
  perform from _memoir.user_counters where user_id = v_user for update;
  insert into _memoir.turn_marks (user_id, session_id, turn_index, recorded_at, mark, annotations, actor, set_by)
  select v_user, v_turn.session_id, v_turn.turn_index,
    greatest(memoir.now(), max(m.recorded_at) + interval '1 microsecond'), 'annotated', p_annotations,
    _memoir.actor(v_caller, null, 'person'), v_caller.login
  from _memoir.turn_marks m
  where m.user_id = v_user and m.session_id = v_turn.session_id and m.turn_index = v_turn.turn_index;
  return jsonb_build_object('turn_index', p_turn, 'annotations',
    coalesce(_memoir.annotations(v_user, v_turn.session_id) -> v_turn.turn_index::text, '{}'));
end $$;
comment on function memoir.annotate_turn(text, text, integer, jsonb) is
  'Says something about a stored turn: feedback, a flag, whatever the application keeps of it, as an object; a key with
null is taken away, others stay. Beside the turn, which stays as it is: history() returns it as "annotations", nothing
is recalled, learnt or sent to a model because of it. Exported and erased with its turn. Returns {"turn_index",
"annotations"}. Writes turn_marks. Raises PM001, PM003, PM014.';
