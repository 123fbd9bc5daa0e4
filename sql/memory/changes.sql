-- What a turn changes of what was said before, and what it asks to forget. The package pg_memoir_language finds both
-- (changes.py): among the user's earlier texts that have to do with a turn, which SQL looks up here.

-- Returns the user's items before a turn: those that hold most of some words, each weighing as it is rare, the newest
-- ones, some given ones, and the last turns of its session.
create or replace function _memoir.items_before(p_turn _memoir.conversation_history, p_terms text[],
  p_roles _memoir.turn_role[], p_newest integer, p_items integer[] default '{}')
returns _memoir.item_locator[] language plpgsql stable as $$
declare
  v_user uuid := p_turn.user_id; v_counters _memoir.user_counters; v_items integer[];
  -- With stems that stand for the same matter ("weigh" beside "weight").
  v_terms text[] := p_terms || array(select split_part(w, '>', 1)
    from unnest(_memoir.list_same_matter()) w where split_part(w, '>', 2) = any (p_terms));
begin
  select * into v_counters from _memoir.user_counters where user_id = v_user;
  v_items := array(with keys as (
      select t as term, k as key from unnest(v_terms) t, unnest(array[t, _memoir.shared_key(t, 1),
        _memoir.shared_key(t, 8), _memoir.shared_key(t, 64)]) k
    ), held as (select k.term, p.first_item + (x >> 8) as item
      from keys k join _memoir.search_postings p on p.user_id = v_user and p.key = k.key
      cross join lateral (select case when p.words is not null then array_position(p.words, k.term) end as n) w
      cross join lateral unnest(case when p.words is null then p.postings
        else p.postings[coalesce(p.ends[w.n - 1], 0) + 1 : p.ends[w.n]] end) x
      where p.words is null or w.n is not null
      union all
      select l.lexeme, t.item_no + (x >> 8) from _memoir.search_tail t, unnest(t.words) l, unnest(l.positions) x
      where t.user_id = v_user and l.lexeme = any (v_terms)
    )
    select h.item from (
      select item, ln(1 + v_counters.items::float8 / count(*) over (partition by term)) as weight from held) h
    group by h.item order by sum(h.weight) desc, h.item desc limit 40)
    || p_items || array(select i.item_no from _memoir.search_items i
    where i.user_id = v_user and i.item_no > v_counters.next_item - p_newest * 4 and i.kind = 't'
      order by i.item_no desc limit p_newest)
    || array(select i.item_no from _memoir.search_items i
    where i.user_id = v_user and i.session_id = p_turn.session_id and i.kind = 't'
      and i.item_no > v_counters.next_item - 400 and i.turn_index between p_turn.turn_index - p_newest
      and p_turn.turn_index - 1);
  return array(select (i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.recorded_at, i.span_start,
      i.span_length)::_memoir.item_locator
    from _memoir.search_items i
    where i.user_id = v_user and i.item_no = any (v_items) and i.kind = 't' and not i.dead and i.role = any (p_roles)
      and i.ref_id is distinct from p_turn.message_id
      and (i.session_id <> p_turn.session_id or i.turn_index < p_turn.turn_index)
      and i.created_at <= p_turn.created_at);
end $$;

-- Where a user said the lasting wishes that stand, the newest 40.
create or replace function _memoir.wish_sources(p_user_id uuid)
returns setof _memoir.memory_sources language sql stable as $$
  select s.* from _memoir.memory_store m join _memoir.memory_sources s on s.user_id = m.user_id
    and s.item_kind = 'memory' and s.item_id = m.memory_id and s.source_kind = 'turn'
  where m.user_id = p_user_id and m.state = 'active' and m.type = 'instruction' order by m.recorded_at desc limit 40
$$;

-- Texts of items as the reader takes them, of the turn's own speaker and of assistants, with what finds their place
-- again (unit) and the spans of the user's lasting wishes. p_near: messages near in meaning. p_with_changed: with what
-- later turns changed, else blanked out.
create or replace function _memoir.texts_as_read(p_turn _memoir.conversation_history,
  p_locators _memoir.item_locator[], p_near uuid[], p_most integer, p_with_changed boolean)
