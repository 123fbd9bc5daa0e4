-- explain_context: every considered item of a compile, why it is in or out.

create or replace function memoir.explain_context(p_user text, p_session text, p_query text default null,
  p_budget integer default null,
  p_memory_budget integer default null, p_task text default null, p_tools jsonb default null,
    p_query_embedding real[] default null,
  p_query_parts jsonb default null, p_as_of timestamptz default null, p_valid_at timestamptz default null,
  p_format text default 'openai', p_after_turn text default null)
returns table ("position" integer, kind text, id uuid, session text, turn_index integer, chunk integer, arms text[],
  score real, parts jsonb,
  words_rank integer, vector_rank integer, tokens integer, fidelity text, included boolean, reason text, content text)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v _memoir.compile_state := _memoir.compile(p_user, p_session, p_query, p_budget, p_memory_budget, p_task, p_tools,
    p_query_embedding,
    p_query_parts, p_as_of, p_valid_at, p_format, p_after_turn);
  v_shown uuid[] := _memoir.message_ids(v.shown, v.reduced);
begin
  return query
  select (row_number() over (order by t.turn_index))::integer, 'turn'::text, t.message_id, p_session, t.turn_index, 0,
    '{recent}'::text[], null::real,
    null::jsonb, null::integer, null::integer, t.cost, case when t.excerpt then 'excerpt' when t.fidelity > 0
      then (array['detailed', 'compact', 'stub'])[t.fidelity] else 'full' end, true, t.why, left(t.content, 200)
  from unnest(v.shown) t order by t.turn_index;
  -- Turns of the session that stand as lines, or that the list only names.
  return query
  select null::integer, 'turn'::text, h.message_id, p_session, h.turn_index, 0, '{recent}'::text[], null::real,
    null::jsonb, null::integer, null::integer, h.token_count, case when h.turn_index >= (v.frame).first_turn
      then 'line' else 'not shown' end, h.turn_index >= (v.frame).first_turn,
    case when h.turn_index >= (v.frame).first_turn then 'an earlier step' else 'left the list, which says so' end,
    left(h.content, 200)
  from _memoir.lineage(v.session) l
  join _memoir.session_counters c on c.user_id = v.user_id and c.session_id = l.session_id
  join _memoir.conversation_history h on h.user_id = v.user_id and h.session_id = l.session_id
    and h.recorded_at between c.first_recorded_at and c.last_recorded_at
    and h.turn_index between greatest(l.from_turn, (v.frame).summary_through + 1)
    and least(l.to_turn, (v.frame).lines_through)
    and _memoir.sensitivity_now(h.sensitivity, h.turn_index, _memoir.marks(h.user_id, h.session_id)) <= v.clearance
  where (v.frame).user_id is not null and h.message_id <> all (v_shown) order by h.turn_index;
  return query
  with items as (
    select c.*, row_number() over () as o, case when c.position is null then _memoir.left_out(c, v.recall_budget,
      v_shown) end as why
    from unnest(v.candidates) c
  ), texts as (
    select * from _memoir.item_texts(v.user_id, array(select i.item_no from items i), v.clearance)
  )
  select i.position, case i.kind when 't' then 'turn' when 'm' then 'memory' else 'summary' end, i.ref_id,
    s.external_id, i.turn_index, i.chunk::integer,
    array_remove(array[case when i.words > 0 then 'words' end, case when i.vector is not null then 'vector' end, case
      when i.memory_parts ? 'pinned' then 'pinned' when i.memory_parts ? 'standing'
      then 'standing' when i.is_frequent then 'frequent'
      when i.memory_parts ? 'related' then 'related'
      when i.kind = 't' and i.score = 0 and i.around = 0 and i.words = 0 and i.vector is null then 'change'
      when i.words = 0 and i.vector is null then 'neighbour' end], null),
    i.score, coalesce(i.memory_parts, '{}') || jsonb_build_object('words', i.words, 'vector', i.vector, 'around',
      i.around, 'session', i.session_score,
      'worth', i.worth, 'strength', v.arms -> 'strength')
      || case when v.arms ? 'breadth' then jsonb_build_object('breadth', v.arms -> 'breadth') else '{}' end,
    case when i.words > 0 then (rank() over (order by i.words desc))::integer end,
    case when i.vector is not null then (rank() over (order by i.vector desc nulls last))::integer end,
    case when i.shown is null then i.tokens else _memoir.tokens_of(i.shown, v.tokenizer) end, case
    when i.position is not null then i.fidelity end, i.position is not null,
    i.why, left(coalesce(t.name || ': ', '') || coalesce(i.shown, t.body), 200)
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
