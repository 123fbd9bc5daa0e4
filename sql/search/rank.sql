-- Words and vectors fused into one ranking, with what stands around a hit.

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

-- One user's best items, best first: signals of each → weights → one integer, ties by item number.
create or replace function _memoir.rank(p_user_id uuid, p_counters _memoir.user_counters, p_config jsonb,
  p_question _memoir.question, p_project text, p_scope _memoir.search_scope, p_limit integer)
returns _memoir.ranked_item[] language plpgsql stable as $$
declare
  v_words _memoir.item_scores; v_vectors _memoir.item_scores; v_wanted integer[]; v_items _memoir.search_items[];
  v_hidden integer[] := '{}'; v_hidden_words bigint := 0; v_above integer := 0; v_further boolean := false;
  v_terms text[] := p_question.terms
    || _memoir.alias_terms(p_question.text_config, p_question.names, p_question.terms);
  v_loose text[] := _memoir.alias_terms(p_question.text_config, p_question.loose, v_terms);
begin
  -- What is above the caller's clearance is not there: it finds nothing, counts for nothing and moves nobody's score.
  if p_scope.clearance is distinct from 'secret' and 'sensitive' = any (p_counters.features) then
    select coalesce(array_agg(i.item_no), '{}'), coalesce(sum(i.word_count), 0) into v_hidden, v_hidden_words
    from _memoir.search_items i where i.user_id = p_user_id and i.sensitivity > coalesce(p_scope.clearance, 'normal')
      and i.sensitivity <> 'normal';
    v_above := cardinality(v_hidden);
    p_counters.items := p_counters.items - v_above; p_counters.total_words := p_counters.total_words - v_hidden_words;
  end if;
  -- A memory that repeats a turn finds nothing that the turn does not: it would only push others out.
  if 'echoes' = any (p_counters.features) and (p_scope.kinds is null or 't' = any (p_scope.kinds)) then
    select v_hidden || coalesce(array_agg(i.item_no), '{}'), coalesce(sum(i.word_count), 0) into v_hidden,
      v_hidden_words
    from _memoir.search_items i where i.user_id = p_user_id and i.echo and i.item_no <> all (v_hidden);
    p_counters.items := p_counters.items - cardinality(v_hidden) + v_above;
    p_counters.total_words := p_counters.total_words - v_hidden_words;
  end if;
  if coalesce(p_counters.items, 0) <= 0 then return null; end if;
  v_words := _memoir.word_scores(p_user_id, p_counters, v_terms || v_loose,
    p_question.common || _memoir.common_terms(p_question.text_config, v_terms) || v_loose, v_hidden, p_question.forms,
    p_question.of, p_question.kindred, p_question.kindred_of, p_question.text_config, p_question.query);
  v_vectors := _memoir.vector_scores(p_user_id, p_counters, p_config, p_question.vector, p_question.model_id,
    v_words.items[1 : p_limit], v_hidden, p_limit);
  v_wanted := _memoir.wanted(v_words, v_vectors, p_limit);
  loop
    select v_items || array_agg(i) into v_items
    from _memoir.search_items i
    where i.user_id = p_user_id and i.item_no = any (v_wanted) and (v_hidden = '{}' or i.item_no <> all (v_hidden))
      and (not i.dead or (p_scope.as_of is not null and i.kind = 'm'))  -- excluded turns stay excluded at any time
      and (p_scope.as_of is null or i.recorded_at <= p_scope.as_of)
      and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
      and (i.kind <> 't' or i.turn_index < p_scope.hidden_from or i.session_id <> all (p_scope.hidden_sessions)
        or i.turn_index = any (p_scope.reduced))
      -- a session's own summary stands in its system message
      and (i.kind <> 's' or i.session_id <> all (p_scope.hidden_sessions))
      and (p_scope.projects is null or i.project = any (p_scope.projects))
      and (p_scope.said_after is null or i.created_at >= p_scope.said_after)
      and (p_scope.said_before is null or i.created_at < p_scope.said_before)
      and (i.kind <> 'm' or i.session_id is null or i.session_id = any (p_scope.local_sessions));
    exit when v_further;
    v_further := true;
    v_wanted := _memoir.further_neighbours(p_user_id, v_items, v_words.items[1 : p_limit / 4],
      v_vectors.items[1 : p_limit / 4]);
    exit when v_wanted = '{}';
  end loop;
  return _memoir.score(v_items, v_words, v_vectors, p_config, p_question, p_project,
    coalesce(p_scope.as_of, memoir.now()), p_limit);
end $$;

-- Neighbours that do not lie beside their items, since something else was indexed in between: those before a match in
-- meaning, and within 128 numbers those after a match in words.
create or replace function _memoir.further_neighbours(p_user_id uuid, p_items _memoir.search_items[], p_words integer[],
  p_vectors integer[])
returns integer[] language plpgsql stable as $$
declare
  v_before integer[]; v_lasts integer[]; v_next integer[];
begin
  with items as materialized (
    select i.item_no, i.previous_item, i.kind from unnest(p_items) i
  )
  select array(select i.previous_item from items i where i.item_no = any (p_vectors) and i.previous_item < i.item_no - 1
      and i.previous_item not in (select item_no from items)),
    array(select i.item_no from items i where i.item_no = any (p_words) and i.kind = 't'
      and i.item_no not in (select previous_item from items where previous_item is not null))
  into v_before, v_lasts;
  if v_lasts <> '{}' then
    v_next := array(select n.item_no from unnest(v_lasts) e, lateral (select i.item_no from _memoir.search_items i
        where i.user_id = p_user_id and i.item_no > e + 1 and i.item_no <= e + 128 and i.previous_item = e
        order by i.item_no limit 1) n);
  end if;
  return v_before || v_next;
end $$;

-- The best by words and vectors, half and half, what follows a match in words (an answer), and what precedes a match in
-- meaning: the signals of all would be weighed for nothing. Half again as many as are asked for, since sessions and
-- dates move them far.
create or replace function _memoir.wanted(p_words _memoir.item_scores, p_vectors _memoir.item_scores, p_limit integer)
returns integer[] language plpgsql immutable set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_neighbours integer := p_limit / 4;
begin
  if p_vectors.items is null then
    return array(select unnest(p_words.items[1 : p_limit]) union select unnest(p_words.items[1 : v_neighbours]) + 1);
  end if;
  return array(
    select b.item from (
      select coalesce(w.item, c.item) as item
      from unnest(p_words.items[1 : p_limit], p_words.scores[1 : p_limit]) w(item, bm25) full
      join unnest(p_vectors.items, p_vectors.scores) c(item, cosine) on c.item = w.item
      order by coalesce(w.bm25 / p_words.best, 0) + greatest(coalesce(c.cosine, 0), 0) / greatest(p_vectors.best,
        1e-6) desc, item limit p_limit * 3 / 2) b
    union select unnest(p_words.items[1 : v_neighbours]) + 1 union select unnest(p_vectors.items[1 : v_neighbours])
      - 1);
end $$;
