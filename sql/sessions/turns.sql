-- Turns: the stages of an append (objects/append.sql calls them) over one row of state (_memoir.append_state).

-- Made once: an upgrade that replaced them would wait for every writer.
do $$
begin
  if not exists (select from pg_trigger where tgrelid = '_memoir.conversation_history'::regclass
    and tgname = 'history_append_only') then
    create trigger history_append_only before update or delete on _memoir.conversation_history
      for each row execute function _memoir.guard_history();
    create trigger history_no_truncate before truncate on _memoir.conversation_history
      for each statement execute function _memoir.guard_history();
  end if;
end $$;

-- Each stage takes the state and hands it on. Stages plan for their values, as the entry states; one that only inserts
-- or computes keeps its plans. The state is copied with every call, messages and all: so once a stage, never once a
-- message, and not in a statement, whose custom plan would copy it again.

-- Requested: what was asked, as far as that can be checked by itself.
create or replace function _memoir.append_requested(p_caller _memoir.caller, p_user text, p_session text,
  p_messages jsonb, p_usage jsonb, p_key text, p_actor text, p_metadata jsonb, p_may_stay_open boolean)
returns _memoir.append_state language plpgsql stable as $$
declare
  v_state _memoir.append_state; v_usage jsonb; v_field text;
  v_counts constant text[] := '{prompt_tokens,completion_tokens,cache_read_tokens,cache_write_tokens,
    cache_write_1h_tokens,latency_ms}';
begin
  v_state.actor := _memoir.actor(p_caller, p_actor, null);
  perform _memoir.check_name('session', p_session, 500);
  perform _memoir.refuse_value(jsonb_typeof(p_messages) is distinct from 'array' or jsonb_array_length(p_messages) = 0,
    'messages', p_messages, 'a list of at least one message', p_code => 'PM010');
  v_usage := _memoir.check_object('usage', p_usage);
  v_state.metadata := coalesce(_memoir.check_object('metadata', p_metadata), '{}');
  if p_key is not null then
    perform _memoir.check_short('key', p_key, 200);
    v_state.idempotency_key := p_key;
    v_state.request_hash := sha256(convert_to(
      jsonb_build_array(p_session, p_messages, p_usage, p_actor, p_metadata, p_may_stay_open)::text, 'UTF8'));
  end if;
  if v_usage is not null then
    foreach v_field in array '{model,finish_reason}'::text[] loop
      if jsonb_typeof(v_usage -> v_field) not in ('null', 'string')
        or length(v_usage ->> v_field) not between 1 and 200 then
        perform _memoir.fail('PM014', format('usage.%s must be a text of 1 to 200 characters, not %s', v_field,
          _memoir.shown((v_usage -> v_field)::text)));
      end if;
    end loop;
    foreach v_field in array v_counts loop
      if jsonb_typeof(v_usage -> v_field) not in ('null', 'number') or jsonb_typeof(v_usage -> v_field) = 'number'
        and ((v_usage ->> v_field)::numeric % 1 <> 0
          or (v_usage ->> v_field)::numeric not between 0 and 2147483647) then
        perform _memoir.fail('PM014', format('usage.%s must be a whole number from 0, not %s', v_field,
          _memoir.shown((v_usage -> v_field)::text)));
      end if;
    end loop;
    v_state.used_model := v_usage ->> 'model';
    v_state.finish_reason := v_usage ->> 'finish_reason';
    -- "5.0" is a whole number too.
    v_state.prompt_tokens := (v_usage ->> 'prompt_tokens')::numeric;
    v_state.completion_tokens := (v_usage ->> 'completion_tokens')::numeric;
    v_state.cache_read_tokens := (v_usage ->> 'cache_read_tokens')::numeric;
    v_state.cache_write_tokens := (v_usage ->> 'cache_write_tokens')::numeric;
    v_state.cache_write_1h_tokens := (v_usage ->> 'cache_write_1h_tokens')::numeric;
    v_state.latency_ms := (v_usage ->> 'latency_ms')::numeric;
  end if;
  v_state.caller := p_caller;
  v_state.user_id := p_caller.user_id;
  v_state.user_name := p_user;
  v_state.session_name := p_session;
  v_state.session_id := _memoir.session_id(p_caller.user_id, p_session);
  v_state.may_stay_open := p_may_stay_open;
  v_state.warnings := '[]';
  return v_state;
