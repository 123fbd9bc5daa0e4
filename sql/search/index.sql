-- Numbers new items, puts them and their words where search finds them, asks for vectors. Returns the first number.
create or replace function _memoir.add_items(p_user_id uuid, p_items _memoir.search_items[], p_texts text[],
  p_at timestamptz, p_config jsonb)
returns integer language plpgsql as $$
declare
  v_count integer := cardinality(p_items);
  v_first integer; v_config regconfig := (p_config ->> 'text_search_config')::regconfig; v_old _memoir.user_counters;
  v_written record;
  v_continues boolean; v_session uuid; v_question boolean; v_ref uuid; v_previous _memoir.search_items;
  v_texts text[]; v_aliases integer;
begin
  if v_count = 0 then return null; end if;
  select * into v_old from _memoir.user_counters where user_id = p_user_id for update;
  v_continues := p_items[1].kind = 't' and v_old.last_session is not distinct from p_items[1].session_id;
  v_first := v_old.next_item + (not v_continues)::integer;
  -- Neighbours in the order of turns: something else, a memory or another session, may have been indexed in between.
  if v_continues then
    v_previous.item_no := v_first - 1; v_previous.is_question := v_old.last_question;
  elsif p_items[1].turn_index > 0 then
    -- The last item of the turn before it, or of the last before that which has any text.
    for v_turn in reverse p_items[1].turn_index - 1 .. greatest(0, p_items[1].turn_index - 8) loop
      v_ref := (_memoir.turn(p_user_id, p_items[1].session_id, v_turn)).message_id;
      exit when v_ref is null;
      select * into v_previous from _memoir.search_items i where i.user_id = p_user_id and i.ref_id = v_ref
      order by i.chunk desc limit 1;
      exit when found;
    end loop;
  end if;
  v_written := _memoir.write_items(p_user_id, p_items, p_texts, v_first, v_previous, p_at, v_config);
  v_session := case when p_items[v_count].kind = 't' then p_items[v_count].session_id end;
  v_question := p_items[v_count].is_question;
  update _memoir.user_counters set next_item = v_first + v_count, items = items + v_count,
    tail_items = tail_items + v_count, last_session = v_session, last_question = v_question,
    total_words = total_words + v_written.total_words, languages = languages | v_written.written_in,
    features = features
      || case when v_written.has_echo and 'echoes' <> all (features) then '{echoes}'::text[] else '{}' end
      || case when v_written.has_sensitive and 'sensitive' <> all (features) then '{sensitive}'::text[] else '{}' end
  where user_id = p_user_id;
  -- What the texts say about names: of memories, and of turns in the person's own words. Most say nothing of the kind.
  if exists (select from rows from (unnest(p_texts), unnest(p_items)) as i(body)
    where (i.kind = 'm' or i.kind = 't' and (i.role = 'user' or i.speaker is not null)) and i.body ~ (
    '[[:alnum:]] ?\(.{2,}\)| or (simply |just )?["“]?[[:upper:]].?[[:upper:][:digit:]]|\m(aka|a\.k\.a|known as|'
    'short for|stands for|for short)\M|[[:upper:]][[:alnum:]]*[[:lower:]][[:alnum:]]* (of |the )?[[:upper:]]')) then
    v_texts := array(select case when i.kind = 'm' or i.kind = 't' and (i.role = 'user' or i.speaker is not null)
        then i.body else '' end
      from rows from (unnest(p_texts), unnest(p_items)) with ordinality as i(body) order by i.ordinality);
    insert into _memoir.search_aliases (user_id, item_no, name, other, stated)
    select p_user_id, (v_first + f.nth - 1)::integer, a.name, a.other, bool_or(a.stated)
    from jsonb_array_elements(_memoir.read_texts('read_aliases', jsonb_build_object('texts', v_texts)) -> 'found')
      with ordinality f(found, nth)
    cross join lateral jsonb_to_recordset(f.found) a(name text, other text, stated boolean)
    group by f.nth, a.name, a.other;
    get diagnostics v_aliases = row_count;
    update _memoir.user_counters set aliases = aliases + v_aliases where v_aliases > 0 and user_id = p_user_id;
  end if;
  perform _memoir.ask_for_vectors(p_user_id, p_at);
  return v_first;
end $$;

-- Locks a waiting work item too: claim_embeddings then can't take it before new items are there to see.
create or replace function _memoir.ask_for_vectors(p_user_id uuid, p_at timestamptz)
returns void language plpgsql set plan_cache_mode = force_generic_plan as $$
begin
  insert into _memoir.work_items (kind, user_id, dedup_key, run_after, created_at)
  select 'embed', p_user_id, model_id::text, p_at, p_at from _memoir.embedding_models where status <> 'retired'
  order by model_id
  on conflict (kind, user_id, dedup_key) where state = 'ready' do update set priority = work_items.priority where false;
