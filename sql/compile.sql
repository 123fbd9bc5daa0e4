-- compile_context: the list to send to the model.
--
--   authorise → session, settings → system message → window of recent turns → recall for the query → one list, counted.
--
-- _compile is STABLE, so all of it reads one snapshot: a compaction that commits meanwhile can't lose turns. The public
-- functions are thin writers around it: they leave statistics in an unlogged buffer, and nothing at all on a standby.

create or replace function memoir._history_share(p_config jsonb, p_task memoir.task_type)
returns real language sql immutable as $$ select (p_config ->> ('history_share_' || coalesce(p_task, 'continuation')))::real $$;

create or replace function memoir._too_small(p_needed integer, p_budget integer, p_system integer, p_tools integer, p_message integer)
returns void language plpgsql as $$
begin
  perform memoir._fail('PM020', format('the newest message needs a budget of %s tokens, the budget is %s', p_needed, p_budget),
    'raise p_budget, shorten the message, or use a model with a larger window',
    jsonb_build_object('needed', p_needed, 'budget', p_budget, 'system', p_system, 'tools', p_tools, 'message', p_message)::text);
end $$;

create or replace function memoir._compile(p_user text, p_session text, p_query text, p_budget integer, p_memory_budget integer,
  p_task text, p_tools jsonb, p_query_embedding real[], p_query_parts jsonb, p_as_of timestamptz, p_valid_at timestamptz,
  p_format text, p_after_turn text)
returns jsonb language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_caller memoir.caller := memoir._authorise(p_user, 'read');
  v_user uuid := v_caller.user_id;
  v_id uuid; v_session memoir.sessions; v_counters memoir.session_counters; v_config jsonb; v_model memoir.models; v_tokenizer text;
  v_overhead integer; v_budget integer; v_tools integer := 0; v_system text; v_prompt text; v_profile text; v_summary text;
  v_system_tokens integer := 0; v_room integer; v_task memoir.task_type; v_share real; v_history integer; v_limit integer;
  v_query text := p_query; v_newest memoir.message; v_query_tokens integer := 0; v_window memoir.shown_window; v_open boolean;
  v_turn memoir.shown_turn; v_shown memoir.shown_turn[] := '{}'; v_pending memoir.shown_turn[] := '{}'; v_messages jsonb[] := '{}';
  v_costs integer[] := '{}'; v_message jsonb; v_n integer; i integer; v_warnings text[] := '{}'; v_recall_budget integer;
  v_block memoir.recall_block; v_recall text; v_recall_tokens integer := 0; v_candidates memoir.candidate[] := '{}'; v_scope memoir.search_scope;
  v_vector record; v_text text; v_last jsonb; v_at integer; v_prefix integer; v_total integer; v_kept memoir.kept_recalls; v_working text[] := '{}';
  v_repeated boolean := false; v_statistics text; v_list jsonb; v_cap integer; v_query_hash bytea; v_exchange_at integer; v_arms jsonb;
