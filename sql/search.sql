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

create or replace function memoir._rank(p_user_id uuid, p_config jsonb, p_query text, p_vector halfvec, p_model_id smallint,
  p_project text, p_scope memoir.search_scope, p_limit integer)
returns setof memoir.ranked_item language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_terms text[] := memoir._query_terms((p_config ->> 'text_search_config')::regconfig, p_query);
  v_tsquery tsquery; v_items integer; v_average real; v_tail boolean; v_hidden integer[] := '{}'; v_hidden_words bigint := 0;
  v_query text := lower(p_query);
  v_k1 real := (p_config ->> 'bm25_k1')::real; v_b real := (p_config ->> 'bm25_b')::real;
  w_words real := (p_config ->> 'weight_words')::real; w_vector real := (p_config ->> 'weight_vector')::real;
  w_before real := (p_config ->> 'weight_words_before')::real; w_after real := (p_config ->> 'weight_vector_after')::real;
  w_session real := (p_config ->> 'weight_session')::real; w_speaker real := (p_config ->> 'weight_speaker')::real;
  w_question real := (p_config ->> 'weight_question')::real; w_person real := (p_config ->> 'weight_person')::real;
  v_lean real := (p_config ->> 'lean_tokens')::real; w_fresh real := (p_config ->> 'weight_freshness')::real;
  v_lambda real := (p_config ->> 'freshness_lambda')::real; v_now timestamptz := coalesce(p_scope.as_of, memoir.now());
  v_scale real; f_global real := (p_config ->> 'project_global')::real; f_same real := (p_config ->> 'project_same')::real;
  f_other real := (p_config ->> 'project_other')::real;
