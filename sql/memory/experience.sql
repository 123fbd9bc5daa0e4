-- Experience: memories of how something is done, and whether that worked. The first line of such a memory is its
-- trigger, when it applies, and the lines below are the way. One of a single line is both.

-- Notes that ways were tried, once for each p_outcome. Returns whether it kept the note: not one that looks secret.
create or replace function _memoir.note_outcome(p_user_id uuid, p_memories uuid[], p_outcome uuid, p_succeeded boolean,
  p_note text, p_session_id uuid, p_turn integer, p_actor _memoir.actor, p_by text)
returns boolean language plpgsql as $$
declare
  v_keeps boolean := p_note is null or _memoir.detected(_memoir.config(p_user_id, null), p_note) = '{}';
begin
  insert into _memoir.experience_outcomes (user_id, memory_id, outcome_id, recorded_at, session_id, turn_index,
    succeeded, actor, set_by, note)
  select p_user_id, m, p_outcome, memoir.now(), p_session_id, p_turn, p_succeeded, p_actor,
    p_by, case when v_keeps then nullif(btrim(p_note), '') end
  from unnest(p_memories) m on conflict do nothing;
  return v_keeps;
end $$;

create or replace function memoir.report_outcome(p_user text, p_memory uuid, p_success boolean,
  p_note text default null, p_session text default null, p_actor text default null, p_key text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_session _memoir.sessions; v_keeps boolean;
  v_memory _memoir.memory_store := _memoir.current(_memoir.memory(v_caller, p_memory)); v_id uuid := v_memory.memory_id;
  v_user uuid := v_caller.user_id; v_result jsonb; v_hash bytea := sha256(convert_to(jsonb_build_array('report_outcome',
    p_memory, p_success, p_note, p_session, p_actor)::text, 'UTF8'));
begin
  if p_success is null then perform _memoir.fail('PM014', 'success must be true or false, not null'); end if;
  perform _memoir.check_short('note', p_note, 2000);
  if v_memory.type <> all (_memoir.experience_types()) or v_memory.state <> 'active' then
    perform _memoir.fail('PM014', format('memory %s is a %s in state %s and has no outcomes: give an active procedure, '
      'lesson or skill', p_memory, v_memory.type, v_memory.state));
  end if;
  if p_session is not null then v_session := _memoir.session(v_caller, p_session); end if;
  perform from _memoir.user_counters where user_id = v_user for update;
  v_result := _memoir.receipt(v_user, p_key, v_hash);
  if v_result is not null then return v_result; end if;
  v_keeps := _memoir.note_outcome(v_user, array[v_id], gen_random_uuid(), p_success, p_note, v_session.session_id, null,
    _memoir.actor(v_caller, p_actor, case when p_session is null then 'person' else 'agent' end::_memoir.actor),
    v_caller.login);
  v_result := (select jsonb_build_object('memory_id', v_id, 'tried', count(*), 'succeeded', count(*) filter
      (where o.succeeded), 'failed', count(*) filter (where not o.succeeded), 'note_kept', v_keeps)
    from _memoir.experience_outcomes o where o.user_id = v_user and o.memory_id = v_id);
  if p_key is not null then perform _memoir.keep_receipt(v_user, p_key, v_hash, v_result, memoir.now()); end if;
  return v_result;
end $$;
comment on function memoir.report_outcome(text, uuid, boolean, text, text, text, text) is
  'Reports whether the way of a procedure, lesson or skill worked. p_note: why, at most 2,000 characters; one that looks
secret is left out. A superseded memory stands for its successor. p_actor, p_key: as in remember. Returns {"memory_id",
"tried", "succeeded", "failed", "note_kept"}. Writes experience_outcomes. Raises PM001, PM003, PM004, PM006, PM014.';

create or replace function memoir.learn_experience(p_user text, p_trigger text, p_way text,
  p_type text default 'procedure', p_success boolean default null, p_note text default null,
  p_session text default null, p_project text default null, p_actor text default null,
  p_source_turns integer[] default null, p_tags text[] default '{}', p_metadata jsonb default '{}',
  p_key text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_user uuid := v_caller.user_id;
  v_result jsonb; v_hash bytea := sha256(convert_to(jsonb_build_array('learn_experience', p_trigger, p_way, p_type,
    p_success, p_note, p_session, p_project, p_actor, p_source_turns, p_tags, p_metadata)::text, 'UTF8'));
begin
  perform _memoir.check_choice('type', p_type, _memoir.experience_types()), _memoir.check_text('trigger', p_trigger),
    _memoir.check_short('trigger', p_trigger, 1000), _memoir.check_text('way', p_way);
  perform _memoir.touch_user(v_caller, p_user);
  perform from _memoir.user_counters where user_id = v_user for update;
  v_result := _memoir.receipt(v_user, p_key, v_hash);
  if v_result is not null then return v_result; end if;
  v_result := memoir.remember(p_user, _memoir.one_line(p_trigger) || E'\n' || btrim(p_way), p_session,
    p_type => p_type, p_project => p_project, p_actor => p_actor, p_source_turns => p_source_turns, p_tags => p_tags,
    p_metadata => p_metadata);
  if p_success is not null and v_result ->> 'memory_id' is not null then
    v_result := v_result || memoir.report_outcome(p_user, (v_result ->> 'memory_id')::uuid, p_success, p_note,
      p_session, p_actor);
  end if;
  if p_key is not null then perform _memoir.keep_receipt(v_user, p_key, v_hash, v_result, memoir.now()); end if;
  return v_result;
end $$;
comment on function memoir.learn_experience(text, text, text, text, boolean, text, text, text, text, integer[], text[],
  jsonb, text) is
  'Stores how something is done: p_trigger says when, in one line of at most 1,000 characters, p_way what to do. p_type:
procedure (steps), lesson (what to do or leave), skill (a text to follow). p_success, p_note: as in report_outcome. The
others: as in remember. What an agent learns holds in other sessions too, what a tool reports does not. Returns what
remember and, with p_success, report_outcome return. Writes memory_store and what belongs to it, experience_outcomes.
Raises PM001, PM003, PM006, PM012, PM014.';

-- Stores what the package finds in the steps of a session (pg_memoir_language/experience.py): ways that failed and
-- worked, a person's corrections, and, as known, how a way went that may be known, or that a lesson names. If it was
-- all that a request took, the request is one more trigger of it, of at most eight. Under the user's lock.
create or replace function _memoir.enter_experience(p_session _memoir.sessions, p_found jsonb, p_by text,
  p_config jsonb)
returns void language plpgsql as $$
declare
  v_found record; v_turn _memoir.conversation_history; v_ids uuid[]; v_user uuid := p_session.user_id;
begin
  for v_found in select * from jsonb_to_recordset(p_found) f(trigger text, way text, succeeded boolean,
    note text, turn integer, sources integer[], memory jsonb, is_known boolean)
  loop
    v_turn := _memoir.turn(v_user, p_session.session_id, v_found.turn);
    continue when v_turn.message_id is null;
    v_ids := array(select m.memory_id from _memoir.memory_store m where m.user_id = v_user and m.state = 'active'
      and m.type in ('procedure', 'lesson', 'skill') and m.project in ('global', p_session.project)
      and (right(m.content, length(v_found.way) + 1) = E'\n' || v_found.way or m.type = 'lesson'
        and strpos(v_found.way, ' ') > 0 and strpos(m.content, v_found.way) > 0
        and split_part(split_part(m.content, v_found.way, 2), ' ', 2) not like all ('{-%,%=%}')));
    if not v_found.is_known or v_found.trigger is not null and cardinality(v_ids) between 1 and 7 then
      v_ids := v_ids || (_memoir.enter(jsonb_populate_record(null::_memoir.memory_store, jsonb_set(v_found.memory,
        '{metadata,said_at}', to_jsonb(v_turn.created_at)) || jsonb_build_object('user_id', v_user, 'recorded_at',
        memoir.now(), 'project', p_session.project, 'written_by', p_by)), p_session, array(
        select t from unnest(v_found.sources) n, _memoir.turn(v_user, p_session.session_id, n) t
        where t.message_id is not null), null, null, v_turn.created_at, p_config) ->> 'memory_id')::uuid;
    end if;
    perform _memoir.note_outcome(v_user, array(select distinct i from unnest(v_ids) i where i is not null),
      v_turn.message_id, v_found.succeeded, v_found.note, p_session.session_id, v_turn.turn_index, v_turn.actor, p_by)
    where v_found.succeeded is not null;
  end loop;
end $$;