begin
  if p_format is null or p_format not in ('openai', 'anthropic') then
    perform memoir._fail('PM014', format('format must be openai or anthropic, not %s', memoir._shown(p_format)));
  end if;
  if p_budget <= 0 or p_memory_budget < 0 then
    perform memoir._fail('PM014', format('budgets must be positive, not %s', coalesce(least(p_budget, p_memory_budget), p_budget, p_memory_budget)));
  end if;
  if p_task is not null and p_task not in ('continuation', 'knowledge', 'new_session', 'tool_heavy') then
    perform memoir._fail('PM014', format('task must be continuation, knowledge, new_session or tool_heavy, not %s', memoir._shown(p_task)));
  end if;
  if p_tools is not null and jsonb_typeof(p_tools) not in ('array', 'null') then
    perform memoir._fail('PM014', format('tools must be a list of tool definitions, not %s', memoir._shown(p_tools::text)));
  end if;
  perform memoir._check_session(p_session);

  v_id := memoir._session_id(v_user, p_session);
  select * into v_session from memoir.sessions where user_id = v_user and session_id = v_id;
  if found then
    perform memoir._check_project(v_caller, v_session.project);
    select * into v_counters from memoir.session_counters where user_id = v_user and session_id = v_id;
  end if;
  if p_after_turn is not null then
    if p_after_turn !~ '^[0-9a-f]{8}:[0-9]{1,9}$' or left(p_after_turn, 8) <> left(v_id::text, 8) then
      perform memoir._fail('PM014', format('after_turn %s is no mark of session %s', memoir._shown(p_after_turn), memoir._shown(p_session)));
    end if;
    if coalesce(v_counters.turn_count, 0) < split_part(p_after_turn, ':', 2)::integer then
      perform memoir._fail('PM021', format('this server has %s turns of session %s, not yet %s', coalesce(v_counters.turn_count, 0), memoir._shown(p_session), split_part(p_after_turn, ':', 2)),
        'ask again shortly, or ask the primary');
    end if;
  end if;
  v_config := memoir._config(v_user, v_session.settings);
  v_model := memoir._model(coalesce(v_session.model, v_config ->> 'default_model'));
  v_tokenizer := memoir._tokenizer_used(coalesce(v_session.tokenizer, v_model.tokenizer));
  v_overhead := v_model.message_overhead;
  v_budget := coalesce(p_budget, coalesce(v_session.context_window, v_model.context_window) - coalesce(v_session.max_response_tokens, v_model.max_output));
  if jsonb_typeof(p_tools) = 'array' then v_tools := memoir._tokens_of(p_tools::text, v_tokenizer); end if;

  -- The newest message.
  if p_query_parts is not null or p_query is not null then
    if p_query_parts is not null and jsonb_typeof(p_query_parts) <> 'array' then
      perform memoir._fail('PM014', format('query_parts must be a list of content parts, not %s', memoir._shown(p_query_parts::text)));
    end if;
    v_newest := memoir._parse_message('query', jsonb_build_object('role', 'user', 'content',
      case when p_query_parts is null then to_jsonb(p_query)
           when p_query is null then p_query_parts
           else jsonb_build_array(jsonb_build_object('type', 'text', 'text', p_query)) || p_query_parts end), v_config, v_model.provider);
    if v_newest.parts is null and v_newest.text !~ '\S' then
      perform memoir._fail('PM014', format('query must not be empty, it is %s', memoir._shown(p_query)));
    end if;
    v_query := v_newest.text;
    v_open := false;
  else
    v_open := true;
    if coalesce(v_counters.turn_count, 0) = 0 or v_counters.last_role not in ('user', 'tool') or v_counters.open_calls <> '{}' then
      perform memoir._fail('PM022', format('session %s has nothing to continue: %s', memoir._shown(p_session),
        case when coalesce(v_counters.turn_count, 0) = 0 then 'it has no turns'
             when v_counters.open_calls <> '{}' then format('tool calls %s have no result yet', array_to_string(v_counters.open_calls, ', '))
             else 'its newest message is the assistant''s' end), 'give p_query');
    end if;
  end if;

  -- The system message: prompt, then fenced profile and summary. Frozen parts first.
  if v_session.system_prompt_hash is not null then
    select content into v_prompt from memoir.system_prompts where prompt_hash = v_session.system_prompt_hash;
  end if;
  if p_as_of is null then
    select memoir._fence('profile', memoir._neutralise(p.content)) into v_profile from memoir.users u join memoir.profiles p on p.user_id = v_user and p.version = u.profile_version
    where u.user_id = v_user and p.content <> '' and v_caller.projects is null;
  end if;
  if v_session.summary_text is not null then v_summary := memoir._fence('summary', memoir._neutralise(v_session.summary_text)); end if;
  loop
    v_system := nullif(concat_ws(E'\n\n', v_prompt, v_profile, v_summary), '');
    v_system_tokens := case when v_system is null then 0 else v_overhead + memoir._tokens_of(v_system, v_tokenizer) end;
    exit when v_system_tokens <= v_budget / 2 or (v_profile is null and v_summary is null);
    -- Half a budget of background is too much: the summary goes before the profile.
    if v_summary is not null then v_summary := null; v_warnings := v_warnings || 'the summary does not fit'::text;
    else v_profile := null; v_warnings := v_warnings || 'the profile does not fit'::text; end if;
  end loop;
  v_room := v_budget - v_system_tokens - v_tools - 3;

  if not v_open then
    v_query_tokens := v_overhead + coalesce(v_newest.media_tokens, 0)
      + (select sum(n) from unnest(memoir._count_tokens(memoir._token_texts(v_newest.text, v_newest.parts, null, null, null), v_tokenizer)) n);
    if v_query_tokens > v_room then
      perform memoir._too_small(v_query_tokens + v_system_tokens + v_tools + 3, v_budget, v_system_tokens, v_tools, v_query_tokens);
    end if;
  end if;

  -- Recent turns. Their share follows the session's task, so that one query can't move the window.
  v_share := memoir._history_share(v_config, v_session.task_type);
  v_history := greatest(0, (v_share * v_room)::integer);
  v_limit := v_room - v_query_tokens;
  if v_open then
    if not pg_is_in_recovery() then
      select * into v_kept from memoir.kept_recalls where user_id = v_user and session_id = v_id and at_turn = v_counters.exchange_start;
    end if;
    v_limit := v_room;
  elsif v_history > v_limit then
    -- A long query takes whole steps from the window, not a token more or less each time.
    v_history := greatest(0, v_history - ((v_history - v_limit + v_history / 4) / greatest(1, v_history / 4)) * greatest(1, v_history / 4));
  end if;
  if v_counters.turn_count > 0 then
    v_window := memoir._window(v_session, v_counters, v_config, v_overhead, v_tokenizer, v_history, v_limit, v_open, v_model.provider);
    v_shown := v_window.turns;
    v_warnings := v_warnings || v_window.warnings;
  end if;

  -- Trailing user messages that nobody answered belong to the newest message.
  v_n := cardinality(v_shown);
  if not v_open then
    while v_n > 0 and (v_shown[v_n]).role in ('user', 'system') loop
      v_pending := v_shown[v_n] || v_pending; v_n := v_n - 1;
    end loop;
    v_shown := v_shown[1 : v_n];
    if v_pending <> '{}' and (v_pending[cardinality(v_pending)]).content is not distinct from v_newest.text
       and (v_pending[cardinality(v_pending)]).parts is not distinct from v_newest.parts then
      v_pending := v_pending[1 : cardinality(v_pending) - 1];
      v_repeated := true;
    end if;
    v_exchange_at := coalesce((v_pending[1]).turn_index, v_counters.turn_count - v_repeated::integer, 0);
  else
    v_exchange_at := v_counters.exchange_start;
    select string_agg(content, E'\n' order by turn_index) into v_query from unnest(v_shown)
    where turn_index >= v_exchange_at and role = 'user'
      and turn_index < coalesce((select min(turn_index) from unnest(v_shown) where turn_index >= v_exchange_at and role not in ('user', 'system')), 2147483647);
  end if;
  -- A list must begin with the user; what the assistant said before that stays reachable by recall.
  while v_shown <> '{}' and (v_shown[1]).role in ('assistant', 'tool') loop v_shown := v_shown[2 : cardinality(v_shown)]; end loop;

  for i in 1 .. cardinality(v_shown) loop
    v_turn := v_shown[i];
    v_message := memoir._openai_message(v_turn);
    v_n := cardinality(v_messages);
    if v_n > 0 and memoir._mergeable(v_messages[v_n], v_message) then
      v_messages[v_n] := memoir._merge_messages(v_messages[v_n], v_message);
      v_costs[v_n] := memoir._message_tokens(v_messages[v_n], v_tokenizer, v_overhead, v_model.provider);
    else
      v_messages := v_messages || v_message;
      v_costs := v_costs || case when v_turn.role = 'system' then memoir._message_tokens(v_message, v_tokenizer, v_overhead, v_model.provider) else v_turn.cost end;
      if v_open and v_turn.turn_index >= v_exchange_at and v_at is null then v_at := cardinality(v_messages); end if;
    end if;
  end loop;

  if v_open then
    if v_at is null then v_at := cardinality(v_messages); end if;
  else
    for i in 1 .. cardinality(v_pending) loop
      v_last := case when v_last is null then memoir._openai_message(v_pending[i]) else memoir._merge_messages(v_last, memoir._openai_message(v_pending[i])) end;
    end loop;
    v_message := jsonb_build_object('role', 'user', 'content', coalesce(v_newest.parts, to_jsonb(v_newest.text)));
    v_last := case when v_last is null then v_message else memoir._merge_messages(v_last - 'name', v_message) end;
    v_messages := v_messages || v_last;
    v_costs := v_costs || memoir._message_tokens(v_last, v_tokenizer, v_overhead, v_model.provider);
    v_at := cardinality(v_messages);
    -- Unanswered messages before a query are dropped, oldest first, rather than the query.
    while cardinality(v_pending) > 0 and (select sum(c) from unnest(v_costs) c) > v_room loop
      v_pending := v_pending[2 : cardinality(v_pending)];
      v_last := v_message;
      if v_pending <> '{}' then
        v_last := memoir._openai_message(v_pending[1]);
        for i in 2 .. cardinality(v_pending) loop v_last := memoir._merge_messages(v_last, memoir._openai_message(v_pending[i])); end loop;
        v_last := memoir._merge_messages(v_last - 'name', v_message);
      end if;
      v_messages[v_at] := v_last;
      v_costs[v_at] := memoir._message_tokens(v_last, v_tokenizer, v_overhead, v_model.provider);
      v_warnings := v_warnings || 'an unanswered message is left out'::text;
    end loop;
  end if;
  v_total := (select coalesce(sum(c), 0) from unnest(v_costs) c);
  -- Merging can cost a token or two more than its parts; the oldest messages make room.
  while v_total > v_room and v_at > 1 loop
    loop
      v_total := v_total - v_costs[1];
      v_messages := v_messages[2 : cardinality(v_messages)]; v_costs := v_costs[2 : cardinality(v_costs)]; v_at := v_at - 1;
      exit when v_at = 1 or v_messages[1] ->> 'role' = 'user';
    end loop;
    v_warnings := v_warnings || 'the window gave way to the newest message'::text;
  end loop;
  if v_total > v_room then
    perform memoir._too_small(v_total + v_system_tokens + v_tools + 3, v_budget, v_system_tokens, v_tools, v_total);
  end if;

  -- Recall. Its share follows the query's own task; it may use what history leaves.
  v_task := coalesce(p_task::memoir.task_type, v_session.task_type, case
    when coalesce(v_counters.turn_count, 0) = 0 then 'new_session'
    when memoir._is_question(v_query) then 'knowledge'
    when v_tools > 0 and v_open then 'tool_heavy' else 'continuation' end::memoir.task_type);
  v_cap := coalesce(p_memory_budget, ((v_config ->> 'recall_tokens_max')::integer
    * least(1.25, (1 - memoir._history_share(v_config, v_task)) / greatest(0.01, 1 - memoir._history_share(v_config, 'knowledge'))))::integer);
  v_recall_budget := least(v_cap, v_room - v_total - 4);
  v_query_hash := sha256(convert_to(coalesce(v_query, ''), 'UTF8'));
  v_arms := '{}';
  if v_open and v_kept.recall is not null and v_kept.query_hash = v_query_hash then
    v_recall := v_kept.recall;
    v_recall_tokens := case when v_recall = '' then 0 else memoir._tokens_of(v_recall, v_tokenizer) end;
    if v_recall_tokens > v_room - v_total - 4 then
      v_recall := null; v_recall_tokens := 0;
      v_warnings := v_warnings || 'the recall of this exchange no longer fits'::text;
    end if;
    v_arms := v_arms || '{"recall": "kept"}';
  elsif v_recall_budget > 16 and coalesce(v_query, '') ~ '\S' then
    select * into v_vector from memoir._query_vector(v_config, v_query, p_query_embedding);
    if v_vector.problem is not null then
      v_warnings := v_warnings || ('searched by words only: ' || v_vector.problem);
    end if;
    v_scope.hidden_sessions := array(select l.session_id from memoir._lineage(v_session) l where v_session.session_id is not null);
    v_scope.hidden_from := coalesce((select min(t.turn_index) from (select turn_index, turn_index - row_number() over (order by turn_index) as run from unnest(v_shown)) t
      where t.run = (select max(turn_index) - count(*) from unnest(v_shown))), v_exchange_at, 0);
    v_scope.local_sessions := array(select l.session_id from memoir._lineage(v_session) l where v_session.session_id is not null) || coalesce(v_session.parent_session_id, v_id);
    v_scope.projects := v_caller.projects;
    v_scope.clearance := least(v_caller.clearance, 'private'::memoir.sensitivity);
    v_scope.as_of := p_as_of;
    v_scope.valid_at := p_valid_at;
    v_candidates := memoir._candidates(v_user, v_config, v_query, v_vector.vector, v_vector.model_id, nullif(v_session.project, 'global'),
      v_scope, v_id, (v_config ->> 'candidates')::integer, (v_config ->> 'frequent_memories')::integer);
    if not pg_is_in_recovery() then
      v_working := array(select content from memoir.memory_store_working where user_id = v_user and local_to = v_id
                         and (expires_at is null or expires_at > memoir.now()) order by recorded_at, memory_id);
    end if;
    v_block := memoir._recall_block(v_user, v_config, v_candidates, v_working, v_recall_budget, v_tokenizer,
      array(select message_id from unnest(v_shown)) || array(select message_id from unnest(v_pending)), v_scope.clearance);
    v_candidates := v_block.candidates;
    v_recall := v_block.text;
    v_recall_tokens := v_block.tokens;
    v_arms := jsonb_build_object('recall', 'searched', 'vector', v_vector.vector is not null, 'words', true,
      'candidates', cardinality(v_candidates), 'working', cardinality(v_working));
  end if;
  if v_open and v_kept.recall is null then
    v_warnings := v_warnings || 'the recall of this exchange was not kept and is made anew'::text;
  end if;
  if coalesce(v_recall, '') <> '' then
    v_last := v_messages[v_at];
    loop
      v_messages[v_at] := jsonb_set(v_last, '{content}', memoir._join_content(to_jsonb(v_recall), v_last -> 'content'));
      v_n := memoir._message_tokens(v_messages[v_at], v_tokenizer, v_overhead, v_model.provider);
      exit when v_total - v_costs[v_at] + v_n <= v_room;
      -- The join cost more than its parts: the last line goes. Rare, and a kept block is left out whole.
      v_recall := null;
      v_messages[v_at] := v_last;
      v_n := v_costs[v_at];
      v_recall_tokens := 0;
      v_warnings := v_warnings || 'the recall does not fit'::text;
      exit;
    end loop;
    v_total := v_total - v_costs[v_at] + v_n;
    v_costs[v_at] := v_n;
  end if;

  if v_system is not null then
    v_messages := jsonb_build_object('role', 'system', 'content', v_system) || v_messages;
    v_at := v_at + 1;
  end if;
  v_prefix := v_at - 1;
  v_list := to_jsonb(v_messages);
  v_statistics := coalesce((select next_item::text from memoir.user_counters where user_id = v_user), '0');
  return jsonb_build_object(
    'messages', case p_format when 'anthropic' then memoir._anthropic(v_list, v_prefix, v_open) else v_list end,
    'tokens', v_total + v_system_tokens + v_tools + 3, 'budget', v_budget, 'system_tokens', v_system_tokens, 'tools_tokens', v_tools,
    'recall_tokens', v_recall_tokens, 'recall_budget', v_recall_budget,
    'prefix_messages', v_prefix, 'prefix_hash', encode(sha256(convert_to(coalesce(to_jsonb(v_messages[1 : v_prefix])::text, ''), 'UTF8')), 'hex'),
    'tokenizer', v_tokenizer, 'format', p_format, 'task', v_task, 'model', v_model.model, 'warnings', to_jsonb(v_warnings),
    'arms', v_arms || jsonb_build_object('recent', cardinality(v_shown)), 'statistics_version', v_statistics,
    '_user', v_user, '_session', v_id, '_at', memoir.now(), '_exchange_at', v_exchange_at, '_query_hash', encode(v_query_hash, 'hex'),
    '_recall', v_recall, '_open', v_open,
    '_shown', coalesce((select jsonb_agg(jsonb_build_object('turn', t.turn_index, 'id', t.message_id, 'tokens', t.cost, 'excerpt', t.excerpt, 'role', t.role,
        'content', left(t.content, 200)) order by t.turn_index) from unnest(v_shown || v_pending) t), '[]'),
    '_items', coalesce((select jsonb_agg(jsonb_build_object('no', (c.item).item_no, 'kind', (c.item).kind::text, 'id', (c.item).ref_id,
        'session', (c.item).session_id, 'turn', (c.item).turn_index, 'chunk', (c.item).chunk, 'score', c.score, 'parts', c.parts, 'arms', to_jsonb(c.arms),
        'words_rank', case when (c.item).words > 0 then (c.item).words_rank end, 'vector_rank', case when (c.item).vector is not null then (c.item).vector_rank end,
        'tokens', (c.item).token_count, 'fidelity', c.fidelity, 'in', o = any (v_block.chosen) and v_recall is not null,
        'place', array_position(v_block.chosen, o::integer), 'reason', c.reason) order by o)
      from unnest(v_candidates) with ordinality as c(item, score, parts, arms, tokens, header, label, body, reason, fidelity, type, o)), '[]'));
