-- The window: which turns of the session are shown, and from where the prefix is stable.
-- The first shown turn moves in steps of history budget / window_steps, derived from the turns' running totals: between
-- two steps every compile of the session begins with the same bytes, and nothing has to be stored for it.

-- Returns what a tool result that is too long looks like: head, tail, and a line that says what is missing and where.
create or replace function _memoir.excerpt(p_turn _memoir.shown_turn, p_tokens integer, p_tokenizer text,
  p_overhead integer)
returns _memoir.shown_turn language plpgsql stable as $$
declare
  v_turn _memoir.shown_turn := p_turn; v_source text := coalesce(p_turn.content, '');
  v_length integer := length(v_source); v_keep integer; v_tries integer := 0; v_cost integer := p_turn.cost;
begin
  v_keep := (v_length::bigint * greatest(p_tokens - 40, 0) / greatest(p_turn.cost, 1) * 9 / 10)::integer;
  loop
    v_turn.content := left(v_source, v_keep * 2 / 3)
      || format(E'\n[excerpt: %s of %s characters left out, turn %s]\n', v_length - v_keep, v_length, p_turn.turn_index)
      || case when v_keep >= 3 then right(v_source, v_keep / 3) else '' end;
    v_turn.parts := null;
    v_cost := p_overhead + _memoir.sum_of(_memoir.count_tokens(_memoir.token_texts(v_turn.content, null, v_turn.name,
      v_turn.tool_calls, v_turn.tool_call_id), p_tokenizer));
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
-- Where the list is open it must end with the open exchange. Returns turns oldest first.
create or replace function _memoir.window(v _memoir.compile_state, p_budget integer, p_limit integer)
returns _memoir.shown_window language plpgsql stable as $$
declare
  v_counters _memoir.session_counters := v.counters;
  v_window _memoir.shown_window; v_turns _memoir.shown_turn[]; v_found record; v_is_cut boolean := false;
  v_step bigint := greatest(1, p_budget / (v.config ->> 'window_steps')::integer);
  v_cap integer := greatest(64, ((v.config ->> 'tool_result_share')::real * p_budget)::integer);
  v_first integer := coalesce((v.session).summary_through + 1, 0); v_threshold bigint := 0; v_total bigint;
  v_row _memoir.conversation_history; v_part record; v_session _memoir.sessions := v.session; v_from integer;
  v_model _memoir.models := v.model; v_most integer := v_cap + v_model.message_overhead; v_last integer;
  v_user uuid := v.user_id; v_to timestamptz; v_marks jsonb; v_clearance _memoir.sensitivity := (v.caller).clearance;
