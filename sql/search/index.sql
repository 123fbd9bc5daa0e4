-- The index: what of a text is searched, numbered per user.

-- Numbers new items, puts them and their words where search finds them, asks for vectors. Returns the first item's
-- number.
create or replace function _memoir.add_items(p_user_id uuid, p_items _memoir.search_items[], p_texts text[],
  p_at timestamptz, p_config jsonb)
returns integer language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_count integer := cardinality(p_items);
  v_first integer; v_config regconfig := (p_config ->> 'text_search_config')::regconfig; v_old _memoir.user_counters;
  v_continues boolean;
  v_previous _memoir.search_items;
begin
  if v_count = 0 then return null; end if;
  select * into v_old from _memoir.user_counters where user_id = p_user_id for update;
  v_continues := p_items[1].kind = 't' and v_old.last_session is not distinct from p_items[1].session_id;
  v_first := v_old.next_item + (not v_continues)::integer;
  -- Neighbours in the order of turns: something else, a memory or another session, may have been indexed in between.
  if v_continues then
    v_previous.item_no := v_first - 1; v_previous.is_question := v_old.last_question;
  elsif p_items[1].turn_index > 0 then
    v_previous := _memoir.item_before(p_user_id, p_items[1].session_id, p_items[1].turn_index);
  end if;
  with languages as materialized (
    -- Of a long text its beginning decides.
    select f.ref_id, _memoir.item_language(f.body, v_config) as decided
    from (select distinct on (u.ref_id) u.ref_id, u.body
      from rows from (unnest(p_texts), unnest(p_items)) with ordinality as u(body)
      order by u.ref_id, u.ordinality offset 0) f
  ), prepared as materialized (
    select u.*, l.decided, _memoir.item_words(u.body, l.decided, v_config) as words
    from rows from (unnest(p_texts), unnest(p_items)) with ordinality as u(body)
    join languages l on l.ref_id = u.ref_id),
  counted as materialized (
    select (v_first + p.ordinality - 1)::integer as number, p.words, p.decided,
      -- what fits a tsvector
      ((p.ordinality - 1) / 60)::text || '.' || sum(length(p.body)) over (order by p.ordinality) / 20000 as part,
      -- What has no position was added to what the text says.
      least(32767, coalesce((select sum(cardinality(w.positions)) from unnest(p.words) w), 0))::smallint as total,
      p.ref_id, p.session_id, p.created_at, p.turn_index, p.span_start, p.span_length, p.token_count, p.chunk, p.kind,
        p.role, p.speaker,
      p.is_question, p.embeddable, p.echo, p.sensitivity, p.project
    from prepared p),
  tail as (
    insert into _memoir.search_tail (user_id, item_no, word_counts, words)
    select p_user_id, g.first, g.totals, w.words
    from (select c.part, min(c.number) as first, array_agg(c.total order by c.number) as totals from counted c
    group by c.part) g,
      lateral (select _memoir.packed_words(array_agg(l.lexeme), array_agg(c.number - g.first),
        array_agg(coalesce(cardinality(l.positions), 1))) as words
               from counted c, unnest(c.words) l where c.part = g.part) w
    where w.words is not null),
  items as (
    insert into _memoir.search_items (user_id, ref_id, session_id, recorded_at, created_at, item_no, turn_index,
      span_start, span_length,
      token_count, word_count, language, chunk, kind, role, speaker, is_question, after_question, last_chunk,
        embeddable, echo,
        sensitivity, project, previous_item)
    select p_user_id, c.ref_id, c.session_id, p_at, c.created_at, c.number, c.turn_index, c.span_start, c.span_length,
      c.token_count, c.total, c.decided, c.chunk, c.kind, c.role, c.speaker, c.is_question,
      c.kind = 't' and c.chunk = 0 and coalesce(lag(c.is_question) over o, v_previous.is_question, false),
      lead(c.ref_id) over o is distinct from c.ref_id, c.embeddable, coalesce(c.echo, false),
        coalesce(c.sensitivity, 'normal'), c.project,
      case when c.kind = 't' then coalesce(lag(c.number) over o, v_previous.item_no) end
    from counted c window o as (order by c.number))
  update _memoir.user_counters set next_item = v_first + v_count, items = items + v_count,
    tail_items = tail_items + v_count,
    last_session = case when p_items[v_count].kind = 't' then p_items[v_count].session_id end,
      last_question = p_items[v_count].is_question,
    total_words = total_words + (select sum(total) from counted),
    languages = languages | (select bit_or(1::bigint << decided) from counted)
  where user_id = p_user_id;
  perform _memoir.note_aliases(p_user_id, v_first, p_items, p_texts);
  -- Locks a waiting work item too: claim_embeddings then can't take it before these items are there to see.
  insert into _memoir.work_items (kind, user_id, dedup_key, run_after, created_at)
  select 'embed', p_user_id, model_id::text, p_at, p_at from _memoir.embedding_models where status <> 'retired'
  order by model_id
  on conflict (kind, user_id, dedup_key) where state = 'ready' do update set priority = work_items.priority where false;
  return v_first;
