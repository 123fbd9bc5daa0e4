-- The model keeps its own memory: definitions of tools for OpenAI, Anthropic and MCP, and the one function that runs a
-- call and answers with text for a model. Everything goes through the functions that applications use, as an agent's: a
-- person's word outranks it, unless it cites what the user said in this session.

-- name, description, JSON schema of the arguments. Short, since they are paid for with every request.
create or replace function _memoir.memory_tool_list()
returns table (name text, description text, parameters jsonb) language sql immutable as $$
  select t.name, t.description, jsonb_build_object('type', 'object', 'properties', t.properties, 'required', t.required,
    'additionalProperties', false)
  from (values
    (1, 'memory_search', 'Search what is known about the user and what was said before. Gives ids and short lines.',
     '{"query": {"type": "string"}, "kind": {"type": "string", "enum": ["memory", "turn", "summary"]},
       "limit": {"type": "integer", "minimum": 1, "maximum": 50}}'::jsonb, '["query"]'::jsonb),
    (2, 'memory_timeline', 'What was said around the id of a hit.',
     '{"id": {"type": "string"}}', '["id"]'),
    (3, 'memory_get', 'The whole text behind ids.',
     '{"ids": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20}}', '["ids"]'),
    (4, 'memory_query', 'The passages that best answer a question, from everything stored.',
     '{"question": {"type": "string"}, "max_tokens": {"type": "integer", "minimum": 50, "maximum": 4000}}',
     '["question"]'),
    (5, 'memory_remember', 'Keep a lasting fact, preference or instruction, as one sentence. said: the user''s words, '
     || 'quoted from this session.',
     '{"content": {"type": "string"}, "type": {"type": "string", "enum": ["fact", "preference", "instruction"]},
       "said": {"type": "string"}}', '["content"]'),
    (6, 'memory_correct',
      'Replace what a memory says, or a part of it. said: the user''s words that say so, quoted from '
     || 'this session.',
     '{"id": {"type": "string"}, "content": {"type": "string"}, "said": {"type": "string"}}', '["id", "content"]'),
    (7, 'memory_forget', 'Forget what the user asks to forget: a memory by id, or about a thing. said: that request, '
     || 'quoted from this session.',
     '{"id": {"type": "string"}, "about": {"type": "string"}, "said": {"type": "string"}}', '["said"]'),
    (8, 'memory_pin', 'Keep a memory in view in this session, or no longer.',
     '{"id": {"type": "string"}, "pinned": {"type": "boolean"}}', '["id"]')
  ) t (no, name, description, properties, required) order by t.no
$$;

create or replace function memoir.memory_tools(p_format text default 'openai')
returns jsonb language plpgsql immutable security definer set search_path from current as $$
begin
  perform _memoir.check_choice('format', p_format, '{openai,responses,anthropic,mcp}');
  return (select jsonb_agg(case p_format
      when 'openai' then jsonb_build_object('type', 'function', 'function', jsonb_build_object('name', t.name,
        'description', t.description, 'parameters', t.parameters))
      when 'responses' then jsonb_build_object('type', 'function', 'name', t.name, 'description', t.description,
        'parameters', t.parameters, 'strict', false)
      when 'anthropic' then jsonb_build_object('name', t.name, 'description', t.description, 'input_schema',
        t.parameters)
      else jsonb_build_object('name', t.name, 'description', t.description, 'inputSchema', t.parameters) end)
    from _memoir.memory_tool_list() t);
end $$;
comment on function memoir.memory_tools(text) is
  'Definitions of the tools by which a model keeps its own memory, to be sent with a request: p_format openai (chat
completions), responses, anthropic or mcp. call_memory_tool runs what the model calls. Raises PM014.';

-- An argument that is an id, and one that is a list of them; null where it lacks.
create or replace function _memoir.tool_id(p_arguments jsonb, p_name text)
returns uuid language plpgsql immutable as $$
begin
  return (p_arguments ->> p_name)::uuid;
exception when invalid_text_representation then
  perform _memoir.fail('PM014', format('%s must be an id as memory_search gives it, not %s', p_name,
    _memoir.shown(p_arguments ->> p_name)));
end $$;

create or replace function _memoir.tool_ids(p_ids jsonb)
returns uuid[] language plpgsql immutable as $$
begin
  return array(select x::uuid from jsonb_array_elements_text(p_ids) x);
exception when invalid_text_representation then
  perform _memoir.fail('PM014', format('ids must be ids as memory_search gives them, not %s',
    _memoir.shown(p_ids::text)));
end $$;

-- Refuses a tool that there is not, an argument that lacks, one that the tool does not have, one of another type.
create or replace function _memoir.check_tool_call(p_name text, p_arguments jsonb)
returns void language plpgsql stable as $$
declare
  v_schema jsonb := (select t.parameters from _memoir.memory_tool_list() t where t.name = p_name); v_key text;
  v_type text;