begin
  v_window.warnings := '{}';
  if v_first > 0 then v_threshold := coalesce(_memoir.tokens_before(v.session, v_first), v_counters.tokens); end if;
  v_total := v_counters.tokens - v_threshold;
  if v_total > p_budget then
    v_threshold := v_threshold + ((v_total - p_budget + v_step - 1) / v_step) * v_step;
  end if;
  -- The turns from there on, and the last exchange whatever its length: of one that began before it, the opening words
  -- are kept without the middle. Read newest first, back to the window's start.
  v_turns := '{}';
  <<parts>>
  -- Most sessions are no branches, and their counters say when they began.
  for v_part in
    select v_session.session_id, 0 as from_turn, 2147483646 as to_turn, v_counters.first_recorded_at as since,
      v_counters.last_recorded_at as until where v_session.parent_turn is null
    union all select l.* from _memoir.lineage(v_session) l where v_session.parent_turn is not null
    order by from_turn desc loop
    v_marks := case when 'marks' = any ((v.user_counters).features)
      then _memoir.marks(v_user, v_part.session_id) end;
    -- The counters may be those of an earlier time.
    v_to := least(v_part.until, v_counters.last_recorded_at);
    v_from := greatest(v_part.from_turn, v_first);
    v_last := least(v_part.to_turn, v_counters.turn_count - 1);
    -- Plain ones, which most are, without a call for each.
    v_turns := array(select case when h.role in ('user', 'assistant') and v_marks is null
        and h.sensitivity <= v_clearance and h.tokenizer = v.tokenizer and strpos(h.content, '<memory-window>') = 0
        then (h.turn_index, h.exchange_start, h.message_id, h.role, h.content, h.content_parts, h.name, h.tool_calls,
          h.tool_call_id, h.tokens_before, h.token_count + v_model.message_overhead, false, false, 0,
          null)::_memoir.shown_turn
        else _memoir.as_shown(h, v_marks, v_clearance, v_model, v.tokenizer, v_most) end
      from _memoir.conversation_history h
      where h.user_id = v_user and h.session_id = v_part.session_id and h.recorded_at between v_part.since and v_to
        and h.turn_index between v_from and v_last and h.tokens_before >= v_threshold
        and (h.role <> 'system' and v_marks is null or not _memoir.is_unseen(h, v_session, v_marks))
      order by h.turn_index) || v_turns;
    continue when v_threshold = 0
      or v_part.from_turn = 0 and (v_turns[1]).turn_index <= v_counters.exchange_start;
    for v_row in select * from _memoir.conversation_history h
      where h.user_id = v_user and h.session_id = v_part.session_id and h.recorded_at between v_part.since and v_to
        and h.turn_index between v_from and v_last and h.tokens_before < v_threshold order by h.turn_index desc loop
      exit parts when v_row.turn_index < v_counters.exchange_start;
      continue when v_row.role not in ('user', 'system') and not (v.is_open and (v_turns = '{}'
        or v_row.role in ('assistant', 'tool') and (v_turns[1]).role = 'tool'));
      continue when _memoir.is_unseen(v_row, v_session, v_marks);
      v_turns := _memoir.as_shown(v_row, v_marks, v_clearance, v_model, v.tokenizer, v_most) || v_turns;
    end loop;
  end loop;
  if v_counters.open_calls <> '{}' then
    select * into v_turns, v_window.warnings from _memoir.without_open_calls(v_turns, v_window.warnings,
      v_counters.open_calls);
  end if;
  loop
    v_found := _memoir.turns_from(v_turns, v_threshold, v_counters.exchange_start, v.is_open);
    v_window.turns := v_found.turns;
    v_is_cut := v_is_cut or v_found.is_cut;
    v_window.tokens := _memoir.cost_of(v_window.turns);
    exit when v_window.tokens <= p_limit or v_threshold >= v_counters.tokens;
    v_threshold := least(v_counters.tokens, v_threshold + v_step);
  end loop;
  if v_is_cut then
    v_window.warnings := v_window.warnings || 'the middle of the last exchange is left out'::text;
  end if;
  return _memoir.fitted(v_window, p_limit, v.is_open, v.tokenizer, (v.model).message_overhead);
end $$;

-- Returns whether a turn is no longer there, or is the system prompt, which the list has already.
create or replace function _memoir.is_unseen(p_row _memoir.conversation_history, p_session _memoir.sessions,
  p_marks jsonb)
returns boolean language plpgsql stable as $$
begin
  return p_marks is not null and _memoir.is_retracted(p_row.turn_index, p_marks) or p_row.role = 'system'
    and coalesce(sha256(convert_to(p_row.content, 'UTF8')) = p_session.system_prompt_hash, false);
end $$;

-- A turn as the list shows it whole, its result no longer than p_most, or that it is withheld from callers of this
-- clearance. What it costs.
create or replace function _memoir.as_shown(p_row _memoir.conversation_history, p_marks jsonb,
  p_clearance _memoir.sensitivity, p_model _memoir.models, p_tokenizer text, p_most integer default null)
returns _memoir.shown_turn language plpgsql stable as $$
declare
  v_row _memoir.conversation_history := p_row; v_turn _memoir.shown_turn; v_directed boolean;
  v_withheld boolean := case when p_marks is null then v_row.sensitivity else _memoir.sensitivity_now(v_row.sensitivity,
    v_row.turn_index, p_marks) end > p_clearance;
