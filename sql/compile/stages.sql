-- The stages of a compile, in their order: each fills in its part of the state (compile_state, migrations/0005) and
-- reads what those before it read. The budget is kept by check_room, which refuses a newest message that does not fit,
-- by with_shown_turns, which leaves turns out, and by assembled, which counts the whole list once more.

-- The session, its counters and settings, as they are or were: all that is read of who asks and where.
create or replace function _memoir.with_session(inout v _memoir.compile_state, p_session text, p_after_turn text)
language plpgsql stable as $$
declare
  v_session _memoir.sessions; v_counters _memoir.session_counters; v_user_counters _memoir.user_counters;
  v_part record; v_user uuid := (v.caller).user_id; v_as_of timestamptz := v.as_of;
  v_last _memoir.conversation_history;
begin
  perform _memoir.check_name('session', p_session, 500);
  v.user_id := (v.caller).user_id;
  v.clearance := least((v.caller).clearance, 'private'::_memoir.sensitivity);
  v.session_name := p_session;
  v.session_id := _memoir.session_id(v.user_id, p_session);
  select * into v_session from _memoir.sessions where user_id = v.user_id and session_id = v.session_id;
  if found then
    perform _memoir.check_session_of(v.caller, p_session, v_session.project);
    select * into v_counters from _memoir.session_counters where user_id = v.user_id and session_id = v.session_id;
  end if;
  if p_after_turn is not null then
    if p_after_turn !~ '^[0-9a-f]{8}:[0-9]{1,9}$' or left(p_after_turn, 8) <> left(v.session_id::text, 8) then
      perform _memoir.fail('PM014', format('after_turn %s is no mark of session %s',
        _memoir.shown(p_after_turn), _memoir.shown(p_session)));
    end if;
    if coalesce(v_counters.turn_count, 0) < split_part(p_after_turn, ':', 2)::integer then
      perform _memoir.fail('PM021', format('this server has %s turns of session %s, not yet %s',
          coalesce(v_counters.turn_count, 0), _memoir.shown(p_session), split_part(p_after_turn, ':', 2)),
        'ask again shortly, or ask the primary');
    end if;
  end if;
  if v.as_of < v_counters.last_recorded_at then
    -- The counters as they were: what came later does not exist yet.
    for v_part in select * from _memoir.lineage(v_session) order by from_turn desc loop
      select * into v_last from _memoir.conversation_history h
      where h.user_id = v_user and h.session_id = v_part.session_id and h.recorded_at between v_part.since and v_as_of
        and h.turn_index between v_part.from_turn and v_part.to_turn order by h.turn_index desc limit 1;
      exit when found;
    end loop;
    v_counters.turn_count := coalesce(v_last.turn_index + 1, 0);
    v_counters.tokens := coalesce(v_last.tokens_before + v_last.token_count, 0);
    v_counters.exchange_start := coalesce(v_last.exchange_start, v_counters.turn_count);
    v_counters.last_role := v_last.role;
    v_counters.open_calls := '{}';
    v_counters.last_recorded_at := v_as_of;
  end if;
  if v.as_of is not null and v_session.summary_text is not null then
    select s.summary, s.through into v_session.summary_text, v_session.summary_through
    from _memoir.summary_of(v_session, v.as_of) s;
  end if;
  select * into v_user_counters from _memoir.user_counters where user_id = v.user_id;
  v.session := v_session;
  v.counters := v_counters;
  v.user_counters := v_user_counters;
  v.config := _memoir.config(v.user_id, v_session.settings);
  v.spaces := _memoir.spaces_of(v.caller, v.config ->> 'spaces');
end $$;

create or replace function _memoir.with_budget(inout v _memoir.compile_state, p_budget integer, p_tools jsonb)
language plpgsql stable as $$
declare
  v_session _memoir.sessions := v.session;
  v_model _memoir.models := _memoir.model(coalesce(v_session.model, v.config ->> 'default_model'));
