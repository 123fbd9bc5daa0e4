-- The model keeps its own memory: definitions of tools for OpenAI, Anthropic and MCP, and the one function that runs a
-- call and answers with text for a model. Everything goes through the functions that applications use, as an agent's: a
-- person's word outranks it, unless it cites what the user said in this session.

-- Tools that act in the session of the conversation. Outside of one MCP does not offer them, and a call is an error.
create or replace function _memoir.session_tools()
returns text[] language sql immutable
return '{memory_query,memory_pin,memory_objects,memory_restore,memory_release}'::text[];

-- The tools of sql/data/memory_tools.csv. offered: without what few calls need, for models.
create or replace function _memoir.memory_tool_list()
returns table (name text, description text, parameters jsonb, offered jsonb, reads boolean, door text)
language sql immutable as $$
  select t.name, t.description, jsonb_build_object('type', 'object', 'properties', t.properties::jsonb || t.more::jsonb,
      'required', r.names, 'additionalProperties', false),
    jsonb_strip_nulls(jsonb_build_object('type', 'object', 'properties', t.properties::jsonb, 'required',
      nullif(r.names, '[]'))), t.reads = 'yes', t.door
  from _memoir.data_memory_tools() t, to_jsonb(coalesce(string_to_array(t.required, ' '), '{}')) r(names) order by t.nth
$$;

create or replace function memoir.memory_tools(p_format text default 'openai', p_names text[] default null)
returns jsonb language plpgsql immutable security definer set search_path from current as $$
declare
  v_door text := case p_format when 'mcp' then 'mcp' else 'model' end;
begin
  perform _memoir.check_choice('format', p_format, '{openai,responses,anthropic,mcp}');
  return (select jsonb_agg(case p_format
      when 'openai' then jsonb_build_object('type', 'function', 'function', jsonb_build_object('name', t.name,
        'description', t.description, 'parameters', t.offered))
      when 'responses' then jsonb_build_object('type', 'function', 'name', t.name, 'description', t.description,
        'parameters', t.offered, 'strict', false)
      when 'anthropic' then jsonb_build_object('name', t.name, 'description', t.description, 'input_schema', t.offered)
      else jsonb_build_object('name', t.name, 'description', t.description, 'inputSchema', t.parameters,
        'annotations', jsonb_build_object('readOnlyHint', t.reads, 'destructiveHint', t.name = 'memory_forget',
          'openWorldHint', false), '_meta', jsonb_build_object('anthropic/alwaysLoad', true,
          'pg_memoir/needsSession', t.name = any (_memoir.session_tools()))) end)
    from _memoir.memory_tool_list() t
    where case when p_names is null then coalesce(t.door, v_door) = v_door else t.name = any (p_names) end);
end $$;
comment on function memoir.memory_tools(text, text[]) is
  'Definitions of the tools by which a model keeps its own memory, to be sent with a request: p_format openai (chat
completions), responses, anthropic or mcp. They are paid for with every request, so models get the arguments that most
calls need. By MCP there are more tools, with all arguments: memory_index and memory_recall in place of memory_search,
memory_stats, memory_objects, memory_sync; _meta of each says whether it needs a session. p_names: only these;
memory_query and memory_update are the fewest that do everything. call_memory_tool runs what the model calls, with any
of these arguments. Raises PM014.';

create or replace function memoir.memory_resources()
returns jsonb language sql immutable security definer set search_path from current as $$
  select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('uri', 'memoir://' || r.name, 'template', r.template, 'name',
    r.name, 'title', r.title, 'description', r.description, 'fields', r.fields::jsonb, 'tools', (
      select jsonb_agg(t order by t ->> 'name') from jsonb_array_elements(memoir.memory_tools('mcp')) t
      where t ->> 'name' = any (string_to_array(r.tools, ' '))))) order by r.nth)
  from _memoir.data_memory_resources() r
$$;
comment on function memoir.memory_resources() is
  'Lists what MCP clients can read, as descriptors: uri, template of the single ones, name, title, description, fields,
