-- Experience: memories of how something is done, and whether that worked. The first line of such a memory is its
-- trigger, when it applies, and the lines below are the way; one of a single line is both. Its items lie in a place of
-- their own, so that no recall shows it beside facts: find_experience ranks it by its outcomes.

-- Notes that a way was tried, once for each p_outcome (the turn in which it showed).
create or replace function _memoir.note_outcome(p_memory _memoir.memory_store, p_outcome uuid, p_succeeded boolean,
  p_note text, p_session_id uuid, p_turn integer, p_actor _memoir.actor, p_by text)
returns uuid language plpgsql as $$
begin
  insert into _memoir.experience_outcomes (user_id, memory_id, outcome_id, recorded_at, session_id, turn_index,
    succeeded, actor, set_by, note)
  values (p_memory.user_id, p_memory.memory_id, coalesce(p_outcome, gen_random_uuid()), memoir.now(), p_session_id,
    p_turn, p_succeeded, p_actor, p_by, nullif(btrim(p_note), ''))
  on conflict do nothing;
  return p_memory.memory_id;
end $$;

create or replace function memoir.report_outcome(p_user text, p_memory uuid, p_success boolean,
  p_note text default null, p_session text default null, p_actor text default null, p_key text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_session _memoir.sessions;
  v_memory _memoir.memory_store := _memoir.current(_memoir.memory(v_caller, p_memory));
  v_config jsonb := _memoir.config(v_caller.user_id, null); v_is_secret boolean;
begin
  if p_success is null then perform _memoir.fail('PM014', 'success must be true or false, not null'); end if;
  if v_memory.type <> all (_memoir.experience_types()) or v_memory.state <> 'active' then
    perform _memoir.fail('PM014', format('memory %s is a %s in state %s and has no outcomes', p_memory, v_memory.type,
      v_memory.state), 'outcomes are for active memories of type ' || array_to_string(_memoir.experience_types(), ', '));
  end if;
  perform _memoir.check_short('note', p_note, 2000), _memoir.check_short('key', p_key, 200);
  if p_session is not null then v_session := _memoir.session(v_caller, p_session); end if;
  v_is_secret := p_note is not null and _memoir.detected(v_config, p_note) <> '{}';
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  perform _memoir.note_outcome(v_memory, md5(v_memory.memory_id || p_key)::uuid, p_success,
    case when not v_is_secret then p_note end, v_session.session_id, null, _memoir.actor(v_caller, p_actor,
      case when p_session is null then 'person' else 'agent' end::_memoir.actor), v_caller.login);
  return (select jsonb_build_object('memory_id', v_memory.memory_id, 'tried', count(*), 'succeeded', count(*) filter
      (where o.succeeded), 'failed', count(*) filter (where not o.succeeded), 'note_kept', not v_is_secret)
    from _memoir.experience_outcomes o where o.user_id = v_caller.user_id and o.memory_id = v_memory.memory_id);
end $$;
comment on function memoir.report_outcome(text, uuid, boolean, text, text, text, text) is
  'Reports that the way of a procedure, lesson or skill was tried: p_success whether it worked, p_note why (at most
2,000 characters; one that looks secret is left out, and note_kept is false). A superseded memory stands for its successor.
p_actor: as in remember. p_key: the same outcome is counted once. Returns {"memory_id", "tried", "succeeded", "failed",
"note_kept"}. Writes experience_outcomes. Raises PM001, PM003, PM004, PM014.';

