-- compile is STABLE, so all of it reads one snapshot: a compaction that commits meanwhile can't lose turns. The public
-- functions are thin writers around it: they leave statistics in an unlogged buffer, and nothing at all on a standby.

-- A compile is a list of stages over one row of state: each takes it, fills in its part, and hands it on. They all plan
-- their statements for the user at hand, as setup.sql sets for every door that names a user. Functions that compute set
-- another plan_cache_mode.
create or replace function _memoir.compile(inout v _memoir.compile_state, p_user text, p_session text, p_query text,
  p_budget integer, p_memory_budget integer, p_task text, p_tools jsonb, p_query_embedding real[],
  p_query_parts jsonb, p_as_of timestamptz, p_valid_at timestamptz, p_format text, p_after_turn text)
language plpgsql stable as $$
begin
  v.caller := _memoir.authorise(p_user, 'read');
  perform _memoir.check_choice('format', p_format, '{openai,anthropic}'),
    _memoir.check_range('budget', p_budget, 1, 2147483647),
    _memoir.check_range('memory_budget', p_memory_budget, 0, 2147483647);
  if p_task is not null then
    perform _memoir.check_choice('task', p_task, enum_range(null::_memoir.task_type)::text[]);
  end if;
  perform _memoir.refuse_value(p_tools is not null and jsonb_typeof(p_tools) not in ('array', 'null'), 'tools', p_tools,
    'a list of tool definitions');
  v.at := memoir.now();
  v.as_of := p_as_of;
  v.valid_at := p_valid_at;
  v.warnings := '{}';
  v := _memoir.with_session(v, p_session, p_after_turn);
  v := _memoir.with_budget(v, p_budget, p_tools);
  v := _memoir.with_newest_message(v, p_query, p_query_parts);
  if not v.is_open then v.query := (_memoir.read_question(v.query, v.config, p_query_embedding, true)).query; end if;
  v := _memoir.with_system_message(v);
  v := _memoir.with_shown_turns(v);
  v := _memoir.with_messages(v);
  v := _memoir.with_recall(v, p_task, p_memory_budget, p_query_embedding);
  v := _memoir.assembled(v);
end $$;

-- Compiles, and once more where the session's past may be shown otherwise from now on: that is written first. Checks
-- the cost limits: above one there is a warning; where budget_action is refuse, nothing more is compiled.
create or replace function _memoir.compile_at_moment(p_user text, p_session text, p_query text, p_budget integer,
  p_memory_budget integer, p_task text, p_tools jsonb, p_query_embedding real[], p_query_parts jsonb,
  p_as_of timestamptz, p_valid_at timestamptz, p_format text, p_after_turn text)