begin
  if v_withheld then
    -- The list stays valid: a tool call keeps its result.
    if v_row.content is not null or v_row.tool_calls is null then
      v_row.content := '[withheld: this message is marked secret]';
    end if;
    v_row.content_parts := null;
    v_row.name := null;
    v_row.tool_calls := (select jsonb_agg(jsonb_set(c, '{function,arguments}', '"{}"') order by o)
      from jsonb_array_elements(v_row.tool_calls) with ordinality t(c, o));
  end if;
  v_directed := v_row.role = 'assistant' and strpos(v_row.content, '<memory-window>') > 0;
  if v_directed then
    v_row.content := coalesce(nullif(btrim(regexp_replace(v_row.content, '\s*' || _memoir.directive_tag() || '\s*',
      E'\n', 'g'), E'\n'), ''), '…');
  end if;
  v_turn := (v_row.turn_index, v_row.exchange_start, v_row.message_id, v_row.role, v_row.content,
    v_row.content_parts, v_row.name, v_row.tool_calls, v_row.tool_call_id, v_row.tokens_before,
    v_row.token_count + p_model.message_overhead, false, v_withheld, 0, null);
  if v_withheld or v_directed or v_row.tokenizer <> p_tokenizer then
    v_turn.cost := p_model.message_overhead + _memoir.sum_of(_memoir.count_tokens(_memoir.token_texts(v_turn.content,
        v_turn.parts, v_turn.name, v_turn.tool_calls, v_turn.tool_call_id), p_tokenizer))
      + coalesce((select sum(_memoir.media_tokens(p, p_model.images)) from jsonb_array_elements(v_turn.parts) p), 0);
  end if;
  if v_turn.role = 'tool' and v_turn.cost > p_most then
    v_turn := _memoir.excerpt(v_turn, p_most, p_tokenizer, p_model.message_overhead);
  end if;
  return v_turn;
end $$;

create or replace function _memoir.cost_of(p_turns _memoir.shown_turn[])
returns integer language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return (select coalesce(sum(t.cost), 0) from unnest(p_turns) t);
end $$;

-- From the first whole exchange at or after the threshold; where the last exchange is longer than that, its opening and
-- the first whole step after the threshold. is_cut: between these, turns are left out.
create or replace function _memoir.turns_from(p_turns _memoir.shown_turn[], p_threshold bigint, p_exchange integer,
  p_open boolean, out turns _memoir.shown_turn[], out is_cut boolean)
language plpgsql immutable as $$
declare
  v_turn _memoir.shown_turn; v_count integer := cardinality(p_turns); v_opening integer; v_end integer; v_step integer;
  v_newest integer;
begin
  turns := '{}';
  is_cut := false;
  for i in 1 .. v_count loop
    v_turn := p_turns[i];
    if v_turn.turn_index = v_turn.exchange_start and v_turn.tokens_before >= p_threshold
      and v_turn.role in ('user', 'system') then
      turns := p_turns[i : v_count];
      return;
    end if;
    if v_turn.turn_index >= p_exchange and v_turn.role in ('user', 'system') and (v_end is null or v_end = i - 1) then
      v_opening := coalesce(v_opening, i);
      v_end := i;
    elsif v_step is null and v_end is not null and v_turn.turn_index >= p_exchange
      and v_turn.tokens_before >= p_threshold and v_turn.role <> 'tool' then
      v_step := i;
    end if;
    if v_end < i and v_turn.role = 'assistant' then v_newest := i; end if;
  end loop;
  if v_step is null and p_open then
    v_step := v_newest;  -- the last step: the newest assistant message and what follows it
  end if;
  if v_step is not null then
    turns := p_turns[v_opening : v_end] || p_turns[v_step : v_count];
    is_cut := (p_turns[v_step]).turn_index > (p_turns[v_end]).turn_index + 1;
  elsif p_open and v_end is not null then
    turns := p_turns[v_opening : v_end];
  end if;
end $$;

-- A window that takes no more than p_limit: where it must end with the open exchange, the tool results of that share
-- what the rest leaves, else nothing is shown. Says where a result is an excerpt.
create or replace function _memoir.fitted(inout p_window _memoir.shown_window, p_limit integer, p_open boolean,
  p_tokenizer text, p_overhead integer, p_whole _memoir.shown_turn[] default '{}')