create or replace function memoir.learn_experience(p_user text, p_trigger text, p_way text,
  p_type text default 'procedure', p_success boolean default null, p_note text default null,
  p_session text default null, p_project text default null, p_actor text default null,
  p_source_turns integer[] default null, p_tags text[] default '{}', p_metadata jsonb default '{}',
  p_key text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_result jsonb;
begin
  perform _memoir.check_choice('type', p_type, _memoir.experience_types()), _memoir.check_text('trigger', p_trigger),
    _memoir.check_short('trigger', p_trigger, 1000), _memoir.check_text('way', p_way);
  v_result := memoir.remember(p_user, _memoir.one_line(p_trigger) || E'\n' || btrim(p_way), p_session,
    p_type => p_type, p_project => p_project, p_actor => p_actor, p_source_turns => p_source_turns, p_tags => p_tags,
    p_metadata => p_metadata, p_key => p_key);
  if p_success is not null and v_result ->> 'memory_id' is not null then
    v_result := v_result || memoir.report_outcome(p_user, (v_result ->> 'memory_id')::uuid, p_success, p_note,
      p_session, p_actor, p_key);
  end if;
  return v_result;
end $$;
comment on function memoir.learn_experience(text, text, text, text, boolean, text, text, text, text, integer[], text[],
  jsonb, text) is
  'Stores how something is done, as one memory: p_trigger says when it applies, in one line of at most 1,000 characters, and
p_way what to do, in any number of lines. p_type: procedure (steps), lesson (what to do or leave), skill (a text to
follow). p_success, p_note: how it went, as report_outcome takes it. p_project: where it holds, global for all.
p_session, p_actor, p_source_turns, p_tags, p_metadata (files, commands), p_key: as in remember. What an agent learns
holds in other sessions too, what a tool reports does not. Returns what remember returns, and the outcomes where
p_success is given. Writes memory_store and what belongs to it, experience_outcomes. Raises PM001, PM003, PM006, PM012,
PM014.';

-- Stores what the package finds in the steps of a session (pg_memoir_language/experience.py): ways that failed and
-- worked, and corrections by the person. The caller holds the user's lock.
create or replace function _memoir.enter_experience(p_session _memoir.sessions, p_found jsonb, p_by text,
  p_config jsonb)
returns jsonb language plpgsql as $$
declare
  v_found record; v_memory _memoir.memory_store; v_sources _memoir.conversation_history[]; v_result jsonb;
  v_turn _memoir.conversation_history; v_stored integer := 0;
begin
  for v_found in select * from jsonb_to_recordset(p_found) f(type text, trigger text, way text, succeeded boolean,
    note text, turn integer, sources integer[], metadata jsonb)
  loop
    -- How a way went that may be known: one that ends so.
    if v_found.trigger is null then
      v_turn := _memoir.turn(p_session.user_id, p_session.session_id, v_found.turn);
      perform _memoir.note_outcome(m, v_turn.message_id, v_found.succeeded, case
          when _memoir.detected(p_config, v_found.note) = '{}' then v_found.note end, p_session.session_id,
          v_turn.turn_index, v_turn.actor, p_by)
      from _memoir.memory_store m where m.user_id = p_session.user_id and m.state = 'active'
        and m.type in ('procedure', 'lesson', 'skill') and m.project in ('global', p_session.project)
        and right(m.content, length(v_found.way) + 1) = E'\n' || v_found.way and v_turn.message_id is not null;
      continue;
    end if;
    v_sources := array(select t from unnest(v_found.sources) n, _memoir.turn(p_session.user_id, p_session.session_id, n)
      t where t.message_id is not null);
    v_turn := _memoir.turn(p_session.user_id, p_session.session_id, v_found.turn);
    continue when v_turn.message_id is null;
    v_memory := null;
    v_memory.user_id := p_session.user_id; v_memory.recorded_at := memoir.now();
    v_memory.content := v_found.trigger || E'\n' || v_found.way; v_memory.type := v_found.type;
    v_memory.importance := 'normal'; v_memory.actor := 'agent'; v_memory.project := p_session.project;
    v_memory.provenance := case v_found.type when 'lesson' then 'instruction' end; v_memory.written_by := p_by;
    v_memory.aliases := '{}'; v_memory.tags := '{}';
    v_memory.metadata := v_found.metadata || jsonb_build_object('extracted_by', 'steps 1', 'said_at', v_turn.created_at);
    v_result := _memoir.enter(v_memory, p_session, v_sources, null, null, v_turn.created_at, p_config);
    if v_result ->> 'memory_id' is not null then
      select * into v_memory from _memoir.memory_store m where m.user_id = p_session.user_id
        and m.memory_id = (v_result ->> 'memory_id')::uuid;
      v_stored := v_stored + (v_result ->> 'outcome' = 'stored')::integer;
      if v_found.succeeded is not null then
        perform _memoir.note_outcome(v_memory, v_turn.message_id, v_found.succeeded, case
          when _memoir.detected(p_config, v_found.note) = '{}' then v_found.note end, p_session.session_id,
          v_turn.turn_index, v_turn.actor, p_by);
      end if;
    end if;
  end loop;
  return jsonb_build_object('experiences', v_stored);
end $$;