begin
  v.model := v_model;
  v.tokenizer := _memoir.tokenizer_used(coalesce(v_session.tokenizer, v_model.tokenizer));
  v.budget := coalesce(p_budget, coalesce(v_session.context_window, v_model.context_window)
    - coalesce(v_session.max_response_tokens, v_model.max_output));
  v.warnings := array_remove(v.warnings
    || case when v_model.tokenizer = 'estimate' then _memoir.model_warning(v_model.model) end, null);
  v.tools_tokens := case when jsonb_typeof(p_tools) = 'array' then _memoir.tokens_of(p_tools::text, v.tokenizer)
    else 0 end;
end $$;

create or replace function _memoir.with_newest_message(inout v _memoir.compile_state, p_query text, p_parts jsonb)
language plpgsql stable as $$
declare
  v_newest _memoir.message; v_counters _memoir.session_counters := v.counters; v_message jsonb;
  v_limit integer := v.config ->> 'text_bytes_max'; v_turns integer := coalesce(v_counters.turn_count, 0);
begin
  v.is_open := p_query is null and p_parts is null;
  v.newest_tokens := 0;
  if v.is_open then
    if v_turns = 0 or v_counters.last_role not in ('user', 'tool') or v_counters.open_calls <> '{}' then
      perform _memoir.fail('PM022', format('session %s has nothing to continue: %s', _memoir.shown(v.session_name),
        case when v_turns = 0 then 'it has no turns'
             when v_counters.open_calls <> '{}' then format('tool calls %s have no result yet',
               array_to_string(v_counters.open_calls, ', '))
             else 'its newest message is the assistant''s' end), 'give p_query');
    end if;
    return;
  end if;
  perform _memoir.refuse_value(p_parts is not null and jsonb_typeof(p_parts) <> 'array', 'query_parts', p_parts,
    'a list of content parts');
  v_message := jsonb_build_object('role', 'user', 'content',
    case when p_parts is null then to_jsonb(p_query)
         when p_query is null then p_parts
         else jsonb_build_array(jsonb_build_object('type', 'text', 'text', p_query)) || p_parts end);
  perform _memoir.check_size('query.content', case when p_parts is null then p_query end, v_limit),
    _memoir.check_size('query', v_message::text, v_limit);
  v_newest := _memoir.parse_content('query.content', v_message, 'user', (v.model).images);
  v.newest := v_newest;
  v.query := v_newest.text;
  v.newest_tokens := (v.model).message_overhead + coalesce(v_newest.media_tokens, 0)
    + _memoir.sum_of(_memoir.count_tokens(_memoir.token_texts(v_newest.text, v_newest.parts, null, null, null),
      v.tokenizer));
end $$;

-- The system message: prompt, then fenced profile and summary, frozen parts first. The room is what it and tools leave.
create or replace function _memoir.with_system_message(inout v _memoir.compile_state) language plpgsql stable as $$
declare
  v_session _memoir.sessions := v.session; v_overhead integer := (v.model).message_overhead;
  v_version integer := v.config ->> 'profile_version';
  v_prompt text; v_prompt_tokens integer; v_profile text; v_summary text;
begin
  if v_session.system_prompt_hash is not null then
    select content, (tokens ->> v.tokenizer)::integer into v_prompt, v_prompt_tokens
    from _memoir.system_prompts where prompt_hash = v_session.system_prompt_hash;
  end if;
  if v.as_of is null and (v.caller).projects is null and v_version > 0 then
    select _memoir.fence('profile', _memoir.neutralise(p.content)), p.memory_ids, p.left_out
    into v_profile, v.profile, v.left_out
    from _memoir.profile_shown(v.user_id, v.user_counters, v_version) p;
  end if;
  if v_session.summary_text is not null then
    v_summary := _memoir.fence('summary', _memoir.neutralise(v_session.summary_text));
  end if;
  loop
    v.system := nullif(concat_ws(E'\n\n', v_prompt, v_profile, v_summary), '');
    v.system_tokens := case when v.system is null then 0
      when v_profile is null and v_summary is null
        then v_overhead + coalesce(v_prompt_tokens, _memoir.tokens_of(v.system, v.tokenizer))
      else v_overhead + _memoir.tokens_of(v.system, v.tokenizer) end;
    exit when v.system_tokens <= v.budget / 2 or (v_profile is null and v_summary is null);
    -- Half a budget of background is too much: the summary goes before the profile.
    if v_summary is not null then
      v_summary := null;
      v.warnings := v.warnings || 'the summary does not fit'::text;
    else
      v_profile := null;
      v.left_out := v.profile || v.left_out;
      v.profile := null;
      v.warnings := v.warnings || 'the profile does not fit'::text;
    end if;
  end loop;
  v.room := v.budget - v.system_tokens - v.tools_tokens - 3;
  perform _memoir.check_room(v.newest_tokens, v.budget, v.system_tokens, v.tools_tokens);
