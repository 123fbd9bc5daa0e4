-- The floor of relevance: what is recalled for nothing, where recall ends, and when it is weak.
-- research/ranker/floor.py learns the numbers and shows what they keep. The functions here touch no table: one generic
-- plan serves every call.

-- Returns what the package reads in a question (QuestionFacts in pg_memoir_language/questions.py). Where PL/Python is
-- missing, nothing but the text without plain secrets: no question is small talk, broad or about the asker then, and
-- names no time.
create or replace function _memoir.question_facts(p_query text, p_config jsonb)
returns jsonb language plpgsql stable as $$
declare
  v_facts jsonb;
begin
  if coalesce(p_query, '') <> '' and _memoir.reads_language() then
    v_facts := _memoir.py_read('read_question', left(p_query, 20000), p_config ->> 'embedder_socket');
  end if;
  if v_facts is null or length(p_query) > 20000 then
    v_facts := coalesce(v_facts, '{}') || jsonb_build_object('redacted', _memoir.redacted(p_query, p_config));
  end if;
  return v_facts;
end $$;

-- Returns whether a message is greetings and thanks alone. Small talk recalls nothing, which is known before anything
-- is searched.
create or replace function _memoir.is_small_talk(p_config jsonb, p_facts jsonb)
returns boolean language sql immutable as $$
  select (p_config ->> 'small_talk_words')::integer > 0 and coalesce((p_facts ->> 'small_talk')::boolean, false)
    and p_config ->> 'text_search_config' in ('english', 'simple', 'pg_catalog.english', 'pg_catalog.simple')
$$;

-- The odds that a candidate fits the question at all: by its score, its cosine and how telling the words are that it
-- has of the question, as weights of turns and summaries and of memories. In a long question more words hit by chance.
-- In a small store the floor ends what the budget does not, in a large one answers lie scattered and the budget ends
-- it. Null: everything fits, as among fewer than ten items.
create or replace function _memoir.fit_floor(p_config jsonb, p_items integer, p_words integer, p_project text)
returns _memoir.fit_floor language plpgsql stable as $$
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
returns real language plpgsql stable as $$
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
