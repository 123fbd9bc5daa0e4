-- A model's or tool's repetition of a rejected statement is no more recalled, extracted or summarised than the
-- statement itself: the sentence is excluded, and what is found by it.

create or replace function _memoir.sentences(p_text text)
returns text[] language sql immutable as $$
  -- Ends are marked first: to look behind from every match is quadratic.
  select array(select btrim(s, E' \t\r-*•')
    from unnest(string_to_array(regexp_replace(p_text, '([.!?][)"''”’]?)\s+|([。！？।؟])|\n+', '\1\2' || chr(2), 'g'),
      chr(2))) with ordinality t(s, o)
    where s ~ '[[:alnum:]]' order by o)
$$;

-- Sentences of a turn that a tombstone refuses, with the memory each was rejected as.
create or replace function _memoir.restated_in(p_user_id uuid, p_text text, p_project text)
returns table (span_start integer, span_length integer, memory_id uuid)
language plpgsql stable as $$
declare
  v_text text := left(p_text, 20000); v_at integer; v_from integer := 1; v_row record;
  v_sentences text[] := _memoir.sentences(v_text);
begin
  for v_row in
    select s.sentence, t.n is not null as refused, t.memory_id
    from unnest(v_sentences) with ordinality s(sentence, n)
    left join _memoir.tombstones_of(p_user_id, v_sentences, p_project) t on t.n = s.n order by s.n
  loop
    v_at := strpos(substr(v_text, v_from), v_row.sentence);
    continue when v_at = 0;
    v_from := v_from + v_at - 1;
    if v_row.refused then
      span_start := v_from; span_length := length(v_row.sentence); memory_id := v_row.memory_id;
      return next;
    end if;
    v_from := v_from + length(v_row.sentence);
  end loop;
end $$;

-- Excludes such sentences of turns just stored; a person's own words stay as they are.
create or replace function _memoir.exclude_restated(p_user_id uuid, p_session _memoir.sessions, p_ids uuid[],
  p_at timestamptz)
returns void language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
  if not exists (select from _memoir.tombstones t where t.user_id = p_user_id and t.lifted_at is null) then return;
  end if;
  with said as materialized (
    select h.message_id, h.turn_index, r.span_start, r.span_length, r.memory_id
    from _memoir.conversation_history h
    cross join lateral _memoir.restated_in(p_user_id, h.content, p_session.project) r
    where h.user_id = p_user_id and h.session_id = p_session.session_id and h.recorded_at = p_at
      and h.message_id = any (p_ids) and h.content is not null
      and (h.role in ('assistant', 'tool') or h.role = 'user' and h.actor <> 'person')
  ), excluded as (
    insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, span_start, span_length,
      memory_id, reason, recorded_at)
    select p_user_id, p_session.session_id, s.turn_index, gen_random_uuid(), s.span_start, s.span_length, s.memory_id,
      'restates what was rejected', p_at from said s)
  update _memoir.search_items i set dead = true from said s
  where i.user_id = p_user_id and i.ref_id = s.message_id
    and _memoir.spans_overlap(i.span_start, i.span_length, s.span_start, s.span_length);
end $$;

-- The same of turns that came before: sentences of models and tools, after the statement itself and in its session,
-- that claim what memories claim which are being forgotten.
create or replace function _memoir.restating_turns(p_user_id uuid, p_ids uuid[])
returns setof _memoir.said_unit language plpgsql stable as $$
declare
  v_names text[] := _memoir.known_names(p_user_id); v_claims text[]; v_hints text[]; v_from record; v_first timestamptz;
  v_last timestamptz; v_turn record; v_sentence text; v_at integer;
begin
  select array_agg(distinct c) into v_claims from _memoir.memory_store m,
    unnest(array[_memoir.claim(m.content, v_names), _memoir.claim(m.slot || ' ' || m.slot_value, v_names)]) c
  where m.user_id = p_user_id and m.memory_id = any (p_ids) and c is not null;
  if v_claims is null then return; end if;
  v_hints := _memoir.claim_hints(v_claims);
  for v_from in
    select s.session_id as id, min(s.turn_index) as turn from _memoir.memory_sources s
    where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = any (p_ids) and s.source_kind = 'turn'
    group by s.session_id
  loop
    select c.first_recorded_at, c.last_recorded_at into v_first, v_last from _memoir.session_counters c
    where c.user_id = p_user_id and c.session_id = v_from.id;
    for v_turn in
      select h.message_id, h.turn_index, left(h.content, 20000) as content from _memoir.conversation_history h
      where h.user_id = p_user_id and h.session_id = v_from.id and h.recorded_at between v_first and v_last
        and h.turn_index > v_from.turn and (h.role in ('assistant', 'tool') or h.role = 'user' and h.actor <> 'person')
        and exists (select from unnest(v_hints) w where strpos(lower(h.content), w) > 0)
    loop
      v_at := 1;
      foreach v_sentence in array _memoir.sentences(v_turn.content) loop
        v_at := v_at + greatest(strpos(substr(v_turn.content, v_at), v_sentence), 1) - 1;
        if _memoir.claims_of(_memoir.claim_pieces(v_sentence), v_names) && v_claims then
          return next (v_turn.message_id, v_from.id, v_turn.turn_index, null, null, null, v_at, length(v_sentence),
            null, null, null)::_memoir.said_unit;
        end if;
        v_at := v_at + length(v_sentence);
      end loop;
    end loop;
  end loop;
end $$;