begin
  if v_schema is null then
    perform _memoir.fail('PM014', format('unknown tool %s', _memoir.shown(p_name)),
      (select string_agg(t.name, ', ') from _memoir.memory_tool_list() t));
  end if;
  for v_key in select jsonb_array_elements_text(v_schema -> 'required') loop
    if coalesce(p_arguments -> v_key, 'null') = 'null' or _memoir.is_blank(p_arguments ->> v_key) then
      perform _memoir.fail('PM014', format('%s needs the argument %s', p_name, v_key));
    end if;
  end loop;
  for v_key, v_type in select key, jsonb_typeof(value) from jsonb_each(p_arguments) where value <> 'null' loop
    if not v_schema -> 'properties' ? v_key then
      perform _memoir.fail('PM014', format('%s has no argument %s', p_name, _memoir.shown(v_key)),
        (select string_agg(k, ', ') from jsonb_object_keys(v_schema -> 'properties') k));
    end if;
    if v_type <> replace(v_schema #>> array['properties', v_key, 'type'], 'integer', 'number')
      or v_schema #>> array['properties', v_key, 'type'] = 'integer' and p_arguments ->> v_key !~ '^[0-9]{1,6}$' then
      perform _memoir.fail('PM014', format('%s of %s must be a %s, not %s', v_key, p_name,
        v_schema #>> array['properties', v_key, 'type'], _memoir.shown((p_arguments -> v_key)::text)));
    end if;
  end loop;
end $$;

-- The newest of the user's own turns of a session in which these words stand, spaces, case and quotation marks apart, and
-- that has to do with p_about; null where there is none. Only such a quotation lends the agent the user's authority.
create or replace function _memoir.cited_turn(p_session _memoir.sessions, p_said text, p_about text)
returns integer language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_said text := _memoir.quotable(p_said); v_since timestamptz; v_until timestamptz; v_turn record;
  v_about text[] := _memoir.query_terms('simple', p_about);
begin
  if length(v_said) < 4 then return null; end if;
  select c.first_recorded_at, c.last_recorded_at into v_since, v_until from _memoir.session_counters c
  where c.user_id = p_session.user_id and c.session_id = p_session.session_id;
  for v_turn in
    select h.turn_index, h.content from _memoir.conversation_history h
    where h.user_id = p_session.user_id and h.session_id = p_session.session_id
      and h.recorded_at between v_since and v_until and h.role = 'user' and h.actor = 'person'
    order by h.turn_index desc limit 200
  loop
    if strpos(_memoir.quotable(v_turn.content), v_said) > 0
      and (_memoir.query_terms('simple', v_turn.content) && v_about
        or exists (select from _memoir.forget_requests(v_turn.content))) then
      return v_turn.turn_index;
    end if;
  end loop;
  return null;
end $$;

-- A text as quotations are compared.
create or replace function _memoir.quotable(p_text text)
returns text language sql immutable as $$
  select btrim(regexp_replace(translate(lower(normalize(left(p_text, 100000), nfkc)), '’‘“”„«»"''', ''), '\s+', ' ',
    'g'),
    ' .,;:!?…')
$$;

-- One line of an answer: id, when, where, what.
create or replace function _memoir.tool_line(p_kind text, p_id uuid, p_session text, p_at timestamptz, p_line text)
returns text language sql stable as $$
  select format('%s (%s%s, %s) %s', p_id, p_kind, case when p_session is null then '' else ' of ' ||
    _memoir.one_line(left(p_session, 60)) end, to_char(p_at, 'YYYY-MM-DD'), _memoir.neutralise(p_line))
$$;

-- The beginning of a text that costs at most so many tokens.
create or replace function _memoir.cut_to(p_text text, p_tokens integer)
returns text language plpgsql stable as $$
declare
  v_low integer := 0; v_high integer := least(length(p_text), 8 * p_tokens); v_middle integer;
begin
  while v_high - v_low > 4 loop
    v_middle := (v_low + v_high) / 2;
    if memoir.count_tokens(left(p_text, v_middle) || '…') <= p_tokens then v_low := v_middle;
      else v_high := v_middle; end if;
  end loop;
  return left(p_text, v_low) || '…';
end $$;

-- What a model may read whatever its login's clearance: nothing secret goes to a model.
create or replace function _memoir.is_secret(p_user_id uuid, p_id uuid)
returns boolean language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return exists (select from _memoir.search_items i where i.user_id = p_user_id and i.ref_id = p_id
      and i.sensitivity = 'secret')
    or exists (select from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = p_id
      and m.sensitivity = 'secret');
end $$;

-- The tools that read.
create or replace function _memoir.read_with_tool(p_caller _memoir.caller, p_user text, p_name text, p_arguments jsonb)
returns text language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_out text; v_left integer; v_item record; v_cost integer;
begin
  case p_name
  when 'memory_search' then
    select string_agg(_memoir.tool_line(i.kind, i.id, i.session, i.said_at, i.line), E'\n' order by i.rank) into v_out
    from memoir.memory_index(p_user, p_arguments ->> 'query', p_limit => coalesce((p_arguments ->> 'limit')::integer,
      10), p_kinds => case when p_arguments ? 'kind' then array[p_arguments ->> 'kind'] end) i
    where not _memoir.is_secret(v_user, i.id);
    return coalesce(v_out, 'Nothing found.');
  when 'memory_timeline' then
    select string_agg(case when t.is_anchor then '> ' else '  ' end || _memoir.tool_line(t.kind, t.id, t.session,
      t.said_at, case when t.kind = 'turn' then coalesce(t.name, t.role) || ': ' else '' end || coalesce(t.line, '')),
      E'\n' order by t.o) into v_out
    from memoir.memory_timeline(p_user, _memoir.tool_id(p_arguments, 'id')) with ordinality t(kind, id, session,
      turn_index, role, name, said_at, line, is_anchor, o)
    where not _memoir.is_secret(v_user, t.id);
    return coalesce(v_out, 'Nothing found.');
  when 'memory_get' then
    select string_agg(format('%s (%s%s)%s', g ->> 'id', g ->> 'kind', coalesce(', ' || nullif(g ->> 'state',
      'active'), ''), E'\n  ' || _memoir.indented(_memoir.neutralise(coalesce(g ->> 'content', '[no text]')))), E'\n'
      order by o) into v_out
    from memoir.memory_get(p_user, _memoir.tool_ids(p_arguments -> 'ids')) with ordinality x(g, o)
    where not _memoir.is_secret(v_user, (g ->> 'id')::uuid);
    return coalesce(v_out, 'No such ids. memory_search gives ids.');
  else  -- memory_query
    v_left := coalesce((p_arguments ->> 'max_tokens')::integer, 1000);
    for v_item in select r.kind, r.id, r.session, r.said_at, case when r.kind = 'turn'
      then coalesce(r.name, r.role) || ': '
        else '' end || r.content as body
      from memoir.recall(p_user, p_arguments ->> 'question', p_limit => 50) r
      where not _memoir.is_secret(v_user, r.id) order by r.rank
    loop
      v_item.body := _memoir.tool_line(v_item.kind, v_item.id, v_item.session, v_item.said_at,
        _memoir.indented(v_item.body));
      v_cost := memoir.count_tokens(v_item.body) + 1;
      -- The best passage is cut to what there is room for; memory_get has the whole.
      if v_out is null and v_cost > v_left then
        v_item.body := _memoir.cut_to(v_item.body, v_left - 1);
        v_cost := memoir.count_tokens(v_item.body) + 1;
      end if;
      continue when v_cost > v_left;
      v_left := v_left - v_cost;
      v_out := concat_ws(E'\n', v_out, v_item.body);
    end loop;
    return coalesce(v_out, 'Nothing found.');
  end case;
end $$;

-- A memory corrected: in the user's name where a turn is cited.
create or replace function _memoir.correct_with_tool(p_user text, p_session _memoir.sessions, p_id uuid, p_content text,
  p_cited integer, p_actor text)
returns text language plpgsql as $$
declare
  v_done jsonb := memoir.correct(p_user, p_id, p_content, p_session => p_session.external_id, p_actor => p_actor,
    p_source_turns => case when p_cited is not null then array[p_cited] end);
begin
  return format(case v_done ->> 'outcome' when 'contradicts'
    then 'Kept beside the old one as %s, which contradicts it: '
    'the user''s word stands. Quote the user in said to correct it.' else 'Corrected: now %s.' end,
    v_done ->> 'memory_id');
end $$;

-- The tools that write. What cites the user carries the user's word; what does not is the agent's own.
create or replace function _memoir.write_with_tool(p_caller _memoir.caller, p_user text, p_session _memoir.sessions,
  p_name text, p_arguments jsonb)
returns text language plpgsql as $$
declare
  v_id uuid := case when p_arguments ? 'id' then _memoir.tool_id(p_arguments, 'id') end;
  v_content text := p_arguments ->> 'content'; v_said text := p_arguments ->> 'said'; v_turn integer; v_done jsonb;
  v_old text := (select m.content from _memoir.memory_store m where m.user_id = p_caller.user_id
    and m.memory_id = v_id);
  v_unit _memoir.said_unit := case when v_id is not null and v_old is null then _memoir.turn_unit(p_caller, v_id) end;
  v_agent text := case when p_caller.may_state_actor then 'agent' end;
begin
  v_turn := _memoir.cited_turn(p_session, v_said, concat_ws(' ', v_content, v_old, v_unit.said,
    p_arguments ->> 'about'));
  case p_name
  when 'memory_remember', 'memory_correct' then
    if p_name = 'memory_correct' and v_unit.message_id is null then
      return _memoir.correct_with_tool(p_user, p_session, v_id, v_content, v_turn, v_agent);
    end if;
    v_done := memoir.remember(p_user, v_content, p_session => p_session.external_id, p_type => coalesce(
      p_arguments ->> 'type', 'fact'), p_actor => v_agent, p_provenance => case when v_turn is not null then
      'user_stated' end, p_source_turns => case when v_turn is not null then array[v_turn] end);
    -- What stands in a turn only is remembered as it is now, and the turn marked.
    if p_name = 'memory_correct' and v_turn is not null and v_done ->> 'outcome' <> 'refused_tombstone' then
      perform _memoir.change_turn(p_caller, p_session, v_turn, v_unit, (v_done ->> 'memory_id')::uuid);
      return format('Corrected: now %s.', v_done ->> 'memory_id');
    end if;
    return case v_done ->> 'outcome' when 'refused_tombstone' then 'Not kept: the user had it forgotten.'
      when 'duplicate' then format('Known already as %s.', v_done ->> 'memory_id')
      else format('Kept as %s.', v_done ->> 'memory_id') end;
  when 'memory_forget' then
    if v_turn is null then
      return 'Not forgotten: said must quote the words of this session with which the user asks for it.';
    end if;
    if v_unit.message_id is not null then
      v_done := jsonb_build_object('outcome', 'forgotten', 'change_id', _memoir.change_turn(p_caller, p_session, v_turn,
        v_unit, null));
    elsif v_id is not null then
      perform memoir.forget(p_user, v_id, 'asked to forget');
      v_done := jsonb_build_object('outcome', 'forgotten', 'change_id', gen_random_uuid());
    else
      v_done := memoir.forget_about(p_user, coalesce(p_arguments ->> 'about', v_said));
    end if;
    -- The request names it once more.
    if v_done ->> 'outcome' = 'forgotten' then
      perform _memoir.exclude_request(p_caller, p_session, v_turn, v_said, (v_done ->> 'change_id')::uuid);
    end if;
    return case v_done ->> 'outcome' when 'forgotten' then 'Forgotten.'
      when 'unclear' then 'Not forgotten: it is not clear what is meant. memory_search finds it; forget it by id.'
      else 'Nothing is known of it.' end;
  else  -- memory_pin
    if coalesce((p_arguments ->> 'pinned')::boolean, true) then
      perform memoir.pin(p_user, p_session.external_id, v_id, p_reason => 'by the model');
      return 'Pinned.';
    end if;
    return case when memoir.unpin(p_user, p_session.external_id, v_id) then 'No longer pinned.'
      else 'It was not pinned.' end;
  end case;
end $$;

create or replace function memoir.call_memory_tool(p_user text, p_session text, p_name text,
  p_arguments jsonb default '{}')
returns text language plpgsql security definer
  set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_message text; v_hint text; v_state text;
begin
  begin
    if jsonb_typeof(coalesce(p_arguments, 'null')) <> 'object' then
      perform _memoir.fail('PM014', format('arguments must be a JSON object, not %s',
        _memoir.shown(p_arguments::text)));
    end if;
    perform _memoir.check_tool_call(p_name, p_arguments);
    if p_name in ('memory_search', 'memory_timeline', 'memory_get', 'memory_query') then
      return _memoir.read_with_tool(v_caller, p_user, p_name, p_arguments);
    end if;
    return _memoir.write_with_tool(v_caller, p_user, v_session, p_name, p_arguments);
  exception when others then
    get stacked diagnostics v_message = message_text, v_hint = pg_exception_hint, v_state = returned_sqlstate;
    -- What a model can mend is told to it; what it can't is the application's to know.
    if v_state not like 'PM0%' or v_state in ('PM001', 'PM030') then raise; end if;
    return 'Error: ' || _memoir.neutralise(v_message) || coalesce('. ' || nullif(v_hint, ''), '');
  end;
end $$;
comment on function memoir.call_memory_tool(text, text, text, jsonb) is
  'Runs a tool call of a model (memory_tools) in a session and answers with text for the model; what it can mend, a wrong
argument, an unknown id, is answered as "Error: …". Writes go through remember, correct, forget and pin as the agent''s.
memory_correct and memory_forget that quote the user''s own turn of this session (said) carry the user''s word; a
correction without stands beside the old one and contradicts it, a request without is not followed. Nothing secret is
shown. Raises PM001, PM003, PM030.';
