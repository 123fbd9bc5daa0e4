-- A model's or tool's repetition of a rejected statement is no more recalled, extracted or summarised than the
-- statement itself: the sentence is excluded, and what is found by it.

create or replace function _memoir.sentences(p_text text)
returns table (said text, span_start integer) language sql immutable as $$
  -- Ends are marked first: to look behind from every match is quadratic.
  select btrim(s.body, E' \t\r\n\f\v-*•'),
    (s.at + length(s.body) - length(ltrim(s.body, E' \t\r\n\f\v-*•')))::integer
  from (select p.body, p.n, 1 + sum(length(p.body)) over (order by p.n) - length(p.body) as at
    from unnest(string_to_array(regexp_replace(translate(p_text, chr(2), ' '),
      '([.!?…][)"''”’]?\s|[。！？।؟\n])', '\1' || chr(2), 'g'), chr(2))) with ordinality p(body, n)) s
  where s.body ~ '[[:alnum:]]' order by s.n
$$;

-- Sentences of a turn that a tombstone refuses in this project, with the memory each was rejected as.
create or replace function _memoir.restated_in(p_user_id uuid, p_text text, p_project text)
returns table (span_start integer, span_length integer, memory_id uuid)
language plpgsql stable as $$
declare
  v_said text[]; v_starts integer[]; v_of bigint[]; v_texts text[];
  v_project text := case when p_project <> 'global' then p_project || chr(30) else '' end;
begin
  select array_agg(s.said order by s.span_start), array_agg(s.span_start order by s.span_start) into v_said, v_starts
  from _memoir.sentences(left(p_text, 20000)) s;
  select array_agg(t.n), array_agg(k.text) into v_of, v_texts
  from _memoir.tombstone_texts(v_said, _memoir.known_names(p_user_id)) t
  cross join lateral (values (t.text), (v_project || t.text)) k(text);
  return query select distinct on (k.n) v_starts[k.n], length(v_said[k.n]), t.memory_id
    from unnest(v_of, _memoir.tombstone_keys(p_user_id, v_texts)) k(n, key)
    join _memoir.tombstones t on t.user_id = p_user_id and t.key_hash = k.key and t.kind = 'value'
      and t.lifted_at is null
    order by k.n, t.recorded_at desc;
end $$;

-- Excludes such sentences of turns just stored; a person's own words stay as they are.
create or replace function _memoir.exclude_restated(p_user_id uuid, p_session _memoir.sessions, p_ids uuid[],
  p_at timestamptz)
returns void language plpgsql as $$
begin
  if not exists (select from _memoir.tombstones t where t.user_id = p_user_id and t.lifted_at is null) then return;
  end if;
  with said as materialized (select h.message_id, h.turn_index, r.span_start, r.span_length, r.memory_id
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
  v_names text[] := _memoir.known_names(p_user_id); v_claims text[]; v_hints text[]; v_from record;
begin
  select array_agg(distinct c) into v_claims from _memoir.memory_store m,
    unnest(_memoir.claims_of(array[m.content, m.slot || ' ' || m.slot_value], v_names)) c
  where m.user_id = p_user_id and m.memory_id = any (p_ids) and c is not null;
  if v_claims is null then return; end if;
  v_hints := _memoir.claim_hints(v_claims);
  for v_from in select s.session_id as id, min(s.turn_index) as turn, min(c.first_recorded_at) as since,
      max(c.last_recorded_at) as until
    from _memoir.memory_sources s
    join _memoir.session_counters c on c.user_id = p_user_id and c.session_id = s.session_id
    where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = any (p_ids) and s.source_kind = 'turn'
    group by s.session_id loop
    return query
    select h.message_id, h.session_id, h.turn_index, null::timestamptz, null::timestamptz, null::_memoir.turn_role,
      s.span_start, length(s.said), null, null, null::boolean
    from _memoir.conversation_history h cross join lateral _memoir.sentences(left(h.content, 20000)) s
    where h.user_id = p_user_id and h.session_id = v_from.id and h.recorded_at between v_from.since and v_from.until
      and h.turn_index > v_from.turn and (h.role in ('assistant', 'tool') or h.role = 'user' and h.actor <> 'person')
      and exists (select from unnest(v_hints) w where strpos(lower(left(h.content, 20000)), w) > 0)
      and _memoir.claims_of(_memoir.claim_pieces(s.said), v_names) && v_claims;
  end loop;
end $$;