and the tools that reach it as memory_tools defines them.';

-- What an argument gives as an id, or as its first eight digits, by which an answer names it; null where it lacks.
create or replace function _memoir.tool_id(p_user_id uuid, p_name text, p_given text)
returns uuid language plpgsql stable as $$
declare
  v_ids uuid[] := _memoir.named_items(p_user_id, array[p_given]);
begin
  return case when cardinality(v_ids) = 1 then v_ids[1] else p_given::uuid end;
exception when invalid_text_representation then
  perform _memoir.fail('PM014', format('%s must be an id as a search gives it, not %s', p_name,
    _memoir.shown(p_given)));
end $$;

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

create or replace function _memoir.tool_time(p_arguments jsonb, p_name text)
returns timestamptz language plpgsql stable as $$
begin
  return (p_arguments ->> p_name)::timestamptz;
exception when data_exception then
  perform _memoir.fail('PM014', format('%s must be a time as 2026-03-31T18:00:00Z, not %s', p_name,
    _memoir.shown(p_arguments ->> p_name)));
end $$;

-- Returns what a search by a tool finds, its filters applied, without what no model may read.
create or replace function _memoir.tool_hits(p_caller _memoir.caller, p_user text, p_query text, p_arguments jsonb,
  p_limit integer)
returns table (rank integer, kind text, id uuid, session text, said_at timestamptz, said_by text, content text)
language plpgsql stable as $$
begin
  return query
  select r.rank, r.kind, r.id, case when r.space is null then r.session else concat_ws(', ', r.session, 'space '
    || r.space) end, r.said_at, case when r.kind = 'turn' then coalesce(r.name, r.role) || ': '
    else '' end, r.content
  from memoir.recall(p_user, p_query, p_session => p_arguments ->> 'session', p_limit => p_limit,
    p_types => case when p_arguments ? 'type' then array[p_arguments ->> 'type'] end,
    p_tags => case when p_arguments ? 'tags' then array(select jsonb_array_elements_text(p_arguments -> 'tags')) end,
    p_project => p_arguments ->> 'project',
    p_kinds => case when p_arguments ? 'kind' then array[p_arguments ->> 'kind'] end,
    p_after => _memoir.tool_time(p_arguments, 'after'), p_before => _memoir.tool_time(p_arguments, 'before'),
    p_where => p_arguments -> 'where') r
  where not _memoir.is_above('private', case when r.space is null then p_caller.user_id
    else _memoir.user_id(p_caller.namespace, '@space:' || r.space) end, r.id);
end $$;

create or replace function _memoir.read_with_tool(p_caller _memoir.caller, p_user text, p_session text, p_name text,
  p_arguments jsonb)
