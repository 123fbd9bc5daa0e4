-- Search: one user's items ranked by words and vectors together.
--
-- Words: BM25 (Robertson and Zaragoza 2009) with document frequencies exact within the user, from posting lists and the unmerged
-- tail. Vectors: exact cosine over the user's rows. The scores, not the ranks, are fused: on real dialogues that finds far
-- more (bench/recall.py prints the comparison). Scores are quantised before they are compared; ties fall to the item number.

create or replace function memoir._query_terms(p_config regconfig, p_query text)
returns text[] language sql stable as $$
  select coalesce(tsvector_to_array(memoir._words(p_config, left(p_query, 20000), true)), '{}')
$$;

-- Words that occur nowhere may be misspelt: the user's most similar ones stand in (trigrams, same first letter, which keeps it
-- to a slice of the vocabulary).
create or replace function memoir._rescue_terms(p_user_id uuid, p_terms text[], p_hidden integer[])
returns text[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_term text; v_found text[] := '{}'; v_like text[]; v_unknown text[];
begin
  v_unknown := array(select t from unnest(p_terms) t where length(t) >= 5
    and not exists (select from memoir.search_postings p where p.user_id = p_user_id and p.term = t and (p_hidden = '{}' or not p.items <@ p_hidden))
    and not exists (select from memoir.search_tail s where s.user_id = p_user_id and s.words @@ quote_literal(t)::tsquery and s.item_no <> all (p_hidden)));
  foreach v_term in array v_unknown loop
    v_like := array(
      select word from (
        select p.term as word from memoir.search_postings p
        where p.user_id = p_user_id and p.term >= left(v_term, 1) and p.term < chr(ascii(v_term) + 1)
          and (p_hidden = '{}' or not p.items <@ p_hidden)
        union
        select l.lexeme from memoir.search_tail t, unnest(t.words) l where t.user_id = p_user_id and t.item_no <> all (p_hidden)
          and starts_with(l.lexeme, left(v_term, 1))) w
      where abs(length(word) - length(v_term)) <= 3 and similarity(word, v_term) >= 0.45
      order by similarity(word, v_term) desc, word collate "C" limit 2);
    v_found := v_found || v_like;
  end loop;
  return v_found;
end $$;

-- BM25 of every item that holds one of the words, best first. One row per (term, segment) is read; df is what its arrays hold.
create or replace function memoir._word_scores(p_user_id uuid, p_counters memoir.user_counters, p_config jsonb, p_terms text[], p_hidden integer[])
returns memoir.item_scores language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_out memoir.item_scores;
  v_items integer := p_counters.items; v_tail boolean := p_counters.tail_items > 0;
  v_k1 float8 := (p_config ->> 'bm25_k1')::float8; v_b float8 := (p_config ->> 'bm25_b')::float8;
  -- k1 * (1 - b + b * length / average)
  v_base float8 := v_k1 * (1 - v_b);
  v_slope float8 := v_k1 * v_b / greatest(1, p_counters.total_words::float8 / greatest(v_items, 1));
  -- An OR of the words: AND finds a tenth of it on real questions.
  v_tsquery tsquery := memoir._any_of(p_terms);
begin
  with lists as (
    select p.term, p.items, p.frequencies, p.lengths from memoir.search_postings p where p.user_id = p_user_id and p.term = any (p_terms)
    union all
    select l.lexeme, array_agg(t.item_no), array_agg(greatest(1, coalesce(cardinality(l.positions), 1))::smallint), array_agg(t.word_count)
    from memoir.search_tail t, unnest(t.words) l
    where v_tail and t.user_id = p_user_id and t.words @@ v_tsquery and l.lexeme = any (p_terms) and t.item_no <> all (p_hidden)
    group by l.lexeme
  ), weighted as materialized (
    select l.items, l.frequencies, l.lengths, (v_k1 + 1) * ln(1 + (v_items - l.df + 0.5::float8) / (l.df + 0.5::float8)) * 1000000 as weight
    from (select *, sum(case when p_hidden = '{}' then cardinality(items) else (select count(*)::integer from unnest(items) x where x <> all (p_hidden)) end)
            over (partition by term) as df from lists) l
  ), scored as (
    -- Summed as integers: a sum of floats would depend on the order in which a plan delivers them.
    select u.item, (sum((w.weight * u.frequency / (u.frequency + v_base + v_slope * u.length))::integer)::float8 / 1000000)::real as bm25
    from weighted w, unnest(w.items, w.frequencies, w.lengths) u(item, frequency, length)
    where p_hidden = '{}' or u.item <> all (p_hidden) group by u.item
  )
  select array_agg(item), array_agg(bm25), max(bm25) into v_out.items, v_out.scores, v_out.best
  from (select item, bm25 from scored order by (bm25 * 10000)::integer desc, item) s;
  return v_out;
end $$;

-- Cosines of the closest p_limit items and of those that matched by words (p_items), best first. All of it in one scan, sorted
-- by one integer (distance in millionths, then the item): what matched by words is moved before all others, so that it stays.
create or replace function memoir._vector_scores(p_user_id uuid, p_vector halfvec, p_model_id smallint, p_items integer[], p_hidden integer[], p_limit integer)
returns memoir.item_scores language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_keys bigint[]; v_limit integer := p_limit + coalesce(cardinality(p_items), 0);
begin
  if p_vector is null then return null; end if;
  select array_agg(k.key) into v_keys
  from (select (((e.embedding <=> p_vector) * 1000000)::bigint - case when e.item_no = any (p_items) then 4000000 else 0 end) << 32 | e.item_no as key
        from memoir.embeddings e
        where e.user_id = p_user_id and e.model_id = p_model_id and (p_hidden = '{}' or e.item_no <> all (p_hidden)) order by key limit v_limit) k;
  return memoir._from_keys(v_keys, p_limit);
end $$;

-- One user's best items, best first: signals of each → weights → one integer, ties by item number.
create or replace function memoir._rank(p_user_id uuid, p_counters memoir.user_counters, p_config jsonb, p_query text, p_vector halfvec,
  p_model_id smallint, p_project text, p_scope memoir.search_scope, p_limit integer)
returns memoir.ranked_item[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_terms text[] := memoir._query_terms((p_config ->> 'text_search_config')::regconfig, p_query);
  v_words memoir.item_scores; v_vectors memoir.item_scores; v_wanted integer[]; v_items memoir.search_items[];
  v_hidden integer[] := '{}'; v_hidden_words bigint := 0;
begin
  -- What is above the caller's clearance is not there: it finds nothing, counts for nothing and moves nobody's score.
  if p_scope.clearance is distinct from 'secret' then
    select coalesce(array_agg(i.item_no), '{}'), coalesce(sum(i.word_count), 0) into v_hidden, v_hidden_words
    from memoir.search_items i where i.user_id = p_user_id and i.sensitivity > coalesce(p_scope.clearance, 'normal') and i.sensitivity <> 'normal';
    p_counters.items := p_counters.items - cardinality(v_hidden); p_counters.total_words := p_counters.total_words - v_hidden_words;
  end if;
  if coalesce(p_counters.items, 0) = 0 then return null; end if;
  v_terms := v_terms || memoir._rescue_terms(p_user_id, v_terms, v_hidden);
  if v_terms <> '{}' then v_words := memoir._word_scores(p_user_id, p_counters, p_config, v_terms, v_hidden); end if;
  v_vectors := memoir._vector_scores(p_user_id, p_vector, p_model_id, v_words.items[1 : p_limit], v_hidden, p_limit);
  v_wanted := memoir._with_neighbours(v_words.items[1 : p_limit], v_vectors.items[1 : p_limit], p_limit / 4);
  select array_agg(i) into v_items
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
  return memoir._score(v_items, v_words, v_vectors, p_config, p_query, p_project, coalesce(p_scope.as_of, memoir.now()), p_limit);
end $$;

-- The functions below touch no table: one generic plan serves every call.

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

create or replace function memoir._any_of(p_terms text[])
returns tsquery language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return (select string_agg(quote_literal(t), ' | ') from unnest(p_terms) t)::tsquery;
end $$;

-- What matches, what follows a match in words (an answer), and what precedes a match in meaning.
create or replace function memoir._with_neighbours(p_words integer[], p_vectors integer[], p_neighbours integer)
returns integer[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select unnest(p_words) union all select unnest(p_vectors)
    union all select unnest(p_words[1 : p_neighbours]) + 1 union all select unnest(p_vectors[1 : p_neighbours]) - 1);
end $$;

-- Each signal is a share of the best or lies between 0 and 1; the sum of the weights scales the total to that range, too.
create or replace function memoir._score(p_items memoir.search_items[], p_words memoir.item_scores, p_vectors memoir.item_scores,
  p_config jsonb, p_query text, p_project text, p_now timestamptz, p_limit integer)
returns memoir.ranked_item[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_query text := lower(p_query);
  w_words real := (p_config ->> 'weight_words')::real; w_vector real := (p_config ->> 'weight_vector')::real;
  w_before real := (p_config ->> 'weight_words_before')::real; w_after real := (p_config ->> 'weight_vector_after')::real;
  w_session real := (p_config ->> 'weight_session')::real; w_speaker real := (p_config ->> 'weight_speaker')::real;
  w_question real := (p_config ->> 'weight_question')::real; w_person real := (p_config ->> 'weight_person')::real;
  v_lean real := (p_config ->> 'lean_tokens')::real; w_fresh real := (p_config ->> 'weight_freshness')::real;
  v_lambda real := (p_config ->> 'freshness_lambda')::real;
  f_global real := (p_config ->> 'project_global')::real; f_same real := (p_config ->> 'project_same')::real;
  f_other real := (p_config ->> 'project_other')::real;
  v_scale real := greatest(w_words + w_vector + w_before + w_after + w_session + greatest(w_speaker, w_person, 0) + abs(w_question) + w_fresh, 1e-6);
  v_bm25 real := coalesce(greatest(p_words.best, 1e-6), 1); v_cosine real := coalesce(greatest(p_vectors.best, 1e-6), 1);
begin
  return (
  with words as materialized (
    select * from unnest(p_words.items, p_words.scores) w(item, bm25)
  ), cosines as materialized (
    select * from unnest(p_vectors.items, p_vectors.scores) c(item, cosine)
  ), matched as (
    select i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.chunk, i.span_start, i.span_length, i.token_count, i.role, i.speaker,
      i.created_at, i.recorded_at, i.project, i.is_question, i.after_question,
      coalesce(w.bm25, 0) / v_bm25 as words, c.cosine, greatest(coalesce(c.cosine, 0), 0) / v_cosine as vector,
      case when i.chunk = 0 then coalesce(b.bm25, 0) / v_bm25 else 0 end as words_before,
      case when i.last_chunk then greatest(coalesce(a.cosine, 0), 0) / v_cosine else 0 end as vector_after
    from unnest(p_items) i
    left join words w on w.item = i.item_no
    left join words b on b.item = i.item_no - 1
    left join cosines c on c.item = i.item_no
    left join cosines a on a.item = i.item_no + 1
  ), scored as (
    select m.*,
      max(0.45 * m.words + 0.55 * m.vector) over (partition by m.kind, coalesce(m.session_id, m.ref_id)) as session_best,
      -- A short turn leans on its neighbours, a long text stands alone.
      least(1, v_lean / greatest(m.token_count, 1)) * (w_before * m.words_before + w_after * m.vector_after
        + w_question * (m.is_question::integer - m.after_question::integer)) as around
    from matched m
  ), totalled as (
    select s.*, ((w_words * s.words + w_vector * s.vector + s.around + w_session * s.session_best
        + w_person * coalesce(s.role = 'user' and s.speaker is null, false)::integer
        + w_speaker * (s.speaker is not null and strpos(v_query, lower(replace(s.speaker, '_', ' '))) > 0)::integer
        + w_fresh * exp(- least(500, v_lambda * greatest(date_part('epoch', p_now - s.created_at) / 3600, 0))))
      / v_scale * case when s.project = 'global' or p_project is null then f_global when s.project = p_project then f_same else f_other end
      * 100000)::integer as total
    from scored s
  )
  select array_agg((s.item_no, s.kind, s.ref_id, s.session_id, s.turn_index, s.chunk, s.span_start, s.span_length, s.token_count, s.role,
    s.created_at, s.recorded_at, s.project, (s.total::float8 / 100000)::real, s.words, s.cosine, s.around::real, s.session_best::real)::memoir.ranked_item)
  from (select * from totalled order by total desc, item_no limit p_limit) s);
end $$;
