-- The window of a session with objects: turns from its frame's first on, objects as what they are shown as, older
-- steps as lines. Reads only; what is due it says (moment), and what does not fit yet it leaves out, named.

create or replace function _memoir.managed_window(v _memoir.compile_state, p_limit integer)
returns _memoir.shown_window language plpgsql stable as $$
declare
  v_window _memoir.shown_window; v_frame _memoir.session_windows := v.frame; v_left integer;
  v_past _memoir.past := _memoir.session_past(v.session, v.counters, v.frame, v.config, v.history_budget,
    (v.model).message_overhead);
  v_turns _memoir.shown_turn[]; v_whole _memoir.shown_turn[]; v_lines jsonb := (v.frame).lines;
  v_none boolean := false; v_recalls jsonb := '{}';
begin
  v_window.warnings := '{}';
  v_window.moment := _memoir.moment_due(v_past, v.frame, v.session, v.config, v.at,
    v.system_tokens + v.tools_tokens);
  v_turns := _memoir.framed_turns(v, v_past.places, greatest(64, (v.frame).budget / 10, v.history_budget / 10));
  v_whole := v_turns;
  v_turns := _memoir.with_shown_forms(v, v_turns, v_past.places);
  if v_lines is null then v_lines := _memoir.step_lines(v.session, v.config, v.frame); end if;
  select * into v_turns, v_window.warnings from _memoir.without_open_calls(v_turns, v_window.warnings,
    (v.counters).open_calls);
  -- {"turn": recall} of earlier exchanges, which stand before their questions until the next moment, as they were sent.
  if not pg_is_in_recovery() then
    select coalesce(jsonb_object_agg(k.at_turn, k.recall), '{}') into v_recalls from _memoir.kept_recalls k
    where k.user_id = v.user_id and k.session_id = v.session_id and k.recall <> ''
      and k.at_turn < _memoir.recalls_until(v.counters) and k.clearance <= (v.caller).clearance
      and ((v.caller).projects is null or k.projects <@ (v.caller).projects)
      -- The exchange may have asked something else in the end.
      and k.query_hash = _memoir.query_hash('{}', _memoir.asked_in(v_turns, k.at_turn), v.spaces);
  end if;
  v_window := _memoir.with_line_blocks(v_window, v_turns, v_lines, v_recalls, v.tokenizer);
  while v_window.tokens > p_limit loop
    -- Where the list would begin without its oldest step or exchange; null where only the newest is left.
    v_left := (select coalesce(min(t.turn_index) filter (where t.role <> 'tool' and t.turn_index > s.first),
        case when not v.is_open then max(t.turn_index) + 1 end)
      from unnest(v_turns) t, (select min(u.turn_index) as first from unnest(v_turns) u
        where u.role in ('assistant', 'tool')) s where s.first is not null);
    exit when v_left is null;
    -- Steps that must go before the next moment; their exchange's question stays while any of it does.
    v_turns := array(select t from unnest(v_turns) t where t.turn_index >= v_left
      or t.role in ('user', 'system') and t.exchange_start = (select min(u.exchange_start) from unnest(v_turns) u
        where u.turn_index >= v_left) order by t.turn_index);
    v_frame.first_turn := v_left;
    v_frame.lines_through := v_left - 1;
    v_frame.opening := (v_turns[1]).exchange_start;
    v_window := _memoir.with_line_blocks(v_window, v_turns,
      _memoir.step_lines(v.session, v.config, v_frame, v.frame), v_recalls, v.tokenizer);
  end loop;
  if v_window.tokens > p_limit and v_frame.lines_through <= (v_turns[1]).exchange_start then
    -- The newest exchange alone, too large for the lines of those before it.
    v_window := _memoir.with_line_blocks(v_window, v_turns, '{}', '{}', v.tokenizer);
    v_none := v_frame.lines_through >= 0;
  end if;
  if v_none or v_frame.first_turn > (v.frame).first_turn then
    v_window.warnings := v_window.warnings || 'earlier steps have no room'::text;
  end if;
  return _memoir.fitted(v_window, p_limit, v.is_open, v.tokenizer, (v.model).message_overhead, v_whole);
end $$;

-- The turns that a frame shows as messages, whole: a tool result that is no object and longer than p_cap as an excerpt.
create or replace function _memoir.framed_turns(v _memoir.compile_state, p_places _memoir.past_place[], p_cap integer)
returns _memoir.shown_turn[] language plpgsql stable as $$
declare
  v_turns _memoir.shown_turn[] := '{}'; v_part record; v_session _memoir.sessions := v.session;
  v_frame _memoir.session_windows := v.frame; v_model _memoir.models := v.model;
  v_most integer := p_cap + v_model.message_overhead; v_last integer := (v.counters).turn_count - 1;
  v_user uuid := v.user_id; v_marks jsonb;
begin
  for v_part in select * from _memoir.lineage(v_session) l where l.to_turn >= v_frame.opening order by l.from_turn loop
    v_marks := case when 'marks' = any ((v.user_counters).features)
      then _memoir.marks(v_user, v_part.session_id) end;
    v_turns := v_turns || array(select _memoir.as_shown(h, v_marks, v.clearance, v_model, v.tokenizer,
        case when not exists (select from unnest(p_places) p where p.turn_index = h.turn_index and p.call_no = 0)
          then v_most end)
      from _memoir.conversation_history h
      where h.user_id = v_user and h.session_id = v_part.session_id
        and h.recorded_at between v_part.since and v_part.until
        and h.turn_index between greatest(v_part.from_turn, v_frame.opening) and least(v_part.to_turn, v_last)
        and (h.turn_index > v_frame.lines_through or h.role in ('user', 'system')
          or h.turn_index >= v_frame.first_turn and h.role = 'assistant' and h.tool_calls is null)
        and (h.role <> 'system' and v_marks is null or not _memoir.is_unseen(h, v_session, v_marks))
      order by h.turn_index);
  end loop;
  return v_turns;