end $$;

-- What a compile leaves behind: the recall an exchange began with, and one buffered ledger row. Nothing on a standby or in a
-- read-only transaction.
create or replace function memoir._leave_traces(p_result jsonb)
returns uuid language plpgsql as $$
declare
  v_compile uuid := gen_random_uuid();
  v_config jsonb := (select config from memoir.settings_merged);
begin
  if pg_is_in_recovery() or current_setting('transaction_read_only')::boolean then return v_compile; end if;
  if not (p_result ->> '_open')::boolean or p_result #>> '{arms,recall}' = 'searched' then
    -- Only for sessions that exist: a compile creates nothing that an erase would have to know of otherwise.
    insert into memoir.kept_recalls (user_id, session_id, at_turn, query_hash, recall, items, recorded_at)
    select (p_result ->> '_user')::uuid, (p_result ->> '_session')::uuid, (p_result ->> '_exchange_at')::integer,
      decode(p_result ->> '_query_hash', 'hex'), coalesce(p_result ->> '_recall', ''),
      coalesce((select jsonb_agg(distinct x -> 'id') from jsonb_array_elements(p_result -> '_items') x where (x ->> 'in')::boolean), '[]'),
      (p_result ->> '_at')::timestamptz
    where exists (select from memoir.users where user_id = (p_result ->> '_user')::uuid)
    on conflict (user_id, session_id) do update set at_turn = excluded.at_turn, query_hash = excluded.query_hash,
      recall = excluded.recall, items = excluded.items, recorded_at = excluded.recorded_at;
  end if;
  if (v_config ->> 'ledger_sample')::float8 < 1 and random() >= (v_config ->> 'ledger_sample')::float8 then return v_compile; end if;
  insert into memoir.compile_buffer (user_id, recorded_at, ledger)
  select (p_result ->> '_user')::uuid, (p_result ->> '_at')::timestamptz, jsonb_build_object(
    'user_id', p_result -> '_user', 'compile_id', v_compile, 'recorded_at', p_result -> '_at', 'session_id', p_result -> '_session',
    'budget', p_result -> 'budget', 'tokens', p_result -> 'tokens', 'memory_tokens', p_result -> 'recall_tokens',
    'prefix_hash', '\x' || (p_result ->> 'prefix_hash'), 'statistics_version', p_result -> 'statistics_version', 'warnings', p_result -> 'warnings',
    'item_ids', coalesce(jsonb_agg(x -> 'id' order by o), '[]'), 'item_kinds', coalesce(jsonb_agg(x -> 'kind' order by o), '[]'),
    'item_chunks', coalesce(jsonb_agg(x -> 'chunk' order by o), '[]'), 'scores', coalesce(jsonb_agg(x -> 'score' order by o), '[]'),
    'score_parts', coalesce(jsonb_agg(x -> 'parts' order by o), '[]'), 'item_tokens', coalesce(jsonb_agg(x -> 'tokens' order by o), '[]'),
    'positions', coalesce(jsonb_agg(coalesce(nullif(x -> 'place', 'null'), '0') order by o), '[]'),
    'reasons', coalesce(jsonb_agg(coalesce(nullif(x -> 'reason', 'null'), '""') order by o), '[]'),
    'shown_memories', coalesce(jsonb_agg(jsonb_build_object('id', x -> 'id', 'score', x -> 'score') order by o) filter (where x ->> 'kind' = 'm' and (x ->> 'in')::boolean), '[]'))
  from jsonb_array_elements(p_result -> '_items') with ordinality t(x, o)
  where exists (select from memoir.users where user_id = (p_result ->> '_user')::uuid);
  return v_compile;
