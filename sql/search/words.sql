-- A question's words among one user's items: BM25 (Robertson and Zaragoza 2009) with document frequencies exact within
-- the user, from posting lists and the unmerged tail. Vectors are in vectors.sql, both together in rank.sql. Scores are
-- quantised before they are compared; ties fall to the item number.

-- The posting lists of some words: one per (word, segment), and one per word of the unmerged tail.
create or replace function _memoir.posting_lists(p_user_id uuid, p_counters _memoir.user_counters, p_terms text[])
returns _memoir.posting_list[] language plpgsql stable as $$
declare
  v_keys text[]; v_rows _memoir.search_postings[]; v_row _memoir.search_postings; v_term text; v_nth integer;
  v_first integer; v_lists _memoir.posting_list[]; v_tail _memoir.posting_list[]; v_any tsquery;
  v_next integer := p_counters.next_item; v_shared integer := p_counters.letter_rows;
begin
  -- A word has a key of its own, or shares one where the words of its letter share 1, 8 or 64 rows. Counters say which
  -- of these numbers occur.
  select p_terms || array_agg(_memoir.shared_key(t, 1)) filter (where v_shared & 1 > 0)
      || array_agg(_memoir.shared_key(t, 8)) filter (where v_shared & 8 > 0)
      || array_agg(_memoir.shared_key(t, 64)) filter (where v_shared & 64 > 0),
    string_agg(quote_literal(t), ' | ')::tsquery
  into v_keys, v_any from unnest(p_terms) t;
  select array_agg(p) into v_rows from _memoir.search_postings p where p.user_id = p_user_id and p.key = any (v_keys);
  if p_counters.tail_items > 0 then
    select array_agg((w.term, v_next, w.postings, w.lengths)::_memoir.posting_list) into v_tail
    from (select l.lexeme as term, array_agg((t.item_no - v_next << 8) + p) as postings,
      array_agg(t.word_counts[(p >> 8) + 1]) as lengths
          -- What is left of a row without all that is left of it without the words: cheaper than to unnest it whole.
          from _memoir.search_tail t, unnest(ts_delete(t.words, tsvector_to_array(ts_delete(t.words, p_terms)))) l,
            unnest(l.positions) p
          where t.user_id = p_user_id and t.words @@ v_any group by l.lexeme) w;
  end if;
  foreach v_row in array coalesce(v_rows, '{}') loop
    if v_row.words is null then
      v_lists := v_lists || (v_row.key, v_row.first_item, v_row.postings, v_row.lengths)::_memoir.posting_list;
    else
      foreach v_term in array p_terms loop
        v_nth := case when left(v_term, 1) = left(v_row.key, 1) then array_position(v_row.words, v_term) end;
        if v_nth is not null then
          v_first := coalesce(v_row.ends[v_nth - 1], 0) + 1;
          v_lists := v_lists || (v_term, v_row.first_item, v_row.postings[v_first : v_row.ends[v_nth]],
            v_row.lengths[v_first : v_row.ends[v_nth]])::_memoir.posting_list;
        end if;
      end loop;
    end if;
  end loop;
  return v_lists || v_tail;
end $$;

-- Words that occur nowhere may be misspelt: the user's most similar ones stand in (trigrams, same first letter, which
-- keeps it to a slice of the vocabulary; one pattern of a word's trigrams goes over the slice as one text).
create or replace function _memoir.rescue_terms(p_user_id uuid, p_terms text[], p_unknown text[], p_hidden integer[])
returns text[] language plpgsql stable as $$
begin
  return array(
    with unknown as materialized (
      select t.term, left(t.term, 1) as low, chr(ascii(t.term) + 1) as high, length(t.term) as length,
        (select '[^ ]*(?:' || string_agg(regexp_replace(substr(t.term, n, 3), '(\W)', '\\\1', 'g'), '|')
          || ')[^ ]*' from generate_series(1, length(t.term) - 2) n) as holds_trigram
      from unnest(p_unknown) t(term)
    ), vocabulary as materialized (
      select u.term, string_agg(array_to_string(coalesce(p.words, array[p.key]), ' '), ' ') as words
      from unknown u join _memoir.search_postings p on p.user_id = p_user_id and p.key >= u.low and p.key < u.high
      group by u.term
      union all
      select u.term, t.words
      from unknown u, (select string_agg(array_to_string(tsvector_to_array(t.words), ' '), ' ') as words
        from _memoir.search_tail t where t.user_id = p_user_id) t
    ), near as materialized (
      select distinct u.term, u.low, u.high, m[1] as word
      from vocabulary v join unknown u using (term), regexp_matches(v.words, u.holds_trigram, 'g') m
      where starts_with(m[1], u.low) and abs(length(m[1]) - u.length) <= 3 and similarity(m[1], u.term) >= 0.45
    )
    select distinct r.word from (select n.word, row_number() over (partition by n.term
        order by similarity(n.word, n.term) desc, n.word collate "C") as nth from near n
      where p_hidden = '{}'
        or exists (select from _memoir.search_postings p,
          unnest(coalesce(p.words, array[p.key])) with ordinality w(word, place),
          unnest(p.postings[coalesce(p.ends[w.place - 1], 0) + 1 : coalesce(p.ends[w.place],
            cardinality(p.postings))]) x
          where p.user_id = p_user_id and p.key >= n.low and p.key < n.high and w.word = n.word
            and p.first_item + (x >> 8) <> all (p_hidden))
        or exists (select from _memoir.search_tail t, unnest(t.words) l, unnest(l.positions) x
          where t.user_id = p_user_id and l.lexeme = n.word and t.item_no + (x >> 8) <> all (p_hidden))) r
    where r.nth <= 2 and r.word <> all (p_terms));