returns jsonb language plpgsql stable as $$
declare
  v_wishes _memoir.memory_sources[] := array(select s from _memoir.wish_sources(p_turn.user_id) s);
begin
  return (select coalesce(jsonb_agg(x.text order by x.is_here desc, x.created_at desc, x.item_no), '[]')
    from (
      select l.session_id = p_turn.session_id as is_here, i.created_at, l.item_no, jsonb_build_object('text', case
        when p_with_changed then t.body else _memoir.without_spans(t.body, array(
          select int4range(greatest(1, x.span_start - l.span_start + 1),
            x.span_start + x.span_length - l.span_start + 1)
          from _memoir.exclusions_of(p_turn.user_id, l.session_id, l.turn_index) x
          where not x.is_doubt
            and _memoir.spans_overlap(x.span_start, x.span_length, l.span_start, l.span_length))) end,
        'said_at', i.created_at, 'role', i.role, 'turns_before', case when l.session_id = p_turn.session_id
          then p_turn.turn_index - l.turn_index end, 'is_near', coalesce(l.ref_id = any (p_near), false),
        'wishes', (select jsonb_agg(jsonb_build_array(s.span_start - l.span_start + 1, s.span_length))
          from unnest(v_wishes) s where s.source_id = l.ref_id),
        'unit', jsonb_build_object('message_id', l.ref_id, 'session_id', l.session_id, 'turn_index', l.turn_index,
          'recorded_at', l.recorded_at, 'created_at', i.created_at, 'role', i.role, 'span_start', l.span_start)) as text
      from _memoir.texts_at(p_turn.user_id, p_locators, 'secret') t
      join unnest(p_locators) l on l.item_no = t.item_no
      join _memoir.search_items i on i.user_id = p_turn.user_id and i.item_no = l.item_no
      where length(t.body) <= 4000
        and (i.role <> 'user' or nullif(btrim(t.name), '') is not distinct from nullif(btrim(p_turn.name), ''))
      order by l.ref_id in (select w.source_id from unnest(v_wishes) w) desc, 1 desc, 2 desc, 3
      limit p_most + cardinality(v_wishes)) x);
end $$;

-- The items nearest in meaning to a text, and the messages that they are of, where the shared embedder answers.
create or replace function _memoir.near_text(p_user_id uuid, p_text text, p_config jsonb, out items integer[],
  out messages uuid[])
language plpgsql stable as $$
declare
  v_model _memoir.embedding_models; v_vector halfvec;
begin
  items := '{}';
  messages := '{}';
  select * into v_model from _memoir.embedding_models where status = 'active' and provider = 'embedder';
  if not found then return; end if;
  v_vector := (_memoir.query_vector(p_config, p_text, null)).vector;
  if v_vector is not null then
    items := array(select e.item_no from _memoir.embeddings e
      where e.user_id = p_user_id and e.model_id = v_model.model_id
      order by ((e.embedding <=> v_vector) * 1000000)::bigint, e.item_no limit 16);
    messages := array(select distinct i.ref_id from _memoir.search_items i where i.user_id = p_user_id
      and i.item_no = any (items));
  end if;
end $$;

-- A request to forget, with the texts and memories that it may mean, those that a caller may see.
create or replace function _memoir.asking_context(p_turn _memoir.conversation_history, p_request jsonb,
  p_config jsonb, p_projects text[] default null, p_clearance _memoir.sensitivity default 'secret')
returns jsonb language plpgsql stable as $$
declare
  v_user uuid := p_turn.user_id; v_names text := p_request ->> 'names'; v_locators _memoir.item_locator[];
  v_said text := concat_ws(' ', v_names, left(p_turn.content, 1000));
  v_near record := _memoir.near_text(v_user, v_said, p_config);