end $$;

create or replace function _memoir.check_room(p_message integer, p_budget integer, p_system integer, p_tools integer)
returns void language plpgsql immutable as $$
declare
  v_needed integer := p_message + p_system + p_tools + 3;
begin
  if p_message > 0 and v_needed > p_budget then
    perform _memoir.fail('PM020', format('the newest message needs a budget of %s tokens, the budget is %s', v_needed,
      p_budget), 'raise p_budget, shorten the message, or use a model with a larger window',
      jsonb_build_object('needed', v_needed, 'budget', p_budget, 'system', p_system, 'tools', p_tools, 'message',
        p_message)::text);
  end if;
end $$;

-- Recent turns. Their share follows the session's task, so that one query can't move the window.
create or replace function _memoir.with_shown_turns(inout v _memoir.compile_state) language plpgsql stable as $$
declare
  v_session _memoir.sessions := v.session; v_counters _memoir.session_counters := v.counters;
  v_limit integer := v.room - v.newest_tokens;
  v_history integer := greatest(0, (_memoir.history_share(v.config, v_session.task_type) * v.room)::integer);
  v_step integer := greatest(1, v_history / 4); v_window _memoir.shown_window; v_shown _memoir.shown_turn[] := '{}';
  v_unanswered _memoir.shown_turn[] := '{}'; v_repeated boolean := false; n integer; v_turn _memoir.shown_turn;
begin
  if v_history > v_limit and not v.is_open then
    -- A long query takes whole steps from the window, not a token more or less each time.
    v_history := greatest(0, v_history - ((v_history - v_limit + v_history / 4) / v_step) * v_step);
  end if;
  if v_counters.turn_count > 0 then
    -- What was known then is shown as it was.
    if v.as_of is null then
      v.history_budget := greatest(1, v.room - _memoir.recall_share(v.config, v_session.task_type, v.room));
      v.frame := _memoir.session_frame(v_session, v_counters, v.history_budget, v.at);
    end if;
    if (v.frame).user_id is null then
      v_window := _memoir.window(v, v_history, v_limit);
    else
      v_window := _memoir.managed_window(v, v_limit);
      v.moment := v_window.moment;
      v.note := v_window.note;
    end if;
    v_shown := v_window.turns;
    v.warnings := v.warnings || v_window.warnings;
    if (v.user_counters).has_archive then
      v.warnings := array_remove(v.warnings
        || _memoir.archived_note(_memoir.archived_ranges(v_session), 0, 2147483647), null);
    end if;
  end if;
  if v.is_open then
    v.exchange_at := v_counters.exchange_start;
    v.query := _memoir.asked_in(v_shown, v.exchange_at);
  else
    -- Trailing user messages that nobody answered belong to the newest message.
    n := cardinality(v_shown);
    while n > 0 and (v_shown[n]).role in ('user', 'system') loop
      n := n - 1;
    end loop;
    v_unanswered := v_shown[n + 1 :];
    v_shown := v_shown[1 : n];
    n := cardinality(v_unanswered);
    v_turn := v_unanswered[n];
    if v_turn.withheld then  -- it is compared as it was said
      select s.content, s.content_parts into v_turn.content, v_turn.parts
      from _memoir.turn_seen(v_session, v_turn.turn_index) s;
    end if;
    if n > 0 and (v_turn.content, v_turn.parts) is not distinct from ((v.newest).text, (v.newest).parts) then
      v_unanswered := v_unanswered[1 : n - 1];
      v_repeated := true;
    end if;
    v.exchange_at := coalesce((v_unanswered[1]).turn_index, v_counters.turn_count - v_repeated::integer, 0);
  end if;
  -- A list must begin with the user; what the assistant said before that stays reachable by recall.
  n := 1;
  while (v_shown[n]).role in ('assistant', 'tool') loop
    n := n + 1;
  end loop;
  v.shown := v_shown[n :];
  v.reduced := '{}';
  if (v.frame).user_id is not null then v.reduced := array(select s.turn_index from unnest(v.shown) s
      where s.role = 'tool' and _memoir.is_shorter(s.fidelity, s.why)); end if;
  v.unanswered := v_unanswered;
