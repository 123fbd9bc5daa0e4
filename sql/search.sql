-- Search: one user's items ranked by words and vectors together.
--
-- Words: BM25 (Robertson and Zaragoza 2009) with document frequencies exact within the user, from posting lists and the unmerged
-- tail. Vectors: exact cosine over the user's rows. The scores, not the ranks, are fused: on real dialogues that finds far
-- more (bench/recall.py prints the comparison). Scores are quantised before they are compared; ties fall to the item number.

create or replace function memoir._query_terms(p_config regconfig, p_query text)
returns text[] language sql stable as $$
  select coalesce(tsvector_to_array(memoir._words(p_config, left(p_query, 20000))), '{}')
$$;

create or replace function memoir._rank(p_user_id uuid, p_config jsonb, p_query text, p_vector halfvec, p_model_id smallint,
  p_project text, p_scope memoir.search_scope, p_limit integer)
returns setof memoir.ranked_item language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_terms text[] := memoir._query_terms((p_config ->> 'text_search_config')::regconfig, p_query);
  v_tsquery tsquery;
  v_items integer; v_average real; v_tail boolean;
  v_k1 real := (p_config ->> 'bm25_k1')::real; v_b real := (p_config ->> 'bm25_b')::real;
  v_ww real := (p_config ->> 'weight_words')::real; v_wv real := (p_config ->> 'weight_vector')::real;
  v_wn real := (p_config ->> 'weight_neighbour')::real; v_ws real := (p_config ->> 'weight_session')::real;
  v_wq real := (p_config ->> 'weight_question')::real; v_wf real := (p_config ->> 'weight_freshness')::real;
  v_lambda real := (p_config ->> 'freshness_lambda')::real; v_now timestamptz := coalesce(p_scope.as_of, memoir.now());
begin
  select next_item - 1, total_words::real / greatest(next_item - 1, 1), tail_items > 0 into v_items, v_average, v_tail
  from memoir.user_counters where user_id = p_user_id;
  if coalesce(v_items, 0) = 0 then return; end if;
  -- An OR of the words: AND finds a tenth of it on real questions.
  v_tsquery := (select string_agg(quote_literal(t), ' | ') from unnest(v_terms) t)::tsquery;

  return query
  with hits as materialized (
    select p.term, u.item, u.frequency::real as frequency, u.length::real as length
    from memoir.search_postings p, unnest(p.items, p.frequencies, p.lengths) u(item, frequency, length)
    where p.user_id = p_user_id and p.term = any (v_terms)
    union all
    select l.lexeme, t.item_no, greatest(1, coalesce(cardinality(l.positions), 1)), t.word_count
    from memoir.search_tail t, unnest(t.words) l
    where v_tail and t.user_id = p_user_id and t.words @@ v_tsquery and l.lexeme = any (v_terms)
  ), weights as (
    select term, ln(1 + (v_items - count(*) + 0.5) / (count(*) + 0.5)) as idf from hits group by term
  ), words as (
    select h.item, sum(w.idf * h.frequency * (v_k1 + 1) / (h.frequency + v_k1 * (1 - v_b + v_b * h.length / greatest(v_average, 1))))::real as bm25
    from hits h join weights w using (term) group by h.item
  ), vectors as (
    select e.item_no as item, (1 - (e.embedding <=> p_vector))::real as cosine
    from memoir.embeddings e where p_vector is not null and e.user_id = p_user_id and e.model_id = p_model_id
  ), limits as materialized (
    select greatest(max(bm25), 1e-6) as top_bm25, (select max(cosine) from vectors) as top_cosine, (select avg(cosine) from vectors) as mean_cosine
    from words
  ), fused as (
    select item, coalesce(w.bm25, 0) / l.top_bm25 as bm25, v.cosine,
      v_ww * coalesce(w.bm25, 0) / l.top_bm25
        + v_wv * coalesce(greatest(0, v.cosine - l.mean_cosine) / greatest(l.top_cosine - l.mean_cosine, 1e-6), 0) as base
    from words w full join vectors v using (item), limits l
  ), near as (
    select item, bm25, cosine, base,
      greatest(case when lag(item) over o = item - 1 then lag(base) over o else 0 end,
               case when lead(item) over o = item + 1 then lead(base) over o else 0 end) as neighbour
    from fused window o as (order by item)
  ), best as (
    select item, bm25, cosine, base, neighbour from near order by round((base + v_wn * neighbour)::numeric, 5) desc, item limit p_limit * 3
  ), located as (
    select b.*, i.*, max(b.base) over (partition by coalesce(i.session_id, i.ref_id)) as session_best
    from best b join memoir.search_items i on i.user_id = p_user_id and i.item_no = b.item
    where (not i.dead or (p_scope.as_of is not null and i.kind = 'm'))  -- excluded turns stay excluded at any time
      and (p_scope.as_of is null or i.recorded_at <= p_scope.as_of)
      and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
      and not (i.kind = 't' and i.session_id = any (p_scope.hidden_sessions) and i.turn_index >= p_scope.hidden_from)
      and (p_scope.projects is null or i.project = any (p_scope.projects))
      and (p_scope.said_after is null or i.created_at >= p_scope.said_after)
      and (p_scope.said_before is null or i.created_at < p_scope.said_before)
      and (i.kind <> 'm' or i.session_id is null or i.session_id = any (p_scope.local_sessions))
  ), scored as (
    select l.*,
      (l.base + v_wn * l.neighbour + v_ws * l.session_best + case when l.is_question then v_wq else 0 end
        + v_wf * exp(- v_lambda * greatest(extract(epoch from v_now - l.created_at) / 3600, 0)))
      * memoir._project_factor(p_config, p_project, l.project) as total
    from located l
  )
  select s.item_no, s.kind, s.ref_id, s.session_id, s.turn_index, s.chunk, s.span_start, s.span_length, s.token_count, s.role,
    s.created_at, s.recorded_at, s.project, round(s.total::numeric, 5)::real, s.bm25::real, s.cosine, s.neighbour::real, s.session_best::real,
    (rank() over (order by s.bm25 desc))::integer, (rank() over (order by s.cosine desc nulls last))::integer, null::jsonb
  from scored s
  order by round(s.total::numeric, 5) desc, s.item_no limit p_limit;
end $$;

create or replace function memoir._project_factor(p_config jsonb, p_wanted text, p_project text)
returns real language sql immutable as $$
  select case when p_project = 'global' or p_wanted is null then (p_config ->> 'project_global')::real
              when p_project = p_wanted then (p_config ->> 'project_same')::real
              else (p_config ->> 'project_other')::real end
$$;
