-- One content part. Returns its text ('' for media), raises PM010.
create or replace function _memoir.check_part(p_where text, p_part jsonb, p_role _memoir.turn_role)
returns text language plpgsql as $$
declare
  v_type text := p_part ->> 'type'; v_path text; v_url jsonb;
begin
  perform _memoir.refuse_value(jsonb_typeof(p_part) is distinct from 'object', p_where, p_part, 'an object',
    p_code => 'PM010');
  if v_type = 'text' or v_type = 'refusal' and p_role = 'assistant' then
    perform _memoir.refuse_value(jsonb_typeof(p_part -> v_type) is distinct from 'string', p_where || '.' || v_type,
      p_part -> v_type, 'a string', p_code => 'PM010');
    return p_part ->> v_type;
  elsif v_type in ('image_url', 'video_url') and p_role = 'user' then
    v_path := split_part(v_type, '_', 1);
    v_url := p_part #> array[v_type, 'url'];
    perform _memoir.refuse_value(jsonb_typeof(v_url) is distinct from 'string' or not (starts_with(v_url #>> '{}',
      'data:' || v_path || '/') or v_url #>> '{}' ~ '^https?://'), format('%s.%s.url', p_where, v_type), v_url #>> '{}',
      format('an http(s) or data:%s URL', v_path), p_code => 'PM010');
    perform _memoir.refuse_value(coalesce(p_part #>> '{image_url,detail}', 'auto') not in ('auto', 'low', 'high'),
      p_where || '.image_url.detail', p_part #>> '{image_url,detail}', 'auto, low or high', p_code => 'PM010');
    return '';
  elsif v_type in ('input_audio', 'file', 'document') and p_role = 'user'
    or v_type in ('thinking', 'redacted_thinking') and p_role = 'assistant' then
    -- Audio, files and thoughts have what makes them that. What a model thought is not said, and a file is not the
    -- user's words: neither is searched, or learnt from.
    perform _memoir.refuse_value(v_type = 'document' and p_part #>> '{source,type}' not in ('base64', 'text', 'url',
      'file'), p_where || '.source.type', p_part #>> '{source,type}', 'base64, text, url or file', p_code => 'PM010');
    foreach v_path in array case v_type when 'input_audio' then '{"input_audio,data","input_audio,format"}'::text[]
      when 'file' then array['file,' || case when p_part -> 'file' ? 'file_id' then 'file_id' else 'file_data' end]
      when 'thinking' then '{thinking}' when 'redacted_thinking' then '{data}'
      else '{"source,type"}'::text[] || case when p_part #>> '{source,type}' in ('base64', 'text')
        then '{"source,data","source,media_type"}'::text[] else '{}' end end loop
      perform _memoir.refuse_value(jsonb_typeof(p_part #> string_to_array(v_path, ',')) is distinct from 'string',
        p_where || '.' || replace(v_path, ',', '.'), p_part #> string_to_array(v_path, ','), 'a string',
        p_code => 'PM010');
    end loop;
    return '';
  end if;
  perform _memoir.fail('PM010', format('%s.type %s can''t be stored in a message of role %s', p_where,
    _memoir.shown(v_type), p_role),
    'text and, from users, image_url, video_url, input_audio, file, document; refusal, thinking, redacted_thinking '
      'from assistants');
end $$;

-- Parses one message or raises PM010, PM012 with the field's path.
create or replace function _memoir.parse_message(p_where text, p_json jsonb, p_config jsonb, p_images text)
returns _memoir.message language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_message _memoir.message; v_role text := p_json ->> 'role';
  v_limit integer := (p_config ->> 'text_bytes_max')::integer; v_rebuilt jsonb; v_zone text; v_entropy numeric;
begin
  perform _memoir.refuse_value(jsonb_typeof(p_json) is distinct from 'object', p_where, p_json, 'an object',
    p_code => 'PM010');
  perform _memoir.refuse_value(v_role is null or v_role not in ('system', 'developer', 'user', 'assistant', 'tool'),
    p_where || '.role', v_role, 'system, developer, user, assistant or tool',
    case when v_role = 'function' then 'function messages are now tool messages' end, 'PM010');
  if jsonb_typeof(p_json -> 'content') = 'string' then
    perform _memoir.check_size(p_where || '.content', p_json ->> 'content', v_limit);
  end if;
  perform _memoir.check_size(p_where, p_json::text, v_limit);

  v_message := _memoir.parse_content(p_where || '.content', p_json,
    case v_role when 'developer' then 'system' else v_role end::_memoir.turn_role, p_images);
  if v_message.role = 'tool' or p_json ?| '{name,tool_calls,function_call,tool_call_id}' then
    perform _memoir.check_references(p_where, p_json);
    v_message.name := p_json ->> 'name'; v_message.tool_call_id := p_json ->> 'tool_call_id';
    v_message.tool_calls := nullif(p_json -> 'tool_calls', 'null');
  end if;
  v_message.created_at := _memoir.check_time(p_where || '.created_at', p_json -> 'created_at');
  if p_json ->> 'sensitivity' is not null then
    perform _memoir.check_choice(p_where || '.sensitivity', p_json ->> 'sensitivity',
      enum_range(null::_memoir.sensitivity)::text[], 'PM010');
    v_message.sensitivity := p_json ->> 'sensitivity';
  end if;
  perform _memoir.refuse_value(coalesce(jsonb_typeof(p_json -> 'embeddable'), 'null') not in ('null', 'boolean'),
    p_where || '.embeddable', p_json -> 'embeddable', 'true or false', p_code => 'PM010');
  v_message.embeddable := coalesce((p_json ->> 'embeddable')::boolean, true);
  if p_json ?| '{tags,snapshot_ref}' then perform _memoir.check_labels(p_where, p_json, v_message.text); end if;
  -- What the columns do not say: unknown keys, the role developer, an explicit null. Not names that history() adds.
  v_rebuilt := _memoir.rebuilt(v_message.role, v_message.text, v_message.parts, v_message.name, v_message.tool_calls,
    v_message.tool_call_id);
  select jsonb_object_agg(key, value) into v_message.extra from jsonb_each(p_json)
  where key not in ('created_at', 'turn_index', 'message_id', 'tokens', 'tokenizer', 'usage', 'sensitivity',
      'embeddable', 'logprobs')
    and value is distinct from v_rebuilt -> key
    and not (key = 'content' and v_message.role = 'user');
  -- "Yesterday" is meant by the sender's clock.
  if v_message.created_at is not null and p_json ->> 'created_at' ~ '.{10}[-+][0-9:]*[1-9][0-9:]*$' then
    v_zone := replace(substring(p_json ->> 'created_at' from '.{10}([-+][0-9:]+)$'), ':', '');
    v_message.extra := coalesce(v_message.extra, '{}')
      || jsonb_build_object('utc_offset', left(v_zone, 3) || ':' || rpad(substr(v_zone, 4, 2), 2, '0'));
  end if;
  -- Log probabilities are many times the text: what they tell is kept.
  if p_json ? 'logprobs' then
    if v_role <> 'assistant' and jsonb_typeof(p_json -> 'logprobs') <> 'null' then
      perform _memoir.fail('PM010', format('%s.logprobs can''t stand in a message of role %s', p_where, v_role));
    end if;
    v_entropy := (_memoir.doubt(p_where || '.logprobs', p_json -> 'logprobs')).entropy;
    if v_entropy > 1.5 then
      v_message.extra := coalesce(v_message.extra, '{}') || jsonb_build_object('entropy', round(v_entropy, 2));
    end if;
  end if;
  return v_message;
end $$;

-- Tags by which a turn is found; a reference to what it only summarises (a file, a screenshot, a page), which stays
-- with the turn while the summary, its content, is what is embedded.
create or replace function _memoir.check_labels(p_where text, p_json jsonb, p_text text)
returns void language plpgsql immutable as $$
declare
  v_tags jsonb := nullif(p_json -> 'tags', 'null'); v_ref jsonb := nullif(p_json -> 'snapshot_ref', 'null');
begin
  perform _memoir.refuse_value(jsonb_typeof(v_tags) <> 'array' or jsonb_array_length(v_tags) > 32
    or exists (select from jsonb_array_elements(v_tags) t where jsonb_typeof(t) <> 'string'
    or length(t #>> '{}') not between 1 and 100), p_where || '.tags', v_tags, 'at most 32 texts of 1 to 100 characters',
    p_code => 'PM010');
  perform _memoir.refuse_value(jsonb_typeof(v_ref) <> 'string' or length(v_ref #>> '{}') not between 1 and 4000, p_where
    || '.snapshot_ref', v_ref, 'a text of 1 to 4000 characters', p_code => 'PM010');
  if v_ref is not null and coalesce(p_text, '') !~ '[[:alnum:]]' then
    perform _memoir.fail('PM010', p_where || '.snapshot_ref stands beside no text',
      'content says in words what the snapshot shows');
  end if;
end $$;

-- A message with its role and what it says: text, list of parts, or nothing where it calls tools or refuses.
create or replace function _memoir.parse_content(p_where text, p_json jsonb, p_role _memoir.turn_role, p_images text)
returns _memoir.message language plpgsql stable as $$
declare
  v_message _memoir.message; v_kind text := coalesce(jsonb_typeof(p_json -> 'content'), 'null');
  v_parts jsonb := p_json -> 'content'; v_part jsonb; v_index integer := 0; v_text text; v_texts text[] := '{}';
begin
  v_message.role := p_role;
  if v_kind = 'array' then
    if v_parts = '[]' then perform _memoir.fail('PM010', p_where || ' must not be an empty list'); end if;
    v_message.parts := v_parts;
    v_message.media_tokens := 0;
    for v_part in select * from jsonb_array_elements(v_parts) loop
      v_text := _memoir.check_part(format('%s[%s]', p_where, v_index), v_part, p_role);
      v_message.media_tokens := v_message.media_tokens + _memoir.media_tokens(v_part, p_images);
      if v_index = 0 and p_role = 'user' and v_part ->> 'type' = 'text' then
        v_text := _memoir.strip_recall(v_text);
        v_message.parts := jsonb_set(v_parts, '{0,text}', to_jsonb(v_text));
      end if;
      if v_text <> '' then v_texts := array_append(v_texts, v_text); end if;
      v_index := v_index + 1;
    end loop;
    v_message.text := array_to_string(v_texts, E'\n');
  elsif v_kind = 'string' then
    v_message.text := p_json ->> 'content';
    if p_role = 'user' then v_message.text := _memoir.strip_recall(v_message.text); end if;
  elsif v_kind <> 'null' then
    perform _memoir.fail('PM010', format('%s must be a string or a list of parts, not %s', p_where,
      _memoir.shown((p_json -> 'content')::text)));
  elsif p_role = 'assistant' and jsonb_typeof(p_json -> 'refusal') = 'string' then
    v_message.text := p_json ->> 'refusal';
    v_message.parts := jsonb_build_array(jsonb_build_object('type', 'refusal', 'refusal', v_message.text));
  elsif p_role <> 'assistant' or coalesce(jsonb_typeof(p_json -> 'tool_calls'), 'null') = 'null' then
    perform _memoir.fail('PM010', p_where || ' is missing', 'only an assistant message with tool_calls may have none');
  end if;
  return v_message;
end $$;

create or replace function _memoir.check_references(p_where text, p_json jsonb)
returns void language plpgsql stable as $$
declare
  v_role text := p_json ->> 'role'; v_calls jsonb := p_json -> 'tool_calls'; v_call jsonb; v_at text;
  v_calls_at text := p_where || '.tool_calls'; v_index integer := 0; v_seen text[] := '{}';
begin
  perform _memoir.refuse_value(p_json ->> 'name' is not null and (jsonb_typeof(p_json -> 'name') <> 'string'
    or p_json ->> 'name' !~ '^[^\s<|\\/>]{1,64}$'), p_where || '.name', p_json ->> 'name',
    '1 to 64 characters without white space and <|\/>', p_code => 'PM010');
  if p_json ->> 'tool_calls' is not null then
    if v_role <> 'assistant' then
      perform _memoir.fail('PM010', format('%s.tool_calls can''t stand in a message of role %s', p_where, v_role));
    end if;
    perform _memoir.refuse_value(jsonb_typeof(v_calls) <> 'array' or jsonb_array_length(v_calls) = 0, v_calls_at,
      v_calls, 'a list with at least one call', p_code => 'PM010');
    for v_call in select * from jsonb_array_elements(v_calls) loop
      v_at := format('%s[%s]', v_calls_at, v_index);
      perform _memoir.refuse_value(jsonb_typeof(v_call) <> 'object', v_at, v_call, 'an object', p_code => 'PM010');
      perform _memoir.refuse_value(jsonb_typeof(v_call -> 'id') is distinct from 'string' or v_call ->> 'id' = ''
        or length(v_call ->> 'id') > 200, v_at || '.id', v_call -> 'id', 'a string of 1 to 200 characters',
        p_code => 'PM010');
      perform _memoir.refuse_value(coalesce(v_call ->> 'type', 'function') <> 'function', v_at || '.type',
        v_call ->> 'type', 'function', p_code => 'PM010');
      if jsonb_typeof(v_call #> '{function,name}') is distinct from 'string'
        or v_call #>> '{function,name}' !~ '^[a-zA-Z0-9_-]{1,64}$' then
        perform _memoir.fail('PM010', format('%s.function.name must match [a-zA-Z0-9_-]{1,64}, not %s', v_at,
          _memoir.shown(v_call #>> '{function,name}')));
      end if;
      perform _memoir.refuse_value(jsonb_typeof(v_call #> '{function,arguments}') is distinct from 'string', v_at
        || '.function.arguments', v_call #> '{function,arguments}', 'a string of JSON', p_code => 'PM010');
      if v_call ->> 'id' = any (v_seen) then
        perform _memoir.fail('PM010', format('%s.id %s occurs twice', v_at, _memoir.shown(v_call ->> 'id')));
      end if;
      v_seen := v_seen || (v_call ->> 'id');
      v_index := v_index + 1;
    end loop;
  end if;
  if p_json ->> 'function_call' is not null then
    perform _memoir.fail('PM010',
      p_where || '.function_call is the deprecated form of tool_calls and can''t be stored');
  end if;
  if v_role = 'tool' then
    perform _memoir.refuse_value(jsonb_typeof(p_json -> 'tool_call_id') is distinct from 'string', p_where
      || '.tool_call_id', p_json -> 'tool_call_id', 'a string', p_code => 'PM010');
  elsif p_json ->> 'tool_call_id' is not null then
    perform _memoir.fail('PM010', format('%s.tool_call_id can''t stand in a message of role %s', p_where, v_role));
  end if;
end $$;

-- A message as its columns say it; with the rest (parse_message's extra) over it, it is the message that was sent.
create or replace function _memoir.rebuilt(p_role _memoir.turn_role, p_text text, p_parts jsonb, p_name text,
  p_tool_calls jsonb, p_tool_call_id text)
returns jsonb language sql stable as $$
  select jsonb_build_object('role', p_role)
    || case when p_parts is not null then jsonb_build_object('content', p_parts)
            when p_text is not null then jsonb_build_object('content', p_text) else '{}' end
    || case when p_name is not null then jsonb_build_object('name', p_name) else '{}' end
    || case when p_tool_calls is not null then jsonb_build_object('tool_calls', p_tool_calls) else '{}' end
    || case when p_tool_call_id is not null then jsonb_build_object('tool_call_id', p_tool_call_id) else '{}' end
$$;

-- A time said by the caller: ISO 8601 text (UTC where it names no zone) or seconds since 1970. Absurd dates are
-- refused, imports of old years are not.
create or replace function _memoir.check_time(p_where text, p_value jsonb, p_code text default 'PM010')
returns timestamptz language plpgsql stable as $$
declare
  v_at timestamptz; v_text text := p_value #>> '{}'; v_zone text;
begin
  if coalesce(jsonb_typeof(p_value), 'null') = 'null' then return null; end if;
  begin
    if jsonb_typeof(p_value) = 'number' then
      v_at := to_timestamp(v_text::float8);
    elsif jsonb_typeof(p_value) = 'string'
      and v_text ~* '^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?\s?(Z|[+-]\d\d(:?\d\d(:\d\d)?)?)?$' then
      v_zone := substring(v_text from '(?i)^.{10}.*(Z|[+-][\d:]+)$');
      v_at := case when v_zone is null then v_text::timestamp at time zone 'UTC' else v_text::timestamptz end;
    end if;
  exception when data_exception then null;
  end;
  perform _memoir.refuse_value(v_at is null or v_at < '1900-01-01 00:00+00' or v_at > memoir.now() + interval '1 day',
    p_where, v_text, 'a time from 1900 to tomorrow, ISO 8601 or seconds since 1970', p_code => p_code);
  return v_at;
end $$;

create or replace function _memoir.try_json(p_text text)
returns jsonb language plpgsql immutable as $$
begin
  return p_text::jsonb;
exception when others then return null;
end $$;

create or replace function _memoir.anthropic_id(p_id text)
returns text language sql immutable as $$ select regexp_replace(p_id, '[^a-zA-Z0-9_-]', '_', 'g') $$;

-- Returns what an id of a call is counted by: where the formats spell it differently, its pieces, which bound both.
create or replace function _memoir.id_texts(p_id text)
returns text[] language sql immutable as $$
  select case when i = coalesce(p_id, '') then array[i]
    else string_to_array(i, '_') || string_to_array(translate(p_id, replace(i, '_', ''), ''), null) end
  from coalesce(_memoir.anthropic_id(p_id), '') i
$$;

-- The strings of a message that cost tokens, in the order of the accounting rule (docs/explain/tokens.md).
create or replace function _memoir.token_texts(p_text text, p_parts jsonb, p_name text, p_tool_calls jsonb,
  p_tool_call_id text)
returns text[] language plpgsql immutable as $$
declare
  v_texts text[] := array[coalesce(p_text, '')];
begin
  if p_parts is not null then
    v_texts := array(select coalesce(_memoir.part_text(p), '')
      from jsonb_array_elements(p_parts) with ordinality t(p, o) order by o);
  end if;
  -- A name counts as the label that Anthropic's format makes of it.
  v_texts := v_texts || coalesce(case when p_tool_call_id is null then '[' || p_name || ']: ' else p_name end, '')
    || case when p_tool_call_id is null then array[''] else _memoir.id_texts(p_tool_call_id) end;
  if p_tool_calls is not null then
    -- Arguments as the costlier format sends them: Anthropic takes an object, so anything else is wrapped into one.
    v_texts := v_texts || array(select x from jsonb_array_elements(p_tool_calls) with ordinality t(c, o),
      lateral (select c #>> '{function,arguments}' as sent) a,
      unnest(_memoir.id_texts(c ->> 'id') || array[c #>> '{function,name}', case
        when jsonb_typeof(_memoir.try_json(a.sent)) = 'object' then a.sent
        else jsonb_build_object('arguments', a.sent)::text end]) with ordinality s(x, n) order by o, n);
  end if;
  return v_texts;
end $$;
