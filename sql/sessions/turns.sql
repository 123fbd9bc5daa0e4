-- Turns. persist_turn and append_messages are one short transaction without a model call:
--   authorise → receipt → session → lock counters → check all messages → count tokens → append → index words → counters.

-- Made once: an upgrade that replaced them would wait for every writer.
do $$
begin
  if not exists (select from pg_trigger where tgrelid = '_memoir.conversation_history'::regclass and tgname = 'history_append_only') then
    create trigger history_append_only before update or delete on _memoir.conversation_history
      for each row execute function _memoir.guard_history();
    create trigger history_no_truncate before truncate on _memoir.conversation_history
      for each statement execute function _memoir.guard_history();
  end if;
end $$;

create or replace function memoir.persist_turn(p_user text, p_session text, p_messages jsonb, p_usage jsonb default null,
  p_key text default null, p_actor text default null, p_metadata jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current as $$
begin
  return _memoir.append(_memoir.authorise(p_user, 'write'), p_user, p_session, p_messages, p_usage, p_key, p_actor, p_metadata, false);
end $$;
comment on function memoir.persist_turn(text, text, jsonb, jsonb, text, text, jsonb) is
  'Appends the messages of an exchange, an array of OpenAI chat messages, each with an optional created_at; every tool call must
be answered at the end. A message may state "sensitivity" (normal, private, secret) and "embeddable"; what looks like a key, a card,
an account or a personal number is marked secret (setting detect_secrets), which a warning says. Opens the session when it is new. p_usage: {"model", "prompt_tokens", "completion_tokens",
"latency_ms", "finish_reason"}. p_key: idempotency key; a retry returns the first result. Returns {"session_id", "from_turn",
"to_turn", "turn_count", "tokens", "mark", "message_ids", "warnings"}. All or nothing.
Writes conversation_history, counters, search items, jobs. Raises PM001, PM005, PM006, PM010 to PM014, PM023, PM031.';

create or replace function memoir.append_messages(p_user text, p_session text, p_messages jsonb, p_usage jsonb default null,
  p_key text default null, p_actor text default null, p_metadata jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current as $$
begin
  return _memoir.append(_memoir.authorise(p_user, 'write'), p_user, p_session, p_messages, p_usage, p_key, p_actor, p_metadata, true);
end $$;
comment on function memoir.append_messages(text, text, jsonb, jsonb, text, text, jsonb) is
  'As persist_turn, for a part of an exchange: tool calls may stay open until their results are appended (agent loops).';

create or replace function _memoir.usage_number(p_usage jsonb, p_field text)
returns integer language plpgsql immutable as $$
begin
  if coalesce(jsonb_typeof(p_usage -> p_field), 'null') = 'null' then return null; end if;
  if jsonb_typeof(p_usage -> p_field) <> 'number' or (p_usage ->> p_field)::numeric % 1 <> 0
     or (p_usage ->> p_field)::numeric not between 0 and 2147483647 then
    perform _memoir.fail('PM014', format('usage.%s must be a whole number from 0, not %s', p_field, _memoir.shown((p_usage -> p_field)::text)));
  end if;
  return (p_usage ->> p_field)::numeric::integer;  -- "5.0" is a whole number too
end $$;

-- A text of p_usage, or null.
create or replace function _memoir.usage_text(p_usage jsonb, p_field text)
returns text language plpgsql immutable as $$
begin
  if coalesce(jsonb_typeof(p_usage -> p_field), 'null') = 'null' then return null; end if;
  if jsonb_typeof(p_usage -> p_field) <> 'string' or length(p_usage ->> p_field) not between 1 and 200 then
    perform _memoir.fail('PM014', format('usage.%s must be a text of 1 to 200 characters, not %s', p_field, _memoir.shown((p_usage -> p_field)::text)));
  end if;
  return p_usage ->> p_field;
end $$;

create or replace function _memoir.append(p_caller _memoir.caller, p_user text, p_session text, p_messages jsonb, p_usage jsonb,
  p_key text, p_actor text, p_metadata jsonb, p_may_stay_open boolean)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_caller.user_id;
  v_stated _memoir.actor := _memoir.actor(p_caller, p_actor, null);
  v_session _memoir.sessions; v_counters _memoir.session_counters; v_model _memoir.models; v_config jsonb; v_settings jsonb;
  v_hash bytea; v_receipt _memoir.receipts; v_result jsonb; v_warnings jsonb := '[]';
  v_messages _memoir.message[]; v_message _memoir.message; v_ids uuid[];
  v_texts text[]; v_owners integer[]; v_counts integer[]; v_costs integer[]; v_tokenizer text;
  v_open text[]; v_before bigint; v_exchange integer; v_cap integer; v_at timestamptz; v_turn integer; v_role _memoir.turn_role;
  v_usage jsonb := nullif(p_usage, 'null'); v_metadata jsonb := coalesce(nullif(p_metadata, 'null'), '{}'); v_used_model text; v_finish text;
  v_prompt integer; v_completion integer; v_latency integer; v_cost bigint; v_user_cost bigint; i integer; v_id uuid;
  v_count integer; v_tokens integer; v_is_last boolean; v_kinds text[];
begin
  perform _memoir.check_session(p_session);
  if jsonb_typeof(p_messages) is distinct from 'array' or jsonb_array_length(p_messages) = 0 then
    perform _memoir.fail('PM010', format('messages must be a list of at least one message, not %s', _memoir.shown(p_messages::text)));
  end if;
  if jsonb_typeof(v_usage) <> 'object' then
    perform _memoir.fail('PM014', format('usage must be a JSON object, not %s', _memoir.shown(p_usage::text)));
  end if;
  if jsonb_typeof(v_metadata) <> 'object' then
    perform _memoir.fail('PM014', format('metadata must be a JSON object, not %s', _memoir.shown(p_metadata::text)));
  end if;
  if p_key is not null then
    if p_key = '' or length(p_key) > 200 then
      perform _memoir.fail('PM014', format('key must be a text of 1 to 200 characters, not %s', _memoir.shown(p_key)));
    end if;
    v_hash := sha256(convert_to(jsonb_build_array(p_session, p_messages, p_usage, p_actor, p_metadata, p_may_stay_open)::text, 'UTF8'));
  end if;

  v_used_model := _memoir.usage_text(v_usage, 'model');
  v_finish := _memoir.usage_text(v_usage, 'finish_reason');
  v_prompt := _memoir.usage_number(v_usage, 'prompt_tokens');
  v_completion := _memoir.usage_number(v_usage, 'completion_tokens');
  v_latency := _memoir.usage_number(v_usage, 'latency_ms');

  v_settings := (select config from _memoir.settings_merged);
  perform _memoir.check_size('metadata', v_metadata::text, (v_settings ->> 'text_bytes_max')::integer);
  if jsonb_array_length(p_messages) > (v_settings ->> 'messages_max')::integer then
    perform _memoir.fail('PM010', format('messages has %s entries, more than messages_max = %s', jsonb_array_length(p_messages), v_settings ->> 'messages_max'));
  end if;
  -- The session as it is; only a new one is opened here.
  select * into v_session from _memoir.sessions where user_id = v_user and session_id = _memoir.session_id(v_user, p_session);
  if not found then
    perform _memoir.open_session(p_caller, p_user, p_session, v_used_model, null, null, null, null, '{}', '{}');
    select * into v_session from _memoir.sessions where user_id = v_user and session_id = _memoir.session_id(v_user, p_session);
  else
    perform _memoir.check_session_of(p_caller, p_session, v_session.project);
  end if;
  v_model := _memoir.model(v_session.model);
  v_config := _memoir.config(v_user, v_session.settings);

  -- Everything is checked and counted before the locks are taken, so that they are held briefly.
  for i in 0 .. jsonb_array_length(p_messages) - 1 loop
    v_message := _memoir.parse_message(format('messages[%s]', i), p_messages -> i, v_config, v_model.images);
    v_kinds := _memoir.message_secrets(v_message, v_metadata, v_config);
    v_message.sensitivity := case when v_kinds = '{}' then coalesce(v_message.sensitivity, 'normal') else 'secret' end;
    v_message.embeddable := v_message.embeddable and v_message.sensitivity <> 'secret';
    if v_kinds <> '{}' then
      v_warnings := v_warnings || to_jsonb(format('messages[%s] is marked secret: it looks like it holds a %s', i, array_to_string(v_kinds, ', ')));
    end if;
    v_messages := array_append(v_messages, v_message);
  end loop;
  select array_agg(t.text order by m.o, t.n), array_agg(m.o::integer order by m.o, t.n) into v_texts, v_owners
  from unnest(v_messages) with ordinality as m(role, text, parts, name, tool_calls, tool_call_id, created_at, media_tokens, extra, sensitivity, embeddable, o),
       unnest(_memoir.token_texts(m.text, m.parts, m.name, m.tool_calls, m.tool_call_id)) with ordinality as t(text, n);
  v_tokenizer := _memoir.tokenizer_used(v_session.tokenizer);
  v_counts := _memoir.count_tokens(v_texts, v_tokenizer);
  select array_agg(n + coalesce((v_messages[o]).media_tokens, 0) order by o) into v_costs
  from (select o, sum(n)::integer as n from unnest(v_owners, v_counts) t(o, n) group by o) s;
  -- The price is that of the model that answered, where it is registered, else of the session's.
  select trunc((coalesce(v_prompt, 0)::numeric * m.prompt_microcents_per_1k + coalesce(v_completion, 0)::numeric * m.completion_microcents_per_1k) / 1000)
  into v_cost from (
    select m.prompt_microcents_per_1k, m.completion_microcents_per_1k, length(m.model) as found from _memoir.models m
    where m.model = v_used_model or starts_with(v_used_model, m.model || '-')
    union all select v_model.prompt_microcents_per_1k, v_model.completion_microcents_per_1k, 0) m
  order by m.found desc limit 1;

  -- One order of locks everywhere: the session's counters, then the user's.
  select * into v_counters from _memoir.session_counters
  where user_id = v_user and session_id = v_session.session_id for update;
  if p_key is not null then
    select * into v_receipt from _memoir.receipts where user_id = v_user and idempotency_key = p_key;
    if found then
      if v_receipt.request_hash <> v_hash then
        perform _memoir.fail('PM006', format('idempotency key %s was used with another request', _memoir.shown(p_key)));
      end if;
      return v_receipt.result;
    end if;
  end if;
  select status into v_session.status from _memoir.sessions where user_id = v_user and session_id = v_session.session_id;
  if v_session.status in ('closed', 'expired') then
    perform _memoir.fail('PM005', format('session %s is %s', _memoir.shown(p_session), v_session.status), 'open one under another name, with p_parent => this one');
  end if;
  v_at := greatest(memoir.now(), v_counters.last_recorded_at);
  perform _memoir.ensure_month(v_user, v_at);  -- before the user's lock, since whoever makes partitions may need that next
  v_warnings := v_warnings || _memoir.over_budget('session', p_session, v_counters.cost_microcents + v_cost, v_config);
  if v_cost > 0 then
    update _memoir.user_counters set cost_microcents = cost_microcents + v_cost where user_id = v_user returning cost_microcents into v_user_cost;
    v_warnings := v_warnings || _memoir.over_budget('user', p_user, v_user_cost, v_config);
  end if;
  v_open := v_counters.open_calls;
  v_before := v_counters.tokens;
  v_exchange := v_counters.exchange_start;
  v_role := v_counters.last_role;
  v_turn := v_counters.turn_count;
  -- A giant tool result is shown as an excerpt, so it counts as one in the window's arithmetic.
  v_cap := ((v_config ->> 'tool_result_share')::real * (v_session.context_window - v_session.max_response_tokens))::integer;

  -- No array in the statement below: a custom plan copies its parameters, and the messages may be megabytes.
  v_count := cardinality(v_messages);
  for i in 1 .. v_count loop
    v_message := v_messages[i]; v_tokens := v_costs[i]; v_is_last := i = v_count;
    if v_message.role = 'tool' then
      if v_message.tool_call_id <> all (v_open) then
        perform _memoir.fail('PM011', format('messages[%s].tool_call_id %s answers no open tool call', i - 1, _memoir.shown(v_message.tool_call_id)),
          case when v_open = '{}' then 'no call is open in this session' else 'open: ' || array_to_string(v_open, ', ') end);
      end if;
      v_open := array_remove(v_open, v_message.tool_call_id);
    elsif v_open <> '{}' then
      perform _memoir.fail('PM011', format('messages[%s] (%s) comes before the results of tool calls %s', i - 1, v_message.role, array_to_string(v_open, ', ')),
        'persist a result for each call, an error text if it failed');
    end if;
    if v_message.tool_calls is not null then
      v_open := array(select c ->> 'id' from jsonb_array_elements(v_message.tool_calls) with ordinality t(c, o) order by o);
    end if;
    -- An exchange begins with the first user message after anything else.
    if v_message.role in ('user', 'system') and v_role is distinct from 'user' and not (v_role = 'system' and v_exchange = v_turn - 1) then
      v_exchange := v_turn;
    end if;
    insert into _memoir.conversation_history (user_id, session_id, message_id, recorded_at, created_at, tokens_before, turn_index,
      exchange_start, token_count, prompt_tokens, completion_tokens, latency_ms, role, actor, tokenizer, content, content_parts,
      name, tool_calls, tool_call_id, model, finish_reason, metadata, sensitivity, embeddable)
    values (v_user, v_session.session_id, gen_random_uuid(), v_at, coalesce(v_message.created_at, v_at), v_before, v_turn, v_exchange,
      v_tokens, case when v_is_last then v_prompt end, case when v_is_last then v_completion end, case when v_is_last then v_latency end, v_message.role,
      case v_message.role when 'user' then coalesce(v_stated, 'person')
                          when 'system' then case when p_caller.may_state_actor then 'system' else coalesce(v_stated, 'agent') end
                          when 'tool' then 'tool' else 'agent' end::_memoir.actor,
      v_tokenizer, v_message.text, v_message.parts, v_message.name, v_message.tool_calls, v_message.tool_call_id,
      case when v_message.role = 'assistant' then coalesce(v_used_model, v_session.model) end,
      case when v_is_last then v_finish end,
      nullif(case when v_message.extra is null then '{}' else jsonb_build_object('sent', v_message.extra) end
             || case when v_metadata = '{}' then '{}' else jsonb_build_object('call', v_metadata) end, '{}'),
      v_message.sensitivity, v_message.embeddable)
    returning message_id into v_id;
    v_ids := v_ids || v_id;
    v_before := v_before + v_model.message_overhead
      + case when v_message.role = 'tool' then least(v_tokens, v_cap) else v_tokens end;
    v_role := v_message.role;
    v_turn := v_turn + 1;
  end loop;
  if v_open <> '{}' and not p_may_stay_open then
    perform _memoir.fail('PM011', format('tool calls %s have no result', array_to_string(v_open, ', ')),
      'append_messages takes parts of an exchange');
  end if;

  -- The queue is told once, not with every turn: while the cursor lags, the session waits there already.
  if v_counters.extracted_through >= v_counters.turn_count then
    perform _memoir.queue_extraction(v_user, v_session.session_id, v_at);
  end if;
  perform _memoir.index_turns(v_user, v_session, v_messages, v_ids, v_costs, v_counters.turn_count, v_at, v_config);

  update _memoir.session_counters set turn_count = v_turn, tokens = v_before, exchange_start = v_exchange, last_role = v_role,
    open_calls = v_open, last_recorded_at = v_at, prompt_tokens = prompt_tokens + coalesce(v_prompt, 0),
    completion_tokens = completion_tokens + coalesce(v_completion, 0), cost_microcents = cost_microcents + v_cost
  where user_id = v_user and session_id = v_session.session_id;

  v_result := jsonb_build_object('session_id', v_session.session_id, 'from_turn', v_counters.turn_count, 'to_turn', v_turn - 1,
    'turn_count', v_turn, 'tokens', (select sum(c) from unnest(v_costs) c), 'tokenizer', v_tokenizer,
    'mark', _memoir.turn_mark(v_session.session_id, v_turn), 'message_ids', to_jsonb(v_ids), 'warnings', v_warnings);
  if p_key is not null then
    perform _memoir.keep_receipt(v_user, p_key, v_hash, v_result, v_at);
  end if;
  return v_result;
end $$;

-- A warning in a list, or none; PM023 where the budget refuses.
create or replace function _memoir.over_budget(p_what text, p_name text, p_cost bigint, p_config jsonb)
returns jsonb language plpgsql stable as $$
declare
  v_limit bigint := (p_config ->> ('budget_microcents_' || p_what))::bigint;
begin
  if v_limit = 0 or p_cost <= v_limit then return '[]'; end if;
  if p_config ->> 'budget_action' = 'refuse' then
    perform _memoir.fail('PM023', format('%s %s would cost %s microcents, its budget is %s', p_what, _memoir.shown(p_name), p_cost, v_limit),
      format('raise budget_microcents_%s, or set budget_action to warn', p_what));
  end if;
  return jsonb_build_array(format('%s costs %s microcents, its budget is %s', p_what, p_cost, v_limit));
end $$;

-- The same key may have come by another session, or through remember, at the same moment: there no common lock was held.
create or replace function _memoir.keep_receipt(p_user_id uuid, p_key text, p_hash bytea, p_result jsonb, p_at timestamptz)
returns void language plpgsql as $$
begin
  insert into _memoir.receipts (user_id, idempotency_key, request_hash, result, recorded_at)
  values (p_user_id, p_key, p_hash, p_result, p_at) on conflict do nothing;
  if not found then
    perform _memoir.fail('PM006', format('idempotency key %s was used with another request', _memoir.shown(p_key)));
  end if;
end $$;

-- A turn mark says "this session had that many turns": what a replica must have reached before it may answer.
create or replace function _memoir.turn_mark(p_session_id uuid, p_turns integer)
returns text language sql immutable as $$ select left(p_session_id::text, 8) || ':' || p_turns $$;

-- Makes items of turns (in chunks where long) and puts their words into the user's tail.
create or replace function _memoir.index_turns(p_user_id uuid, p_session _memoir.sessions, p_messages _memoir.message[], p_ids uuid[],
  p_costs integer[], p_first_turn integer, p_at timestamptz, p_config jsonb)
returns void language plpgsql as $$
declare
  v_items _memoir.search_items[] := '{}'; v_texts text[] := '{}'; v_item _memoir.search_items; v_message _memoir.message;
  v_chunk record; v_count integer; i integer;
begin
  for i in 1 .. cardinality(p_messages) loop
    v_message := p_messages[i];
    continue when v_message.role = 'system' or coalesce(v_message.text, '') !~ '[[:alnum:]]';
    v_item.ref_id := p_ids[i];
    v_item.session_id := p_session.session_id;
    v_item.created_at := coalesce(v_message.created_at, p_at);
    v_item.turn_index := p_first_turn + i - 1;
    v_item.kind := 't';
    v_item.role := v_message.role;
    v_item.speaker := v_message.name;
    v_item.is_question := _memoir.is_question(v_message.text);
    v_item.project := p_session.project;
    v_item.sensitivity := v_message.sensitivity;
    v_count := 0;
    for v_chunk in select * from _memoir.chunks(v_message.text, (p_config ->> 'chunk_tokens')::integer) loop
      v_item.span_start := v_chunk.span_start;
      v_item.span_length := v_chunk.span_length;
      v_item.chunk := v_count;
      v_item.embeddable := v_message.embeddable and v_count < (p_config ->> 'embed_chunks_max')::integer;
      v_item.token_count := v_chunk.tokens;
      v_items := array_append(v_items, v_item);
      v_texts := array_append(v_texts, coalesce(v_message.name || ': ', '') || v_chunk.piece);
      v_count := v_count + 1;
    end loop;
    -- What recall shows is the text alone, without tool calls or images: where that is all, its count is known exactly.
    if v_count = 1 and v_message.tool_calls is null and v_message.parts is null then
      v_item.token_count := p_costs[i];
      v_items[cardinality(v_items)] := v_item;
    end if;
  end loop;
  perform _memoir.add_items(p_user_id, v_items, v_texts, p_at, p_config);
end $$;

create or replace function memoir.history(p_user text, p_session text, p_from_turn integer default 0, p_to_turn integer default null)
returns setof jsonb language plpgsql stable security definer set search_path from current
set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_part record; v_user uuid := v_caller.user_id; v_from timestamptz; v_to timestamptz; v_marks jsonb;
begin
  for v_part in select * from _memoir.lineage(v_session) order by from_turn loop
    v_marks := _memoir.marks(v_user, v_part.session_id);
    select first_recorded_at, last_recorded_at into v_from, v_to
    from _memoir.session_counters where user_id = v_user and session_id = v_part.session_id;
    return query select _memoir.sent(h)
      || case when _memoir.now_held(h.sensitivity, h.turn_index, v_marks) = 'normal' then '{}'
              else jsonb_build_object('sensitivity', _memoir.now_held(h.sensitivity, h.turn_index, v_marks)) end
      || case when h.embeddable or h.sensitivity = 'secret' then '{}' else '{"embeddable": false}'::jsonb end
    from _memoir.conversation_history h
    where h.user_id = v_user and h.session_id = v_part.session_id and h.recorded_at between v_from and v_to
      and h.turn_index between greatest(v_part.from_turn, coalesce(p_from_turn, 0)) and least(v_part.to_turn, coalesce(p_to_turn, 2147483647))
      and _memoir.now_held(h.sensitivity, h.turn_index, v_marks) <= v_caller.clearance
    order by h.turn_index;
  end loop;
end $$;
comment on function memoir.history(text, text, integer, integer) is
  'The messages of a session as they were sent, oldest first, each with turn_index, message_id, tokens, tokenizer, created_at, the
model of an assistant message, metadata of its call, and its sensitivity where that is not normal; messages above the caller''s
clearance are left out. Both ends are inclusive. Raises PM001, PM003.';

-- A message as it was sent, with what history() adds to it.
create or replace function _memoir.sent(p_turn _memoir.conversation_history)
returns jsonb language sql immutable as $$
  select case when p_turn.model is null then '{}' else jsonb_build_object('model', p_turn.model) end
    || case when p_turn.metadata ? 'call' then jsonb_build_object('metadata', p_turn.metadata -> 'call') else '{}' end
    -- A refusal without content was given some to be searched by.
    || (_memoir.rebuilt(p_turn.role, p_turn.content, p_turn.content_parts, p_turn.name, p_turn.tool_calls, p_turn.tool_call_id)
        - case when p_turn.metadata #> '{sent,refusal}' is not null and p_turn.content_parts @> '[{"type": "refusal"}]'
               and p_turn.content_parts -> 0 -> 'refusal' = p_turn.metadata #> '{sent,refusal}' then 'content' else '' end)
    || coalesce(p_turn.metadata -> 'sent', '{}')
    || jsonb_build_object('turn_index', p_turn.turn_index, 'message_id', p_turn.message_id, 'created_at', p_turn.created_at,
         'tokens', p_turn.token_count, 'tokenizer', p_turn.tokenizer)
$$;