end $$;

create or replace function memoir.compile_context(p_user text, p_session text, p_query text default null, p_budget integer default null,
  p_memory_budget integer default null, p_task text default null, p_tools jsonb default null, p_query_embedding real[] default null,
  p_query_parts jsonb default null, p_as_of timestamptz default null, p_valid_at timestamptz default null,
  p_format text default 'openai', p_after_turn text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_result jsonb := memoir._compile(p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools, p_query_embedding,
    p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
begin
  perform memoir._leave_traces(v_result);
  return v_result -> 'messages';
end $$;
comment on function memoir.compile_context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz, timestamptz, text, text) is
  'The list to send to the model: OpenAI chat messages as an array, or {"system", "messages"} with p_format => ''anthropic''.
p_query null continues an open exchange. p_budget: tokens of the whole list (default: window less response). p_memory_budget:
tokens of the recall block. p_query_embedding: vector of the active embedding model. p_query_parts: multimodal content.
p_as_of: what was known then; p_valid_at: what was true then. p_after_turn: mark of persist_turn that this server must have
reached. Never over the budget. Writes unlogged statistics only. Raises PM001, PM010, PM014, PM020 to PM022, PM030, PM031.';

create or replace function memoir.context(p_user text, p_session text, p_query text default null, p_budget integer default null,
  p_memory_budget integer default null, p_task text default null, p_tools jsonb default null, p_query_embedding real[] default null,
  p_query_parts jsonb default null, p_as_of timestamptz default null, p_valid_at timestamptz default null,
  p_format text default 'openai', p_after_turn text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_result jsonb := memoir._compile(p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools, p_query_embedding,
    p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  v_compile uuid := memoir._leave_traces(v_result);
begin
  return v_result - array['_user', '_session', '_at', '_exchange_at', '_query_hash', '_recall', '_open', '_shown', '_items']
    || jsonb_build_object('compile_id', v_compile,
      'items', coalesce((select jsonb_agg(x -> 'id' order by x -> 'place') from jsonb_array_elements(v_result -> '_items') x where (x ->> 'in')::boolean), '[]'),
      'turns', (select coalesce(jsonb_agg(x -> 'turn'), '[]') from jsonb_array_elements(v_result -> '_shown') x));
end $$;
comment on function memoir.context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz, timestamptz, text, text) is
  'As compile_context, with what is known about it: {"messages", "compile_id", "tokens", "budget", "recall_tokens",
"prefix_messages", "prefix_hash" (of the messages before the one that carries the recall), "tokenizer", "items" (ids of what was
recalled), "turns" (indexes shown), "arms", "warnings", "task", "statistics_version"}.';

create or replace function memoir.explain_context(p_user text, p_session text, p_query text default null, p_budget integer default null,
  p_memory_budget integer default null, p_task text default null, p_tools jsonb default null, p_query_embedding real[] default null,
  p_query_parts jsonb default null, p_as_of timestamptz default null, p_valid_at timestamptz default null,
  p_format text default 'openai', p_after_turn text default null)
returns table ("position" integer, kind text, id uuid, session text, turn_index integer, chunk integer, arms text[], score real, parts jsonb,
  words_rank integer, vector_rank integer, tokens integer, fidelity text, included boolean, reason text, content text)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_result jsonb := memoir._compile(p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools, p_query_embedding,
    p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  v_user uuid := (v_result ->> '_user')::uuid;
begin
  return query
  select (row_number() over (order by x -> 'turn'))::integer, 'turn', (x ->> 'id')::uuid, p_session, (x ->> 'turn')::integer, 0, '{recent}'::text[], null::real, null::jsonb,
    null::integer, null::integer, (x ->> 'tokens')::integer, case when (x ->> 'excerpt')::boolean then 'excerpt' else 'full' end, true, null::text, x ->> 'content'
  from jsonb_array_elements(v_result -> '_shown') x;
  return query
  with items as (
    select x, (x ->> 'no')::integer as item_no from jsonb_array_elements(v_result -> '_items') x
  ), texts as (
    select * from memoir._item_texts(v_user, array(select i.item_no from items i))
  )
  select (x ->> 'place')::integer, case x ->> 'kind' when 't' then 'turn' when 'm' then 'memory' else 'summary' end, (x ->> 'id')::uuid, s.external_id,
    (x ->> 'turn')::integer, (x ->> 'chunk')::integer, array(select jsonb_array_elements_text(x -> 'arms')), (x ->> 'score')::real, x -> 'parts',
    (x ->> 'words_rank')::integer, (x ->> 'vector_rank')::integer, (x ->> 'tokens')::integer,
    (array['full', 'detailed', 'compact', 'stub', 'evicted'])[(x ->> 'fidelity')::integer + 1],
    (x ->> 'in')::boolean, x ->> 'reason', left(coalesce(t.name || ': ', '') || t.body, 200)
  from items left join texts t using (item_no)
  left join memoir.sessions s on s.user_id = v_user and s.session_id = (x ->> 'session')::uuid
  order by (x ->> 'in')::boolean desc, (x ->> 'score')::real desc, item_no;
end $$;
comment on function memoir.explain_context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz, timestamptz, text, text) is
  'One row per considered item of the same compile: recent turns, then candidates with their arms, score parts, rank by words and
by vector, tokens, position in the recall (in order of choice) or the reason for being left out, and the beginning of the text.
Writes nothing.';