end $$;

-- Opened: the settings, the session as it is (only a new one is opened here) and its model.
create or replace function _memoir.append_opened(inout p_state _memoir.append_state, p_messages jsonb)
language plpgsql as $$
declare
  v_settings jsonb := (select config from _memoir.settings_merged); v_session _memoir.sessions;
begin
  perform _memoir.check_size('metadata', p_state.metadata::text, (v_settings ->> 'text_bytes_max')::integer);
  if jsonb_array_length(p_messages) > (v_settings ->> 'messages_max')::integer then
    perform _memoir.fail('PM010', format('messages has %s entries, more than messages_max = %s',
      jsonb_array_length(p_messages), v_settings ->> 'messages_max'));
  end if;
  select * into v_session from _memoir.sessions where user_id = p_state.user_id and session_id = p_state.session_id;
  if found then
    perform _memoir.check_session_of(p_state.caller, p_state.session_name, v_session.project);
  else
    perform _memoir.open_session(p_state.caller, p_state.user_name, p_state.session_name, p_state.used_model, null,
      null, null, null, '{}', '{}');
    select * into v_session from _memoir.sessions where user_id = p_state.user_id and session_id = p_state.session_id;
  end if;
  p_state.session := v_session;
  p_state.model := _memoir.model(v_session.model);
  if (p_state.model).tokenizer = 'estimate' then
    p_state.warnings := p_state.warnings || coalesce(to_jsonb(_memoir.model_warning(v_session.model)), '[]');
  end if;
  p_state.config := _memoir.config(p_state.user_id, v_session.settings);
end $$;

-- Checked: the messages in their normal form, what each costs in the session's tokenizer, what the answer cost, and if
-- one looks as if it held a secret: in text, parts, arguments of calls or metadata. All texts are read in one call.
create or replace function _memoir.append_checked(inout p_state _memoir.append_state, p_messages jsonb)
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_messages _memoir.message[]; v_message _memoir.message; v_config jsonb := p_state.config; v_read record;
  v_metadata text := nullif(p_state.metadata, '{}')::text; v_images text := (p_state.model).images; v_parts text;
  v_arguments text; v_said text[] := '{}'; v_texts text[] := '{}'; v_ends integer[] := '{}'; v_costs integer[] := '{}';
  v_from integer := 1; v_prices _memoir.models; v_prompt numeric := coalesce(p_state.prompt_tokens, 0);