end $$;

-- Takes items out of all search structures, so that nothing of their words is left in a list.
create or replace function _memoir.drop_items(p_user_id uuid, p_items integer[])
returns void language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_items integer; v_words bigint; v_tail integer;
begin
  if coalesce(p_items, '{}') = '{}' then return; end if;
  delete from _memoir.embeddings where user_id = p_user_id and item_no = any (p_items);
  with touched as (
    delete from _memoir.search_tail t where t.user_id = p_user_id
      and exists (select from generate_subscripts(t.word_counts, 1) n where t.item_no + n - 1 = any (p_items))
    returning t.item_no, t.word_counts, t.words
  ), remaining as (
    select h.item_no,
      array(select case when h.item_no + n - 1 <> all (p_items) then h.word_counts[n] end
        from generate_subscripts(h.word_counts, 1) n order by n) as word_counts,
      (select _memoir.packed_words(array_agg(l.lexeme), array_agg((p >> 8)::integer), array_agg(p & 255))
       from unnest(h.words) l, unnest(l.positions) p where h.item_no + (p >> 8) <> all (p_items)) as words
    from touched h
  ), put as (
    insert into _memoir.search_tail (user_id, item_no, word_counts, words)
    select p_user_id, item_no, word_counts, words from remaining where words is not null
  )
  select (select count(c) from touched, unnest(word_counts) c) - (select count(c) from remaining, unnest(word_counts) c
  where words is not null) into v_tail;
  delete from _memoir.search_aliases where user_id = p_user_id and item_no = any (p_items);
  with touched as (
    delete from _memoir.search_postings p where p.user_id = p_user_id and exists (select from unnest(p.postings) x
    where p.first_item + (x >> 8) = any (p_items)) returning p.*
  ), kept as (
    select h.key, h.segment, h.first_item, h.words[width_bucket(u.nth - 1, h.ends) + 1] as word, u.posting, u.length,
      u.nth
    from touched h, unnest(h.postings, h.lengths) with ordinality u(posting, length, nth)
    where h.first_item + (u.posting >> 8) <> all (p_items)
  ), numbered as (
    select k.*, (row_number() over w)::integer as entry_no, lead(k.word) over w is distinct from k.word as last
    from kept k window w as (partition by k.key, k.segment order by k.nth)
  )
  insert into _memoir.search_postings (user_id, segment, first_item, key, words, ends, postings, lengths)
  select p_user_id, segment, first_item, key, array_agg(word order by entry_no) filter (where last
    and word is not null),
    array_agg(entry_no order by entry_no) filter (where last and word is not null),
      array_agg(posting order by entry_no), array_agg(length order by entry_no)
  from numbered group by key, segment, first_item;
  with gone as (delete from _memoir.search_items where user_id = p_user_id and item_no = any (p_items)
    returning word_count)
  select count(*), coalesce(sum(word_count), 0) into v_items, v_words from gone;
  update _memoir.user_counters set items = items - v_items, total_words = total_words - v_words,
    tail_items = greatest(0, tail_items - v_tail),
    last_session = null
  where user_id = p_user_id;