end $$;

-- Turns as messages, neighbours merged where the API wants that, and the newest message after them.
create or replace function _memoir.with_messages(inout v _memoir.compile_state)
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_overhead integer := (v.model).message_overhead; v_images text := (v.model).images; v_turn _memoir.shown_turn;
  v_shown _memoir.shown_turn[] := v.shown; v_rendered jsonb[] := _memoir.openai_messages(v_shown);
  v_messages jsonb[] := '{}'; v_costs integer[] := '{}'; n integer := cardinality(v_shown);
  v_roles text := (select string_agg(left(t.role::text, 1), '') from unnest(v_shown) t); v_newest jsonb;
  v_message jsonb; v_cost integer;
begin
  -- Mostly they alternate: a loop over them costs more than all the rest.
  if not v.is_open and (v.frame).user_id is null and v_roles not like all ('{%s%,%uu%,%aa%}') then
    v_messages := v_rendered;
    v_costs := array(select t.cost from unnest(v_shown) t);
    n := 0;
  end if;
  for i in 1 .. n loop
    v_turn := v_shown[i];
    n := cardinality(v_messages);
    -- Templates of many servers insist on alternating roles.
    if n > 0 and v_messages[n] ->> 'role' = v_rendered[i] ->> 'role' and v_messages[n] ->> 'role' in ('user',
      'assistant') and not v_messages[n] ? 'tool_calls' then
      v_messages[n] := _memoir.merge_messages(v_messages[n], v_rendered[i]);
      v_costs[n] := _memoir.message_tokens(v_messages[n], v.tokenizer, v_overhead, v_images);
    else
      v_messages := v_messages || v_rendered[i];
      v_costs := v_costs || case when v_turn.role = 'system'
        then _memoir.message_tokens(v_rendered[i], v.tokenizer, v_overhead, v_images) else v_turn.cost end;
      if v.is_open and v_turn.turn_index >= v.exchange_at and v.recall_at is null then v.recall_at := n + 1; end if;
    end if;
    if v_turn.turn_index <= (v.frame).frozen_through then v.frozen := cardinality(v_messages); end if;
  end loop;
  v.messages := v_messages;
  v.costs := v_costs;
  if not v.is_open then
    -- The newest message, after those that nobody answered: one message. Those are dropped first, oldest first.
    v_newest := jsonb_build_object('role', 'user', 'content', coalesce((v.newest).parts, to_jsonb((v.newest).text)));
    v_message := v_newest;
    v_cost := v.newest_tokens;
    v_rendered := case when v.unanswered <> '{}' then _memoir.openai_messages(v.unanswered) end;
    n := cardinality(v.unanswered);
    while n > 0 loop
      v_message := v_rendered[1];
      for i in 2 .. n loop v_message := _memoir.merge_messages(v_message, v_rendered[i]); end loop;
      v_message := _memoir.merge_messages(v_message, v_newest);
      v_cost := _memoir.message_tokens(v_message, v.tokenizer, v_overhead, v_images);
      exit when _memoir.sum_of(v.costs) + v_cost <= v.room;
      v_rendered := v_rendered[2 :];
      v.warnings := v.warnings || 'an unanswered message is left out'::text;
      n := n - 1;
      v_message := v_newest;
      v_cost := v.newest_tokens;
    end loop;
    v.unanswered := v.unanswered[cardinality(v.unanswered) - n + 1 :];
    v.messages := v.messages || v_message;
    v.costs := v.costs || v_cost;
  end if;
  if v.note is not null then
    v.messages[1] := jsonb_set(v.messages[1], '{content}',
      _memoir.join_content(to_jsonb(v.note), v.messages[1] -> 'content'));
    v.costs[1] := _memoir.message_tokens(v.messages[1], v.tokenizer, v_overhead, v_images);
  end if;
  v.recall_at := coalesce(v.recall_at, cardinality(v.messages));
  v.total := _memoir.sum_of(v.costs);
  -- Merging can cost a token or two more than its parts; the oldest messages make room.
  while v.total > v.room and v.recall_at > 1 loop
    loop
      v.total := v.total - v.costs[1];
      v.messages := v.messages[2 :];
      v.costs := v.costs[2 :];
      v.recall_at := v.recall_at - 1;
      v.frozen := nullif(greatest(v.frozen - 1, 0), 0);
      exit when v.recall_at = 1 or v.messages[1] ->> 'role' = 'user';
    end loop;
    v.warnings := v.warnings || 'the window gave way to the newest message'::text;
  end loop;
  perform _memoir.check_room(v.total, v.budget, v.system_tokens, v.tools_tokens);
