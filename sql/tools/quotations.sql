-- Quotations of the user, by which a tool acts in the user's name. A quotation lends no more authority than the clause
-- says in which it stands. The package pg_memoir_language reads them (quotations.py); where nothing can, none has any.

-- Finds the newest turn in which a quotation stands that asks to forget what one of some texts says (p_kind request),
-- or that says p_content, beside one of some older texts where it corrects (statement); matched: which of them.
-- p_whole: a turn, of which the clauses are the texts; parts: the spans that match. is_narrower: a request names less
-- than the text, which only has to do with it.
create or replace function _memoir.quoted(p_session _memoir.sessions, p_kind text, p_said text, p_texts text[],
  p_whole text, p_content text, p_slot text, out turn_index integer, out names text, out is_all boolean,
  out span_start integer, out span_length integer, out matched integer[], out parts jsonb, out is_narrower boolean)
language plpgsql stable as $$
declare
  v_read jsonb; v_turns jsonb;
  v_word text := lower(normalize((select m[1] from regexp_matches(left(p_said, 1000), '([[:alnum:]]+)', 'g') m
    order by length(m[1]) desc limit 1), nfkc));
begin
  if _memoir.is_blank(p_said) or not _memoir.reads_language() then return; end if;
  select coalesce(jsonb_agg(jsonb_build_object('index', t.turn_index, 'text', t.content) order by t.turn_index desc),
    '[]') into v_turns
  from (select h.turn_index, left(h.content, 20000) as content
    from _memoir.session_counters c
    join _memoir.conversation_history h on h.user_id = c.user_id and h.session_id = c.session_id
      and h.recorded_at between c.first_recorded_at and c.last_recorded_at
    where c.user_id = p_session.user_id and c.session_id = p_session.session_id and h.role = 'user'
      and h.actor = 'person' and nullif(btrim(h.name), '') is null
    order by h.turn_index desc limit 200) t
  where strpos(lower(normalize(t.content, nfkc)), v_word) > 0;
  v_read := _memoir.py_read('quoted', jsonb_build_object('kind', p_kind, 'said', p_said, 'texts', p_texts,
    'whole', p_whole, 'content', p_content, 'slot', p_slot, 'turns', v_turns)::text,
    _memoir.config(p_session.user_id, p_session.settings) ->> 'embedder_socket');
  if jsonb_typeof(v_read) is distinct from 'object' then return; end if;
  select r.turn_index, r.names, r.is_all, r.span_start, r.span_length, coalesce(r.matched, '{}'), r.parts,
    coalesce(r.is_narrower, false)
  into turn_index, names, is_all, span_start, span_length, matched, parts, is_narrower
  from jsonb_to_record(v_read) r(turn_index integer, names text, is_all boolean, span_start integer,
    span_length integer, matched integer[], parts jsonb, is_narrower boolean);
end $$;

create or replace function _memoir.memory_words(p_memory _memoir.memory_store)
returns text language plpgsql stable as $$
begin
  return concat_ws(' ', p_memory.content, (
    select string_agg(substr(h.content, s.span_start, s.span_length), ' ' order by h.recorded_at)
    from _memoir.memory_sources s
    join _memoir.search_items i on i.user_id = s.user_id and i.ref_id = s.source_id and i.kind = 't' and i.chunk = 0
    join _memoir.conversation_history h on h.user_id = s.user_id and h.session_id = i.session_id
      and h.recorded_at = i.recorded_at and h.message_id = i.ref_id
    where s.user_id = p_memory.user_id and s.item_kind = 'memory' and s.item_id = p_memory.memory_id
      and s.source_kind = 'turn' and s.span_start is not null));
end $$;

create or replace function _memoir.parts_of(p_unit _memoir.said_unit, p_parts jsonb)
returns _memoir.said_unit[] language sql immutable as $$
  select array(
    select (p_unit.message_id, p_unit.session_id, p_unit.turn_index, p_unit.recorded_at, p_unit.created_at, p_unit.role,
      (p ->> 'start')::integer, (p ->> 'length')::integer, substr(p_unit.said, (p ->> 'start')::integer,
      (p ->> 'length')::integer), p_unit.context, false)::_memoir.said_unit
    from jsonb_array_elements(p_parts) with ordinality x(p, o) order by o)
$$;