returns text language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_out text;
begin
  case p_name
  when 'memory_search', 'memory_index' then
    select string_agg(_memoir.tool_line(h.kind, h.id, h.session, h.said_at,
      _memoir.on_one_line(h.said_by || h.content)), E'\n' order by h.rank) into v_out
    from _memoir.tool_hits(p_caller, p_user, p_arguments ->> 'query', p_arguments,
      coalesce((p_arguments ->> 'limit')::integer, 10)) h;
  when 'memory_recall' then
    -- The best passages, in at most so many tokens; memory_get has the whole of one that is cut.
    select string_agg(l.line, E'\n' order by l.o) into v_out from _memoir.fit_lines(array(
      select _memoir.tool_line(h.kind, h.id, h.session, h.said_at, _memoir.indented(h.said_by || h.content))
      from _memoir.tool_hits(p_caller, p_user, p_arguments ->> 'query', p_arguments - 'max_tokens',
        coalesce((p_arguments ->> 'limit')::integer, 50)) h order by h.rank),
      coalesce((p_arguments ->> 'max_tokens')::integer, 2000)) l;
  when 'memory_timeline' then
    select string_agg(case when t.is_anchor then '> ' else '  ' end || _memoir.tool_line(t.kind, t.id, t.session,
      t.said_at, case when t.kind = 'turn' then coalesce(t.name, t.role) || ': ' else '' end || coalesce(t.line, '')),
      E'\n' order by t.o) into v_out
    from memoir.memory_timeline(p_user, _memoir.tool_id(v_user, 'id', p_arguments ->> 'id'),
      p_query => p_arguments ->> 'query',
      p_window => p_arguments ->> 'window') with ordinality t(kind, id, session, turn_index, role, name, said_at, line,
      is_anchor, o)
    where not _memoir.is_above('private', v_user, t.id);
  when 'memory_get' then
    select string_agg(format('%s (%s%s)%s', g ->> 'id', g ->> 'kind', coalesce(', ' || nullif(g ->> 'state',
      'active'), ''), E'\n  ' || _memoir.indented(_memoir.neutralise(coalesce(g ->> 'content', '[no text]')))), E'\n'
      order by o) into v_out
    from memoir.memory_get(p_user, array(select _memoir.tool_id(v_user, 'each of ids', i)
      from jsonb_array_elements_text(p_arguments -> 'ids') i)) with ordinality x(g, o)
    where not _memoir.is_above('private', v_user, (g ->> 'id')::uuid);
    return coalesce(v_out, 'No such ids. A search gives ids.');
  when 'memory_experience' then
    select string_agg(e.line, E'\n' order by e.rank) into v_out
    from memoir.recall_experience(p_user, p_arguments ->> 'task', p_session, p_arguments ->> 'project',
      coalesce((p_arguments ->> 'limit')::integer, 3)) e;
  when 'memory_objects' then
    select string_agg(format('%s (%s, turn %s, %s%s) %s', o.object, o.fidelity, o.turn_index, o.state,
      case when o.pinned then ', pinned' else '' end, _memoir.on_one_line(o.content)), E'\n' order by o.turn_index desc,
      o.memory_id) into v_out
    from memoir.list_objects(p_user, p_session, p_arguments ->> 'query',
      coalesce((p_arguments ->> 'limit')::integer, 50)) o
    where not _memoir.is_above('private', v_user, o.memory_id);
  else  -- memory_stats
    return memoir.memory_stats(p_user);
  end case;
  return coalesce(v_out, 'Nothing found.');
end $$;

-- Keeps what a model was told. Where the user is not quoted as saying it, it is the agent's word.
create or replace function _memoir.remember_with_tool(p_user text, p_session _memoir.sessions, p_content text,
  p_type text, p_turn integer, p_said text, p_actor text, out answer text, out memory_id uuid)
language plpgsql as $$
declare
  v_done jsonb := memoir.remember(p_user, p_content, p_session => p_session.external_id,
    p_type => coalesce(p_type, 'fact'), p_actor => p_actor,
    p_provenance => case when p_turn is not null then 'user_stated' end,
    p_source_turns => case when p_turn is not null then array[p_turn] end);
begin
  memory_id := v_done ->> 'memory_id';
  answer := case v_done ->> 'outcome' when 'refused_tombstone' then 'Not kept: the user had it forgotten.'
    when 'duplicate' then format('Known already as %s.', memory_id)
    else format('Kept as %s.', memory_id) || case when p_turn is null and not _memoir.is_blank(p_said)
      then ' As your own word: the user did not say it in what said quotes.' else '' end end;
end $$;

-- Corrects a memory, or what only a turn says. Where the user is not quoted as saying so, the new text stands beside
-- the old.
create or replace function _memoir.correct_with_tool(p_caller _memoir.caller, p_user text, p_session _memoir.sessions,
  p_id uuid, p_unit _memoir.said_unit, p_arguments jsonb, p_actor text)
returns text language plpgsql as $$
declare
  v_content text := p_arguments ->> 'content'; v_said text := p_arguments ->> 'said'; v_found record;
  v_made record; v_done jsonb;
