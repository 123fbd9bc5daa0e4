-- Objects: results of tools, files, errors, plans and whatever else of a session may be shown shorter. An object is a
-- memory (is_object, tier 1, local to its session) whose text stays in the turns: object_places says where. It has no
-- items of its own in search, since the turns have them. What is written:
--   memory_store           content (its stub), type, source_tool, source_key, metadata.lines (of a file)
--   memory_store.state     active, or superseded (by superseded_by: the same thing, read again)
--   session_objects        tokens in full, stale_turn (of the edit since which the file is another)
--   object_places          turn, call_no (0: content of the turn), argument (of that call), reading, part_no, tokens
--   memory_relationships   supersedes, depends_on, references, caused_by, parent_of

-- The calls that messages answer: of the messages themselves and of the assistant turn before them.
create or replace function _memoir.answered_calls(p_state _memoir.append_state)
returns jsonb language plpgsql stable as $$
declare
  v_calls jsonb := '{}'; v_turn _memoir.conversation_history; v_message _memoir.message; v_place integer := 0;
  v_first boolean := (p_state.messages[1]).role = 'tool';
begin
  if v_first then
    select h.* into v_turn from _memoir.conversation_history h
    where h.user_id = p_state.user_id and h.session_id = p_state.session_id
      and h.recorded_at between (p_state.counters).first_recorded_at and p_state.recorded_at
      and h.turn_index between p_state.first_turn - 400 and p_state.first_turn - 1 and h.role = 'assistant'
    order by h.turn_index desc limit 1;
    v_calls := v_calls || _memoir.placed_calls(v_turn.tool_calls, v_turn.turn_index, v_turn.message_id,
      _memoir.sensitivity_now(v_turn.sensitivity, v_turn.turn_index,
        _memoir.marks(p_state.user_id, p_state.session_id)));
  end if;
  foreach v_message in array p_state.messages loop
    v_place := v_place + 1;
    v_calls := v_calls || _memoir.placed_calls(v_message.tool_calls, p_state.first_turn + v_place - 1,
      p_state.message_ids[v_place], v_message.sensitivity);
  end loop;
  return v_calls;
end $$;

-- {"id": {"name", "arguments", "turn", "call_no", "message_id", "sensitivity"}} of the calls of one message.
create or replace function _memoir.placed_calls(p_calls jsonb, p_turn integer, p_message uuid,
  p_sensitivity _memoir.sensitivity)
returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(c ->> 'id', jsonb_build_object('name', c #>> '{function,name}', 'arguments',
    c #>> '{function,arguments}', 'turn', p_turn, 'call_no', o, 'message_id', p_message,
    'sensitivity', p_sensitivity)), '{}')
  from jsonb_array_elements(p_calls) with ordinality t(c, o)
$$;

-- The name of an object, and lines of it, where a question to memory_query is nothing else; else null.
create or replace function _memoir.object_asked(p_question text)
returns text[] language sql immutable as $$
  select regexp_match(p_question, '^\s*(?:object\s+)?"?([0-9a-f]{8}(?:-[0-9a-f-]{27})?)"?'
    '(?:[,:]?\s+(?:lines?\s+)?(\d{1,7}(?:\s*[-–]\s*\d{1,7})?))?\s*$')
$$;

-- Marks the object that memory_restore or memory_query returned in full as read again.
create or replace function _memoir.place_restored(p_user_id uuid, p_session_id uuid, p_found _memoir.found_object,
  p_call jsonb)
returns void language plpgsql as $$
declare
  v_given jsonb := _memoir.try_json(p_call ->> 'arguments'); v_memory uuid; v_reading integer;
  v_name text := case when p_call ->> 'name' ~ 'memory_restore$' then v_given ->> 'id'
    when p_call ->> 'name' ~ 'memory_query$' then (_memoir.object_asked(v_given ->> 'question'))[1] end;
begin
  if v_name is null or v_name !~ '^[0-9a-f][0-9a-f-]{5,35}$' then return; end if;
  select o.memory_id into v_memory from _memoir.session_objects o where o.user_id = p_user_id
    and o.session_id = p_session_id and left(o.memory_id::text, length(v_name)) = v_name limit 1;
  if v_memory is null or p_found.body is distinct from _memoir.object_text(p_user_id, v_memory) then return; end if;
  select max(p.reading) + 1 into v_reading from _memoir.object_places p
  where p.user_id = p_user_id and p.memory_id = v_memory;
  perform _memoir.place_object(p_user_id, p_session_id, v_memory, p_found, v_reading, 0, 'restated');