begin
  v_locators := _memoir.items_before(p_turn, _memoir.query_terms((p_request ->> 'language')::regconfig, v_said),
    '{user,assistant}', 0, coalesce(v_near.items, '{}'));
  if p_projects is not null or p_clearance <> 'secret' then
    v_locators := array(select l from unnest(v_locators) l join _memoir.search_items i on i.user_id = v_user
      and i.item_no = l.item_no and i.sensitivity <= p_clearance and (p_projects is null
        or i.project = any (p_projects)));
  end if;
  return p_request || jsonb_build_object('no', p_request -> 'text_no', 'text', p_turn.content,
    'said_at', p_turn.created_at, 'earlier', _memoir.texts_as_read(p_turn, v_locators, v_near.messages, 100, true),
    'memories', (select jsonb_agg(jsonb_build_object('id', m.memory_id, 'content', left(m.content, 2000), 'slot',
        m.slot, 'slot_value', m.slot_value))
      from (select x.* from _memoir.memory_store x where x.user_id = v_user and x.state = 'active'
          and not x.is_object and x.sensitivity <= p_clearance and (p_projects is null or x.project = any (p_projects))
        order by x.recorded_at desc limit 400) m));
end $$;

-- Returns what the package needs to know of earlier turns to read a batch: for requests and, where no model reads them,
-- for turns that state something. Such a turn comes with what its speaker said before that has to do with it (words in
-- common, near in meaning, or the last turns of the session), and with memories without a turn in one of its slots.
create or replace function _memoir.reading_context(p_turns _memoir.conversation_history[], p_reading jsonb,
  p_config jsonb, p_has_model boolean)
returns jsonb language plpgsql stable as $$
declare
  v_no integer; v_turn _memoir.conversation_history; v_text text; v_language text; v_near record; v_since timestamptz;
  v_slots text[]; v_turns jsonb[] := '{}';
  -- Wishes share few words with what ends them.
  v_user uuid := (p_turns[1]).user_id; v_wishes integer[] := array(select i.item_no from _memoir.search_items i
    where i.user_id = v_user and i.kind = 't' and i.ref_id in (select source_id from _memoir.wish_sources(v_user)));
begin
  for v_no in select s::integer from jsonb_array_elements_text(p_reading -> 'stating') s where not p_has_model
    order by 1 loop
    v_turn := p_turns[v_no];
    v_text := left(v_turn.content, 1000);
    v_language := p_reading -> 'languages' ->> (v_no - 1);
    v_near := _memoir.near_text(v_turn.user_id, v_text, p_config);
    v_slots := array(select _memoir.normalise(f ->> 'slot') from jsonb_array_elements(p_reading -> 'found') f
      where (f ->> 'text_no')::integer = v_no and f ->> 'slot' is not null);
    -- A constant when the statement is planned, so that it locks no other months.
    v_since := v_turn.recorded_at - interval '1 day';
    v_turns := array_append(v_turns, jsonb_build_object('no', v_no, 'text', v_turn.content,
      'name', nullif(btrim(v_turn.name), ''), 'said_at', v_turn.created_at,
      'utc_offset', v_turn.metadata #>> '{sent,utc_offset}', 'language', v_language,
      -- The question with which the assistant ended before it.
      'asked', (select btrim((regexp_match(right(h.content, 400), '([^.!?\n]{4,200}[?？])["”'')]*\s*$'))[1])
        from _memoir.conversation_history h
        where h.user_id = v_turn.user_id and h.session_id = v_turn.session_id and h.turn_index = v_turn.turn_index - 1
          and h.recorded_at between v_since and v_turn.recorded_at and h.role = 'assistant'),
      'earlier', _memoir.texts_as_read(v_turn, _memoir.items_before(v_turn,
        _memoir.query_terms(v_language::regconfig, v_text), '{user}', 12, coalesce(v_near.items, '{}')
        || v_wishes), v_near.messages, 60, false),
      'memories', (select jsonb_agg(jsonb_build_object('id', m.memory_id, 'content', m.content))
        from _memoir.memory_store m where m.user_id = v_turn.user_id and m.state = 'active' and m.slot = any (v_slots)
          and not exists (select from _memoir.memory_sources s where s.user_id = m.user_id and s.item_kind = 'memory'
            and s.item_id = m.memory_id and s.source_kind = 'turn'))));
  end loop;
  return jsonb_build_object('turns', v_turns, 'requests', (
    select jsonb_agg(_memoir.asking_context(p_turns[(r ->> 'text_no')::integer], r, p_config) order by o)
    from jsonb_array_elements(p_reading -> 'requests') with ordinality q(r, o)));
end $$;