begin
  if p_unit.message_id is null then
    v_found := _memoir.quoted(p_session, 'statement', v_said, array(
      select _memoir.memory_words(m) from _memoir.memory_store m
      where m.user_id = p_caller.user_id and m.memory_id = p_id and _memoir.may_see(p_caller, m)), null, v_content,
      (select m.slot from _memoir.memory_store m where m.user_id = p_caller.user_id and m.memory_id = p_id));
    v_done := memoir.correct(p_user, p_id, v_content, p_session => p_session.external_id, p_actor => p_actor,
      p_source_turns => case when v_found.turn_index is not null then array[v_found.turn_index] end);
    return format(case v_done ->> 'outcome' when 'contradicts'
      then 'Kept beside the old one as %s, which contradicts it: '
      'the user''s word stands. Quote in said where the user says so to correct it.' else 'Corrected: now %s.' end,
      v_done ->> 'memory_id');
  end if;
  v_found := _memoir.quoted(p_session, 'statement', v_said, null, p_unit.said, v_content, null);
  v_made := _memoir.remember_with_tool(p_user, p_session, v_content, p_arguments ->> 'type', v_found.turn_index, v_said,
    p_actor);
  -- What only a turn says is remembered as it is now, and the turn marked.
  if v_found.turn_index is null or v_made.memory_id is null then return v_made.answer; end if;
  perform _memoir.change_turn(p_caller, p_session, v_found.turn_index, (_memoir.parts_of(p_unit,
    v_found.parts))[1:1], v_made.memory_id);
  return format('Corrected: now %s.', v_made.memory_id);
end $$;

-- Forgets what the user is quoted as asking to forget, and no more than that. A login bound as a person needs to quote
-- nobody, and an agent may take back what it kept itself.
create or replace function _memoir.forget_with_tool(p_caller _memoir.caller, p_user text, p_session _memoir.sessions,
  p_id uuid, p_unit _memoir.said_unit, p_arguments jsonb, p_actor text)
returns text language plpgsql as $$
declare
  v_said text := p_arguments ->> 'said'; v_about text := coalesce(p_arguments ->> 'about', v_said); v_done jsonb;
  v_is_turn boolean := p_unit.message_id is not null;
  v_memory _memoir.memory_store; v_found record; v_turn _memoir.conversation_history;
begin
  select * into v_memory from _memoir.memory_store m
  where m.user_id = p_caller.user_id and m.memory_id = p_id and _memoir.may_see(p_caller, m);
  v_found := _memoir.quoted(p_session, 'request', v_said, case when v_is_turn then null
    when p_id is not null then array[_memoir.memory_words(v_memory)] else array[v_about] end, case when v_is_turn
    then p_unit.said end, null, v_memory.slot);
  if v_found.turn_index is null or v_found.is_narrower and p_id is not null then
    v_found.turn_index := null;
    if p_caller.actor is distinct from 'person' or v_is_turn then
      if v_memory.actor = 'agent' and v_memory.provenance = 'system_inferred' and v_memory.state = 'active'
        and v_memory.validated_at is null then
        perform memoir.retract(p_user, p_id, 'taken back by the agent', p_actor => p_actor);
        return 'Taken back.';
      end if;
      return 'Not forgotten: said must quote the words of this session with which the user asks to forget it, by its '
        'name.';
    end if;
  end if;
  if v_is_turn then
    v_done := jsonb_build_object('outcome', 'forgotten', 'change_id', _memoir.change_turn(p_caller, p_session,
      v_found.turn_index, _memoir.parts_of(p_unit, v_found.parts), null));
  elsif p_id is not null then
    perform memoir.forget(p_user, p_id, 'asked to forget');
    v_done := jsonb_build_object('outcome', 'forgotten', 'change_id', gen_random_uuid());
  else
    v_done := memoir.forget_about(p_user, case when v_found.is_narrower
      or not v_found.is_all and v_about ~* ('\m(?:' || _memoir.pattern_all_about() || ')\M')
      then v_found.names else v_about end);
  end if;
  -- The request names it once more.
  if v_done ->> 'outcome' = 'forgotten' and v_found.turn_index is not null then
    perform from _memoir.user_counters where user_id = p_caller.user_id for update;
    v_turn := _memoir.turn(p_session.user_id, p_session.session_id, v_found.turn_index);
    -- Where normal form moves what follows, the whole turn.
    perform _memoir.exclude_request(v_turn, case when v_turn.content is nfkc normalized then v_found.span_start end,
      v_found.span_length, (v_done ->> 'change_id')::uuid);
  end if;
  return case v_done ->> 'outcome' when 'forgotten' then 'Forgotten.'
    when 'unclear' then 'Not forgotten: it is not clear what is meant. Search for it, and forget it by id.'
    else 'Nothing is known of it.' end;
