-- compile_context: the list to send to the model.
--
--   authorise → session, settings → system message → window of recent turns → recall for the query → one list, counted.
--
-- compile is STABLE, so all of it reads one snapshot: a compaction that commits meanwhile can't lose turns. The public
-- functions are thin writers around it: they leave statistics in an unlogged buffer, and nothing at all on a standby.

create or replace function _memoir.too_small(p_needed integer, p_budget integer, p_system integer, p_tools integer, p_message integer)
returns void language plpgsql as $$
begin
  perform _memoir.fail('PM020', format('the newest message needs a budget of %s tokens, the budget is %s', p_needed, p_budget),
    'raise p_budget, shorten the message, or use a model with a larger window',
    jsonb_build_object('needed', p_needed, 'budget', p_budget, 'system', p_system, 'tools', p_tools, 'message', p_message)::text);
end $$;

create or replace function _memoir.compile(p_user text, p_session text, p_query text, p_budget integer, p_memory_budget integer,
  p_task text, p_tools jsonb, p_query_embedding real[], p_query_parts jsonb, p_as_of timestamptz, p_valid_at timestamptz,
  p_format text, p_after_turn text)
returns _memoir.compiled language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_out _memoir.compiled;
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id;
  v_now timestamptz := memoir.now();
  v_id uuid; v_session _memoir.sessions; v_counters _memoir.session_counters; v_config jsonb; v_model _memoir.models; v_tokenizer text;
  v_overhead integer; v_budget integer; v_tools integer := 0; v_system text; v_prompt text; v_prompt_tokens integer; v_profile text; v_summary text;
  v_system_tokens integer := 0; v_room integer; v_task _memoir.task_type; v_share real; v_history integer; v_limit integer;
  v_query text := p_query; v_newest _memoir.message; v_query_tokens integer := 0; v_window _memoir.shown_window; v_open boolean;
  v_turn _memoir.shown_turn; v_shown _memoir.shown_turn[] := '{}'; v_pending _memoir.shown_turn[] := '{}'; v_messages jsonb[] := '{}'; v_rendered jsonb[];
  v_costs integer[] := '{}'; v_message jsonb; v_n integer; i integer; v_warnings text[] := '{}'; v_recall_budget integer;
  v_block _memoir.recall_block; v_recall text; v_recall_tokens integer := 0; v_candidates _memoir.candidate[] := '{}'; v_scope _memoir.search_scope;
  v_vector record; v_text text; v_last jsonb; v_at integer; v_total integer; v_kept _memoir.kept_recalls; v_working text[] := '{}';
  v_repeated boolean := false; v_strength real; v_weak boolean; v_cap integer; v_query_hash bytea; v_exchange_at integer; v_arms jsonb; v_lineage uuid[];
