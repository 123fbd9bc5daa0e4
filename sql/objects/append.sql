-- Turns and the objects that come with them. persist_turn and append_messages are one short transaction without a
-- model call: stages (_memoir.append) over one row of state (_memoir.append_state).

create or replace function memoir.persist_turn(p_user text, p_session text, p_messages jsonb,
  p_usage jsonb default null, p_key text default null, p_actor text default null, p_metadata jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current as $$
begin
  return _memoir.append(_memoir.authorise(p_user, 'write'), p_user, p_session, p_messages, p_usage, p_key, p_actor,
    p_metadata, false);
end $$;
comment on function memoir.persist_turn(text, text, jsonb, jsonb, text, text, jsonb) is
  'Appends the messages of an exchange, an array of OpenAI chat messages, each with an optional created_at; every tool
call must be answered at the end. A message may state "sensitivity" (normal, private, secret) and "embeddable"; what
looks like a key, a card, an account or a personal number is marked secret (setting detect_secrets), which a warning
says. Opens the session when it is new. It may have "tags" (recall finds the turn by them) and "snapshot_ref" (a
reference that stays with the turn, whose content is the summary). One of the assistant may have "logprobs", as chat
completions return them (docs/explain/window.md). p_usage: {"model", "prompt_tokens", "completion_tokens", of the
prompt''s "cache_read_tokens", "cache_write_tokens" (kept for five minutes) and "cache_write_1h_tokens", which have
rates of their own, "latency_ms", "finish_reason"}. p_key: idempotency key; a retry returns the first result. Returns
{"session_id", "from_turn", "to_turn", "turn_count", "tokens", "tokenizer", "mark", "message_ids", "warnings"}. All or
nothing. Writes conversation_history, counters, search items, work_items. Raises PM001, PM005, PM006, PM010 to PM014.';

create or replace function memoir.append_messages(p_user text, p_session text, p_messages jsonb,
  p_usage jsonb default null, p_key text default null, p_actor text default null, p_metadata jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current as $$
begin
  return _memoir.append(_memoir.authorise(p_user, 'write'), p_user, p_session, p_messages, p_usage, p_key, p_actor,
    p_metadata, true);
end $$;
comment on function memoir.append_messages(text, text, jsonb, jsonb, text, text, jsonb) is
  'Stores a part of an exchange like persist_turn (agent loops): tool calls may stay open until their results come.';

create or replace function _memoir.append_objects(inout p_state _memoir.append_state)
language plpgsql as $$
declare
  v_message _memoir.message; v_place integer := 0; v_calls jsonb; v_call jsonb; v_use _memoir.tool_use;
  v_least integer := (p_state.config ->> 'object_tokens_min')::integer; v_found _memoir.found_object; v_failed boolean;
begin
  -- Some twenty turns more, and there may be a new phase; by then the turns have their vectors.
  if p_state.first_turn / 20 < (p_state.counters).turn_count / 20 then
    perform _memoir.enqueue_unlocked('phases', p_state.user_id, p_state.session_id::text,
      p_state.recorded_at + interval '5 minutes');
  end if;
  if v_least > all (p_state.costs) and not _memoir.has_results(p_state.messages) then return; end if;
  v_calls := _memoir.answered_calls(p_state);
  foreach v_message in array p_state.messages loop
    v_place := v_place + 1;
    v_found := null;
    v_found.turn_index := p_state.first_turn + v_place - 1;
    v_found.message_id := p_state.message_ids[v_place];
    v_found.sensitivity := v_message.sensitivity;
    if v_message.role = 'assistant' and p_state.costs[v_place] >= v_least
      and octet_length(v_message.text) >= v_least then
      perform _memoir.add_text_object(p_state.session, v_found.turn_index, p_state.tokenizer,
        (p_state.caller).login, p_state.recorded_at);
    end if;
    if v_message.role = 'assistant' and v_message.tool_calls is not null and p_state.costs[v_place] >= v_least then
      for v_call in select value from jsonb_each(v_calls) where value -> 'turn' = to_jsonb(v_found.turn_index) loop
        perform _memoir.argument_objects(p_state.session, v_found, v_call, v_least, p_state.tokenizer, p_state.config,
          (p_state.caller).login, p_state.recorded_at);
      end loop;
    elsif v_message.role = 'tool' then
      v_call := v_calls -> v_message.tool_call_id;
      continue when v_call is null;
      v_found.body := v_message.text;
      v_found.tokens := p_state.costs[v_place];
      if _memoir.is_memory_tool(v_call ->> 'name') then
        perform _memoir.place_restored(p_state.user_id, p_state.session_id, v_found, v_call);
        continue;
      end if;
      v_use := _memoir.tool_use(p_state.config, v_call ->> 'name', v_call ->> 'arguments');
      v_found.call_message := (v_call ->> 'message_id')::uuid;
      v_found.call_turn := (v_call ->> 'turn')::integer;
      v_found.sensitivity := greatest(v_found.sensitivity, (v_call ->> 'sensitivity')::_memoir.sensitivity);
      -- The two ends of a result tell whether its call failed.
      v_failed := v_use.does not in ('read', 'search', 'list', 'fetch') and left(ltrim(v_message.text), 1000) || E'\n'
        || _memoir.tail(v_message.text, 3000) ~* _memoir.pattern_error_results();
      v_use.type := case when v_failed then 'error_context' else v_use.type end;
      v_found.use := v_use;
      if v_use.keys <> '{}' and not v_failed then
        -- The call changed a file: readings before it say how the file was, but for what the call itself has written.
        update _memoir.session_objects o set stale_turn = v_found.turn_index from _memoir.memory_store m
        where o.user_id = p_state.user_id and o.session_id = p_state.session_id and m.user_id = o.user_id
          and m.session_id = o.session_id and m.memory_id = o.memory_id and m.is_object and m.state = 'active'
          and m.type = 'file_context' and o.stale_turn is null
          and exists (select from unnest(v_use.keys) k where _memoir.same_path(k, m.source_key))
          and not exists (select from _memoir.object_places p where p.user_id = o.user_id and p.memory_id = m.memory_id
            and p.session_id = o.session_id and p.turn_index >= v_found.call_turn);
      end if;
      if v_found.tokens >= v_least then
        perform _memoir.add_object(p_state.session, v_found, p_state.tokenizer, p_state.config,
          (p_state.caller).login, p_state.recorded_at);
      else
        perform _memoir.merge_small_results(p_state.session, v_found, v_least, p_state.tokenizer, p_state.config,
          (p_state.caller).login, p_state.recorded_at);
      end if;
    end if;
  end loop;
end $$;

create or replace function _memoir.append(p_caller _memoir.caller, p_user text, p_session text, p_messages jsonb,
  p_usage jsonb, p_key text, p_actor text, p_metadata jsonb, p_may_stay_open boolean)
returns jsonb language plpgsql as $$
declare
  v_state _memoir.append_state;
begin
  if p_caller.member is not null and jsonb_typeof(p_messages) = 'array' then
    p_messages := _memoir.with_speakers(p_caller, p_messages);
  end if;
  v_state := _memoir.append_requested(p_caller, p_user, p_session, p_messages, p_usage, p_key, p_actor, p_metadata,
    p_may_stay_open);
  v_state := _memoir.append_opened(v_state, p_messages);
  -- Everything is checked and counted before the locks are taken, so that they are held briefly.
  v_state := _memoir.append_checked(v_state, p_messages);
  v_state := _memoir.append_locked(v_state);
  if v_state.result is not null then return v_state.result; end if;
  v_state := _memoir.append_placed(v_state);
  v_state := _memoir.append_written(v_state);
  -- Extraction is told once, not with every turn: while the cursor lags, the session waits in the queue already.
  if (v_state.counters).extracted_through >= v_state.first_turn then
    perform _memoir.enqueue_unlocked('turns', v_state.user_id, v_state.session_id::text, v_state.recorded_at);
  end if;
  perform _memoir.index_turns(v_state.user_id, v_state.session, v_state.messages, v_state.message_ids, v_state.costs,
    v_state.first_turn, v_state.recorded_at, v_state.config, v_state.exchange_starts[1]);
  perform _memoir.exclude_restated(v_state.user_id, v_state.session, v_state.message_ids, v_state.recorded_at);
  v_state := _memoir.append_objects(v_state);
  v_state := _memoir.append_directed(v_state);
  if jsonb_path_exists(p_messages, '$[*].logprobs') then
    v_state := _memoir.append_doubted(v_state, p_messages);
  end if;
  return _memoir.append_accounted(v_state);
end $$;