end $$;

-- The rows of new items: numbered from p_first, p_previous being what was said before them. How many words they have,
-- and in which languages.
create or replace function _memoir.write_items(p_user_id uuid, p_items _memoir.search_items[], p_texts text[],
  p_first integer, p_previous _memoir.search_items, p_at timestamptz, p_config regconfig,
  out total_words bigint, out written_in bigint, out has_echo boolean, out has_sensitive boolean)
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_count integer := cardinality(p_items); v_item _memoir.search_items; v_next _memoir.search_items := p_items[1];
  v_rows _memoir.search_items[] := '{}'; v_language smallint; v_question boolean; v_text text;
  v_words tsvector[] := '{}'; v_parts text[] := '{}'; v_length bigint := 0;
begin
  total_words := 0;
  written_in := 0;
  for i in 1 .. v_count loop
    v_text := p_texts[i];
    if v_item.ref_id is distinct from v_next.ref_id then v_language := _memoir.item_language(v_text, p_config); end if;
    v_question := coalesce(v_item.is_question, p_previous.is_question, false);
    v_item := v_next;
    v_next := p_items[i + 1];
    v_words := array_append(v_words, _memoir.item_words(v_text, v_language, p_config));
    v_item.user_id := p_user_id;
    v_item.recorded_at := p_at;
    v_item.item_no := p_first + i - 1;
    v_item.language := v_language;
    -- What has no position was added to what the text says.
    v_item.word_count := least(32767,
      coalesce((select sum(cardinality(w.positions)) from unnest(v_words[i]) w), 0))::smallint;
    v_item.after_question := v_item.kind = 't' and v_item.chunk = 0 and v_question;
    v_item.last_chunk := v_next.ref_id is distinct from v_item.ref_id;
    v_item.previous_item := case when v_item.kind = 't' then case i when 1 then p_previous.item_no
      else v_item.item_no - 1 end end;
    v_item.dead := false;
    v_item.echo := coalesce(v_item.echo, false);
    v_item.sensitivity := coalesce(v_item.sensitivity, 'normal');
    v_rows := array_append(v_rows, v_item);
    v_length := v_length + length(v_text);
    v_parts := array_append(v_parts, (i - 1) / 60 || '.' || v_length / 20000);
    total_words := total_words + v_item.word_count;
    written_in := written_in | (1::bigint << v_language);
    has_echo := has_echo is true or v_item.echo;
    has_sensitive := has_sensitive is true or v_item.sensitivity <> 'normal';
  end loop;
  -- Words of some items together, as many as fit a tsvector, to be merged into the lists of each word.
  insert into _memoir.search_tail (user_id, item_no, word_counts, words)
  select p_user_id, t.first, t.word_counts, w.words
  from (select min(r.item_no) as first, array_agg(r.word_count order by r.item_no) as word_counts,
      array_agg(v_words[r.item_no - p_first + 1] order by r.item_no) as texts
    from unnest(v_rows) r group by v_parts[r.item_no - p_first + 1]) t,
    lateral (select _memoir.packed_words(array_agg(l.lexeme), array_agg((c.n - 1)::integer),
        array_agg(coalesce(cardinality(l.positions), 1))) as words
      from unnest(t.texts) with ordinality c(words, n), unnest(c.words) l offset 0) w
  where w.words is not null;
  insert into _memoir.search_items select r.* from unnest(v_rows) r;
end $$;

-- A word's key where the words of its first letter share p_rows rows, a power of two. No word holds the separator.
create or replace function _memoir.shared_key(p_term text, p_rows integer)
returns text language sql immutable as $$
  select left(p_term, 1) || chr(1) || (p_rows + (hashtext(p_term) & (p_rows - 1)))::text  -- immutable, so it is inlined
$$;

-- Takes items out of all search structures, so that nothing of their words is left in a list.
create or replace function _memoir.drop_items(p_user_id uuid, p_items integer[])
returns void language plpgsql as $$
declare
  v_items integer; v_words bigint; v_tail integer;