end $$;

-- The last item of what was said before a turn of a session: of the turn before it, or of the last before that which
-- has any text.
create or replace function _memoir.item_before(p_user_id uuid, p_session_id uuid, p_turn integer)
returns _memoir.search_items language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_item _memoir.search_items; v_turn integer := p_turn - 1; v_ref uuid;
begin
  while v_turn >= greatest(0, p_turn - 8) loop
    v_ref := (_memoir.turn(p_user_id, p_session_id, v_turn)).message_id;
    exit when v_ref is null;
    select * into v_item from _memoir.search_items i where i.user_id = p_user_id and i.ref_id = v_ref
    order by i.chunk desc limit 1;
    exit when found;
    v_turn := v_turn - 1;
  end loop;
  return v_item;
end $$;

-- The texts of items, as they are embedded and shown.
create or replace function _memoir.item_texts(p_user_id uuid, p_items integer[],
  p_clearance _memoir.sensitivity default 'private')
returns table (item_no integer, name text, body text) language plpgsql stable set plan_cache_mode = force_custom_plan
  as $$
begin
  return query
  select t.* from (select array_agg((i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.recorded_at,
    i.span_start, i.span_length)::_memoir.item_locator) as locators
                   from _memoir.search_items i where i.user_id = p_user_id and i.item_no = any (p_items)) x,
    _memoir.texts_at(p_user_id, x.locators, p_clearance) t;
end $$;

-- The same for locators that are known. Turns are fetched by month: their times are constants to the planner.
create or replace function _memoir.texts_at(p_user_id uuid, p_locators _memoir.item_locator[],
  p_clearance _memoir.sensitivity)
returns table (item_no integer, name text, body text) language plpgsql stable set plan_cache_mode = force_custom_plan
  as $$
declare
  v_turns _memoir.item_locator[]; v_times timestamptz[]; v_memories _memoir.item_locator[]; v_refs uuid[];
  v_summaries _memoir.item_locator[];
begin
  select array_agg(p) filter (where p.kind = 't'), array_agg(distinct p.recorded_at) filter (where p.kind = 't'),
    array_agg(p) filter (where p.kind = 'm'), array_agg(p.ref_id) filter (where p.kind = 'm'),
      array_agg(p) filter (where p.kind = 's')
  into v_turns, v_times, v_memories, v_refs, v_summaries from unnest(p_locators) p;
  if v_turns is not null then
    return query
    select p.item_no, h.name, substr(h.content, p.span_start, p.span_length)
    from unnest(v_turns) p
    join _memoir.conversation_history h on h.user_id = p_user_id and h.session_id = p.session_id
      and h.turn_index = p.turn_index
      and h.recorded_at = p.recorded_at
    where h.recorded_at = any (v_times)
      and (h.sensitivity <= p_clearance or _memoir.sensitivity_now(h.sensitivity, h.turn_index,
        _memoir.marks(p_user_id, h.session_id)) <= p_clearance);
  end if;
  if v_memories is not null then
    return query
    select p.item_no, null::text, substr(m.content, p.span_start, p.span_length)
    from unnest(v_memories) p join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = p.ref_id
    where m.memory_id = any (v_refs) and m.sensitivity <= p_clearance;
  end if;
  if v_summaries is not null then
    return query
    select p.item_no, null::text, substr(coalesce(c.summary_text, s.summary_text), p.span_start, p.span_length)
    from unnest(v_summaries) p
    left join _memoir.compactions c on c.user_id = p_user_id and c.session_id = p.session_id
      and c.compaction_id = p.ref_id
    left join _memoir.sessions s on s.user_id = p_user_id and s.session_id = p.ref_id;
  end if;
end $$;