begin
  if p_format is null or p_format not in ('openai', 'anthropic') then
    perform _memoir.fail('PM014', format('format must be openai or anthropic, not %s', _memoir.shown(p_format)));
  end if;
  if p_budget <= 0 or p_memory_budget < 0 then
    perform _memoir.fail('PM014', format('budgets must be positive, not %s', coalesce(least(p_budget, p_memory_budget), p_budget, p_memory_budget)));
  end if;
  if p_task is not null and p_task not in ('continuation', 'knowledge', 'new_session', 'tool_heavy') then
    perform _memoir.fail('PM014', format('task must be continuation, knowledge, new_session or tool_heavy, not %s', _memoir.shown(p_task)));
  end if;
  if p_tools is not null and jsonb_typeof(p_tools) not in ('array', 'null') then
    perform _memoir.fail('PM014', format('tools must be a list of tool definitions, not %s', _memoir.shown(p_tools::text)));
  end if;
  perform _memoir.check_session(p_session);

  v_id := _memoir.session_id(v_user, p_session);
  select * into v_session from _memoir.sessions where user_id = v_user and session_id = v_id;
  if found then
    perform _memoir.check_session_of(v_caller, p_session, v_session.project);
    select * into v_counters from _memoir.session_counters where user_id = v_user and session_id = v_id;
  end if;
  if p_after_turn is not null then
    if p_after_turn !~ '^[0-9a-f]{8}:[0-9]{1,9}$' or left(p_after_turn, 8) <> left(v_id::text, 8) then
      perform _memoir.fail('PM014', format('after_turn %s is no mark of session %s', _memoir.shown(p_after_turn), _memoir.shown(p_session)));
    end if;
    if coalesce(v_counters.turn_count, 0) < split_part(p_after_turn, ':', 2)::integer then
      perform _memoir.fail('PM021', format('this server has %s turns of session %s, not yet %s', coalesce(v_counters.turn_count, 0), _memoir.shown(p_session), split_part(p_after_turn, ':', 2)),
        'ask again shortly, or ask the primary');
    end if;
  end if;
  if p_as_of < v_counters.last_recorded_at then
    v_counters := _memoir.counters_as_of(v_session, v_counters, p_as_of);
  end if;
  if p_as_of is not null and v_session.summary_text is not null then
    select s.summary, s.through into v_session.summary_text, v_session.summary_through from _memoir.summary_of(v_session, p_as_of) s;
  end if;
  v_config := _memoir.config(v_user, v_session.settings);
  v_model := _memoir.model(coalesce(v_session.model, v_config ->> 'default_model'));
  v_tokenizer := _memoir.tokenizer_used(coalesce(v_session.tokenizer, v_model.tokenizer));
  v_overhead := v_model.message_overhead;
  v_budget := coalesce(p_budget, coalesce(v_session.context_window, v_model.context_window) - coalesce(v_session.max_response_tokens, v_model.max_output));
  if jsonb_typeof(p_tools) = 'array' then v_tools := _memoir.tokens_of(p_tools::text, v_tokenizer); end if;

  -- The newest message.
  if p_query_parts is not null or p_query is not null then
    if p_query_parts is not null and jsonb_typeof(p_query_parts) <> 'array' then
      perform _memoir.fail('PM014', format('query_parts must be a list of content parts, not %s', _memoir.shown(p_query_parts::text)));
    end if;
    v_newest := _memoir.parse_message('query', jsonb_build_object('role', 'user', 'content',
      case when p_query_parts is null then to_jsonb(p_query)
           when p_query is null then p_query_parts
           else jsonb_build_array(jsonb_build_object('type', 'text', 'text', p_query)) || p_query_parts end), v_config, v_model.images);
    if v_newest.parts is null and _memoir.is_blank(v_newest.text) then
      perform _memoir.fail('PM014', format('query must not be empty, it is %s', _memoir.shown(p_query)));
    end if;
    v_query := v_newest.text;
    v_open := false;
  else
    v_open := true;
    if coalesce(v_counters.turn_count, 0) = 0 or v_counters.last_role not in ('user', 'tool') or v_counters.open_calls <> '{}' then
      perform _memoir.fail('PM022', format('session %s has nothing to continue: %s', _memoir.shown(p_session),
        case when coalesce(v_counters.turn_count, 0) = 0 then 'it has no turns'
             when v_counters.open_calls <> '{}' then format('tool calls %s have no result yet', array_to_string(v_counters.open_calls, ', '))
             else 'its newest message is the assistant''s' end), 'give p_query');
    end if;
  end if;

  -- The system message: prompt, then fenced profile and summary. Frozen parts first.
  if v_session.system_prompt_hash is not null then
    select content, (tokens ->> v_tokenizer)::integer into v_prompt, v_prompt_tokens from _memoir.system_prompts where prompt_hash = v_session.system_prompt_hash;
  end if;
  if p_as_of is null and v_caller.projects is null and (v_config ->> 'profile_version')::integer > 0 then
    select _memoir.fence('profile', _memoir.neutralise(p.content)) into v_profile from _memoir.profiles p
    where p.user_id = v_user and p.version = (v_config ->> 'profile_version')::integer and p.content <> '';
  end if;
  if v_session.summary_text is not null then v_summary := _memoir.fence('summary', _memoir.neutralise(v_session.summary_text)); end if;
  loop
    v_system := nullif(concat_ws(E'\n\n', v_prompt, v_profile, v_summary), '');
    v_system_tokens := case when v_system is null then 0
      when v_profile is null and v_summary is null then v_overhead + coalesce(v_prompt_tokens, _memoir.tokens_of(v_system, v_tokenizer))
      else v_overhead + _memoir.tokens_of(v_system, v_tokenizer) end;
    exit when v_system_tokens <= v_budget / 2 or (v_profile is null and v_summary is null);
    -- Half a budget of background is too much: the summary goes before the profile.
    if v_summary is not null then v_summary := null; v_warnings := v_warnings || 'the summary does not fit'::text;
    else v_profile := null; v_warnings := v_warnings || 'the profile does not fit'::text; end if;
  end loop;
  v_room := v_budget - v_system_tokens - v_tools - 3;

  if not v_open then
    v_query_tokens := v_overhead + coalesce(v_newest.media_tokens, 0)
      + _memoir.sum_tokens(_memoir.token_texts(v_newest.text, v_newest.parts, null, null, null), v_tokenizer);
    if v_query_tokens > v_room then
      perform _memoir.too_small(v_query_tokens + v_system_tokens + v_tools + 3, v_budget, v_system_tokens, v_tools, v_query_tokens);
    end if;
  end if;

  -- Recent turns. Their share follows the session's task, so that one query can't move the window.
  v_share := _memoir.history_share(v_config, v_session.task_type);
  v_history := greatest(0, (v_share * v_room)::integer);
  v_limit := v_room - v_query_tokens;
  if v_open then
    if not pg_is_in_recovery() then
      select * into v_kept from _memoir.kept_recalls where user_id = v_user and session_id = v_id and at_turn = v_counters.exchange_start
        and clearance <= v_caller.clearance and (v_caller.projects is null or projects <@ v_caller.projects);
    end if;
    v_limit := v_room;
  elsif v_history > v_limit then
    -- A long query takes whole steps from the window, not a token more or less each time.
    v_history := greatest(0, v_history - ((v_history - v_limit + v_history / 4) / greatest(1, v_history / 4)) * greatest(1, v_history / 4));
  end if;
  if v_counters.turn_count > 0 then
    v_window := _memoir.window(v_session, v_counters, v_config, v_overhead, v_tokenizer, v_history, v_limit, v_open, v_model.images, v_caller.clearance);
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
    if v_pending <> '{}' and _memoir.is_said(v_session, v_pending[cardinality(v_pending)], v_newest) then
      v_pending := v_pending[1 : cardinality(v_pending) - 1];
      v_repeated := true;
    end if;
    v_exchange_at := coalesce((v_pending[1]).turn_index, v_counters.turn_count - v_repeated::integer, 0);
  else
    v_exchange_at := v_counters.exchange_start;
    select string_agg(content, E'\n' order by turn_index) into v_query from unnest(v_shown)
    where turn_index >= v_exchange_at and role = 'user' and not withheld
      and turn_index < coalesce((select min(turn_index) from unnest(v_shown) where turn_index >= v_exchange_at and role not in ('user', 'system')), 2147483647);
  end if;
  -- A list must begin with the user; what the assistant said before that stays reachable by recall.
  while v_shown <> '{}' and (v_shown[1]).role in ('assistant', 'tool') loop v_shown := v_shown[2 : cardinality(v_shown)]; end loop;

  v_rendered := _memoir.openai_messages(v_shown);
  for i in 1 .. cardinality(v_shown) loop
    v_turn := v_shown[i];
    v_message := v_rendered[i];
    v_n := cardinality(v_messages);
    if v_n > 0 and _memoir.mergeable(v_messages[v_n], v_message) then
      v_messages[v_n] := _memoir.merge_messages(v_messages[v_n], v_message);
      v_costs[v_n] := _memoir.message_tokens(v_messages[v_n], v_tokenizer, v_overhead, v_model.images);
    else
      v_messages := v_messages || v_message;
      v_costs := v_costs || case when v_turn.role = 'system' then _memoir.message_tokens(v_message, v_tokenizer, v_overhead, v_model.images) else v_turn.cost end;
      if v_open and v_turn.turn_index >= v_exchange_at and v_at is null then v_at := cardinality(v_messages); end if;
    end if;
  end loop;

  if v_open then
    if v_at is null then v_at := cardinality(v_messages); end if;
  else
    v_rendered := _memoir.openai_messages(v_pending);
    for i in 1 .. cardinality(v_pending) loop
      v_last := case when v_last is null then v_rendered[i] else _memoir.merge_messages(v_last, v_rendered[i]) end;
    end loop;
    v_message := jsonb_build_object('role', 'user', 'content', coalesce(v_newest.parts, to_jsonb(v_newest.text)));
    v_last := case when v_last is null then v_message else _memoir.merge_messages(v_last - 'name', v_message) end;
    v_messages := v_messages || v_last;
    v_costs := v_costs || case when v_pending = '{}' then v_query_tokens
      else _memoir.message_tokens(v_last, v_tokenizer, v_overhead, v_model.images) end;
    v_at := cardinality(v_messages);
    -- Unanswered messages before a query are dropped, oldest first, rather than the query.
    while cardinality(v_pending) > 0 and (select sum(c) from unnest(v_costs) c) > v_room loop
      v_pending := v_pending[2 : cardinality(v_pending)]; v_rendered := v_rendered[2 : cardinality(v_rendered)];
      v_last := v_message;
      if v_pending <> '{}' then
        v_last := v_rendered[1];
        for i in 2 .. cardinality(v_pending) loop v_last := _memoir.merge_messages(v_last, v_rendered[i]); end loop;
        v_last := _memoir.merge_messages(v_last - 'name', v_message);
      end if;
      v_messages[v_at] := v_last;
      v_costs[v_at] := _memoir.message_tokens(v_last, v_tokenizer, v_overhead, v_model.images);
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
    perform _memoir.too_small(v_total + v_system_tokens + v_tools + 3, v_budget, v_system_tokens, v_tools, v_total);
  end if;

  -- Recall. Its share follows the query's own task; it may use what history leaves.
  v_task := coalesce(p_task::_memoir.task_type, v_session.task_type, case
    when coalesce(v_counters.turn_count, 0) = 0 then 'new_session'
    when _memoir.is_question(v_query) then 'knowledge'
    when v_tools > 0 and v_open then 'tool_heavy' else 'continuation' end::_memoir.task_type);
  v_cap := coalesce(p_memory_budget, ((v_config ->> 'recall_tokens_max')::integer
    * least(1, (1 - _memoir.history_share(v_config, v_task)) / greatest(0.01, 1 - _memoir.history_share(v_config, 'knowledge'))))::integer);
  v_recall_budget := least(v_cap, v_room - v_total - 4);
  -- What the exchange asks, so that a continued compile knows its recall again.
  v_query_hash := sha256(convert_to(concat_ws(E'\n', (select string_agg(t.content, E'\n' order by t.turn_index) from unnest(v_pending) t where t.role = 'user'),
    coalesce(v_query, '')), 'UTF8'));
  v_arms := '{}';
  if v_open and v_kept.recall is not null and v_kept.query_hash = v_query_hash then
    v_recall := v_kept.recall;
    v_recall_tokens := case when v_recall = '' then 0 else _memoir.tokens_of(v_recall || E'\n\n', v_tokenizer) end;
    if v_recall_tokens > v_room - v_total - 4 then
      v_recall := null; v_recall_tokens := 0;
      v_warnings := v_warnings || 'the recall of this exchange no longer fits'::text;
    end if;
    v_arms := v_arms || jsonb_build_object('recall', 'kept', 'weak', starts_with(v_recall, _memoir.fence_note('recall') || _memoir.weak_note()));
  elsif v_recall_budget > 16 and not _memoir.is_blank(v_query) then
    v_lineage := case when v_session.session_id is null then '{}' when v_session.parent_turn is null then array[v_id]
      else array(select l.session_id from _memoir.lineage(v_session) l) end;
    v_scope.hidden_sessions := v_lineage;
    v_scope.hidden_from := coalesce((select min(t.turn_index) from (select turn_index, turn_index - row_number() over (order by turn_index) as run from unnest(v_shown)) t
      where t.run = (select max(turn_index) - count(*) from unnest(v_shown))), v_exchange_at, 0);
    v_scope.local_sessions := v_lineage || coalesce(v_session.parent_session_id, v_id);
    v_scope.projects := v_caller.projects;
    v_scope.clearance := least(v_caller.clearance, 'private'::_memoir.sensitivity);
    v_scope.as_of := p_as_of;
    v_scope.valid_at := p_valid_at;
    select * into v_vector from _memoir.query_vector(v_config, _memoir.named_otherwise(v_user, _memoir.redacted(v_query), v_scope, p_query_embedding), p_query_embedding);
    if v_vector.problem is not null then
      v_warnings := v_warnings || ('searched by words only: ' || v_vector.problem);
    end if;
    v_candidates := _memoir.candidates(v_user, v_config, v_query, v_vector.vector, v_vector.model_id, nullif(v_session.project, 'global'),
      v_scope, _memoir.candidate_limit((v_config ->> 'candidates')::integer, v_recall_budget), (v_config ->> 'frequent_memories')::integer, true);
    if v_session.session_id is not null and not pg_is_in_recovery() then
      v_working := array(select content from _memoir.memory_store_working where user_id = v_user and local_to = v_id
                         and (expires_at is null or expires_at > v_now) and sensitivity <= v_scope.clearance order by recorded_at, memory_id);
    end if;
    v_strength := _memoir.strength(v_config, v_candidates);
    v_weak := coalesce(v_strength < (v_config ->> 'weak_below')::real, false);
    if v_weak then v_recall_budget := least(v_recall_budget, greatest((v_config ->> 'weak_recall_tokens')::integer, (v_recall_budget * v_strength / (v_config ->> 'weak_below')::real)::integer)); end if;
    v_block := _memoir.recall_block(v_user, v_candidates, v_working, v_recall_budget, v_tokenizer,
      array(select message_id from unnest(v_shown)) || array(select message_id from unnest(v_pending)), v_scope.clearance, v_config, v_query, v_weak);
    v_recall := v_block.text;
    v_recall_tokens := v_block.tokens;
    v_arms := jsonb_build_object('recall', 'searched', 'vector', v_vector.vector is not null, 'words', true,
      'candidates', cardinality(v_candidates), 'working', case when not pg_is_in_recovery() then cardinality(v_working) end,
      'strength', v_strength, 'weak', v_weak and coalesce(v_recall, '') <> '');
  end if;
  if v_open and v_kept.recall is null and v_counters.last_role = 'tool' then
    v_warnings := v_warnings || 'the recall of this exchange was not kept and is made anew'::text;
  end if;
  if coalesce(v_recall, '') <> '' then
    -- The block ends with an empty line, where tokens end too, so counts add up; text that begins with white space is counted anew.
    v_last := jsonb_set(v_messages[v_at], '{content}', _memoir.join_content(to_jsonb(v_recall), v_messages[v_at] -> 'content'));
    v_n := v_costs[v_at] + v_recall_tokens;
    if v_query ~ '^\s' then v_n := greatest(v_n, _memoir.message_tokens(v_last, v_tokenizer, v_overhead, v_model.images)); end if;
    if v_total - v_costs[v_at] + v_n <= v_room then
      v_messages[v_at] := v_last;
      v_total := v_total - v_costs[v_at] + v_n;
    else
      v_recall := null; v_recall_tokens := 0;
      v_warnings := v_warnings || 'the recall does not fit'::text;
    end if;
  end if;

  if v_system is not null then
    v_messages := jsonb_build_object('role', 'system', 'content', v_system) || v_messages;
    v_at := v_at + 1;
  end if;
  v_out.user_id := v_user; v_out.session_id := v_id; v_out.at := v_now; v_out.messages := to_jsonb(v_messages);
  v_out.prefix := v_at - 1; v_out.is_open := v_open; v_out.exchange_at := v_exchange_at; v_out.query_hash := v_query_hash;
  v_out.recall := v_recall; v_out.recall_tokens := v_recall_tokens; v_out.recall_budget := v_recall_budget;
  v_out.tokens := v_total + v_system_tokens + v_tools + 3; v_out.budget := v_budget; v_out.system_tokens := v_system_tokens;
  v_out.tools_tokens := v_tools; v_out.tokenizer := v_tokenizer; v_out.model := v_model.model; v_out.task := v_task;
  v_out.warnings := v_warnings; v_out.arms := v_arms || jsonb_build_object('recent', cardinality(v_shown));
  v_out.statistics_version := coalesce((select next_item from _memoir.user_counters where user_id = v_user), 0);
  v_out.shown := v_shown || v_pending; v_out.candidates := v_candidates;
  v_out.places := case when v_recall is not null then v_block.places else array_fill(null::integer, array[cardinality(v_candidates)]) end;
  v_out.reasons := v_block.reasons; v_out.worths := v_block.worths; v_out.fidelities := v_block.fidelities; v_out.texts := v_block.texts;
  v_out.clearance := least(v_caller.clearance, 'private'::_memoir.sensitivity); v_out.projects := v_caller.projects;
  return v_out;
