-- The floor of relevance: what is recalled for nothing, where recall ends, and when it is weak. research/ranker/floor.py learns the
-- numbers and shows what they keep. The functions here touch no table: one generic plan serves every call.

-- Greetings, thanks, assent and leave-taking, by text-search configuration: of these words alone nothing can be looked up.
create or replace function _memoir.is_phatic(p_config text, p_query text)
returns boolean language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_text text;
begin
  if length(p_query) > 120 or p_config not in ('english', 'simple', 'pg_catalog.english', 'pg_catalog.simple') then return false; end if;
  v_text := ' ' || btrim(regexp_replace(translate(lower(p_query), '''’', ''), '[^[:alnum:]?]+', ' ', 'g')) || ' ';
  -- The questions that ask for nothing.
  v_text := regexp_replace(v_text,
    ' (so |and )?(' || _memoir.any_word('english', 'small_talk_questions') || ')'
    || '( doing)?( today| this morning| lately)? ?\?? ', ' ', 'g');
  return strpos(v_text, '?') = 0 and array_remove(string_to_array(v_text, ' '), '') <@ _memoir.word_list('english', 'small_talk');
end $$;

-- Small talk recalls nothing: phatic words alone; or few words, no question, and nothing close in the store.
create or replace function _memoir.is_small_talk(p_config jsonb, p_query text, p_ranked _memoir.ranked_item[])
returns boolean language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_words integer := (p_config ->> 'small_talk_words')::integer;
begin
  if v_words = 0 or length(p_query) > 200 then return false; end if;
  if _memoir.is_phatic(p_config ->> 'text_search_config', p_query) then return true; end if;
  return coalesce((select max(r.vector) from unnest(p_ranked) r) < (p_config ->> 'small_talk_cosine')::real, false)
    and not _memoir.is_question(p_query)
    and v_words >= cardinality(_memoir.query_terms((p_config ->> 'text_search_config')::regconfig, p_query));
end $$;

-- How likely it is that anything in the store answers the question, by the best score and the closest vector; null where one is not
-- known. Below setting weak_below a recall is weak: small, and marked.
create or replace function _memoir.strength(p_config jsonb, p_candidates _memoir.candidate[])
returns real language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_weights jsonb := p_config -> 'strength_weights'; v_best float8; v_closest float8;
begin
  select max(coalesce((c.memory_parts ->> 'match')::float8, c.score)), max(c.vector) into v_best, v_closest
  from unnest(p_candidates) c where c.reason is null or c.reason = 'below the relevance floor';
  if v_best is null or v_closest is null then return null; end if;
  return round((1 / (1 + exp(- greatest(-50, least(50, coalesce((v_weights ->> 'constant')::float8, 0) + coalesce((v_weights ->> 'score')::float8, 0) * v_best
    + coalesce((v_weights ->> 'cosine')::float8, 0) * v_closest)))))::numeric, 4);
end $$;

-- What a weak recall says of itself.
create or replace function _memoir.weak_note()
returns text language sql immutable as $$ select 'Weak matches: the answer may not be among them.' $$;
