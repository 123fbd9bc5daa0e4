-- Reads a question (QuestionFacts in pg_memoir_language/questions.py) and its vector, in one request. Without PL/Python
-- no more than its text without plain secrets. p_begins: sends the request, so that the same call answers sooner.
create or replace function _memoir.read_question(p_query text, p_config jsonb, p_given real[], p_begins boolean)
returns _memoir.question language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_question _memoir.question; v_model _memoir.embedding_models; v_read record; v_text text; v_value text;
begin
  select * into v_model from _memoir.embedding_models where status = 'active';
  v_question.query := p_query;
  if coalesce(p_query, '') <> '' and _memoir.reads_language() then
    select * into v_read from _memoir.py_ask(p_config ->> 'embedder_socket',
      case when p_given is null and v_model.provider = 'embedder' and length(p_query) <= 20000 then v_model.name end,
      v_model.query_prefix, left(p_query, 20000), (p_config ->> 'query_timeout_ms')::integer, p_begins);
    v_question.facts := v_read.facts;
    v_question.problem := v_read.problem;
    if v_read.vec is not null then
      select q.* into v_question.vector, v_question.problem from _memoir.usable_vector(v_read.vec, v_model) q;
    end if;
  end if;
  if not p_begins and (v_question.facts is null or length(p_query) > 20000) then
    -- Secrets are blotted out of what goes to a model; '' where a disguise hides the place.
    if p_query <> '' and _memoir.reads_language() then
      v_text := _memoir.py_redact(p_query, p_config ->> 'embedder_socket');
    end if;
    if v_text is null then
      v_text := p_query;
      for v_value in select s.value from _memoir.plain_secrets(p_query) s order by length(s.value) desc loop
        v_text := replace(v_text, v_value, '(withheld)');
      end loop;
      -- Whatever the setting says of what is stored.
      if _memoir.detected(p_config || '{"detect_secrets": true}', v_text) <> '{}' then v_text := ''; end if;
    end if;
    v_question.facts := coalesce(v_question.facts, '{}') || jsonb_build_object('redacted', v_text);
  end if;
  return v_question;
end $$;

-- Returns whether a message is greetings and thanks alone. Small talk recalls nothing, so nothing is searched.
create or replace function _memoir.is_small_talk(p_config jsonb, p_facts jsonb)
returns boolean language sql stable as $$
  select (p_config ->> 'small_talk_words')::integer > 0 and coalesce((p_facts ->> 'small_talk')::boolean, false)
    and p_config ->> 'text_search_config' in ('english', 'simple', 'pg_catalog.english', 'pg_catalog.simple')
$$;

-- Completes a question that was read with its words, the other names of what it names, and its vector: given, or
-- asked of the embedder. That gets neither secrets nor what they name.
create or replace function _memoir.question(p_user_id uuid, p_counters _memoir.user_counters, p_config jsonb,
  p_read _memoir.question, p_scope _memoir.search_scope, p_given real[])
returns _memoir.question language plpgsql stable as $$
declare
  v_query constant text := p_read.query; v_question _memoir.question := p_read;
  v_sent text := p_read.facts ->> 'redacted'; v_names text[]; v_reads text[]; v_found record;
begin
  v_found := _memoir.question_words(v_query, (p_config ->> 'text_search_config')::regconfig,
    coalesce(p_counters.languages, 0));
  v_question.language := v_found.language; v_question.text_config := v_found.config;
  v_question.terms := v_found.terms; v_question.forms := v_found.forms; v_question.of := v_found.of;
  v_found := _memoir.kindred_words(v_query, v_question.language, v_question.text_config, v_question.terms);
  v_question.kindred := v_found.kindred; v_question.kindred_of := v_found.kindred_of;
  v_found := _memoir.other_names(p_user_id, p_counters, v_question.text_config, v_query, p_scope);
  v_question.names := v_found.names; v_question.loose := v_found.loose;
  v_names := v_question.names;
  if p_given is null and v_sent <> v_query then
    v_names := (_memoir.other_names(p_user_id, p_counters, v_question.text_config, v_sent, p_scope)).names;
  end if;
  -- Without names the text was embedded when it was read.
  if p_given is not null or v_names <> '{}' or num_nulls(v_question.vector, v_question.problem) = 2 then
    if v_names <> '{}' then v_sent := v_sent || ' (' || array_to_string(v_names, ', ') || ')'; end if;
    v_found := _memoir.query_vector(p_config, v_sent, p_given);
    v_question.vector := v_found.vector; v_question.problem := v_found.problem;
  end if;
  select m.model_id, m.languages into v_question.model_id, v_reads from _memoir.embedding_models m
  where m.status = 'active';
  -- A user's words are of the user's languages, whatever the question is written in.
  v_question.unread := _memoir.is_unread(v_question.language, v_question.facts ->> 'language', v_reads);
  return v_question;
end $$;

create or replace function _memoir.is_unread(p_language smallint, p_name text, p_reads text[])
returns boolean language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return p_language > 0 and (select bool_or(l.iso <> all (p_reads)) from _memoir.data_languages() l
    where l.number::integer = p_language or l.name = p_name);
end $$;