begin
  -- What is above the caller's clearance is not there: it finds nothing, counts for nothing and moves nobody's score.
  if p_scope.clearance is distinct from 'secret' then
    select coalesce(array_agg(i.item_no), '{}'), coalesce(sum(i.word_count), 0) into v_hidden, v_hidden_words
    from memoir.search_items i where i.user_id = p_user_id and i.sensitivity > coalesce(p_scope.clearance, 'normal') and i.sensitivity <> 'normal';
  end if;
  select items - cardinality(v_hidden), (total_words - v_hidden_words)::real / greatest(items - cardinality(v_hidden), 1), tail_items > 0 into v_items, v_average, v_tail
  from memoir.user_counters where user_id = p_user_id;
  if coalesce(v_items, 0) = 0 then return; end if;
  v_terms := v_terms || memoir._rescue_terms(p_user_id, v_terms, v_hidden);
  -- An OR of the words: AND finds a tenth of it on real questions.
  v_tsquery := (select string_agg(quote_literal(t), ' | ') from unnest(v_terms) t)::tsquery;
  -- Scores end up between 0 and 1, whatever the weights.
  v_scale := greatest(w_words + w_vector + w_before + w_after + w_session + greatest(w_speaker, w_person, 0) + abs(w_question) + w_fresh, 1e-6);

  return query
  with hits as materialized (
    select p.term, u.item, u.frequency::real as frequency, u.length::real as length
    from memoir.search_postings p, unnest(p.items, p.frequencies, p.lengths) u(item, frequency, length)
    where p.user_id = p_user_id and p.term = any (v_terms) and u.item <> all (v_hidden)
    union all
    select l.lexeme, t.item_no, greatest(1, coalesce(cardinality(l.positions), 1)), t.word_count
    from memoir.search_tail t, unnest(t.words) l
    where v_tail and t.user_id = p_user_id and t.words @@ v_tsquery and l.lexeme = any (v_terms) and t.item_no <> all (v_hidden)
  ), weights as (
    select term, ln(1 + (v_items - count(*) + 0.5) / (count(*) + 0.5))::real as idf from hits group by term
  ), words as materialized (
    -- Summed as integers: a sum of floats would depend on the order in which a plan delivers them.
    select h.item, (sum((w.idf * h.frequency * (v_k1 + 1) / (h.frequency + v_k1 * (1 - v_b + v_b * h.length / greatest(v_average, 1))) * 1000000)::integer)
      ::float8 / 1000000)::real as bm25
    from hits h join weights w using (term) group by h.item
  ), best_words as materialized (
    select item, bm25 from words order by (bm25 * 10000)::integer desc, item limit p_limit
  ), best_vectors as materialized (
    select d.item, (1 - d.distance)::real as cosine
    from (select e.item_no as item, e.embedding <=> p_vector as distance from memoir.embeddings e
          where p_vector is not null and e.user_id = p_user_id and e.model_id = p_model_id and e.item_no <> all (v_hidden)
          order by distance, item limit p_limit) d
  ), wanted as materialized (
    -- What matches, what follows a match in words (an answer), and what precedes a match in meaning.
    select item from best_words union select item from best_vectors
    union (select item + 1 from best_words limit p_limit / 4) union (select item - 1 from best_vectors limit p_limit / 4)
  ), cosines as materialized (
    select item, cosine from best_vectors
    union all
    select e.item_no, (1 - (e.embedding <=> p_vector))::real
    from memoir.embeddings e where p_vector is not null and e.user_id = p_user_id and e.model_id = p_model_id
      and e.item_no = any (array(select item from best_words except select item from best_vectors))
  ), tops as materialized (
    select coalesce((select greatest(max(bm25), 1e-6) from best_words), 1)::real as bm25, coalesce((select greatest(max(cosine), 1e-6) from best_vectors), 1)::real as cosine
  ), matched as (
    select i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.chunk, i.span_start, i.span_length, i.token_count, i.role, i.speaker,
      i.created_at, i.recorded_at, i.project, i.is_question, i.after_question,
      coalesce(w.bm25, 0) / t.bm25 as words, c.cosine, greatest(coalesce(c.cosine, 0), 0) / t.cosine as vector,
      case when i.chunk = 0 then coalesce(b.bm25, 0) / t.bm25 else 0 end as words_before,
      case when i.last_chunk then greatest(coalesce(a.cosine, 0), 0) / t.cosine else 0 end as vector_after
    from memoir.search_items i
    cross join tops t
    left join words w on w.item = i.item_no
    left join words b on b.item = i.item_no - 1
    left join cosines c on c.item = i.item_no
    left join cosines a on a.item = i.item_no + 1
    where i.user_id = p_user_id and i.item_no = any (array(select item from wanted)) and i.item_no <> all (v_hidden)
      and (not i.dead or (p_scope.as_of is not null and i.kind = 'm'))  -- excluded turns stay excluded at any time
      and (p_scope.as_of is null or i.recorded_at <= p_scope.as_of)
      and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
      and (i.kind <> 't' or i.turn_index < p_scope.hidden_from or i.session_id <> all (p_scope.hidden_sessions))
      and (i.kind <> 's' or i.session_id <> all (p_scope.hidden_sessions))  -- a session's own summary stands in its system message
      and (p_scope.projects is null or i.project = any (p_scope.projects))
      and (p_scope.said_after is null or i.created_at >= p_scope.said_after)
      and (p_scope.said_before is null or i.created_at < p_scope.said_before)
      and (i.kind <> 'm' or i.session_id is null or i.session_id = any (p_scope.local_sessions))
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
        + w_fresh * exp(- least(500, v_lambda * greatest(extract(epoch from v_now - s.created_at)::float8 / 3600, 0))))
      / v_scale * case when s.project = 'global' or p_project is null then f_global when s.project = p_project then f_same else f_other end
      * 100000)::integer as total
    from scored s
  )
  select s.item_no, s.kind, s.ref_id, s.session_id, s.turn_index, s.chunk, s.span_start, s.span_length, s.token_count, s.role,
    s.created_at, s.recorded_at, s.project, (s.total / 100000.0)::real, s.words, s.cosine, s.around::real, s.session_best::real
  from totalled s
  order by s.total desc, s.item_no limit p_limit;
end $$;