begin
  for i in 0 .. jsonb_array_length(p_messages) - 1 loop
    v_message := _memoir.parse_message(format('messages[%s]', i), p_messages -> i, v_config, v_images);
    v_parts := (select string_agg(_memoir.part_text(p), E'\n' order by o)
        filter (where p ->> 'type' not in ('text', 'refusal'))
      from jsonb_array_elements(v_message.parts) with ordinality t(p, o));
    v_arguments := (select string_agg(c #>> '{function,arguments}', E'\n' order by o)
      from jsonb_array_elements(v_message.tool_calls) with ordinality t(c, o));
    v_said := array_append(v_said, concat_ws(E'\n', _memoir.ends_of(v_message.role, v_message.text), v_message.name,
      v_parts, v_arguments, v_message.extra::text, v_metadata));
    v_texts := v_texts || _memoir.token_texts(v_message.text, v_message.parts, v_message.name, v_message.tool_calls,
      v_message.tool_call_id);
    v_ends := array_append(v_ends, cardinality(v_texts));
    v_messages := array_append(v_messages, v_message);
  end loop;
  v_read := _memoir.read_messages(v_config, v_said, v_texts, (p_state.session).tokenizer);
  p_state.tokenizer := v_read.tokenizer;
  for i in 1 .. cardinality(v_messages) loop
    v_message := v_messages[i];
    v_message.sensitivity := case when v_read.kinds[i] = '' then coalesce(v_message.sensitivity, 'normal')
      else 'secret' end;
    v_message.embeddable := v_message.embeddable and v_message.sensitivity <> 'secret';
    if v_read.kinds[i] <> '' then
      p_state.warnings := p_state.warnings || to_jsonb(format(
        'messages[%s] is marked secret: it looks like it holds a %s', i - 1, v_read.kinds[i]));
    end if;
    v_messages[i] := v_message;
    v_costs := array_append(v_costs, coalesce(v_message.media_tokens, 0)
      + _memoir.sum_of(v_read.tokens[v_from : v_ends[i]]));
    v_from := v_ends[i] + 1;
  end loop;
  p_state.messages := v_messages;
  p_state.costs := v_costs;
  -- By the prices of the model that gave the answer, else of the session's. Cached tokens are counted among the
  -- prompt's; where a server reports more of them, the turn is stored all the same.
  p_state.cost_microcents := 0;
  if v_prompt > 0 or p_state.completion_tokens > 0 then
    v_prices := _memoir.registered_model(p_state.used_model);
    if v_prices.model is null then v_prices := p_state.model; end if;
    v_prompt := v_prompt + coalesce(p_state.cache_read_tokens, 0) * (v_prices.cache_read_rate::numeric - 1)
      + coalesce(p_state.cache_write_tokens, 0) * (v_prices.cache_write_rate::numeric - 1)
      + coalesce(p_state.cache_write_1h_tokens, 0) * (v_prices.cache_write_1h_rate::numeric - 1);
    p_state.cost_microcents := trunc((greatest(v_prompt, 0) * v_prices.prompt_microcents_per_1k
      + coalesce(p_state.completion_tokens, 0)::numeric * v_prices.completion_microcents_per_1k) / 1000);
  end if;
end $$;

-- Locked: the session's counters, the receipt of an earlier call, the session's state, the budgets. A result: it was
-- done before.
create or replace function _memoir.append_locked(inout p_state _memoir.append_state)
language plpgsql as $$
declare
  v_session _memoir.sessions; v_counters _memoir.session_counters; v_spent bigint;
begin
  -- One order of locks everywhere: the session's counters, then the user's.
  select * into v_counters from _memoir.session_counters
  where user_id = p_state.user_id and session_id = p_state.session_id for update;
  p_state.counters := v_counters;
  p_state.first_turn := v_counters.turn_count;
  if p_state.idempotency_key is not null then
    p_state.result := _memoir.receipt(p_state.user_id, p_state.idempotency_key, p_state.request_hash);
    if p_state.result is not null then return; end if;
  end if;
  select * into v_session from _memoir.sessions
  where user_id = p_state.user_id and session_id = p_state.session_id;
  perform _memoir.check_open(v_session);
  if v_session.status = 'paused' then perform _memoir.resume_session(v_session, p_state.config); end if;
  p_state.recorded_at := greatest(memoir.now(), v_counters.last_recorded_at);
  -- Before the user's lock, since whoever makes partitions may need that next.
  perform _memoir.ensure_month(p_state.user_id, p_state.recorded_at);
  p_state.warnings := p_state.warnings || _memoir.over_budget('session',
    v_counters.cost_microcents + p_state.cost_microcents, p_state.config);
  if p_state.cost_microcents > 0 then
    update _memoir.user_counters set cost_microcents = cost_microcents + p_state.cost_microcents
    where user_id = p_state.user_id returning cost_microcents into v_spent;
    p_state.warnings := p_state.warnings || _memoir.over_budget('user', v_spent, p_state.config);
  end if;
end $$;

-- Placed: each message in its exchange and in the window's arithmetic; tool results answer open calls first.
create or replace function _memoir.append_placed(inout p_state _memoir.append_state)
language plpgsql as $$
declare
  v_next _memoir.session_counters := p_state.counters; v_message _memoir.message;
  v_overhead integer := (p_state.model).message_overhead;
  v_costs integer[] := p_state.costs; v_starts integer[] := '{}'; v_before bigint[] := '{}'; v_place integer := 0;
  v_open text[];
  -- A giant tool result is shown as an excerpt, so it counts as one in the window's arithmetic.
  v_cap integer := ((p_state.config ->> 'tool_result_share')::real
    * ((p_state.session).context_window - (p_state.session).max_response_tokens))::integer;
begin
  foreach v_message in array p_state.messages loop
    v_place := v_place + 1;
    v_open := v_next.open_calls;
    if v_message.role = 'tool' then
      if v_message.tool_call_id <> all (v_open) then
        perform _memoir.fail('PM011', format('messages[%s].tool_call_id %s answers no open tool call', v_place - 1,
          _memoir.shown(v_message.tool_call_id)), case when v_open = '{}' then 'no call is open in this session'
          else 'open: ' || array_to_string(v_open, ', ') end);
      end if;
      v_next.open_calls := array_remove(v_open, v_message.tool_call_id);
    elsif v_open <> '{}' then
      perform _memoir.fail('PM011', format('messages[%s] (%s) comes before the results of tool calls %s', v_place - 1,
        v_message.role, array_to_string(v_open, ', ')), 'persist a result for each call, an error text if it failed');
    elsif v_message.tool_calls is not null then
      v_next.open_calls := array(select c ->> 'id' from jsonb_array_elements(v_message.tool_calls)
        with ordinality t(c, o) order by o);
    end if;
    -- An exchange begins with the first user message after anything else.
    if v_message.role in ('user', 'system') and v_next.last_role is distinct from 'user'
       and not (v_next.last_role = 'system' and v_next.exchange_start = v_next.turn_count - 1) then
      v_next.exchange_start := v_next.turn_count;
    end if;
    v_starts := array_append(v_starts, v_next.exchange_start);
    v_before := array_append(v_before, v_next.tokens);
    v_next.tokens := v_next.tokens + v_overhead
      + case when v_message.role = 'tool' then least(v_costs[v_place], v_cap) else v_costs[v_place] end;
    v_next.last_role := v_message.role;
    v_next.turn_count := v_next.turn_count + 1;
  end loop;
  if v_next.open_calls <> '{}' and not p_state.may_stay_open then
    perform _memoir.fail('PM011', format('tool calls %s have no result', array_to_string(v_next.open_calls, ', ')),
      'append_messages takes parts of an exchange');
  end if;
  p_state.counters := v_next;
  p_state.exchange_starts := v_starts;
  p_state.tokens_before := v_before;
end $$;

-- Written: the turns. What the call tells of the answer stands with its last message.
create or replace function _memoir.append_written(inout p_state _memoir.append_state)
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_message _memoir.message; v_place integer := 0; v_count integer := cardinality(p_state.messages); v_is_last boolean;
  v_turn integer; v_exchange integer; v_before bigint; v_cost integer; v_id uuid; v_ids uuid[] := '{}';
  v_costs integer[] := p_state.costs; v_starts integer[] := p_state.exchange_starts;
  v_befores bigint[] := p_state.tokens_before; v_person _memoir.actor := coalesce(p_state.actor, 'person');
  v_agent _memoir.actor := coalesce(p_state.actor, 'agent');
  v_system _memoir.actor := case when (p_state.caller).may_state_actor then 'system' else v_agent end;
  v_model text := coalesce(p_state.used_model, (p_state.session).model);
  v_call jsonb := case when p_state.metadata = '{}' then '{}' else jsonb_build_object('call', p_state.metadata) end;
begin
  -- It only inserts: a kept plan locks no leaf but the one.
  foreach v_message in array p_state.messages loop
    v_place := v_place + 1;
    v_is_last := v_place = v_count;
    v_turn := p_state.first_turn + v_place - 1;
    v_exchange := v_starts[v_place];
    v_before := v_befores[v_place];
    v_cost := v_costs[v_place];
    insert into _memoir.conversation_history (user_id, session_id, message_id, recorded_at, created_at, tokens_before,
      turn_index, exchange_start, token_count, prompt_tokens, completion_tokens, latency_ms, role, actor, tokenizer,
      content, content_parts, name, tool_calls, tool_call_id, model, finish_reason, metadata, sensitivity, embeddable,
      cost_microcents)
    values (p_state.user_id, p_state.session_id, gen_random_uuid(), p_state.recorded_at,
      coalesce(v_message.created_at, p_state.recorded_at), v_before, v_turn, v_exchange, v_cost,
      case when v_is_last then p_state.prompt_tokens end, case when v_is_last then p_state.completion_tokens end,
      case when v_is_last then p_state.latency_ms end, v_message.role,
      case v_message.role when 'user' then v_person when 'system' then v_system when 'tool' then 'tool'
        else 'agent' end,
      p_state.tokenizer, v_message.text, v_message.parts, v_message.name, v_message.tool_calls, v_message.tool_call_id,
      case when v_message.role = 'assistant' then v_model end, case when v_is_last then p_state.finish_reason end,
      nullif(case when v_message.extra is null then '{}' else jsonb_build_object('sent', v_message.extra) end || v_call,
        '{}'),
      v_message.sensitivity, v_message.embeddable, case when v_is_last then nullif(p_state.cost_microcents, 0) end)
    returning message_id into v_id;
    v_ids := array_append(v_ids, v_id);
  end loop;
  p_state.message_ids := v_ids;
end $$;

-- Accounted: the session's counters, the result, the receipt for a retry.
create or replace function _memoir.append_accounted(p_state _memoir.append_state)
returns jsonb language plpgsql as $$
declare
  v_next _memoir.session_counters := p_state.counters; v_result jsonb;
begin
  update _memoir.session_counters set turn_count = v_next.turn_count, tokens = v_next.tokens,
    exchange_start = v_next.exchange_start, last_role = v_next.last_role, open_calls = v_next.open_calls,
    last_recorded_at = p_state.recorded_at, prompt_tokens = prompt_tokens + coalesce(p_state.prompt_tokens, 0),
    completion_tokens = completion_tokens + coalesce(p_state.completion_tokens, 0),
    cost_microcents = cost_microcents + p_state.cost_microcents
  where user_id = p_state.user_id and session_id = p_state.session_id;
  v_result := jsonb_build_object('session_id', p_state.session_id, 'from_turn', p_state.first_turn,
    'to_turn', v_next.turn_count - 1, 'turn_count', v_next.turn_count,
    'tokens', _memoir.sum_of(p_state.costs), 'tokenizer', p_state.tokenizer,
    -- "This session had that many turns": what a replica must have reached before it may answer.
    'mark', left(p_state.session_id::text, 8) || ':' || v_next.turn_count, 'message_ids', to_jsonb(p_state.message_ids),
    'warnings', p_state.warnings);
  if p_state.idempotency_key is not null then
    perform _memoir.keep_receipt(p_state.user_id, p_state.idempotency_key, p_state.request_hash, v_result,
      p_state.recorded_at);
  end if;
  return v_result;
end $$;

-- A warning in a list, or none. What was answered is paid for and stays: it is compile that refuses the next call.
create or replace function _memoir.over_budget(p_what text, p_cost bigint, p_config jsonb)
returns jsonb language plpgsql stable as $$
declare
  v_limit bigint := (p_config ->> ('budget_microcents_' || p_what))::bigint;
begin
  if v_limit = 0 or p_cost <= v_limit then return '[]'; end if;
  return jsonb_build_array(format('%s costs %s microcents, its budget is %s', p_what, p_cost, v_limit));
end $$;

-- Returns what the same request with this idempotency key returned, or null; PM006 for another request.
create or replace function _memoir.receipt(p_user_id uuid, p_key text, p_hash bytea)
returns jsonb language plpgsql stable as $$
declare
  v_receipt _memoir.receipts;
begin
  perform _memoir.check_short('key', p_key, 200);
  select * into v_receipt from _memoir.receipts where user_id = p_user_id and idempotency_key = p_key;
  if found and v_receipt.request_hash <> p_hash then
    perform _memoir.fail('PM006', format('idempotency key %s was used with another request', _memoir.shown(p_key)));
  end if;
  return v_receipt.result;
end $$;

-- The same key may have come by another session, or remember, at the same moment, without a common lock.
create or replace function _memoir.keep_receipt(p_user_id uuid, p_key text, p_hash bytea, p_result jsonb,
  p_at timestamptz)
returns void language plpgsql as $$
begin
  insert into _memoir.receipts (user_id, idempotency_key, request_hash, result, recorded_at)
  values (p_user_id, p_key, p_hash, p_result, p_at) on conflict do nothing;
  if not found then
    perform _memoir.fail('PM006', format('idempotency key %s was used with another request', _memoir.shown(p_key)));
  end if;
end $$;

create or replace function memoir.history(p_user text, p_session text, p_from_turn integer default 0,
  p_to_turn integer default null)
returns setof jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_part record; v_user uuid := v_caller.user_id; v_marks jsonb; v_annotations jsonb;
  v_archived text := _memoir.archived_note(_memoir.archived_ranges(v_session), coalesce(p_from_turn, 0),
    coalesce(p_to_turn, 2147483647));
begin
  if v_archived is not null then
    raise warning 'session %: %', _memoir.shown(p_session), v_archived using hint = 'restore_month brings a month back';
  end if;
  for v_part in select * from _memoir.lineage(v_session) order by from_turn loop
    v_marks := _memoir.marks(v_user, v_part.session_id);
    v_annotations := _memoir.annotations(v_user, v_part.session_id);
    return query select _memoir.sent(h)
      || case when _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) = 'normal' then '{}'
              else jsonb_build_object('sensitivity', _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks)) end
      || case when h.embeddable or h.sensitivity = 'secret' then '{}' else '{"embeddable": false}'::jsonb end
      || case when _memoir.is_retracted(h.turn_index, v_marks) then '{"retracted": true}'::jsonb else '{}' end
      || case when v_annotations ? h.turn_index::text
              then jsonb_build_object('annotations', v_annotations -> h.turn_index::text) else '{}' end
    from _memoir.conversation_history h
    where h.user_id = v_user and h.session_id = v_part.session_id
      and h.recorded_at between v_part.since and v_part.until
      and h.turn_index between greatest(v_part.from_turn, coalesce(p_from_turn, 0))
      and least(v_part.to_turn, coalesce(p_to_turn, 2147483647))
      and _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) <= v_caller.clearance
    order by h.turn_index;
  end loop;