returns _memoir.compile_state language plpgsql as $$
declare
  v _memoir.compile_state := _memoir.compile(null, p_user, p_session, p_query, p_budget, p_memory_budget, p_task,
    p_tools, p_query_embedding, p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  v_what text; v_spent bigint; v_limit bigint;
begin
  if v.moment is not null and not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean then
    perform _memoir.move_window(v.session, v.counters, v.config, v.frame, _memoir.session_past(v.session, v.counters,
      v.frame, v.config, v.history_budget, (v.model).message_overhead), v.moment, v.at, v.tokenizer,
      v.system_tokens + v.tools_tokens);
    v := _memoir.compile(null, p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools,
      p_query_embedding, p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  end if;
  foreach v_what in array '{session,user}'::text[] loop
    v_limit := (v.config ->> ('budget_microcents_' || v_what))::bigint;
    v_spent := coalesce(case v_what when 'session' then (v.counters).cost_microcents
      else (v.user_counters).cost_microcents end, 0);
    if v_limit > 0 and v_spent >= v_limit and v.config ->> 'budget_action' = 'refuse' then
      perform _memoir.fail('PM023', format('%s %s has cost %s microcents, its budget is %s', v_what,
        _memoir.shown(case v_what when 'session' then v.session_name else p_user end), v_spent, v_limit),
        format('raise budget_microcents_%s, or set budget_action to warn', v_what));
    end if;
    v.warnings := v.warnings || case when v_limit > 0 and v_spent > v_limit
      then array[_memoir.over_budget(v_what, v_spent, v.config) ->> 0] else '{}' end;
  end loop;
  return v;
end $$;

create or replace function memoir.compile_context(p_user text, p_session text, p_query text default null,
  p_budget integer default null, p_memory_budget integer default null, p_task text default null,
  p_tools jsonb default null, p_query_embedding real[] default null, p_query_parts jsonb default null,
  p_as_of timestamptz default null, p_valid_at timestamptz default null, p_format text default 'openai',
  p_after_turn text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v _memoir.compile_state := _memoir.compile_at_moment(p_user, p_session, p_query, p_budget, p_memory_budget, p_task,
    p_tools, p_query_embedding, p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
begin
  -- In an expression: the plan of a statement would copy the state.
  return case when _memoir.leave_traces(v) is not null
    then _memoir.formatted(v.messages, v.prefix, v.is_open, p_format, v.frozen) end;
end $$;
comment on function memoir.compile_context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz,
  timestamptz, text, text) is
  'The list to send to the model: OpenAI chat messages as an array, or {"system", "messages"} with p_format =>
''anthropic''. p_query null continues an open exchange. p_budget: tokens of the whole list (default: window less
response). p_memory_budget: tokens of the recall block. p_query_embedding: vector of the active embedding model.
p_query_parts: multimodal content. p_as_of: what was known then; p_valid_at: what was true then. p_after_turn: mark of
persist_turn that this server must have reached. Never over the budget. Where budget_action is refuse, a session or user
at its cost limit gets none. Writes unlogged statistics only. Raises PM001, PM010, PM014, PM020 to PM023, PM030.';

create or replace function memoir.context(p_user text, p_session text, p_query text default null,
  p_budget integer default null, p_memory_budget integer default null, p_task text default null,
  p_tools jsonb default null, p_query_embedding real[] default null, p_query_parts jsonb default null,
  p_as_of timestamptz default null, p_valid_at timestamptz default null, p_format text default 'openai',
  p_after_turn text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v _memoir.compile_state := _memoir.compile_at_moment(p_user, p_session, p_query, p_budget, p_memory_budget, p_task,
    p_tools, p_query_embedding, p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  v_compile uuid := _memoir.leave_traces(v);
begin
  return jsonb_build_object('messages', _memoir.formatted(v.messages, v.prefix, v.is_open, p_format, v.frozen),
    'compile_id', v_compile, 'tokens', v.tokens, 'budget', v.budget, 'system_tokens', v.system_tokens, 'tools_tokens',
    v.tools_tokens, 'recall_tokens', v.recall_tokens, 'recall_budget', v.recall_budget, 'prefix_messages', v.prefix,
    'prefix_hash', encode(_memoir.prefix_hash(v.messages, v.prefix), 'hex'), 'tokenizer', v.tokenizer, 'model',
    (v.model).model, 'format', p_format, 'task', v.task, 'warnings', to_jsonb(v.warnings), 'weak',
    coalesce((v.arms ->> 'weak')::boolean, false), 'arms', v.arms, 'statistics_version', v.statistics_version, 'turns',
    (select coalesce(jsonb_agg(t.turn_index order by t.turn_index), '[]') from unnest(v.shown) t), 'items',
    coalesce(v.recalled -> 'shown', '[]'))
    || jsonb_strip_nulls(jsonb_build_object('temperature', (v.session).temperature, 'top_p', (v.session).top_p))
    || case when pg_is_in_recovery() then jsonb_build_object('report', to_jsonb(_memoir.trace(v, v_compile)))
      else '{}' end;
end $$;
comment on function memoir.context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz,
  timestamptz, text, text) is
  'Compiles like compile_context, and returns details: {"messages", "compile_id", "tokens", "budget", "system_tokens",
"tools_tokens", "recall_tokens", "recall_budget", "prefix_messages", "prefix_hash" (of the messages before the one
that carries the recall), "tokenizer", "model", "format", "task", "items" (ids of what was recalled, and of its
spaces), "turns" (indexes shown), "weak" (nothing matches well), "arms" ("recall": searched, kept since the exchange
began, or small talk, for which nothing is searched; "working" is null on a standby, which has no working memory;
"breadth" of a broad question: order, summary, several, even), "warnings", "statistics_version"}, "temperature" and
"top_p" where open_session was given them, and on a standby "report": what report_context on the primary makes the
ledger and the statistics of.';

create or replace function memoir.explain_context(p_user text, p_session text, p_query text default null,
  p_budget integer default null, p_memory_budget integer default null, p_task text default null,
  p_tools jsonb default null, p_query_embedding real[] default null, p_query_parts jsonb default null,
  p_as_of timestamptz default null, p_valid_at timestamptz default null, p_format text default 'openai',
  p_after_turn text default null)
returns table ("position" integer, kind text, id uuid, session text, turn_index integer, chunk integer, arms text[],
  score real, parts jsonb, words_rank integer, vector_rank integer, tokens integer, fidelity text, included boolean,
  reason text, content text)
language plpgsql stable security definer set search_path from current as $$
declare
  v _memoir.compile_state; v_shown uuid[];
begin
  v.explained := true;
  v := _memoir.compile(v, p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools, p_query_embedding,
    p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  v_shown := _memoir.message_ids(v.shown, v.reduced);
  return query
  select (row_number() over (order by t.turn_index))::integer, 'turn'::text, t.message_id, p_session, t.turn_index, 0,
    '{recent}'::text[], null::real,
    null::jsonb, null::integer, null::integer, t.cost, case when t.excerpt then 'excerpt' when t.fidelity > 0
      then (array['detailed', 'compact', 'stub'])[t.fidelity] else 'full' end, true, t.why, left(t.content, 200)
  from unnest(v.shown) t order by t.turn_index;
  if (v.frame).user_id is not null then
    return query
    select null::integer, 'turn'::text, h.message_id, p_session, h.turn_index, 0, '{recent}'::text[], null::real,
      null::jsonb, null::integer, null::integer, h.token_count, case when h.turn_index >= (v.frame).first_turn
        then 'line' else 'not shown' end, h.turn_index >= (v.frame).first_turn,
      case when h.turn_index >= (v.frame).first_turn then 'an earlier step' else 'left the list, which says so' end,
      left(h.content, 200)
    from _memoir.lineage(v.session) l
    join _memoir.conversation_history h on h.user_id = v.user_id and h.session_id = l.session_id
      and h.recorded_at between l.since and l.until
      and h.turn_index between greatest(l.from_turn, (v.frame).summary_through + 1)
      and least(l.to_turn, (v.frame).lines_through)
      and _memoir.sensitivity_now(h.sensitivity, h.turn_index, _memoir.marks(h.user_id, h.session_id)) <= v.clearance
    where h.message_id <> all (v_shown) order by h.turn_index;
  end if;
  return query
  with items as (
    select i.*, r.ordinality as o from jsonb_array_elements(v.rows) with ordinality r, jsonb_to_record(r.value) i(
      item_no integer, kind text, ref_id uuid, session_id uuid, turn_index integer, chunk integer, arms text[],
      score real, parts jsonb, words_rank integer, vector_rank integer, tokens integer, "position" integer,
      fidelity text, shown text, reason text)
  ), texts as (select * from _memoir.item_texts(v.user_id, array(select i.item_no from items i), v.clearance)
  )
  select i.position, i.kind, i.ref_id, s.external_id, i.turn_index, i.chunk, i.arms, i.score, i.parts
      || jsonb_build_object('strength', v.arms -> 'strength')
      || case when v.arms ? 'breadth' then jsonb_build_object('breadth', v.arms -> 'breadth') else '{}' end,
    i.words_rank, i.vector_rank,
    case when i.shown is null then i.tokens else _memoir.tokens_of(i.shown, v.tokenizer) end, i.fidelity,
    i.position is not null, i.reason, left(coalesce(t.name || ': ', '') || coalesce(i.shown, t.body), 200)
  from items i left join texts t on t.item_no = i.item_no
  left join _memoir.sessions s on s.user_id = v.user_id and s.session_id = i.session_id
  order by i.position nulls last, i.o;
end $$;
comment on function memoir.explain_context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz,
  timestamptz, text, text) is
  'One row per considered item of the same compile: recent turns, then candidates with their arms, score parts, rank by
words and by vector, tokens, fidelity (full, excerpt, detailed, compact, stub; of turns also line and not shown),
position in the recall (in order of choice) or the reason for being left out, and the beginning of what is shown.
parts.breadth: of which shape a broad question is. Writes nothing.';