end $$;

-- Recall: kept since the exchange began, or searched. Its share follows the query's task; it may use what is left.
create or replace function _memoir.with_recall(inout v _memoir.compile_state, p_task text, p_memory_budget integer,
  p_query_embedding real[]) language plpgsql stable as $$
declare
  v_counters _memoir.session_counters := v.counters; v_projects text[] := (v.caller).projects;
  v_clearance _memoir.sensitivity := (v.caller).clearance; v_kept _memoir.kept_recalls;
begin
  v.arms := '{}';
  v.recall_tokens := 0;
  v.task := coalesce(p_task::_memoir.task_type, (v.session).task_type, case
    when coalesce(v_counters.turn_count, 0) = 0 then 'new_session'
    when _memoir.is_question(v.query) then 'knowledge'
    when v.tools_tokens > 0 and v.is_open then 'tool_heavy' else 'continuation' end::_memoir.task_type);
  v.recall_budget := least(coalesce(p_memory_budget, _memoir.recall_cap(v.config, v.task, v.room)),
    v.room - v.total - 4);
  -- What the exchange asks, so that a continued compile knows its recall again.
  v.query_hash := _memoir.query_hash(v.unanswered, v.query, v.spaces);
  if v.is_open and not pg_is_in_recovery() then
    select * into v_kept from _memoir.kept_recalls
    where user_id = v.user_id and session_id = v.session_id and at_turn = v.exchange_at
      and clearance <= v_clearance and (v_projects is null or projects <@ v_projects);
  end if;
  if v_kept.recall is not null and v_kept.query_hash = v.query_hash then
    v.recall := v_kept.recall;
    if v.recall <> '' then v.recall_tokens := _memoir.tokens_of(v.recall || E'\n\n', v.tokenizer); end if;
    if v.recall_tokens > v.room - v.total - 4 then
      v.recall := null;
      v.recall_tokens := 0;
      v.warnings := v.warnings || 'the recall of this exchange no longer fits'::text;
    end if;
    v.arms := jsonb_build_object('recall', 'kept', 'weak', starts_with(v.recall, _memoir.fence_note('recall')
        || 'Weak matches: the answer may not be among them.'));
  elsif v.recall_budget > 16 and not _memoir.is_blank(v.query) then
    v := _memoir.with_found_recall(v, p_query_embedding);
  end if;
  if v.is_open and v_kept.recall is null and v_counters.last_role = 'tool' then
    v.warnings := v.warnings || 'the recall of this exchange was not kept and is made anew'::text;
  end if;
end $$;

