-- The window: which turns of the session are shown, and from where the prefix is stable.
--
-- The first shown turn moves in steps of history budget / window_steps, derived from the turns' running totals: between two
-- steps every compile of the session begins with the same bytes, and nothing has to be stored for it.

-- Whether the newest message is what that turn says already; a withheld one is compared as it was said.
create or replace function _memoir.is_said(p_session _memoir.sessions, p_turn _memoir.shown_turn, p_message _memoir.message)
returns boolean language plpgsql stable as $$
declare
  v_turn _memoir.conversation_history;
begin
  if p_turn.withheld then
    v_turn := _memoir.turn_seen(p_session, p_turn.turn_index);
    return v_turn.content is not distinct from p_message.text and v_turn.content_parts is not distinct from p_message.parts;
  end if;
  return p_turn.content is not distinct from p_message.text and p_turn.parts is not distinct from p_message.parts;
end $$;

-- The session's counters as they were: what came later does not exist yet.
create or replace function _memoir.counters_as_of(p_session _memoir.sessions, p_counters _memoir.session_counters, p_as_of timestamptz)
returns _memoir.session_counters language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_counters _memoir.session_counters := p_counters; v_next _memoir.conversation_history; v_part record;
  v_user uuid := p_session.user_id; v_from timestamptz;
begin
  for v_part in select * from _memoir.lineage(p_session) order by from_turn desc loop
    select first_recorded_at into v_from from _memoir.session_counters where user_id = v_user and session_id = v_part.session_id;
    select * into v_next from _memoir.conversation_history h
    where h.user_id = v_user and h.session_id = v_part.session_id and h.recorded_at between v_from and p_as_of
      and h.turn_index between v_part.from_turn and v_part.to_turn order by h.turn_index desc limit 1;
    exit when found;
  end loop;
  v_counters.turn_count := coalesce(v_next.turn_index + 1, 0);
  v_counters.tokens := coalesce(v_next.tokens_before + v_next.token_count, 0);
  v_counters.exchange_start := coalesce(v_next.exchange_start, v_counters.turn_count);
  v_counters.last_role := v_next.role;
  v_counters.open_calls := '{}';
  v_counters.last_recorded_at := p_as_of;
  return v_counters;
end $$;

-- What a tool result that is too long looks like: its head and tail, and a line that says what is missing and where it is.
create or replace function _memoir.excerpt(p_turn _memoir.shown_turn, p_tokens integer, p_tokenizer text, p_overhead integer)
returns _memoir.shown_turn language plpgsql stable as $$
declare
  v_turn _memoir.shown_turn := p_turn;
  v_source text := coalesce(p_turn.content, '');
  v_length integer := length(v_source); v_keep integer; v_tries integer := 0; v_cost integer := p_turn.cost;
begin
  v_keep := (v_length::bigint * greatest(p_tokens - 40, 0) / greatest(p_turn.cost, 1) * 9 / 10)::integer;
  loop
    v_turn.content := left(v_source, v_keep * 2 / 3)
      || format(E'\n[excerpt: %s of %s characters left out, turn %s]\n', v_length - v_keep, v_length, p_turn.turn_index)
      || case when v_keep >= 3 then right(v_source, v_keep / 3) else '' end;
    v_turn.parts := null;
    v_cost := p_overhead + _memoir.sum_tokens(_memoir.token_texts(v_turn.content, null, v_turn.name, v_turn.tool_calls, v_turn.tool_call_id), p_tokenizer);
    exit when v_cost <= p_tokens or v_keep = 0;
    v_tries := v_tries + 1;
    v_keep := case when v_tries > 6 then 0 else (v_keep::bigint * p_tokens / v_cost * 9 / 10)::integer end;
  end loop;
  -- What the line takes can be more than it saves.
  if v_cost >= p_turn.cost then return p_turn; end if;
  v_turn.cost := v_cost;
  v_turn.excerpt := true;
  return v_turn;
end $$;

-- p_budget: what history may take, p_limit: what it may take at most, mandatory turns included; tokens with overhead.
-- p_open: the list must end with the open exchange. Returns turns oldest first.
create or replace function _memoir.window(p_session _memoir.sessions, p_counters _memoir.session_counters, p_config jsonb,
  p_overhead integer, p_tokenizer text, p_budget integer, p_limit integer, p_open boolean, p_images text, p_clearance _memoir.sensitivity)