end $$;

-- BM25 of every item that holds one of the words, a form of it, a word of the same topic, or what stands in for it.
create or replace function _memoir.word_scores(p_user_id uuid, p_counters _memoir.user_counters, p_terms text[],
  p_common text[], p_hidden integer[], p_forms text[], p_of text[], p_kindred text[], p_kindred_of text[],
  p_config regconfig, p_query text)
returns _memoir.item_scores language plpgsql stable as $$
declare
  v_found _memoir.posting_list[]; v_lists _memoir.posting_list[]; v_seen text[]; v_unknown text[]; v_names text[];
begin
  if p_terms = '{}' then return null; end if;
  v_found := _memoir.posting_lists(p_user_id, p_counters, p_terms || p_forms
    || array(select distinct unnest(string_to_array(k, ' ')) from unnest(p_kindred) k));
  v_lists := v_found;
  if p_forms <> '{}' then v_lists := _memoir.joined_forms(v_lists, p_forms, p_of); end if;
  if p_kindred <> '{}' then
    v_lists := _memoir.joined_kindred(v_lists, v_found, p_terms, p_kindred, p_kindred_of);
  end if;
  -- Words of five letters and more that no item has may be misspelt.
  v_seen := array(select l.term from unnest(v_lists) l where p_hidden = '{}'
    or exists (select from unnest(l.postings) p where l.first_item + (p >> 8) <> all (p_hidden)));
  v_unknown := array(select t from unnest(p_terms) t where length(t) >= 5 and t <> all (v_seen));
  -- If other words are found, only names and identifiers are looked for.
  if v_unknown <> '{}' and not v_seen <@ p_common then
    v_names := _memoir.query_terms(p_config,
      (select string_agg(m[1], ' ') from regexp_matches(p_query, '(\S*[[:upper:][:digit:]_/]\S*)', 'g') m));
    v_unknown := array(select u from unnest(v_unknown) u where u = any (v_names));
  end if;
  if v_unknown <> '{}' then
    v_unknown := _memoir.rescue_terms(p_user_id, p_terms, v_unknown, p_hidden);
    if v_unknown <> '{}' then
      v_lists := v_lists || _memoir.posting_lists(p_user_id, p_counters, v_unknown);
      -- Of short words something similar is always there.
      p_common := p_common || array(select u from unnest(v_unknown) u where length(u) < 7);
    end if;
  end if;
  return _memoir.bm25(v_lists, p_counters, cardinality(p_terms), p_common, p_hidden);
end $$;

-- The functions below touch no table: one generic plan serves every call.

-- A word's key where the words of its first letter share p_rows rows, a power of two. No word holds the separator.
create or replace function _memoir.shared_key(p_term text, p_rows integer)
returns text language sql immutable as $$
  select left(p_term, 1) || chr(1) || (p_rows + (hashtext(p_term) & (p_rows - 1)))::text  -- immutable, so it is inlined
$$;

