create or replace function _memoir.text_parts(p_content jsonb)
returns jsonb language sql immutable as $$
  select case jsonb_typeof(p_content) when 'array' then p_content when 'string' then case p_content when '""'
    then '[]' else jsonb_build_array(jsonb_build_object('type', 'text', 'text', p_content)) end else '[]' end
$$;

-- Two contents of the same role as one: text with text is text, anything else becomes parts.
create or replace function _memoir.join_content(p_first jsonb, p_second jsonb)
returns jsonb language plpgsql immutable as $$
begin
  return case
    when p_first is null or p_first = '""' then p_second
    when p_second is null or p_second = '""' then p_first
    when jsonb_typeof(p_first) = 'string'
      and jsonb_typeof(p_second) = 'string' then to_jsonb((p_first #>> '{}') || E'\n\n' || (p_second #>> '{}'))
    else _memoir.text_parts(p_first) || _memoir.text_parts(p_second) end;
end $$;

-- All turns as messages, in one statement: a call for each would cost more than the rest of a short window.
create or replace function _memoir.openai_messages(p_turns _memoir.shown_turn[])
returns jsonb[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select case when t.role in ('user', 'assistant') and num_nulls(t.name, t.tool_calls, t.tool_call_id) = 3
      then jsonb_build_object('role', t.role::text, 'content', coalesce(t.parts, to_jsonb(t.content)))
    else jsonb_build_object('role', case when t.role = 'system' then 'user' else t.role::text end)
      || case when t.name is not null and t.role <> 'system' then jsonb_build_object('name', t.name) else '{}' end
      || case when t.tool_call_id is not null then jsonb_build_object('tool_call_id', t.tool_call_id) else '{}' end
      || case when t.tool_calls is not null then jsonb_build_object('tool_calls', (
           select jsonb_agg(jsonb_build_object('id', c ->> 'id', 'type', 'function', 'function',
             jsonb_build_object('name', c #>> '{function,name}', 'arguments', c #>> '{function,arguments}')) order by o)
           from jsonb_array_elements(t.tool_calls) with ordinality x(c, o))) else '{}' end
      || jsonb_build_object('content', case
        when t.role = 'system' then to_jsonb('[System note] ' || coalesce(t.content, ''))
           else coalesce(t.parts, to_jsonb(t.content)) end) end
    from unnest(p_turns) t);
end $$;

-- Returns a person's message that says in its text who speaks, where a list can't say it beside: "[Tunde]: …".
create or replace function _memoir.labelled(p_message jsonb)
returns jsonb language sql immutable as $$
  select case when p_message ->> 'name' is null or p_message ->> 'role' <> 'user'
      or _memoir.is_blank(p_message ->> 'content') or starts_with(p_message ->> 'content', '[') then p_message
    else p_message || jsonb_build_object('content', format('[%s]: %s', p_message ->> 'name', p_message ->> 'content'))
    end - 'name'
$$;

-- Two messages of one role as one. Different speakers are told apart in its text.
create or replace function _memoir.merge_messages(p_first jsonb, p_second jsonb)
returns jsonb language sql immutable as $$
  select f || s || jsonb_build_object('content', _memoir.join_content(nullif(f -> 'content', 'null'),
    nullif(s -> 'content', 'null')))
  from (select p_first ->> 'name' is distinct from p_second ->> 'name' as differ) d,
    lateral (select case when differ then _memoir.labelled(p_first) else p_first end as f,
      case when differ then _memoir.labelled(p_second) else p_second - 'name' end as s) m
$$;

create or replace function _memoir.message_tokens(p_message jsonb, p_tokenizer text, p_overhead integer, p_images text)
returns integer language plpgsql stable as $$
declare
  v_parts jsonb := case when jsonb_typeof(p_message -> 'content') = 'array' then p_message -> 'content' end;
  v_tokens integer := p_overhead + _memoir.sum_of(_memoir.count_tokens(_memoir.token_texts(case
    when jsonb_typeof(p_message -> 'content') = 'string' then p_message ->> 'content' end, v_parts,
    p_message ->> 'name', p_message -> 'tool_calls', p_message ->> 'tool_call_id'), p_tokenizer));
begin
  if v_parts is not null then
    v_tokens := v_tokens + coalesce((select sum(_memoir.media_tokens(p, p_images))
      from jsonb_array_elements(v_parts) p), 0);
  end if;
  return v_tokens;
end $$;

-- One OpenAI content as Anthropic blocks. Empty texts are not allowed there.
create or replace function _memoir.anthropic_blocks(p_content jsonb)
returns jsonb language sql immutable as $$
  select coalesce(jsonb_agg(block order by o) filter (where block is not null), '[]') from (
    select o, case p ->> 'type'
      when 'text' then case when not _memoir.is_blank(p ->> 'text') then jsonb_build_object('type', 'text', 'text',
        p ->> 'text') end
      when 'refusal' then case when not _memoir.is_blank(p ->> 'refusal') then jsonb_build_object('type', 'text',
        'text', p ->> 'refusal') end
      when 'image_url' then jsonb_build_object('type', 'image', 'source',
        case when p #>> '{image_url,url}' ~ '^data:image/(png|jpeg|gif|webp);base64,' then
          jsonb_build_object('type', 'base64', 'media_type', substring(p #>> '{image_url,url}' from '^data:([^;]+);'),
            'data', substring(p #>> '{image_url,url}' from ',(.*)$'))
        else jsonb_build_object('type', 'url', 'url', p #>> '{image_url,url}') end)
      else _memoir.anthropic_media(p) end as block
    from jsonb_array_elements(case jsonb_typeof(p_content) when 'array' then p_content
      -- Lines of steps are blocks of their own: they change, and what stands before them stays in the cache.
      when 'string' then (select jsonb_agg(jsonb_build_object('type', 'text', 'text', case when n > 1
          then '<memoir-steps>' else '' end || s) order by n)
        from string_to_table(p_content #>> '{}', E'\n\n<memoir-steps>') with ordinality x(s, n))
      else '[]' end) with ordinality t(p, o)) s
$$;

-- {"system": [...], "messages": [...]}; cache_control marks stand where the stable prefix ends: behind the system
-- blocks, behind the last message before the recall, before the newest lines of steps, else behind what the last moment
-- left as it was (p_frozen messages), and behind the last message of an open exchange.
create or replace function _memoir.anthropic(p_messages jsonb, p_prefix integer, p_open boolean, p_frozen integer)
returns jsonb language plpgsql immutable as $$
declare
  v_message jsonb; v_out jsonb[] := '{}'; v_system jsonb := '[]'; v_blocks jsonb; v_index integer := 0; v_mark integer;
  v_frozen integer; v_n integer; v_input jsonb; v_call jsonb; v_role text; v_lines integer[];
begin
  for v_message in select * from jsonb_array_elements(p_messages) loop
    v_role := v_message ->> 'role';
    if v_role = 'system' then
      v_system := jsonb_build_array(jsonb_build_object('type', 'text', 'text', v_message ->> 'content', 'cache_control',
        '{"type": "ephemeral"}'::jsonb));
    else
      if v_role = 'tool' then
        v_blocks := jsonb_build_array(jsonb_build_object('type', 'tool_result',
          'tool_use_id', _memoir.anthropic_id(v_message ->> 'tool_call_id'), 'content',
            _memoir.anthropic_blocks(v_message -> 'content')));
        v_role := 'user';
      else
        v_blocks := _memoir.anthropic_blocks(_memoir.labelled(v_message) -> 'content');
        for v_call in select * from jsonb_array_elements(coalesce(v_message -> 'tool_calls', '[]')) loop
          v_input := _memoir.try_json(v_call #>> '{function,arguments}');
          if jsonb_typeof(v_input) is distinct from 'object' then
            v_input := jsonb_build_object('arguments', v_call #>> '{function,arguments}');
          end if;
          v_blocks := v_blocks || jsonb_build_object('type', 'tool_use', 'id', _memoir.anthropic_id(v_call ->> 'id'),
            'name', v_call #>> '{function,name}', 'input', v_input);
        end loop;
        if v_blocks = '[]' then v_blocks := '[{"type": "text", "text": "(empty)"}]'; end if;
      end if;
      v_n := cardinality(v_out);
      if v_n > 0 and v_out[v_n] ->> 'role' = v_role then
        v_out[v_n] := jsonb_set(v_out[v_n], '{content}', (v_out[v_n] -> 'content') || v_blocks);
      else
        v_out := v_out || jsonb_build_object('role', v_role, 'content', v_blocks);
      end if;
    end if;
    v_index := v_index + 1;
    if v_index = p_prefix then v_mark := cardinality(v_out); end if;
    if v_index = p_frozen then v_frozen := cardinality(v_out); end if;
    -- The last block of lines, which a moment changes: in which message, and the block before it.
    v_lines := coalesce((select array[cardinality(v_out), max(o) - 2]
      from jsonb_array_elements(v_out[cardinality(v_out)] -> 'content') with ordinality b(b, o)
      where b ->> 'text' like '<memoir-steps>%' and o > 1 having max(o) > 1), v_lines);
  end loop;
  v_n := cardinality(v_out);
  if v_lines is not null then
    v_out[v_lines[1]] := jsonb_set(v_out[v_lines[1]], array['content', v_lines[2]::text, 'cache_control'],
      '{"type": "ephemeral"}');
    -- An API takes four marks.
    if v_mark > 0 then v_frozen := null; end if;
  end if;
  foreach v_index in array array[v_mark, case when v_frozen > coalesce(v_mark, 0) and v_frozen < v_n then v_frozen end,
    case when p_open and v_n > coalesce(v_mark, 0) then v_n end] loop
    -- Thoughts take no mark.
    if v_index > 0 and coalesce(v_out[v_index] -> 'content' -> -1 ->> 'type', '') !~ 'thinking$' then
      v_out[v_index] := jsonb_set(v_out[v_index], array['content', '-1', 'cache_control'], '{"type": "ephemeral"}');
    end if;
  end loop;
  return jsonb_build_object('system', v_system, 'messages', to_jsonb(v_out));
end $$;