end $$;

-- Objects as what they are shown as: the content of a result, an argument of a call. What is withheld stays that.
create or replace function _memoir.with_shown_forms(v _memoir.compile_state, p_turns _memoir.shown_turn[],
  p_places _memoir.past_place[])
returns _memoir.shown_turn[] language plpgsql stable as $$
declare
  v_form record; v_turn _memoir.shown_turn; v_at integer[]; v_ids uuid[]; v_to smallint[]; v_changed integer[] := '{}';
  v_place text[]; v_texts text[]; v_of integer[]; n integer;
begin
  for i in 1 .. cardinality(p_turns) loop
    v_at[(p_turns[i]).turn_index] := i;
  end loop;
  select array_agg(x.memory_id), array_agg(x.fidelity) into v_ids, v_to
  from (select distinct p.memory_id, p.fidelity from unnest(p_places) p where p.part_no = 0
    and p.fidelity between 1 and 3) x;
  for v_form in select p.turn_index, p.call_no, p.argument, p.fidelity, p.why, case when p.part_no = 0 then f.content
      else format('[with the result above: object %s]', _memoir.object_name(p.memory_id)) end as content
    from unnest(p_places) p
    left join _memoir.object_forms(v.user_id, v_ids, v_to, (v.frame).moved_at) f on f.memory_id = p.memory_id
      and f.fidelity = p.fidelity
    where p.fidelity between 1 and 3 loop
    n := v_at[v_form.turn_index];
    continue when n is null or v_form.content is null;
    v_turn := p_turns[n];
    continue when v_turn.withheld;
    if v_form.call_no = 0 then
      v_turn.content := v_form.content;
      v_turn.parts := null;
    else
      v_place := array[(v_form.call_no - 1)::text, 'function', 'arguments'];
      v_turn.tool_calls := jsonb_set(v_turn.tool_calls, v_place, to_jsonb(jsonb_set(
        _memoir.try_json(v_turn.tool_calls #>> v_place), v_form.argument, to_jsonb(v_form.content), false)::text));
    end if;
    v_turn.fidelity := greatest(v_turn.fidelity, v_form.fidelity);
    v_turn.why := v_form.why;
    p_turns[n] := v_turn;
    v_changed := v_changed || n;
  end loop;
  select array_agg(t.text order by i, t.o), array_agg(i order by i, t.o) into v_texts, v_of
  from (select distinct i from unnest(v_changed) i) x,
    unnest(_memoir.token_texts((p_turns[i]).content, (p_turns[i]).parts, (p_turns[i]).name, (p_turns[i]).tool_calls,
      (p_turns[i]).tool_call_id)) with ordinality t(text, o);
  for v_form in select c.i, sum(c.tokens)::integer + (v.model).message_overhead
      + coalesce((select sum(_memoir.media_tokens(p, (v.model).images))
        from jsonb_array_elements((p_turns[c.i]).parts) p), 0) as cost
    from rows from (unnest(v_of), unnest(_memoir.count_tokens(v_texts, v.tokenizer))) c(i, tokens) group by c.i loop
    p_turns[v_form.i].cost := v_form.cost;
  end loop;
  return p_turns;
end $$;

-- Turns with what stands around questions: recalls before them, the lines of their exchanges behind. Lines whose
-- question is not there become the note.
create or replace function _memoir.with_line_blocks(inout p_window _memoir.shown_window, p_turns _memoir.shown_turn[],
  p_lines jsonb, p_recalls jsonb, p_tokenizer text)
language plpgsql stable as $$
declare
  v_block record; v_turn _memoir.shown_turn; n integer;
begin
  for v_block in select t.ordinality as n, r.value from jsonb_each_text(p_recalls) r
    join unnest(p_turns) with ordinality t on t.turn_index = r.key::integer loop
    v_turn := p_turns[v_block.n];
    if v_turn.parts is null then
      v_turn.content := concat_ws(E'\n\n', v_block.value, nullif(v_turn.content, ''));
    else
      v_turn.parts := _memoir.text_parts(to_jsonb(v_block.value)) || v_turn.parts;
    end if;
    v_turn.cost := v_turn.cost + 2 + _memoir.tokens_of(v_block.value || E'\n\n', p_tokenizer);
    p_turns[v_block.n] := v_turn;
  end loop;
  p_window.note := null;
  for v_block in select key::integer as exchange, value from jsonb_each_text(p_lines) order by 1 loop
    n := (select max(t.ordinality) from unnest(p_turns) with ordinality t
      where t.exchange_start = v_block.exchange and t.role = 'user');
    if n is null then
      p_window.note := concat_ws(E'\n', p_window.note, v_block.value);
    else
      v_turn := p_turns[n];
      if v_turn.parts is null then
        v_turn.content := concat_ws(E'\n\n', nullif(v_turn.content, ''), v_block.value);
      else
        v_turn.parts := v_turn.parts || jsonb_build_array(jsonb_build_object('type', 'text', 'text', v_block.value));
      end if;
      v_turn.cost := v_turn.cost + 2 + _memoir.tokens_of(E'\n\n' || v_block.value, p_tokenizer);
      v_turn.why := 'with lines';
      p_turns[n] := v_turn;
    end if;
  end loop;
  p_window.turns := p_turns;
  p_window.tokens := _memoir.cost_of(p_turns)
    + case when p_window.note is null then 0 else 4 + _memoir.tokens_of(p_window.note || E'\n\n', p_tokenizer) end;
end $$;
