-- A question, read once: what the package says of it, its words, other names of what it names, its vector.

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

-- Reads a question once: its words, the other names of what it names, its vector: given, or asked of the embedder.
-- That gets neither secrets nor what they name.
create or replace function _memoir.question(p_user_id uuid, p_counters _memoir.user_counters, p_config jsonb,
  p_query text, p_facts jsonb, p_scope _memoir.search_scope, p_given real[])
returns _memoir.question language plpgsql stable as $$
declare
  v_question _memoir.question; v_sent text; v_names text[]; v_reads text[];
begin
  v_question.query := p_query;
  v_question.facts := p_facts;
  select q.* into v_question.language, v_question.text_config, v_question.terms, v_question.common,
    v_question.forms, v_question.of
  from _memoir.question_words(p_query, (p_config ->> 'text_search_config')::regconfig,
    coalesce(p_counters.languages, 0)) q;
  select k.kindred, k.kindred_of into v_question.kindred, v_question.kindred_of
  from _memoir.kindred_words(p_query, v_question.language, v_question.text_config, v_question.terms) k;
  select o.names, o.loose into v_question.names, v_question.loose
  from _memoir.other_names(p_user_id, p_counters, v_question.text_config, p_query, p_scope) o;
  if p_given is null then
    v_sent := p_facts ->> 'redacted';
    v_names := v_question.names;
    if v_sent <> p_query then
      v_names := (_memoir.other_names(p_user_id, p_counters, v_question.text_config, v_sent, p_scope)).names;
    end if;
    if v_names <> '{}' then
      v_sent := v_sent || ' (' || array_to_string(v_names, ', ') || ')';
    end if;
  end if;
  select q.vector, q.model_id, q.problem, q.languages
  into v_question.vector, v_question.model_id, v_question.problem, v_reads
  from _memoir.query_vector(p_config, v_sent, p_given) q;
  v_question.unread := v_question.language > 0 and (
    select l.iso from _memoir.data_languages() l where l.number::integer = v_question.language) <> all (v_reads);
  return v_question;
end $$;