-- How many tokens a recall may have at most, a number or a share of the list: less where its task leaves it a smaller
-- share than knowledge has.
create or replace function _memoir.recall_cap(p_config jsonb, p_task _memoir.task_type, p_room integer)
returns integer language sql stable as $$
  select (coalesce(nullif((p_config ->> 'recall_share_max')::float8, 0) * p_room,
      (p_config ->> 'recall_tokens_max')::float8)
    * least(1, (1 - _memoir.history_share(p_config, p_task))
      / greatest(0.01, 1 - _memoir.history_share(p_config, 'knowledge'))))::integer
$$;

create or replace function _memoir.recall_share(p_config jsonb, p_task _memoir.task_type, p_room integer)
returns integer language sql stable as $$
  select least(_memoir.recall_cap(p_config, coalesce(p_task, 'continuation'), p_room),
    ((1 - _memoir.history_share(p_config, p_task)) * p_room)::integer)
$$;

-- A recall made anew: what the session pins and its working notes, the question, and what the kernel makes of them.
create or replace function _memoir.with_found_recall(inout v _memoir.compile_state, p_query_embedding real[])
language plpgsql stable as $$
declare
  v_scope _memoir.search_scope := _memoir.recall_scope(v); v_pins _memoir.pins := _memoir.pins(v, v_scope);
  v_read _memoir.question := _memoir.read_question(v.query, v.config, p_query_embedding, false);
  v_question _memoir.question := v_read; v_beside _memoir.search_scope := v_scope;
  v_standing uuid[] := coalesce(v.left_out, '{}'); v_found record; v_most integer := v.config ->> 'candidates';
  v_items float8 := greatest(1, (v.user_counters).items);