end $$;

create or replace function _memoir.prefix_hash(p_compiled _memoir.compiled)
returns bytea language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  for i in reverse jsonb_array_length(p_compiled.messages) - 1 .. p_compiled.prefix loop p_compiled.messages := p_compiled.messages - i; end loop;
  return sha256(convert_to(case when p_compiled.prefix > 0 then p_compiled.messages::text else '' end, 'UTF8'));
end $$;

create or replace function _memoir.formatted(p_compiled _memoir.compiled, p_format text)
returns jsonb language sql immutable as $$
  select case p_format when 'anthropic' then _memoir.anthropic(p_compiled.messages, p_compiled.prefix, p_compiled.is_open) else p_compiled.messages end
$$;

-- What a compile leaves behind: the recall an exchange began with, and one buffered ledger row. Nothing on a standby, in a
-- read-only transaction, or for a user who has written nothing.
create or replace function _memoir.leave_traces(p_compiled _memoir.compiled)
returns uuid language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_compile uuid := gen_random_uuid();
  v_sample float8;
begin
  if pg_is_in_recovery() or current_setting('transaction_read_only')::boolean or p_compiled.statistics_version = '0' then return v_compile; end if;
  -- A user erased while this was compiled leaves nothing.
  perform _memoir.lock_user(p_compiled.user_id, 'write');
  if not exists (select from _memoir.users where user_id = p_compiled.user_id) then return v_compile; end if;
  if p_compiled.arms ->> 'recall' = 'searched' or not p_compiled.is_open then
    insert into _memoir.kept_recalls (user_id, session_id, at_turn, query_hash, recall, items, recorded_at, clearance, projects)
    values (p_compiled.user_id, p_compiled.session_id, p_compiled.exchange_at, p_compiled.query_hash, coalesce(p_compiled.recall, ''),
      (select coalesce(jsonb_agg(distinct c.ref_id), '[]') from unnest(p_compiled.candidates, p_compiled.places) as c(item_no, kind, ref_id, session_id,
         turn_index, chunk, span_start, span_length, tokens, role, said_at, recorded_at, project, score, words, vector, around, session_score,
         type, memory_parts, is_frequent, reason, place) where c.place is not null), p_compiled.at, p_compiled.clearance, p_compiled.projects)
    on conflict (user_id, session_id) do update set at_turn = excluded.at_turn, query_hash = excluded.query_hash,
      recall = excluded.recall, items = excluded.items, recorded_at = excluded.recorded_at, clearance = excluded.clearance, projects = excluded.projects
    -- Somebody of lower clearance or fewer projects who looks in does not take it from whom it was made for.
    where (kept_recalls.at_turn, kept_recalls.query_hash) <> (excluded.at_turn, excluded.query_hash)
      or kept_recalls.clearance <= excluded.clearance and (excluded.projects is null or kept_recalls.projects <@ excluded.projects);
  end if;
  v_sample := (select (config ->> 'ledger_sample')::float8 from _memoir.settings_merged);
  if v_sample < 1 and random() >= v_sample then return v_compile; end if;
  perform _memoir.buffer_trace(_memoir.trace(p_compiled, v_compile));
  return v_compile;
