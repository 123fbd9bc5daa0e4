-- The floor of relevance: what is recalled for nothing, where recall ends, and when it is weak.
-- research/ranker/floor.py learns the numbers and shows what they keep. The functions here touch no table: one generic
-- plan serves every call.

-- Greetings, thanks, assent and leave-taking, by text-search configuration: of these words alone nothing can be looked
-- up.
create or replace function _memoir.is_phatic(p_config text, p_query text)
returns boolean language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_text text;
begin
  if length(p_query) > 120 or p_config not in ('english', 'simple', 'pg_catalog.english', 'pg_catalog.simple')
    then return false; end if;
  v_text := ' ' || btrim(regexp_replace(translate(lower(p_query), '''’', ''), '[^[:alnum:]?]+', ' ', 'g')) || ' ';
  -- The questions that ask for nothing.
  v_text := regexp_replace(v_text,
    ' (so |and )?(' || _memoir.any_word('english', 'small_talk_questions') || ')'
    || '( doing)?( today| this morning| lately)? ?\?? ', ' ', 'g');
  return strpos(v_text, '?') = 0 and array_remove(string_to_array(v_text, ' '), '') <@ _memoir.word_list('english',
    'small_talk');
end $$;

-- Small talk recalls nothing. Of phatic words alone that is known before anything is searched.
create or replace function _memoir.is_small_talk(p_config jsonb, p_query text)
returns boolean language plpgsql immutable as $$
begin
  return (p_config ->> 'small_talk_words')::integer > 0 and length(p_query) <= 200
    and _memoir.is_phatic(p_config ->> 'text_search_config', p_query);
end $$;

-- It is small talk as well: few words, no question, and nothing close in the store.
create or replace function _memoir.is_far_from_all(p_config jsonb, p_question _memoir.question,
  p_ranked _memoir.ranked_item[])
returns boolean language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  return (p_config ->> 'small_talk_words')::integer >= greatest(1, cardinality(p_question.terms))
    and length(p_question.query) <= 200
    and not _memoir.is_question(p_question.query)
    and coalesce((select max(r.vector) from unnest(p_ranked) r) < (p_config ->> 'small_talk_cosine')::real, false);
end $$;

-- How likely it is that anything in the store answers the question, by the best score and the closest vector; null
-- where one is not known. Below setting weak_below a recall is weak: small, and marked.
create or replace function _memoir.strength(p_config jsonb, p_candidates _memoir.candidate[])
returns real language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_weights jsonb := p_config -> 'strength_weights'; v_best float8; v_closest float8;
begin
  select max(coalesce((c.memory_parts ->> 'match')::float8, c.score)), max(c.vector) into v_best, v_closest
  from unnest(p_candidates) c where c.reason is null or c.reason = 'below the relevance floor';
  if v_best is null or v_closest is null then return null; end if;
  return round((1 / (1 + exp(- greatest(-50,
    least(50, coalesce((v_weights ->> 'constant')::float8, 0) + coalesce((v_weights ->> 'score')::float8, 0) * v_best
    + coalesce((v_weights ->> 'cosine')::float8, 0) * v_closest)))))::numeric, 4);
end $$;

-- What a weak recall says of itself.
create or replace function _memoir.weak_note()
returns text language sql immutable as $$ select 'Weak matches: the answer may not be among them.' $$;