begin
  -- Standing statements are in every prompt, wishes for a project in those of its sessions.
  if (v.session).project <> 'global' and v.as_of is null then
    v_standing := v_standing || array(select m.memory_id
      from _memoir.profile_memories(v.user_id, (v.session).project) m
      where m.heading <> 'Facts' or m.is_health limit 20);
  end if;
  v_pins.pinned := v_pins.pinned || v_standing;
  if v.left_out <> '{}' then
    v.warnings := v.warnings || format('%s standing statements have no room in the profile (profile_tokens) and lead '
      'the recall', cardinality(v.left_out));
  end if;
  -- For small talk, show only these. If there are none, skip the search.
  if v_pins.pinned = '{}' and coalesce(v_pins.working, '{}') = '{}'
    and _memoir.is_small_talk(v.config, v_question.facts) then
    v.arms := jsonb_build_object('recall', 'small talk');
    return;
  end if;
  v_question := _memoir.question(v.user_id, v.user_counters, v.config, v_question, v_scope, p_query_embedding);
  v_question.goes_on := coalesce(cardinality(v.shown), 0) = 0 and v.said is null
    and coalesce((v_question.facts ->> 'back')::boolean, false);
  if v_question.problem is not null then
    v.warnings := v.warnings || ('searched by words only: ' || v_question.problem);
  end if;
  v.experience := case when 'experience' = any ((v.user_counters).features) and v.as_of is null then
    _memoir.experience_block(v.user_id, coalesce((v.session).project, 'global'), v_scope, v_question, v.config,
      least((v.config ->> 'experience_tokens')::integer, v.recall_budget / 2), v.said) end;
  -- All candidates from 2,000 tokens on, sixty at least. More of long turns, because their sentences are shown too: up
  -- to twice as many where texts have more than eighteen words in the mean. The share of memories lowers that.
  v_most := least(v_most, 60 + greatest(0, v_most - 60) * least(2000, v.recall_budget) / 2000);
  v_beside.hidden_sessions := '{}'; v_beside.hidden_from := 0; v_beside.reduced := '{}';
  v_beside.local_sessions := array[_memoir.no_session()];
  v_found := _memoir.recalled(_memoir.asked(v.user_id, v.user_counters, v.config, v_question, v_scope,
    nullif((v.session).project, 'global'))
    || jsonb_build_object('pins', to_jsonb(v_pins), 'working', v_pins.working, 'limit', coalesce(v_most * (1 + (least(2,
        greatest(1, (v.user_counters).total_words / v_items / 18)) - 1) * greatest(0,
        1 - (v.user_counters).memories / v_items)), v_most)::integer,
      'is_waiting', v.said is null, 'budget',
      v.recall_budget - case when v.experience is null then 0
        else _memoir.tokens_of(v.experience ->> 'text' || E'\n\n', v.tokenizer) end,
      'profile', coalesce(v.profile, '{}'),
      'standing', v_standing, 'said', v.said, 'hidden', _memoir.message_ids(v.shown || v.unanswered, v.reduced),
      'tokenizer', v.tokenizer, 'is_explained', coalesce(v.explained, false), 'spaces', _memoir.asked_of_each(
        v.spaces, v.config, case when v_question.names = '{}' then v_question else v_read end, v_beside,
        p_query_embedding, (v.session).project, jsonb_build_object('limit', v_most, 'is_waiting', true, 'pins',
          '{"pinned": [], "ceilings": {}}'::jsonb))),
    v.config, v_question.vector);
  v.recalled := v_found.recalled;
  v.considered := v_found.items;
  v.trace := v_found.trace;
  v.rows := v_found.rows;
  v.recall := v.recalled ->> 'text';
  v.recall_tokens := v.recalled ->> 'tokens';
  v.recall := nullif(concat_ws(E'\n\n', nullif(v.recall, ''), v.experience ->> 'text'), '');
  v.recalled := jsonb_set(v.recalled, '{shown}', (v.recalled -> 'shown') || coalesce(v.experience -> 'ids', '[]'));
  -- What a client made, and what is added here, is counted here.
  if v.recall is not null and coalesce(v.experience ->> 'text', current_setting('memoir.recalled', true), '') <> '' then
    v.recall_tokens := _memoir.tokens_of(v.recall || E'\n\n', v.tokenizer);
  end if;
  if (v.recalled ->> 'waiting')::integer > 0 then
    v.warnings := v.warnings || format('%s new turns have no vectors yet and are found by words and by being recent',
      v.recalled ->> 'waiting');
  end if;
  v.arms := jsonb_build_object('recall', 'searched', 'vector', v_question.vector is not null, 'words', true,
    'candidates', v.recalled -> 'candidates', 'working', cardinality(v_pins.working), 'strength',
    v.recalled -> 'strength', 'weak', (v.recalled ->> 'is_weak')::boolean and coalesce(v.recalled ->> 'text', '') <> '')
    || case when v.experience is null then '{}' else jsonb_build_object('experience', v.experience -> 'ids') end
    || case when v.recalled ->> 'breadth' is null then '{}'
      else jsonb_build_object('breadth', v.recalled -> 'breadth') end;
end $$;

create or replace function _memoir.recall_scope(v _memoir.compile_state)
returns _memoir.search_scope language plpgsql stable as $$
declare
  v_lineage uuid[] := '{}'; n integer := cardinality(v.shown);
begin
  if (v.session).parent_turn is not null then
    v_lineage := array(select l.session_id from _memoir.lineage(v.session) l);
  elsif (v.session).session_id is not null then
    v_lineage := array[v.session_id];
  end if;
  -- The first of the last turns without a gap, which mostly are all.
  if (v.shown[n]).turn_index - (v.shown[1]).turn_index = n - 1 then n := 1; end if;
  while n > 1 and (v.shown[n - 1]).turn_index = (v.shown[n]).turn_index - 1 loop n := n - 1; end loop;
  return (null, v_lineage, coalesce((v.shown[n]).turn_index, v.exchange_at, 0),
    v_lineage || coalesce((v.session).parent_session_id, v.session_id), (v.caller).projects, v.clearance, v.as_of,
    v.valid_at, null, null, coalesce(v.reduced, '{}'))::_memoir.search_scope;
end $$;