returns _memoir.shown_window language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_window _memoir.shown_window; v_turn _memoir.shown_turn; v_row _memoir.conversation_history; v_part record;
  v_user uuid := p_session.user_id;
  v_step bigint := greatest(1, p_budget / (p_config ->> 'window_steps')::integer);
  v_cap integer := greatest(64, ((p_config ->> 'tool_result_share')::real * p_budget)::integer);
  v_first integer := coalesce(p_session.summary_through + 1, 0);
  v_exchange integer := p_counters.exchange_start;
  v_base bigint := 0; v_total bigint; v_threshold bigint; v_from timestamptz; v_to timestamptz; v_done boolean := false;
  v_turns _memoir.shown_turn[] := '{}';   -- newest first while collecting
  v_head _memoir.shown_turn[]; v_start integer; v_tokens integer; v_hash bytea := p_session.system_prompt_hash;
  i integer; v_results integer; v_rest integer; v_count integer; v_last integer; v_marks jsonb; v_withheld boolean;
begin
  v_window.turns := '{}'; v_window.tokens := 0; v_window.moved := false; v_window.warnings := '{}';
  if p_counters.turn_count is null or p_counters.turn_count = 0 then return v_window; end if;
  if v_first > 0 then
    v_base := coalesce(_memoir.tokens_before(p_session, v_first), p_counters.tokens);
  end if;
  v_total := p_counters.tokens - v_base;
  v_threshold := case when v_total <= p_budget then v_base
    else v_base + ((v_total - p_budget + v_step - 1) / v_step) * v_step end;

  -- Newest first, and only as far back as the window reaches.
  for v_part in select * from _memoir.lineage(p_session) order by from_turn desc loop
    exit when v_done;
    v_marks := _memoir.marks(v_user, v_part.session_id);
    if v_part.session_id = p_session.session_id then
      v_from := p_counters.first_recorded_at; v_to := p_counters.last_recorded_at;
    else
      select first_recorded_at, last_recorded_at into v_from, v_to
      from _memoir.session_counters where user_id = v_user and session_id = v_part.session_id;
    end if;
    for v_row in select * from _memoir.conversation_history h
      where h.user_id = v_user and h.session_id = v_part.session_id and h.recorded_at between v_from and v_to
        and h.turn_index between greatest(v_part.from_turn, v_first) and least(v_part.to_turn, p_counters.turn_count - 1)
      order by h.turn_index desc
    loop
      if v_row.tokens_before < v_threshold and v_row.turn_index < v_exchange then v_done := true; exit; end if;
      -- Of a last exchange that began before the window, the opening words are kept and the middle is not.
      continue when v_row.tokens_before < v_threshold and v_row.role not in ('user', 'system')
        and not (p_open and v_row.role in ('assistant', 'tool') and v_turns <> '{}' and (v_turns[cardinality(v_turns)]).role = 'tool')
        and not (p_open and v_turns = '{}');
      continue when v_row.role = 'system' and v_hash is not null and sha256(convert_to(v_row.content, 'UTF8')) = v_hash;
      v_withheld := case when v_marks is null then v_row.sensitivity else _memoir.now_held(v_row.sensitivity, v_row.turn_index, v_marks) end > p_clearance;
      if v_withheld then v_row := _memoir.withheld(v_row); end if;
      v_turn := (v_row.turn_index, v_row.exchange_start, v_row.message_id, v_row.role, v_row.content, v_row.content_parts, v_row.name,
        v_row.tool_calls, v_row.tool_call_id, v_row.tokens_before, v_row.token_count + p_overhead, false, v_row.created_at, v_withheld);
      if v_withheld or v_row.tokenizer <> p_tokenizer then
        v_turn.cost := p_overhead + _memoir.sum_tokens(_memoir.token_texts(v_row.content, v_row.content_parts, v_row.name, v_row.tool_calls, v_row.tool_call_id), p_tokenizer)
          + coalesce((select sum(_memoir.image_tokens(p, p_images)) from jsonb_array_elements(v_row.content_parts) p where p ->> 'type' = 'image_url'), 0);
      end if;
      if v_turn.role = 'tool' and v_turn.cost > v_cap + p_overhead then
        v_turn := _memoir.excerpt(v_turn, v_cap + p_overhead, p_tokenizer, p_overhead);
      end if;
      v_turns := v_turns || v_turn;
    end loop;
  end loop;

  -- Oldest first from here; an unanswered tool call and its partial results can't be shown before a new query.
  v_count := cardinality(v_turns);
  v_turns := coalesce((select array_agg(t order by t.turn_index) from unnest(v_turns) t), '{}');
  if p_counters.open_calls <> '{}' then
    while v_count > 0 and (v_turns[v_count]).role = 'tool' loop v_count := v_count - 1; end loop;
    v_turns := v_turns[1 : v_count - 1];
    v_window.warnings := v_window.warnings || format('tool calls %s have no result yet and are left out', array_to_string(p_counters.open_calls, ', '));
  end if;

  -- From the first whole exchange at or after the threshold; where the last exchange is longer than that, its opening and the
  -- first whole step after the threshold. Steps further while it does not fit.
  loop
    v_count := cardinality(v_turns);
    v_start := null;
    for i in 1 .. v_count loop
      if (v_turns[i]).turn_index = (v_turns[i]).exchange_start and (v_turns[i]).tokens_before >= v_threshold
         and (v_turns[i]).role in ('user', 'system') then
        v_start := i; exit;
      end if;
    end loop;
    if v_start is not null then
      v_window.turns := v_turns[v_start : v_count];
    else
      v_head := '{}'; v_last := null;
      for i in 1 .. v_count loop
        if (v_turns[i]).turn_index >= v_exchange and (v_turns[i]).role in ('user', 'system') and (v_last is null or v_last = i - 1) then
          v_head := v_head || v_turns[i]; v_last := i;
        elsif v_last is not null and (v_turns[i]).turn_index >= v_exchange and (v_turns[i]).tokens_before >= v_threshold
              and (v_turns[i]).role <> 'tool' then
          v_start := i; exit;
        end if;
      end loop;
      if v_start is null and p_open then
        -- The last step: the newest assistant message and what follows it.
        for i in 1 .. v_count loop
          if v_last is not null and i > v_last and (v_turns[i]).role = 'assistant' then v_start := i; end if;
        end loop;
      end if;
      if v_start is null then
        v_window.turns := case when p_open then v_head else '{}' end;
      else
        v_window.turns := v_head || v_turns[v_start : v_count];
        if (v_turns[v_start]).turn_index > (v_head[cardinality(v_head)]).turn_index + 1 then
          v_window.warnings := array_append(array_remove(v_window.warnings, 'the middle of the last exchange is left out'), 'the middle of the last exchange is left out');
        end if;
      end if;
    end if;
    select coalesce(sum(cost), 0) into v_tokens from unnest(v_window.turns);
    exit when v_tokens <= p_limit or v_threshold >= p_counters.tokens;
    v_threshold := least(p_counters.tokens, v_threshold + v_step);
    v_window.moved := true;
  end loop;

  if v_tokens > p_limit then
    if not p_open then
      v_window.turns := '{}'; v_tokens := 0;
    else
      -- What must be shown does not fit: its tool results share what is left.
      select count(*) filter (where role = 'tool'), coalesce(sum(cost) filter (where role <> 'tool'), 0) into v_results, v_rest from unnest(v_window.turns);
      if v_results > 0 then
        for i in 1 .. cardinality(v_window.turns) loop
          if (v_window.turns[i]).role = 'tool' and (v_window.turns[i]).cost > (p_limit - v_rest) / v_results then
            v_window.turns[i] := _memoir.excerpt(v_window.turns[i], greatest(0, (p_limit - v_rest) / v_results), p_tokenizer, p_overhead);
          end if;
        end loop;
        select coalesce(sum(cost), 0) into v_tokens from unnest(v_window.turns);
      end if;
    end if;
  end if;
  if exists (select from unnest(v_window.turns) where excerpt) then
    v_window.warnings := v_window.warnings || 'a long tool result is shown as an excerpt'::text;
  end if;
  v_window.tokens := v_tokens;
  return v_window;
end $$;