end $$;

-- Runs the tools that write. What the user is quoted as saying carries the user's word, the rest is the agent's own.
create or replace function _memoir.write_with_tool(p_caller _memoir.caller, p_user text, p_session _memoir.sessions,
  p_name text, p_arguments jsonb)
returns text language plpgsql as $$
declare
  v_id uuid := _memoir.tool_id(p_caller.user_id, 'id', p_arguments ->> 'id');
  v_content text := p_arguments ->> 'content'; v_said text := p_arguments ->> 'said'; v_unit _memoir.said_unit;
  v_done jsonb; v_agent text := case when p_caller.may_state_actor then 'agent' end;
begin
  if p_name = 'memory_update' then
    if coalesce(v_content, p_arguments ->> 'id', p_arguments ->> 'about') is null then
      perform _memoir.fail('PM014', 'memory_update needs content, id or about');
    end if;
    p_name := case when v_content is null then 'memory_forget' when v_id is null then 'memory_remember' else
      'memory_correct' end;
  end if;
  if v_id is not null and not exists (select from _memoir.memory_store m where m.user_id = p_caller.user_id
    and m.memory_id = v_id) then
    -- A whole turn as a clause; null where the caller may not see it.
    select h.message_id, h.session_id, h.turn_index, h.recorded_at, h.created_at, h.role, 1, length(h.content),
      h.content, left(h.content, 1000), false into v_unit
    from _memoir.search_items i
    join _memoir.conversation_history h on h.user_id = p_caller.user_id and h.session_id = i.session_id
      and h.recorded_at = i.recorded_at and h.message_id = i.ref_id
    where i.user_id = p_caller.user_id and i.ref_id = v_id and i.kind = 't' and not i.dead
      and i.sensitivity <= p_caller.clearance and (p_caller.projects is null or i.project = any (p_caller.projects));
  end if;
  case p_name
  when 'memory_remember' then
    return (_memoir.remember_with_tool(p_user, p_session, v_content, p_arguments ->> 'type',
      (_memoir.quoted(p_session, 'statement', v_said, array[''], null, v_content, null)).turn_index, v_said,
      v_agent)).answer;
  when 'memory_correct' then
    return _memoir.correct_with_tool(p_caller, p_user, p_session, v_id, v_unit, p_arguments, v_agent);
  when 'memory_forget' then
    return _memoir.forget_with_tool(p_caller, p_user, p_session, v_id, v_unit, p_arguments, v_agent);
  when 'memory_learn' then
    v_done := memoir.learn_experience(p_user, p_arguments ->> 'when', p_arguments ->> 'how', coalesce(p_arguments
      ->> 'type', 'procedure'), (p_arguments ->> 'worked')::boolean, p_arguments ->> 'note', p_session.external_id,
      p_arguments ->> 'project', v_agent);
    return case when v_done ->> 'memory_id' is null then 'Not kept: the user had it forgotten.'
      else format('Kept as %s.', v_done ->> 'memory_id') end;
  when 'memory_outcome' then
    v_done := memoir.report_outcome(p_user, v_id, (p_arguments ->> 'worked')::boolean, p_arguments ->> 'note',
      p_session.external_id, v_agent);
    return format('Noted: worked %s of %s.', v_done ->> 'succeeded', v_done ->> 'tried');
  when 'memory_sync' then
    return (select coalesce(jsonb_agg(to_jsonb(s)), '[]') from memoir.sync_semantic(p_user,
      coalesce((p_arguments ->> 'dry_run')::boolean, false)) s);
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
returns text language plpgsql security definer set search_path from current as $$
declare
  v_reads boolean := exists (select from _memoir.memory_tool_list() t where t.name = p_name and t.reads);
  v_caller _memoir.caller := _memoir.authorise(p_user, case when v_reads then 'read' else 'write' end);
  v_session _memoir.sessions; v_message text; v_hint text; v_state text; v_named text[];
