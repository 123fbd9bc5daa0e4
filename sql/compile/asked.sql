-- A question as each user and space is asked it, as the kernel takes it; as: the user a client reads it by.
create or replace function _memoir.asked_of_each(p_places jsonb, p_config jsonb, p_question _memoir.question,
  p_scope _memoir.search_scope, p_query_embedding real[], p_project text, p_how jsonb)
returns jsonb language plpgsql stable as $$
declare
  v_space jsonb; v_user uuid; v_counters _memoir.user_counters; v_question _memoir.question; v_asked jsonb := '[]';
begin
  if p_places = '[]' then return v_asked; end if;
  for v_space in select value from jsonb_array_elements(p_places) loop
    v_user := v_space ->> 'user_id';
    select * into v_counters from _memoir.user_counters where user_id = v_user;
    v_question := _memoir.question(v_user, v_counters, p_config, p_question, p_scope, p_query_embedding);
    v_question.goes_on := false;
    v_asked := v_asked || (_memoir.asked(v_user, v_counters, p_config, v_question, p_scope,
        nullif(p_project, 'global')) || p_how
      || jsonb_build_object('space', _memoir.one_line(v_space ->> 'space'), 'as', v_space ->> 'user',
        'vector', v_question.vector::text));
  end loop;
  return v_asked;
end $$;

-- A question and where it looks, as the kernel takes them (pg_memoir_kernel/recall.py).
create or replace function _memoir.asked(p_user_id uuid, p_counters _memoir.user_counters, p_config jsonb,
  p_question _memoir.question, p_scope _memoir.search_scope, p_project text)
returns jsonb language plpgsql stable as $$
declare
  v_terms text[] := p_question.terms
    || _memoir.alias_terms(p_question.text_config, p_question.names, p_question.terms);
  v_loose text[] := _memoir.alias_terms(p_question.text_config, p_question.loose, v_terms); v_zone text;
begin
  if p_config ->> 'time_zone' = '' and p_question.facts ->> 'times' ~ '\[[^]]' then
    -- The UTC offset of the newest message of the last session that came with one.
    v_zone := (select h.metadata #>> '{sent,utc_offset}' from _memoir.session_counters c
      join _memoir.conversation_history h on h.user_id = p_user_id and h.session_id = c.session_id
        and h.turn_index >= c.turn_count - 4 and h.recorded_at between c.first_recorded_at and c.last_recorded_at
        and h.metadata #>> '{sent,utc_offset}' is not null
      where c.user_id = p_user_id and c.session_id = p_counters.last_session order by h.turn_index desc limit 1);
  end if;
  return jsonb_build_object(
    'user', p_user_id, 'part', _memoir.part_of(p_user_id), 'now', memoir.now(), 'project', p_project, 'zone', v_zone,
    'frequent', (p_config ->> 'frequent_memories')::integer, 'scope', to_jsonb(p_scope),
    'question', jsonb_build_object('query', p_question.query, 'facts', coalesce(p_question.facts, '{}'),
      'terms', p_question.terms, 'terms_widened', v_terms || v_loose,
      'common', _memoir.common_terms(p_question.text_config, v_terms) || v_loose,
      'forms', p_question.forms, 'form_of', p_question.of, 'kindred', p_question.kindred,
      'kindred_of', p_question.kindred_of, 'config', p_question.text_config, 'model', p_question.model_id,
      'unread', coalesce(p_question.unread, false), 'language', coalesce(p_question.language, 0),
      'goes_on', coalesce(p_question.goes_on, false),
      'is_small_talk', _memoir.is_small_talk(p_config, p_question.facts),
      'is_question', _memoir.is_question(p_question.query)),
    'counters', jsonb_build_object('items', coalesce(p_counters.items, 0),
      'total_words', coalesce(p_counters.total_words, 0), 'letter_rows', coalesce(p_counters.letter_rows, 0),
      'tail_items', coalesce(p_counters.tail_items, 0), 'next_item', coalesce(p_counters.next_item, 1),
      'memories', coalesce(p_counters.memories, 0), 'related', coalesce(p_counters.related, false),
      'features', coalesce(p_counters.features, '{}')));
end $$;

-- What the kernel finds for a question: its recall, the numbers of the candidates, what the ledger keeps of them, and
-- all of it where that is asked for. A server without PL/Python has no kernel: then a client runs it over
-- recall_arrays, in the same transaction. It says so by setting memoir.recalled, {key: {"recalled", "items", "trace",
-- "rows"}} of what it has made so far; the error that tells what is missing has the key of that and what to make it of.
create or replace function _memoir.recalled(p_asked jsonb, p_config jsonb, p_vector halfvec, out recalled jsonb,
  out items integer[], out trace json, out rows jsonb)
language plpgsql stable as $$
declare
  v_given jsonb := nullif(current_setting('memoir.recalled', true), '');
  v_key text := case when v_given is not null then md5((p_asked - 'now')::text || coalesce(p_vector::text, '')) end;
  v_found record;
begin
  if v_given ? v_key then
    select g -> 'recalled', array(select jsonb_array_elements_text(g -> 'items')::integer), g -> 'trace',
      nullif(g -> 'rows', 'null') into recalled, items, trace, rows from (select v_given -> v_key) t(g);
  elsif v_given is null and to_regprocedure('_memoir.py_recall(text,text,text)') is not null then
    v_found := _memoir.py_recall(p_asked::text, p_config::text, p_vector::text);
    recalled := v_found.recalled;
    items := v_found.items;
    trace := v_found.trace;
    rows := v_found.rows;
  else
    perform _memoir.fail('PM026', 'this server has no PL/Python to make a recall with',
      'the Python client, the gateway and the command line make it in their own process: call it through one of these',
      case when v_given is not null then jsonb_build_object('key', v_key, 'asked', p_asked, 'settings', p_config::text,
        'vector', p_vector::text)::text end);
  end if;
end $$;