-- Returns whether the list shows less of a result than there is, so that what else it says may be recalled. Of what is
-- no longer so, or of no use, nothing is.
create or replace function _memoir.is_shorter(p_fidelity smallint, p_why text)
returns boolean language sql immutable as $$
  select p_fidelity between 1 and 3 and coalesce(p_why, '') <> all ('{read again,superseded,edited since,released}')
$$;

-- The list: recall before the message that asks for it, the system message before all, and what is said of it.
create or replace function _memoir.assembled(inout v _memoir.compile_state)
language plpgsql stable as $$
declare
  v_at integer := v.recall_at; v_message jsonb; v_cost integer;
begin
  if coalesce(v.recall, '') <> '' then
    -- The block ends with an empty line, where tokens end too, so counts add up; text that begins with white space is
    -- counted anew.
    v_message := jsonb_set(v.messages[v_at], '{content}',
      _memoir.join_content(to_jsonb(v.recall), v.messages[v_at] -> 'content'));
    v_cost := v.costs[v_at] + v.recall_tokens;
    if v.query ~ '^\s' then
      v_cost := greatest(v_cost,
        _memoir.message_tokens(v_message, v.tokenizer, (v.model).message_overhead, (v.model).images));
    end if;
    if v.total - v.costs[v_at] + v_cost <= v.room then
      v.messages[v_at] := v_message;
      v.total := v.total - v.costs[v_at] + v_cost;
    else
      v.recall := null;
      v.recall_tokens := 0;
      v.recalled := v.recalled || '{"shown": []}';
      v.trace := v.trace::jsonb || (select jsonb_build_object('positions', n.none, 'forms', n.none)
        from (select coalesce(jsonb_agg(null::text), '[]') as none from unnest(v.considered)) n);
      v.rows := (select jsonb_agg(r || '{"position": null, "fidelity": null, "reason": "no room"}')
        from jsonb_array_elements(v.rows) r);
      v.warnings := v.warnings || 'the recall does not fit'::text;
    end if;
  end if;
  v.prefix := v_at - 1;
  if v.system is not null then
    v.messages := jsonb_build_object('role', 'system', 'content', v.system) || v.messages;
    v.prefix := v_at;
    v.frozen := v.frozen + 1;
  end if;
  v.tokens := v.total + v.system_tokens + v.tools_tokens + 3;
  v.statistics_version := coalesce((v.user_counters).next_item, 0);
  v.arms := v.arms || jsonb_build_object('recent', cardinality(v.shown));
  v.shown := v.shown || v.unanswered;
end $$;

create or replace function _memoir.prefix_hash(p_messages jsonb[], p_prefix integer)
returns bytea language sql stable as $$
  select sha256(convert_to(case when p_prefix > 0 then to_jsonb(p_messages[1 : p_prefix])::text else '' end, 'UTF8'))
$$;

-- A list as its format has it. What a content has left for OpenAI when thoughts go may be nothing.
create or replace function _memoir.formatted(p_messages jsonb[], p_prefix integer, p_open boolean, p_format text,
  p_frozen integer)
returns jsonb language plpgsql stable as $$
declare
  v_list jsonb := to_jsonb(p_messages); v_message jsonb; v_parts jsonb; v_out jsonb[] := '{}';
begin
  if p_format = 'anthropic' then return _memoir.anthropic(v_list, p_prefix, p_open, p_frozen); end if;
  if not v_list @? '$[*].content[*].type ? (@ == "thinking" || @ == "redacted_thinking" || @ == "document")' then
    return v_list;
  end if;
  foreach v_message in array p_messages loop
    if jsonb_typeof(v_message -> 'content') = 'array' then
      v_parts := (select jsonb_agg(m order by o) filter (where m is not null)
        from jsonb_array_elements(v_message -> 'content') with ordinality t(p, o), _memoir.openai_media(p) m);
      v_message := jsonb_set(v_message, '{content}', coalesce(v_parts,
        case when v_message ? 'tool_calls' then 'null' else '""' end::jsonb));
    end if;
    v_out := v_out || v_message;
  end loop;
  return to_jsonb(v_out);
end $$;
