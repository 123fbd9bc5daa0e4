-- Search: one user's items ranked by words and vectors together.
--
-- Words: BM25 (Robertson and Zaragoza 2009) with document frequencies exact within the user, from posting lists and the unmerged
-- tail. Vectors: exact cosine over the user's rows, of a large user over those that their signs choose. The scores, not the ranks,
-- are fused: on real dialogues that finds far more (bench/recall.py prints the comparison). Scores are quantised before they are
-- compared; ties fall to the item number.

create or replace function memoir._query_terms(p_config regconfig, p_query text)
returns text[] language sql stable as $$
  select coalesce(tsvector_to_array(memoir._words(p_config, left(p_query, 20000), true)), '{}')
$$;

-- The posting lists of some words: one per (word, segment), and one per word of the unmerged tail.
create or replace function memoir._posting_lists(p_user_id uuid, p_counters memoir.user_counters, p_terms text[], p_hidden integer[])
returns memoir.posting_list[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_keys text[] := memoir._posting_keys(p_terms, p_counters.letter_rows);
  v_rows memoir.search_postings[]; v_tail memoir.posting_list[]; v_any tsquery; v_next integer := p_counters.next_item;
begin
  select array_agg(p) into v_rows from memoir.search_postings p where p.user_id = p_user_id and p.key = any (v_keys);
  if p_counters.tail_items > 0 then
    v_any := memoir._any_of(p_terms);
    select array_agg((w.term, v_next, w.postings, w.lengths)::memoir.posting_list) into v_tail
    from (select l.lexeme as term, array_agg((t.item_no - v_next << 8) + p) as postings, array_agg(t.word_counts[(p >> 8) + 1]) as lengths
          -- What is left of a row without all that is left of it without the words: cheaper than to unnest it whole.
          from memoir.search_tail t, unnest(ts_delete(t.words, tsvector_to_array(ts_delete(t.words, p_terms)))) l, unnest(l.positions) p
          where t.user_id = p_user_id and t.words @@ v_any group by l.lexeme) w;
  end if;
  return memoir._lists_in(v_rows, p_terms) || v_tail;
end $$;

-- Words that occur nowhere may be misspelt: the user's most similar ones stand in (trigrams, same first letter, which keeps it
-- to a slice of the vocabulary).
create or replace function memoir._rescue_terms(p_user_id uuid, p_terms text[], p_unknown text[], p_hidden integer[])
returns text[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_term text; v_found text[] := '{}'; v_like text[];
begin
  foreach v_term in array p_unknown loop
    v_like := array(
      select word from (
        select w.word from memoir.search_postings p, unnest(coalesce(p.words, array[p.key])) with ordinality w(word, n)
        where p.user_id = p_user_id and p.key >= left(v_term, 1) and p.key < chr(ascii(v_term) + 1)
          and abs(length(w.word) - length(v_term)) <= 3 and similarity(w.word, v_term) >= 0.45
          and (p_hidden = '{}' or exists (select from unnest(p.postings[coalesce(p.ends[w.n - 1], 0) + 1 : coalesce(p.ends[w.n], cardinality(p.postings))]) x
            where p.first_item + (x >> 8) <> all (p_hidden)))
        union
        select w.word from memoir.search_tail t, unnest(tsvector_to_array(t.words)) w(word)
        where t.user_id = p_user_id and starts_with(w.word, left(v_term, 1)) and abs(length(w.word) - length(v_term)) <= 3 and similarity(w.word, v_term) >= 0.45
          and (p_hidden = '{}' or exists (select from unnest(t.words) l, unnest(l.positions) x where l.lexeme = w.word and t.item_no + (x >> 8) <> all (p_hidden)))) w
      order by similarity(word, v_term) desc, word collate "C" limit 2);
    v_found := v_found || v_like;
  end loop;
  return array(select distinct w from unnest(v_found) w where w <> all (p_terms));
end $$;

-- BM25 of every item that holds one of the words, or what stands in for it.
create or replace function memoir._word_scores(p_user_id uuid, p_counters memoir.user_counters, p_config jsonb, p_terms text[], p_hidden integer[])
returns memoir.item_scores language plpgsql stable as $$
declare
  v_lists memoir.posting_list[]; v_unknown text[];
begin
  if p_terms = '{}' then return null; end if;
  v_lists := memoir._posting_lists(p_user_id, p_counters, p_terms, p_hidden);
  v_unknown := memoir._unknown_terms(p_terms, v_lists, p_hidden);
  if v_unknown <> '{}' then
    v_unknown := memoir._rescue_terms(p_user_id, p_terms, v_unknown, p_hidden);
    if v_unknown <> '{}' then v_lists := v_lists || memoir._posting_lists(p_user_id, p_counters, v_unknown, p_hidden); end if;
  end if;
  return memoir._bm25(v_lists, p_counters, p_config, cardinality(p_terms), p_hidden);
end $$;

-- Cosines of the closest p_limit items and of those that matched by words (p_items), best first. All of it in one scan, sorted
-- by one integer (distance in millionths, then the item): what matched by words is moved before all others, so that it stays.
-- For a user of more than exact_vectors_max items the signs of the vectors, an index of their own, choose whom to compare.
create or replace function memoir._vector_scores(p_user_id uuid, p_counters memoir.user_counters, p_config jsonb, p_vector halfvec, p_model_id smallint,
  p_items integer[], p_hidden integer[], p_limit integer)
returns memoir.item_scores language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_keys bigint[]; v_limit integer := p_limit + coalesce(cardinality(p_items), 0);
  v_signs "bit"; v_near integer[]; v_compared integer := p_limit * (p_config ->> 'sign_candidates')::integer;
begin
  if p_vector is null then return null; end if;
  -- Signs of few dimensions tell too little.
  if p_counters.items > (p_config ->> 'exact_vectors_max')::integer and vector_dims(p_vector) >= 256 then
    v_signs := binary_quantize(p_vector);
    select array_agg((k.key & 4294967295)::integer) into v_near
    from (select (e.signs <~> v_signs)::bigint << 32 | e.item_no as key
          from memoir.embeddings e
          where e.user_id = p_user_id and e.model_id = p_model_id and (p_hidden = '{}' or e.item_no <> all (p_hidden)) order by key limit v_compared) k;
    v_near := v_near || p_items;
    select array_agg(k.key) into v_keys
    from (select (((e.embedding <=> p_vector) * 1000000)::bigint - case when e.item_no = any (p_items) then 4000000 else 0 end) << 32 | e.item_no as key
          from memoir.embeddings e
          where e.user_id = p_user_id and e.model_id = p_model_id and e.item_no = any (v_near) order by key limit v_limit) k;
  else
    select array_agg(k.key) into v_keys
    from (select (((e.embedding <=> p_vector) * 1000000)::bigint - case when e.item_no = any (p_items) then 4000000 else 0 end) << 32 | e.item_no as key
          from memoir.embeddings e
          where e.user_id = p_user_id and e.model_id = p_model_id and (p_hidden = '{}' or e.item_no <> all (p_hidden)) order by key limit v_limit) k;
  end if;
  return memoir._from_keys(v_keys, p_limit);
end $$;

-- One user's best items, best first: signals of each → weights → one integer, ties by item number.
create or replace function memoir._rank(p_user_id uuid, p_counters memoir.user_counters, p_config jsonb, p_query text, p_vector halfvec,
  p_model_id smallint, p_project text, p_scope memoir.search_scope, p_limit integer)
returns memoir.ranked_item[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_terms text[] := memoir._query_terms((p_config ->> 'text_search_config')::regconfig, p_query);
  v_words memoir.item_scores; v_vectors memoir.item_scores; v_wanted integer[]; v_items memoir.search_items[];
  v_hidden integer[] := '{}'; v_hidden_words bigint := 0; v_above integer := 0; v_further boolean := false;
begin
  -- What is above the caller's clearance is not there: it finds nothing, counts for nothing and moves nobody's score.
  if p_scope.clearance is distinct from 'secret' then
    select coalesce(array_agg(i.item_no), '{}'), coalesce(sum(i.word_count), 0) into v_hidden, v_hidden_words
    from memoir.search_items i where i.user_id = p_user_id and i.sensitivity > coalesce(p_scope.clearance, 'normal') and i.sensitivity <> 'normal';
    v_above := cardinality(v_hidden);
    p_counters.items := p_counters.items - v_above; p_counters.total_words := p_counters.total_words - v_hidden_words;
  end if;
  -- A memory that repeats a turn finds nothing that the turn does not: it would only push others out.
  if p_scope.kinds is null or 't' = any (p_scope.kinds) then
    select v_hidden || coalesce(array_agg(i.item_no), '{}'), coalesce(sum(i.word_count), 0) into v_hidden, v_hidden_words
    from memoir.search_items i where i.user_id = p_user_id and i.echo and i.item_no <> all (v_hidden);
    p_counters.items := p_counters.items - cardinality(v_hidden) + v_above; p_counters.total_words := p_counters.total_words - v_hidden_words;
  end if;
  if coalesce(p_counters.items, 0) <= 0 then return null; end if;
  v_words := memoir._word_scores(p_user_id, p_counters, p_config, v_terms
    || memoir._alias_terms((p_config ->> 'text_search_config')::regconfig, memoir._other_names(p_user_id, p_counters, p_query, p_scope), v_terms), v_hidden);
  v_vectors := memoir._vector_scores(p_user_id, p_counters, p_config, p_vector, p_model_id, v_words.items[1 : p_limit], v_hidden, p_limit);
  v_wanted := memoir._wanted(v_words, v_vectors, p_limit);
  loop
    select v_items || array_agg(i) into v_items
    from memoir.search_items i
    where i.user_id = p_user_id and i.item_no = any (v_wanted) and (v_hidden = '{}' or i.item_no <> all (v_hidden))
      and (not i.dead or (p_scope.as_of is not null and i.kind = 'm'))  -- excluded turns stay excluded at any time
      and (p_scope.as_of is null or i.recorded_at <= p_scope.as_of)
      and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
      and (i.kind <> 't' or i.turn_index < p_scope.hidden_from or i.session_id <> all (p_scope.hidden_sessions))
      and (i.kind <> 's' or i.session_id <> all (p_scope.hidden_sessions))  -- a session's own summary stands in its system message
      and (p_scope.projects is null or i.project = any (p_scope.projects))
      and (p_scope.said_after is null or i.created_at >= p_scope.said_after)
      and (p_scope.said_before is null or i.created_at < p_scope.said_before)
      and (i.kind <> 'm' or i.session_id is null or i.session_id = any (p_scope.local_sessions));
    exit when v_further;
    v_further := true;
    v_wanted := memoir._further_neighbours(p_user_id, v_items, v_words.items[1 : p_limit / 4], v_vectors.items[1 : p_limit / 4]);
    exit when v_wanted = '{}';
  end loop;
  return memoir._score(v_items, v_words, v_vectors, p_config, p_query, cardinality(v_terms), p_project, coalesce(p_scope.as_of, memoir.now()), p_limit);
end $$;

-- Neighbours that do not lie beside their items, since something else was indexed in between; within 128 numbers after, anywhere before.
create or replace function memoir._further_neighbours(p_user_id uuid, p_items memoir.search_items[], p_words integer[], p_vectors integer[])
returns integer[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_ends memoir.item_ends := memoir._item_ends(p_items, p_words, p_vectors); v_next integer[];
begin
  if v_ends.lasts <> '{}' then
    v_next := array(select n.item_no from unnest(v_ends.lasts) e, lateral (select i.item_no from memoir.search_items i
        where i.user_id = p_user_id and i.item_no > e + 1 and i.item_no <= e + 128 and i.previous_item = e order by i.item_no limit 1) n);
  end if;
  return v_ends.before || v_next;
end $$;

-- The functions below touch no table: one generic plan serves every call.

create or replace function memoir._item_ends(p_items memoir.search_items[], p_words integer[], p_vectors integer[])
returns memoir.item_ends language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_ends memoir.item_ends;
begin
  with items as materialized (
    select i.item_no, i.previous_item, i.kind from unnest(p_items) i
  )
  select array(select i.previous_item from items i where i.item_no = any (p_vectors) and i.previous_item < i.item_no - 1
      and i.previous_item not in (select item_no from items)),
    array(select i.item_no from items i where i.item_no = any (p_words) and i.kind = 't'
      and i.item_no not in (select previous_item from items where previous_item is not null))
  into v_ends.before, v_ends.lasts;
  return v_ends;
end $$;

create or replace function memoir._from_keys(p_keys bigint[], p_limit integer)
returns memoir.item_scores language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_out memoir.item_scores;
begin
  select array_agg(item), array_agg((1 - distance::float8 / 1000000)::real), (1 - min(distance)::float8 / 1000000)::real
  into v_out.items, v_out.scores, v_out.best
  from (select d.*, row_number() over (order by distance, item) as place
        from (select (k & 4294967295)::integer as item, (k >> 32) + case when k < 0 then 4000000 else 0 end as distance, k < 0 as matched
              from unnest(p_keys) k) d order by distance, item) r
  where matched or place <= p_limit;
  return v_out;
end $$;

-- Under which keys posting lists of words may stand: the word's own, and those that it shares where the words of a letter share 1, 8 or 64
-- rows; which of these numbers occur, p_letter_rows says.
create or replace function memoir._posting_keys(p_terms text[], p_letter_rows integer)
returns text[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return (select p_terms || array_agg(memoir._shared_key(t, 1)) filter (where p_letter_rows & 1 > 0)
      || array_agg(memoir._shared_key(t, 8)) filter (where p_letter_rows & 8 > 0) || array_agg(memoir._shared_key(t, 64)) filter (where p_letter_rows & 64 > 0)
    from unnest(p_terms) t);
end $$;

-- A word's key where the words of its first letter share p_rows rows, a power of two. No word holds the separator.
create or replace function memoir._shared_key(p_term text, p_rows integer)
returns text language sql immutable as $$
  select left(p_term, 1) || chr(1) || (p_rows + (hashtext(p_term) & (p_rows - 1)))
$$;

-- The lists of some words out of the rows found under their keys.
create or replace function memoir._lists_in(p_rows memoir.search_postings[], p_terms text[])
returns memoir.posting_list[] language plpgsql immutable as $$
declare
  v_row memoir.search_postings; v_term text; v_place integer; v_first integer; v_lists memoir.posting_list[];
begin
  if p_rows is null then return null; end if;
  foreach v_row in array p_rows loop
    if v_row.words is null then
      v_lists := v_lists || (v_row.key, v_row.first_item, v_row.postings, v_row.lengths)::memoir.posting_list;
    else
      foreach v_term in array p_terms loop
        v_place := case when left(v_term, 1) = left(v_row.key, 1) then array_position(v_row.words, v_term) end;
        if v_place is not null then
          v_first := coalesce(v_row.ends[v_place - 1], 0) + 1;
          v_lists := v_lists || (v_term, v_row.first_item, v_row.postings[v_first : v_row.ends[v_place]], v_row.lengths[v_first : v_row.ends[v_place]])::memoir.posting_list;
        end if;
      end loop;
    end if;
  end loop;
  return v_lists;
end $$;

create or replace function memoir._any_of(p_terms text[])
returns tsquery language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return (select string_agg(quote_literal(t), ' | ') from unnest(p_terms) t)::tsquery;
end $$;

-- Words of five letters and more that no list holds.
create or replace function memoir._unknown_terms(p_terms text[], p_lists memoir.posting_list[], p_hidden integer[])
returns text[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select t from unnest(p_terms) t where length(t) >= 5
    and not exists (select from unnest(p_lists) l where l.term = t
      and (p_hidden = '{}' or exists (select from unnest(l.postings) p where l.first_item + (p >> 8) <> all (p_hidden)))));
end $$;

-- BM25 of every item that holds one of the words, best first, and which share of the p_words words that were asked it holds, each
-- weighing as it is rare; df is what the lists hold.
create or replace function memoir._bm25(p_lists memoir.posting_list[], p_counters memoir.user_counters, p_config jsonb, p_words integer, p_hidden integer[])
returns memoir.item_scores language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_out memoir.item_scores;
  v_items integer := p_counters.items;
  v_k1 float8 := (p_config ->> 'bm25_k1')::float8; v_b float8 := (p_config ->> 'bm25_b')::float8;
  -- k1 * (1 - b + b * length / average)
  v_base float8 := v_k1 * (1 - v_b);
  v_slope float8 := v_k1 * v_b / greatest(1, p_counters.total_words::float8 / greatest(v_items, 1));
begin
  with counted as materialized (
    select l.term, l.first_item, l.postings, l.lengths,
      sum(case when p_hidden = '{}' then cardinality(postings) else (select count(*)::integer from unnest(postings) x where first_item + (x >> 8) <> all (p_hidden)) end)
        over (partition by term) as df from unnest(p_lists) l
  ), weighted as materialized (
    select c.term, c.first_item, c.postings, c.lengths, ln(1 + (v_items - c.df + 0.5::float8) / (c.df + 0.5::float8)) * 1000000 as idf from counted c
  ), asked as (
    -- A word that occurs nowhere is as rare as can be.
    select greatest(1, coalesce(sum(w.idf), 0) + greatest(0, p_words - count(*)) * ln(1 + (v_items + 0.5::float8) / 0.5) * 1000000)::float8 as total
    from (select distinct w.term, w.idf::integer as idf from weighted w) w
  ), scored as (
    -- Summed as integers: a sum of floats would depend on the order in which a plan delivers them.
    select w.first_item + (u.posting >> 8) as item,
      (sum(((v_k1 + 1) * w.idf * (u.posting & 255) / ((u.posting & 255) + v_base + v_slope * u.length))::integer)::float8 / 1000000)::real as bm25, sum(w.idf::integer) as held
    from weighted w, unnest(w.postings, w.lengths) u(posting, length)
    where p_hidden = '{}' or w.first_item + (u.posting >> 8) <> all (p_hidden) group by 1
  )
  select array_agg(item), array_agg(bm25), array_agg((s.held / s.total)::real), max(bm25) into v_out.items, v_out.scores, v_out.covers, v_out.best
  from (select w.item, w.bm25, w.held, a.total from scored w, asked a order by (w.bm25 * 10000)::integer desc, w.item) s;
  return v_out;
end $$;

-- The best by words and vectors, half and half, what follows a match in words (an answer), and what precedes a match in meaning: the
-- signals of all would be weighed for nothing. Half again as many as are asked for, since sessions and dates move them far.
create or replace function memoir._wanted(p_words memoir.item_scores, p_vectors memoir.item_scores, p_limit integer)
returns integer[] language plpgsql immutable set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_neighbours integer := p_limit / 4;
begin
  if p_vectors.items is null then
    return array(select unnest(p_words.items[1 : p_limit]) union select unnest(p_words.items[1 : v_neighbours]) + 1);
  end if;
  return array(
    select b.item from (
      select coalesce(w.item, c.item) as item
      from unnest(p_words.items[1 : p_limit], p_words.scores[1 : p_limit]) w(item, bm25) full join unnest(p_vectors.items, p_vectors.scores) c(item, cosine) on c.item = w.item
      order by coalesce(w.bm25 / p_words.best, 0) + greatest(coalesce(c.cosine, 0), 0) / greatest(p_vectors.best, 1e-6) desc, item limit p_limit * 3 / 2) b
    union select unnest(p_words.items[1 : v_neighbours]) + 1 union select unnest(p_vectors.items[1 : v_neighbours]) - 1);
end $$;
