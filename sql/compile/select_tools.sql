create or replace function memoir.select_tools(p_user text, p_session text, p_tools jsonb, p_query text default null)
returns jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_said text := coalesce(p_query, '');
  v_kept jsonb; v_left text[]; v_shape text; v_about jsonb;
  v_schema constant jsonb := '{"type": "object", "required": ["names"], "properties": {"names": {"type": "array",
    "items": {"type": "string"}}}}';
begin
  perform _memoir.refuse_value(jsonb_typeof(p_tools) is distinct from 'array', 'tools', p_tools,
    'a list of tool definitions');
  if exists (select from _memoir.sessions where user_id = v_caller.user_id
      and session_id = _memoir.session_id(v_caller.user_id, p_session)) then
    v_said := concat_ws(' ', v_said, (select string_agg(concat_ws(' ', h ->> 'content', h ->> 'tool_calls'), ' ')
      from memoir.history(p_user, p_session) h where h ->> 'role' in ('user', 'assistant')));
  end if;
  select coalesce(jsonb_agg(t order by o) filter (where name is null or position(name in v_said) > 0), '[]'),
    array_agg(name order by o) filter (where position(name in v_said) = 0), min(shape)
  into v_kept, v_left, v_shape
  -- Definitions as OpenAI's chat, its Responses API or Anthropic wants them.
  from jsonb_array_elements(p_tools) with ordinality x(t, o),
    lateral (select coalesce(t #>> '{function,name}', t ->> 'name') as name, case when t ? 'function' then 'chat'
      when t ? 'input_schema' then 'anthropic' else 'responses' end as shape) s;
  if v_left is not null then
    v_about := jsonb_build_object('name', 'load_tools', 'description',
      format('Brings tools that are not shown. There are also: %s. Call it with the names you need.',
        array_to_string(v_left, ', ')));
    v_kept := v_kept || case v_shape
      when 'chat' then jsonb_build_object('type', 'function', 'function',
        v_about || jsonb_build_object('parameters', v_schema))
      when 'anthropic' then v_about || jsonb_build_object('input_schema', v_schema)
      else v_about || jsonb_build_object('type', 'function', 'parameters', v_schema) end;
  end if;
  return jsonb_build_object('tools', v_kept, 'left_out', coalesce(to_jsonb(v_left), '[]'));
end $$;
comment on function memoir.select_tools(text, text, jsonb, text) is
  'Leaves out of p_tools (definitions for OpenAI or Anthropic) what the session neither called nor named, and p_query
does not name. Returns {"tools", "left_out"}: the tools to send, at their end load_tools, which names those left out,
and their names. Once a call of load_tools is persisted, the tools that it names are there. Raises PM001, PM014.';
