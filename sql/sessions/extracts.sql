-- Extractive summaries: the sentences of a stretch of conversation that say most of it, in their own words. The package
-- chooses them (summaries.py); what fits is decided here.

-- Returns what a summary may be made of: the turns of a stretch as texts, without what is excluded, secret or private
-- (a summary is read by whoever may read the session). Long texts are read by their beginning and end.
create or replace function _memoir.summary_turns(p_session _memoir.sessions, p_from integer, p_to integer)
returns table (turn_index integer, role _memoir.turn_role, label text, body text, token_count integer,
  created_at timestamptz) language plpgsql stable as $$
declare
  v_part record; v_user uuid := p_session.user_id; v_marks jsonb;
begin
  for v_part in select * from _memoir.lineage(p_session) l where l.to_turn >= p_from and l.from_turn <= p_to
    order by l.from_turn loop
    v_marks := _memoir.marks(v_user, v_part.session_id);
    return query
    select h.turn_index, h.role, _memoir.speaker_label(h.role::text, h.name),
      case when x.hidden or _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) > 'normal' then null
           when length(x.whole) > 6000 then left(x.whole, 4000) || E'\n' || right(x.whole, 1500)
           else x.whole end, h.token_count, h.created_at
    from _memoir.conversation_history h
    cross join lateral (select coalesce(nullif(_memoir.without_spans(h.content, array(
          select int4range(e.span_start, e.span_start + e.span_length)
          from _memoir.exclusions_of(v_user, h.session_id, h.turn_index) e where e.changed and not e.is_doubt)), ''),
        (select string_agg(format('calls %s(%s)', c #>> '{function,name}', left(c #>> '{function,arguments}', 200)),
        E'\n') from jsonb_array_elements(h.tool_calls) c)) as whole,
        -- What was changed later is left out; a span that must not be repeated takes its whole turn with it: its
        -- sentences lean on each other.
        exists (select from _memoir.exclusions_of(v_user, h.session_id, h.turn_index) e
          where not e.changed) as hidden) x
    where h.user_id = v_user and h.session_id = v_part.session_id
      and h.recorded_at between v_part.since and v_part.until
      and h.turn_index between greatest(p_from, v_part.from_turn) and least(p_to, v_part.to_turn)
    order by h.turn_index;
  end loop;
end $$;

-- A summary within a budget of tokens: a head line with the stretch and its days, then the chosen of p_former (lines
-- of former summaries) and of p_turns ({"label", "role", "text", "said_at"}), each with who said it. p_is_open: the
-- last turn may ask something. Where nothing reads, the beginnings of the last turns.
create or replace function _memoir.extract(p_former text[], p_turns jsonb, p_is_open boolean, p_head text,
  p_budget integer, p_tokenizer text, p_config regconfig)
returns text language plpgsql stable as $$
declare
  v_ranked jsonb := _memoir.read_texts('rank_lines', jsonb_build_object('former', p_former, 'turns', p_turns,
    'is_open', p_is_open, 'config', p_config::text));
  v_lines text[]; v_order integer[]; v_costs integer[]; v_chosen integer[]; v_text text; v_line integer;
  v_budget integer := p_budget; v_left integer; v_tries integer := 0; v_tokens integer;
begin
  if v_ranked is null then
    v_lines := p_former || array(select format('- %s: %s', t ->> 'label', left(split_part(t ->> 'text', E'\n', 1), 150))
      from jsonb_array_elements(p_turns) with ordinality x(t, o) order by o);
    v_order := array(select n from generate_subscripts(v_lines, 1) n order by n desc);
  else
    v_lines := array(select jsonb_array_elements_text(v_ranked -> 'lines'));
    v_order := array(select n::integer from jsonb_array_elements_text(v_ranked -> 'order') n);
  end if;
  v_costs := array(select _memoir.estimate_tokens(l) from unnest(v_lines) with ordinality x(l, o) order by o);
  loop
    v_left := v_budget - _memoir.estimate_tokens(p_head);
    v_chosen := '{}';
    foreach v_line in array v_order loop
      if v_costs[v_line] <= v_left then
        v_chosen := v_chosen || v_line;
        v_left := v_left - v_costs[v_line];
      end if;
    end loop;
    select p_head || coalesce(E'\n' || string_agg(v_lines[c], E'\n' order by c), '') into v_text
    from unnest(v_chosen) c;
    v_tokens := _memoir.tokens_of(v_text, p_tokenizer);
    exit when v_chosen = '{}' or v_tries >= 4 or v_tokens <= p_budget and (v_tries > 0 or v_tokens > 0.9 * p_budget
      or cardinality(v_chosen) = cardinality(v_order));
    -- Estimates are on the high side: once more with what was left over.
    v_budget := case when v_tokens < p_budget then v_budget * least(1.5, 0.98 * p_budget / v_tokens)
      else v_budget * 9 / 10 - 2 end;
    v_tries := v_tries + 1;
  end loop;
  return v_text;
end $$;

create or replace function _memoir.turns_to_summarise(p_session _memoir.sessions, p_from integer, p_to integer,
  out turns jsonb, out tokens bigint, out first_at timestamptz, out last_at timestamptz)
language plpgsql stable as $$
begin
  select coalesce(jsonb_agg(jsonb_build_object('label', t.label, 'role', t.role, 'text', _memoir.visible(t.body),
      'said_at', t.created_at) order by t.turn_index) filter (where t.body is not null), '[]'),
    sum(t.token_count), min(t.created_at), max(t.created_at)
  into turns, tokens, first_at, last_at from _memoir.summary_turns(p_session, p_from, p_to) t;
end $$;