end $$;
comment on function memoir.history(text, text, integer, integer) is
  'The messages of a session as they were sent, oldest first, each with turn_index, message_id, tokens, tokenizer,
created_at (with utc_offset where it came with another than UTC), the model of an assistant message and its "usage"
(finish_reason, latency_ms, prompt_tokens, completion_tokens, cost_microcents), metadata of its call, its sensitivity
where that is not normal, and "retracted" where it was taken back, its annotations; messages above the caller''s
clearance are left out. Both ends are inclusive. What is archived is not here, which a warning says (session_info lists
it, restore_month brings it back). Raises PM001, PM003.';

-- A message as it was sent, with what history() adds to it.
create or replace function _memoir.sent(p_turn _memoir.conversation_history)
returns jsonb language sql immutable as $$
  select jsonb_strip_nulls(jsonb_build_object('model', p_turn.model, 'usage', nullif(jsonb_strip_nulls(
      jsonb_build_object('finish_reason', p_turn.finish_reason, 'latency_ms', p_turn.latency_ms, 'prompt_tokens',
        p_turn.prompt_tokens, 'completion_tokens', p_turn.completion_tokens, 'cost_microcents',
        p_turn.cost_microcents)), '{}')))
    || case when p_turn.metadata ? 'call' then jsonb_build_object('metadata', p_turn.metadata -> 'call') else '{}' end
    -- A refusal without content was given some to be searched by.
    || (_memoir.rebuilt(p_turn.role, p_turn.content, p_turn.content_parts, p_turn.name, p_turn.tool_calls,
      p_turn.tool_call_id)
        - case when p_turn.metadata #> '{sent,refusal}' is not null and p_turn.content_parts @> '[{"type": "refusal"}]'
               and p_turn.content_parts -> 0 -> 'refusal' = p_turn.metadata #> '{sent,refusal}' then 'content'
                 else '' end)
    || coalesce(p_turn.metadata -> 'sent', '{}')
    || jsonb_build_object('turn_index', p_turn.turn_index, 'message_id', p_turn.message_id, 'created_at',
      p_turn.created_at, 'tokens', p_turn.token_count, 'tokenizer', p_turn.tokenizer)
$$;
