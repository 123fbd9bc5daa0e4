-- The floor of relevance: what is recalled for nothing, where recall ends, and when it is weak.
-- research/ranker/floor.py learns the numbers and shows what they keep. The functions here touch no table: one generic
-- plan serves every call.

-- Greetings, thanks, assent and leave-taking, by text-search configuration: of these words alone nothing can be
-- looked up.
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

-- Returns whether a question is after something of the asker's own, which no other store has: "which laptop do I
-- have?", and not "how do I rename a column?".
create or replace function _memoir.asks_of_own(p_query text)
returns boolean language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_language text := _memoir.spoken_language(p_query); v_none constant boolean := _memoir.text_language(p_query) > 6; v_text text := lower(translate(p_query, '’', ''''));
begin
  if length(p_query) > 300 or not (_memoir.is_question(p_query)
    or regexp_split_to_array(v_text, '[^[:alpha:]]+') && _memoir.word_list(v_language, 'asks_words')) then return false;
  end if;
  v_text := regexp_replace(v_text, '\m(' || nullif(_memoir.any_word(v_language, 'asks_anyhow'), '') || ')\M', ' ', 'g');
  return coalesce(v_text, p_query) ~ ('\m(' || _memoir.any_word(case when not v_none then v_language end, 'own_matters') || ')\M');
end $$;

-- Returns whether a message goes on with what was begun together ("what's the next step?", "the list you
-- suggested"). In a new session what it is about stands in the store alone: by the message's own words and meaning
-- nothing is left out.
create or replace function _memoir.refers_back(p_query text)
returns boolean language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_language text := _memoir.spoken_language(p_query);
begin
  return length(p_query) <= 1000 and coalesce(lower(translate(p_query, '’', ''''))
    ~ ('\m(' || nullif(_memoir.any_word(v_language, 'refers_back'), '') || ')\M'), false);
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
    and coalesce((select max(r.vector) < (p_config ->> 'small_talk_cosine')::real and max(r.telling) < 0.5
                  from unnest(p_ranked) r), false);
end $$;

-- The odds that a candidate fits the question at all: by its score, its cosine and how telling the words are that it
-- has of the question, as weights of turns and summaries and of memories. In a long question more words hit by chance.
-- In a small store the floor ends what the budget does not, in a large one answers lie scattered and the budget ends
-- it. Null: everything fits, as among fewer than ten items.
create or replace function _memoir.fit_floor(p_config jsonb, p_items integer, p_words integer, p_project text)
returns _memoir.fit_floor language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_least float8 := p_config ->> 'relevance_fit'; v_weights jsonb := p_config -> 'fit_weights';
  v_long float8 := ln(greatest(p_words, 1)::float8 / 6);
  v_size float8 := ln(least(400, greatest(35, p_items))::float8 / 35);
  v_floor _memoir.fit_floor;
begin
  if v_least <= 0 or v_least >= 1 or v_weights is null or coalesce(p_items, 0) < 10 then return null; end if;
  v_floor.project := p_project;
  v_floor.elsewhere := coalesce((v_weights ->> 'elsewhere')::float8, 0);
  v_floor.turns := array(select coalesce((v_weights ->> s)::float8, 0)
    from unnest('{constant,score,cosine,telling,long,telling_long,size}'::text[]) with ordinality t(s, o) order by o);
  v_floor.memories := array(select v_floor.turns[o] + coalesce((v_weights ->> ('memory.' || s))::float8, 0)
    from unnest('{constant,score,cosine,telling}'::text[]) with ordinality t(s, o) order by o);
  v_floor.turns[1] := v_floor.turns[1] + v_floor.turns[5] * v_long + v_floor.turns[7] * v_size
    - ln(v_least / (1 - v_least));
  v_floor.memories[1] := v_floor.memories[1] + v_floor.turns[5] * v_long + v_floor.turns[7] * v_size
    - ln(v_least / (1 - v_least));
  v_floor.turns[4] := v_floor.turns[4] + v_floor.turns[6] * v_long;
  v_floor.memories[4] := v_floor.memories[4] + v_floor.turns[6] * v_long;
  return v_floor;
end $$;

-- Returns whether a candidate does: p_weights as fit_floor has them for its class, null: everything does. What has no
-- vector yet is judged as if it lay at a middling distance. (No subquery, so that it becomes part of the query that
-- calls it.)
create or replace function _memoir.fits(p_weights float8[], p_score real, p_cosine real, p_telling real,
  p_elsewhere float8)
returns boolean language sql immutable as $$
  select coalesce(p_weights[1]
    + p_weights[2] * ln(greatest(0.0001, least(0.9999, p_score::float8))
        / (1 - greatest(0.0001, least(0.9999, p_score::float8))))
    + p_weights[3] * coalesce(p_cosine, 0.25) + p_weights[4] * p_telling + p_elsewhere >= 0, true)
$$;

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

-- Returns what a weak recall says of itself.
create or replace function _memoir.weak_note()
returns text language sql immutable as $$ select 'Weak matches: the answer may not be among them.' $$;