-- The lists of a word and of its forms become one: an item that holds several holds the word, as often as
-- the most frequent.
create or replace function _memoir.joined_forms(p_lists _memoir.posting_list[], p_forms text[], p_of text[])
returns _memoir.posting_list[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_lists _memoir.posting_list[];
begin
  with forms as materialized (
    select f.form, f.own from unnest(p_forms, p_of) f(form, own)
    union select distinct own, own from unnest(p_of) own
  ), held as (
    select f.own, l.first_item + (u.posting >> 8) as item, max(u.posting & 255) as times, max(u.length) as length
    from unnest(p_lists) l join forms f on f.form = l.term, unnest(l.postings, l.lengths) u(posting, length)
    group by 1, 2
  ), joined as (
    select own, min(item) as first, array_agg(item order by item) as items, array_agg(times order by item) as times,
      array_agg(length order by item) as lengths from held group by own
  )
  select array_agg((j.own, j.first, array(select (u.item - j.first << 8) + u.times
    from unnest(j.items, j.times) with ordinality u(item, times, n) order by u.n), j.lengths)::_memoir.posting_list)
  into v_lists from joined j;
  return v_lists || array(select l from unnest(p_lists) l where l.term <> all (p_of) and l.term <> all (p_forms));
end $$;

-- The lists of a word and of the words of its topic (p_found) become one: an item that holds only such a one holds the
-- word once, as in a text of twice its length, so that the very word counts more. Of several lexemes it must hold all.
create or replace function _memoir.joined_kindred(p_lists _memoir.posting_list[], p_found _memoir.posting_list[],
  p_terms text[], p_kindred text[], p_of text[])
returns _memoir.posting_list[] language plpgsql immutable set plan_cache_mode = force_generic_plan
set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_lists _memoir.posting_list[];
begin
  with words as (
    select k.word, lexeme, count(*) over (partition by k.word) as lexemes
    from (select distinct k as word from unnest(p_kindred) k) k, unnest(string_to_array(k.word, ' ')) lexeme
  ), found as (
    select w.word, l.first_item + (u.posting >> 8) as item, max(u.length) as length
    from words w join unnest(p_found) l on l.term = w.lexeme, unnest(l.postings, l.lengths) u(posting, length)
    group by 1, 2 having count(distinct l.term) = max(w.lexemes)
  ), held as (
    select own, item, max(times) as times, min(length) as length
    from (select k.own, f.item, 1 as times, 2 * f.length + 3 as length
          from unnest(p_kindred, p_of) k(word, own) join found f using (word)
          union all
          select l.term, l.first_item + (u.posting >> 8), u.posting & 255, u.length
          from unnest(p_lists) l, unnest(l.postings, l.lengths) u(posting, length) where l.term = any (p_of)) h
    group by 1, 2
  ), joined as (
    select own, min(item) as first, array_agg(item order by item) as items, array_agg(times order by item) as times,
      array_agg(least(length, 32767)::smallint order by item) as lengths from held group by own
  )
  select array_agg((j.own, j.first, array(select (u.item - j.first << 8) + u.times
    from unnest(j.items, j.times) with ordinality u(item, times, n) order by u.n), j.lengths)::_memoir.posting_list)
  into v_lists from joined j;
  return v_lists || array(select l from unnest(p_lists) l where l.term <> all (p_of) and l.term = any (p_terms));
end $$;

-- BM25 of every item that holds one of the words, best first; which share of the p_words words that were asked it
-- holds, each weighing as it is rare; and how rare the rarest of them is that is not common. df is what the lists hold.
create or replace function _memoir.bm25(p_lists _memoir.posting_list[], p_counters _memoir.user_counters,
  p_words integer, p_common text[], p_hidden integer[])
returns _memoir.item_scores language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_out _memoir.item_scores;
  v_items integer := p_counters.items;
  -- Saturation by term frequency, and normalisation by length.
  v_k1 constant float8 := 1.2; v_b constant float8 := 0.5;
  -- k1 * (1 - b + b * length / average)
  v_base float8 := v_k1 * (1 - v_b);
  v_slope float8 := v_k1 * v_b / greatest(1, p_counters.total_words::float8 / greatest(v_items, 1));
  -- What a word of one item only weighs.
  v_rarest float8 := ln(1 + (v_items - 0.5::float8) / 1.5) * 1000000;
begin
  with counted as materialized (
    select l.term, l.first_item, l.postings, l.lengths,
      sum(case when p_hidden = '{}' then cardinality(postings) else (select count(*)::integer from unnest(postings) x
        where first_item + (x >> 8) <> all (p_hidden)) end)
        over (partition by term) as df from unnest(p_lists) l
  ), weighted as materialized (
    select c.term, c.first_item, c.postings, c.lengths, i.idf,
      case when c.term <> all (p_common) then i.idf::integer else 0 end as telling
    from counted c,
      lateral (select ln(1 + (v_items - c.df + 0.5::float8) / (c.df + 0.5::float8)) * 1000000 as idf) i
  ), asked as (
    -- A word that occurs nowhere is as rare as can be.
    select greatest(1, coalesce(sum(w.idf), 0) + greatest(0, p_words - count(*)) * ln(1 + (v_items + 0.5::float8) / 0.5)
      * 1000000)::float8 as total
    from (select distinct w.term, w.idf::integer as idf from weighted w) w
  ), scored as (
    -- Summed as integers: a sum of floats would depend on the order in which a plan delivers them.
    select w.first_item + (u.posting >> 8) as item,
      (sum(((v_k1 + 1) * w.idf * (u.posting & 255)
        / ((u.posting & 255) + v_base + v_slope * u.length))::integer)::float8 / 1000000)::real as bm25,
        sum(w.idf::integer) as matched, max(w.telling) as telling
    from weighted w, unnest(w.postings, w.lengths) u(posting, length)
    where p_hidden = '{}' or w.first_item + (u.posting >> 8) <> all (p_hidden) group by 1
  )
  select array_agg(item), array_agg(bm25), array_agg((s.matched / s.total)::real),
    array_agg(least(1, s.telling / v_rarest)::real), max(bm25)
  into v_out.items, v_out.scores, v_out.covers, v_out.tellings, v_out.best
  from (select w.item, w.bm25, w.matched, w.telling, a.total from scored w, asked a
        order by (w.bm25 * 10000)::integer desc, w.item) s;
  return v_out;
end $$;