end $$;

-- Texts among the arguments of a call, each an object: a written file, what an edit puts in, a plan.
create or replace function _memoir.argument_objects(p_session _memoir.sessions, p_found _memoir.found_object,
  p_call jsonb, p_least integer, p_tokenizer text, p_config jsonb, p_login text, p_at timestamptz)
returns void language plpgsql as $$
declare
  v_use _memoir.tool_use; v_text record; v_found _memoir.found_object := p_found;
begin
  -- A token has at least a byte.
  if octet_length(p_call ->> 'arguments') < p_least then return; end if;
  v_use := _memoir.tool_use(p_config, p_call ->> 'name', p_call ->> 'arguments');
  if _memoir.is_memory_tool(p_call ->> 'name') then return; end if;
  for v_text in select * from _memoir.argument_texts(v_use.arguments, p_least) loop
    v_found.tokens := _memoir.tokens_of(v_text.body, p_tokenizer);
    continue when v_found.tokens < p_least;
    v_found.use := v_use;
    v_found.use.first_line := null;
    v_found.use.last_line := null;
    -- What is no text of the file that the call names is only what it was given.
    if v_use.does in ('read', 'run', 'search', 'list', 'fetch', 'other') or v_use.texts <> '{}'
      and v_text.argument[1] <> all (v_use.texts) then
      v_found.use.type := 'tool_result';
      v_found.use.key := case when v_use.does <> 'run' then v_use.key end;
    end if;
    v_found.call_no := (p_call ->> 'call_no')::smallint;
    v_found.argument := v_text.argument;
    v_found.body := v_text.body;
    perform _memoir.add_object(p_session, v_found, p_tokenizer, p_config, p_login, p_at);
  end loop;
end $$;

-- One line that names an object: its type, when it came, what it is, how long.
create or replace function _memoir.stub_line(p_type text, p_at timestamptz, p_what text, p_size text, p_tokens integer)
returns text language sql immutable as $$
  select concat_ws(' · ', p_type, to_char(p_at at time zone 'UTC', 'FMDD Mon HH24:MI'),
    concat_ws(', ', nullif(regexp_replace(left(p_what, 160), '\s+', ' ', 'g'), '')
      || case when length(p_what) > 160 then '…' else '' end, p_size),
    btrim(to_char(p_tokens, '999,999,999')) || ' tokens')
$$;

-- Stores what was found as an object, unless it is not worth one; its id, or null. The same text of the same thing is
-- the object that is there, read again; another text of the same thing supersedes what covered no more of it.
create or replace function _memoir.add_object(p_session _memoir.sessions, p_found _memoir.found_object,
  p_tokenizer text, p_config jsonb, p_login text, p_at timestamptz)