end $$;

-- What the ledger keeps of a compile.
create or replace function _memoir.trace(p_compiled _memoir.compiled, p_compile uuid)
returns _memoir.compile_ledger language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_trace _memoir.compile_ledger;
begin
  v_trace.user_id := p_compiled.user_id; v_trace.compile_id := p_compile; v_trace.recorded_at := p_compiled.at;
  v_trace.session_id := p_compiled.session_id; v_trace.budget := p_compiled.budget; v_trace.tokens := p_compiled.tokens;
  v_trace.recall_tokens := p_compiled.recall_tokens; v_trace.prefix_hash := _memoir.prefix_hash(p_compiled);
  v_trace.statistics_version := p_compiled.statistics_version; v_trace.warnings := p_compiled.warnings;
  select coalesce(array_agg(c.item_no), '{}'), coalesce(array_agg(c.score), '{}'), coalesce(array_agg(c.words), '{}'), coalesce(array_agg(c.vector), '{}'),
    coalesce(array_agg(c.around), '{}'), coalesce(array_agg(c.session_score), '{}'), coalesce(array_agg(c.tokens), '{}')
  into v_trace.items, v_trace.scores, v_trace.words, v_trace.vectors, v_trace.around, v_trace.session_scores, v_trace.item_tokens
  from unnest(p_compiled.candidates) c;
  v_trace.places := coalesce(p_compiled.places, '{}'); v_trace.reasons := coalesce(p_compiled.reasons, '{}');
  return v_trace;