begin
  if coalesce(p_items, '{}') = '{}' then return; end if;
  delete from _memoir.embeddings where user_id = p_user_id and item_no = any (p_items);
  with touched as (delete from _memoir.search_tail t where t.user_id = p_user_id
      and exists (select from generate_subscripts(t.word_counts, 1) n where t.item_no + n - 1 = any (p_items))
    returning t.item_no, t.word_counts, t.words
  ), remaining as (select h.item_no,
      array(select case when h.item_no + n - 1 <> all (p_items) then h.word_counts[n] end
        from generate_subscripts(h.word_counts, 1) n order by n) as word_counts,
      (select _memoir.packed_words(array_agg(l.lexeme), array_agg((p >> 8)::integer), array_agg(p & 255))
       from unnest(h.words) l, unnest(l.positions) p where h.item_no + (p >> 8) <> all (p_items)) as words
    from touched h
  ), put as (insert into _memoir.search_tail (user_id, item_no, word_counts, words)
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
    tail_items = greatest(0, tail_items - v_tail), last_session = null
  where user_id = p_user_id;
end $$;

-- Texts of turns by their places, with their speakers; parallel arrays. Fetched by month: the
-- times are constants to the planner.
create or replace function _memoir.turn_texts(p_user_id uuid, p_items integer[], p_sessions uuid[], p_turns integer[],
  p_times timestamptz[], p_starts integer[], p_lengths integer[], p_clearance _memoir.sensitivity)
returns table (item_no integer, name text, body text, role _memoir.turn_role) language plpgsql stable
set plan_cache_mode = force_custom_plan as $$
begin
  return query
  select p.item_no, h.name, substr(h.content, p.span_start, p.span_length), h.role
  from unnest(p_items, p_sessions, p_turns, p_times, p_starts, p_lengths)
    p(item_no, session_id, turn_index, recorded_at, span_start, span_length)
  join _memoir.conversation_history h on h.user_id = p_user_id and h.session_id = p.session_id
    and h.turn_index = p.turn_index and h.recorded_at = p.recorded_at
  where h.recorded_at = any (p_times)
    and (h.sensitivity <= p_clearance or _memoir.sensitivity_now(h.sensitivity, h.turn_index,
      _memoir.marks(p_user_id, h.session_id)) <= p_clearance);
end $$;

create or replace function _memoir.item_texts(p_user_id uuid, p_items integer[],
  p_clearance _memoir.sensitivity default 'private')
returns table (item_no integer, name text, body text) language plpgsql stable as $$
begin
  return query
  select t.* from (select array_agg((i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.recorded_at,
    i.span_start, i.span_length)::_memoir.item_locator) as locators
                   from _memoir.search_items i where i.user_id = p_user_id and i.item_no = any (p_items)) x,
    _memoir.texts_at(p_user_id, x.locators, p_clearance) t;
end $$;

-- The same for locators that are known.
create or replace function _memoir.texts_at(p_user_id uuid, p_locators _memoir.item_locator[],
  p_clearance _memoir.sensitivity)
returns table (item_no integer, name text, body text) language plpgsql stable as $$
declare
  v_memories _memoir.item_locator[]; v_refs uuid[]; v_summaries _memoir.item_locator[];
begin
  return query
  select t.item_no, t.name, t.body
  from (select array_agg(p.item_no) as items, array_agg(p.session_id) as sessions, array_agg(p.turn_index) as turns,
      array_agg(p.recorded_at) as times, array_agg(p.span_start) as starts, array_agg(p.span_length) as lengths
    from unnest(p_locators) p where p.kind = 't') a,
    _memoir.turn_texts(p_user_id, a.items, a.sessions, a.turns, a.times, a.starts, a.lengths, p_clearance) t
  where a.items is not null;
  select array_agg(p) filter (where p.kind = 'm'), array_agg(p.ref_id) filter (where p.kind = 'm'),
    array_agg(p) filter (where p.kind = 's')
  into v_memories, v_refs, v_summaries from unnest(p_locators) p;
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

create or replace function _memoir.experience_types()
returns text[] language sql immutable as $$ select '{procedure,lesson,skill}'::text[] $$;

-- Returns the items that ids, or their first eight digits, name: turns, memories and objects.
create or replace function _memoir.named_items(p_user_id uuid, p_names text[])
returns uuid[] language sql stable as $$
  select coalesce(array_agg(distinct x.id), '{}')
  from (select n from unnest(p_names) n where n ~ '^[0-9a-f]{8}(?:(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?$' offset 0) a
  cross join lateral (select n::uuid as id where length(n) = 36 union all
    select f.id from (select rpad(n, 36, '-0000-0000-0000-000000000000')::uuid as first,
      rpad(n, 36, '-ffff-ffff-ffff-ffffffffffff')::uuid as last where length(n) = 8) r
    cross join lateral (select i.ref_id from _memoir.search_items i where i.user_id = p_user_id
        and i.ref_id between r.first and r.last
      union all
      select m.memory_id from _memoir.memory_store m where m.user_id = p_user_id
        and m.memory_id between r.first and r.last) f(id)) x
$$;