begin
  if p_session is not null then v_session := _memoir.session(v_caller, p_session); end if;
  begin
    perform _memoir.refuse_value(jsonb_typeof(coalesce(p_arguments, 'null')) <> 'object', 'arguments', p_arguments,
      'a JSON object');
    perform _memoir.check_tool_call(p_name, p_arguments);
    if p_session is null and p_name = any (_memoir.session_tools()) then
      perform _memoir.fail('PM014', format('%s needs a session', p_name),
        'give p_session; over MCP the header x-pg-memoir-session, or pg-memoir mcp --session NAME');
    end if;
    if p_name = 'memory_query' then
      -- A question may be the name of an object: that asks for its text.
      v_named := _memoir.object_asked(p_arguments ->> 'question');
      begin
        if v_named is not null then return memoir.memory_restore(p_user, p_session, v_named[1], v_named[2]); end if;
      exception when sqlstate 'PM004' then null;  -- no name after all
      end;
      return memoir.memory_query(p_user, p_session, p_arguments ->> 'question',
        coalesce((p_arguments ->> 'max_tokens')::integer, 1000), coalesce(p_arguments ->> 'scope', 'user'), false)
        ->> 'text';
    elsif p_name = 'memory_restore' then
      return memoir.memory_restore(p_user, p_session, p_arguments ->> 'id', p_arguments ->> 'lines',
        p_arguments ->> 'reason');
    elsif p_name = 'memory_release' then
      return format('Released: %s.', memoir.memory_release(p_user, p_session,
        array(select jsonb_array_elements_text(p_arguments -> 'ids')), p_arguments ->> 'reason'));
    end if;
    if v_reads then return _memoir.read_with_tool(v_caller, p_user, p_session, p_name, p_arguments); end if;
    return _memoir.write_with_tool(v_caller, p_user, v_session, p_name, p_arguments);
  exception when others then
    get stacked diagnostics v_message = message_text, v_hint = pg_exception_hint, v_state = returned_sqlstate;
    -- What a model can mend is told to it; what it can't is the application's to know.
    if v_state not like 'PM0%' or v_state in ('PM001', 'PM026', 'PM030') then raise; end if;
    return 'Error: ' || _memoir.neutralise(v_message) || coalesce('. ' || nullif(v_hint, ''), '');
  end;
end $$;
comment on function memoir.call_memory_tool(text, text, text, jsonb) is
  'Runs a tool call of a model (memory_tools) in a session and answers with text for the model; what it can mend, a
wrong argument, an unknown id, is answered as "Error: …". p_session null: outside of sessions, where there is nobody to
quote and no memory_query, memory_pin, memory_objects, memory_restore and memory_release; what the agent keeps there is
found by recalls outside of sessions. A login bound as a person needs to quote nobody; an agent may take back what it
kept itself. Writes go through remember, correct, forget and pin as the agent''s. What said quotes of the user''s own
words in this session carries the user''s word for what the quoted clause says: a correction or statement whose words
and values stand there, a request to forget that names the thing. Any other correction stands beside the old one and
contradicts it, any other request is not followed. Nothing secret is shown. memory_query answers the name of an object
with its text; memory_update is memory_remember, memory_correct (content and id) or memory_forget (no content). Raises
PM001, PM003, PM030.';