end $$;

create or replace function _memoir.buffer_trace(p_trace _memoir.compile_ledger)
returns void language plpgsql set plan_cache_mode = force_generic_plan as $$
begin
  insert into _memoir.compile_buffer (user_id, compile_id, recorded_at, session_id, budget, tokens, recall_tokens, prefix_hash, statistics_version,
    warnings, items, scores, words, vectors, around, session_scores, item_tokens, places, reasons, used)
  select (p_trace).*;
end $$;

create or replace function memoir.compile_context(p_user text, p_session text, p_query text default null, p_budget integer default null,
  p_memory_budget integer default null, p_task text default null, p_tools jsonb default null, p_query_embedding real[] default null,
  p_query_parts jsonb default null, p_as_of timestamptz default null, p_valid_at timestamptz default null,
  p_format text default 'openai', p_after_turn text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_compiled _memoir.compiled := _memoir.compile(p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools,
    p_query_embedding, p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
begin
  perform _memoir.leave_traces(v_compiled);
  return _memoir.formatted(v_compiled, p_format);
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
  v _memoir.compiled := _memoir.compile(p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools, p_query_embedding,
    p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  v_compile uuid := _memoir.leave_traces(v);
begin
  return jsonb_build_object('messages', _memoir.formatted(v, p_format), 'compile_id', v_compile, 'tokens', v.tokens, 'budget', v.budget,
    'system_tokens', v.system_tokens, 'tools_tokens', v.tools_tokens, 'recall_tokens', v.recall_tokens, 'recall_budget', v.recall_budget,
    'prefix_messages', v.prefix, 'prefix_hash', encode(_memoir.prefix_hash(v), 'hex'), 'tokenizer', v.tokenizer, 'model', v.model,
    'format', p_format, 'task', v.task, 'warnings', to_jsonb(v.warnings), 'weak', coalesce((v.arms ->> 'weak')::boolean, false), 'arms', v.arms, 'statistics_version', v.statistics_version,
    'turns', (select coalesce(jsonb_agg(t.turn_index order by t.turn_index), '[]') from unnest(v.shown) t),
    'items', (select coalesce(jsonb_agg(c.ref_id order by c.place), '[]') from unnest(v.candidates, v.places) as c(item_no, kind, ref_id, session_id,
       turn_index, chunk, span_start, span_length, tokens, role, said_at, recorded_at, project, score, words, vector, around, session_score,
       type, memory_parts, is_frequent, reason, place) where c.place is not null))
    || case when pg_is_in_recovery() then jsonb_build_object('report', to_jsonb(_memoir.trace(v, v_compile))) else '{}' end;
end $$;
comment on function memoir.context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz, timestamptz, text, text) is
  'As compile_context, with what is known about it: {"messages", "compile_id", "tokens", "budget", "recall_tokens",
"prefix_messages", "prefix_hash" (of the messages before the one that carries the recall), "tokenizer", "items" (ids of what was
recalled), "turns" (indexes shown), "arms" ("working" is null on a standby, which has no working memory), "warnings", "task",
"statistics_version"}, and on a standby "report": what report_context on the primary makes the ledger and the statistics of.';

create or replace function memoir.report_context(p_user text, p_report jsonb)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_trace _memoir.compile_ledger; v_count integer;
begin
  begin
    v_trace := jsonb_populate_record(null::_memoir.compile_ledger, p_report);
  exception when data_exception or invalid_parameter_value then
    perform _memoir.fail('PM014', format('report is not what context returned: %s', sqlerrm));
  end;
  v_trace.used := null;  -- credit_recall says that
  v_count := cardinality(v_trace.items);
  if v_trace.user_id is distinct from v_caller.user_id or v_trace.recorded_at is null or v_trace.recorded_at not between memoir.now() - interval '7 days' and memoir.now() + interval '1 minute'
     or array[cardinality(v_trace.scores), cardinality(v_trace.words), cardinality(v_trace.vectors), cardinality(v_trace.around), cardinality(v_trace.session_scores),
              cardinality(v_trace.item_tokens), cardinality(v_trace.places), cardinality(v_trace.reasons)] is distinct from array_fill(v_count, array[8])
     or num_nulls(v_trace.compile_id, v_trace.session_id, v_trace.budget, v_trace.tokens, v_trace.recall_tokens, v_trace.prefix_hash, v_trace.statistics_version, v_trace.warnings) > 0 then
    perform _memoir.fail('PM014', format('report is not what context returned for user %s within the last 7 days: %s', _memoir.shown(p_user), _memoir.shown(p_report::text)));
  end if;
  if v_caller.projects is not null and exists (select from _memoir.search_items i
      where i.user_id = v_caller.user_id and i.item_no = any (v_trace.items) and i.project <> all (v_caller.projects)) then
    perform _memoir.fail('PM014', format('report for user %s names items that login %s did not see', _memoir.shown(p_user), quote_ident(v_caller.login)));
  end if;
  perform _memoir.lock_user(v_caller.user_id, 'write');
  if not exists (select from _memoir.users where user_id = v_caller.user_id)
     or exists (select from _memoir.compile_buffer where compile_id = v_trace.compile_id)
     or exists (select from _memoir.compile_ledger where user_id = v_caller.user_id and compile_id = v_trace.compile_id and recorded_at = v_trace.recorded_at) then
    return false;
  end if;
  perform _memoir.buffer_trace(v_trace);
  return true;
end $$;
comment on function memoir.report_context(text, jsonb) is
  'Tells the primary of a compile that a standby made: p_report is "report" of what context returned there. True when it was taken,
false when it is known already. Writes the unlogged buffer of statistics. Raises PM001, PM014.';