language plpgsql stable as $$
declare
  v_turns _memoir.shown_turn[] := p_window.turns; v_turn _memoir.shown_turn; v_results integer := 0;
  v_left integer := p_limit; v_cut _memoir.shown_turn;
begin
  if p_window.tokens > p_limit then
    if not p_open then v_turns := '{}'; end if;
    foreach v_turn in array v_turns loop
      if v_turn.role = 'tool' then v_results := v_results + 1; else v_left := v_left - v_turn.cost; end if;
    end loop;
    for i in 1 .. cardinality(v_turns) loop
      v_turn := v_turns[i];
      if v_turn.role = 'tool' and v_turn.cost > v_left / v_results then
        v_cut := _memoir.excerpt(v_turn, greatest(0, v_left / v_results), p_tokenizer, p_overhead);
        -- A form says in its first line what it is one of; without it the object itself says more.
        if v_turn.fidelity > 0 and not starts_with(v_cut.content, split_part(v_turn.content, E'\n', 1)) then
          v_cut := _memoir.excerpt((select t from unnest(p_whole) t where t.turn_index = v_turn.turn_index),
            greatest(0, v_left / v_results), p_tokenizer, p_overhead);
        end if;
        if v_cut.cost < v_turn.cost then v_turns[i] := v_cut; end if;
      end if;
    end loop;
    p_window.turns := v_turns;
    p_window.tokens := _memoir.cost_of(v_turns);
  end if;
  if exists (select from unnest(v_turns) t where t.excerpt) then
    p_window.warnings := p_window.warnings || 'a long tool result is shown as an excerpt'::text;
  end if;
end $$;

-- Turns without an unanswered tool call and its partial results, which can't be shown before a new query. Warns of it.
create or replace function _memoir.without_open_calls(inout p_turns _memoir.shown_turn[], inout p_warnings text[],
  p_open_calls text[])
language plpgsql immutable as $$
declare
  n integer := cardinality(p_turns);
begin
  if coalesce(p_open_calls, '{}') = '{}' then return; end if;
  while n > 0 and (p_turns[n]).role = 'tool' loop
    n := n - 1;
  end loop;
  p_turns := p_turns[1 : n - 1];
  p_warnings := p_warnings || format('tool calls %s have no result yet and are left out',
    array_to_string(p_open_calls, ', '));
end $$;

-- Returns what the user asks in the exchange that began at a turn: all up to the first answer, without lines behind it.
create or replace function _memoir.asked_in(p_turns _memoir.shown_turn[], p_from integer)
returns text language plpgsql immutable as $$
begin
  return (select string_agg(split_part(t.content, E'\n\n' || _memoir.fence_note('steps'), 1), E'\n'
      order by t.turn_index) from unnest(p_turns) t
    where t.turn_index >= p_from and t.role = 'user' and not t.withheld
      and t.turn_index < coalesce((select min(a.turn_index) from unnest(p_turns) a
        where a.turn_index >= p_from and a.role not in ('user', 'system')), 2147483647));
end $$;

-- By which a recall is known again, as long as its spaces are those of the caller.
create or replace function _memoir.query_hash(p_unanswered _memoir.shown_turn[], p_query text, p_spaces jsonb)
returns bytea language plpgsql stable as $$
declare
  v_said text;
begin
  if p_unanswered <> '{}' then
    v_said := (select string_agg(t.content, E'\n' order by t.turn_index) from unnest(p_unanswered) t
      where t.role = 'user');
  end if;
  return sha256(convert_to(concat_ws(E'\n', v_said, coalesce(p_query, ''), nullif(p_spaces, '[]')), 'UTF8'));
end $$;

create or replace function _memoir.message_ids(p_turns _memoir.shown_turn[], p_reduced integer[])
returns uuid[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select t.message_id from unnest(p_turns) t where t.turn_index <> all (coalesce(p_reduced, '{}')));
end $$;