returns uuid language plpgsql as $$
declare
  v_use _memoir.tool_use := p_found.use; v_user uuid := p_session.user_id; v_session uuid := p_session.session_id;
  v_memory _memoir.memory_store; v_hash bytea; v_reading integer; v_size text; v_old uuid[]; v_ends text;
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_hash := sha256(convert_to(concat_ws(E'\x1f', 'object', v_use.type, coalesce(v_use.key, ''), v_use.first_line,
    v_use.last_line, md5(p_found.body)), 'UTF8'));
  select * into v_memory from _memoir.memory_store m where m.user_id = v_user and m.content_hash = v_hash
    and m.project = p_session.project and m.local_to = v_session and m.state = 'active';
  if found then
    select coalesce(max(p.reading) + 1, 0) into v_reading from _memoir.object_places p
    where p.user_id = v_user and p.memory_id = v_memory.memory_id;
    perform _memoir.place_object(v_user, v_session, v_memory.memory_id, p_found, v_reading, 0, 'restated');
    perform _memoir.note_fault(v_user, v_session, v_memory, 'page_fault', p_found.turn_index,
      (p_config ->> 'fault_pin_turns')::integer);
    update _memoir.session_objects set stale_turn = null where user_id = v_user and session_id = v_session
      and memory_id = v_memory.memory_id and stale_turn is not null;
    return v_memory.memory_id;
  end if;
  v_size := case when v_use.first_line is not null and v_use.last_line is null
      then format('lines %s on', v_use.first_line)
    when v_use.first_line is not null then format('lines %s–%s', v_use.first_line, v_use.last_line)
    else (select format(case when n = 1 then '%s line' else '%s lines' end, n)
      from (select octet_length(p_found.body) - octet_length(replace(p_found.body, E'\n', ''))
        + (_memoir.tail(p_found.body, 1) <> E'\n')::integer as n) x) end;
  v_memory := _memoir.new_object(p_session, v_use.type, v_use.key, v_use.tool, p_found.sensitivity, v_hash,
    _memoir.stub_line(v_use.type, p_at, v_use.key, v_size, p_found.tokens), p_tokenizer, p_login, p_at);
  v_memory.metadata := jsonb_strip_nulls(jsonb_build_object('does', v_use.does, 'lines', case
    when v_use.first_line is not null then jsonb_build_array(v_use.first_line, v_use.last_line) end));
  if not _memoir.admit(v_user, v_session, p_found.turn_index, v_use.type, case when v_use.does in ('routine', 'list')
    then 0 else 1 end, least(1, p_found.tokens / 4000.0)::float8, p_at, false, v_memory.memory_id, p_config, true)
    then return null; end if;
  insert into _memoir.memory_store select v_memory.*;
  insert into _memoir.session_objects (user_id, session_id, memory_id, tokens)
  values (v_user, v_session, v_memory.memory_id, p_found.tokens);
  perform _memoir.note_state(v_user, array[v_memory.memory_id], 'active', p_login, null, null, p_at, v_memory.actor);
  perform _memoir.place_object(v_user, v_session, v_memory.memory_id, p_found, 0, 0, 'origin');
  if v_use.key is null then return v_memory.memory_id; end if;
  -- It supersedes what the same key said of the same lines or fewer, an edit depends on the file it changes, an error
  -- was caused by files that it names, a result or plan refers to them.
  if v_use.type <> 'code_context' then
    v_old := array(select m.memory_id from _memoir.memory_store m
      where m.user_id = v_user and m.session_id = v_session and m.is_object and m.state = 'active'
        and m.type = v_memory.type and m.source_key = v_memory.source_key and m.memory_id <> v_memory.memory_id
        and (not v_memory.metadata ? 'lines' or int4range(1, null) * int4range(
          (v_memory.metadata #>> '{lines,0}')::integer, (v_memory.metadata #>> '{lines,1}')::integer, '[]')
          @> int4range((m.metadata #>> '{lines,0}')::integer, (m.metadata #>> '{lines,1}')::integer, '[]')));
    perform _memoir.supersede(v_user, v_old, v_memory.memory_id, p_login, 'read again', p_at, 'tool');
  end if;
  -- Files of the session that it names, by their last two names.
  if v_use.does in ('edit', 'patch') then
    insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
    select v_user, v_memory.memory_id, 'depends_on', m.memory_id, 'object', p_at from _memoir.memory_store m
    where m.user_id = v_user and m.session_id = v_session and m.is_object and m.state = 'active'
      and m.type = 'file_context' and m.memory_id <> v_memory.memory_id
      and exists (select from unnest(v_use.keys) k where _memoir.same_path(k, m.source_key))
    on conflict do nothing;
  elsif v_use.does not in ('read', 'write') then
    v_ends := left(p_found.body, 8000) || E'\n' || _memoir.tail(p_found.body, 8000);
    insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
    select v_user, v_memory.memory_id, case v_memory.type when 'error_context' then 'caused_by'
      else 'references' end::_memoir.relation, m.memory_id, 'object', p_at
    from _memoir.memory_store m
    where m.user_id = v_user and m.session_id = v_session and m.is_object and m.state = 'active'
      and m.type = 'file_context' and m.memory_id <> v_memory.memory_id
      and strpos(v_ends, regexp_replace(m.source_key, '^.*/(?=[^/]+/[^/]+$)', '')) > 0
    order by m.recorded_at desc limit 20
    on conflict do nothing;
  end if;
  return v_memory.memory_id;
end $$;

create or replace function _memoir.new_object(p_session _memoir.sessions, p_type text, p_key text, p_tool text,
  p_sensitivity _memoir.sensitivity, p_hash bytea, p_stub text, p_tokenizer text, p_login text, p_at timestamptz)
returns _memoir.memory_store language plpgsql stable as $$
begin
  -- It is not embedded, its turns are.
  return jsonb_populate_record(null::_memoir.memory_store, jsonb_build_object('user_id', p_session.user_id,
    'memory_id', gen_random_uuid(), 'recorded_at', p_at, 'state_at', p_at, 'session_id', p_session.session_id,
    'local_to', p_session.session_id, 'project', p_session.project, 'scope', 'local', 'state', 'active', 'tier', 1,
    'is_object', true, 'embeddable', false, 'type', p_type, 'provenance', 'tool_output', 'actor', 'tool',
    'trust', _memoir.trust('tool', 'tool_output'), 'confidence', 0.5, 'importance', 'normal',
    'sensitivity', p_sensitivity, 'source_tool', p_tool, 'source_key', p_key, 'content', p_stub,
    'content_hash', p_hash, 'tokenizer', p_tokenizer, 'token_count', _memoir.tokens_of(p_stub, p_tokenizer),
    'written_by', p_login, 'aliases', jsonb_build_array(), 'tags', jsonb_build_array(),
    'metadata', jsonb_build_object()));
end $$;

create or replace function _memoir.place_object(p_user_id uuid, p_session_id uuid, p_memory uuid,
  p_found _memoir.found_object, p_reading integer, p_part integer, p_link text)
returns void language plpgsql as $$
begin
  insert into _memoir.object_places (user_id, session_id, turn_index, call_no, argument, memory_id, reading, part_no,
    tokens)
  values (p_user_id, p_session_id, p_found.turn_index, coalesce(p_found.call_no, 0), coalesce(p_found.argument, '{}'),
    p_memory, p_reading, p_part, p_found.tokens)
  on conflict do nothing;
  update _memoir.session_counters set has_objects = true where user_id = p_user_id and session_id = p_session_id
    and not has_objects;
  insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, session_id, turn_index, link)
  select p_user_id, 'memory', p_memory, 'turn', s.id, p_session_id, s.turn, p_link
  from (values (p_found.message_id, p_found.turn_index), (p_found.call_message, p_found.call_turn)) s(id, turn)
  where s.id is not null
  on conflict do nothing;
end $$;

-- A result below the minimum: together with its neighbours of the same kind, which are no objects yet, it may be one.
-- Routine is left out, because it tells nothing: the usual words of success, listings, states.
create or replace function _memoir.merge_small_results(p_session _memoir.sessions, p_found _memoir.found_object,
  p_least integer, p_tokenizer text, p_config jsonb, p_login text, p_at timestamptz)
returns uuid language plpgsql as $$
declare
  v_user uuid := p_session.user_id; v_session uuid := p_session.session_id; v_counters _memoir.session_counters;
  v_rows _memoir.conversation_history[]; v_row _memoir.conversation_history; v_calls jsonb := '{}';
  v_parts _memoir.found_object[] := array[p_found]; v_part _memoir.found_object; v_call jsonb;
  v_sum integer := p_found.tokens; v_memory _memoir.memory_store; v_keys text[]; v_n integer := 0;
begin
  if (p_found.use).does in ('routine', 'list', 'plan') or coalesce(p_found.tokens, 0) < 20 then return null; end if;
  select * into v_counters from _memoir.session_counters where user_id = v_user and session_id = v_session;
  select array_agg(h order by h.turn_index desc) into v_rows from (
    select * from _memoir.conversation_history c where c.user_id = v_user and c.session_id = v_session
      and c.recorded_at between v_counters.first_recorded_at and p_at
      and c.turn_index between p_found.turn_index - 40 and p_found.turn_index - 1) h;
  -- Cheap first: as a rule there are not enough of them.
  if p_found.tokens + coalesce((select sum(r.token_count) from unnest(v_rows) r where r.role = 'tool'
    and r.token_count < p_least), 0) < p_least then return null; end if;
  for v_row in select r.* from unnest(v_rows) r where r.role = 'assistant' and r.tool_calls is not null loop
    v_calls := v_calls || _memoir.placed_calls(v_row.tool_calls, v_row.turn_index, v_row.message_id,
      v_row.sensitivity);
  end loop;
  foreach v_row in array coalesce(v_rows, '{}') loop
    exit when v_row.role in ('user', 'system') or v_sum >= p_least;
    continue when v_row.role <> 'tool';
    v_call := v_calls -> v_row.tool_call_id;
    exit when v_call is null or exists (select from _memoir.object_places p where p.user_id = v_user
      and p.session_id = v_session and p.turn_index = v_row.turn_index and p.call_no = 0);
    v_part := null;
    v_part.use := _memoir.tool_use(p_config, v_call ->> 'name', v_call ->> 'arguments');
    v_part.turn_index := v_row.turn_index;
    v_part.message_id := v_row.message_id;
    v_part.call_turn := (v_call ->> 'turn')::integer;
    v_part.call_message := (v_call ->> 'message_id')::uuid;
    v_part.tokens := v_row.token_count;
    v_part.sensitivity := greatest(v_row.sensitivity, (v_call ->> 'sensitivity')::_memoir.sensitivity);
    continue when (v_part.use).does in ('routine', 'list', 'plan') or coalesce(v_part.tokens, 0) < 20;
    exit when (v_part.use).type <> (p_found.use).type or v_part.sensitivity <> p_found.sensitivity;
    v_parts := v_part || v_parts;
    v_sum := v_sum + v_part.tokens;
  end loop;
  if v_sum < p_least or cardinality(v_parts) < 2 then return null; end if;
  perform from _memoir.user_counters where user_id = v_user for update;
  v_keys := array(select distinct (x.use).key from unnest(v_parts) x where (x.use).key is not null);
  v_memory := _memoir.new_object(p_session, (p_found.use).type, case when cardinality(v_keys) = 1 then v_keys[1] end,
    (p_found.use).tool, p_found.sensitivity,
    sha256(convert_to(concat_ws(E'\x1f', 'objects', v_session, p_found.message_id), 'UTF8')),
    _memoir.stub_line((p_found.use).type, p_at, array_to_string(v_keys, ', '),
      format('%s results', cardinality(v_parts)), v_sum), p_tokenizer, p_login, p_at);
  v_memory.metadata := jsonb_build_object('does', (p_found.use).does);
  insert into _memoir.memory_store select v_memory.*;
  insert into _memoir.session_objects (user_id, session_id, memory_id, tokens)
  values (v_user, v_session, v_memory.memory_id, v_sum);
  perform _memoir.note_state(v_user, array[v_memory.memory_id], 'active', p_login, null, null, p_at, v_memory.actor);
  foreach v_part in array v_parts loop
    perform _memoir.place_object(v_user, v_session, v_memory.memory_id, v_part, 0, v_n, 'origin');
    v_n := v_n + 1;
  end loop;
  return v_memory.memory_id;
end $$;

-- One row per place of an object in turns of a session: call_no 0 where the content of the turn is the object, else
-- which of its calls (from 1) and the path of the argument. reading counts how often the same text was read,
-- last_reading is the newest within the range. Several turns may make one object: its forms stand in part 0.
create or replace function _memoir.objects_at(p_user_id uuid, p_session_id uuid, p_from integer, p_to integer)
returns table (turn_index integer, call_no smallint, argument text[], memory_id uuid, reading smallint,
  part_no smallint, tokens integer, object_tokens integer, last_reading smallint, type text, source_tool text,
  source_key text, state _memoir.item_state, superseded_by uuid, stale_turn integer, fidelity_ceiling smallint,
  pinned_until_turn integer, sensitivity _memoir.sensitivity, importance text, recorded_at timestamptz)
language plpgsql stable as $$
begin
  return query
  select p.turn_index, p.call_no, p.argument, p.memory_id, p.reading, p.part_no, p.tokens, o.tokens,
    max(p.reading) over (partition by p.memory_id), m.type, m.source_tool, m.source_key, m.state, m.superseded_by,
    o.stale_turn, o.fidelity_ceiling, o.pinned_until_turn, m.sensitivity, m.importance, m.recorded_at
  from _memoir.object_places p
  join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = p.memory_id
  join _memoir.session_objects o on o.user_id = p_user_id and o.session_id = p_session_id
    and o.memory_id = p.memory_id
  where p.user_id = p_user_id and p.session_id = p_session_id and p.turn_index between p_from and p_to
    and m.session_id = p_session_id and m.state in ('active', 'superseded')
  order by p.turn_index, p.call_no, p.argument;
end $$;
